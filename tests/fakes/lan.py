"""A network of the test's own: machines in namespaces on one switch, cables pulled, paths cut."""

import ctypes
import os
import socket
import subprocess
from collections.abc import Collection
from pathlib import Path

from tests.fakes.network import ip

_NETWORK_NAMESPACE = 0x40000000
_OWN = Path("/proc/thread-self/ns/net")
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(place: Path) -> None:
    """Have this thread's new sockets be in that namespace."""
    with place.open("rb") as file:
        if _libc.setns(file.fileno(), _NETWORK_NAMESPACE) != 0:
            raise OSError(ctypes.get_errno(), f"can't enter {place}")


def connect(namespace: str, host: str, port: int, seconds: float) -> socket.socket:
    """A connection made within a namespace (empty: where this process is), by this thread alone."""
    if not namespace:
        return socket.create_connection((host, port), timeout=seconds)
    with _OWN.open("rb") as own:
        _enter(Path("/var/run/netns") / namespace)
        try:
            made = socket.socket()
        finally:
            if _libc.setns(own.fileno(), _NETWORK_NAMESPACE) != 0:
                raise OSError(ctypes.get_errno(), "can't leave a namespace")
    made.settimeout(seconds)
    try:
        made.connect((host, port))
    except BaseException:
        made.close()
        raise
    return made


class Lan:
    """Machines on a switch, numbered from 0; every fault is undone by its opposite or `heal`."""

    def __init__(self, count: int, label: str = "lan") -> None:
        unique = f"exoctl-{os.getpid()}-{label}"
        self.switch = f"{unique}-sw"
        self.names = tuple(f"{unique}-{number}" for number in range(count))
        self._cut: set[tuple[int, int]] = set()

    def build(self) -> None:
        """Make the switch, the machines and their cables."""
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            port = ("link", "add", f"p{number}", "type", "veth")
            ip("-n", self.switch, *port, "peer", "name", "veth0", "netns", name)
            ip("-n", self.switch, "link", "set", f"p{number}", "master", "br0", "up")
            ip("-n", name, "address", "add", f"{self.host(number)}/24", "dev", "veth0")
            ip("-n", name, "link", "set", "veth0", "up")

    def host(self, number: int) -> str:
        """A machine's address."""
        return f"10.78.0.{number + 1}"

    def pull_cable(self, number: int) -> None:
        """The machine sees its link go down."""
        ip("-n", self.switch, "link", "set", f"p{number}", "down")

    def plug_in(self, number: int) -> None:
        """The opposite."""
        ip("-n", self.switch, "link", "set", f"p{number}", "up")

    def cut(self, paths: Collection[tuple[int, int]]) -> None:
        """Lose everything that goes from the first to the second of each pair."""
        self._cut |= set(paths)
        self._apply()

    def mend(self, paths: Collection[tuple[int, int]]) -> None:
        """The opposite."""
        self._cut -= set(paths)
        self._apply()

    def heal(self) -> None:
        """All cables in, all paths whole."""
        self._cut.clear()
        self._apply()
        for number in range(len(self.names)):
            self.plug_in(number)

    def _apply(self) -> None:
        drops = "\n".join(
            f'iifname "p{source}" oifname "p{target}" drop' for source, target in sorted(self._cut)
        )
        rules = f"""
            table bridge cuts {{}}
            delete table bridge cuts
            table bridge cuts {{
                chain forward {{
                    type filter hook forward priority 0
                    {drops}
                }}
            }}
        """
        command = ["ip", "netns", "exec", self.switch, "nft", "-f", "-"]
        subprocess.run(command, input=rules, check=True, text=True, timeout=10)

    def listening(self, number: int) -> list[str]:
        """Addresses that anything on the machine listens at."""
        shown = ip("netns", "exec", self.names[number], "ss", "-Hltn")
        return [line.split()[3] for line in shown.splitlines()]

    def remove(self) -> None:
        """Leave nothing."""
        for name in (*self.names, self.switch):
            ip("netns", "delete", name, check=False)
