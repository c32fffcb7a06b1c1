"""Who is let in and where this node asks to be let in: what the handle wants of mesh and log."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from node.config import Config
from node.handle import Invite, Rotation
from node.io import clock
from node.io.address_book import AddressBook
from node.io.mesh.event import JoinGranted
from node.io.mesh.mesh import Mesh
from node.io.secret_file import load_secret, new_secret, write_secret
from node.log import logger
from node.model.errors import ExoctlError, NotFoundError
from node.model.ids import NodeId
from node.model.machine import Address
from node.model.register import JoinFigures, JoinRequest
from node.services.control_plane import ControlPlane
from node.wire.message import AdmissionRotated, JoinJudged

TRUSTED_JOIN_SECONDS = 2.0
"""After a try to join without being asked that failed."""

_log = logger("membership")


class Admission:
    """Made once; what is granted goes to the membership, which follows it."""

    def __init__(
        self,
        config: Config,
        mesh: Mesh,
        control: ControlPlane,
        book: AddressBook,
        peers: Callable[[], tuple[NodeId, ...]],
    ) -> None:
        secret_file = config.cluster_secret_file
        self._secret_file = Path(secret_file).expanduser() if secret_file else None
        self._mesh = mesh
        self._control = control
        self._book = book
        self._peers = peers
        self._join_after = 0.0

    def take(self, message: AdmissionRotated | JoinJudged) -> None:
        """What a member tells this one."""
        if isinstance(message, JoinJudged):
            with contextlib.suppress(NotFoundError):
                self._mesh.judge_request(message.request, approve=message.approve)
            return
        self._mesh.withdraw_invites()
        try:
            self._take_secret(message.secret)
        except ExoctlError as error:
            _log.error("the new secret is not taken: %s", error.failure.message)

    def invite(self, lifetime_seconds: float) -> Invite:
        """A code for another machine, and where this node is reached."""
        code, expires_at = self._mesh.create_invite(lifetime_seconds, clock.wall())
        return Invite(code=code, expires_at=expires_at, addresses=self._mesh.addresses())

    async def join(self, code: str, address: Address) -> None:
        """Join by a code, or (empty) by trust or secret, and follow that cluster."""
        granted = await self._mesh.join(code, address, lambda: self._control.membership.is_alone)
        self._go_over(granted)

    async def finish(self, request: str, seconds: float) -> None:
        """Wait until a person has let this node in, and follow that cluster."""
        granted = await self._mesh.joining.finish(
            request, seconds, lambda: self._control.membership.is_alone
        )
        self._go_over(granted)

    def judge(self, request: str, approve: bool) -> JoinRequest:  # noqa: FBT001 - one of a row
        """A person here has decided on a machine that asks this node or another member."""
        for (node, _), register in self._control.registers.registers.items():
            if node == self._mesh.node or not isinstance(register.value, JoinFigures):
                continue
            for one in register.value.requests:
                if one.id == request and self._mesh.send(
                    node, JoinJudged(request=request, approve=approve)
                ):
                    return one
        return self._mesh.judge_request(request, approve=approve)

    def rotate(self) -> Rotation:
        """What let machines in lets none in any more."""
        path = self._secret_file
        secret = new_secret() if path is not None else ""
        self._take_secret(secret)
        withdrawn = self._mesh.withdraw_invites()
        told = sum(self._mesh.send(peer, AdmissionRotated(secret=secret)) for peer in self._peers())
        secret_file = str(path) if path is not None else ""
        return Rotation(withdrawn=withdrawn, members_told=told, secret_file=secret_file)

    def _take_secret(self, secret: str) -> None:
        path = self._secret_file
        if path is not None and secret:
            write_secret(path, secret)
            self._mesh.set_secret(load_secret(path))

    def _go_over(self, granted: JoinGranted) -> None:
        members: dict[NodeId, tuple[Address, ...]] = {}
        for node, where in granted.addresses:
            members[node] = (*members.get(node, ()), where)
        # Kept before the own log goes: whoever restarts in between must know whom to ask.
        self._book.replace(members)
        self._control.membership.joined(granted.cluster, granted.cluster_name, members)

    async def join_trusted(self) -> None:
        """Where both sides trust the network, or have a secret, a node that is alone joins."""
        address = self._mesh.where_to_join() if self._mesh.trust != "invite" else None
        if address is None or not self._control.membership.is_alone:
            return
        if clock.monotonic() < self._join_after:
            return
        try:
            await self.join("", address)
        except ExoctlError as error:
            self._join_after = clock.monotonic() + TRUSTED_JOIN_SECONDS
            _log.warning("joining at %s: %s", address, error.failure.message)
