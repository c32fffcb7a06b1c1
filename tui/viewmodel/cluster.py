"""One look at the cluster: every kind of row, made when first asked for."""

from functools import cached_property

import msgspec

from node.handle import LocalView
from node.model.ids import NodeId
from node.model.register import LinkFigures
from node.model.state import State
from tui.viewmodel import downloads, header, hues, nodes, placements
from tui.viewmodel.events import Names
from tui.viewmodel.figures import Registers, figures
from tui.viewmodel.rows import (
    DownloadRow,
    Header,
    IndexRow,
    LinkRow,
    ModelRow,
    NodeRow,
    Notice,
    PlacementRow,
    RequestRow,
)


class ClusterView:
    """Rows of one state with its registers; a new one is made when either changes."""

    def __init__(
        self,
        state: State,
        registers: Registers,
        local: LocalView | None,
        now: float,
        *,
        tells_rejection: bool = True,
    ) -> None:
        self.state = state
        self.registers = registers
        self.local = local
        self.now = now
        self._tells_rejection = tells_rejection

    @property
    def here(self) -> NodeId:
        """The node behind the handle; empty until it is known."""
        return self.local.node if self.local else NodeId("")

    @cached_property
    def hues(self) -> dict[NodeId, str]:
        """Ink of each node."""
        return hues.assign(self.state.nodes.values())

    @cached_property
    def names(self) -> Names:
        """Names and inks for ids."""
        return Names(self.state, self.hues)

    @cached_property
    def nodes(self) -> list[NodeRow]:
        """Nodes in the order of admission."""
        return nodes.node_rows(self.state, self.registers, self.hues, self.here, self.now)

    @cached_property
    def memory(self) -> tuple[int, int]:
        """In use and in all, each machine once."""
        return nodes.memory_of_all(self.state, self.nodes)

    @cached_property
    def links(self) -> dict[frozenset[NodeId], LinkRow]:
        """The best link of each pair."""
        return nodes.link_rows(self.state, self.registers)

    @cached_property
    def indices(self) -> list[IndexRow]:
        """Each node's place in the log."""
        return nodes.index_rows(self.state, self.registers, self.hues)

    @cached_property
    def placements(self) -> list[PlacementRow]:
        """Instances, the oldest first."""
        return placements.placement_rows(self.state, self.registers, self.hues, self.now)

    @cached_property
    def requests(self) -> list[RequestRow]:
        """Generations, the running ones first."""
        return placements.request_rows(self.state, self.registers, self.hues, self.now)

    @cached_property
    def downloads(self) -> list[DownloadRow]:
        """Downloads, those that need something first."""
        return downloads.download_rows(self.state, self.registers, self.hues, self.now)

    @cached_property
    def models(self) -> list[ModelRow]:
        """Models that lie on some node."""
        return downloads.model_rows(self.state, self.registers)

    @cached_property
    def header(self) -> Header:
        """The top line."""
        return header.header(self.state, self.registers, self.nodes, self.local)

    @cached_property
    def notices(self) -> list[Notice]:
        """What needs the person."""
        rows = (self.nodes, self.placements, self.downloads)
        state = self.state
        if not self._tells_rejection:
            state = msgspec.structs.replace(state, rejections=())
        return header.notices(state, self.registers, rows, self.local)

    @cached_property
    def discovery(self) -> str:
        """How this node looks for others, in a word."""
        links = figures(self.registers, self.here, LinkFigures)
        return links.discovery if links else ""
