"""The folder of a store: one database, one process, and a way back from damage.

`node.sqlite` is only ever put in its place whole. A damaged one is kept beside the new one:

    node.sqlite.new         a database that is being made; of no use after a crash
    node.sqlite.salvaged    a whole one, made from a damaged one that is still in its place
    node.sqlite.damaged-1   the damaged one, with its write-ahead file
    node.lock               held, by the operating system, while a process uses the folder
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, Final

from peersub.runtime.store.facts import LOG_EPOCH, fact, new_epoch
from peersub.runtime.store.failures import StoreError, error_code, is_damage
from peersub.runtime.store.formats import FORMAT_VERSION, migrate, tables
from peersub.runtime.store.rows import numbers_of
from peersub.runtime.store.salvage import content_damage, salvage
from peersub.runtime.store.schema import APPLICATION_ID, PAGE_BYTES, TABLES, create
from peersub.runtime.store.settings import StoreSettings
from peersub.runtime.store.write_ahead import read_write_ahead

__all__ = [
    "DATABASE",
    "LOCK",
    "beside",
    "create_database",
    "locked",
    "opened",
    "prepared",
    "put_in_place",
    "replace_database",
    "stored_damage",
    "structural_damage",
    "tolerate_any_text",
    "unsafe_database",
]

DATABASE: Final = "node.sqlite"
LOCK: Final = "node.lock"
_OURS: Final = "node."
"""How the names of all files of a store begin."""
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
"""Events are for those who may have them: nobody else of the machine reads the files."""
_VERSIONS_MAX: Final = 10_000
"""A version beyond is none: the header is damaged."""
_CHECKPOINT_PAGES: Final = 2_000
"""The write-ahead file is carried over into the database from this size on."""
_AHEAD_BYTES_KEPT: Final = 4 * _CHECKPOINT_PAGES * PAGE_BYTES
"""What it keeps of the disk after having been larger."""


def locked(folder: Path) -> IO[str]:
    """The lock of the folder, which is made if it is not there; closing the file gives it back.

    Raises:
        StoreError: another process has it, or the folder cannot be written.
    """
    try:
        folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
        lock = open(folder / LOCK, "a+", encoding="ascii")  # noqa: SIM115
    except OSError as error:
        raise StoreError(f"{folder} cannot be used for data: {error.strerror or error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read(20).strip()
        lock.close()
        who = f"the process {owner}" if owner else "another process"
        raise StoreError(
            f"{folder} is in use by {who}: stop it, or give this node another folder with --data"
        ) from None
    try:
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
    except OSError:
        # A full disk: the lock holds without a name in it.
        pass
    return lock


def prepared(folder: Path, settings: StoreSettings) -> list[str]:
    """Make sure that the folder holds a sound database; what had to be done, in sentences.

    Raises:
        StoreError: there is one that this version must not touch, or none can be made.
    """
    database = folder / DATABASE
    try:
        notices = _restrict(folder)
        if (salvaged := beside(database, ".salvaged")).exists():
            replace_database(database, salvaged)
            notices.append(f"{database} was to be replaced; that was interrupted, and is done now")
        if not database.exists():
            _make_new(database)
        else:
            damage = _damage(database, settings, notices)
            if damage is not None:
                notices.append(_salvage(database, damage))
    except sqlite3.Error as error:
        raise StoreError(f"{database} cannot be used: {error}") from error
    except OSError as error:
        raise StoreError(f"{folder} cannot be used: {error.strerror or error}") from error
    return notices


def _restrict(folder: Path) -> list[str]:
    """Let nobody else read the files of a store, nor list a folder that has no others."""
    paths = list(folder.iterdir())
    ours = [path for path in paths if path.name.startswith(_OURS)]
    readable = []
    for path, mode in [*((path, _FILE_MODE) for path in ours), (folder, _FOLDER_MODE)]:
        is_shared = path is folder and len(ours) < len(paths)
        if path.stat().st_mode & 0o077 and not is_shared:
            try:
                path.chmod(mode)
            except OSError as error:
                readable.append(f"others may read {path}, which cannot be changed: {error}")
    return readable


def opened(database: Path, settings: StoreSettings, *, writes: bool) -> sqlite3.Connection:
    """A connection to a database that is sound."""
    connection = _connected(database, settings)
    connection.execute("PRAGMA journal_mode = WAL")
    if not writes:
        connection.execute("PRAGMA query_only = ON")
        return connection
    # Whatever is acknowledged is on the disk itself, not only with the operating system. (In WAL
    # mode NORMAL would not wait for the disk at a commit.)
    connection.execute(f"PRAGMA synchronous = {'FULL' if settings.fsync else 'OFF'}")
    # What is deleted is overwritten: a salvage must not bring it back.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_AHEAD_BYTES_KEPT}")
    if settings.file_bytes_max is not None:
        pages = max(settings.file_bytes_max // PAGE_BYTES, 1)
        connection.execute(f"PRAGMA max_page_count = {pages}")
    return connection


def create_database(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty database; its log begins an epoch of its own."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = NONE")
    create(connection, FORMAT_VERSION)
    new_epoch(connection)


def _connected(database: Path, settings: StoreSettings) -> sqlite3.Connection:
    return sqlite3.connect(
        database,
        timeout=settings.busy_ms_max / 1_000,
        isolation_level=None,
        check_same_thread=False,
    )


# --- new databases -------------------------------------------------------------------------------


def _make_new(database: Path) -> None:
    new = beside(database, ".new")
    with closing(unsafe_database(new)) as connection:
        create_database(connection)
    for suffix in ("-wal", "-shm"):
        beside(database, suffix).unlink(missing_ok=True)
    put_in_place(new, database)


def unsafe_database(path: Path) -> sqlite3.Connection:
    """A new database that need not survive a crash while it is made."""
    path.unlink(missing_ok=True)
    # SQLite gives the files beside it the mode of the database.
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE_MODE))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def put_in_place(new: Path, place: Path) -> None:
    """Give a whole file its name, so that a crash leaves either none of it or all."""
    with open(new, "rb+") as file:
        os.fsync(file.fileno())
    new.replace(place)
    _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def beside(database: Path, suffix: str) -> Path:
    """The file beside another with the same name and this ending."""
    return database.with_name(database.name + suffix)


# --- databases of earlier formats ----------------------------------------------------------------


def _migrate(connection: sqlite3.Connection, database: Path, notices: list[str]) -> str | None:
    """Bring a sound database to the format of today; what is wrong with it, or None."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == FORMAT_VERSION:
        return None
    try:
        migrate(connection, version)
    except sqlite3.DatabaseError as error:
        if error_code(error) == sqlite3.SQLITE_ERROR:
            # Its tables are not those of the format that it claims to have.
            return f"its header is damaged: {error}"
        raise
    notices.append(
        f"{database} was brought from format {version} to format {FORMAT_VERSION}: earlier "
        "versions of peersub cannot open it any more"
    )
    return None


# --- damaged databases ---------------------------------------------------------------------------


def _damage(database: Path, settings: StoreSettings, notices: list[str]) -> str | None:
    """What is wrong with the database, or None: it has the format of today then.

    Raises:
        StoreError: nothing, but it is not for this version.
    """
    ahead = beside(database, "-wal")
    if ahead.exists() and read_write_ahead(ahead.read_bytes(), PAGE_BYTES).is_damaged:
        return "its write-ahead file is damaged"
    if database.stat().st_size == 0:
        return "it is empty"
    try:
        with closing(_connected(database, settings)) as connection:
            tolerate_any_text(connection)
            return (
                structural_damage(connection, database)
                or _migrate(connection, database, notices)
                or stored_damage(connection)
            )
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return str(error)
        raise


def tolerate_any_text(connection: sqlite3.Connection) -> None:
    """Texts that are none are for `content_damage` to find, not for Python to fail on."""
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")


def structural_damage(connection: sqlite3.Connection, database: Path) -> str | None:
    """What is wrong with the structure of the database, or None.

    Raises:
        StoreError: nothing, but it is not for this version.
    """
    (state,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if state != "ok":
        return " ".join(str(state).encode(errors="replace").decode().split())
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    found = {name for (name,) in listed}
    if owner != APPLICATION_ID and not found & TABLES.keys():
        raise StoreError(
            f"{database} is a database of another program: give this node another folder with "
            "--data"
        )
    if FORMAT_VERSION < version <= _VERSIONS_MAX:
        raise StoreError(
            f"{database} was written by a newer peersub (format {version}, this one knows "
            f"{FORMAT_VERSION}): install that one, or give this node another folder with --data"
        )
    is_known = owner == APPLICATION_ID and 1 <= version <= FORMAT_VERSION
    if not is_known or not found >= tables(version):
        return "its header is damaged"
    return None


def stored_damage(connection: sqlite3.Connection) -> str | None:
    """What SQLite does not notice, since it has no checksums: rows that are not as written."""
    if fact(connection, LOG_EPOCH) is None:
        return "it does not say which epoch its log is in"
    for name, table in TABLES.items():
        for values in connection.execute(f"SELECT {table.columns} FROM {name}"):
            if (damage := content_damage(name, values)) is not None:
                return damage
    known = {number for (number,) in connection.execute("SELECT number FROM subscriptions")}
    # The log and its entries say the same; the sum of what each says would differ otherwise.
    logged = sum(
        hash((number, position))
        for position, numbers in connection.execute("SELECT position, subscriptions FROM log")
        for number in numbers_of(numbers)
        if number in known
    )
    if logged != sum(map(hash, connection.execute("SELECT * FROM log_entries"))):
        return "the log and its entries differ"
    return None


def _salvage(database: Path, damage: str) -> str:
    new = beside(database, ".new")
    with closing(unsafe_database(new)) as connection:
        create_database(connection)
        # The epoch stays the new one: of the old facts, those that are not there yet are taken.
        found = salvage(database, beside(database, "-wal"), connection)
    salvaged = beside(database, ".salvaged")
    put_in_place(new, salvaged)
    kept = replace_database(database, salvaged)
    return (
        f"{database} was damaged ({damage}). What could be read is in a new file: "
        f"{found.described()}. The log begins a new epoch, and what was stored last may be "
        f"missing. The damaged file is kept as {kept}; remove it when you need it no more"
    )


def replace_database(database: Path, salvaged: Path, kept_as: str = "damaged") -> Path:
    """Put a whole database in the place of the damaged one, which gets another name.

    Whatever is interrupted here is done by the next start: the whole one keeps its name to the
    end, and no write-ahead file of the damaged one may be there when it takes its place.
    """
    kept = next(
        name
        for number in count(1)
        if not (name := beside(database, f".{kept_as}-{number}")).exists()
        or (database.exists() and name.samefile(database))
    )
    for suffix in ("", "-wal"):
        source = beside(database, suffix)
        if source.exists() and not beside(kept, suffix).exists():
            _link(source, beside(kept, suffix))
    _sync_folder(database.parent)
    for suffix in ("-wal", "-shm"):
        beside(database, suffix).unlink(missing_ok=True)
    salvaged.replace(database)
    _sync_folder(database.parent)
    return kept


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
