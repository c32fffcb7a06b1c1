"""The ring of mlx.distributed that tensor parallel sums go over, formed along the stage links."""

import faulthandler
import json
import logging
import socket
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx

from node.runner.environment import name_ring
from node.runner.failures import RunnerError
from node.runner.protocol import Prepare
from node.runner.stage_frame import StageHosts
from node.runner.stage_link import stage_lost
from node.runner.stage_ring import CONNECT_SECONDS, StageRing

FORM_SECONDS = 40.0
"""mlx gives a neighbour that does not listen yet 31 seconds."""
logger = logging.getLogger(__name__)


def form_group(ring: StageRing, prepare: Prepare) -> Any:
    """Meet the other ranks; returns mlx's group. Once in a process: mlx knows no second ring.

    Raises:
        RunnerError: a rank is gone, or mlx can't listen or connect.
    """
    if not mx.distributed.is_available("ring"):
        raise RunnerError.because(
            "tensor_unavailable",
            "this build of mlx has no ring of ranks",
            "place the model as a pipeline or on a single node",
        )
    hosts = _exchange(ring, prepare.rank, _free_address(prepare.stage_host))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "ranks.json")
        path.write_text(json.dumps([[host] for host in hosts]), "utf-8")
        name_ring(path, prepare.rank)
        logger.info("forms the ring %s as rank %d, or ends", hosts, prepare.rank)
        # mlx waits in there with Python's lock held, where a rank never comes even for ever: only
        # a thread without Python can end that.
        faulthandler.dump_traceback_later(FORM_SECONDS, exit=True)
        try:
            return mx.distributed.init(strict=True, backend="ring")
        except RuntimeError as error:
            raise stage_lost("a rank", f"did not join the ring: {error}") from error
        finally:
            faulthandler.cancel_dump_traceback_later()


def _free_address(host: str) -> str:
    """Where this rank will listen for the one before; mlx takes numbers of IPv4 only."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            number, port = probe.getsockname()
    except OSError as error:
        raise RunnerError.because(
            "tensor_needs_ipv4",
            f"the ranks' sums go over IPv4, which {host} is not: {error.strerror or error}",
            "place the model as a pipeline, or give the nodes IPv4 addresses",
        ) from error
    return f"{number}:{port}"


def _exchange(ring: StageRing, rank: int, own: str) -> list[str]:
    """Every rank's address, in their order: gathered in one round, told in a second.

    As each rank has to pass both on, all are alive and about to form the ring when this returns.
    """
    if rank == 0:
        ring.send(StageHosts(hosts=[own]))
        gathered = _receive(ring)
        ring.send(StageHosts(hosts=gathered))
        return _receive(ring)
    ring.send(StageHosts(hosts=[*_receive(ring), own]))
    told = _receive(ring)
    ring.send(StageHosts(hosts=told))
    return told


def _receive(ring: StageRing) -> list[str]:
    message, _ = ring.receive(CONNECT_SECONDS)
    if not isinstance(message, StageHosts):
        raise stage_lost("the rank before", "does not follow the protocol")
    return message.hosts
