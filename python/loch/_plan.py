# SPDX-License-Identifier: MIT
"""Plans: offsets for buffers whose sizes and lives are known in advance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from . import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Plan(NamedTuple):
    """Offsets of buffers, in their order, and what is known of the height."""

    offsets: tuple[int, ...]
    """First byte of each buffer."""
    height: int
    """Bytes that all buffers need together."""
    lower_bound: int
    """Bytes that every plan needs, as far as proven."""
    is_best: bool
    """Whether it is proven that no plan has a smaller height."""


def plan(
    buffers: Iterable[Sequence[int]],
    *,
    capacity: int | str | None = None,
    time_limit: float | None = None,
    threads: int = 1,
    method: Literal["auto", "fast", "greedy"] = "auto",
) -> Plan:
    """Computes offsets for buffers (bytes, first, last) or (bytes, first, last, alignment).

    A buffer lives from `first` to `last`, exclusive, in any unit of time. With a `capacity` the first plan that fits is taken;
    loch.Error with the status E_LIMIT says that there is none, E_BUSY that none was found in time. Without one the smallest
    height is searched for `time_limit` seconds (10).
    """
    return Plan(*_core.plan(tuple(map(tuple, buffers)), capacity, time_limit, threads, method))
