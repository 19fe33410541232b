"""A private authority in a folder: it issues the certificates of a network, and takes them back.

```
ca.pem              the authority's certificate: every node and client needs it
ca.key              its key: whoever has it can let anybody in. It stays here.
NAME.pem, NAME.key  of a node or a client, to be carried there
issued.jsonl        what was issued: serial number, name, role, end
revocations.jsonl   what was taken back, signed
```

Keys are of the curve P-256, which every TLS 1.3 speaks, and are readable by their owner only. A
certificate has a role and a name (`identity`); a node's also has its hosts. A client's is of no use
to a server: TLS itself refuses it there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from peersub.runtime.security.certificates import PrivateKey, facts_of, read_certificate, read_key
from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.identity import PeerIdentity, Role, check_name
from peersub.runtime.security.revocations import (
    Revocation,
    RevocationSet,
    Verifier,
    sign_revocation,
)

__all__ = ["AUTHORITY_DAYS", "CERTIFICATE_DAYS", "LOCAL_HOSTS", "Authority", "Issued"]

AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 365
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""The hosts of a node that is given none: a trial on one machine."""
_CLOCKS_DIFFER: Final = timedelta(hours=1)
"""How far before now a certificate begins: clocks of machines differ."""
_NETWORK_CHARACTERS_MAX: Final = 64

_CERTIFICATE, _KEY = "ca.pem", "ca.key"
_ISSUED, _REVOKED = "issued.jsonl", "revocations.jsonl"


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that was issued, and where it is."""

    identity: PeerIdentity
    certificate: Path
    key: Path
    valid_until: datetime


class Authority:
    """An authority that is there already.

    Args:
        folder: where `create` made it.

    Raises:
        SecurityError: there is none, or its files do not fit together.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / _CERTIFICATE).exists():
            raise SecurityError(
                f"{folder}: there is no authority; make one with peersub certs init"
            )
        self._certificate = read_certificate(self.certificate)
        self._key = read_key(folder / _KEY)
        if self._certificate.public_key() != self._key.public_key():
            raise SecurityError(f"{folder}: {_KEY} is not the key of {_CERTIFICATE}")
        self._facts = facts_of(self._certificate, self.certificate)

    @classmethod
    def create(
        cls,
        folder: Path,
        network: str,
        now: datetime,
        *,
        days: int = AUTHORITY_DAYS,
        force: bool = False,
    ) -> Authority:
        """A new authority for a network.

        Raises:
            SecurityError: there is one already and `force` is not given, or no room for one.
        """
        if not network or len(network) > _NETWORK_CHARACTERS_MAX or not network.isprintable():
            raise SecurityError(f"{network!r} is no name of a network: use up to 64 characters")
        if (folder / _KEY).exists() and not force:
            raise SecurityError(
                f"{folder}: there is an authority already. With --force another takes its place, "
                "and all that it issued is worth nothing"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, network)])
        usage = _key_usage(digital_signature=True, key_cert_sign=True, crl_sign=True)
        certificate = (
            _builder(name, name, key.public_key(), x509.random_serial_number(), now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()),
                critical=False,
            )
            .sign(key, SHA256())
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_pair(folder / _KEY, key, folder / _CERTIFICATE, certificate)
            for name_of_list in (_ISSUED, _REVOKED):  # Of the authority that was there before.
                (folder / name_of_list).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from None
        return cls(folder)

    @property
    def certificate(self) -> Path:
        """The authority's certificate, which all nodes and clients need."""
        return self.folder / _CERTIFICATE

    @property
    def network(self) -> str:
        """The name that the authority was given."""
        return self._facts.network

    # --- issuing -------------------------------------------------------------------------------

    def issue(
        self,
        name: str,
        role: Role,
        now: datetime,
        *,
        hosts: Iterable[str] = (),
        days: int = CERTIFICATE_DAYS,
        force: bool = False,
    ) -> Issued:
        """A certificate and its key, in files of this name.

        With `force` it takes the place of one that is there; the old one stays valid until it is
        revoked or expires.

        Raises:
            SecurityError: the name is taken or is none, a host is none, or there is no room.
        """
        check_name(name)
        if days < 1:
            raise SecurityError("a certificate is valid for at least one day")
        names = _host_names(tuple(hosts) or (LOCAL_HOSTS if role is Role.NODE else ()))
        if names and role is not Role.NODE:
            raise SecurityError("only a node has hosts: leave out --host, or use --role node")
        certificate_path, key_path = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        if not force and (certificate_path.exists() or key_path.exists()):
            raise SecurityError(
                f"{certificate_path}: {name} has a certificate already. Take it back with peersub "
                "certs revoke if it may be in wrong hands; --force issues another"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        serial = x509.random_serial_number()
        hosts_written = tuple(str(host.value) for host in names)
        identity = PeerIdentity(role, name, serial, hosts_written)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role is Role.NODE:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        alternatives = [x509.UniformResourceIdentifier(identity.uri), *names]
        certificate = _signed(
            _builder(subject, self._certificate.subject, key.public_key(), serial, now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            ),
            self._key,
        )
        issued = Issued(identity, certificate_path, key_path, certificate.not_valid_after_utc)
        try:
            # The list first: a certificate that it does not name could not be taken back by name.
            self._note(issued)
            _write_pair(key_path, key, certificate_path, certificate)
        except OSError as error:
            raise _unwritable(self.folder, error) from None
        return issued

    def _note(self, issued: Issued) -> None:
        line = {
            "serial": f"{issued.identity.serial:x}",
            "name": issued.identity.name,
            "role": issued.identity.role.value,
            "valid_until": issued.valid_until.isoformat(),
        }
        with (self.folder / _ISSUED).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    # --- taking back ---------------------------------------------------------------------------

    def revoke(
        self, at_ms: int, *, name: str | None = None, serial: int | None = None
    ) -> list[Revocation]:
        """Take back all certificates of a name, or the one with a serial number.

        What was taken back before is given again, as it was: sending it once more does no harm.

        Raises:
            SecurityError: none was issued to the name, or the revocation cannot be written.
        """
        issued = list(self._issued())
        if serial is None:
            found = {number: owner for number, owner in issued if owner == name}
            if not found:
                known = ", ".join(sorted({owner for _, owner in issued})) or "nobody"
                raise SecurityError(f"{name!r} was issued no certificate here; known: {known}")
        else:
            # A serial number need not be in the list, which may have been lost.
            found = {serial: dict(issued).get(serial, name or "")}
        revoked = RevocationSet(Verifier(self.certificate), self.folder / _REVOKED)
        before = {revocation.serial: revocation for revocation in revoked}
        given = []
        for number, owner in found.items():
            revocation = before.get(number) or sign_revocation(number, owner, at_ms, self._key)
            revoked.add(revocation)
            given.append(revocation)
        if revoked.unsaved:
            raise SecurityError(f"{self.folder / _REVOKED}: the revocation cannot be written")
        return given

    def _issued(self) -> Iterator[tuple[int, str]]:
        path = self.folder / _ISSUED
        try:
            with path.open(encoding="utf-8") as file:
                for line in file:
                    entry: Any = json.loads(line)
                    yield int(entry["serial"], 16), str(entry["name"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, LookupError, TypeError):
            raise SecurityError(f"{path}: the list is damaged; revoke by --serial") from None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Any, serial: int, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: PrivateKey) -> x509.Certificate:
    return builder.sign(key, None if isinstance(key, Ed25519PrivateKey) else SHA256())


def _key_usage(
    *, digital_signature: bool, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _host_names(hosts: Iterable[str]) -> list[x509.DNSName | x509.IPAddress]:
    names: list[x509.DNSName | x509.IPAddress] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ip_address(host.strip("[]"))))
        except ValueError:
            if not host.isascii() or not host or any(c.isspace() or c in ":/*" for c in host):
                raise SecurityError(
                    f"{host!r} is no host: give a name or an address, without a port"
                ) from None
            names.append(x509.DNSName(host.lower()))
    return names


def _write_pair(
    key_path: Path, key: ec.EllipticCurvePrivateKey, path: Path, certificate: x509.Certificate
) -> None:
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(key_path, content, 0o600)
    _write(path, certificate.public_bytes(Encoding.PEM), 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write the file whole or not at all; nobody else can read a key, at no moment."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _unwritable(folder: Path, error: OSError) -> SecurityError:
    return SecurityError(f"{folder}: cannot be written: {error.strerror}")
