# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Vector and bit instructions that numba has no function for.

``columns_test`` tests 64 bytes at once: LLVM lowers its 64-lane vector to whatever the processor
has (two registers with AVX2). Loads are unaligned and may run up to 63 bytes past the position of
interest, so every array that is scanned is padded by ``VECTOR_BYTES``.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

VECTOR_BYTES = 64
LINE_BYTES = 4096 + 2 * VECTOR_BYTES
"""A column of a block of 4096 events, padded so that columns do not share cache sets."""
_BYTE = ir.IntType(8)
_INDEX = ir.IntType(32)
_WORD = ir.IntType(64)
_BYTES = ir.VectorType(_BYTE, VECTOR_BYTES)


def _element_address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _broadcast(builder: Any, byte: Any) -> Any:
    undefined = ir.Constant(_BYTES, ir.Undefined)
    first = builder.insert_element(undefined, byte, _INDEX(0))
    return builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(_INDEX, VECTOR_BYTES), [0] * VECTOR_BYTES)
    )


def _opaque(builder: Any, word: Any) -> Any:
    """The same word, out of an empty assembly statement.

    It keeps LLVM from carrying a mask across branches as 64 separate lanes.
    """
    return builder.asm(ir.FunctionType(_WORD, [_WORD]), "", "=r,0", [word], side_effect=False)


@intrinsic
def opaque(typing_context: Any, word: Any) -> Any:
    """The same word, of which LLVM knows nothing: a loop that steps by it is not vectorised."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _opaque(builder, arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def columns_test(
    typing_context: Any, columns: Any, at: Any, places: Any, lows: Any, widths: Any
) -> Any:
    """Bit i is set where four column tests hold for position ``at + i``, for 64 positions.

    A test is ``uint8(columns[LINE_BYTES * place + at + i] - low) <= width``, with the place, low
    and width in one of the four lowest bytes of the three words. One function does all four so
    that the lanes stay in vector registers until the end.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        columns, at, places, lows, widths = arguments
        inside = []
        for test in range(4):
            move = ir.Constant(_WORD, 8 * test)
            place = builder.and_(builder.lshr(places, move), ir.Constant(_WORD, 255))
            index = builder.add(builder.mul(place, ir.Constant(_WORD, LINE_BYTES)), at)
            address = _element_address(context, builder, signature.args[0], columns, index)
            cells = builder.load(builder.bitcast(address, _BYTES.as_pointer()), align=1)
            low = _broadcast(builder, builder.trunc(builder.lshr(lows, move), _BYTE))
            width = _broadcast(builder, builder.trunc(builder.lshr(widths, move), _BYTE))
            inside.append(builder.icmp_unsigned("<=", builder.sub(cells, low), width))
        passed = functools.reduce(builder.and_, inside)
        return _opaque(builder, builder.bitcast(passed, _WORD))

    word = types.uint64
    return word(columns, word, word, word, word), generate


@intrinsic
def entries_test(
    typing_context: Any, bounds: Any, line: Any, at: Any, first: Any, second: Any
) -> Any:
    """Bit i is set where two bytes lie within the bounds of entry ``at + i``, for 64 entries.

    ``bounds`` is four lines of ``line`` bytes: lows and widths for the first byte, then for the
    second.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bounds, line, at, *values = arguments
        position = at
        loaded = []
        for _ in range(4):
            address = _element_address(context, builder, signature.args[0], bounds, position)
            pointer = builder.bitcast(address, _BYTES.as_pointer())
            loaded.append(builder.load(pointer, align=1))
            position = builder.add(position, line)
        inside = [
            builder.icmp_unsigned("<=", builder.sub(_broadcast(builder, value), low), width)
            for value, low, width in zip(values, loaded[::2], loaded[1::2], strict=True)
        ]
        return _opaque(builder, builder.bitcast(builder.and_(*inside), _WORD))

    word, byte = types.uint64, types.uint8
    return word(bounds, word, word, byte, byte), generate


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """The position of the lowest set bit of a word that is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def prefetch(typing_context: Any, values: Any, index: Any) -> Any:
    """Ask for the cache line of ``values[index]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _element_address(context, builder, signature.args[0], arguments[0], arguments[1])
        pointer = _BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _INDEX, _INDEX, _INDEX])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(function, [builder.bitcast(address, pointer), _INDEX(0), _INDEX(3), _INDEX(1)])
        return context.get_dummy_value()

    return types.void(values, types.uint64), generate
