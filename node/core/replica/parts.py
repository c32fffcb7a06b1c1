"""What the roles of a replica share."""

import msgspec

from node.core.replica.contacts import Contacts
from node.core.replica.effects import Effect
from node.core.replica.ledger import Ledger
from node.core.replica.timing import Limits, Timing
from node.model.ids import NodeId


class Parts(msgspec.Struct, frozen=True):
    """Made once per replica; the roles that come and go work on these."""

    node: NodeId
    timing: Timing
    limits: Limits
    ledger: Ledger
    contacts: Contacts
    effects: list[Effect]
    """Of the step at hand, in order."""
