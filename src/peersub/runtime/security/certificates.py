"""Certificates and keys in files: read with clear words where something is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.identity import PeerIdentity

__all__ = [
    "FILE_BYTES_MAX",
    "CertificateFacts",
    "PrivateKey",
    "check_certificate",
    "facts_of",
    "key_warning",
    "read_certificate",
    "read_key",
    "read_small",
]

FILE_BYTES_MAX = 65_536
"""Of a file with a certificate or a key."""

PrivateKey = EllipticCurvePrivateKey | Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a certificate says, for people.

    Attributes:
        identity: whose it is; None for the authority's own.
        network: the name of the authority that issued it.
    """

    serial: int
    network: str
    valid_from: datetime
    valid_until: datetime
    identity: PeerIdentity | None
    is_authority: bool


def read_small(path: Path, what: str) -> bytes:
    """The content of a file that cannot be large.

    Raises:
        SecurityError: it cannot be read; the text names it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise SecurityError(f"{path}: there is no such file; it should be {what}") from None
    except OSError as error:
        raise SecurityError(f"{path}: {what} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise SecurityError(f"{path}: too large to be {what}")
    return content


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file.

    Raises:
        SecurityError: there is none.
    """
    content = read_small(path, "a certificate")
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise SecurityError(f"{path}: this is no certificate in PEM form") from None


def read_key(path: Path) -> PrivateKey:
    """The private key of a PEM file.

    Raises:
        SecurityError: there is none that can be used.
    """
    content = read_small(path, "a private key")
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError:
        raise SecurityError(f"{path}: the key is encrypted; store it without a password") from None
    except ValueError:
        raise SecurityError(f"{path}: this is no private key in PEM form") from None
    if not isinstance(key, PrivateKey):
        raise SecurityError(f"{path}: the key is neither of the kind P-256 nor Ed25519")
    return key


def key_warning(path: Path) -> str | None:
    """What is wrong with who may read a private key; None if its owner alone may."""
    if path.stat().st_mode & 0o077:
        return f"{path}: others than its owner can read this key: chmod 600 {path}"
    return None


def facts_of(certificate: x509.Certificate, path: Path) -> CertificateFacts:
    """What the certificate says.

    Raises:
        SecurityError: it is none of a peersub network.
    """
    extensions = certificate.extensions
    try:
        is_authority = extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    identity = None
    if not is_authority:
        uris: list[str] = []
        hosts: list[str] = []
        try:
            names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            uris = names.get_values_for_type(x509.UniformResourceIdentifier)
            hosts = names.get_values_for_type(x509.DNSName)
            hosts += [str(address) for address in names.get_values_for_type(x509.IPAddress)]
        except x509.ExtensionNotFound:
            pass
        try:
            valid_until_s = certificate.not_valid_after_utc.timestamp()
            identity = PeerIdentity.read(uris, certificate.serial_number, hosts, valid_until_s)
        except SecurityError as error:
            raise SecurityError(f"{path}: {error}") from None
    issuers = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    return CertificateFacts(
        serial=certificate.serial_number,
        network=str(issuers[0].value) if issuers else "",
        valid_from=certificate.not_valid_before_utc,
        valid_until=certificate.not_valid_after_utc,
        identity=identity,
        is_authority=is_authority,
    )


def check_certificate(path: Path, key: Path, authority: Path, now: datetime) -> CertificateFacts:
    """Whether certificate, key and authority fit together, and it is valid now; what it says.

    Raises:
        SecurityError: they do not, or it is not; the text names the file.
    """
    certificate = read_certificate(path)
    facts = facts_of(certificate, path)
    issuer = read_certificate(authority)
    if not facts_of(issuer, authority).is_authority:
        raise SecurityError(f"{authority}: this is no certificate of an authority, as ca.pem is")
    if facts.is_authority:
        raise SecurityError(
            f"{path}: this is the authority's own; issue one for this node or client"
        )
    if certificate.public_key() != read_key(key).public_key():
        raise SecurityError(f"{key}: this is not the key of the certificate in {path}")
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        raise SecurityError(f"{path}: issued by another authority than {authority}") from None
    for checked, where in ((issuer, authority), (certificate, path)):
        if now > checked.not_valid_after_utc:
            ended = checked.not_valid_after_utc
            raise SecurityError(f"{where}: expired on {ended:%Y-%m-%d %H:%M} UTC; issue it again")
        if now < checked.not_valid_before_utc:
            begins = checked.not_valid_before_utc
            raise SecurityError(
                f"{where}: not valid before {begins:%Y-%m-%d %H:%M} UTC; is the clock right?"
            )
    return facts
