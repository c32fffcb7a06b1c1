"""A node keeps its identity, and never gets another one by mistake."""

import base64
import hashlib
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from node.io.identity import (
    IDENTITY_DIRECTORY,
    IDENTITY_FILE,
    Identity,
    certificate_public_key,
    is_node_id,
    load_or_create_identity,
    node_id,
    verify,
)
from node.model.errors import ConflictError, RefusedError


def file_of(directory: Path) -> Path:
    return directory / IDENTITY_DIRECTORY / IDENTITY_FILE


def test_an_identity_is_kept_over_restarts(tmp_path: Path):
    first, second = load_or_create_identity(tmp_path), load_or_create_identity(tmp_path)
    assert first.node == second.node
    assert first.certificate == second.certificate
    assert load_or_create_identity(tmp_path / "other").node != first.node


def test_the_id_is_the_hash_of_the_public_key(tmp_path: Path):
    identity = load_or_create_identity(tmp_path)
    digest = base64.b32decode(identity.node.upper() + "====")
    assert digest == hashlib.sha256(identity.public_key).digest()
    assert len(identity.node) == 52
    assert is_node_id(identity.node)
    assert certificate_public_key(identity.certificate) == identity.public_key
    certificate = x509.load_der_x509_certificate(identity.certificate)
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == identity.node


@pytest.mark.parametrize("text", ["", "a" * 51, "a" * 53, "A" * 52, "1" * 52, "é" * 52, "a=" * 26])
def test_what_is_no_node_id_is_told_apart(text: str):
    assert not is_node_id(text)


def test_key_and_directory_are_readable_by_the_owner_only(tmp_path: Path):
    load_or_create_identity(tmp_path)
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(tmp_path).parent.stat().st_mode) == 0o700
    assert [path.name for path in file_of(tmp_path).parent.iterdir()] == [IDENTITY_FILE]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700])
def test_a_key_that_others_can_read_is_refused_with_the_remedy(tmp_path: Path, mode: int):
    load_or_create_identity(tmp_path)
    file_of(tmp_path).chmod(mode)
    with pytest.raises(RefusedError) as caught:
        load_or_create_identity(tmp_path)
    assert caught.value.failure.code == "identity_exposed"
    assert caught.value.failure.remedy == f"chmod 600 {file_of(tmp_path)}"


def test_a_directory_that_others_can_enter_is_refused_with_the_remedy(tmp_path: Path):
    load_or_create_identity(tmp_path)
    file_of(tmp_path).parent.chmod(0o755)
    with pytest.raises(RefusedError) as caught:
        load_or_create_identity(tmp_path)
    assert caught.value.failure.remedy == f"chmod 700 {file_of(tmp_path).parent}"


@pytest.mark.parametrize("kept", [0, 1, 100, 250, 300, 600])
def test_a_cut_off_key_file_is_an_error_and_stays_as_it_is(tmp_path: Path, kept: int):
    load_or_create_identity(tmp_path)
    path = file_of(tmp_path)
    content = path.read_bytes()[:kept]
    path.write_bytes(content)
    with pytest.raises(ConflictError) as caught:
        load_or_create_identity(tmp_path)
    assert str(path) in caught.value.failure.message
    assert "backup" in caught.value.failure.remedy
    assert path.read_bytes() == content


def test_a_certificate_of_another_key_is_an_error(tmp_path: Path):
    load_or_create_identity(tmp_path / "one")
    load_or_create_identity(tmp_path / "two")
    one, two = file_of(tmp_path / "one"), file_of(tmp_path / "two")
    marker = b"-----BEGIN CERTIFICATE-----"
    key = one.read_bytes().split(marker)[0]
    one.write_bytes(key + marker + two.read_bytes().split(marker)[1])
    with pytest.raises(ConflictError, match="another key"):
        load_or_create_identity(tmp_path / "one")


def test_a_key_of_another_curve_is_an_error(tmp_path: Path):
    load_or_create_identity(tmp_path)
    path = file_of(tmp_path)
    other = ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    marker = b"-----BEGIN CERTIFICATE-----"
    path.write_bytes(other + marker + path.read_bytes().split(marker)[1])
    with pytest.raises(ConflictError, match="P-256"):
        load_or_create_identity(tmp_path)


def test_a_directory_that_can_not_be_made_is_an_error_with_a_remedy(tmp_path: Path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(RefusedError) as caught:
        load_or_create_identity(tmp_path / "state")
    assert caught.value.failure.remedy


def test_many_starts_at_once_agree_on_one_identity(tmp_path: Path):
    barrier, found = threading.Barrier(8), list[Identity]()

    def start() -> None:
        barrier.wait()
        found.append(load_or_create_identity(tmp_path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({identity.node for identity in found}) == 1


def test_a_signature_holds_for_its_key_and_message_only(tmp_path: Path):
    one = load_or_create_identity(tmp_path / "one")
    two = load_or_create_identity(tmp_path / "two")
    signature = one.sign(b"message")
    assert verify(one.public_key, signature, b"message")
    assert not verify(one.public_key, signature, b"massage")
    assert not verify(two.public_key, signature, b"message")
    assert not verify(one.public_key, b"", b"message")
    assert not verify(b"", signature, b"message")


def test_only_the_one_encoding_of_a_p256_key_counts(tmp_path: Path):
    identity = load_or_create_identity(tmp_path)
    signature = identity.sign(b"m")
    compressed = identity.key.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    header = identity.public_key[:-65]
    twin = b"\x30\x39" + header[2:].replace(b"\x03\x42\x00", b"\x03\x22\x00") + compressed
    loaded = serialization.load_der_public_key(twin)
    assert isinstance(loaded, ec.EllipticCurvePublicKey), (
        "the twin is the same key, written shorter"
    )
    assert node_id(twin) != identity.node
    assert not verify(twin, signature, b"m")


def test_a_certificate_that_is_none_has_no_key():
    assert certificate_public_key(b"") is None
    assert certificate_public_key(b"\x30\x82\xff\xff" + bytes(100)) is None
