"""A node's disk: records in the order of writing, and how many of them would survive a crash."""

from __future__ import annotations

from random import Random

from peersub.overlays.core.records import Record
from peersub.trace.schema import Disk as DiskFate

__all__ = ["TAIL_LOST_MAX", "Disk"]

TAIL_LOST_MAX = 4
"""Records that a disk which lies about them loses at most."""


class Disk:
    """Appends records; those up to `synced` were confirmed to the node."""

    __slots__ = ("records", "synced")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.synced = 0

    def write(self, record: Record) -> None:
        """The record is on its way to the disk."""
        self.records.append(record)

    def sync(self) -> None:
        """The first record that was not yet confirmed is on the disk now."""
        assert self.synced < len(self.records)
        self.synced += 1

    def crash(self, random: Random) -> None:
        """What was confirmed stays; of what was on its way, a part that is drawn has arrived."""
        arrived = random.randint(self.synced, len(self.records))
        del self.records[arrived:]
        self.synced = arrived

    def restored(self, fate: DiskFate, random: Random) -> tuple[Record, ...]:
        """What a node that starts again finds; what it does not find is gone for good."""
        if fate is DiskFate.LOST:
            self.records.clear()
        elif fate is DiskFate.TAIL_LOST and self.records:
            lost = random.randint(1, min(TAIL_LOST_MAX, len(self.records)))
            del self.records[-lost:]
        self.synced = len(self.records)
        return tuple(self.records)
