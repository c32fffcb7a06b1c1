from pathlib import Path

import anyio
import msgspec
import pytest

from node.core.replica.messages import PAYLOAD_BYTES_MAX
from node.core.work_plan import LocalRunner
from node.model.errors import BusyError, Failure, NotFoundError, UsageError
from node.model.event import Event, RunnerChanged
from node.model.ids import InstanceId, ModelId, NodeId, RunnerId
from node.model.instance import Instance, RunnerPhase, RunnerRecord, Shard, StageAddress
from node.model.machine import Address, NodeRecord
from node.model.state import State
from node.runner.protocol import Connect
from node.services.runner_keeper import RunnerOrder
from node.services.worker import REPORT_SECONDS, UNKNOWN_SECONDS, Worker

HERE, THERE = NodeId("here"), NodeId("there")
INSTANCE = InstanceId("i-00000001")


class FakeRunners:
    """Does at once what a supervisor does in time."""

    def __init__(self) -> None:
        self.known: dict[RunnerId, LocalRunner] = {}
        self.orders: list[RunnerOrder] = []
        self.refused: list[Failure] = []
        self.connected: list[tuple[RunnerId, Connect]] = []
        self.stopped: list[RunnerId] = []
        self.forgotten: list[RunnerId] = []
        self.fault: UsageError | None = None

    def local(self) -> dict[RunnerId, LocalRunner]:
        return dict(self.known)

    def start(self, order: RunnerOrder) -> None:
        if self.fault is not None:
            raise self.fault
        self.orders.append(order)
        self.known[order.prepare.runner] = LocalRunner(record=record_of(order))

    def refuse(self, order: RunnerOrder, failure: Failure) -> None:
        self.refused.append(failure)
        record = msgspec.structs.replace(
            record_of(order), phase=RunnerPhase.FAILED, failure=failure
        )
        self.known[order.prepare.runner] = LocalRunner(record=record, ended=True)

    def connect(self, runner: RunnerId, message: Connect) -> None:
        self.connected.append((runner, message))
        self.known[runner] = msgspec.structs.replace(self.known[runner], connected=True)

    def stop(self, runner: RunnerId) -> None:
        self.stopped.append(runner)

    def forget(self, runner: RunnerId) -> None:
        self.forgotten.append(runner)
        del self.known[runner]


def record_of(order: RunnerOrder) -> RunnerRecord:
    return RunnerRecord(
        runner=order.prepare.runner,
        instance=order.prepare.instance,
        node=order.node,
        phase=RunnerPhase.STARTING,
        attempt=order.prepare.attempt,
        changed_at=1.0,
    )


class Scene:
    def __init__(self, *nodes: NodeId, addresses: tuple[Address, ...] = ()) -> None:
        instance = Instance(
            instance=INSTANCE,
            model=ModelId("tiny"),
            shards=tuple(
                Shard(
                    runner=RunnerId(f"r-{rank:08x}"),
                    node=node,
                    rank=rank,
                    first_layer=rank * 5,
                    end_layer=rank * 5 + 5,
                    weight_bytes=1000 + rank,
                    cache_bytes=2000 + rank,
                )
                for rank, node in enumerate(nodes)
            ),
            layer_count=5 * len(nodes),
            context_tokens=128,
            requested_by=HERE,
        )
        records = {
            node: NodeRecord(
                node=node, name=node, admitted_by=HERE, admitted_index=0, addresses=addresses
            )
            for node in nodes
        }
        self.state = State(index=1, instances={INSTANCE: instance}, nodes=records)
        self.runners = FakeRunners()
        self.events: list[Event] = []
        self.outbox_full = False
        self.bytes_max = PAYLOAD_BYTES_MAX
        self.model_fault: Exception | None = None
        self.worker = Worker(
            HERE, self.runners, lambda: self.state, self.propose, self.model, self.stage_host
        )

    def stage_host(self, peer: NodeId) -> str:
        return {HERE: "10.0.0.6", THERE: "10.0.0.7"}[peer]

    def propose(self, event: Event) -> None:
        if self.outbox_full:
            raise BusyError.because("outbox_full", "full")
        size = len(msgspec.msgpack.encode(event))
        if size > self.bytes_max:
            raise UsageError.because("event_too_large", f"an event of {size} bytes")
        self.events.append(event)

    def model(self, _model: ModelId) -> Path:
        if self.model_fault is not None:
            raise self.model_fault
        return Path("/models/tiny")

    def told(self) -> list[RunnerRecord]:
        return [event.runner for event in self.events if isinstance(event, RunnerChanged)]

    def apply(self) -> None:
        """What was proposed so far is in the state now."""
        runners = self.state.runners | {record.runner: record for record in self.told()}
        self.state = msgspec.structs.replace(self.state, runners=runners)


def test_a_placed_shard_is_started_with_all_that_it_needs() -> None:
    scene = Scene(HERE, THERE, addresses=(Address("10.0.0.1", 1),))
    scene.worker.step(0.0)
    (order,) = scene.runners.orders
    prepare = order.prepare
    assert (order.weight_bytes, order.node) == (1000, HERE)
    assert (prepare.runner, prepare.instance, prepare.model) == ("r-00000000", INSTANCE, "tiny")
    assert (prepare.rank, prepare.stages, prepare.boundaries) == (0, 2, (0, 5, 10))
    assert (prepare.context_tokens, prepare.cache_bytes_max) == (128, 2000)
    assert prepare.model_directory == "/models/tiny"
    assert prepare.attempt == 1
    scene.worker.step(1.0)
    assert len(scene.runners.orders) == 1


@pytest.mark.parametrize(
    ("nodes", "hosts", "encrypted"),
    [
        ((HERE,), ("10.0.0.1",), False),
        ((HERE, HERE), ("10.0.0.1",), False),
        ((HERE, THERE), ("127.0.0.1",), False),
        ((HERE, THERE), ("::1", "127.0.0.1"), False),
        ((HERE, THERE), ("10.0.0.1",), True),
        ((HERE, THERE), ("127.0.0.1", "fe80::1%en0"), True),
        ((HERE, THERE), (), True),
        ((HERE, THERE), ("studio.local",), True),
    ],
)
def test_links_between_machines_are_encrypted_and_those_on_loopback_not(
    nodes: tuple[NodeId, ...], hosts: tuple[str, ...], encrypted: bool
) -> None:
    scene = Scene(*nodes, addresses=tuple(Address(host, 1) for host in hosts))
    scene.worker.step(0.0)
    prepare = scene.runners.orders[0].prepare
    assert prepare.encrypt is encrypted
    assert prepare.stage_host == ("10.0.0.7" if encrypted else "127.0.0.1")


def test_nothing_is_done_before_the_state_is_known() -> None:
    scene = Scene(HERE)
    scene.state = msgspec.structs.replace(scene.state, index=-1)
    scene.worker.step(0.0)
    assert scene.runners.orders == []


def test_a_model_on_its_way_is_waited_for() -> None:
    scene = Scene(HERE)
    scene.model_fault = BusyError.because("model_converting", "40 %")
    scene.worker.step(0.0)
    assert (scene.runners.orders, scene.runners.refused) == ([], [])
    scene.model_fault = None
    scene.worker.step(1.0)
    assert len(scene.runners.orders) == 1


def test_a_missing_model_fails_the_attempt_once() -> None:
    scene = Scene(HERE)
    scene.model_fault = NotFoundError.because("model_not_found", "no such model")
    scene.worker.step(0.0)
    scene.worker.step(1.0)
    assert [failure.code for failure in scene.runners.refused] == ["model_not_found"]
    assert scene.told()[-1].phase is RunnerPhase.FAILED


def test_an_order_that_is_nonsense_fails_the_attempt() -> None:
    scene = Scene(HERE)
    fault = UsageError(Failure(code="bad_runner_id", message="no runner id"))
    scene.runners.fault = fault
    scene.worker.step(0.0)
    assert scene.runners.refused == [fault.failure]


def test_transitions_are_reported_in_order_and_wait_for_room() -> None:
    scene = Scene(HERE)
    scene.worker.step(0.0)
    scene.outbox_full = True
    starting = scene.runners.known[RunnerId("r-00000000")].record
    loading = msgspec.structs.replace(starting, phase=RunnerPhase.LOADING)
    ready = msgspec.structs.replace(starting, phase=RunnerPhase.READY)
    for record in (starting, loading, ready):
        scene.worker.runner_changed(record)
    scene.runners.known[starting.runner] = LocalRunner(record=ready)
    scene.worker.step(1.0)
    assert scene.events == []
    scene.outbox_full = False
    scene.worker.step(2.0)
    scene.worker.step(3.0)
    assert scene.told() == [starting, loading, ready]


def failed_record(scene: Scene, message: str) -> RunnerRecord:
    scene.worker.step(0.0)
    starting = scene.runners.known[RunnerId("r-00000000")].record
    record = msgspec.structs.replace(
        starting,
        phase=RunnerPhase.FAILED,
        failure=Failure(code="bad_config", message=message, remedy="r" * len(message)),
    )
    scene.events.clear()
    return record


def test_a_report_too_large_for_an_event_is_told_shortened() -> None:
    scene = Scene(HERE)
    record = failed_record(scene, "the model can't be built: " + "tensor " * 100_000 + "the end")
    scene.outbox_full = True
    scene.worker.runner_changed(record)
    scene.worker.step(1.0)
    scene.outbox_full = False
    scene.worker.step(2.0)
    told = scene.told()[0]
    assert (told.runner, told.phase) == (record.runner, RunnerPhase.FAILED)
    assert told.failure is not None
    assert told.failure.code == "bad_config"
    assert told.failure.message.startswith("the model can't be built: ")
    assert told.failure.message.endswith("the end")
    assert "characters left out" in told.failure.message


def test_a_report_that_is_refused_whatever_its_length_holds_up_no_other() -> None:
    scene = Scene(HERE)
    record = failed_record(scene, "x")
    address = StageAddress("127.0.0.1", 1, bytes(300_000))
    scene.bytes_max = 50
    scene.worker.runner_changed(msgspec.structs.replace(record, address=address))
    scene.worker.step(1.0)
    assert scene.told() == []
    scene.bytes_max = PAYLOAD_BYTES_MAX
    scene.worker.runner_changed(record)
    scene.worker.step(2.0)
    assert scene.told()[0] == record


def test_a_report_that_got_lost_is_written_again_in_time() -> None:
    scene = Scene(HERE)
    scene.worker.step(0.0)
    scene.worker.step(1.0)
    scene.worker.step(REPORT_SECONDS)
    assert len(scene.events) == 1
    scene.worker.step(1.0 + REPORT_SECONDS)
    assert len(scene.events) == 2
    scene.apply()
    scene.worker.step(10 * REPORT_SECONDS)
    assert len(scene.events) == 2


def test_a_runner_lost_with_an_earlier_life_is_told_once_with_the_time() -> None:
    scene = Scene(HERE)
    old = RunnerRecord(
        runner=RunnerId("r-00000000"),
        instance=INSTANCE,
        node=HERE,
        phase=RunnerPhase.READY,
        process_id=7,
        changed_at=5.0,
    )
    scene.state = msgspec.structs.replace(scene.state, runners={old.runner: old})
    scene.worker.step(0.0)
    scene.worker.step(1.0)
    (told,) = scene.told()
    assert told.phase is RunnerPhase.FAILED
    assert told.changed_at > old.changed_at
    scene.apply()
    scene.worker.step(100.0)
    assert len(scene.events) == 1
    assert scene.runners.orders == []


def test_stages_are_connected() -> None:
    scene = Scene(HERE, HERE)
    scene.worker.step(0.0)
    for rank, known in enumerate(list(scene.runners.known.values())):
        record = msgspec.structs.replace(
            known.record,
            phase=RunnerPhase.CONNECTING,
            address=StageAddress("127.0.0.1", 5000 + rank, bytes([rank])),
        )
        scene.runners.known[record.runner] = LocalRunner(record=record)
    scene.worker.step(1.0)
    scene.apply()
    scene.worker.step(2.0)
    told = [
        (runner, message.next_stage.port, message.previous_certificate)
        for runner, message in scene.runners.connected
    ]
    assert told == [("r-00000000", 5001, b"\1"), ("r-00000001", 5000, b"\0")]
    scene.worker.step(3.0)
    assert len(scene.runners.connected) == 2


def test_a_runner_of_an_unknown_instance_is_kept_for_a_moment() -> None:
    scene = Scene(HERE)
    scene.worker.step(0.0)
    instances = scene.state.instances
    scene.state = msgspec.structs.replace(scene.state, instances={})
    scene.worker.step(1.0)
    scene.worker.step(0.9 + UNKNOWN_SECONDS)
    assert scene.runners.stopped == []
    scene.state = msgspec.structs.replace(scene.state, instances=instances)
    scene.worker.step(1.0 + UNKNOWN_SECONDS)
    scene.state = msgspec.structs.replace(scene.state, instances={})
    scene.worker.step(2.0 + UNKNOWN_SECONDS)
    assert scene.runners.stopped == []
    scene.worker.step(2.0 + 2 * UNKNOWN_SECONDS)
    assert scene.runners.stopped == ["r-00000000"]


def test_a_runner_of_a_stopping_instance_is_stopped_at_once_and_forgotten_when_gone() -> None:
    scene = Scene(HERE)
    scene.worker.step(0.0)
    stopping = msgspec.structs.replace(scene.state.instances[INSTANCE], removing=True)
    scene.state = msgspec.structs.replace(scene.state, instances={INSTANCE: stopping})
    scene.worker.step(1.0)
    assert scene.runners.stopped == ["r-00000000"]
    record = scene.runners.known[RunnerId("r-00000000")].record
    scene.runners.known[record.runner] = LocalRunner(record=record, ended=True)
    scene.state = msgspec.structs.replace(scene.state, instances={})
    scene.worker.step(2.0)
    assert scene.runners.forgotten == ["r-00000000"]


async def test_it_runs_when_woken_and_by_itself() -> None:
    scene = Scene(HERE)
    scene.state = msgspec.structs.replace(scene.state, index=-1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.worker.run)
        await anyio.wait_all_tasks_blocked()
        scene.state = msgspec.structs.replace(scene.state, index=0)
        scene.worker.wake()
        await anyio.wait_all_tasks_blocked()
        assert len(scene.runners.orders) == 1
        tasks.cancel_scope.cancel()
