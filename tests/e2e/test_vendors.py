"""The vendors' own packages against a real node with the embedded model."""

from collections.abc import Callable, Generator

import pytest

from tests.clients.anthropic_checks import ANTHROPIC_CHECKS
from tests.clients.ollama_checks import OLLAMA_CHECKS
from tests.clients.openai_checks import SYNCHRONOUS_CHECKS, check_async_stream
from tests.clients.responses_checks import RESPONSES_CHECKS
from tests.e2e.conftest import MODEL
from tests.fakes.node_process import NodeProcess, NodeProcesses

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def node(module_nodes: NodeProcesses) -> Generator[NodeProcess]:
    node = module_nodes.start("one").wait_ready()
    loaded = node.cli("load", MODEL)
    assert loaded.returncode == 0, loaded.stderr
    yield node
    assert node.stop() == 0


@pytest.mark.parametrize(
    "check", [*SYNCHRONOUS_CHECKS, *RESPONSES_CHECKS], ids=lambda check: check.__name__
)
def test_the_vendors_client_is_content(
    check: Callable[[str, str], object], node: NodeProcess
) -> None:
    check(f"{node.url}/v1", MODEL)


@pytest.mark.parametrize(
    "check", [*ANTHROPIC_CHECKS, *OLLAMA_CHECKS], ids=lambda check: check.__name__
)
def test_other_vendors_clients_are_content(
    check: Callable[[str, str], object], node: NodeProcess
) -> None:
    check(node.url, MODEL)


async def test_the_vendors_asynchronous_client_streams(node: NodeProcess) -> None:
    await check_async_stream(f"{node.url}/v1", MODEL)
