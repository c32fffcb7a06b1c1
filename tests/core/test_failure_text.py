import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.core.failure_text import TEXT_CHARACTERS_MAX, short_failure, short_text
from node.core.replica.messages import PAYLOAD_BYTES_MAX
from node.model.errors import Failure

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=300)


@given(ANY_TEXT, st.integers(1, 100), st.integers(100, 5000))
def test_any_text_is_bounded_and_can_be_encoded(text: str, times: int, longest: int) -> None:
    short = short_text(text * times, longest)
    assert len(short) <= longest
    short.encode()


@given(st.text(max_size=TEXT_CHARACTERS_MAX))
def test_a_text_within_the_bound_stays_as_it_is(text: str) -> None:
    assert short_text(text) == text


def test_the_middle_is_left_out_and_said() -> None:
    short = short_text("begin" + "x" * 9990 + "the end", 200)
    assert short.startswith("beginxxx")
    assert short.endswith("xxxthe end")
    kept = short.count("x") + len("begin" + "the end")
    assert f" {10_002 - kept} characters left out " in short


def test_half_characters_are_written_out() -> None:
    assert short_text("a\udcffb") == "a\\udcffb"


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\udcff"])
def test_a_failure_of_any_words_fits_into_an_event(character: str) -> None:
    words = character * 500_000
    failure = short_failure(Failure(code=words, message=words, remedy=words, node=words))
    assert len(msgspec.msgpack.encode(failure)) < PAYLOAD_BYTES_MAX // 4
