"""TLS of the mesh: 1.3 only, our protocol only, identities by key and never by an authority."""

import ssl

from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute

from node.io.identity import Identity, certificate_public_key, node_id
from node.io.mesh.tls_stream import TlsStream
from node.model.ids import NodeId
from node.wire.handshake import ALPN, HandshakeError


def server_context(identity: Identity) -> ssl.SSLContext:
    """For the side that listens; it shows the identity's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # no resumption: each link proves itself anew
    context.load_cert_chain(identity.path)
    context.set_alpn_protocols([ALPN])
    return context


def client_context() -> ssl.SSLContext:
    """For the side that dials. Who is at the other end is judged by `server_of`, after the fact."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    return context


async def wrap(stream: ByteStream, context: ssl.SSLContext, *, server_side: bool) -> TlsStream:
    """Do the TLS handshake over a connection.

    Raises:
        HandshakeError: the other end speaks TLS, but not our protocol.
    """
    wrapped = TlsStream(stream, context, server_side=server_side)
    await wrapped.handshake()
    protocol = wrapped.extra(TLSAttribute.alpn_protocol)  # noqa: S610 - anyio's, not Django's
    if protocol != ALPN:
        raise HandshakeError(f"the other end does not offer {ALPN}")
    return wrapped


def server_of(stream: TlsStream) -> tuple[NodeId, bytes]:
    """Who the dialled server proved to be by its handshake, and its certificate (DER).

    Raises:
        HandshakeError: the certificate is none that a node would have.
    """
    certificate = stream.extra(TLSAttribute.peer_certificate_binary)  # noqa: S610 - anyio's
    public_key = certificate_public_key(certificate) if certificate else None
    if certificate is None or public_key is None:
        raise HandshakeError("the certificate at the other end is no node's")
    return node_id(public_key), certificate
