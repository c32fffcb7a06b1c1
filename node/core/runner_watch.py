"""Whether a runner still makes progress: a deadline for each phase, and for each step when busy."""

import collections
import statistics

import msgspec

from node.model.errors import Failure
from node.model.instance import RunnerPhase
from node.model.register import RunnerProgress

_STEPS_REMEMBERED = 64


class RunnerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a runner may take."""

    starting: float = 60.0
    connecting: float = 90.0
    """From listening until every stage has its neighbours."""
    loading: float = 60.0
    """Beside the bytes; and between two layers."""
    loading_bytes_per_second: float = 50e6
    """The slowest disk that is waited for."""
    warming_up: float = 120.0
    stopping: float = 5.0
    stall: float = 30.0
    """READY: without a sign of life, or busy without a step."""
    stall_steps: float = 20.0
    """Or this many times the median step, where that is longer."""


class RunnerWatch:
    """Follows one runner from its start; `now` is monotonic seconds."""

    def __init__(self, limits: RunnerLimits, weight_bytes: int, now: float) -> None:
        self._limits = limits
        self._weight_bytes = weight_bytes
        self._phase = RunnerPhase.STARTING
        self._entered_at = now
        self._layers_loaded = 0
        self._layer_at = now
        self._heard_at = now
        self._busy = False
        self._steps = 0
        self._step_at = now
        self._step_seconds: collections.deque[float] = collections.deque(maxlen=_STEPS_REMEMBERED)
        self._looked_at = now

    def enter(self, phase: RunnerPhase, now: float) -> None:
        """The runner is in a new phase, and its deadline begins."""
        self._phase = phase
        self._entered_at = self._layer_at = self._heard_at = self._step_at = now

    def beat(self, progress: RunnerProgress, *, busy: bool, now: float) -> None:
        """The runner told how far it is."""
        if progress.layers_loaded > self._layers_loaded:
            self._layers_loaded = progress.layers_loaded
            self._layer_at = now
        gained = progress.steps - self._steps
        if gained > 0 and self._busy:
            self._step_seconds.append((now - self._step_at) / gained)
        if gained != 0 or not (busy and self._busy):
            self._steps = progress.steps
            self._step_at = now
        self._busy = busy
        self._heard_at = now

    @property
    def stall_seconds(self) -> float:
        """How long a busy runner may go without a step."""
        if not self._step_seconds:
            return self._limits.stall
        median = statistics.median(self._step_seconds)
        return max(self._limits.stall, self._limits.stall_steps * median)

    def overdue(self, now: float, look_seconds: float) -> Failure | None:
        """What took too long, or None. Called every `look_seconds`.

        A look that itself comes far too late means that this process was held up (a debugger, a
        suspended laptop): what it did not read in that time is not held against the runner.
        """
        gap = now - self._looked_at
        self._looked_at = now
        if gap > 5 * look_seconds:
            self._entered_at += gap
            self._layer_at += gap
            self._heard_at += gap
            self._step_at += gap
            return None
        if self._phase is RunnerPhase.READY:
            return self._stalled(now)
        return self._late(now)

    def _stalled(self, now: float) -> Failure | None:
        limit = self.stall_seconds
        if self._busy and now - self._step_at > limit:
            what = f"busy without a step for {now - self._step_at:.0f} s"
        elif now - self._heard_at > limit:
            what = f"no sign of life for {now - self._heard_at:.0f} s"
        else:
            return None
        return Failure(
            code="runner_stuck",
            message=f"the runner hangs: {what} (limit {limit:.0f} s); it was ended",
            remedy="its instance is started again; if it hangs again, see the runner's log",
        )

    def _late(self, now: float) -> Failure | None:
        deadline, what, remedy = self._deadline()
        if now <= deadline:
            return None
        spent = now - self._entered_at
        return Failure(
            code=f"runner_{self._phase.value}_timeout",
            message=f"the runner took too long: {what} ({spent:.0f} s); it was ended",
            remedy=remedy,
        )

    def _deadline(self) -> tuple[float, str, str]:
        limits = self._limits
        match self._phase:
            case RunnerPhase.STARTING:
                return (
                    self._entered_at + limits.starting,
                    "its process did not answer",
                    "see the runner's log; a machine that is very busy starts slowly",
                )
            case RunnerPhase.CONNECTING:
                return (
                    self._entered_at + limits.connecting,
                    "not every stage of the pipeline was reached",
                    "check that the nodes of the instance reach each other",
                )
            case RunnerPhase.LOADING:
                by_size = self._weight_bytes / limits.loading_bytes_per_second
                return (
                    max(
                        self._entered_at + limits.loading + by_size, self._layer_at + limits.loading
                    ),
                    f"loading stopped after {self._layers_loaded} layers",
                    "check the disk that the model lies on, and free memory",
                )
            case RunnerPhase.WARMING_UP:
                return (
                    self._entered_at + limits.warming_up,
                    "the first step did not come",
                    "see the runner's log; a smaller context needs less memory",
                )
            case _:
                return self._entered_at + limits.stopping, "it did not end when asked", ""
