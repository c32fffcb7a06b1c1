import msgspec

from node.core.download_queue import Job
from node.core.sources import COMPANION_SECONDS, Sources, sources
from node.model.ids import ModelId, NodeId
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    HeldModel,
    LinkFigures,
    ModelFigures,
    Register,
    RegisterValue,
)
from tests.fakes.fake_handle import make_card

MODEL = ModelId("acme/m")
COMMIT = "c" * 40
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
NOW = 1000.0


def register(node: NodeId, value: RegisterValue) -> dict[tuple[NodeId, str], Register]:
    kept = Register(node=node, incarnation=1, sequence=1, value=value)
    return {(node, type(value).__name__): kept}


def fetching(
    node: NodeId, phase: str = "downloading", commit: str = COMMIT, queued_at: float = 0.0
) -> dict[tuple[NodeId, str], Register]:
    record = DownloadRecord(
        model=MODEL, phase=phase, bytes_done=0, bytes_total=9, commit=commit, queued_at=queued_at
    )
    return register(node, DownloadFigures(downloads=(record,)))


def holding(
    node: NodeId, source: str, *, complete: bool = True
) -> dict[tuple[NodeId, str], Register]:
    held = HeldModel(
        card=msgspec.structs.replace(make_card(MODEL), source=source),
        complete=complete,
        bytes_on_disk=9,
    )
    return register(node, ModelFigures(held=(held,)))


def seen_by(
    node: NodeId,
    *registers: dict[tuple[NodeId, str], Register],
    companions: tuple[NodeId, ...] = (),
    queued_at: float = NOW,
    now: float = NOW,
) -> Sources:
    job = Job(model=MODEL, companions=companions, queued_at=queued_at)
    together = {key: value for each in registers for key, value in each.items()}
    return sources(together, node, job, COMMIT, now)


def test_alone_the_hub_is_asked() -> None:
    assert seen_by(A, fetching(A), register(B, LinkFigures())) == Sources()


def test_whoever_has_the_same_commit_is_a_source() -> None:
    found = seen_by(A, holding(B, f"{MODEL}@{COMMIT}"), holding(C, f"{MODEL}@{'d' * 40}"))
    assert found.peers == (B,)
    assert seen_by(A, holding(B, f"{MODEL}@{COMMIT}", complete=False)).peers == ()
    assert seen_by(A, fetching(B, "complete")).whole == (B,)


def test_of_companions_the_first_asks_the_hub_and_the_others_follow_in_their_order() -> None:
    three = (A, B, C)
    everyone = (fetching(A), fetching(B), fetching(C))
    assert seen_by(A, *everyone, companions=three).peers == ()
    assert seen_by(B, *everyone, companions=three).partly == (A,)
    assert seen_by(C, *everyone, companions=three).partly == (A, B)


def test_a_companion_that_is_about_to_begin_is_waited_for_but_not_for_ever() -> None:
    found = seen_by(B, fetching(A, "queued"), companions=(A, B))
    assert found.should_wait
    late = NOW + COMPANION_SECONDS
    assert not seen_by(B, companions=(A, B), now=late).should_wait
    assert not seen_by(A, companions=(A, B)).should_wait


def test_when_the_first_falls_out_the_next_takes_its_place() -> None:
    for phase in ("paused", "failed"):
        found = seen_by(B, fetching(A, phase), companions=(A, B))
        assert found == Sources()


def test_without_companions_whoever_was_asked_earlier_goes_first() -> None:
    assert seen_by(A, fetching(B, queued_at=NOW - 5)).partly == (B,)
    assert seen_by(A, fetching(B, queued_at=NOW + 5)).partly == ()
    assert seen_by(A, fetching(B, queued_at=NOW)).partly == ()
    assert seen_by(B, fetching(A, queued_at=NOW)).partly == (A,)


def test_another_commit_and_another_model_are_no_source() -> None:
    assert seen_by(A, fetching(B, commit="e" * 40, queued_at=0.0)).peers == ()
    assert seen_by(A, register(B, DownloadFigures())).peers == ()


def test_one_that_does_not_know_its_commit_yet_is_followed() -> None:
    assert seen_by(B, fetching(A, "resolving", commit=""), companions=(A, B)).partly == (A,)
