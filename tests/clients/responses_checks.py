"""What OpenAI's package must get from `/v1/responses`, whichever model a node serves."""

from collections.abc import Callable
from itertools import pairwise

import openai
import pydantic
import pytest

from tests.clients.openai_checks import client_of


class Legs(pydantic.BaseModel):
    """What the model is made to answer."""

    legs: int = pydantic.Field(ge=0, le=8)


def check_response(base_url: str, model: str) -> None:
    """An input is answered."""
    with client_of(base_url) as client:
        response = client.responses.create(
            model=model, input="Say hello.", instructions="Be brief.", max_output_tokens=8,
            store=False,
        )  # fmt: skip
    assert response.output_text
    assert response.status in ("completed", "incomplete")
    assert (response.incomplete_details is not None) == (response.status == "incomplete")
    assert response.usage is not None
    assert 0 < response.usage.output_tokens <= 8


def check_response_stream(base_url: str, model: str) -> None:
    """Events are numbered without a gap, and the pieces make up the whole."""
    with client_of(base_url) as client:
        events = list(
            client.responses.create(
                model=model, input=[{"role": "user", "content": "Say hello."}],
                max_output_tokens=8, stream=True,
            )
        )  # fmt: skip
    assert all(one.sequence_number + 1 == other.sequence_number for one, other in pairwise(events))
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == last.response.output_text  # type: ignore[union-attr]


def check_response_helper(base_url: str, model: str) -> None:
    """The package's own collector is content, and reads the answer as a class."""
    with (
        client_of(base_url) as client,
        client.responses.stream(
            model=model, input="Describe a cat.", text_format=Legs, max_output_tokens=100
        ) as stream,
    ):
        for _ in stream:
            pass
        whole = stream.get_final_response()
    assert isinstance(whole.output_parsed, Legs)


def check_response_errors(base_url: str, model: str) -> None:
    """What can't be done is refused by its name."""
    with client_of(base_url) as client:
        with pytest.raises(openai.BadRequestError) as stored:
            client.responses.create(model=model, input="Hello", store=True)
        assert stored.value.param == "store"
        with pytest.raises(openai.BadRequestError) as earlier:
            client.responses.create(model=model, input="Hello", previous_response_id="resp_1")
        assert earlier.value.param == "previous_response_id"
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="nothing", input="Hello")


RESPONSES_CHECKS: tuple[Callable[[str, str], None], ...] = (
    check_response, check_response_stream, check_response_helper, check_response_errors,
)  # fmt: skip
