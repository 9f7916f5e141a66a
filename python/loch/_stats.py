# SPDX-License-Identifier: MIT
"""Figures, and what other calls return as dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict


class Figures(dict[str, int]):
    """Figures by name. `figures.blocks` is `figures["blocks"]`."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers know the names

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

    if TYPE_CHECKING:
        allocs: int
        frees: int
        failures: int
        blocks: int
        peak_blocks: int
        requested_bytes: int
        peak_requested_bytes: int
        allocated_bytes: int
        peak_allocated_bytes: int
        largest_bytes: int
        limit_bytes: int
        reserved_bytes: int
        peak_reserved_bytes: int
        cached_bytes: int
        largest_free_bytes: int
        retries: int
        waits_ns: int

    @property
    def fragmentation(self) -> float:
        """Part of the cached bytes that the largest free piece leaves; 0 if nothing is cached or in use."""
        cached = self["cached_bytes"] if self["blocks"] else 0
        return max(0.0, 1 - self["largest_free_bytes"] / cached) if cached else 0.0


class PoolInfo(Figures):
    """Figures of a pool at one moment: loch_pool_info in loch/pool.h."""

    __slots__ = ()

    if TYPE_CHECKING:
        limit_bytes: int
        idle_bytes: int
        reserved_bytes: int
        peak_reserved_bytes: int
        used_bytes: int
        free_bytes: int
        waiting_bytes: int
        thread_bytes: int
        captured_bytes: int
        largest_free_bytes: int
        handles: int
        streams: int
        handles_created: int
        handles_moved: int
        handles_released: int
        events_recorded: int
        waits_on_device: int
        waits_on_host: int
        handles_revived: int
        asleep_bytes: int
        excess_bytes: int


class SessionStats(NamedTuple):
    """Figures of a session."""

    blocks: int
    bytes: int
    peak_bytes: int


class MemoryInfo(NamedTuple):
    """Memory of a device now, in bytes."""

    free: int
    total: int


class BlockInfo(TypedDict):
    """A live block: Pool.blocks."""

    address: int
    requested_bytes: int
    allocated_bytes: int
    id: int
    tag: str
    stream_id: int
    time_ns: int


class Compaction(TypedDict):
    """What Pool.compact did."""

    moves: int
    moved_bytes: int
    joined_bytes: int


class OptionInfo(TypedDict):
    """An option of the library: options."""

    name: str
    environment: str
    type: str
    default: str
    text: str


class DeviceProperties(TypedDict):
    """Device.properties."""

    driver: str
    model: str
    capabilities: frozenset[str]
    index: int
    numa_node: int
    total_bytes: int
    granule_bytes: int
    alignment_bytes: int
    mapping_limit: int
    compute_capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    shared_bytes: int
    bus_id: str
    driver_version: str
