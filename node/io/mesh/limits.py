"""Bounds and times of the mesh, each with what happens at it."""

import msgspec


class MeshLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are the product's; tests may shorten them."""

    control_frames_max: int = 4096
    """Waiting for a peer that reads slowly; at it the link is closed and the log resyncs."""
    control_bytes_max: int = 8 * 1024 * 1024
    bulk_frames_max: int = 64
    """Snapshot chunks waiting; further ones are not taken."""
    copies_max: int = 16
    """Connections with one peer for copies of files; further ones are refused."""
    registers_max: int = 4096
    """Distinct (node, kind) waiting; beyond it the oldest is dropped."""
    cork_bytes: int = 64 * 1024
    """Frames are joined up to this size into one send."""
    received_max: int = 1024
    """Events waiting for the node; beyond it links are read no further."""
    unauthenticated_max: int = 32
    """Connections that have not proved who they are; further ones are closed at once."""
    unauthenticated_per_host_max: int = 16
    requests_max: int = 8
    """Machines that wait for a person to let them in; further ones are refused."""
    request_seconds: float = 600.0
    """Then a request ends by itself."""
    waiting_seconds: float = 4.0
    """How often a machine that waits is told so; three of them missed, and it gives up."""
    joins_max: int = 8
    """Joins that wait for their commit."""
    handshake_seconds: float = 5.0
    connect_seconds: float = 3.0
    stagger_seconds: float = 0.05
    """Between two addresses of one peer."""
    ping_seconds: float = 1.0
    silence_seconds: float = 5.0
    """Nothing came, not even a pong: the link is closed."""
    stall_seconds: float = 10.0
    """One send did not end: the link is closed."""
    probe_seconds: float = 1.0
    """A standing link must answer within this, or a newer connection takes its place."""
    farewell_seconds: float = 0.5
    join_seconds: float = 30.0
    """From dialling to `granted`, the commit included."""
    bulk_retry_seconds: float = 1.0
    improve_seconds: float = 15.0
    """Between two looks for a better way to a peer that is linked."""
    measure_seconds: float = 0.2
    """How long an idle link is filled, once, to know what it carries."""
    watch_seconds: float = 1.0
    """Between two looks at the network interfaces."""
    sleep_seconds: float = 3.0
    """The wall clock ran on by this much more: the machine has slept, links are made anew."""
