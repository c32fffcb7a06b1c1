"""A mesh on loopback under strangers' mutated greetings and pushes of a gigabyte."""

import random
from pathlib import Path

import anyio
import msgspec
import psutil

from node.io.mesh.event import PeerUp
from node.model.ids import NodeId
from node.model.machine import Address
from node.wire.frame import FrameKind, encode_frame
from tests.fakes.mesh_lab import Lab, LabNode, call, members, open_lab
from tests.fuzz.frames import greetings, messages, mutated

GREETINGS = 1000
CHUNK_BYTES = 256 * 1024
CONNECTIONS_MAX = 2000
PUSH_SECONDS = 3.0
"""How long a push may stand still before it counts as held back."""


class Report(msgspec.Struct):
    """What it came to."""

    effects: int = 0
    """Events and joins that a stranger brought about."""
    grown_bytes: int = 0
    greeted: int = 0
    stranger_bytes: int = 0
    member_bytes: int = 0
    still_links: bool = False

    def lines(self) -> list[str]:
        """For people."""
        held = f"{self.member_bytes / 1e6:,.1f} MB before it was held back"
        answer = "yes" if self.still_links else "NO"
        return [
            f"{self.greeted:,} connections with mutated greetings: {self.effects} effects",
            f"a stranger pushed {self.stranger_bytes / 1e6:,.0f} MB, a member not read {held}",
            f"memory +{self.grown_bytes / 1e6:.1f} MB; a member still gets its link: {answer}",
        ]


async def flood(directory: Path, seed: int, push_bytes: int) -> Report:
    """Run it all against one mesh."""
    report, chance = Report(), random.Random(seed)
    async with open_lab(directory) as lab:
        victim = await lab.start("victim")

        async def on_join(
            node: NodeId, name: str, addresses: tuple[Address, ...], proof: str
        ) -> bool:
            report.effects += 1
            return False

        victim.mesh.on_join = on_join
        await _greet_badly(lab, victim, report, random.Random(seed), 50)  # everything is loaded
        before = psutil.Process().memory_info().rss
        peak = before
        await _greet_badly(lab, victim, report, chance, GREETINGS)
        peak = max(peak, psutil.Process().memory_info().rss)
        await _push_as_stranger(lab, victim, report, push_bytes)
        peak = max(peak, psutil.Process().memory_info().rss)
        report.effects += victim.mesh.received.statistics().current_buffer_used
        await _push_as_member(lab, victim, report, push_bytes)
        peak = max(peak, psutil.Process().memory_info().rss)
        report.grown_bytes = peak - before
        report.still_links = await _links_still(lab, victim)
    return report


async def _greet_badly(
    lab: Lab, victim: LabNode, report: Report, chance: random.Random, count: int
) -> None:
    strangers = greetings()
    everything = strangers + messages()
    for _ in range(count):
        made = b"".join(
            mutated(chance.choice(strangers), everything, chance)
            for _ in range(chance.randint(1, 3))
        )
        async with call(victim.address, lab.identity("stranger")) as stranger:
            try:
                await stranger.stream.send(made)
                with anyio.move_on_after(0.005):
                    await stranger.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                pass
        report.greeted += 1


async def _push_as_stranger(lab: Lab, victim: LabNode, report: Report, push_bytes: int) -> None:
    """One frame that claims to be short after the other, in as many connections as it takes."""
    junk = encode_frame(FrameKind.HELLO, bytes(4000)) * (CHUNK_BYTES // 4000)
    connections = 0
    while report.stranger_bytes < push_bytes and connections < CONNECTIONS_MAX:
        connections += 1
        async with call(victim.address, lab.identity("stranger")) as stranger:
            try:
                with anyio.move_on_after(PUSH_SECONDS):
                    while report.stranger_bytes < push_bytes:
                        await stranger.stream.send(junk)
                        report.stranger_bytes += len(junk)
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                continue


async def _push_as_member(lab: Lab, victim: LabNode, report: Report, push_bytes: int) -> None:
    """A member sends and sends, and the victim's owner takes nothing."""
    identity = lab.identity("pusher")
    victim.mesh.set_admitted({identity.node: ()})
    frame = messages()[0]
    junk = frame * (CHUNK_BYTES // len(frame))
    async with call(victim.address, identity) as member:
        await member.greet()
        with anyio.move_on_after(PUSH_SECONDS) as scope:
            try:
                while report.member_bytes < push_bytes:
                    await member.stream.send(junk)
                    report.member_bytes += len(junk)
                    scope.deadline = anyio.current_time() + PUSH_SECONDS
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                return


async def _links_still(lab: Lab, victim: LabNode) -> bool:
    friend = await lab.start("friend")
    victim.mesh.set_admitted(members(friend))
    friend.mesh.set_admitted(members(victim))
    with anyio.move_on_after(20):
        while True:
            event = await victim.mesh.received.receive()
            if isinstance(event, PeerUp) and event.peer == friend.node:
                return True
    return False
