"""Everything that goes over a cable of a namespace, as whoever taps it sees it."""

import subprocess
import sys
from pathlib import Path

_TAP = """
import socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024 * 1024)
tap.bind((sys.argv[1], 0))
print("tapped", flush=True)
with open(sys.argv[2], "wb", buffering=0) as file:
    while True:
        file.write(tap.recv(65536))
"""


class Sniffer:
    """Runs until `stop`."""

    def __init__(self, namespace: str, interface: str, path: Path) -> None:
        self._path = path
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, "-c", _TAP, interface, str(path)],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"tapped\n"

    def stop(self) -> bytes:
        """End it; what it has seen, one packet after the other."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self._path.read_bytes()
