"""What ends when this node ends, said before it does."""

from node.model.ids import NodeId
from node.model.instance import RunnerPhase
from node.model.state import State
from tui.viewmodel import text

_OVER = (RunnerPhase.STOPPED, RunnerPhase.FAILED)


def consequences(state: State, here: NodeId) -> list[str]:
    """Sentences on what quitting brings about; empty where nothing would be missed."""
    said: list[str] = []
    stopping: list[str] = []
    for instance in state.instances.values():
        for shard in instance.shards:
            runner = state.runners.get(shard.runner)
            if shard.node != here or (runner is not None and runner.phase in _OVER):
                continue
            span = text.layers(shard.first_layer, shard.end_layer)
            others = len(instance.shards) - 1
            words = f"{instance.model} stops: this node holds {span}"
            if others:
                words += f", {text.plural(others, 'other node')} will wait for it"
            stopping.append(words + ".")
    said += stopping
    others = [record for record in state.nodes.values() if record.node != here and not record.lost]
    if state.master == here and others:
        said.append(f"This node is the master: the other {len(others)} elect a new one.")
    if not others and (stopping or len(state.nodes) > 1):
        said.append("It is the last node: the cluster is down until a node starts again.")
    return said
