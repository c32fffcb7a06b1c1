"""Changing the cluster: a command to the master, and one way to say what came of it."""

from collections.abc import Callable

import anyio

from node.handle import NodeHandle
from node.model.command import Accepted, Command, Refused
from node.model.errors import RefusedError, TimeoutExpiredError
from tui.commands.console import Console, Listing
from tui.commands.naming import error_of
from tui.viewmodel.text import clean

SUBMIT_SECONDS = 30.0
_POLL_SECONDS = 0.25


def check_may_change(console: Console) -> None:
    """Refuse where the person asked for nothing to be changed.

    Raises:
        RefusedError: `--read-only` or `EXOCTL_READ_ONLY` is set.
    """
    if console.settings.read_only:
        raise RefusedError.because(
            "read_only",
            "this would change the cluster, and --read-only is set",
            "leave out --read-only, or unset EXOCTL_READ_ONLY",
        )


async def submit(console: Console, handle: NodeHandle, command: Command) -> Accepted:
    """Have the master decide the command.

    Raises:
        ExoctlError: it was refused, as the kind that the refusal names; or no answer in time.
    """
    check_may_change(console)
    answer = await handle.submit(command, console.settings.timeout_seconds(SUBMIT_SECONDS))
    if isinstance(answer, Refused):
        raise error_of(answer)
    return answer


def say_done(console: Console, *, subject: str, name: str, change: str, index: int) -> None:
    """Write what was changed: a line such as `studio-a cordoned`, or its JSON."""
    if console.settings.is_plain_data:
        item: dict[str, object] = {"subject": subject, "name": name, "change": change}
        console.emit(Listing(kind="Change", index=index, items=[item], names=(subject,)))
    else:
        console.write(clean(f"{name} {change}"))


async def until(
    handle: NodeHandle,
    holds: Callable[[], bool],
    *,
    timeout_seconds: float,
    what: str,
) -> None:
    """Return once the condition on the handle's state holds; looked at whenever something happens.

    Raises:
        TimeoutExpiredError: it did not hold in time.
    """
    with anyio.move_on_after(timeout_seconds) as scope:
        async with handle.subscribe() as stream:
            while not holds():
                with anyio.move_on_after(_POLL_SECONDS):
                    await stream.receive()
    if scope.cancelled_caught:
        raise TimeoutExpiredError.because(
            "wait_expired",
            f"waited {timeout_seconds:g} s for {what}",
            "wait longer with --timeout",
        )
