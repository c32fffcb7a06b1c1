"""Throw-away certificates of runners: made at start, pinned by the neighbours, kept nowhere."""

import datetime
import os
import ssl
import tempfile
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from node.model.ids import RunnerId

LIFETIME = datetime.timedelta(days=3650)
CLOCK_SKEW = datetime.timedelta(days=365)
"""Machines' clocks disagree; the pin is what counts, not the date."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A self-signed certificate with its key, both in memory alone."""

    der: bytes
    pem: bytes
    key_pem: bytes


def make_certificate(runner: RunnerId) -> Certificate:
    """A P-256 certificate in the runner's name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, runner)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Certificate(
        der=certificate.public_bytes(serialization.Encoding.DER),
        pem=certificate.public_bytes(serialization.Encoding.PEM),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def tls_context(own: Certificate, peer_der: bytes, *, is_server: bool) -> ssl.SSLContext:
    """TLS 1.3 that shows the own certificate and trusts the peer's alone.

    Raises:
        ssl.SSLError: the peer's bytes are no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=peer_der)
    if is_server:
        context.num_tickets = 0
    # The ssl module reads keys from files only; this one lives for a moment, in a private place.
    descriptor, path = tempfile.mkstemp(prefix="stage-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(own.pem + own.key_pem)
        context.load_cert_chain(path)
    finally:
        Path(path).unlink()
    return context


def is_pinned(connection: ssl.SSLSocket, peer_der: bytes) -> bool:
    """Whether the peer showed exactly the certificate that was announced for it."""
    return connection.getpeercert(binary_form=True) == peer_der
