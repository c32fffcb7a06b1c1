"""What a hub's refusals and a broken transfer mean to a person, and whether they pass."""

from node.core.download_queue import Trouble
from node.core.failure_text import short_text
from node.model.errors import Failure

DISK_RETRY_SECONDS = 60.0


def trouble(
    code: str, message: str, remedy: str = "", *, passing: bool = False, after: float = 0.0
) -> Trouble:
    """Build one from its parts."""
    return Trouble(
        failure=Failure(code=code, message=short_text(message), remedy=remedy),
        is_passing=passing,
        retry_after_seconds=after,
    )


def of_status(
    status: int, what: str, *, error_code: str = "", has_token: bool = False, after: float = 0.0
) -> Trouble:
    """What an HTTP status says of `what`, such as a repository or one of its files."""
    if status == 401 or (status == 403 and not has_token):
        return trouble(
            "hub_unauthorised",
            f"{what}: the hub wants to know who asks (HTTP {status})"
            + (", and the token was not accepted" if has_token else ""),
            "set HF_TOKEN to a token that may read it, restart the node, then retry",
        )
    if status == 403:
        gated = error_code == "GatedRepo"
        reason = "the repository is gated" if gated else "the token may not read it"
        return trouble(
            "hub_gated" if gated else "hub_forbidden",
            f"{what}: {reason} (HTTP 403)",
            "accept its terms on the hub's page with the account of HF_TOKEN, then retry"
            if gated
            else "use a token with access to it (HF_TOKEN), restart the node, then retry",
        )
    if status == 404:
        hint = "it may be private" if not has_token else "the token may not see it"
        return trouble(
            "hub_not_found",
            f"{what} is not on the hub (HTTP 404), or {hint}",
            "check the name and the revision; a private one needs HF_TOKEN",
        )
    if status == 429:
        asked = f" for {after:g} s" if after else ""
        return trouble(
            "hub_rate_limited",
            f"{what}: the hub asks to be left alone{asked} (HTTP 429)",
            "wait; a token (HF_TOKEN) raises the limit",
            passing=True,
            after=after,
        )
    if status >= 500:
        return trouble(
            "hub_error",
            f"{what}: the hub has trouble of its own (HTTP {status})",
            "wait until it is well again",
            passing=True,
            after=after,
        )
    return trouble("hub_answer", f"{what}: the hub answers HTTP {status}", "retry, or report it")


def unreachable(what: str, reason: str) -> Trouble:
    """No connection, or one that broke."""
    return trouble(
        "hub_unreachable",
        f"{what}: the hub can't be reached: {reason}",
        "check the network (and HF_ENDPOINT, proxies)",
        passing=True,
    )


def interrupted(what: str, reason: str) -> Trouble:
    """A transfer that ended before its time; what came is kept."""
    return trouble(
        "transfer_interrupted",
        f"{what}: {reason}",
        "it goes on by itself where it was",
        passing=True,
    )


def changed(what: str, detail: str) -> Trouble:
    """The source does not hold what the listing promises."""
    return trouble(
        "hub_changed",
        f"{what} is not what the hub's list says: {detail}",
        "retry later; if it stays so, the file on the hub or a proxy between is broken",
        passing=True,
        after=30.0,
    )


def wrong_hash(what: str, wanted: str, found: str) -> Trouble:
    """The bytes are all there and are others."""
    return trouble(
        "hash_mismatch",
        f"{what}: its bytes hash to {found[:12]}…, and {wanted[:12]}… was promised;"
        " they were thrown away",
        "retry; if it comes again, something between here and the hub changes files",
        passing=True,
        after=10.0,
    )


def disk_full(where: str, needed: int, free: int) -> Trouble:
    """Not enough room, before or while it is fetched."""
    return trouble(
        "disk_full",
        f"{where} has {_size(free)} free, and {_size(needed)} more are needed",
        "make room (`exoctl model rm`, `exoctl model prune`); it goes on by itself then",
        passing=True,
        after=DISK_RETRY_SECONDS,
    )


def disk_fails(what: str, reason: str) -> Trouble:
    """The system refuses to keep the bytes."""
    return trouble(
        "disk_error",
        f"{what}: {reason}",
        "check the disk and who owns the model directory, then retry",
        passing=True,
        after=DISK_RETRY_SECONDS,
    )


def offline(what: str, reason: str) -> Trouble:
    """A setting says that nothing may be asked."""
    return trouble(
        "hub_offline",
        f"{what} is not here, and {reason}",
        "unset it to go online, pull from a node that has it, or `exoctl model import DIRECTORY`",
    )


def _size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
