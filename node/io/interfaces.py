"""The machine's network interfaces: addresses, link-local scopes, and what wire they are on."""

import ipaddress
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import anyio
import ifaddr
import msgspec

from node.model.machine import Address

HARDWARE_PORTS_SECONDS_MAX = 5.0
_LINUX_INTERFACES = Path("/sys/class/net")
_VPN_PREFIXES = ("tun", "tap", "utun", "wg", "tailscale", "zt", "ppp", "ipsec")
_PREFERENCE = ("thunderbolt", "loopback", "ethernet", "", "wifi", "vpn")
"""Media in the order in which addresses are tried."""


class Interface(msgspec.Struct, frozen=True, order=True):
    """One interface with its addresses."""

    name: str
    index: int
    addresses: tuple[str, ...]
    """IPv4 and IPv6, without scope and prefix."""
    networks: tuple[str, ...]
    """The networks of `addresses`, such as `10.0.0.0/24`."""
    medium: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether it never leaves the machine."""
        return self.medium == "loopback"


def list_interfaces(ports: Mapping[str, str] | None = None) -> tuple[Interface, ...]:
    """Every interface that has an address; `ports` as from `hardware_ports`. Takes about 1 ms."""
    try:
        adapters = list(ifaddr.get_adapters())
    except OSError:
        return ()
    interfaces: list[Interface] = []
    for adapter in adapters:
        pairs = sorted(
            (address.ip if address.is_IPv4 else address.ip[0], address.network_prefix)
            for address in adapter.ips
        )
        name = adapter.nice_name
        interfaces.append(
            Interface(
                name=name,
                index=adapter.index or 0,
                addresses=tuple(str(ip) for ip, _ in pairs),
                networks=tuple(
                    str(ipaddress.ip_network(f"{ip}/{prefix}", strict=False))
                    for ip, prefix in pairs
                ),
                medium=guess_medium(name, [str(ip) for ip, _ in pairs], ports or {}),
            )
        )
    return tuple(sorted(interfaces))


def guess_medium(name: str, addresses: Iterable[str], ports: Mapping[str, str]) -> str:
    """What an interface is made of, by what the system calls it; empty where that can't be told."""
    if any(ipaddress.ip_address(address).is_loopback for address in addresses):
        return "loopback"
    if name.startswith(_VPN_PREFIXES):
        return "vpn"
    port = ports.get(name, "").lower()
    if "thunderbolt" in port or name.startswith("thunderbolt"):
        return "thunderbolt"
    if "wi-fi" in port or "airport" in port or (_LINUX_INTERFACES / name / "wireless").exists():
        return "wifi"
    if "ethernet" in port or "lan" in port or name.startswith(("eth", "enp", "eno", "ens", "veth")):
        return "ethernet"
    return ""


async def hardware_ports() -> dict[str, str]:
    """On a Mac, the name of the port behind each device (`en0`: `Wi-Fi`); empty elsewhere."""
    command = shutil.which("networksetup") if sys.platform == "darwin" else None
    if command is None:
        return {}
    try:
        with anyio.fail_after(HARDWARE_PORTS_SECONDS_MAX):
            listing = await anyio.run_process(
                [command, "-listallhardwareports"], check=False, stderr=subprocess.DEVNULL
            )
    except (OSError, TimeoutError):
        return {}
    return parse_hardware_ports(listing.stdout.decode(errors="replace"))


def parse_hardware_ports(listing: str) -> dict[str, str]:
    """Read what `networksetup -listallhardwareports` prints."""
    ports: dict[str, str] = {}
    port = ""
    for line in listing.splitlines():
        label, _, value = line.partition(":")
        if label.strip() == "Hardware Port":
            port = value.strip()
        elif label.strip() == "Device" and port:
            ports[value.strip()] = port
    return ports


def advertised_addresses(
    interfaces: Iterable[Interface], bind: str, port: int
) -> tuple[Address, ...]:
    """Where others can reach a node that listens on `bind` (empty: on every address)."""
    if bind and not is_unspecified(bind):
        return (Address(bind, port),)
    hosts = [
        (_PREFERENCE.index(interface.medium), ":" in host, host)
        for interface in interfaces
        if not interface.is_loopback
        for host in interface.addresses
        if not (bind == "0.0.0.0" and ":" in host)  # noqa: S104 - compared, not bound
    ]
    return tuple(Address(host, port) for _, _, host in sorted(hosts))


def own_host_towards(addresses: Iterable[Address]) -> str:
    """This machine's address on the way to the first of the addresses that a route leads to.

    Asks the routing table; nothing is sent. Link-local addresses are left out: the peer would need
    a scope to answer. Empty where no route is known.
    """
    for address in addresses:
        try:
            peer = ipaddress.ip_address(address.host.partition("%")[0])
        except ValueError:
            continue
        if peer.version == 6 and peer.is_link_local:
            continue
        family = socket.AF_INET6 if peer.version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((str(peer), max(1, address.port)))
            except OSError:
                continue
            return plain_host(str(probe.getsockname()[0]))
    return ""


def medium_towards(interfaces: Iterable[Interface], local_host: str) -> str:
    """The medium of a connection whose own end has this address."""
    host = local_host.partition("%")[0]
    for interface in interfaces:
        if host in interface.addresses:
            return interface.medium
    return ""


def dial_order(
    addresses: Iterable[Address], interfaces: tuple[Interface, ...]
) -> tuple[Address, ...]:
    """Addresses to try, the fastest medium first; the order given decides among equals.

    A link-local IPv6 address without a scope is tried on every interface that has link-local ones:
    what scope others heard it on says nothing here.
    """
    scoped = [one for address in addresses for one in _with_scopes(address, interfaces)]
    media = {address: _medium_of(address.host, interfaces) for address in scoped}
    return tuple(
        sorted(dict.fromkeys(scoped), key=lambda address: _PREFERENCE.index(media[address]))
    )


def better_addresses(
    addresses: Iterable[Address], medium: str, interfaces: tuple[Interface, ...]
) -> tuple[Address, ...]:
    """Those that are reached over a better medium than this one."""
    return tuple(
        address
        for address in dial_order(addresses, interfaces)
        if is_better(_medium_of(address.host, interfaces), medium)
    )


def is_better(medium: str, than: str) -> bool:
    """Whether a medium comes before another; any comes before one that is not listed."""
    rank = {name: number for number, name in enumerate(_PREFERENCE)}
    return rank.get(medium, len(rank)) < rank.get(than, len(rank))


def plain_host(host: str) -> str:
    """A host as the system gives it, with an IPv4 address that came in by IPv6 as IPv4."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return host


def without_scope(address: Address) -> Address:
    """The address as another machine may use it: a scope names an interface of this one."""
    return Address(address.host.partition("%")[0], address.port)


def is_unspecified(host: str) -> bool:
    """Whether the host stands for every address of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _with_scopes(address: Address, interfaces: Iterable[Interface]) -> list[Address]:
    if not address.host.lower().startswith("fe80:") or "%" in address.host:
        return [address]
    return [
        Address(f"{address.host}%{interface.name}", address.port)
        for interface in interfaces
        if any(own.lower().startswith("fe80:") for own in interface.addresses)
    ]


def _medium_of(host: str, interfaces: Iterable[Interface]) -> str:
    plain, _, scope = host.partition("%")
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return ""
    if address.is_loopback:
        return "loopback"
    for interface in interfaces:
        if scope in (interface.name, str(interface.index)):
            return interface.medium
        if not scope and any(address in ipaddress.ip_network(net) for net in interface.networks):
            return interface.medium
    return ""
