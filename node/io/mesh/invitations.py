"""Invite codes: made here, proved by the joiner without being sent, each good for one node."""

import base64
import hashlib
import hmac
from collections.abc import Collection

import msgspec

from node.io import clock
from node.io.mesh.greeting import Guest, code_proof
from node.model.errors import BusyError, UsageError
from node.model.ids import NodeId

CODE_CHARACTERS = 20
"""Of base32: 100 bit, so that nobody guesses one, not even offline."""
CODE_GROUP = 5
INVITATIONS_MAX = 32
_CODE_SALT = b"exoctl-join-v1"
_LOOKALIKES = str.maketrans({"0": "O", "1": "I", "8": "B"})


class _Invitation(msgspec.Struct):
    key: bytes
    expires_at: float
    used_by: NodeId | None = None
    is_spent: bool = False


class Invitations:
    """The codes of this node that are still good."""

    def __init__(self) -> None:
        self._invitations: list[_Invitation] = []

    def create_invite(self, lifetime_seconds: float, now: float) -> tuple[str, float]:
        """A new code, and when it expires, on the clock of `now`.

        Raises:
            BusyError: too many are open.
        """
        self._invitations = [one for one in self._invitations if one.expires_at > now]
        if len(self._invitations) >= INVITATIONS_MAX:
            raise BusyError.because(
                "too_many_invites",
                f"{INVITATIONS_MAX} invite codes are open",
                "use one of them, or wait until one expires",
            )
        chance = bytes.fromhex(clock.random_hex(32))
        characters = base64.b32encode(chance).decode("ascii")[:CODE_CHARACTERS]
        code = "-".join(
            characters[start : start + CODE_GROUP]
            for start in range(0, CODE_CHARACTERS, CODE_GROUP)
        )
        expires_at = now + lifetime_seconds
        self._invitations.append(_Invitation(code_key(code), expires_at))
        return code, expires_at

    def redeem(self, guest: Guest, now: float, *, is_member: bool = False) -> bytes | None:
        """Take the code that the guest proved to know; returns its key, None where there is none.

        From here on the code is good for this node alone, until it expires: an answer that was
        lost on its way can be asked for again. `spend` or `give_back` follows. A code that was
        spent only repeats what it granted: it brings nobody back who is no member any more.
        """
        for invitation in self._invitations:
            expected = code_proof(invitation.key, guest.exchange, "dialler")
            if (
                hmac.compare_digest(expected, guest.code_proof)
                and invitation.expires_at > now
                and invitation.used_by in (None, guest.peer)
                and (is_member or not invitation.is_spent)
            ):
                invitation.used_by = guest.peer
                return invitation.key
        return None

    def spend(self, key: bytes) -> None:
        """The node was admitted."""
        for invitation in self._invitations:
            if invitation.key == key:
                invitation.is_spent = True

    def forget(self, removed: Collection[NodeId]) -> None:
        """These nodes were removed: what they were invited with is worth nothing any more."""
        self._invitations = [
            one for one in self._invitations if not (one.is_spent and one.used_by in removed)
        ]

    def open_count(self, now: float) -> int:
        """Codes that somebody could still use."""
        return sum(not one.is_spent and one.expires_at > now for one in self._invitations)

    def clear(self) -> None:
        """This node is of another cluster: it has invited nobody there."""
        self._invitations.clear()

    def give_back(self, key: bytes) -> None:
        """The node was not admitted after all: the code is good again, unless it once was."""
        for invitation in self._invitations:
            if invitation.key == key and not invitation.is_spent:
                invitation.used_by = None


def code_key(code: str) -> bytes:
    """The key that a code stands for; case, dashes, spaces and lookalike digits don't matter.

    Raises:
        UsageError: it is no code.
    """
    plain = "".join(code.upper().translate(_LOOKALIKES).replace("-", " ").split())
    try:
        base64.b32decode(plain + "=" * (-len(plain) % 8))
    except ValueError as error:
        raise _no_code(code) from error
    if len(plain) != CODE_CHARACTERS:
        raise _no_code(code)
    return hmac.digest(_CODE_SALT, plain.encode("ascii"), hashlib.sha256)


def _no_code(code: str) -> Exception:
    return UsageError.because(
        "bad_invite_code",
        f"{code[:40]!r} is no invite code",
        "a code has the form XXXXX-XXXXX-XXXXX-XXXXX; `exoctl cluster invite` makes one",
    )
