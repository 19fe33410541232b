"""Who covers whom among plain classes: out of the built index, without a filter being parsed.

One worker takes the plain filters (`matching.plain_boxes`) out of the shards of the index, ranks
them by (sampled, digest), and writes them as arrays; the others map these and look up a share of
the classes each. While it works the one worker holds about 100 bytes per class and 50 per
predicate. Classes that are not plain, and all that these may cover or be covered by, are left to
`coverers`.

Law: the coverers of a plain class among plain classes are all those that `covers` would prove, up
to the bound, and beyond it the first in the order of (sampled, digest).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from peersub.matching.plain_boxes import PlainBoxes, joined_entries, plain_entries
from peersub.matching.storage import open_matcher
from peersub.pipeline.kernels.coverers import CoveringBounds
from peersub.pipeline.kernels.member_plans import digests_of
from peersub.pipeline.kernels.profiles import DIGEST_BYTES
from peersub.pipeline.kernels.sample_bits import binary_rows
from peersub.pipeline.kernels.warming import compile_once
from peersub.pipeline.kernels.whole_files import whole_file
from peersub.pipeline.schemas import COVERINGS

__all__ = ["plain_coverings", "split_classes", "write_plain_classes"]

ASKED_AT_ONCE: Final = 4_096
PAIRS_AT_ONCE_MAX: Final = 1 << 22
"""Places for what is found at once; where all coverers are asked for, fewer classes are."""
_ROW_ARRAYS: Final = ("digests", "sampled", "by_digest")


def write_plain_classes(classes: pa.Table, shards: Sequence[str], folder: str) -> int:
    """Write the plain ones of all classes (`digest`, `sampled`); how many they are.

    Args:
        classes: all classes.
        shards: the folders of an index that has the filters of all classes.
        folder: one that all workers share.
    """
    compile_once()
    segments = [segment for shard in shards for segment in open_matcher(shard)[0]]
    known = digests_of(classes["digest"])
    by_digest = np.argsort(known)
    boxes, rows, sampled = None, np.empty(0, known.dtype), np.empty(0, np.int32)
    if segments:
        encoded, all_digests = joined_entries(segments)
        entries, conjuncts = plain_entries(encoded)
        digests = np.ascontiguousarray(all_digests[entries]).view(f"S{DIGEST_BYTES}").ravel()
        place = by_digest[np.searchsorted(known, digests, sorter=by_digest) % max(1, len(known))]
        is_class = known[place] == digests
        digests, conjuncts, place = digests[is_class], conjuncts[is_class], place[is_class]
        counts = classes["sampled"].to_numpy()[place]
        order = np.lexsort((digests, counts))
        boxes = PlainBoxes.of(encoded.table, conjuncts[order])
        rows, sampled = digests[order], counts[order]
    arrays = {} if boxes is None else boxes.arrays()
    own = (rows, sampled, np.argsort(rows).astype(np.int32))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, array in {**arrays, **dict(zip(_ROW_ARRAYS, own, strict=True))}.items():
        with whole_file(Path(folder) / f"{name}.npy") as file:
            np.save(file, array)
    return len(rows)


def _opened(folder: str, name: str) -> np.ndarray:
    found: np.ndarray = np.load(Path(folder) / f"{name}.npy", mmap_mode="r").view(np.ndarray)
    return found


def plain_coverings(
    folder: str, share: int, shares: int, bounds: CoveringBounds
) -> Iterator[pa.RecordBatch]:
    """The coverings among plain classes, of every `shares`-th of them from `share` on."""
    digests, sampled = _opened(folder, "digests"), _opened(folder, "sampled")
    if share >= len(digests):
        return
    compile_once()
    boxes = PlainBoxes.from_arrays(
        {name: _opened(folder, name) for name in PlainBoxes.__dataclass_fields__}
    )
    most = min(bounds.proven_max, len(digests))
    at_once = max(1, min(ASKED_AT_ONCE, PAIRS_AT_ONCE_MAX // most))
    for start in range(share, len(digests), shares * at_once):
        asked = np.arange(start, min(start + shares * at_once, len(digests)), shares)
        # A coverer matches at least as many events of the sample.
        least = np.searchsorted(sampled, sampled[asked])
        place, coverer = boxes.first_containers(asked, least, most)
        rank = np.arange(len(place)) - np.searchsorted(place, place)
        coverers = np.bincount(place, minlength=len(asked))[place]
        listed = rank < bounds.coverers_max
        columns = [
            _binary(digests[asked[place[listed]]]),
            _binary(digests[coverer[listed]]),
            pa.array(rank[listed], pa.int32()),
            pa.array(coverers[listed], pa.int32()),
        ]
        yield pa.record_batch(columns, schema=COVERINGS.arrow)


def _binary(digests: np.ndarray) -> pa.Array:
    return binary_rows(np.ascontiguousarray(digests).view(np.uint8).reshape(-1, DIGEST_BYTES))


def split_classes(
    batches: Iterable[pa.RecordBatch], folder: str, *, is_plain: bool
) -> Iterator[pa.RecordBatch]:
    """Of classes with a `digest` those that are plain, or those that are not."""
    digests, by_digest = _opened(folder, "digests"), _opened(folder, "by_digest")
    for batch in batches:
        asked = digests_of(pa.chunked_array([batch["digest"]]))
        place = np.searchsorted(digests, asked, sorter=by_digest)
        known = np.zeros(len(asked), np.bool_)
        inside = place < len(digests)
        known[inside] = digests[by_digest[place[inside]]] == asked[inside]
        yield batch.filter(pa.array(known == is_plain))
