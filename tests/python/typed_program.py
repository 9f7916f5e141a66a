# SPDX-License-Identifier: MIT
"""A small program of a user's, for mypy --strict: names and types of the package as its stubs tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import loch


def serve(pool: loch.Pool, rows: int) -> float:
    """Uses the parts of the package that a program needs."""
    with loch.tag("activations"):
        hidden: loch.Tensor = loch.zeros((rows, 4), "f32", pool=pool)
    hidden[0] = [1, 2, 3, 4]
    row: loch.Tensor = hidden[0]
    shape: tuple[int, ...] = row.shape
    total = float(row[0]) + row.item(1) + sum(value.item() for value in row) + len(shape)
    with pool.session("request") as session:
        block: loch.Block = session.alloc("64KiB", zeroed=True)
        address: int = block.address
    stats: loch.Stats = pool.stats("activations")
    used: int = stats.requested_bytes + pool.info().reserved_bytes
    rows_of_blocks: list[loch.BlockInfo] = pool.blocks()
    used += rows_of_blocks[0]["requested_bytes"]
    if TYPE_CHECKING:
        used += stats.requested_byte  # type: ignore[attr-defined]  # a mistyped figure is found
    return float(total + used + (address > 0))


def main() -> None:
    """Runs with limits, streams and recordings."""
    device = loch.Device("cpu")
    free: int = device.memory_info().free
    pool = loch.Pool(device, name="engine", limit="1GiB", wipe=True)
    pool.limit = 1 << 30
    stream = loch.Stream(device)
    event = loch.Event(device, timed=True)
    event.record(stream)
    stream.wait(event)
    handles: tuple[int, int] = stream.__cuda_stream__()
    try:
        with pool, loch.record(ring="1MiB") as recording:
            print(serve(pool, 3), free, handles, recording, pool.report())
    except loch.OutOfMemoryError as error:
        sentence: str = error.sentence
        status: str = error.status
        print(sentence, status)
    kind: loch.DType = loch.tensor([1, 2]).dtype
    print(kind == loch.int64, kind.itemsize, memoryview(loch.ones(3)).nbytes)


if __name__ == "__main__":
    main()
