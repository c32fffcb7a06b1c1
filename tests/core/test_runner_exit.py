import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.core.failure_text import TEXT_CHARACTERS_MAX
from node.core.runner_exit import LINE_CHARACTERS_MAX, LINES_SHOWN, explain_exit, with_lines
from node.model.errors import Failure


@pytest.mark.parametrize(
    ("exit_code", "code", "said"),
    [
        (-9, "runner_killed", "SIGKILL"),
        (-6, "runner_crashed", "SIGABRT"),
        (-11, "runner_crashed", "SIGSEGV"),
        (-4, "processor_unsupported", "SIGILL"),
        (-15, "runner_terminated", "SIGTERM"),
        (-64, "runner_ended", "signal 64"),
        (0, "runner_left", "exit code 0"),
        (70, "runner_ended", "exit code 70"),
        (None, "runner_unkillable", "still there"),
    ],
)
def test_the_exit_code_tells(exit_code: int | None, code: str, said: str) -> None:
    failure = explain_exit(exit_code, ())
    assert failure.code == code
    assert said in failure.message
    assert failure.remedy


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("ImportError: libmlx.so: cannot open shared object file: No such file", "mlx_missing"),
        ("ModuleNotFoundError: No module named 'mlx_lm'", "mlx_missing"),
        ("ModuleNotFoundError: No module named 'jinja2'", "module_missing"),
        ("OSError: libgfortran.so.5: cannot open shared object file", "library_missing"),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory"),
        ("[METAL] Command buffer execution failed: Insufficient Memory", "out_of_memory"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", "model_file_missing"),
        ("PermissionError: [Errno 13] Permission denied: 'x'", "model_unreadable"),
    ],
)
def test_the_last_lines_tell_more(line: str, code: str) -> None:
    for exit_code in (1, -6):
        failure = explain_exit(exit_code, ("before", line))
        assert failure.code == code
        assert line in failure.message


def test_a_kill_is_a_kill_whatever_was_said_before() -> None:
    assert explain_exit(-9, ("No such file or directory",)).code == "runner_killed"


@given(st.none() | st.integers(-70, 300), st.lists(st.text(), max_size=20))
def test_whatever_was_said_the_message_is_bounded(exit_code: int | None, lines: list[str]) -> None:
    failure = explain_exit(exit_code, [line * 1000 for line in lines])
    assert len(failure.message) < 300 + LINES_SHOWN * (LINE_CHARACTERS_MAX + 2)


@given(st.integers(0, 10**6), st.lists(st.text(), max_size=20))
def test_whatever_a_failure_says_it_is_bounded_with_its_lines(
    length: int, lines: list[str]
) -> None:
    failure = Failure(code="x", message="m" * length, remedy="r" * length)
    told = with_lines(failure, lines)
    assert max(len(told.message), len(told.remedy)) <= TEXT_CHARACTERS_MAX
