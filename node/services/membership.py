"""Who is in the cluster, seen from this node: describing itself, joining, leaving, put out."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from node.io import clock
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.command import Accepted, AdmitNode, Command, Refused, RemoveNode
from node.model.errors import ConflictError, ExoctlError, RefusedError
from node.model.event import Event, NodeDescribed
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from node.model.register import LinkRecord
from node.model.state import State

DESCRIBE_SECONDS = 1.0
ADMIT_SECONDS = 10.0
LEAVE_SECONDS = 10.0
REPLAY_SECONDS = 30.0
"""How long the members found on disk hold against a state that is behind them."""
MEMBERS_MAX = 256
"""Taken in on the word of others, while the log has not come."""
REMIND_SECONDS = 10.0
"""Between lines in the log about a join that does not come to its end."""
REVOKED = "revoked"
"""What a member says to a node that was removed."""
SILENT = ("unreachable", "timeout", "refused", "not_tried")
"""Members that don't answer have no say in it."""

_log = logger("membership")

Submit = Callable[[Command, float], Awaitable[Accepted | Refused]]


class MemberRouter(Protocol):
    """What membership needs of the event router."""

    def publish(self, event: Event) -> object:
        """Write an event."""
        ...

    def found_cluster(self, name: str) -> None:
        """Begin a cluster of one."""
        ...

    def join_cluster(self, cluster: ClusterId, members: tuple[NodeId, ...]) -> None:
        """Follow another cluster."""
        ...

    def set_peers(self, peers: Collection[NodeId]) -> None:
        """Name the other members."""
        ...

    @property
    def cluster(self) -> ClusterId:
        """Whose log this is."""
        ...


OnDecline = Callable[[NodeId, str], Awaitable[None]]
OnIntroduced = Callable[[Mapping[NodeId, tuple[Address, ...]]], None]


class MemberMesh(Protocol):
    """What membership needs of the mesh."""

    @property
    def on_decline(self) -> OnDecline | None:
        """Called for a node that was admitted but did not come over: (node, name)."""
        ...

    @on_decline.setter
    def on_decline(self, on_decline: OnDecline | None) -> None: ...

    @property
    def on_introduced(self) -> OnIntroduced | None:
        """Called with nodes that a member speaks of and that are not known here."""
        ...

    @on_introduced.setter
    def on_introduced(self, on_introduced: OnIntroduced | None) -> None: ...

    def set_master(self, master: NodeId) -> None:
        """Name the member that one that joins should know first."""
        ...

    def links(self) -> tuple[LinkRecord, ...]:
        """The link with every member, or why there is none."""
        ...

    def set_cluster(self, cluster: ClusterId, name: str = "") -> None:
        """Links are of this cluster from now on."""
        ...

    def set_admitted(
        self, nodes: Mapping[NodeId, tuple[Address, ...]], revoked: Collection[NodeId] = ()
    ) -> None:
        """Who may link, and who was removed."""
        ...


class Membership:
    """Made once per process."""

    def __init__(
        self,
        node: NodeId,
        description: Callable[[], NodeDescribed],
        state: Callable[[], State],
        router: MemberRouter,
        mesh: MemberMesh,
        submit: Submit,
    ) -> None:
        self.node = node
        self._description = description
        self._state = state
        self._router = router
        self._mesh = mesh
        self._submit = submit
        self._described: NodeDescribed | None = None
        self._described_at = 0.0
        self._members: Mapping[NodeId, tuple[Address, ...]] = {}
        self._joining: ClusterId | None = None
        self._recovered_index = -1
        self._recovered_at = 0.0
        self._said_at = 0.0
        self.on_members: Callable[[Collection[NodeId]], None] = lambda _: None
        """Called with the other members whenever they change."""
        self._wakeup = Wakeup()
        mesh.on_decline = self.declined

    def recovered(self, state: State) -> None:
        """Start with the members that the log on disk names, committed or not.

        Until entries are delivered again nothing else is known, and who refuses its members elects
        itself.
        """
        self._recovered_index, self._recovered_at = state.index, clock.monotonic()
        self._members = {
            node: record.addresses for node, record in state.nodes.items() if node != self.node
        }
        self._mesh.set_admitted(self._members, state.revoked)

    # -- following the state -----------------------------------------------------------------------

    def state_changed(self, before: State, after: State) -> None:
        """Tell the mesh who may link; notice when this node was let in or put out."""
        if after.nodes is before.nodes and after.cluster == before.cluster:
            return
        if after.index < self._recovered_index and not self._is_replay_over():
            return  # what is delivered again names fewer members than there are
        me = self.node
        self._wakeup.ring()
        if self._joining is not None:
            if me not in after.nodes:
                return
            self._joining = None
            self._mesh.on_introduced = None
            _log.info("this node is a member of cluster %s now", after.cluster_name)
        if me in before.nodes and me in after.revoked:
            return  # `run` begins a new cluster: not from within the fold
        members = {node: record.addresses for node, record in after.nodes.items() if node != me}
        if members != self._members or after.revoked is not before.revoked:
            self._members = members
            self._mesh.set_admitted(members, after.revoked)
            self.on_members(members)

    def _is_replay_over(self) -> bool:
        if clock.monotonic() - self._recovered_at > REPLAY_SECONDS:
            self._recovered_index = -1
        return self._recovered_index < 0

    async def run(self) -> None:
        """Keep the own description in the state; go on alone when put out; until cancelled."""
        while True:
            state = self._state()
            reason = state.revoked.get(self.node) or self._said_by_most()
            if reason and self._joining is None:
                _log.warning(
                    "this node was taken out of cluster %s (%s); it goes on alone",
                    state.cluster_name,
                    reason,
                )
                self._found_anew()
            self._say_what_is_missing()
            self._describe(self._state())
            await self._wakeup.wait(DESCRIBE_SECONDS)

    def _said_by_most(self) -> str:
        """Why this node is no member any more, where more than half of the others say so and none
        that answers says otherwise: one alone may be behind the rest, and the rest out of reach.

        The entry itself may never come here: links with a removed node are cut at once.
        """
        links = self._mesh.links()
        codes = [link.failure.code if link.failure is not None else "" for link in links]
        told = [
            link.failure.message for link in links if link.failure and link.failure.code == REVOKED
        ]
        is_disputed = any(code != REVOKED and code not in SILENT for code in codes)
        return told[0] if 2 * len(told) > len(links) and not is_disputed else ""

    def _say_what_is_missing(self) -> None:
        trouble = self.join_trouble()
        now = clock.monotonic()
        if trouble and now - self._said_at >= REMIND_SECONDS:
            self._said_at = now
            _log.warning("%s; trying on", trouble)

    def join_trouble(self) -> str:
        """Why the log of the cluster that let this node in is not here yet; empty where it is.

        The mesh goes on dialling every member it was told of.
        """
        if self._joining is None:
            return ""
        silent = [link for link in self._mesh.links() if not link.up]
        why = "; ".join(
            f"{link.address}: {link.failure.message}" for link in silent[:3] if link.failure
        )
        count = len(self._members)
        head = f"the cluster let this node in, but none of its log has come: {count} members known"
        return f"{head}, {len(silent)} without a link ({why})" if silent else head

    def _describe(self, state: State) -> None:
        record = state.nodes.get(self.node)
        if record is None:
            return
        wanted = self._description()
        if (
            record.incarnation == wanted.incarnation
            and (record.own_name or record.name) == wanted.name
            and record.machine == wanted.machine
            and record.version == wanted.version
            and record.addresses == wanted.addresses
        ):
            return
        now = clock.monotonic()
        if wanted == self._described and now - self._described_at < 30 * DESCRIBE_SECONDS:
            return  # it is on its way
        try:
            self._router.publish(wanted)
        except ExoctlError as error:
            _log.debug("%s", error.failure.message)
            return
        self._described, self._described_at = wanted, now

    # -- coming and going --------------------------------------------------------------------------

    async def admit(
        self, node: NodeId, name: str, addresses: tuple[Address, ...], proof: str
    ) -> bool:
        """Let in a node whose proof was checked; returns once that is committed."""
        try:
            answer = await self._submit(
                AdmitNode(node=node, name=name, addresses=addresses, proof=proof), ADMIT_SECONDS
            )
        except ExoctlError as error:
            _log.warning("%s could not be admitted: %s", name, error.failure.message)
            return False
        if isinstance(answer, Refused):
            _log.warning("%s was not admitted: %s", name, answer.failure.message)
            return False
        self._mesh.set_master(self._state().session.master)
        _log.info("%s (%s) was admitted", name, node[:12])
        return True

    async def declined(self, node: NodeId, name: str) -> None:
        """Take back the admission of a node that stays where it is."""
        try:
            await self._submit(RemoveNode(node=node, reason="did not come over"), ADMIT_SECONDS)
        except ExoctlError as error:
            _log.warning("%s is still listed as a member: %s", name, error.failure.message)

    @property
    def is_alone(self) -> bool:
        """Whether no other node would lose its cluster if this one left it."""
        return not any(node != self.node for node in self._state().nodes)

    def check_may_join(self) -> None:
        """Raise where this node must not just go over to another cluster.

        Raises:
            ConflictError: it is in a cluster with others.
        """
        state = self._state()
        others = [r.name for node, r in state.nodes.items() if node != self.node]
        if others:
            raise ConflictError.because(
                "in_a_cluster",
                f"this node is in cluster {state.cluster_name!r} with {', '.join(others)}",
                "leave it first: exoctl cluster leave",
            )

    def joined(
        self, cluster: ClusterId, name: str, members: Mapping[NodeId, tuple[Address, ...]]
    ) -> None:
        """Another cluster has let this node in: give up the own log, follow."""
        self._joining = cluster
        self._recovered_index = -1
        self._said_at = clock.monotonic()
        self._described = None
        self._members = dict(members)
        self._mesh.set_cluster(cluster, name)
        self._mesh.set_admitted(members)
        self._router.join_cluster(cluster, tuple(members))
        self._mesh.on_introduced = self._introduced

    def _introduced(self, nodes: Mapping[NodeId, tuple[Address, ...]]) -> None:
        """Take in whom the members speak of, until the log itself says who they are.

        The door names a few members only, and the master may be another by now.
        """
        room = MEMBERS_MAX - len(self._members)
        fresh = {node: where for node, where in nodes.items() if node != self.node}
        if self._joining is None or not fresh or len(fresh) > room:
            return
        self._members = {**self._members, **fresh}
        self._mesh.set_admitted(self._members)
        self.on_members(self._members)
        self._router.set_peers(self._members)

    @property
    def is_settled(self) -> bool:
        """Whether this node is a member that has described itself."""
        record = self._state().nodes.get(self.node)
        return self._joining is None and record is not None and record.machine is not None

    async def leave(self) -> None:
        """Leave the cluster for good and go on as a cluster of one.

        Raises:
            ConflictError: it is alone already. RefusedError: the master refuses.
        """
        state = self._state()
        if len(state.nodes) < 2:
            raise ConflictError.because(
                "alone", "this node is the only one of its cluster", "nothing to leave"
            )
        command = RemoveNode(node=self.node, reason="left")
        answer = await self._submit(command, LEAVE_SECONDS)
        gone = state.cluster != self._router.cluster or self.node in self._state().revoked
        if isinstance(answer, Refused) and not gone:
            raise RefusedError(answer.failure)
        if state.cluster == self._router.cluster:
            self._found_anew()

    def _found_anew(self) -> None:
        self._members = {}
        self._recovered_index = -1
        self._described = None
        self._mesh.set_admitted({})
        self.on_members(())
        self._router.found_cluster(self._description().name)
        self._mesh.set_cluster(self._router.cluster)
