"""One family over two ranks, each a real process, against itself whole."""

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 240


class Found(msgspec.Struct, kw_only=True):
    """What two ranks gave."""

    exact: bool = False
    worst: float = 0.0
    reason: str = ""


def check_over_two(family: str) -> Found:
    """Start both ranks, and hear what rank 0 found."""
    links = [socket.socketpair() for _ in range(2)]
    hosts = [[f"127.0.0.1:{port}"] for port in _free_ports(2)]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "ranks.json")
        path.write_text(json.dumps(hosts))
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(2):
                ends = (links[rank - 1][1].fileno(), links[rank][0].fileno())
                command = [sys.executable, "-m", "tests.mlx.tensor_rank", family, str(rank)]
                ranks.append(
                    subprocess.Popen(
                        [*command, str(path), *map(str, ends)],
                        cwd=ROOT, pass_fds=ends, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    )
                )  # fmt: skip
            for pair in links:
                for end in pair:
                    end.close()
            said, _ = ranks[0].communicate(timeout=SECONDS_MAX)
            found = msgspec.json.decode(said.splitlines()[-1], type=Found)
            _, trouble = ranks[1].communicate(timeout=10)
        except subprocess.TimeoutExpired:
            return Found(reason=f"not done after {SECONDS_MAX} s")
        except (IndexError, msgspec.DecodeError):
            return Found(reason="rank 0 ended without an answer")
        finally:
            for rank_process in ranks:
                rank_process.kill()
                rank_process.wait()
        if found.exact and ranks[1].returncode:
            return Found(reason=f"rank 1: {trouble.decode().splitlines()[-1]}")
        return found


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
