"""Networks of the test's own: namespaces with a cable between them."""

import json
import os
import shutil
import subprocess
import sys

import anyio

PATIENCE_SECONDS = 30.0


def ip(*arguments: str, check: bool = True) -> str:
    command = ["ip", *arguments]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=10).stdout


def is_usable(name: str) -> bool:
    """Whether the link-local address of a namespace may be used."""
    shown = ip("-n", name, "address", "show", "dev", "veth0")
    return "fe80" in shown and "tentative" not in shown


class Network:
    """Two namespaces with a cable between them."""

    def __init__(self) -> None:
        self.names = tuple(f"exoctl-{os.getpid()}-{letter}" for letter in "ab")

    def build_star(self) -> None:
        """Three namespaces: the third has a cable to each of the others, which have none."""
        self.names = (*self.names[:2], f"exoctl-{os.getpid()}-c")
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for number, name in enumerate(self.names[:2], 1):
            self._cable(name, "veth0", self.names[2], f"veth{number}", f"10.77.{number}")

    def join_the_ends(self) -> None:
        """A cable between the first two, over which the first finds the second's address."""
        one, two, _ = self.names
        self._cable(one, "veth9", two, "veth9", "10.77.9")
        ip("-n", one, "route", "add", "10.77.2.1", "via", "10.77.9.2")

    def _cable(self, one: str, end_one: str, two: str, end_two: str, network: str) -> None:
        ip("-n", one, "link", "add", end_one, "type", "veth", "peer", "name", end_two, "netns", two)
        for name, end, last in ((one, end_one, 1), (two, end_two, 2)):
            ip("-n", name, "address", "add", f"{network}.{last}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")

    def build(self, *, ipv4: bool) -> None:
        one, two = self.names
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", one, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", two)
        for number, name in enumerate(self.names, 1):
            if ipv4:
                ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "veth0")
            ip("-n", name, "link", "set", "veth0", "up")

    async def wait_for_addresses(self) -> None:
        """Return once the kernel lets the link-local addresses be used (about 2 s)."""
        with anyio.fail_after(PATIENCE_SECONDS):
            for name in self.names:
                while not is_usable(name):  # noqa: ASYNC110 - the kernel tells no event
                    await anyio.sleep(0.1)

    def block_multicast(self) -> None:
        rules = """
            table inet t {
                counter dropped { }
                chain out {
                    type filter hook output priority 0;
                    udp dport 5353 counter name dropped drop;
                }
                chain in {
                    type filter hook input priority 0;
                    udp dport 5353 drop;
                }
            }
        """
        for name in self.names:
            command = ["ip", "netns", "exec", name, "nft", "-f", "-"]
            subprocess.run(command, input=rules, check=True, text=True, timeout=10)

    def dropped(self, name: str) -> int:
        command = ["ip", "netns", "exec", name, "nft", "-j", "list", "counters"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
        counters = [
            one["counter"] for one in json.loads(shown.stdout)["nftables"] if "counter" in one
        ]
        return sum(counter["packets"] for counter in counters)

    def remove(self) -> None:
        for name in self.names:
            ip("netns", "delete", name, check=False)


def reason_to_skip() -> str:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    for program in ("ip", "nft"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = f"exoctl-{os.getpid()}-probe"
    made = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    ip("netns", "delete", probe, check=False)
    return f"no namespace can be made: {made.stderr.strip()}" if made.returncode else ""
