"""Named tokens: digests on disk, scopes, ends, and files that others may read."""

from pathlib import Path

import pytest

from node.io.token_file import TokenFile
from node.model.errors import ConflictError, NotFoundError, RefusedError, UsageError

NOW = 1_800_000_000.0


def test_a_token_opens_its_scope_until_it_expires_and_is_on_disk_as_a_digest_only(tmp_path: Path):
    tokens = TokenFile(tmp_path / "state")
    laptop = tokens.create("laptop", "inference", 60.0, NOW)
    owner = tokens.create("owner", "admin", 0.0, NOW)
    assert tokens.scope_of(laptop.encode(), NOW + 59) == "inference"
    assert tokens.scope_of(laptop.encode(), NOW + 60) is None
    assert tokens.scope_of(owner.encode(), NOW + 1e9) == "admin"
    assert tokens.scope_of(b"", NOW) is None
    (path,) = (tmp_path / "state").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_text()
    assert laptop not in content
    assert laptop.removeprefix("exoctl-") not in content


def test_what_another_process_revokes_holds_at_once(tmp_path: Path):
    tokens = TokenFile(tmp_path)
    token = tokens.create("laptop", "admin", 0.0, NOW).encode()
    running = TokenFile(tmp_path)
    assert running.scope_of(token, NOW) == "admin"
    assert tokens.revoke("laptop").name == "laptop"
    assert running.scope_of(token, NOW) is None
    with pytest.raises(NotFoundError):
        tokens.revoke("laptop")


def test_a_name_is_taken_once_and_must_be_one(tmp_path: Path):
    tokens = TokenFile(tmp_path)
    tokens.create("laptop", "admin", 0.0, NOW)
    with pytest.raises(ConflictError):
        tokens.create("laptop", "inference", 0.0, NOW)
    for name in ("", " ", "a\x1bb", "x" * 65):
        with pytest.raises(UsageError):
            tokens.create(name, "admin", 0.0, NOW)


def test_a_file_that_others_may_read_or_that_is_damaged_opens_nothing(tmp_path: Path):
    tokens = TokenFile(tmp_path)
    token = tokens.create("laptop", "admin", 0.0, NOW).encode()
    path = tmp_path / "tokens.json"
    path.chmod(0o640)
    with pytest.raises(RefusedError):
        tokens.tokens()
    assert TokenFile(tmp_path).scope_of(token, NOW) is None
    path.chmod(0o600)
    assert TokenFile(tmp_path).scope_of(token, NOW) == "admin"
    path.write_text("{")
    with pytest.raises(ConflictError):
        tokens.tokens()
    assert TokenFile(tmp_path).scope_of(token, NOW) is None


def test_an_exposed_file_opens_again_once_its_mode_is_right(tmp_path: Path):
    token = TokenFile(tmp_path).create("laptop", "admin", 0.0, NOW).encode()
    (path,) = tmp_path.glob("*.json")
    running = TokenFile(tmp_path)
    path.chmod(0o644)
    assert running.scope_of(token, NOW) is None
    path.chmod(0o600)
    assert running.scope_of(token, NOW) == "admin"


@pytest.mark.parametrize(
    "content",
    [
        b'{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        '{"tokens":[{"name":"n","scope":"admin","digest":"\u00e9","created_at":1}]}'.encode(),
        b'{"tokens":[{"name":"\xff"}]}',
    ],
    ids=["deep", "strange digest", "no text"],
)
def test_no_file_whatever_it_holds_makes_a_request_fail_otherwise(tmp_path: Path, content: bytes):
    tokens = TokenFile(tmp_path)
    token = tokens.create("laptop", "admin", 0.0, NOW).encode()
    (path,) = tmp_path.glob("*.json")
    path.write_bytes(content)
    assert tokens.scope_of(token, NOW) is None
