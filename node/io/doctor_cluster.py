"""What the node that runs here knows of the others: links, strangers, clocks and versions."""

from collections.abc import Mapping

from node.core.naming import name_of
from node.io.finding import Finding, failure, good, warning
from node.model.ids import NodeId
from node.model.register import LinkFigures, LinkRecord, Register
from node.model.state import State

CLOCK_SKEW_SECONDS_WARN = 30.0


def cluster_findings(
    state: State, registers: Mapping[tuple[NodeId, str], Register], here: NodeId
) -> list[Finding]:
    """Every member without a link, every stranger with the reason, and what differs."""
    register = registers.get((here, LinkFigures.__name__))
    figures = register.value if register is not None else None
    if not isinstance(figures, LinkFigures):
        return [warning("links", "the node has not told of its links yet", "ask again")]
    found = [_link(state, link) for link in figures.links]
    found += [_stranger(link) for link in figures.heard]
    found += _clocks(state, figures)
    found.append(_versions(state, here))
    found.append(_discovery(figures.discovery))
    return found


def _link(state: State, link: LinkRecord) -> Finding:
    title = f"link with {name_of(state, link.peer)}"
    if link.up:
        if link.via:
            reason = f"passed on by {name_of(state, link.via)}: no direct way was found"
            return warning(title, reason, "see firewalls and routes between the two machines")
        rtt = f", {1000 * link.rtt_seconds:.2f} ms" if link.rtt_seconds is not None else ""
        return good(title, f"{link.address} {link.medium}{rtt}".strip())
    reason = link.failure.message if link.failure else "there is none"
    remedy = link.failure.remedy if link.failure else ""
    return failure(title, reason, remedy or "start exoctl there, and check its network")


def _stranger(link: LinkRecord) -> Finding:
    title = f"heard at {link.address}"
    reason = link.failure.message if link.failure else "it is no member"
    remedy = link.failure.remedy if link.failure else ""
    code = link.failure.code if link.failure else ""
    if code == "other_cluster":
        return good(title, f"{reason}; to join: exoctl cluster join")
    return warning(title, reason, remedy or "see its own `exoctl doctor`")


def _clocks(state: State, figures: LinkFigures) -> list[Finding]:
    off = [
        (name_of(state, link.peer), link.clock_skew_seconds)
        for link in figures.links
        if link.clock_skew_seconds is not None
        and abs(link.clock_skew_seconds) > CLOCK_SKEW_SECONDS_WARN
    ]
    return [
        warning(
            "clocks",
            f"the clock of {name} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'}"
            " this machine's",
            "set both by a time server: times in events and logs depend on it",
        )
        for name, skew in off
    ]


def _versions(state: State, here: NodeId) -> Finding:
    own = state.nodes.get(here)
    others = {
        record.name: record.version
        for node, record in state.nodes.items()
        if node != here and own is not None and record.version not in ("", own.version)
    }
    if own is None or not others:
        return good("versions", f"every node runs {own.version}" if own else "not known yet")
    shown = ", ".join(f"{name} {version}" for name, version in others.items())
    return warning(
        "versions", f"this node runs {own.version}; {shown}", "run the same version everywhere"
    )


def _discovery(state: str) -> Finding:
    if state in ("on", "off", "starting", ""):
        return good("discovery", state or "off")
    return warning("discovery", state, "name nodes by their address: --peer HOST:PORT")
