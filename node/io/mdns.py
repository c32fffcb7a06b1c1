"""Discovery by mDNS: says where this node is, and passes on where others say they are.

A hint and no more: what comes out of it are addresses to dial, and whoever is there must prove its
id. It never fails the node; `state` says how it fares.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import anyio
import msgspec
import zeroconf
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectSendStream
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from node.io import clock
from node.io.identity import is_node_id
from node.io.interfaces import Interface, list_interfaces
from node.log import logger
from node.model.ids import SHORT_ID_LENGTH, NodeId
from node.model.machine import Address

SERVICE_TYPE = "_exoctl._tcp.local."
TXT_BYTES_MAX = 400
NAMES_WAITING_MAX = 256
"""Services to look up; further ones are dropped, and come again with their next announcement."""
ADDRESSES_PER_SERVICE_MAX = 8
WATCH_SECONDS = 1.0
RESOLVE_SECONDS = 3.0
RETRY_SECONDS = 10.0
CLOSE_SECONDS = 2.0

_NO_INTERFACE = "no network interface to announce on"
_ERRORS = (OSError, RuntimeError, zeroconf.Error, TimeoutError)

_log = logger("discovery")


class _Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of this node at one time."""

    instance: str
    text: dict[str, str]
    hosts: tuple[str, ...]
    port: int

    def service_info(self) -> AsyncServiceInfo:
        return AsyncServiceInfo(
            SERVICE_TYPE,
            f"{self.instance}.{SERVICE_TYPE}",
            port=self.port,
            properties=bounded_text(self.text),
            server=f"exoctl-{self.instance}.local.",
            parsed_addresses=list(self.hosts),
        )


class Discovery:
    """Announces and browses until cancelled, on whatever interfaces there are at the time."""

    def __init__(
        self,
        *,
        describe: Callable[[], dict[str, str]],
        addresses: Callable[[], tuple[Address, ...]],
        on_candidate: Callable[[NodeId, Address], None],
        interfaces: Sequence[str] | None = None,
    ) -> None:
        """Args:
        describe: what to announce, read each second; holds `id`.
        addresses: where this node listens, read each second; all with one port.
        on_candidate: hears where a node says it is.
        interfaces: own addresses of the interfaces to use; None: all but loopback and VPNs, or
            loopback alone where the node listens nowhere else.
        """
        self._describe = describe
        self._addresses = addresses
        self._on_candidate = on_candidate
        self._chosen = None if interfaces is None else list(interfaces)
        self._state = "off"

    @property
    def state(self) -> str:
        """`on`, `off`, or why it does not work."""
        return self._state

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Announce and browse until cancelled."""
        task_status.started()
        try:
            while True:
                self._state = "starting"
                try:
                    await self._run_once()
                except* _ERRORS as group:
                    error = group.exceptions[0]
                    self._fail(str(error) or type(error).__name__)
                await anyio.sleep(RETRY_SECONDS)
        finally:
            self._state = "off"

    async def _run_once(self) -> None:
        """Run until an error; an end without one means that there is no interface now."""
        interfaces = self.interfaces()
        if not interfaces:
            self._fail(_NO_INTERFACE)
            return
        service = AsyncZeroconf(interfaces=interfaces)
        try:
            await service.zeroconf.async_wait_for_start(timeout=CLOSE_SECONDS)
            names, waiting = anyio.create_memory_object_stream[str](NAMES_WAITING_MAX)
            with names, waiting:
                browser = AsyncServiceBrowser(
                    service.zeroconf, SERVICE_TYPE, handlers=[_queue_into(names)]
                )
                async with anyio.create_task_group() as group:
                    group.start_soon(self._announce_and_watch, service, interfaces)
                    async for name in waiting:
                        await self._resolve(service, name)
                await browser.async_cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_SECONDS):
                await service.async_close()

    async def _announce_and_watch(self, service: AsyncZeroconf, interfaces: list[str]) -> None:
        """Announce, and again whenever addresses, text or the network have changed."""
        announced: _Announcement | None = None
        table = list_interfaces()
        ticked_at, ticked_wall = clock.monotonic(), clock.wall()
        retry_at = ticked_at
        while True:
            now, wall = clock.monotonic(), clock.wall()
            has_slept = (wall - ticked_wall) - (now - ticked_at) > 3 * WATCH_SECONDS
            ticked_at, ticked_wall = now, wall
            wanted, table_now = self.interfaces(), list_interfaces()
            if not wanted:
                self._fail(_NO_INTERFACE)
            elif wanted != interfaces or table_now != table or has_slept:
                await service.async_update_interfaces(interfaces=wanted)
                interfaces, table = wanted, table_now
            latest = self._announcement()
            if announced is None and now >= retry_at:
                announced = latest if await self._register(service, latest) else None
                retry_at = now + RETRY_SECONDS
            elif announced is not None and (latest != announced or has_slept):
                await self._update(service, latest)
                announced = latest
            if wanted and announced is not None:
                self._state = "on"
            await anyio.sleep(WATCH_SECONDS)

    async def _register(self, service: AsyncZeroconf, announcement: _Announcement) -> bool:
        """Announce for the first time; False where another process has the name."""
        info = announcement.service_info()
        try:
            sent = await service.async_register_service(info)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        except zeroconf.NonUniqueNameException:
            self._fail(
                f"another process announces the id {announcement.instance}:"
                " its state directory was copied"
            )
            return False
        self._state = "on"
        await cast("Awaitable[object]", sent)
        return True

    async def _update(self, service: AsyncZeroconf, announcement: _Announcement) -> None:
        info = announcement.service_info()
        sent = await service.async_update_service(info)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        await cast("Awaitable[object]", sent)

    async def _resolve(self, service: AsyncZeroconf, name: str) -> None:
        found = AsyncServiceInfo(SERVICE_TYPE, name)
        is_found = found.load_from_cache(service.zeroconf) or await found.async_request(
            service.zeroconf, RESOLVE_SECONDS * 1000
        )
        if not is_found or not found.port:
            return
        raw = found.properties.get(b"id") or b""
        node = raw.decode("ascii", errors="replace")
        if not is_node_id(node):
            return
        # The scope of a link-local address says where the packet came in, not where the peer is.
        for host in found.parsed_addresses()[:ADDRESSES_PER_SERVICE_MAX]:
            self._on_candidate(NodeId(node), Address(host, found.port))

    def _announcement(self) -> _Announcement:
        text = self._describe()
        addresses = self._addresses()
        return _Announcement(
            instance=text["id"][:SHORT_ID_LENGTH],
            text=text,
            hosts=tuple(address.host for address in addresses[:ADDRESSES_PER_SERVICE_MAX]),
            port=addresses[0].port if addresses else 0,
        )

    def interfaces(self) -> list[str]:
        """Own addresses of the interfaces to use now."""
        if self._chosen is not None:
            return self._chosen
        hosts = [address.host for address in self._addresses()]
        if hosts and all(_is_loopback(host) for host in hosts):
            return [host for host in hosts if ":" not in host]
        return usable_interfaces(list_interfaces())

    def _fail(self, reason: str) -> None:
        if reason != self._state:
            _log.warning("discovery: %s", reason)
        self._state = reason


def bounded_text(text: dict[str, str]) -> dict[str, str]:
    """TXT entries that fit into one small packet; a value that is too long is cut."""
    bounded: dict[str, str] = {}
    room = TXT_BYTES_MAX
    for key, value in text.items():
        value_bytes = value.encode()[: max(0, min(255, room) - len(key) - 2)]
        room -= len(key) + 2 + len(value_bytes)
        bounded[key] = value_bytes.decode(errors="ignore")
    return bounded


def usable_interfaces(interfaces: Sequence[Interface]) -> list[str]:
    """Own addresses of the interfaces worth announcing on, sorted."""
    return sorted(
        address
        for interface in interfaces
        if interface.medium not in ("loopback", "vpn")
        for address in interface.addresses
        if ":" not in address or ipaddress.ip_address(address).is_link_local
    )


def _queue_into(names: MemoryObjectSendStream[str]) -> Callable[..., None]:
    def on_change(
        zeroconf: zeroconf.Zeroconf,
        service_type: str,
        name: str,
        state_change: zeroconf.ServiceStateChange,
    ) -> None:
        del zeroconf, service_type
        if state_change is not _REMOVED:
            try:
                names.send_nowait(name)
            except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
                return

    return on_change


_REMOVED = zeroconf.ServiceStateChange.Removed


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
