"""What Anthropic's own Python package must get from a node, whichever model it serves."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.types import MessageParam

MESSAGES: list[MessageParam] = [{"role": "user", "content": "Say hello."}]
SECONDS = 60.0


@contextmanager
def client_of(url: str) -> Generator[Anthropic]:
    """The synchronous client."""
    with Anthropic(base_url=url, api_key="none", max_retries=0, timeout=SECONDS) as client:
        yield client


def check_message(url: str, model: str) -> None:
    """A conversation is answered."""
    with client_of(url) as client:
        message = client.messages.create(
            model=model, messages=MESSAGES, max_tokens=8, system="Answer briefly."
        )
    assert message.role == "assistant"
    (block,) = message.content
    assert block.type == "text"
    assert block.text
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert 0 < message.usage.output_tokens <= 8
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 0


def check_stream(url: str, model: str) -> None:
    """The package's own collector of streams ends with the whole message."""
    with (
        client_of(url) as client,
        client.messages.stream(model=model, messages=MESSAGES, max_tokens=8) as stream,
    ):
        texts = list(stream.text_stream)
        whole = stream.get_final_message()
    assert "".join(texts) == "".join(block.text for block in whole.content if block.type == "text")
    assert whole.stop_reason in ("end_turn", "max_tokens")
    assert whole.usage.output_tokens > 0


def check_events(url: str, model: str) -> None:
    """Events come in their order, every block is begun and ended once."""
    with client_of(url) as client:
        events = list(
            client.messages.create(model=model, messages=MESSAGES, max_tokens=8, stream=True)
        )
    kinds = [event.type for event in events if event.type != "content_block_delta"]
    assert kinds == [
        "message_start", "content_block_start", "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    start = events[0]
    assert start.type == "message_start"
    assert start.message.usage.input_tokens > 0


def check_stop_sequence(url: str, model: str) -> None:
    """A stop sequence ends the answer, is named, and never shows."""
    with client_of(url) as client:
        plain = client.messages.create(
            model=model, messages=MESSAGES, max_tokens=40, extra_body={"temperature": 0}
        )
        (block,) = plain.content
        assert block.type == "text"
        stop = block.text[len(block.text) // 2 :][:1]
        stopped = client.messages.create(
            model=model,
            messages=MESSAGES,
            max_tokens=40,
            stop_sequences=[stop],
            extra_body={"temperature": 0},
        )
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop)
    assert all(stop not in part.text for part in stopped.content if part.type == "text")


def check_count(url: str, model: str) -> None:
    """The prompt's length is told without an answer, and is the one that counts later."""
    with client_of(url) as client:
        counted = client.messages.count_tokens(model=model, messages=MESSAGES)
        message = client.messages.create(model=model, messages=MESSAGES, max_tokens=1)
    used = message.usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


def check_errors(url: str, model: str) -> None:
    """Mistakes of the caller raise the classes that callers catch."""
    with client_of(url) as client:
        with pytest.raises(anthropic.NotFoundError, match="exoctl load"):
            client.messages.create(model="owner/nothing", messages=MESSAGES, max_tokens=4)
        with pytest.raises(anthropic.BadRequestError, match="temperature"):
            client.messages.create(
                model=model, messages=MESSAGES, max_tokens=4, extra_body={"temperature": 9}
            )
        with pytest.raises(anthropic.BadRequestError, match="service_tier"):
            client.messages.create(
                model=model, messages=MESSAGES, max_tokens=4,
                service_tier="priority",  # type: ignore[arg-type]
            )  # fmt: skip
        with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
            client.messages.create(model=model, messages=MESSAGES, max_tokens=0)


ANTHROPIC_CHECKS: tuple[Callable[[str, str], None], ...] = (
    check_message, check_stream, check_events, check_stop_sequence, check_count, check_errors,
)  # fmt: skip
