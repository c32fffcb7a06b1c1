"""The mlx thread: from the first command through loading and serving to the end."""

import logging
import os

from node.model.instance import RunnerPhase
from node.runner.channel import NodeChannel
from node.runner.environment import preload, prepare_environment
from node.runner.failures import RunnerError, StopAskedError, failure_of
from node.runner.protocol import Prepare, Shutdown

logger = logging.getLogger(__name__)


class Lifecycle:
    """Runs once, on the thread that owns every array."""

    def __init__(self, channel: NodeChannel, stage_seconds: float) -> None:
        self._channel = channel
        self._stage_seconds = stage_seconds

    def run(self) -> int:
        """Live; returns the exit code of the process."""
        try:
            self._live()
        except StopAskedError:
            self._channel.announce(RunnerPhase.STOPPED)
            return 0
        except Exception as error:  # the last chance to say why
            if not isinstance(error, RunnerError):
                logger.exception("the runner failed")
            self._channel.announce(RunnerPhase.FAILED, failure_of(error))
            return 1
        return 0

    def _live(self) -> None:
        prepare_environment()
        library = preload()
        logger.info("process %d, %s", os.getpid(), library or "no OpenBLAS")
        # On this thread and this late: the socket listens by now, so the node sees it happen.
        from node.runner.serving import Serving  # noqa: PLC0415

        prepare = self._wait_for_prepare()
        self._channel.attempt = prepare.attempt
        Serving(self._channel, prepare, self._stage_seconds).run()

    def _wait_for_prepare(self) -> Prepare:
        while True:
            for command in self._channel.inbox.take():
                if isinstance(command, Shutdown):
                    raise StopAskedError
                if isinstance(command, Prepare):
                    return command
            self._channel.inbox.wait((), None)
