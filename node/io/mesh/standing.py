"""What this node is to others, and whom it takes as a peer."""

from collections.abc import Collection

from node.io import clock
from node.model.errors import Failure
from node.model.ids import ClusterId, NodeId, short
from node.wire.handshake import PROTOCOL, Bearing, cluster_hint, printable


class Standing:
    """This node's name, cluster and members as the mesh goes by them."""

    def __init__(self, node: NodeId, process: str, name: str, trust: str, version: str) -> None:
        self.node = node
        self.process = process
        self.name = name
        self.trust = trust
        self.version = version
        self.secret_key = b""
        self.port = 0
        self.master: NodeId | None = None
        """Whom one that joins should know first."""
        self.cluster = ClusterId("")
        self.cluster_name = ""
        self._hint = cluster_hint(self.cluster)
        self._admitted: frozenset[NodeId] = frozenset()
        self._revoked: frozenset[NodeId] = frozenset()

    @property
    def hint(self) -> str:
        """Names the cluster to others without giving its id away."""
        return self._hint

    @property
    def revoked(self) -> frozenset[NodeId]:
        """Who was removed."""
        return self._revoked

    def set_secret(self, key: bytes) -> None:
        """Whoever knows it may join; empty: there is none."""
        self.secret_key = key
        if self.trust != "lan":
            self.trust = "secret" if key else "invite"

    def set_cluster(self, cluster: ClusterId, name: str) -> None:
        """Belong to this cluster from now on; its members come with `set_members`."""
        if cluster != self.cluster:
            self._admitted = self._revoked = frozenset()
        self.cluster, self.cluster_name = cluster, name
        self._hint = cluster_hint(cluster)

    def set_members(self, admitted: Collection[NodeId], revoked: Collection[NodeId] | None) -> None:
        """Who may link. `revoked` None: whoever was a member and is none now."""
        gone = self._revoked | self._admitted if revoked is None else frozenset(revoked)
        self._revoked = gone - frozenset(admitted)
        self._admitted = frozenset(admitted) - {self.node}

    def bearing(self) -> Bearing:
        """What this node says of itself before anything is proved."""
        return Bearing(
            protocol=PROTOCOL,
            cluster=self._hint,
            cluster_name=printable(self.cluster_name),
            process=self.process,
            name=printable(self.name),
            port=self.port,
            members=len(self._admitted | {self.node}),
            trust=self.trust,
            version=self.version,
            wall=clock.wall(),
        )

    def would_adopt(self, bearing: Bearing) -> bool:
        """Whether this node, alone, should join that other cluster without being invited."""
        if self.trust == "invite" or bearing.trust != self.trust or self._admitted:
            return False
        return bearing.members > 1 or bearing.cluster < self._hint

    @staticmethod
    def skew_seconds(bearing: Bearing) -> float | None:
        """How far the other's clock is ahead of this one's; None where it does not say."""
        return bearing.wall - clock.wall() if bearing.wall else None

    def judge(self, peer: NodeId, bearing: Bearing) -> Failure | None:
        """Why there may be no link with a peer that proved its id; None where there may."""
        who = f"{printable(bearing.name) or 'a node'} ({short(peer)})"
        if peer == self.node:
            return self._failure(
                "duplicate_id",
                f"another process has this node's id {short(peer)}: the state directory was copied",
                "give the copy a new identity: stop it, remove `identity` from its state directory",
            )
        if bearing.protocol != PROTOCOL:
            return self._failure(
                "protocol_mismatch",
                f"{who} speaks protocol {bearing.protocol}, {self.name} speaks {PROTOCOL}",
                "run the same version of exoctl on both",
            )
        if peer in self._revoked:
            return self._failure(
                "revoked",
                f"{who} was removed from the cluster {self._cluster()}",
                "invite it again: `exoctl cluster invite`",
            )
        if bearing.cluster != self._hint:
            other = printable(bearing.cluster_name)
            return self._failure(
                "other_cluster",
                f"{who} belongs to another cluster{f', {other}' if other else ''}",
                "join one with the other's code: `exoctl cluster invite` there,"
                " `exoctl cluster join CODE` here",
            )
        if peer not in self._admitted:
            return self._failure(
                "not_admitted",
                f"{who} is not admitted to the cluster {self._cluster()}",
                "invite it: `exoctl cluster invite`; a fresh invitation takes a moment to spread",
            )
        return None

    def _cluster(self) -> str:
        return printable(self.cluster_name) or self._hint[:8]

    def _failure(self, code: str, message: str, remedy: str) -> Failure:
        return Failure(code=code, message=message, remedy=remedy, node=self.name)
