"""Revocations: the authority takes a certificate back, and every node can check that it did.

A revocation is signed with the authority's key over a text that names the certificate's serial
number, so that a node needs the authority's certificate, and nothing else, to believe it. It
travels as a rumour (`overlays.core.rumours`) and is kept in a file of the node's data folder, one
JSON object per line.

A `RevocationSet` only grows: what it holds was verified, when it came and when it was loaded. What
is damaged or forged is refused and counted, and stands in nobody's way.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from peersub.overlays.core.rumour_messages import Rumour
from peersub.overlays.core.rumours import RUMOURS_MAX
from peersub.runtime.security.certificates import PrivateKey, read_certificate
from peersub.runtime.security.errors import SecurityError

__all__ = [
    "REVOCATIONS_MAX",
    "REVOKED",
    "Revocation",
    "RevocationSet",
    "Verifier",
    "revocation_of",
    "rumour_of",
    "sign_revocation",
]

REVOCATIONS_MAX: Final = RUMOURS_MAX
"""As many as travel. More certificates taken back than that call for another authority."""
REVOKED: Final = "revoked"
"""The kind of the rumour."""
_LINE_BYTES_MAX: Final = 4_096
_SERIAL_BITS_MAX: Final = 160
_AT_MS_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class Revocation:
    """The certificate with this serial number is trusted no more.

    Attributes:
        serial: of the certificate.
        name: whose it was; for people.
        at_ms: when it was taken back, in milliseconds since 1970.
        signature: the authority's, over `signed_text`.
    """

    serial: int
    name: str
    at_ms: int
    signature: bytes

    @property
    def signed_text(self) -> bytes:
        """What the authority signs: it begins as no certificate does, and ends each part."""
        name = json.dumps(self.name)
        return f"peersub revocation 1\n{self.serial:x}\n{name}\n{self.at_ms}\n".encode()

    def to_json(self) -> bytes:
        """One line, without its end."""
        content = {
            "serial": f"{self.serial:x}",
            "name": self.name,
            "at_ms": self.at_ms,
            "signature": b64encode(self.signature).decode(),
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, line: bytes) -> Revocation:
        """What `to_json` wrote.

        Raises:
            ValueError: it is no revocation.
        """
        if len(line) > _LINE_BYTES_MAX:
            raise ValueError("too long to be a revocation")
        try:
            content: Any = json.loads(line)
            serial, name = int(content["serial"], 16), content["name"]
            at_ms, signature = content["at_ms"], b64decode(content["signature"], validate=True)
        except (ValueError, TypeError, LookupError, RecursionError):
            raise ValueError("this is no revocation") from None
        if not 0 < serial.bit_length() <= _SERIAL_BITS_MAX or serial < 0:
            raise ValueError("the serial number is none of a certificate")
        if not isinstance(name, str) or type(at_ms) is not int or not 0 <= at_ms < _AT_MS_MAX:
            raise ValueError("this is no revocation")
        return cls(serial, name, at_ms, signature)


def sign_revocation(serial: int, name: str, at_ms: int, key: PrivateKey) -> Revocation:
    """The revocation of a certificate, with the authority's key."""
    unsigned = Revocation(serial, name, at_ms, b"")
    if isinstance(key, Ed25519PrivateKey):
        signature = key.sign(unsigned.signed_text)
    else:
        signature = key.sign(unsigned.signed_text, ECDSA(SHA256()))
    return Revocation(serial, name, at_ms, signature)


class Verifier:
    """Tells what an authority signed, by its certificate.

    Args:
        authority: the file with the authority's certificate.

    Raises:
        SecurityError: the file holds none, or one with a key of another kind.
    """

    def __init__(self, authority: Path) -> None:
        key = read_certificate(authority).public_key()
        if not isinstance(key, EllipticCurvePublicKey | Ed25519PublicKey):
            raise SecurityError(f"{authority}: the key is neither of the kind P-256 nor Ed25519")
        self._key = key

    def believes(self, revocation: Revocation) -> bool:
        """Whether the authority signed it."""
        try:
            if isinstance(self._key, Ed25519PublicKey):
                self._key.verify(revocation.signature, revocation.signed_text)
            else:
                self._key.verify(revocation.signature, revocation.signed_text, ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True

    def believes_rumour(self, rumour: Rumour) -> bool:
        """Whether it is the rumour of a revocation that the authority signed."""
        revocation = revocation_of(rumour)
        return revocation is not None and self.believes(revocation)


def rumour_of(revocation: Revocation) -> Rumour:
    """The revocation as it travels."""
    return Rumour(REVOKED, f"{revocation.serial:x}", revocation.to_json())


def revocation_of(rumour: Rumour) -> Revocation | None:
    """The revocation that a rumour is about; None if it is about none."""
    if rumour.kind != REVOKED:
        return None
    try:
        revocation = Revocation.from_json(rumour.payload)
    except ValueError:
        return None
    return revocation if rumour.key == f"{revocation.serial:x}" else None


class RevocationSet:
    """All revocations that a node knows, in memory and in a file.

    Args:
        verifier: tells what the authority signed.
        path: the file; without one, nothing is kept.

    Raises:
        SecurityError: the file is there and cannot be read.

    Attributes:
        refused: revocations that were damaged or forged, or that there was no room for.
    """

    def __init__(self, verifier: Verifier, path: Path | None = None) -> None:
        self.refused = 0
        self._verifier = verifier
        self._path = path
        self._by_serial: dict[int, Revocation] = {}
        self._pending: list[Revocation] = []
        self._is_cut_off = False
        """Whether the file does not end with the end of a line."""
        if path is not None:
            self._load(path)

    def __contains__(self, serial: object) -> bool:
        return serial in self._by_serial

    def __len__(self) -> int:
        return len(self._by_serial)

    def __iter__(self) -> Iterator[Revocation]:
        return iter(tuple(self._by_serial.values()))

    @property
    def unsaved(self) -> int:
        """How many are not in the file yet; the next one that comes tries again."""
        return len(self._pending)

    def rumours(self) -> list[Rumour]:
        """All of them, as they travel."""
        return [rumour_of(revocation) for revocation in self._by_serial.values()]

    def add(self, revocation: Revocation) -> bool:
        """Take a revocation in, and keep it in the file; whether it is new and true.

        It counts at once, also if the file cannot be written.
        """
        if not self._take(revocation):
            return False
        if self._path is not None:
            self._pending.append(revocation)
            self._save(self._path)
        return True

    def _take(self, revocation: Revocation) -> bool:
        if revocation.serial in self._by_serial:
            return False
        if len(self._by_serial) >= REVOCATIONS_MAX or not self._verifier.believes(revocation):
            self.refused += 1
            return False
        self._by_serial[revocation.serial] = revocation
        return True

    def _load(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                # A line that is longer than any revocation comes in parts, each of them refused.
                while line := file.readline(_LINE_BYTES_MAX):
                    self._is_cut_off = not line.endswith(b"\n")
                    if not line.strip():
                        continue
                    try:
                        self._take(Revocation.from_json(line.strip()))
                    except ValueError:
                        self.refused += 1
        except FileNotFoundError:
            return
        except OSError as error:
            raise SecurityError(
                f"{path}: the revocations cannot be read: {error.strerror}"
            ) from None

    def _save(self, path: Path) -> None:
        lines = b"".join(revocation.to_json() + b"\n" for revocation in self._pending)
        try:
            with path.open("ab") as file:
                # After a crash in the middle of a line the next one must not become a part of it.
                file.write(b"\n" + lines if self._is_cut_off else lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            self._is_cut_off = True
            return
        self._is_cut_off = False
        self._pending.clear()
