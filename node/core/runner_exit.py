"""Why a runner's process ended, as far as its exit code and its last lines tell."""

from collections.abc import Sequence

import msgspec

from node.core.failure_text import short_failure
from node.model.errors import Failure

EXIT_CODE_UNKNOWN = 256
"""One that no process has: only a process's parent is told how it ended."""
LINES_SHOWN = 5
LINE_CHARACTERS_MAX = 300
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL",
            10: "SIGBUS", 11: "SIGSEGV", 15: "SIGTERM"}  # fmt: skip


class _Sign(msgspec.Struct, frozen=True):
    """Words that name a cause wherever they stand in the last lines."""

    words: tuple[str, ...]
    code: str
    message: str
    remedy: str


_LESS_MEMORY = "free memory, choose a smaller context, or spread the model over more nodes"
_SIGNS = (
    _Sign(
        ("libmlx", "no module named 'mlx", "no module named 'mlx_lm"),
        "mlx_missing",
        "mlx can't be loaded on this machine",
        "install exoctl again; on Linux it needs `mlx[cpu]`, on a Mac Apple silicon and macOS 14",
    ),
    _Sign(
        ("cannot open shared object file", "library not loaded", "dlopen("),
        "library_missing",
        "a system library can't be loaded",
        "install the library that the runner's log names",
    ),
    _Sign(
        ("no module named",),
        "module_missing",
        "a Python module is missing",
        "install exoctl again",
    ),
    _Sign(
        ("no space left on device",),
        "disk_full",
        "the disk is full",
        "free some disk space, then restart the instance",
    ),
    _Sign(
        (
            "insufficient memory",
            "unable to allocate",
            "std::bad_alloc",
            "memoryerror",
            "out of memory",
            "attempting to allocate",
        ),
        "out_of_memory",
        "the runner ran out of memory",
        _LESS_MEMORY,
    ),
    _Sign(
        ("filenotfounderror", "no such file or directory"),
        "model_file_missing",
        "a file of the model is missing",
        "remove the model and fetch it again",
    ),
    _Sign(
        ("permissionerror", "permission denied"),
        "model_unreadable",
        "a file can't be read",
        "check who owns the model's files",
    ),
)
_CRASHED = (
    "runner_crashed",
    "the runner crashed",
    "its instance is started again; if it crashes again, see the runner's log",
)
_TERMINATED = ("runner_terminated", "somebody ended the runner", "restart the instance")
_ENDED = ("runner_ended", "the runner ended with an error", "see the runner's log")
_BY_EXIT_CODE: dict[int | None, tuple[str, str, str]] = {
    None: (
        "runner_unkillable",
        "the runner does not end, not even killed: it hangs in the system",
        "restart the machine; its memory is not free until then",
    ),
    0: ("runner_left", "the runner left by itself", "restart the instance"),
    EXIT_CODE_UNKNOWN: (
        "runner_vanished",
        "the runner ended; it was started by an earlier life of its node, so nobody knows how",
        "its instance is started again; if it ends again, see the runner's log",
    ),
    -1: _TERMINATED,
    -2: _TERMINATED,
    -4: (
        "processor_unsupported",
        "the runner used an instruction that this processor lacks",
        "use a build of mlx made for this processor",
    ),
    -6: _CRASHED,
    -7: _CRASHED,
    -9: (
        "runner_killed",
        "the runner was killed, most likely by the system for lack of memory",
        _LESS_MEMORY,
    ),
    -10: _CRASHED,
    -11: _CRASHED,
    -15: _TERMINATED,
}


def explain_exit(exit_code: int | None, lines: Sequence[str]) -> Failure:
    """The failure to show for a runner that ended without being asked to.

    `lines` are the last of its output; `exit_code` is minus the number of the signal that ended it,
    None where it could not be ended at all, `EXIT_CODE_UNKNOWN` where nobody was told.
    """
    code, message, remedy = _cause(exit_code, "\n".join(lines).lower())
    failure = Failure(code=code, message=f"{message} ({_ending(exit_code)})", remedy=remedy)
    return with_lines(failure, lines)


def stage_stopped() -> Failure:
    """Another stage of the instance was stopped, and nobody stopped this one."""
    return Failure(
        code="stage_stopped",
        message="another stage of the instance was stopped, and this one ended with it",
        remedy="the instance is started again by itself where another try is left",
    )


def with_lines(failure: Failure, lines: Sequence[str]) -> Failure:
    """The failure with the last lines of the runner's output in its message; never too long."""
    shown = "; ".join(line[:LINE_CHARACTERS_MAX] for line in lines[-LINES_SHOWN:])
    if shown:
        message = f"{failure.message}. Last lines: {shown}"
        failure = msgspec.structs.replace(failure, message=message)
    return short_failure(failure)


def _cause(exit_code: int | None, text: str) -> tuple[str, str, str]:
    if exit_code not in (0, -9):
        for sign in _SIGNS:
            if any(word in text for word in sign.words):
                return sign.code, sign.message, sign.remedy
    return _BY_EXIT_CODE.get(exit_code, _ENDED)


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "still there"
    if exit_code == EXIT_CODE_UNKNOWN:
        return "exit code unknown"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    return f"signal {_SIGNALS.get(-exit_code, str(-exit_code))}"
