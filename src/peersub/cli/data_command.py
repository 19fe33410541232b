"""`peersub data check | backup | restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peersub.cli.failures import ExitCode
from peersub.cli.output import note, print_json, say
from peersub.runtime.client_shares import describe_durable
from peersub.runtime.store.upkeep import back_up, check_data, restore

__all__ = ["run_backup", "run_check", "run_restore"]


def run_check(folder: str, *, as_json: bool) -> int:
    """Check a folder, or a backup."""
    found = check_data(Path(folder))
    _show(found, as_json=as_json)
    return ExitCode.FAILED if found["problems"] else ExitCode.DONE


def run_backup(folder: str, target: str, *, force: bool, as_json: bool) -> int:
    """Back a folder up."""
    _show(back_up(Path(folder), Path(target), force=force), as_json=as_json)
    return ExitCode.DONE


def run_restore(backup: str, folder: str, *, force: bool, as_json: bool) -> int:
    """Restore a folder."""
    found = restore(Path(backup), Path(folder), force=force)
    _show(found, as_json=as_json)
    if not as_json:
        if found["former"]:
            note(
                f"The former data is kept as {found['former']}; remove it when you need it no more."
            )
        note(
            "What happened since the backup is not in it: the log begins a new epoch, consumers of"
        )
        note(
            "durable subscriptions are told of a gap, and mirrors hand over what they hold. Events"
        )
        note("that publishers repeat may come a second time. Run one node only from a backup.")
    return ExitCode.DONE


def _show(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    state = "damaged" if found["problems"] else "sound"
    say(f"{found['database']}: {state}{', in use by a node' if found['in_use'] else ''}")
    for problem in found["problems"]:
        say(f"  problem: {problem}")
    for key in ("node", "format", "bytes", "epoch", "commits", "position"):
        if key in found:
            say(f"  {key}: {found[key]}")
    for name, count in found.get("rows", {}).items():
        say(f"  {name}: {count:,} rows")
    for each in found.get("durable_subscriptions", ()):
        say(
            f"  durable {describe_durable(each['name'])}: {each['unread']:,} unread, "
            f"{each['dropped']:,} dropped, {each['gaps']:,} gaps"
        )
