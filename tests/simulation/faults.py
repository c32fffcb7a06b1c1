"""What goes wrong, when: drawn from the simulation's one source of chance."""

from collections.abc import Callable
from enum import StrEnum

from tests.simulation.world import Breakable


class Mode(StrEnum):
    """Which faults a run has."""

    ALL = "all"
    SHORT_TAIL = "short_tail"
    """The same with hardly any entry kept before a snapshot; what is lost so must be reported."""
    CRASH = "crash"
    """Crashes and restarts, no partition."""
    PARTITION = "partition"
    """Partitions, one-way and single cuts, no crash."""
    PERMANENT = "permanent"
    """One node, mostly the master, is lost with its disk, once."""
    KILLED = "killed"
    """One master's process is killed, once, and not started again before the end."""
    POWER_CUT = "power_cut"
    """Within 10 ms of an acknowledgement every machine loses power; the master's disk is gone."""
    CUT = "cut"
    """One pair of nodes at a time can't reach each other; a third reaches both."""
    HAND_OVER = "hand_over"
    """Masters step down as planned, and are then stopped."""
    JOIN = "join"
    """Nodes lose their disk while all is well, and join again by snapshot."""
    RESTART = "restart"
    """Nodes other than the master are restarted, nothing else."""
    WILD = "wild"
    """As `all`; and machines sleep, and links fail each way by itself, in any pattern."""
    ONE_AT_A_TIME = "one_at_a_time"
    """One failure of one node, and the next only when all are in sync again; no partition."""
    IDLE = "idle"
    """No fault, and nobody writes."""


class Faults:
    """Schedules itself until the simulation's faulty time is over, then heals everything."""

    def __init__(self, simulation: Breakable, mode: Mode) -> None:
        self._simulation = simulation
        self._mode = mode
        random = simulation.random
        draws: dict[Mode, Callable[[], float]] = {
            Mode.ALL: self._draw_all,
            Mode.SHORT_TAIL: self._draw_all,
            Mode.CRASH: self._draw_crash,
            Mode.PARTITION: self._draw_partition,
            Mode.PERMANENT: self._draw_permanent,
            Mode.KILLED: self._draw_killed,
            Mode.POWER_CUT: self._draw_power_cut,
            Mode.CUT: self._draw_cut,
            Mode.HAND_OVER: self._draw_hand_over,
            Mode.JOIN: self._draw_join,
            Mode.RESTART: self._draw_restart,
            Mode.WILD: self._draw_wild,
            Mode.ONE_AT_A_TIME: self._draw_one_at_a_time,
            Mode.IDLE: lambda: simulation.fault_seconds,
        }
        self._draw = draws[mode]
        first = random.uniform(2, 4)
        if mode in (Mode.PERMANENT, Mode.KILLED, Mode.POWER_CUT):
            first = random.uniform(8, simulation.fault_seconds - 10)
        simulation.later(first, self._next, None)
        simulation.later(simulation.fault_seconds, self._end, None)

    def _next(self, _: None) -> None:
        if self._simulation.faulty:
            self._simulation.later(self._draw(), self._next, None)

    def _end(self, _: None) -> None:
        self._simulation.heal()

    # -- single faults -----------------------------------------------------------------------

    def crash_a_master(self, _: None = None) -> None:
        """Crash a master, if there is one, and start it again later."""
        simulation = self._simulation
        masters = simulation.masters()
        if masters and simulation.faulty:
            place = simulation.random.choice(masters)
            if self._mode in (Mode.PERMANENT, Mode.POWER_CUT):
                self._lose(place)
                if self._mode == Mode.POWER_CUT:
                    self._cut_power()
            else:
                self._crash(place)

    def _crash(self, place: int) -> None:
        simulation = self._simulation
        power = simulation.random.random() < 0.5
        simulation.crash(place, power=power)
        if power:
            simulation.powerless.add(place)
        simulation.later(simulation.random.uniform(0.3, 6), self._restart, place)

    def _restart(self, place: int) -> None:
        simulation = self._simulation
        simulation.powerless.discard(place)
        if place not in simulation.lost:
            simulation.boot(place)

    def _lose(self, place: int) -> None:
        simulation = self._simulation
        if not simulation.lost:
            simulation.lost.add(place)
            simulation.powerless.add(place)
            simulation.crash(place, power=True)

    def _cut_power(self) -> None:
        simulation = self._simulation
        for place in simulation.running():
            simulation.crash(place, power=True)
            simulation.later(simulation.random.uniform(0.3, 3), self._restart, place)

    def _crash_any(self) -> None:
        simulation = self._simulation
        up = simulation.running()
        if not up:
            return
        masters = simulation.masters()
        if masters and simulation.random.random() < 0.6:
            up = masters
        self._crash(simulation.random.choice(up))

    def _crash_after_acknowledgement(self) -> None:
        self._simulation.crash_after_acknowledgement = True

    def _crash_after_election(self) -> None:
        self._simulation.crash_after_election = True
        self._crash_any()

    def _partition(self) -> None:
        simulation = self._simulation
        count = simulation.random.randint(2, 4)
        simulation.groups = [simulation.random.randrange(count) for _ in simulation.ids]
        simulation.later(simulation.random.uniform(0.5, 8), self._unite, None)

    def _unite(self, _: None) -> None:
        self._simulation.groups = [0] * len(self._simulation.ids)

    def _cut_pair(self, *, one_way: bool) -> None:
        simulation = self._simulation
        if len(simulation.ids) < 2:
            return
        one, other = simulation.random.sample(range(len(simulation.ids)), 2)
        pairs = {(one, other)} if one_way else {(one, other), (other, one)}
        simulation.cut = pairs
        simulation.later(simulation.random.uniform(0.5, 8), self._mend, pairs)

    def _mend(self, pairs: set[tuple[int, int]]) -> None:
        self._simulation.cut = self._simulation.cut - pairs

    def _tangle(self) -> None:
        """Cut any links in any direction: what a node hears says nothing of who hears it."""
        simulation = self._simulation
        chance = simulation.random.uniform(0.1, 0.6)
        pairs = {
            (one, other)
            for one in range(len(simulation.ids))
            for other in range(len(simulation.ids))
            if one != other and simulation.random.random() < chance
        }
        simulation.cut = pairs
        simulation.later(simulation.random.uniform(0.5, 8), self._mend, pairs)

    def _sleep(self) -> None:
        simulation = self._simulation
        up = simulation.running()
        if up:
            simulation.sleep(simulation.random.choice(up), simulation.random.uniform(0.5, 12))

    def _flap(self) -> None:
        simulation = self._simulation
        if len(simulation.ids) > 1:
            one, other = simulation.random.sample(range(len(simulation.ids)), 2)
            simulation.link_down(one, other)

    def _freeze(self) -> None:
        simulation = self._simulation
        up = simulation.running()
        if up:
            simulation.freeze(simulation.random.choice(up), simulation.random.uniform(0.2, 4))

    def _slow_disk(self) -> None:
        simulation = self._simulation
        place = simulation.random.randrange(len(simulation.ids))
        simulation.disk_slow_until[place] = simulation.time + simulation.random.uniform(0.5, 3)

    def _hand_over(self) -> None:
        simulation = self._simulation
        for place in simulation.masters():
            simulation.step_down(place)

    # -- modes: each draws a fault and says when the next is due -------------------------------

    def _draw_all(self) -> float:
        random = self._simulation.random
        chance = random.random()
        if chance < 0.3:
            self._partition()
        elif chance < 0.4:
            self._cut_pair(one_way=chance < 0.35)
        elif chance < 0.75:
            self._crash_any()
        elif chance < 0.79:
            self._crash_after_acknowledgement()
        elif chance < 0.82:
            self._crash_after_election()
        elif chance < 0.87:
            self._freeze()
        elif chance < 0.91:
            self._flap()
        elif chance < 0.95:
            self._slow_disk()
        else:
            self._hand_over()
        return random.uniform(1.5, 6)

    def _draw_wild(self) -> float:
        chance = self._simulation.random.random()
        if chance < 0.2:
            self._tangle()
        elif chance < 0.3:
            self._sleep()
        else:
            return self._draw_all()
        return self._simulation.random.uniform(1.5, 6)

    def _draw_one_at_a_time(self) -> float:
        simulation = self._simulation
        if not simulation.is_all_in_sync():
            return 0.5
        chance = simulation.random.random()
        if chance < 0.5:
            self._crash_any()
        elif chance < 0.6:
            self._crash_after_acknowledgement()
        elif chance < 0.7:
            self._freeze()
        elif chance < 0.8:
            self._sleep()
        elif chance < 0.85:
            self._slow_disk()
        elif chance < 0.9:
            self._flap()
        else:
            self._hand_over()
        # A node that sleeps or is frozen is in sync for its master until that has noticed.
        return 13.0

    def _draw_crash(self) -> float:
        chance = self._simulation.random.random()
        if chance < 0.3:
            self._crash_after_acknowledgement()
        elif chance < 0.4:
            self._crash_after_election()
        else:
            self._crash_any()
        return self._simulation.random.uniform(1.5, 6)

    def _draw_partition(self) -> float:
        chance = self._simulation.random.random()
        if chance < 0.6:
            self._partition()
        else:
            self._cut_pair(one_way=chance < 0.8)
        return self._simulation.random.uniform(1.5, 6)

    def _draw_permanent(self) -> float:
        simulation = self._simulation
        chance = simulation.random.random()
        if chance < 0.4:
            self._crash_after_acknowledgement()
        elif chance < 0.8:
            self.crash_a_master()
        else:
            self._lose(simulation.random.randrange(len(simulation.ids)))
        return simulation.fault_seconds

    def _draw_killed(self) -> float:
        simulation = self._simulation
        for place in simulation.masters():
            simulation.crash(place, power=False)
        return simulation.fault_seconds

    def _draw_power_cut(self) -> float:
        """With every disk but the master's slow, so that much is not synced yet."""
        simulation = self._simulation
        masters = simulation.masters()
        for place in range(len(simulation.ids)):
            if place not in masters:
                simulation.disk_slow_until[place] = simulation.time + 2.0
        simulation.later(simulation.random.uniform(0.5, 1.5), self._arm, None)
        return simulation.fault_seconds

    def _arm(self, _: None) -> None:
        self._crash_after_acknowledgement()

    def _draw_cut(self) -> float:
        self._simulation.cut = set()
        simulation = self._simulation
        one, other = simulation.random.sample(range(len(simulation.ids)), 2)
        simulation.cut = {(one, other), (other, one)}
        return simulation.random.uniform(3, 6)

    def _draw_hand_over(self) -> float:
        simulation = self._simulation
        masters = simulation.masters()
        self._hand_over()
        for place in masters:
            simulation.later(0.4, self._stop, place)
        return simulation.random.uniform(4, 8)

    def _stop(self, place: int) -> None:
        self._simulation.crash(place, power=False)
        self._simulation.later(self._simulation.random.uniform(0.3, 2), self._restart, place)

    def _draw_join(self) -> float:
        """Where all is well, replace the disk of a node that does not master."""
        simulation = self._simulation
        if simulation.is_all_in_sync():
            masters = simulation.masters()
            others = [place for place in range(len(simulation.ids)) if place not in masters]
            if others:
                simulation.replace_disk(simulation.random.choice(others))
        return simulation.random.uniform(2, 5)

    def _draw_restart(self) -> float:
        simulation = self._simulation
        masters = simulation.masters()
        others = [place for place in range(len(simulation.ids)) if place not in masters]
        if masters and others:
            place = simulation.random.choice(others)
            simulation.crash(place, power=False)
            simulation.later(simulation.random.uniform(0.3, 3), self._restart, place)
        return simulation.random.uniform(4, 8)
