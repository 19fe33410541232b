"""Batches on the wire: name, promise, numbers of the events, columns as an Arrow stream."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, defstruct

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import (
    BATCH_ID_BYTES_MAX,
    BATCH_ROWS_MAX,
    NAME_BYTES_MORE,
    row_key,
    split_name,
)
from peersub.overlays.core.publication import Delivery
from peersub.wire.errors import WireError
from peersub.wire.limits import BATCH_BYTES_MAX

__all__ = ["BATCH", "read_batch", "write_batch"]

_NUMBER_TYPE: Final = "<u4"
_NAME_BYTES_MAX: Final = BATCH_ID_BYTES_MAX + NAME_BYTES_MORE

BATCH: Final = defstruct(
    "BATCH",
    [
        (
            "name",
            Annotated[str, Meta(min_length=1, max_length=BATCH_ID_BYTES_MAX + NAME_BYTES_MORE)],
        ),
        ("delivery", Delivery),
        ("total", Annotated[int, Meta(ge=1, le=BATCH_ROWS_MAX)]),
        ("numbers", Annotated[bytes, Meta(max_length=4 * BATCH_ROWS_MAX)]),
        ("packed", Annotated[bytes, Meta(max_length=BATCH_BYTES_MAX)]),
    ],
    array_like=True,
    frozen=True,
    gc=False,
)


def read_batch(form: Any, _: int) -> Batch:
    """From what msgspec read as BATCH; the columns stay packed.

    Raises:
        WireError: the numbers are none, or this node has no NumPy: it offers no batches.
    """
    try:
        import numpy as np
    except ImportError:
        raise WireError("this node takes no batches: it has no NumPy") from None
    if len(form.numbers) % 4:
        raise WireError("the numbers of a batch are cut off")
    key, batch_id = split_name(form.name)
    if not 0 < len(batch_id.encode()) <= BATCH_ID_BYTES_MAX:
        raise WireError(f"the id of a batch has 1 to {BATCH_ID_BYTES_MAX} bytes")
    numbers = np.frombuffer(form.numbers, _NUMBER_TYPE)
    return Batch(
        batch_id,
        numbers,
        form.total,
        delivery=form.delivery,
        packed=form.packed,
        key=None if key is None else row_key(key, 0),
    )


def write_batch(batch: Batch) -> tuple[Any, ...]:
    """To what msgspec writes as BATCH.

    Raises:
        WireError: it is too large.
    """
    packed = batch.packed
    if len(packed) > BATCH_BYTES_MAX:
        raise WireError(f"a batch of {len(packed):,} bytes is larger than {BATCH_BYTES_MAX:,}")
    numbers = batch.numbers.astype(_NUMBER_TYPE, copy=False).tobytes()
    return (batch.name, batch.delivery, batch.total, numbers, packed)
