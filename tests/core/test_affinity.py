"""Conversations go on where their beginning is known, unless others wait much less."""

from node.core.affinity import LOAD_SLACK, REMEMBERED_MAX, Affinity
from node.model.ids import InstanceId, ModelId, RequestId
from node.model.request import GenerationRequest, Message

ONE, TWO = InstanceId("i-1"), InstanceId("i-2")


def ask(*turns: str) -> GenerationRequest:
    roles = ("user", "assistant")
    return GenerationRequest(
        id=RequestId("q"),
        model=ModelId("m"),
        messages=tuple(Message(role=roles[at % 2], content=turn) for at, turn in enumerate(turns)),
    )


def test_a_conversation_goes_on_where_it_began() -> None:
    affinity = Affinity()
    assert affinity.choose(ask("hello"), {ONE: 1, TWO: 0}) == TWO
    assert affinity.choose(ask("other"), {ONE: 0, TWO: 1}) == ONE
    assert affinity.choose(ask("hello", "hi", "and?"), {ONE: 0, TWO: 1}) == TWO
    assert affinity.choose(ask("unknown"), {ONE: 0, TWO: 1}) == ONE


def test_a_much_busier_instance_is_not_waited_for() -> None:
    affinity = Affinity()
    affinity.choose(ask("hello"), {ONE: 1, TWO: 0})
    assert affinity.choose(ask("hello", "hi", "a"), {ONE: 0, TWO: LOAD_SLACK}) == ONE
    assert affinity.choose(ask("hello", "hi", "a"), {ONE: 1, TWO: 0}) == ONE


def test_an_instance_that_is_gone_is_forgotten() -> None:
    affinity = Affinity()
    affinity.choose(ask("hello"), {ONE: 1, TWO: 0})
    assert affinity.choose(ask("hello"), {ONE: 5}) == ONE


def test_raw_prompts_are_known_as_a_whole() -> None:
    affinity = Affinity()
    raw = GenerationRequest(id=RequestId("q"), model=ModelId("m"), prompt="Once")
    affinity.choose(raw, {ONE: 1, TWO: 0})
    assert affinity.choose(raw, {ONE: 0, TWO: 1}) == TWO


def test_what_is_remembered_is_bounded() -> None:
    affinity = Affinity()
    for number in range(REMEMBERED_MAX + 1):
        affinity.choose(ask(str(number)), {ONE: 1, TWO: 0})
    assert len(affinity) == REMEMBERED_MAX
    assert affinity.choose(ask("0"), {ONE: 0, TWO: 1}) == ONE
