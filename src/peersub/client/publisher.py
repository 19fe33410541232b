"""Who publishes: a secret, under which the ids of its events are hashed.

The network recognises a repetition by a hash of publisher and id (`overlays.core.event_keys`). So
two publishers may use the same ids, and nobody can hide another's events by publishing under their
ids first: that would need the secret, which never leaves the client.

A client without a publisher of its own draws a secret, and keeps it when it connects again: its own
repetitions are recognised, those of another process are not. Whoever wants that names the
publisher: the secret is then in a file.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from peersub.wire.client_messages import Batch, Publication, publisher_key

__all__ = ["Publisher"]

SECRET_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16
_SECRET_BYTES_MAX: Final = 64
_NAME_BYTES_MAX: Final = 64


class Publisher:
    """A publisher, known by a secret of 16 to 64 bytes.

    Raises:
        ValueError: the secret is shorter or longer.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if not SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX:
            raise ValueError(
                f"the secret of a publisher has {SECRET_BYTES_MIN} to {_SECRET_BYTES_MAX} bytes, "
                f"this one has {len(secret)}"
            )
        self._secret = secret

    @classmethod
    def random(cls) -> Publisher:
        """A publisher that nobody was before."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def named(cls, name: str, folder: str | Path | None = None) -> Publisher:
        """The publisher of this name, whose secret is kept in a folder.

        The secret is drawn when the name is first used. By default the folder is `publishers` in
        `$PEERSUB_STATE`, or else in `~/.local/state/peersub`. The same name with another folder is
        another publisher: copy the file to be the same one on another machine.

        Raises:
            ValueError: the name is empty or too long, or the file holds no secret.
            OSError: the file cannot be read or written.
        """
        if not 0 < len(name.encode()) <= _NAME_BYTES_MAX:
            raise ValueError(f"the name of a publisher has 1 to {_NAME_BYTES_MAX} bytes")
        path = (_state_folder() if folder is None else Path(folder)) / f"{quote(name, safe='')}.key"
        if not path.exists():
            _write_once(path, secrets.token_hex(SECRET_BYTES))
        try:
            return cls(bytes.fromhex(path.read_text(encoding="ascii")))
        except ValueError:
            raise ValueError(f"{path} holds no secret of a publisher") from None

    def identify(self, published: Publication | Batch) -> Publication | Batch:
        """The same event, or batch, as one of this publisher's."""
        return published.with_key(publisher_key(self._secret, published.id))


def _state_folder() -> Path:
    given = os.environ.get("PEERSUB_STATE")
    home = Path(given) if given else Path.home() / ".local" / "state" / "peersub"
    return home / "publishers"


def _write_once(path: Path, content: str) -> None:
    """Write a file that its owner alone can read, unless another process was first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(content)
        with suppress(FileExistsError):
            os.link(beside, path)  # Whole or not at all, and never over another.
    finally:
        beside.unlink()
