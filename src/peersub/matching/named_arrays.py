"""Arrays by name, in groups that share a prefix: how the parts of a segment lie in one folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

__all__ = ["WithPrefix", "prefixed"]


def prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same arrays under names that start with a prefix."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


class WithPrefix(Mapping[str, np.ndarray]):
    """The arrays whose names start with a prefix, by the rest of their names."""

    def __init__(self, prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
        self._prefix = f"{prefix}."
        self._arrays = arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        size = len(self._prefix)
        return (name[size:] for name in self._arrays if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
