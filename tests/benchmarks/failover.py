"""From the kill of the master's process to the next accepted command."""

import time

import httpx2

from tests.benchmarks.measure import MODEL, line, real_nodes, summary
from tests.fakes.node_process import NodeProcess

ROUNDS = 20
HEADERS = {"content-type": "application/json"}


def accepted_after_kill(client: httpx2.Client, asked: NodeProcess, victim: NodeProcess) -> float:
    """Seconds until `asked` has a command accepted, sent as soon as the master is dead."""
    command = {"type": "CordonNode", "node": asked.node, "cordoned": False}
    victim.process.kill()
    started = time.monotonic()
    reply = client.post(
        f"{asked.url}/v1/cluster/commands", json=command, headers=HEADERS, timeout=30
    )
    reply.raise_for_status()
    return time.monotonic() - started


def run() -> None:
    seconds: list[float] = []
    kept = 0
    with real_nodes() as nodes, httpx2.Client() as client:
        members = nodes.cluster("one", "two", "three")
        members[0].cli("wait", "--for", f"model={MODEL}", "--timeout", "60")
        members[0].cli("load", MODEL, "--nodes", "three")
        for _ in range(ROUNDS):
            master = members[0].state()["session"]["master"]
            victim = next(node for node in members if node.node == master)
            others = [node for node in members if node is not victim]
            before = {n.name: n.runner_ids() for n in others}
            seconds.append(accepted_after_kill(client, others[0], victim))
            kept += {n.name: n.runner_ids() for n in others} == before
            victim.kill()
            back = nodes.start(victim.name).wait_ready()
            members[members.index(victim)] = back
            back.cli("wait", "--for", "node=" + back.name, "--timeout", "30")
            time.sleep(2)
    line(f"master killed, next command accepted, s (n={ROUNDS})", summary(seconds), "median <= 1.5")
    line("survivors' runner processes unchanged", f"{kept}/{ROUNDS}")
