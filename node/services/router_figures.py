"""Where this node is in the ordered log, put together for the registers."""

from node.core.event_order import EventOrder
from node.core.replica.replica import Replica
from node.model.register import RouterFigures
from node.services.log_writer import LogWriter


def router_figures(
    now: float,
    replica: Replica,
    order: EventOrder,
    disk: LogWriter,
    elections: int,
    state_hash: str,
) -> RouterFigures:
    """Every figure of one moment; nothing here is kept."""
    status = disk.status()
    gap = replica.gap(now)
    return RouterFigures(
        role=replica.role.name.lower(),
        session=replica.session,
        index_last=replica.last_index,
        index_committed=replica.commit_index,
        index_applied=order.index,
        buffered=replica.last_index - replica.commit_index + replica.figures.held,
        gap_first=-1 if gap is None else gap.first,
        gap_last=-1 if gap is None else gap.last,
        unacknowledged=order.unacknowledged,
        oldest_seconds=round(order.oldest_seconds(now), 1),
        replay_attempts=order.resends if gap is None else gap.asked,
        log_bytes=status.bytes_on_disk,
        written=order.written,
        elections=elections,
        disk_full=status.disk_full,
        disk_trouble=disk.trouble(now),
        state_hash=state_hash,
    )
