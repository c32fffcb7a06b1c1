"""A member with mesh and discovery alone, run inside a network namespace; tells events as JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from node.config import parse_address
from node.io.identity import load_or_create_identity
from node.io.mdns import Discovery
from node.io.mesh.event import PeerDown, PeerUp
from node.io.mesh.limits import MeshLimits
from node.io.mesh.mesh import Mesh, MeshSettings
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address


def tell(event: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


async def tell_refusals(mesh: Mesh) -> None:
    """Once, why a member wants no link."""
    while True:
        for link in mesh.links():
            if link.failure is not None and link.failure.code == "duplicate_id":
                tell("refused", reason=link.failure.message)
                return
        await anyio.sleep(0.1)


async def run(wish: dict[str, Any]) -> None:
    identity = load_or_create_identity(Path(wish["state"]))
    limits = MeshLimits(ping_seconds=0.5, silence_seconds=2.0)
    settings = MeshSettings(
        name=wish["name"], cluster=ClusterId("c" * 32), port=wish["port"], limits=limits
    )
    mesh = Mesh(identity, settings)

    def on_candidate(node: NodeId, address: Address) -> None:
        mesh.add_candidate(node, address, "mdns")

    async with mesh.received as received, anyio.create_task_group() as group:
        await group.start(mesh.run)
        mesh.set_admitted({NodeId(node): () for node in wish["members"]})
        if wish.get("peer"):
            mesh.add_candidate(None, parse_address(wish["peer"]), "option")
        if wish.get("discovery"):
            discovery = Discovery(
                describe=mesh.discovery_text, addresses=mesh.addresses, on_candidate=on_candidate
            )
            await group.start(discovery.run)
        group.start_soon(tell_refusals, mesh)
        tell("listening", port=mesh.address.port)
        async for event in received:
            if isinstance(event, PeerUp):
                (link,) = [link for link in mesh.links() if link.peer == event.peer]
                tell(
                    "up", peer=event.peer, host=event.address.host, medium=link.medium, via=link.via
                )
            elif isinstance(event, PeerDown):
                tell("down", peer=event.peer, refused=event.refused, reason=event.reason)


if __name__ == "__main__":
    anyio.run(run, json.loads(sys.argv[1]))
