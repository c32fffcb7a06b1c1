"""What OpenAI's own Python package must get from a node, whichever model it serves.

Each check takes the API's base URL and the name of a loaded model, so that the same ones run
against a node in memory and against a real one.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import openai
import pydantic
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam

MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "Say hello."},
]
SECONDS = 60.0


@contextmanager
def client_of(base_url: str) -> Generator[OpenAI]:
    """The synchronous client."""
    with OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=SECONDS) as client:
        yield client


def check_models(base_url: str, model: str) -> None:
    """The model is listed, and found by its name."""
    with client_of(base_url) as client:
        assert model in [each.id for each in client.models.list()]
        assert client.models.retrieve(model).object == "model"


def check_whole_answer(base_url: str, model: str) -> None:
    """A conversation is answered."""
    with client_of(base_url) as client:
        answer = client.chat.completions.create(
            model=model, messages=MESSAGES, max_completion_tokens=8, temperature=0
        )
    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens > answer.usage.prompt_tokens > 0


def check_stream(base_url: str, model: str) -> None:
    """A streamed answer has the role first, then text, then the reason, then the counts."""
    with (
        client_of(base_url) as client,
        client.chat.completions.create(
            model=model,
            messages=MESSAGES,
            max_completion_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
        ) as stream,
    ):
        chunks = list(stream)
    *parts, last = chunks
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts)
    reasons = [part.choices[0].finish_reason for part in parts]
    assert reasons[-1] in ("stop", "length")
    assert set(reasons[:-1]) == {None}
    assert last.choices == []
    assert last.usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


def check_stream_helper(base_url: str, model: str) -> None:
    """The package's own collector of streams is content with what it gets."""
    with (
        client_of(base_url) as client,
        client.chat.completions.stream(
            model=model, messages=MESSAGES, max_completion_tokens=8
        ) as stream,
    ):
        with suppress(openai.LengthFinishReasonError):  # it minds an answer that was cut off
            for _ in stream:
                pass
        collected = stream.current_completion_snapshot
    assert collected.choices[0].message.content
    assert collected.choices[0].finish_reason in ("stop", "length")


def check_stop(base_url: str, model: str) -> None:
    """Stop texts end an answer and never show."""
    with client_of(base_url) as client:
        answer = client.chat.completions.create(
            model=model, messages=MESSAGES, max_completion_tokens=40, temperature=0
        )
        text = answer.choices[0].message.content or ""
        stop = text[len(text) // 2 :][:1]
        assert stop
        stopped = client.chat.completions.create(
            model=model, messages=MESSAGES, max_completion_tokens=40, temperature=0, stop=[stop]
        )
    assert stop not in (stopped.choices[0].message.content or "")
    assert stopped.choices[0].finish_reason == "stop"


def check_logprobs(base_url: str, model: str) -> None:
    """Each token has its log probability and alternatives, the likeliest first."""
    with client_of(base_url) as client:
        answer = client.chat.completions.create(
            model=model,
            messages=MESSAGES,
            max_completion_tokens=4,
            temperature=0,
            logprobs=True,
            top_logprobs=2,
        )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    for each in logprobs.content:
        assert each.logprob <= 0
        assert bytes(each.bytes or []).decode() == each.token
        assert len(each.top_logprobs) == 2
        assert each.top_logprobs[0].logprob >= each.top_logprobs[1].logprob


def check_several_answers(base_url: str, model: str) -> None:
    """`n` gives as many answers."""
    with client_of(base_url) as client:
        answer = client.chat.completions.create(
            model=model, messages=MESSAGES, max_completion_tokens=4, n=2, seed=1
        )
    assert [choice.index for choice in answer.choices] == [0, 1]


def check_seed(base_url: str, model: str) -> None:
    """The same seed gives the same answer."""
    with client_of(base_url) as client:
        texts = {
            client.chat.completions.create(
                model=model, messages=MESSAGES, max_completion_tokens=8, seed=42
            ).choices[0].message.content
            for _ in range(2)
        }  # fmt: skip
    assert len(texts) == 1


def check_text_completion(base_url: str, model: str) -> None:
    """A text goes on, whole and streamed."""
    with client_of(base_url) as client:
        whole = client.completions.create(model=model, prompt="Once upon", max_tokens=6)
        assert whole.choices[0].text
        assert whole.usage is not None
        streamed = client.completions.create(
            model=model, prompt="Once upon", max_tokens=6, stream=True
        )
        chunks = list(streamed)
    assert "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


class Animal(pydantic.BaseModel):
    """What the model is made to answer."""

    name: str = pydantic.Field(max_length=12)
    legs: int = pydantic.Field(ge=0, le=8)
    is_tame: bool


def check_parsed_answer(base_url: str, model: str) -> None:
    """An answer in the form of a class is one, however little the model knows of it."""
    with client_of(base_url) as client:
        answer = client.chat.completions.parse(
            model=model,
            messages=[{"role": "user", "content": "Describe a cat, as JSON."}],
            max_completion_tokens=200,
            response_format=Animal,
        )
    assert isinstance(answer.choices[0].message.parsed, Animal)


def check_errors(base_url: str, model: str) -> None:
    """Mistakes of the caller raise the classes that callers catch."""
    with client_of(base_url) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="owner/nothing", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model=model, messages=MESSAGES, temperature=9)
        assert refused.value.param == "temperature"
        assert refused.value.request_id
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("nothing")


async def check_async_stream(base_url: str, model: str) -> None:
    """The asynchronous client streams, and may leave early."""
    async with AsyncOpenAI(
        base_url=base_url, api_key="none", max_retries=0, timeout=SECONDS
    ) as client:
        stream = await client.chat.completions.create(
            model=model, messages=MESSAGES, max_completion_tokens=8, stream=True
        )
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(texts)
        early = await client.chat.completions.create(
            model=model, messages=MESSAGES, max_completion_tokens=100, stream=True
        )
        async for _ in early:
            break
        await early.close()
        answer = await client.chat.completions.create(
            model=model, messages=MESSAGES, max_completion_tokens=4
        )
    assert answer.choices[0].message.content


SYNCHRONOUS_CHECKS: tuple[Callable[[str, str], None], ...] = (
    check_models,
    check_whole_answer,
    check_stream,
    check_stream_helper,
    check_stop,
    check_logprobs,
    check_several_answers,
    check_seed,
    check_text_completion,
    check_parsed_answer,
    check_errors,
)
