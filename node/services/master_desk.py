"""What the event router tells whoever decides while this node masters."""

from typing import Protocol

from node.core.replica.messages import Proposal
from node.model.event import ProposalDropped, ProposalRejected
from node.model.session import Entry, Session
from node.model.state import State


class MasterDesk(Protocol):
    """Whoever decides while this node masters."""

    def became_master(self, session: Session, tip: State) -> None:
        """Decide from now on; `tip` is the state with everything that is in the log."""
        ...

    def tip_appended(self, entries: tuple[Entry, ...]) -> None:
        """Entries were appended to the log."""
        ...

    def lost_mastership(self, reason: str) -> None:
        """Decide no more."""
        ...

    def revalidate(self, proposal: Proposal) -> ProposalRejected | ProposalDropped | None:
        """Judge an event that was withdrawn: None where it still holds, else what takes its place
        in the log.
        """
        ...


class NoDesk:
    """Nobody decides: for a router that is not attached yet."""

    def became_master(self, session: Session, tip: State) -> None:
        """Do nothing."""

    def tip_appended(self, entries: tuple[Entry, ...]) -> None:
        """Do nothing."""

    def lost_mastership(self, reason: str) -> None:
        """Do nothing."""

    def revalidate(self, proposal: Proposal) -> ProposalRejected | ProposalDropped | None:
        """Everything holds."""
