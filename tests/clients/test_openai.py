"""OpenAI's own Python package against the API, over a node in memory."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
import openai
import pytest
from openai import AsyncOpenAI

from node.api.server import ApiServer, serve
from node.config import Config
from node.model.errors import BusyError, InternalError, UsageError
from node.model.request import (
    Delta,
)
from tests.clients.openai_checks import MESSAGES, SYNCHRONOUS_CHECKS, check_async_stream
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import MODEL, FakeHandle
from tests.fakes.talking_handle import TalkingHandle


async def start(handle: FakeHandle, tmp_path: Path, tasks: anyio.abc.TaskGroup) -> str:
    config = Config(state_directory=tmp_path, model_directories=(tmp_path,), api_port=0)
    server: ApiServer = await tasks.start(serve, handle, config)
    return f"http://{server.address}/v1"


@pytest.fixture
async def handle() -> FakeHandle:
    return TalkingHandle()


@pytest.fixture
async def base_url(handle: FakeHandle, tmp_path: Path) -> AsyncGenerator[str]:
    async with anyio.create_task_group() as tasks:
        yield await start(handle, tmp_path, tasks)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("check", SYNCHRONOUS_CHECKS, ids=lambda check: check.__name__)
async def test_the_synchronous_client(check: Callable[[str, str], None], base_url: str) -> None:
    await anyio.to_thread.run_sync(check, base_url, MODEL)


async def test_the_asynchronous_client(handle: FakeHandle, base_url: str) -> None:
    await check_async_stream(base_url, MODEL)
    await eventually(lambda: not handle.running)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BusyError.because("queue_full", "64 wait"), openai.RateLimitError),
        (BusyError.because("not_ready", "it loads"), openai.InternalServerError),
        (UsageError.because("context", "5000 tokens, 4096 fit"), openai.BadRequestError),
        (InternalError.because("bug", "ours"), openai.InternalServerError),
    ],
)
async def test_failures_raise_the_classes_that_callers_catch(
    tmp_path: Path, error: Exception, expected: type[openai.APIStatusError]
) -> None:
    handle = FakeHandle()
    handle.script = [error]  # type: ignore[list-item]
    async with anyio.create_task_group() as tasks:
        url = await start(handle, tmp_path, tasks)
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            with pytest.raises(expected):
                await client.chat.completions.create(model=MODEL, messages=MESSAGES)
            with pytest.raises(expected):
                await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            handle.script = [Delta(index=0, text="a"), *handle.script]
            stream = await client.chat.completions.create(
                model=MODEL, messages=MESSAGES, stream=True
            )
            with pytest.raises(openai.APIError):
                async for _ in stream:
                    pass
        tasks.cancel_scope.cancel()
