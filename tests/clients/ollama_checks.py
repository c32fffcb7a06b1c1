"""What Ollama's own Python package must get from a node, whichever model it serves."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import ollama
import pytest


@contextmanager
def client_of(url: str) -> Generator[Any]:
    """The synchronous client, closed at the end."""
    client = ollama.Client(url)
    try:
        yield client
    finally:
        client.close()


MESSAGES = [{"role": "user", "content": "Say hello."}]
FEW = {"num_predict": 8, "temperature": 0.0}


def check_chat(url: str, model: str) -> None:
    """A conversation is answered, whole and line by line."""
    with client_of(url) as client:
        whole = client.chat(model, MESSAGES, options=FEW)
        assert whole.message.content
        assert whole.done
        assert whole.done_reason in ("stop", "length")
        assert 0 < (whole.eval_count or 0) <= 8
        assert (whole.total_duration or 0) > 0
        lines = list(client.chat(f"{model}:latest", MESSAGES, options=FEW, stream=True))
        assert "".join(line.message.content or "" for line in lines) == whole.message.content
        assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]


def check_generate(url: str, model: str) -> None:
    """A prompt is answered, as a turn and raw."""
    with client_of(f"{url}/ollama") as client:
        assert client.generate(model, "Say hello.", options=FEW, system="Be brief.").response
        lines = list(client.generate(model, "Once upon", raw=True, options=FEW, stream=True))
        assert "".join(line.response or "" for line in lines)
        assert client.generate(model, "").done_reason == "load"


def check_json(url: str, model: str) -> None:
    """An answer in a form has it."""
    schema = {
        "type": "object",
        "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 8}},
        "required": ["legs"],
        "additionalProperties": False,
    }
    with client_of(url) as client:
        answer = client.chat(model, MESSAGES, format=schema, options={"num_predict": 80})
    assert list(json.loads(answer.message.content or "")) == ["legs"]


def check_lists(url: str, model: str) -> None:
    """Models are listed, on disk and loaded, and shown."""
    with client_of(url) as client:
        assert model in [each.model for each in client.list().models]
        (loaded,) = [each for each in client.ps().models if each.model == model]
        assert (loaded.context_length or 0) > 0
        shown = client.show(model)
        assert "completion" in (shown.capabilities or [])
        assert shown.details is not None
        assert shown.details.family == "llama"


def check_errors(url: str, model: str) -> None:
    """Mistakes of the caller raise what callers catch."""
    with client_of(url) as client:
        with pytest.raises(ollama.ResponseError, match="exoctl load") as missing:
            client.chat("nothing", MESSAGES)
        assert missing.value.status_code == 404
        wrong: list[dict[str, Any]] = [{"mirostat": 2}, {"temperature": -1}, {"num_ctx": 10**9}]
        for options in wrong:
            with pytest.raises(ollama.ResponseError, match=next(iter(options))) as refused:
                client.chat(model, MESSAGES, options=options)
            assert refused.value.status_code == 400
        with pytest.raises(ollama.ResponseError, match="unload"):
            client.chat(model, MESSAGES, keep_alive=0)


OLLAMA_CHECKS: tuple[Callable[[str, str], None], ...] = (
    check_chat, check_generate, check_json, check_lists, check_errors,
)  # fmt: skip
