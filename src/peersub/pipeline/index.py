"""The matching index: from the subscriptions dataset to shards on a file system that all share.

```
subscriptions ── parsed: all workers ──► arrays ── build_index: one task per shard ──► FOLDER
                                                                 FOLDER/shard-00000, …, index.json
```

The index is whole, one shard, while it is estimated to fit the memory that a worker may map; else
it is cut into as many shards as make each fit. `index.json` is written last: an index without it is
not finished.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from peersub.matching.bulk import CHUNK_TEXTS
from peersub.pipeline.kernels.indexing import building, parsing, shard_folder
from peersub.pipeline.schemas import PARSED, SHARDS

__all__ = ["Index", "Shard", "SubscriptionSizes", "build_index", "open_index", "parsed"]

INDEX_BYTES_MAX: Final = 2 << 30
"""What one shard may take, of the memory of each machine: its workers share the pages."""
SHARDS_MAX: Final = 4_096
BYTES_PER_SUBSCRIPTION: Final = 100
BYTES_PER_TEXT_BYTE: Final = 2
"""An estimate with some room: filters of two to five predicates, 79 bytes of text and 7 of id on
average, take 185 bytes each, and are estimated at 265. Long lists of numbers take more."""
_TEXTS_PER_TASK_MAX: Final = 5 * CHUNK_TEXTS
_TASKS_FEW: Final = 8
_DESCRIPTION: Final = "index.json"


@dataclass(frozen=True, slots=True)
class SubscriptionSizes:
    """How many subscriptions there are, and how many bytes their ids and texts have."""

    subscriptions: int
    id_bytes: int
    text_bytes: int

    @classmethod
    def of(cls, subscriptions: Any) -> SubscriptionSizes:
        """The sizes of a subscriptions dataset; a pass over two of its columns."""
        row = subscriptions.selectExpr(
            "count(*) AS subscriptions",
            "coalesce(sum(octet_length(subscription_id)), 0) AS id_bytes",
            "coalesce(sum(octet_length(text)), 0) AS text_bytes",
        ).first()
        return cls(row["subscriptions"], row["id_bytes"], row["text_bytes"])

    @property
    def index_bytes(self) -> int:
        """An estimate of the bytes of the whole index."""
        texts = BYTES_PER_TEXT_BYTE * self.text_bytes
        return BYTES_PER_SUBSCRIPTION * self.subscriptions + self.id_bytes + texts

    def shards(self, index_bytes_max: int = INDEX_BYTES_MAX) -> int:
        """How many shards to make, so that each is estimated to fit: 1 is the whole index.

        >>> SubscriptionSizes(1_000_000, 7_000_000, 65_000_000).shards()
        1
        >>> SubscriptionSizes(100_000_000, 900_000_000, 6_500_000_000).shards()
        12
        """
        return max(1, min(SHARDS_MAX, -(-self.index_bytes // index_bytes_max)))

    @property
    def parsing_tasks(self) -> int:
        """Into how many tasks to cut the parsing: a few for few texts, none of them long."""
        chunks = -(-self.subscriptions // CHUNK_TEXTS)
        return max(1, min(chunks, max(_TASKS_FEW, -(-self.subscriptions // _TEXTS_PER_TASK_MAX))))


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as it was built."""

    shard: int
    subscriptions: int
    patterns: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Index:
    """A finished index: the folder that holds it, and its shards; none if nobody subscribed."""

    folder: str
    shards: tuple[Shard, ...]

    @property
    def subscriptions(self) -> int:
        """How many subscriptions it holds."""
        return sum(shard.subscriptions for shard in self.shards)

    @property
    def folders(self) -> tuple[str, ...]:
        """Where its shards lie."""
        return tuple(str(shard_folder(self.folder, shard.shard)) for shard in self.shards)

    @property
    def bytes(self) -> int:
        """How many bytes it has on disk, which are those that matching maps."""
        return sum(shard.bytes for shard in self.shards)


def parsed(subscriptions: Any, *, shards: int = 1, tasks: int | None = None) -> Any:
    """Subscriptions to chunks of parsed filters, each for one shard.

    Args:
        subscriptions: the subscriptions dataset.
        shards: how many shards the index will have.
        tasks: into how many tasks to cut the work, `SubscriptionSizes.parsing_tasks` say; as the
            dataset is partitioned unless given.
    """
    if tasks is not None:
        subscriptions = subscriptions.repartition(tasks, "number")
    columns = subscriptions.select("number", "subscription_id", "language", "text", "digest")
    return columns.mapInArrow(parsing(shards), PARSED.spark)


def build_index(chunks: Any, folder: str | Path, *, shards: int = 1) -> Index:
    """Build the index of parsed subscriptions into a folder, in place of one that lies there.

    Args:
        chunks: the parsed dataset, made for so many shards.
        folder: a folder that this process and all workers see.
        shards: how many.
    """
    place = Path(folder).absolute()
    _clear(place)
    # Each shard is a task of its own: two in one would hold the arrays of both.
    built = chunks.repartitionById(shards, "shard").mapInArrow(building(str(place)), SHARDS.spark)
    rows = [Shard(**row.asDict()) for row in built.collect()]
    index = Index(str(place), tuple(sorted(rows, key=lambda shard: shard.shard)))
    description = json.dumps({"shards": [asdict(shard) for shard in index.shards]})
    draft = place / f".{_DESCRIPTION}"
    draft.write_text(description, encoding="utf-8")
    os.replace(draft, place / _DESCRIPTION)
    return index


def _clear(folder: Path) -> None:
    """Make the folder, without what an earlier index or an interrupted build left in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DESCRIPTION).unlink(missing_ok=True)
    for pattern in ("shard-*", ".shard-*"):
        for left in folder.glob(pattern):
            shutil.rmtree(left)


def open_index(folder: str | Path) -> Index:
    """The finished index of a folder, which may have been moved there.

    Raises:
        ValueError: there is none.
    """
    place = Path(folder).absolute()
    try:
        description = json.loads((place / _DESCRIPTION).read_text("utf-8"))
        return Index(str(place), tuple(Shard(**shard) for shard in description["shards"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{place} holds no finished index: build it again") from None
