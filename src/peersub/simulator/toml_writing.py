"""Plain values as TOML: what a scenario file needs, and no more. Reading is Python's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from math import isfinite
from typing import Any

__all__ = ["Inline", "toml_text"]


def toml_text(table: Mapping[str, Any]) -> str:
    """The table as a TOML document: values first, then tables, then lists of tables.

    >>> print(toml_text({"a": 1, "b": {"c": "x"}, "d": [{"e": [1, 2]}]}), end="")
    a = 1
    <BLANKLINE>
    [b]
    c = "x"
    <BLANKLINE>
    [[d]]
    e = [1, 2]

    Raises:
        ValueError: a value that TOML has no form for.
    """
    return "\n".join(_lines(table, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for name, value in table.items():
        if not _is_table(value) and not _is_list_of_tables(value):
            yield f"{_key(name)} = {_value(value)}"
    for name, value in table.items():
        inner = (*path, _key(name))
        if _is_table(value) and value:
            yield from ("", f"[{'.'.join(inner)}]", *_lines(value, inner))
        elif _is_list_of_tables(value):
            for each in value:
                yield from ("", f"[[{'.'.join(inner)}]]", *_lines(each, inner))


def _is_table(value: Any) -> bool:
    # A small table inside of a list of tables stays on its line: see `Inline`.
    return isinstance(value, Mapping) and not isinstance(value, Inline)


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(_is_table(e) for e in value)


class Inline(dict[str, Any]):
    """A table that is written within one line."""


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if isfinite(value) else repr(value).replace("Infinity", "inf")
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise ValueError(f"TOML has no form for {value!r}")
