"""What is done to the cluster and when, out of a seed: the same seed, the same schedule."""

import enum
import random

import msgspec

NODES = 3
QUIET_SECONDS = (1.5, 9.0)
"""From the beginning of one fault to the next."""
CALM_SECONDS = 12.0
"""Now and then: time enough for everything to be well again."""
CALM_EVERY = 8
AFFLICTED_MAX = 2
RECOVERY_SECONDS = 3.0
"""A node is left alone for so long after its fault."""


class Kind(enum.Enum):
    """What can happen to a node."""

    KILL = "kill -9"
    STOP = "SIGSTOP"
    RESTART = "clean restart"
    CABLE = "link down"
    ALONE = "partition"
    PAIR = "one path cut"
    ONE_WAY = "one direction lost"
    POWER = "all killed at once"
    KILL_RUNNER = "runner killed"
    STOP_RUNNER = "runner stopped"


OF_NETWORK = frozenset((Kind.CABLE, Kind.ALONE, Kind.PAIR, Kind.ONE_WAY))
_WEIGHTS = {
    Kind.KILL: 6,
    Kind.STOP: 5,
    Kind.RESTART: 3,
    Kind.CABLE: 4,
    Kind.ALONE: 5,
    Kind.PAIR: 3,
    Kind.ONE_WAY: 2,
    Kind.POWER: 1,
    Kind.KILL_RUNNER: 1,
    Kind.STOP_RUNNER: 1,
}
_SECONDS = {
    Kind.KILL: (0.0, 6.0),
    Kind.STOP: (0.3, 7.0),
    Kind.RESTART: (0.0, 1.0),
    Kind.CABLE: (0.3, 8.0),
    Kind.ALONE: (0.3, 10.0),
    Kind.PAIR: (0.5, 8.0),
    Kind.ONE_WAY: (0.5, 6.0),
    Kind.POWER: (0.0, 4.0),
    Kind.KILL_RUNNER: (0.0, 0.0),
    Kind.STOP_RUNNER: (1.0, 8.0),
}


class Fault(msgspec.Struct, frozen=True):
    """One thing that is done, and undone `seconds` later."""

    at: float
    kind: Kind
    node: int
    """Or, with `of_master`, whichever masters then."""
    of_master: bool
    other: int
    """The other end of a path."""
    seconds: float

    @property
    def until(self) -> float:
        """When the node may be afflicted again."""
        return self.at + self.seconds + RECOVERY_SECONDS


def make_schedule(seed: int, seconds: float, *, network: bool) -> list[Fault]:
    """Faults of a run of that length; without a network of its own, none of the network's."""
    chance = random.Random(seed)
    kinds = [kind for kind in Kind if network or kind not in OF_NETWORK]
    weights = [_WEIGHTS[kind] for kind in kinds]
    faults: list[Fault] = []
    at = 2.0
    while True:
        at += chance.uniform(*QUIET_SECONDS)
        if (len(faults) + 1) % CALM_EVERY == 0:
            at += CALM_SECONDS
        (kind,) = chance.choices(kinds, weights)
        node, other = chance.sample(range(NODES), 2)
        lasts = chance.uniform(*_SECONDS[kind])
        fault = Fault(at, kind, node, chance.random() < 0.5, other, lasts)
        if fault.at + fault.seconds > seconds:
            return faults
        under_way = [each for each in faults if each.until > at]
        if len(under_way) < AFFLICTED_MAX:
            faults.append(fault)
