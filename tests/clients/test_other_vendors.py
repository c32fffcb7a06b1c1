"""Anthropic's and Ollama's own packages, and OpenAI's newer API, over a node in memory."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anthropic
import anyio
import ollama
import pytest

from node.api.server import ApiServer, serve
from node.config import Config
from node.model.errors import BusyError
from node.model.request import Delta
from tests.clients.anthropic_checks import ANTHROPIC_CHECKS, MESSAGES
from tests.clients.ollama_checks import OLLAMA_CHECKS
from tests.clients.responses_checks import RESPONSES_CHECKS
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import MODEL
from tests.fakes.talking_handle import TalkingHandle

CHECKS = [
    *((check, "") for check in (*ANTHROPIC_CHECKS, *OLLAMA_CHECKS)),
    *((check, "/v1") for check in RESPONSES_CHECKS),
]


@pytest.fixture
def handle() -> TalkingHandle:
    return TalkingHandle()


@pytest.fixture
async def url(handle: TalkingHandle, tmp_path: Path) -> AsyncGenerator[str]:
    config = Config(state_directory=tmp_path, model_directories=(tmp_path,), api_port=0)
    async with anyio.create_task_group() as tasks:
        server: ApiServer = await tasks.start(serve, handle, config)
        yield f"http://{server.address}"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("check", "path"), CHECKS, ids=lambda part: getattr(part, "__name__", ""))
async def test_the_vendors_client_is_content(
    check: Callable[[str, str], None], path: str, url: str
) -> None:
    await anyio.to_thread.run_sync(check, url + path, MODEL)


async def test_a_failure_in_a_stream_raises_what_callers_catch(
    handle: TalkingHandle, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [Delta(index=0, text="Hel", tokens=(1,)), BusyError.because("lost", "a node is lost")]

    async def fail(_: object) -> AsyncGenerator[object]:
        for step in broken:
            if isinstance(step, BusyError):
                raise step
            yield step

    monkeypatch.setattr(handle, "generate", fail)
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        with pytest.raises(anthropic.APIStatusError, match="a node is lost"):
            async with client.messages.stream(
                model=MODEL, messages=MESSAGES, max_tokens=9
            ) as stream:
                await stream.get_final_message()
    client: Any = ollama.AsyncClient(url)
    lines = await client.chat(MODEL, MESSAGES, stream=True)
    with pytest.raises(ollama.ResponseError, match="a node is lost"):
        async for _ in lines:
            pass
    await client.close()


async def test_a_client_that_leaves_ends_its_generation(handle: TalkingHandle, url: str) -> None:
    handle.script = []
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client,
        client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=9) as stream,
    ):
        async for _ in stream:
            break
    await eventually(lambda: not handle.running)
