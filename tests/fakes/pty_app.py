"""The app over a fake node as a process of its own: `python -m tests.fakes.pty_app MARK WHAT`.

MARK is a file that the node's clean-up writes; WHAT is what goes wrong: `nothing`, `screen` (the
screen raises), `node` (the node raises), `start` (the node can't start).
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from node.handle import NodeHandle
from node.model.errors import ConflictError
from tests.fakes.cluster import three_node_cluster
from tests.fakes.handle import FakeHandle
from tui.app import ExoctlApp, run_with
from tui.app_options import AppOptions

CLEAN_UP_SECONDS = 0.2


class RaisingApp(ExoctlApp):
    """Raises when `!` is pressed."""

    BINDINGS = [("exclamation_mark", "explode", "Explode")]

    def action_explode(self) -> None:
        raise RuntimeError("the screen fell over")


def main(mark: Path, what: str) -> int:
    @asynccontextmanager
    async def connect() -> AsyncGenerator[NodeHandle]:
        if what == "start":
            raise ConflictError.because(
                "port_taken", "port 52415 is taken by process 4711", "give --api-port another"
            )
        handle = FakeHandle(three_node_cluster())
        try:
            async with anyio.create_task_group() as group:
                if what == "node":
                    group.start_soon(_fail_soon)
                yield handle
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(CLEAN_UP_SECONDS)
                handle.close()
                await anyio.Path(mark).write_text("left the cluster")

    app = RaisingApp(AppOptions(animations=False))
    return run_with(app, connect, is_embedded=True)


async def _fail_soon() -> None:
    await anyio.sleep(0.5)
    raise RuntimeError("the node fell over")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
