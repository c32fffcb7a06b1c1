"""Drawing tokens: filters, penalties and seeds, on small vocabularies."""

from collections import Counter

import mlx.core as mx
import pytest

from node.model.errors import UsageError
from node.model.request import Sampling
from node.runner.sampling import check_sampling, greedy, make_processors, make_sampler

LOGPROBS = mx.log(mx.array([[0.5, 0.25, 0.15, 0.07, 0.03]]))


def drawn(sampling: Sampling, count: int = 200) -> Counter[int]:
    sampler = make_sampler(sampling)
    tokens = mx.concatenate([sampler(LOGPROBS) for _ in range(count)]).tolist()
    assert isinstance(tokens, list)
    return Counter(int(str(token)) for token in tokens)


def test_temperature_0_is_greedy_and_shared() -> None:
    assert make_sampler(Sampling(temperature=0)) is greedy
    assert greedy(LOGPROBS).tolist() == [0]


@pytest.mark.parametrize("temperature", [5e-324, 1e-45, 1e-38, 1e-10, 2e-4])
def test_however_cold_the_likeliest_is_drawn(temperature: float) -> None:
    assert drawn(Sampling(temperature=temperature, seed=1)).keys() == {0}


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        (Sampling(seed=1, top_k=2), {0, 1}),
        (Sampling(seed=1, top_k=99), {0, 1, 2, 3, 4}),
        (Sampling(seed=1, top_p=0.6), {0, 1}),
        (Sampling(seed=1, top_p=0.0), {0}),
        (Sampling(seed=1, min_p=0.4), {0, 1}),
        (Sampling(seed=1, min_p=1.0), {0}),
        (Sampling(seed=1, top_k=3, top_p=0.99, min_p=0.01), {0, 1, 2}),
    ],
)
def test_filters_keep_just_the_likely(sampling: Sampling, possible: set[int]) -> None:
    assert set(drawn(sampling)) == possible


def test_temperature_changes_how_often() -> None:
    cold, hot = drawn(Sampling(seed=1, temperature=0.2)), drawn(Sampling(seed=1, temperature=5.0))
    assert cold[0] > 180
    assert hot[0] < 90


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    def sequence(seed: int | None) -> list[object]:
        sampler = make_sampler(Sampling(seed=seed))
        return [sampler(LOGPROBS).tolist() for _ in range(40)]

    assert sequence(5) == sequence(5)
    assert sequence(-1) == sequence(-1)
    assert sequence(5) != sequence(6)
    assert sequence(None) != sequence(None)


def processed(sampling: Sampling, tokens: list[int], prompt_length: int) -> list[float]:
    logits = mx.array([[2.0, -2.0, 1.0]])
    for process in make_processors(sampling, prompt_length):
        logits = process(mx.array(tokens), logits)
    return [round(float(str(value)), 4) for value in logits[0].tolist()]  # type: ignore[union-attr]


def test_penalties_count_the_answer_and_repetition_the_prompt_too() -> None:
    tokens = [0, 1, 2, 2]
    assert processed(Sampling(presence_penalty=0.5), tokens, 2) == [2.0, -2.0, 0.5]
    assert processed(Sampling(frequency_penalty=0.5), tokens, 2) == [2.0, -2.0, 0.0]
    assert processed(Sampling(repetition_penalty=2.0), tokens, 2) == [1.0, -4.0, 0.5]
    assert processed(Sampling(logit_bias={1: 3.0}), tokens, 2) == [2.0, 1.0, 1.0]
    assert processed(Sampling(presence_penalty=0.5), [0, 1], 2) == [2.0, -2.0, 1.0]
    assert make_processors(Sampling(), 2) == []


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=-1.0),
        Sampling(temperature=float("inf")),
        Sampling(top_p=1.5),
        Sampling(top_k=-1),
        Sampling(min_p=2.0),
        Sampling(repetition_penalty=-0.1),
        Sampling(repetition_penalty=1e-300),
        Sampling(presence_penalty=float("nan")),
        Sampling(logit_bias={3: 1.0}),
        Sampling(logit_bias={-1: 1.0}),
        Sampling(logit_bias={1: float("inf")}),
        Sampling(logit_bias=dict.fromkeys(range(2000), 1.0)),
    ],
)
def test_what_can_not_be_drawn_from_is_refused(sampling: Sampling) -> None:
    with pytest.raises(UsageError) as refused:
        check_sampling(sampling, vocabulary_size=3)
    assert refused.value.failure.code == "bad_sampling"
