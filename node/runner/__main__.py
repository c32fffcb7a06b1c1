"""`python -m node.runner --socket PATH --runner ID`: the child process that holds a shard."""

import argparse
import logging
import os
import sys
from pathlib import Path

from node.model.ids import RunnerId
from node.runner.channel import NodeChannel
from node.runner.child import Child
from node.runner.claim import VARIABLE
from node.runner.lifecycle import Lifecycle
from node.runner.protocol import ORPHAN_SECONDS

STAGE_SECONDS = 10.0
"""The least time that a neighbour in a pipeline has for a step before it counts as lost."""


def main() -> None:
    """Live until the shard is not wanted any more, then end the process."""
    parser = argparse.ArgumentParser(prog="python -m node.runner")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--orphan-seconds", type=float, default=ORPHAN_SECONDS)
    parser.add_argument("--stage-seconds", type=float, default=STAGE_SECONDS)
    options = parser.parse_args()
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    channel = NodeChannel(RunnerId(options.runner))
    lifecycle = Lifecycle(channel, options.stage_seconds)
    # Taken out, so that nothing that the runner starts inherits it.
    secret = bytes.fromhex(os.environ.pop(VARIABLE, ""))
    child = Child(options.socket, RunnerId(options.runner), channel, options.orphan_seconds, secret)
    try:
        code = child.run(lifecycle.run)
    except OSError as error:
        logging.getLogger(__name__).critical("%s: %s", options.socket, error)
        code = 1
    logging.shutdown()
    # Not sys.exit: the mlx thread may be deep in a computation that nobody waits for any more.
    os._exit(code)


if __name__ == "__main__":
    main()
