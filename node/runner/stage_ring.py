"""The circle of stages: each dials the next and is dialled by the one before."""

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence

import mlx.core as mx

from node.model.instance import StageAddress
from node.runner.certificate import Certificate, is_pinned, make_certificate, tls_context
from node.runner.failures import RunnerError
from node.runner.inbox import Inbox
from node.runner.protocol import Connect, Prepare
from node.runner.stage_frame import StageHello, StageMessage
from node.runner.stage_link import PeerGoneError, StageLink, stage_lost, tune

CONNECT_SECONDS = 60.0
GREETING_SECONDS = 5.0
"""How long a caller has to say who it is."""
CALLERS_MAX = 16
"""Callers greeted at the same time; further ones wait."""
REDIAL_SECONDS = 0.2
UNREAD_MESSAGES_MAX = 64
"""Messages looked through for a goodbye once a link is lost."""
GLANCE_SECONDS = 0.05
"""How often, while waiting for one neighbour, to look what became of the other."""
UNREAD_SECONDS = 0.25
"""How long a message that has begun to come may take once a link is lost."""


class StageListener:
    """Listens for the stage before, and holds the certificate that it will see."""

    def __init__(self, prepare: Prepare) -> None:
        """Raises:
        RunnerError: the host is not this machine's, or no port is free.
        """
        self._prepare = prepare
        self._lock = threading.Lock()
        self.certificate: Certificate | None = (
            make_certificate(prepare.runner) if prepare.encrypt else None
        )
        self.socket = _listen(prepare.stage_host)

    @property
    def address(self) -> StageAddress:
        """What the stage before needs to know."""
        certificate = self.certificate.der if self.certificate else b""
        return StageAddress(
            self._prepare.stage_host, int(self.socket.getsockname()[1]), certificate
        )

    def connect(self, connect: Connect, inbox: Inbox) -> "StageRing":
        """Dial the next stage and let the one before in, both at once.

        Raises:
            RunnerError: one of them did not come in time, or is not who it should be.
            StopAskedError: the node does not want it any more.
        """
        deadline = time.monotonic() + CONNECT_SECONDS
        dialled: list[StageLink | RunnerError] = []

        def dial() -> None:
            try:
                dialled.append(self._dial(connect.next_stage, deadline, inbox))
            except RunnerError as error:
                dialled.append(error)

        dialler = threading.Thread(target=dial, name="dial", daemon=True)
        dialler.start()
        greeted: list[StageLink] = []
        callers: list[threading.Thread] = []
        while not greeted or not dialled:
            # A neighbour that turned us away will not dial us either.
            if dialled and isinstance(dialled[0], RunnerError):
                raise dialled[0]
            if time.monotonic() >= deadline:
                raise self._absent(self._prepare.rank + (1 if greeted else -1))
            callers = [caller for caller in callers if caller.is_alive()]
            if greeted or len(callers) == CALLERS_MAX:
                inbox.raise_if_stopped()
                (dialler if greeted else callers[0]).join(GLANCE_SECONDS)
            elif inbox.wait_for_stop(self.socket, GLANCE_SECONDS):
                callers += self._accept(connect.previous_certificate, greeted)
        following = dialled[0]
        if isinstance(following, RunnerError):
            raise following
        self.socket.close()
        rank = self._prepare.rank - 1
        previous = StageLink(greeted[0].socket, self._name(rank), inbox)
        return StageRing(previous=previous, following=following)

    def _name(self, rank: int) -> str:
        return f"stage {rank % self._prepare.stages}"

    def _absent(self, rank: int) -> RunnerError:
        return stage_lost(self._name(rank), f"did not come within {CONNECT_SECONDS:.0f} s")

    def _hello(self) -> StageHello:
        prepare = self._prepare
        return StageHello(
            runner=prepare.runner,
            instance=prepare.instance,
            attempt=prepare.attempt,
            rank=prepare.rank,
        )

    def _is_expected(self, message: object, rank: int) -> bool:
        prepare = self._prepare
        return (
            isinstance(message, StageHello)
            and message.instance == prepare.instance
            and message.attempt == prepare.attempt
            and message.rank == rank % prepare.stages
        )

    def _dial(self, address: StageAddress, deadline: float, inbox: Inbox) -> StageLink:
        """Until the next stage, which may hear of its neighbours much later, answers."""
        rank = self._prepare.rank + 1
        while True:
            try:
                connection = self._introduce(address, deadline)
                return StageLink(connection, self._name(rank), inbox)
            except ssl.SSLCertVerificationError as error:
                raise stage_lost(self._name(rank), f"refuses the link: {error}") from error
            except OSError as error:
                reason = error.strerror or str(error)
                if deadline - time.monotonic() <= REDIAL_SECONDS:
                    raise stage_lost(
                        self._name(rank), f"at {address.host}:{address.port}: {reason}"
                    ) from error
                time.sleep(REDIAL_SECONDS)

    def _introduce(self, address: StageAddress, deadline: float) -> socket.socket:
        """Dial once.

        Raises:
            OSError: it did not work, but may the next time.
            ssl.SSLCertVerificationError, RunnerError: it never will.
        """
        rank = self._prepare.rank + 1
        with contextlib.ExitStack() as stack:
            connection = socket.create_connection(
                (address.host, address.port), _seconds_to(deadline)
            )
            stack.callback(connection.close)
            tune(connection)
            protected = self._protect(connection, address.certificate, deadline, is_server=False)
            stack.callback(protected.close)
            link = StageLink(protected, self._name(rank))
            try:
                link.send(self._hello(), seconds=GREETING_SECONDS)
                message, _ = link.receive(_seconds_to(deadline), by=deadline)
            except (RunnerError, PeerGoneError) as error:
                if _is_refusal(error.__cause__):
                    raise stage_lost(self._name(rank), f"refuses the link: {error}") from error
                raise ConnectionAbortedError(str(error)) from error
            if not self._is_expected(message, rank):
                raise stage_lost(self._name(rank), "is of another instance or attempt")
            stack.pop_all()
            return protected

    def _accept(self, certificate: bytes, greeted: list[StageLink]) -> list[threading.Thread]:
        """Greet a caller on a thread of its own, so that a silent one keeps nobody waiting."""
        try:
            connection, _ = self.socket.accept()
        except OSError:
            return []  # it gave up before it was accepted

        def greet() -> None:
            link = None
            with contextlib.suppress(OSError, RunnerError, PeerGoneError):
                link = self._greet(connection, certificate)
            if link is None:
                return
            with self._lock:
                if not greeted:
                    greeted.append(link)
                    return
            link.close()

        caller = threading.Thread(target=greet, name="greet", daemon=True)
        caller.start()
        return [caller]

    def _greet(self, connection: socket.socket, certificate: bytes) -> StageLink | None:
        """Whoever is not the expected neighbour is turned away and hurts nobody."""
        rank = self._prepare.rank - 1
        deadline = time.monotonic() + GREETING_SECONDS
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            tune(connection)
            protected = self._protect(connection, certificate, deadline, is_server=True)
            stack.callback(protected.close)
            link = StageLink(protected, self._name(rank))
            message, _ = link.receive(GREETING_SECONDS, by=deadline)
            if isinstance(message, StageHello):
                # Also to a stage that has no business here: it learns that it need not dial again.
                link.send(self._hello(), seconds=_seconds_to(deadline))
            if not self._is_expected(message, rank):
                return None
            stack.pop_all()
            return link

    def _protect(
        self, connection: socket.socket, peer_der: bytes, deadline: float, *, is_server: bool
    ) -> socket.socket:
        if self.certificate is None:
            return connection
        if not peer_der:
            raise ssl.SSLCertVerificationError("no certificate was announced for it")
        connection.settimeout(_seconds_to(deadline))
        context = tls_context(self.certificate, peer_der, is_server=is_server)
        protected = context.wrap_socket(connection, server_side=is_server)
        if not is_pinned(protected, peer_der):
            raise ssl.SSLCertVerificationError("it showed another certificate")
        return protected


class StageRing:
    """Both links of one stage."""

    def __init__(self, previous: StageLink, following: StageLink) -> None:
        self.previous = previous
        self.following = following

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """To wait for, when there is nothing else to do."""
        return self.previous.socket, self.following.socket

    def raise_if_broken(self) -> None:
        """Notice a dead neighbour without reading anything.

        Raises:
            RunnerError: stage_lost. PeerGoneError: it had said goodbye.
        """
        poller = select.poll()
        hung_up = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
        for connection in self.sockets:
            poller.register(connection, hung_up)
        for descriptor, _ in poller.poll(0):
            self.raise_if_goodbye()
            is_previous = descriptor == self.previous.socket.fileno()
            raise stage_lost(
                "the stage before" if is_previous else "the next stage", "closed the connection"
            )

    def send(
        self, message: StageMessage, arrays: Sequence[mx.array] = (), seconds: float = 10.0
    ) -> None:
        """Send to the next stage.

        Raises:
            RunnerError: stage_lost. PeerGoneError: a neighbour had said goodbye.
        """
        try:
            self.following.send(message, arrays, seconds)
        except RunnerError:
            self.raise_if_goodbye()
            raise

    def receive(self, seconds: float | None) -> tuple[StageMessage, list[mx.array]]:
        """Receive from the stage before.

        Raises:
            RunnerError: stage_lost. PeerGoneError: a neighbour said goodbye.
            StopAskedError: the node did.
        """
        try:
            return self.previous.receive(seconds)
        except RunnerError:
            self.raise_if_goodbye()
            raise

    def raise_if_goodbye(self) -> None:
        """A neighbour is lost: what came before on either link tells whether somebody meant it.

        Raises:
            PeerGoneError: one said goodbye.
        """
        for link in (self.previous, self.following):
            with contextlib.suppress(RunnerError):
                for _ in range(UNREAD_MESSAGES_MAX):
                    if not link.is_readable():
                        break
                    link.receive(UNREAD_SECONDS)

    def say_goodbye(self) -> None:
        """End both links on purpose."""
        self.following.say_goodbye()
        self.previous.say_goodbye()


def _seconds_to(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _is_refusal(error: BaseException | None) -> bool:
    """Whether the neighbour rejects our certificate, rather than being gone for a moment."""
    return isinstance(error, ssl.SSLError) and not isinstance(
        error, ssl.SSLEOFError | ssl.SSLZeroReturnError
    )


def _listen(host: str) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind(address)
        listener.listen(CALLERS_MAX)
    except OSError as error:
        raise RunnerError.because(
            "port_taken",
            f"can't listen for the stage before on {host}: {error.strerror or error}",
            "check the address that the node is bound to",
        ) from error
    return listener
