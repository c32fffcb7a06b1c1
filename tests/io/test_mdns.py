"""Discovery on the loopback interface alone: nothing leaves the machine."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
import zeroconf
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from node.io import mdns
from node.io.interfaces import Interface
from node.io.mdns import SERVICE_TYPE, TXT_BYTES_MAX, Discovery, bounded_text, usable_interfaces
from node.model.ids import NodeId
from node.model.machine import Address

LOOPBACK = ["127.0.0.1"]
ONE, TWO = NodeId("a" * 52), NodeId("b" * 52)
PATIENCE_SECONDS = 30.0


def ignore(node: NodeId, address: Address) -> None:
    """Take no notice of a candidate."""


class Heard:
    """Candidates as they come."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[tuple[NodeId, Address]](64)

    def __call__(self, node: NodeId, address: Address) -> None:
        self._send.send_nowait((node, address))

    async def until(self, wanted: Callable[[NodeId, Address], bool]) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while not wanted(*await self._receive.receive()):
                pass

    async def first_of(self, node: NodeId) -> Address:
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                heard, address = await self._receive.receive()
                if heard == node:
                    return address

    def close(self) -> None:
        self._send.close()
        self._receive.close()


@asynccontextmanager
async def discovery(
    node: NodeId, port: int, text: dict[str, str] | None = None
) -> AsyncGenerator[tuple[Discovery, Heard], None]:
    heard = Heard()
    found = Discovery(
        describe=lambda: {"v": "1", "id": node, "cid": "c" * 8, "n": "name"} | (text or {}),
        addresses=lambda: (Address("127.0.0.1", port),),
        on_candidate=heard,
        interfaces=LOOPBACK,
    )
    async with anyio.create_task_group() as group:
        await group.start(found.run)
        try:
            yield found, heard
        finally:
            group.cancel_scope.cancel()
            heard.close()


async def state_of(found: Discovery, start: str) -> None:
    """Return once the state is that."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not found.state.startswith(start):  # noqa: ASYNC110 - a state has no event
            await anyio.sleep(0.01)


async def test_two_nodes_hear_of_each_other_and_their_state_is_on():
    async with discovery(ONE, 1111) as (one, heard_one), discovery(TWO, 2222) as (two, heard_two):
        assert await heard_one.first_of(TWO) == Address("127.0.0.1", 2222)
        assert await heard_two.first_of(ONE) == Address("127.0.0.1", 1111)
        assert (one.state, two.state) == ("on", "on")
    assert one.state == "off"


async def test_what_changes_is_announced_again():
    port = [1111]
    heard_one = Heard()
    one = Discovery(
        describe=lambda: {"id": ONE},
        addresses=lambda: (Address("127.0.0.1", port[0]),),
        on_candidate=heard_one,
        interfaces=LOOPBACK,
    )
    async with discovery(TWO, 2222) as (_, heard), anyio.create_task_group() as group:
        await group.start(one.run)
        assert (await heard.first_of(ONE)).port == 1111
        port[0] = 3333
        await heard.until(lambda node, address: node == ONE and address.port == 3333)
        group.cancel_scope.cancel()
    heard_one.close()


async def test_announcements_that_name_no_node_are_ignored():
    service = AsyncZeroconf(interfaces=LOOPBACK)
    bad: list[dict[str, str]] = [{}, {"id": "short"}, {"id": "\x1b" * 52}, {"id": "A" * 52}]
    try:
        async with discovery(ONE, 1111) as (one, heard):
            for number, text in enumerate([*bad, {"id": TWO}]):
                info = AsyncServiceInfo(
                    SERVICE_TYPE,
                    f"stranger{number}.{SERVICE_TYPE}",
                    port=9,
                    properties=text,
                    server=f"stranger{number}.local.",
                    parsed_addresses=["127.0.0.1"],
                )
                await service.async_register_service(  # pyright: ignore[reportUnknownMemberType]
                    info, cooperating_responders=True
                )
            names: set[NodeId] = set()

            def note(node: NodeId, _: Address) -> bool:
                names.add(node)
                return node == TWO

            await heard.until(note)
            assert names <= {ONE, TWO}
            await state_of(one, "on")
    finally:
        await service.async_close()


async def test_a_taken_name_is_told_and_the_node_still_hears_others():
    async with discovery(ONE, 1111) as (first, heard_first):
        await heard_first.first_of(ONE)
        async with discovery(ONE, 1112) as (second, _):
            await state_of(second, "another process announces")
            async with discovery(TWO, 2222):
                assert first.state == "on"
                assert (await heard_first.first_of(TWO)).port == 2222


@pytest.mark.parametrize(
    "error", [OSError(1, "not permitted"), RuntimeError("no"), zeroconf.NotRunningException()]
)
async def test_a_system_without_multicast_is_told_and_never_fails_the_node(
    error: Exception, monkeypatch: pytest.MonkeyPatch
):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(mdns, "AsyncZeroconf", fail)
    async with discovery(ONE, 1111) as (one, _):
        await state_of(one, str(error) or type(error).__name__)


def test_a_node_that_listens_on_loopback_alone_announces_there_alone():
    found = Discovery(
        describe=lambda: {"id": ONE},
        addresses=lambda: (Address("127.0.0.1", 1),),
        on_candidate=ignore,
    )
    assert found.interfaces() == LOOPBACK


def test_loopback_and_vpns_are_not_announced_on():
    interfaces = [
        Interface("lo", 1, ("127.0.0.1", "::1"), (), "loopback"),
        Interface("utun0", 2, ("100.64.0.1",), (), "vpn"),
        Interface("en0", 3, ("10.0.0.2", "fe80::2", "2001:db8::2"), (), "wifi"),
    ]
    assert usable_interfaces(interfaces) == ["10.0.0.2", "fe80::2"]


def test_what_is_announced_is_small_whatever_the_name():
    text = bounded_text({"v": "1", "id": "a" * 52, "cid": "c" * 8, "n": "é" * 1000, "x": "y" * 99})
    assert text["id"] == "a" * 52
    assert sum(len(key) + len(value.encode()) + 2 for key, value in text.items()) <= TXT_BYTES_MAX
    assert max(len(key) + len(value.encode()) + 1 for key, value in text.items()) <= 255
