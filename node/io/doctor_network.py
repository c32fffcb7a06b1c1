"""What of the network and of other programs would keep nodes apart; nothing is sent from here."""

import ipaddress
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil

from node.io.finding import Finding, good, warning
from node.io.interfaces import Interface, list_interfaces, own_host_towards
from node.model.machine import Address

FIREWALL_SECONDS = 5.0
DISCOVERY_PORT = 5353
ENGINE_BYTES_WARN = 1_000_000_000
_SOMEWHERE = Address("192.0.2.1", 9)
"""An address that nobody has (RFC 5737): it is only looked up in the routing table."""
_ENGINES = ("ollama", "llama-server", "lm studio", "lmstudio", "mlx_lm.server", "vllm", "exo")
_MAC_FIREWALL = "/usr/libexec/ApplicationFirewall/socketfilterfw"
_UFW = Path("/etc/ufw/ufw.conf")


def network_findings(cluster_port: int) -> list[Finding]:
    """Addresses, routes, firewall, and other engines that hold the memory."""
    interfaces = list_interfaces()
    return [
        addresses(interfaces),
        route(interfaces, own_host_towards((_SOMEWHERE,))),
        firewall(cluster_port),
        engines(_process_sizes()),
    ]


def addresses(interfaces: Sequence[Interface]) -> Finding:
    """Whether other machines could have a way here at all."""
    name = "addresses"
    usable = [one for one in interfaces if one.medium not in ("loopback", "vpn")]
    if not usable:
        return warning(
            name,
            "no interface but loopback and VPN has an address: no other machine gets here",
            "connect a cable or Wi-Fi; one machine alone needs none",
        )
    unconfigured = [one.name for one in usable if one.medium != "thunderbolt" and _is_bare(one)]
    if unconfigured and len(unconfigured) == len(usable):
        return warning(
            name,
            f"{', '.join(unconfigured)} has only a 169.254 address: no DHCP server has answered",
            "check cable and router; machines on one cable still meet over it",
        )
    shown = ", ".join(f"{one.name} {one.medium or 'of unknown kind'}" for one in usable)
    return good(name, shown)


def _is_bare(interface: Interface) -> bool:
    """Whether its only IPv4 address is one that it gave to itself."""
    fours = [address for address in interface.addresses if ":" not in address]
    return bool(fours) and all(ipaddress.ip_address(one).is_link_local for one in fours)


def route(interfaces: Sequence[Interface], own_host: str) -> Finding:
    """Whether a VPN takes what is meant for the local network."""
    name = "routes"
    taken = [one.name for one in interfaces if one.medium == "vpn" and own_host in one.addresses]
    if taken:
        return warning(
            name,
            f"the VPN {taken[0]} takes everything that has no route of its own",
            "allow local networks in the VPN, or name nodes by their local address with --peer",
        )
    return good(name, f"{own_host} speaks outside" if own_host else "no route leads outside")


def firewall(cluster_port: int) -> Finding:
    """What this machine's own firewall says, where it may be asked."""
    if sys.platform == "darwin":
        return _mac_firewall()
    program = shutil.which("nft")
    listed = _output([program, "-j", "list", "ruleset"]) if program else ""
    if listed:
        return judge_ruleset(listed, cluster_port)
    if _UFW.exists() and "ENABLED=yes" in _read(_UFW):
        return warning(
            "firewall",
            "ufw is on; its rules could not be read",
            f"ufw allow {cluster_port}/tcp; ufw allow {DISCOVERY_PORT}/udp",
        )
    return good("firewall", "none that this user can see")


def judge_ruleset(listed: str, cluster_port: int) -> Finding:
    """Read `nft -j list ruleset`: what drops nodes' ports, or everything that comes in."""
    name = "firewall"
    try:
        objects = cast("list[dict[str, Any]]", json.loads(listed)["nftables"])
    except (ValueError, KeyError, TypeError):
        return good(name, "its rules can't be read")
    wanted = {cluster_port: "nodes", DISCOVERY_PORT: "discovery"}
    for rule in (one["rule"] for one in objects if "rule" in one):
        parts = cast("list[dict[str, Any]]", rule.get("expr", []))
        if not any("drop" in part or "reject" in part for part in parts):
            continue
        for port in _ports_of(parts):
            if port in wanted:
                return warning(
                    name,
                    f"a rule in {rule.get('table')}/{rule.get('chain')} drops port {port}"
                    f" ({wanted[port]})",
                    "take the rule out"
                    + ("; or use --peer" if port == DISCOVERY_PORT else ", or choose another port"),
                )
    closed = [
        one["chain"]
        for one in objects
        if "chain" in one and one["chain"].get("hook") == "input"
        if one["chain"].get("policy") == "drop"
    ]
    if closed:
        return warning(
            name,
            f"what comes in is dropped unless a rule lets it in (chain {closed[0].get('name')})",
            f"let in TCP {cluster_port} and UDP {DISCOVERY_PORT} from the local network",
        )
    return good(name, f"no rule drops port {cluster_port} or {DISCOVERY_PORT}")


class _Payload(msgspec.Struct):
    field: str = ""


class _Left(msgspec.Struct):
    payload: _Payload = msgspec.field(default_factory=_Payload)


class _Match(msgspec.Struct):
    left: _Left
    right: int


def _ports_of(parts: Iterable[Mapping[str, Any]]) -> list[int]:
    """Ports that a rule matches one by one."""
    found: list[int] = []
    for part in parts:
        try:
            match = msgspec.convert(part.get("match"), _Match)
        except msgspec.ValidationError:
            continue  # a set, a range, or no match at all
        if match.left.payload.field == "dport":
            found.append(match.right)
    return found


def _mac_firewall() -> Finding:
    state = _output([_MAC_FIREWALL, "--getglobalstate"])
    if "enabled" in state.lower():
        return warning(
            "firewall",
            "the application firewall is on: it may block what comes in to exoctl's Python",
            "allow it under System Settings, Network, Firewall, Options",
        )
    return good("firewall", "the application firewall is off" if state else "it says nothing")


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            command, capture_output=True, text=True, timeout=FIREWALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def engines(processes: Iterable[tuple[str, int, int]]) -> Finding:
    """Whether another engine holds memory and the graphics processor: (name, pid, bytes) each."""
    name = "other engines"
    found = [
        (title, process, size)
        for title, process, size in processes
        if any(title.lower() == each or title.lower().startswith(f"{each} ") for each in _ENGINES)
    ]
    if not found:
        return good(name, "none runs")
    total = sum(size for _, _, size in found)
    shown = ", ".join(f"{title} (process {process})" for title, process, _ in found)
    reason = f"{shown}: {total / 1e9:.1f} GB"
    if total < ENGINE_BYTES_WARN:
        return good(name, reason)
    return warning(name, reason, "end it while exoctl serves: both want the same memory and GPU")


def _process_sizes() -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for process in psutil.process_iter():
        try:
            found.append((process.name(), process.pid, process.memory_info().rss))
        except psutil.Error:
            continue
    return found
