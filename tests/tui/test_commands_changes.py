"""Commands that change the cluster, and `wait`."""

import threading

import anyio.lowlevel
import msgspec
import pytest

from node.model.command import (
    Accepted,
    Command,
    CordonNode,
    PlaceInstance,
    Refused,
    RemoveNode,
    StopInstance,
)
from node.model.errors import (
    ConflictError,
    Failure,
    InternalError,
    NotFoundError,
    RefusedError,
)
from node.model.event import ProposalRejected
from node.model.ids import CommandId, InstanceId, ModelId
from node.model.instance import RunnerPhase
from node.model.machine import Address
from node.model.register import DownloadFigures, DownloadRecord, JoinFigures, RequestFigures
from node.model.session import EventId
from node.model.state import State
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import (
    ALPHA,
    BETA,
    INSTANCE,
    MODEL,
    FakeHandle,
    make_instance,
    make_join_request,
    make_runners,
    make_state,
    without_instances,
)

STEP_SECONDS = 0.05


class FoldingHandle(FakeHandle):
    """Does at once what the command asks for."""

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        answer = await super().submit(command, timeout_seconds, command_id)
        match command:
            case StopInstance(instance=key):
                left = {k: v for k, v in self.state.instances.items() if k != key}
                self.state = msgspec.structs.replace(self.state, instances=left)
            case PlaceInstance(model=model):
                assert isinstance(answer, Accepted)
                placed = make_instance(InstanceId(answer.subject), model)
                self.state = msgspec.structs.replace(
                    self.state,
                    instances={**self.state.instances, placed.instance: placed},
                    runners={**self.state.runners, **make_runners(placed)},
                )
            case _:
                pass
        return answer


@pytest.fixture
def handle() -> FoldingHandle:
    return FoldingHandle()


def test_load_places_waits_and_shows_the_instance(line: CommandLine, handle: FoldingHandle) -> None:
    handle.state = without_instances(make_state())
    outcome = line("load", "smollm2", "--nodes", "alpha", "--force", "--ctx", "2k")
    assert outcome.code == 0
    [command] = handle.commands
    assert isinstance(command, PlaceInstance)
    assert command.wish.nodes == (ALPHA,)
    assert command.wish.force
    assert command.wish.context_tokens == 2048
    assert "i-00000001" in outcome.out
    assert "READY" in outcome.out


def test_load_takes_the_full_name_of_a_known_model(
    line: CommandLine, handle: FoldingHandle
) -> None:
    line("load", "SMOLLM2-135")
    assert isinstance(handle.commands[0], PlaceInstance)
    assert handle.commands[0].model == MODEL


def test_load_as_json_is_the_instance_alone_on_stdout(line: CommandLine) -> None:
    outcome = line("load", "smollm2", "-o", "json")
    assert outcome.json["kind"] == "Instance"
    assert outcome.json["items"][0]["ready"] is True
    assert outcome.err == ""


def test_load_of_an_instance_that_fails_says_why(line: CommandLine, handle: FoldingHandle) -> None:
    handle.instance_failures[INSTANCE] = InternalError.because(
        "runner_ended", "runner r-1 ended with signal 9", "see exoctl logs"
    )
    outcome = line("load", "smollm2")
    assert outcome.code == 1
    assert "signal 9" in outcome.err


def test_load_gives_up_at_its_deadline_with_124(line: CommandLine, handle: FoldingHandle) -> None:
    handle.state = make_state(RunnerPhase.LOADING)
    keep_loading = FakeHandle(handle.state)
    line = CommandLine(keep_loading, line.capsys)
    outcome = line("load", "smollm2", "--timeout", "50ms")
    assert outcome.code == 124


class SplitHandle(FakeHandle):
    """Accepts a placement in one half of a partition; then the halves meet."""

    def __init__(self, *after: State) -> None:
        """`after` are the states that follow on the placement, one after the other."""
        super().__init__(make_state(RunnerPhase.LOADING))
        self._after = after

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        for place, state in enumerate(self._after, start=1):
            threading.Timer(place * STEP_SECONDS, setattr, (self, "state", state)).start()
        answer = await super().submit(command, timeout_seconds, command_id)
        return msgspec.structs.replace(answer, subject=INSTANCE)


def rejecting(command: CommandId) -> ProposalRejected:
    failure = Failure(
        code="no_fit", message="it needs 9 GB more on beta, which has 2 GB left", remedy="stop phi"
    )
    return ProposalRejected(
        id=EventId(BETA, 1, 7), asked_by=ALPHA, failure=failure, command=command
    )


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_load_that_a_partition_withdrew_ends_with_the_command_and_the_cause(
    line: CommandLine, *, is_gone: bool
) -> None:
    loading = make_state(RunnerPhase.LOADING)
    rejected = msgspec.structs.replace(
        without_instances(loading) if is_gone else loading,
        rejections=(
            rejecting(CommandId("c-0000000000000001")),
            rejecting(CommandId("c-ffffffffffffffff")),
        ),
    )
    line = CommandLine(SplitHandle(rejected), line.capsys)
    outcome = line("load", "smollm2", "--timeout", "5s")
    assert outcome.code == ConflictError.exit_code
    assert "command c-0000000000000001 was accepted, then withdrawn" in outcome.err
    assert "9 GB more on beta, which has 2 GB left" in outcome.err
    assert "try: stop phi" in outcome.err


def test_a_load_withdrawn_for_a_moment_is_waited_for_until_it_is_judged(line: CommandLine) -> None:
    kept = make_state(RunnerPhase.READY)
    away = without_instances(kept)
    assert CommandLine(SplitHandle(away, kept), line.capsys)("load", "smollm2").code == 0
    other = msgspec.structs.replace(away, rejections=(rejecting(CommandId("c-ffffffffffffffff")),))
    outcome = CommandLine(SplitHandle(away, other), line.capsys)(
        "load", "smollm2", "--timeout", "300ms"
    )
    assert outcome.code == NotFoundError.exit_code


def test_a_load_that_somebody_unloads_ends_at_once(line: CommandLine) -> None:
    accepted = Accepted(id=CommandId("c-0000000000000001"), index=21, subject=INSTANCE)
    stopped = msgspec.structs.replace(
        without_instances(make_state()), answers={accepted.id: accepted}
    )
    outcome = CommandLine(SplitHandle(stopped), line.capsys)("load", "smollm2")
    assert outcome.code == NotFoundError.exit_code


def test_load_without_waiting_returns_at_once(line: CommandLine, handle: FoldingHandle) -> None:
    handle.failing["wait_instance"] = InternalError.because("x", "must not be asked")
    assert line("load", "smollm2", "--no-wait").code == 0


def test_load_tells_on_stderr_how_far_it_is_unless_it_is_to_be_quiet(
    line: CommandLine, handle: FoldingHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(instance: InstanceId, timeout_seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(handle, "wait_instance", slow)
    assert line("load", "smollm2").err == "smollm2-135m-instruct: ready on 1 node\n"
    quiet = line("load", "smollm2", "-q")
    assert quiet.err == ""
    assert quiet.out == f"{list(handle.state.instances)[-1]}\n"


@pytest.mark.parametrize("name", ["i-00000001", "i-0000", "00000001", "smollm2", MODEL])
def test_unload_takes_an_id_or_a_model_or_the_start_of_either(
    line: CommandLine, handle: FoldingHandle, name: str
) -> None:
    outcome = line("unload", name)
    assert outcome.code == 0
    assert handle.commands == [StopInstance(instance=INSTANCE)]
    assert outcome.out == "i-00000001 (smollm2-135m-instruct) unloaded\n"


def test_unload_of_nothing_names_what_runs(line: CommandLine) -> None:
    outcome = line("unload", "phi")
    assert outcome.code == 3
    assert "i-00000001" in outcome.err


def test_unload_of_a_model_with_two_instances_names_both_or_takes_all(
    line: CommandLine, handle: FoldingHandle
) -> None:
    line("load", "smollm2", "--no-wait")
    twin = make_instance(InstanceId("i-00000002"))
    handle.state = msgspec.structs.replace(
        handle.state, instances={**handle.state.instances, twin.instance: twin}
    )
    handle.commands.clear()
    outcome = line("unload", "smollm2")
    assert outcome.code == 2
    assert "i-00000001" in outcome.err
    assert "i-00000002" in outcome.err
    assert "exoctl scale" in outcome.err, "a longer name would name both as well"
    assert handle.commands == []
    assert line("unload", "smollm2", "--all").code == 0
    assert len(handle.commands) == 2
    assert handle.state.instances == {}


def test_unload_that_does_not_happen_ends_with_124(
    line: CommandLine, handle: FoldingHandle
) -> None:
    handle.answers.append(Accepted(id="c-1", index=21, subject=INSTANCE))  # type: ignore[arg-type]
    stuck = CommandLine(FakeHandle(), line.capsys)
    outcome = stuck("unload", "smollm2", "--timeout", "100ms")
    assert outcome.code == 124
    assert "i-00000001 to be gone" in outcome.err
    assert stuck("unload", "smollm2", "--no-wait").out.endswith("stopping\n")


def test_cordon_and_uncordon_take_names(line: CommandLine, handle: FoldingHandle) -> None:
    assert line("node", "cordon", "bet").out == "beta cordoned\n"
    whole = line("node", "uncordon", BETA[:6], "--json").json
    assert whole["kind"] == "Change"
    assert whole["items"] == [{"subject": BETA, "name": "beta", "change": "uncordoned"}]
    assert handle.commands == [
        CordonNode(node=BETA, cordoned=True),
        CordonNode(node=BETA, cordoned=False),
    ]


def test_node_rm_removes_with_its_reason(line: CommandLine, handle: FoldingHandle) -> None:
    assert line("node", "rm", "beta", "-y", "--reason", "sold").out == "beta removed\n"
    assert handle.commands == [RemoveNode(node=BETA, reason="sold")]


def test_invite_prints_the_code_alone_and_tells_how_to_use_it(
    line: CommandLine, handle: FoldingHandle
) -> None:
    outcome = line("cluster", "invite", "--ttl", "1h")
    assert outcome.out == "AAAAA-BBBBB-CCCCC-DDDDD\n"
    assert "exoctl cluster join AAAAA-BBBBB-CCCCC-DDDDD --peer 127.0.0.1:52416" in outcome.err
    assert handle.invites == [3600.0]
    item = line("cluster", "invite", "-o", "json").json["items"][0]
    assert item["addresses"] == ["127.0.0.1:52416"]
    assert item["expires_at"].endswith("Z")


def test_join_and_leave(line: CommandLine, handle: FoldingHandle) -> None:
    joined = line("cluster", "join", " AAAAA-BBBBB ", "--peer", "10.0.0.1:99")
    assert (joined.code, joined.out) == (0, "alpha joined the cluster\n")
    line("cluster", "join", "CODE")
    assert handle.joined == [("AAAAA-BBBBB", Address("10.0.0.1", 99)), ("CODE", None)]
    assert line("cluster", "leave", "-y").out == "alpha left the cluster\n"
    assert handle.left == 1
    handle.failing["join"] = RefusedError.because("bad_code", "the code was used already")
    assert line("cluster", "join", "CODE").code == 5


def test_join_without_a_code_shows_the_digits_and_waits(
    line: CommandLine, handle: FoldingHandle
) -> None:
    joined = line("cluster", "join", "--peer", "10.0.0.1:99", "-y")
    assert (joined.code, joined.out) == (0, "alpha joined the cluster\n")
    assert "281 604" in joined.err
    assert handle.asked == [Address("10.0.0.1", 99)]
    assert handle.finished == [("j-0badc0", True)]


def test_join_without_a_code_and_without_anybody_to_compare_withdraws(
    line: CommandLine, handle: FoldingHandle
) -> None:
    assert line("cluster", "join").code == 2
    assert handle.finished == [("j-0badc0", False)]


def test_machines_that_ask_are_listed_approved_and_denied(
    line: CommandLine, handle: FoldingHandle
) -> None:
    assert line("cluster", "approve", "-y").code == 3
    request = make_join_request()
    handle.set_register(BETA, JoinFigures(requests=(request,)))
    shown = line("cluster", "pending").out
    assert "mini" in shown
    assert "281 604" in shown
    assert "beta" in shown
    item = line("cluster", "pending", "-o", "json").json["items"][0]
    assert (item["code"], item["asked"]) == ("281604", BETA)
    assert line("cluster", "approve", "nobody", "-y").code == 3
    assert line("cluster", "approve", "mini").code == 2  # nobody is there to compare
    late = line("cluster", "approve", "mini", "-y", "--timeout", "0.1")
    assert late.code == 124  # the other side does not confirm
    assert line("cluster", "deny", request.id).out == "mini denied\n"
    assert handle.judged == [(request.id, True), (request.id, False)]
    other = msgspec.structs.replace(request, id="j-2", name="other")
    handle.set_register(BETA, JoinFigures(requests=(request, other)))
    assert line("cluster", "deny").code == 4


def test_cancel_of_a_request(line: CommandLine, handle: FoldingHandle) -> None:
    identity = "q-0123456789abcdef"
    assert line("req", "cancel", identity).code == 3
    handle.running.add(identity)  # type: ignore[arg-type]
    assert line("req", "cancel", identity).out == f"{identity} cancelled\n"
    assert line("req", "cancel", "q-12").code == 3
    handle.set_register(ALPHA, RequestFigures())


def test_down_asks_the_node_to_end(line: CommandLine, handle: FoldingHandle) -> None:
    outcome = line("down")
    assert (outcome.code, outcome.out) == (0, "alpha stopping\n")
    assert handle.shut_down == 1


@pytest.mark.parametrize(
    "condition",
    ["master", "instance=i-00000001", "instance=i-9:gone", "model=smollm2", "node=beta"],
)
def test_wait_returns_at_once_for_what_holds(line: CommandLine, condition: str) -> None:
    outcome = line("wait", "--for", condition)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.parametrize("condition", ["instance=i-0000:gone", "node=gamma", "node=beta:lost"])
def test_wait_ends_with_124_for_what_does_not(line: CommandLine, condition: str) -> None:
    outcome = line("wait", "--for", condition, "--timeout", "60ms")
    assert outcome.code == 124
    assert condition in outcome.err


def test_wait_for_a_download_ends_once_every_node_has_it_or_one_needs_a_person(
    line: CommandLine, handle: FoldingHandle
) -> None:
    def at(phase: str, **more: object) -> DownloadRecord:
        whole = {"model": "lab/tiny", "phase": phase, "bytes_done": 1, "bytes_total": 2}
        return msgspec.convert({**whole, **more}, DownloadRecord)

    def wait() -> int:
        return line("wait", "--for", "download=tiny", "--timeout", "60ms").code

    assert wait() == 124
    handle.set_register(ALPHA, DownloadFigures(downloads=(at("complete"),)))
    handle.set_register(BETA, DownloadFigures(downloads=(at("downloading"),)))
    assert wait() == 124
    failure = {"code": "hub_forbidden", "message": "403: gated"}
    again = at("failed", failure=failure, retry_at=9.0)
    handle.set_register(BETA, DownloadFigures(downloads=(again,)))
    assert wait() == 124
    handle.set_register(BETA, DownloadFigures(downloads=(at("failed", failure=failure),)))
    assert wait() == 5
    handle.set_register(BETA, DownloadFigures(downloads=(at("complete"),)))
    assert wait() == 0


def test_a_conflict_is_code_4(line: CommandLine, handle: FoldingHandle) -> None:
    handle.answers.append(ConflictError.because("busy", "the node holds i-00000001"))
    assert line("node", "rm", "beta", "-y").code == 4


def test_placing_a_model_that_no_node_knows_is_left_to_the_node(
    line: CommandLine, handle: FoldingHandle
) -> None:
    line("load", "owner/new-model", "--no-wait")
    assert isinstance(handle.commands[0], PlaceInstance)
    assert handle.commands[0].model == ModelId("owner/new-model")
