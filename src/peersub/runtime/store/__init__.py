"""The node's store: what it keeps on disk, so that it can keep its word (SQLite, in WAL mode).

`store` is the door, `changes` all that can be asked of it. `writer` makes few transactions of many
submissions, `applying` turns changes into rows: of the `history`, the `log`, the `mirror` of other
nodes' subscriptions, `staging`. `reading` answers. `folder` holds the lock and repairs: `salvage`
takes rows from the `pages` of a damaged file and of its `write_ahead` file. `schema` has the tables
of today, `formats` the steps that lead there from each earlier format. `mark_file` remembers how
far the store was, for disks that forget.
"""

from peersub.runtime.store.failures import FailureKind, StoreError, StoreFailure
from peersub.runtime.store.reading import (
    DurableSubscription,
    LoggedEvent,
    LogTime,
    Losses,
    MirroredSubscription,
    RetainedEvent,
    Since,
    StagedEvent,
)
from peersub.runtime.store.settings import StoreSettings
from peersub.runtime.store.staging import StageState
from peersub.runtime.store.store import MemoryStore, Store
from peersub.runtime.store.trimming import Cut
from peersub.runtime.store.writer import OnDone

__all__ = [
    "Cut",
    "DurableSubscription",
    "FailureKind",
    "LogTime",
    "LoggedEvent",
    "Losses",
    "MemoryStore",
    "MirroredSubscription",
    "OnDone",
    "RetainedEvent",
    "Since",
    "StageState",
    "StagedEvent",
    "Store",
    "StoreError",
    "StoreFailure",
    "StoreSettings",
]
