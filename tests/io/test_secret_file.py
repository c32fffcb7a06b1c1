"""The secret of a fleet: what makes one, who may read it, and what it opens."""

from pathlib import Path

import pytest

from node.io import clock
from node.io.secret_file import load_secret, new_secret, write_secret
from node.model.errors import RefusedError, UsageError
from node.model.ids import NodeId
from node.model.machine import Address
from tests.fakes.mesh_lab import OTHER_CLUSTER, open_lab

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def test_a_secret_is_read_whatever_ends_its_line_and_changed_at_once(tmp_path: Path):
    path = tmp_path / "secret"
    write_secret(path, "a-secret-of-some-length")
    assert path.stat().st_mode & 0o777 == 0o600
    key = load_secret(path)
    path.write_bytes(b"a-secret-of-some-length\r\n")
    assert load_secret(path) == key
    write_secret(path, new_secret())
    assert load_secret(path) != key


def test_a_file_that_others_may_read_or_that_holds_no_secret_is_refused(tmp_path: Path):
    path = tmp_path / "secret"
    with pytest.raises(RefusedError):
        load_secret(path)
    write_secret(path, new_secret())
    with pytest.raises(UsageError):
        write_secret(path, "short")
    path.write_bytes(b"short")
    with pytest.raises(UsageError):
        load_secret(path)
    write_secret(path, new_secret())
    path.chmod(0o644)
    with pytest.raises(RefusedError):
        load_secret(path)


async def admit(node: NodeId, name: str, addresses: tuple[Address, ...], proof: str) -> bool:
    return proof == "invite"


async def test_who_has_the_secret_joins_without_a_code_and_who_has_another_does_not(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member = await lab.start("member")
        newcomer = await lab.start("newcomer", cluster=OTHER_CLUSTER)
        member.mesh.on_join = admit
        member.mesh.set_secret(KEY)
        newcomer.mesh.set_secret(OTHER_KEY)
        with pytest.raises(RefusedError) as caught:
            await newcomer.mesh.join("", member.address)
        assert caught.value.failure.code == "wrong_code"
        newcomer.mesh.set_secret(KEY)
        assert (await newcomer.mesh.join("", member.address)).member == member.node
        member.mesh.set_secret(OTHER_KEY)
        with pytest.raises(RefusedError):
            await newcomer.mesh.join("", member.address)


async def test_a_rotation_ends_open_codes(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member = await lab.start("member")
        newcomer = await lab.start("newcomer", cluster=OTHER_CLUSTER)
        member.mesh.on_join = admit
        code, _ = member.mesh.create_invite(600.0, clock.wall())
        assert member.mesh.withdraw_invites() == 1
        with pytest.raises(RefusedError) as caught:
            await newcomer.mesh.join(code, member.address)
        assert caught.value.failure.code == "wrong_code"
