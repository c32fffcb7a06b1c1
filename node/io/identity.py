"""Who a node is: a P-256 key made once, its certificate, and the id that both give it."""

import base64
import binascii
import datetime
import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from node.io import clock
from node.model.errors import ConflictError, RefusedError
from node.model.ids import NODE_ID_LENGTH, NodeId

IDENTITY_DIRECTORY = "identity"
IDENTITY_FILE = "identity.pem"
IDENTITY_BYTES_MAX = 65_536
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}

# Fixed, so that no clock is needed: peers pin the key and never look at these dates.
_VALID_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_VALID_UNTIL = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Identity:
    """A node's key, and what others know it by."""

    node: NodeId
    key: ec.EllipticCurvePrivateKey
    public_key: bytes
    """DER of the SubjectPublicKeyInfo; the node id is its hash."""
    certificate: bytes
    """DER."""
    path: Path
    """PEM file with key and certificate, as `ssl` loads it."""

    def sign(self, message: bytes) -> bytes:
        """ECDSA over SHA-256 of the message."""
        return self.key.sign(message, ec.ECDSA(hashes.SHA256()))


def node_id(public_key: bytes) -> NodeId:
    """The id of the node that holds this key (DER of its SubjectPublicKeyInfo)."""
    digest = hashlib.sha256(public_key).digest()
    return NodeId(base64.b32encode(digest).decode("ascii").rstrip("=").lower())


def is_node_id(text: str) -> bool:
    """Whether the text has the form of a node id."""
    if len(text) != NODE_ID_LENGTH or text != text.lower():
        return False
    try:
        return len(base64.b32decode(text.upper() + "====")) == hashlib.sha256().digest_size
    except (binascii.Error, ValueError):
        return False


def certificate_public_key(certificate: bytes) -> bytes | None:
    """The public key (DER) in a certificate (DER); None where it is not one of P-256."""
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm, x509.UnsupportedGeneralNameType):
        return None
    return _encode_public_key(key) if _is_p256(key) else None


def verify(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the holder of the key (DER) signed the message."""
    try:
        key = serialization.load_der_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm):
        return False
    # One key has one encoding here, else it would have several node ids.
    if not _is_p256(key) or _encode_public_key(key) != public_key:
        return False
    try:
        key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def has_identity(state_directory: Path) -> bool:
    """Whether this machine is a node already."""
    return (state_directory / IDENTITY_DIRECTORY / IDENTITY_FILE).exists()


def load_or_create_identity(state_directory: Path) -> Identity:
    """Read the identity in a state directory, or make one where there is none yet.

    Raises:
        RefusedError: others may read the key, or it can't be read.
        ConflictError: the file is damaged; a new identity is never made in its place.
    """
    directory = state_directory / IDENTITY_DIRECTORY
    path = directory / IDENTITY_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_wider_mode(directory, 0o700)
        if not path.exists():
            _create(path)
        _refuse_wider_mode(path, 0o600)
        with path.open("rb") as file:
            pem = file.read(IDENTITY_BYTES_MAX + 1)
    except OSError as error:
        raise RefusedError.because(
            "identity_unreadable",
            f"{error.filename or path}: {error.strerror or error}",
            f"make {directory} a directory that this user owns and can write",
        ) from error
    return _parse(path, pem)


def _is_p256(key: object) -> TypeGuard[ec.EllipticCurvePublicKey]:
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)


def _encode_public_key(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _refuse_wider_mode(path: Path, allowed: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & ~allowed:
        raise RefusedError.because(
            "identity_exposed",
            f"{path} has mode {mode:04o}: others could take this node's key",
            f"chmod {allowed:o} {path}",
        )


def _create(path: Path) -> None:
    """Write a new identity; it is there as a whole or not at all, and never replaces one."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + _certificate(key).public_bytes(serialization.Encoding.PEM)
    temporary = path.with_name(f".{path.name}.{clock.random_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return  # another process was first: its identity holds
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            temporary.rename(path)
        _sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    public_key = key.public_key()
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, node_id(_encode_public_key(public_key)))]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse(path: Path, pem: bytes) -> Identity:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
        certificate = x509.load_pem_x509_certificate(pem)
        certified = certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _damaged(path, f"{len(pem)} bytes that hold no key and certificate") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _damaged(path, "its key is not of the curve P-256")
    public_key = _encode_public_key(key.public_key())
    if not _is_p256(certified) or _encode_public_key(certified) != public_key:
        raise _damaged(path, "its certificate is of another key")
    return Identity(
        node=node_id(public_key),
        key=key,
        public_key=public_key,
        certificate=certificate.public_bytes(serialization.Encoding.DER),
        path=path,
    )


def _damaged(path: Path, what: str) -> ConflictError:
    failure = ConflictError.because(
        "identity_damaged",
        f"{path} is damaged: {what}",
        f"restore {path} from a backup; or move it away, and this machine starts as a new node"
        " that must be invited again",
    )
    assert isinstance(failure, ConflictError)
    return failure
