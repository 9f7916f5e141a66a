# SPDX-License-Identifier: MIT
"""Figures: dictionaries whose entries are attributes too."""

from __future__ import annotations

from typing import Any, NamedTuple


class Figures(dict[str, int]):
    """Figures by name. `figures.blocks` is `figures["blocks"]`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> int:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no figure {name!r}: {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict.__repr__(self)})"

    def __reduce__(self) -> tuple[Any, tuple[dict[str, int]]]:
        return type(self), (dict(self),)


class Stats(Figures):
    """Statistics of a pool or of a tag: the list in loch/stats.h."""

    __slots__ = ()

    @property
    def fragmentation(self) -> float:
        """Part of the cached bytes that the largest free piece leaves; 0 if nothing is cached or in use."""
        cached = self["cached_bytes"] if self["blocks"] else 0
        return max(0.0, 1 - self["largest_free_bytes"] / cached) if cached else 0.0


class PoolInfo(Figures):
    """Figures of a pool at one moment: loch_pool_info in loch/pool.h."""

    __slots__ = ()


class SessionStats(NamedTuple):
    """Figures of a session."""

    blocks: int
    bytes: int
    peak_bytes: int


class MemoryInfo(NamedTuple):
    """Memory of a device now, in bytes."""

    free: int
    total: int
