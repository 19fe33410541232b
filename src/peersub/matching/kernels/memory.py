# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Arrays at an address, for inner loops.

numba counts references to every array it is handed, with atomic operations that land in the inner
loops and make threads wait for one another. The kernels therefore take addresses (one *directory*
of them, so that a call costs little) and look at them through arrays that own nothing. Whoever
calls a kernel holds the arrays. Such arrays have no length: nothing checks an index.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import njit
from numba.core import types
from numba.extending import intrinsic

_UNBOUNDED = 1 << 40


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """An integer as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.uint64), generate


@njit(cache=True, nogil=True, inline="always")
def uint8_at(address):
    """The bytes from an address on."""
    return numba.carray(_pointer(np.uint64(address)), (_UNBOUNDED,), np.uint8)


@njit(cache=True, nogil=True, inline="always")
def uint16_at(address):
    """The 16-bit words from an address on."""
    return numba.carray(_pointer(np.uint64(address)), (_UNBOUNDED,), np.uint16)


@njit(cache=True, nogil=True, inline="always")
def int32_at(address):
    """The signed 32-bit words from an address on."""
    return numba.carray(_pointer(np.uint64(address)), (_UNBOUNDED,), np.int32)


@njit(cache=True, nogil=True, inline="always")
def uint32_at(address):
    """The 32-bit words from an address on."""
    return numba.carray(_pointer(np.uint64(address)), (_UNBOUNDED,), np.uint32)


@njit(cache=True, nogil=True, inline="always")
def int64_at(address):
    """The signed 64-bit words from an address on."""
    return numba.carray(_pointer(np.uint64(address)), (_UNBOUNDED,), np.int64)


@njit(cache=True, nogil=True, inline="always")
def uint64_at(address):
    """The 64-bit words from an address on."""
    return numba.carray(_pointer(np.uint64(address)), (_UNBOUNDED,), np.uint64)


def read_only(array: np.ndarray) -> np.ndarray:
    """A read-only plain view: the one kind of input array that kernels are compiled for."""
    view = np.ascontiguousarray(array).view(np.ndarray)[...]
    view.flags.writeable = False
    return view


def address_of(array: np.ndarray) -> int:
    """Where the data of an array begins; the caller keeps the array."""
    return int(array.__array_interface__["data"][0])
