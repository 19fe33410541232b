"""Looking after a data folder from outside: checking it, backing it up, restoring it.

A node may go on running while its folder is checked or backed up: SQLite shows both a state between
two transactions. A backup is one file, a database like that of a node. A restored node has
forgotten what happened since the backup; so its log begins a new epoch, and consumers of durable
subscriptions are told of a gap.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from peersub.runtime.store.facts import NODE_NAME, fact, new_epoch
from peersub.runtime.store.failures import StoreError, is_damage
from peersub.runtime.store.folder import (
    DATABASE,
    LOCK,
    beside,
    locked,
    put_in_place,
    replace_database,
    stored_damage,
    structural_damage,
    tolerate_any_text,
    unsafe_database,
)
from peersub.runtime.store.formats import FORMAT_VERSION, migrate, tables
from peersub.runtime.store.log import note_gaps
from peersub.runtime.store.mark_file import MARK, read_mark
from peersub.runtime.store.reading import durable_subscriptions, store_mark
from peersub.runtime.store.schema import PAGE_BYTES
from peersub.runtime.store.write_ahead import read_write_ahead

__all__ = ["back_up", "check_data", "restore"]


def check_data(folder: Path) -> dict[str, Any]:
    """What is in a data folder or a backup, as plain values; `problems` are sentences.

    Nothing is changed.

    Raises:
        StoreError: there is no data of a node, or none that this version can read.
    """
    database = folder / DATABASE if folder.is_dir() else folder
    in_use = folder.is_dir() and _is_in_use(folder)
    found: dict[str, Any] = {"database": str(database), "in_use": in_use, "problems": []}
    with _reading(database) as connection:
        damage = _damage(connection, database, in_use=in_use)
        if damage is not None:
            found["problems"].append(damage)
            return found
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found |= {"format": version, "bytes": database.stat().st_size}
        found["rows"] = {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in sorted(tables(version))
        }
        if version < FORMAT_VERSION:
            return found
        mark = store_mark(connection)
        name = fact(connection, NODE_NAME)
        found |= {"node": None if name is None else name.decode(), **mark._asdict()}
        found["durable_subscriptions"] = [
            {
                "name": each.name,
                "unread": _unread(connection, each.name, each.cursor),
                "dropped": each.trimmed_unread,
                "gaps": each.gaps,
            }
            for each in durable_subscriptions(connection)
        ]
    remembered = None if in_use else read_mark(folder / MARK)[0]
    if remembered is not None and (lost := remembered.missing_in(mark)):
        found["problems"].append(f"the last {lost:,} transactions that were stored are not there")
    return found


def _unread(connection: sqlite3.Connection, name: str, cursor: int) -> int:
    (count,) = connection.execute(
        "SELECT count(*) FROM log_entries WHERE position > ? AND subscription = "
        "(SELECT number FROM subscriptions WHERE name = ?)",
        (cursor, name),
    ).fetchone()
    return int(count)


def back_up(folder: Path, target: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the data of a node, which may be running, into one file; what is in it.

    Raises:
        StoreError: there is nothing to back up, it is damaged, or the file is there already.
    """
    if target.exists() and not force:
        raise StoreError(f"{target} is there already: choose another name, or say --force")
    new = beside(target, ".new")
    try:
        with _reading(folder / DATABASE) as source, closing(unsafe_database(new)) as copy:
            _copy(source, copy)
        found = check_data(new)
        if found["problems"]:
            raise StoreError(
                f"{folder} is not backed up, since it is damaged ({found['problems'][0]}): start "
                "its node, which salvages what can be read"
            )
        put_in_place(new, target)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        new.unlink(missing_ok=True)
    return found | {"database": str(target)}


def restore(backup: Path, folder: Path, *, force: bool = False) -> dict[str, Any]:
    """Make a data folder of a backup; what is in it, and where the former data is kept.

    Raises:
        StoreError: the backup cannot be used, a node uses the folder, or it has data already.
    """
    if backup.is_dir():
        raise StoreError(f"{backup} is a folder: name the file that `peersub data backup` wrote")
    problems = check_data(backup)["problems"]
    if problems:
        raise StoreError(f"{backup} is damaged ({problems[0]}): restore another backup")
    with locked(folder):
        database = folder / DATABASE
        had_data = database.exists()
        if had_data and not force:
            raise StoreError(
                f"{folder} has data of a node already: restore into another folder, or say "
                "--force, which keeps the former data under another name"
            )
        new = beside(database, ".new")
        with _reading(backup) as source, closing(unsafe_database(new)) as copy:
            _copy(source, copy)
            (version,) = copy.execute("PRAGMA user_version").fetchone()
            migrate(copy, version)
            copy.execute("BEGIN")
            new_epoch(copy)
            note_gaps(copy)
            copy.execute("COMMIT")
        whole = beside(database, ".salvaged")
        put_in_place(new, whole)
        kept = replace_database(database, whole, "replaced")
    return check_data(folder) | {"former": str(kept) if had_data else None}


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    source.backup(target)
    # One file, without a write-ahead file beside it.
    target.execute("PRAGMA journal_mode = DELETE")


def _is_in_use(folder: Path) -> bool:
    try:
        with open(folder / LOCK, encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


@contextmanager
def _reading(database: Path) -> Iterator[sqlite3.Connection]:
    """A state of the database between two transactions, which is left as it is."""
    if not database.is_file():
        raise StoreError(f"there is no data of a node at {database}")
    if not os.access(database, os.R_OK):
        raise StoreError(f"{database} cannot be read: run this as the user that runs the node")
    try:
        address = f"{database.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            tolerate_any_text(connection)
            connection.execute("BEGIN")
            yield connection
    except sqlite3.Error as error:
        if is_damage(error):
            raise StoreError(
                f"{database} is damaged ({error}): start its node, which salvages what can be read"
            ) from error
        raise StoreError(f"{database} cannot be read: {error}") from error


def _damage(connection: sqlite3.Connection, database: Path, *, in_use: bool) -> str | None:
    ahead = beside(database, "-wal")
    content = ahead.read_bytes() if ahead.exists() and not in_use else b""
    if read_write_ahead(content, PAGE_BYTES).is_damaged:
        return "its write-ahead file is damaged"
    try:
        damage = structural_damage(connection, database)
        if damage is not None:
            return damage
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return stored_damage(connection) if version == FORMAT_VERSION else None
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return str(error)
        raise
