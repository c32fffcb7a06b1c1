"""Times and bounds of a replica."""

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. The defaults are the product's; tests may shorten them."""

    tick_seconds: float = 0.05
    """Between two calls of `tick`; what is more counts as lag of this node's own loop."""
    heartbeat_seconds: float = 0.25
    dead_seconds: float = 2.0
    """Silence after which a peer counts as dead, times the local health factor."""
    disconnected_seconds: float = 0.3
    """The same once its link has ended."""
    health_factor_max: float = 4.0
    health_factor_master_max: float = 1.25
    """Limit of the factor where the master's death is judged."""
    campaign_seconds: float = 0.1
    elect_seconds: float = 0.4
    """How long a looking node gathers campaigns before it may master."""
    startup_seconds: float = 2.0
    """How long a started node waits for remembered peers that were not tried yet."""
    lag_seconds: float = 1.0
    """Without progress for this long, a peer leaves the in-sync set."""
    view_seconds: float = 1.0
    """Between two recorded changes of the in-sync set."""
    retransmit_seconds: float = 0.15
    stall_seconds: float = 1.0
    """A follower that is behind the master's commit for this long asks again."""
    resubmit_seconds: float = 0.5
    """First wait before a withdrawn or unacknowledged event is offered again; it doubles."""
    resubmit_seconds_max: float = 10.0
    hand_over_seconds: float = 0.3
    """Limit of a planned hand-over; then the master yields to the most complete peer."""
    retired_seconds: float = 10.0
    """After a hand-over, how long the old master stands for no election."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds, and what happens at each."""

    entries_per_append: int = 256
    bytes_per_append: int = 256 * 1024
    """Of payloads; a single entry always fits."""
    entries_in_flight: int = 512
    """Unacknowledged entries per peer; more wait for an ack, and so gather to full batches: a wider
    window costs a busy master half as much processor time again."""
    proposals_per_submit: int = 64
    held_per_writer: int = 1024
    """Proposals held back per writer; later ones are dropped and offered again by the writer."""
    orphans: int = 20_000
    """Withdrawn events kept to be offered again; further ones are reported as dropped."""
    revalidations: int = 1024
    """Resubmissions that wait for an answer; further ones are offered again later."""
    tail_entries: int = 10_000
    """Entries kept before a snapshot, for laggards and forks."""
    tail_bytes: int = 16 * 1024 * 1024
    """The same in bytes of their payloads; whichever is fewer."""
    snapshot_chunk_bytes: int = 64 * 1024
    snapshot_chunks_in_flight: int = 8
    snapshot_bytes: int = 64 * 1024 * 1024
    """Largest snapshot taken from a peer, compressed or not; a larger one is refused."""
    held_messages: int = 4096
    """Acknowledgements that wait for the disk; the oldest are dropped, and asked for again."""
