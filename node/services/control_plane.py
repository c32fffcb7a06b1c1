"""Everything that orders and decides, made once: router, state, registers, master, commands."""

from collections.abc import Callable

from node.config import Config
from node.core.facts import Facts, facts_from
from node.core.naming import name_of
from node.core.replica.durable import Recovered
from node.io import clock
from node.io.log_file import LogFile
from node.io.mesh.mesh import Mesh
from node.model.event import NodeDescribed
from node.model.ids import NodeId
from node.model.state import State
from node.services.commands import Commands
from node.services.event_router import EventRouter
from node.services.master import Master
from node.services.membership import Membership
from node.services.register_store import RegisterStore
from node.services.state_store import StateStore
from node.wire.message import CommandAnswered, PlanAnswered


class ControlPlane:
    """The parts, and the few lines between them."""

    def __init__(
        self,
        config: Config,
        mesh: Mesh,
        log: LogFile,
        recovered: Recovered,
        describe: Callable[[], NodeDescribed],
    ) -> None:
        self.node = mesh.node
        self.incarnation = recovered.incarnation
        self._mesh = mesh
        self.store = StateStore()
        self.registers = RegisterStore(self.node, recovered.incarnation, self.store.feed)
        self.router = EventRouter(self.node, log, recovered, self.store, mesh.send)
        self.router.priority = 1 if config.prefer_master else 0
        self.master = Master(self.node, self.router, self.facts, self._reply, self.state)
        self.router.attach_desk(self.master)
        self.commands = Commands(
            self.node,
            self.store,
            lambda: self.router.cluster,
            lambda: self.router.master,
            mesh.send,
            lambda message: self.master.asked(self.node, message),
        )
        self.router.on_reset = self.commands.cluster_changed
        self.membership = Membership(
            self.node, describe, self.state, self.router, mesh, self.commands.submit
        )

    def state(self) -> State:
        """The last committed state."""
        return self.store.state

    def name_of(self, node: NodeId) -> str:
        """A member's name, or the start of its id."""
        return name_of(self.store.state, node)

    def facts(self) -> Facts:
        """What decisions may know beside the state."""
        return facts_from(self.registers.registers, clock.wall())

    def _reply(self, asker: NodeId, message: CommandAnswered | PlanAnswered) -> None:
        if asker != self.node:
            self._mesh.send(asker, message)
        elif isinstance(message, CommandAnswered):
            self.commands.answered(self.node, message.answer)
        else:
            self.commands.answered(self.node, message)
