# SPDX-License-Identifier: MIT
"""Looks for leaks: calls every function and method of the package many times, with good and with bad arguments, and compares
the resident memory of the process.

    PYTHONPATH=build/python python tests/python/check_leaks.py [CALLS]

Prints what grows by more than a few bytes for each call. Not a test of the suite: it takes minutes.
"""

import copy
import gc
import pickle
import sys
import tempfile

import loch

CALLS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
SIM = "sim:64MiB"


def resident():
    """Resident bytes of the process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def failing(call, *arguments, **keywords):
    """A call that has to raise."""

    def run():
        try:
            call(*arguments, **keywords)
        except Exception:
            return
        raise SystemExit(f"{call} did not fail")

    return run


class Capsule:
    """An exporter that gives the same thing each time."""

    def __init__(self, result):
        self.result = result

    def __dlpack__(self, **_):
        return self.result() if callable(self.result) else self.result

    def __dlpack_device__(self):
        return (1, 0)


def everything(folder):
    """Pairs of a name and a call, and how much more seldom it is called."""
    tensor, matrix = loch.tensor([1.5, 2.5, 3.5]), loch.arange(12).reshape(3, 4)
    one, half, there = loch.tensor(3), loch.ones(4, "bf16"), loch.ones(4, device=SIM)
    pool, stream, event, device = loch.Pool(limit="64MiB"), loch.Stream(SIM), loch.Event(SIM, timed=True), loch.Device("cpu")
    event.record(stream)
    path = folder + "/x.npy"
    matrix.save(path)

    def session():
        with pool.session("s") as opened:
            opened.alloc(10)
            opened.alloc(20).free()

    def doze():
        pool.sleep("host")
        pool.wake()

    def tagged():
        with loch.tag("t"):
            pool.alloc(1)

    cheap = {
        "empty": lambda: loch.empty((2, 3)),
        "empty bad shape": failing(loch.empty, (1, "a")),
        "empty negative": failing(loch.empty, (-1,)),
        "empty bad type": failing(loch.empty, 3, "nonsense"),
        "empty bad device": failing(loch.empty, 3, device=5),
        "empty bad stream": failing(loch.empty, 3, stream="x"),
        "empty bad pool": failing(loch.empty, 3, pool="x"),
        "zeros in a pool": lambda: loch.zeros(3, pool=pool, tag="x"),
        "full": lambda: loch.full((2,), 5),
        "full too large": failing(loch.full, 2, 2**70, "i8"),
        "tensor": lambda: loch.tensor([[1, 2], [3, 4]]),
        "tensor of floats": lambda: loch.tensor([1.0, True, 3], "f16"),
        "tensor of an array": lambda: loch.tensor(matrix),
        "tensor ragged": failing(loch.tensor, [[1], [2, 3]]),
        "tensor of text": failing(loch.tensor, ["a"]),
        "tensor too large": failing(loch.tensor, [2**64]),
        "arange": lambda: loch.arange(5),
        "from_buffer": lambda: loch.from_buffer(bytearray(10)),
        "from_buffer copy": lambda: loch.from_buffer(b"abc", copy=True),
        "from_buffer bad": failing(loch.from_buffer, 5),
        "from_dlpack": lambda: loch.from_dlpack(matrix),
        "from_dlpack copy": lambda: loch.from_dlpack(matrix, copy=True),
        "from_dlpack legacy": lambda: loch.from_dlpack(Capsule(lambda: matrix.__dlpack__())),
        "from_dlpack bad": failing(loch.from_dlpack, Capsule(5)),
        "from_dlpack nothing": failing(loch.from_dlpack, object()),
        "capsules": lambda: (matrix.__dlpack__(), matrix.__dlpack__(max_version=(1, 0)), matrix.__dlpack__(copy=True)),
        "capsule refused": failing(matrix.__dlpack__, dl_device=(2, 0)),
        "capsule of a device": failing(there.__dlpack__),
        "capsule bad": failing(matrix.__dlpack__, max_version=5),
        "dlpack device": matrix.__dlpack_device__,
        "memoryview": lambda: memoryview(matrix).tolist(),
        "memoryview refused": failing(memoryview, half),
        "bytes": lambda: bytes(matrix.T),
        "properties": lambda: (
            matrix.shape, matrix.strides, matrix.dtype, matrix.device, matrix.ndim, matrix.size, matrix.nbytes,
            matrix.address, matrix.pool, matrix.is_contiguous, matrix.is_read_only, matrix.references, matrix.itemsize,
        ),
        "views": lambda: (
            matrix.T, matrix.view(4, 3), matrix.reshape(2, 6), matrix.T.reshape(-1), matrix.view_as("i32"), matrix.expand(2, 3, 4),
            matrix.slice(0, 1), matrix.index(0, 1), matrix.permute(1, 0), matrix.transpose(), matrix.swapaxes(0, 1),
            matrix.squeeze(), matrix.unsqueeze(0), matrix.chunk(2, 1),
        ),
        "views refused": lambda: [
            failing(matrix.view, 5)(), failing(matrix.T.view, -1)(), failing(matrix.expand, 7)(), failing(matrix.index, 0, 9)(),
            failing(matrix.permute, 0, 0)(), failing(matrix.squeeze, 0)(), failing(matrix.view_as, "x")(), failing(matrix.chunk, 0)(),
        ],
        "indices": lambda: (matrix[0], matrix[1, ::-1], matrix[None, ..., 2], matrix[()], list(matrix)),
        "indices refused": lambda: [failing(matrix.__getitem__, key)() for key in (9, "a", (0, 0, 0), (..., ...), 1.5, slice(0, 1, 0))],
        "assignment": lambda: [matrix.__setitem__(0, value) for value in (1, [1, 2, 3, 4], tensor[0], loch.ones(4))],
        "assignment refused": lambda: [failing(matrix.__setitem__, 0, value)() for value in ("a", [1, 2], 2**70, None, [2**70] * 4)],
        "arrays as indices": lambda: (matrix[[0, 2]], matrix[matrix > 3], matrix.__setitem__([0, 2], 5), failing(matrix.__getitem__, [9])()),
        "numbers": lambda: (matrix.tolist(), one.item(), matrix.item(3), int(one), float(one), bool(one), 3 in matrix, [5][one - one if 0 else 0]),
        "numbers refused": lambda: [failing(call, matrix)() for call in (int, float, bool, loch.Tensor.item)],
        "comparison": lambda: (matrix == matrix, matrix == 3, matrix < 2.5, matrix == None, matrix != 2**70,  # noqa: E711
                               tensor == [1, 2, 3], tensor < range(3), matrix == matrix.to(dtype="f32"), tensor != "text"),
        "comparison refused": lambda: [failing(lambda other=other: matrix == other)() for other in (tensor, [[1], [2, 3]], [2**70])],
        "text": lambda: (str(matrix), repr(matrix), matrix.format(precision=3)),
        "text refused": lambda: [failing(matrix.format, notation="x")(), failing(format, matrix, ".2f")()],
        "format": lambda: (format(one, "5d"), f"{matrix}"),
        "copies": lambda: (matrix.clone(), copy.copy(matrix), copy.deepcopy(matrix), matrix.contiguous(), matrix.T.contiguous()),
        "to": lambda: (matrix.to("cpu"), matrix.to(dtype="f32"), matrix.to(copy=True), matrix.to(pool=pool)),
        "to refused": failing(matrix.to, "nowhere"),
        "fill": lambda: matrix.fill(1),
        "copy_from": lambda: (matrix.copy_from(matrix.clone()), loch.zeros((3, 4), "i8").copy_from(matrix, overflow="saturate")),
        "copy_from refused": failing(matrix.copy_from, tensor),
        "hash": lambda: hash(matrix),
        "device": lambda: (loch.Device("cpu"), device.name, device.properties, device.default_pool, device == "cpu", hash(device), repr(device)),
        "device refused": failing(loch.Device, "nowhere"),
        "devices": loch.devices,
        "stream numbers": lambda: (stream.handle, stream.id, stream.device, stream.query(), stream.__cuda_stream__(), repr(stream)),
        "event": lambda: (event.record(stream), event.query(), event.elapsed_ns(event), stream.wait(event)),
        "event refused": failing(stream.wait, 5),
        "alloc": lambda: pool.alloc(100, tag="x", alignment=64),
        "alloc and free": lambda: pool.alloc(100).free(),
        "alloc refused": failing(pool.alloc, "65MiB"),
        "alloc wrong": failing(pool.alloc, "x"),
        "detach": lambda: pool.free(pool.alloc(10).detach()),
        "free refused": failing(pool.free, 12345),
        "block": lambda: (lambda b: (b.address, b.nbytes, b.freed, b.device, repr(b), b.record_use(None)))(pool.alloc(10)),
        "session": session,
        "tags": tagged,
        "stats": lambda: (pool.stats(), pool.info(), pool.stats("x"), pool.blocks(), pool.report(), repr(pool), hash(pool)),
        "limit": lambda: setattr(pool, "limit", "64MiB"),
        "limit refused": failing(setattr, pool, "limit", "x"),
        "children": lambda: (pool.child("c", limit="2MiB"), pool.children, pool.parent),
        "options": lambda: (loch.options(), loch.get_option("log"), loch.set_option("pool_idle", None), loch.tags()),
        "options refused": failing(loch.get_option, "x"),
        "collect": loch.collect,
    }  # fmt: skip
    slow = {
        "pool": lambda: loch.Pool(limit="1GiB").alloc(10),
        "pool refused": failing(loch.Pool, kind="x"),
        "stream": lambda: loch.Stream(SIM).sync(),
        "event new": lambda: loch.Event(SIM),
        "to a device": lambda: matrix.to(SIM).tolist(),
        "there": lambda: (there.tolist(), there.item(0), str(there), there.clone()),
        "pickle": lambda: [pickle.loads(pickle.dumps(t, p)) for t in (matrix, half) for p in (2, 5)],
        "trim": pool.trim,
        "compact": pool.compact,
        "sleep": doze,
        "load": lambda: loch.load(path),
        "load refused": failing(loch.load, folder + "/none"),
        "save": lambda: matrix.save(path),
        "snapshot": lambda: loch.snapshot(folder + "/s.json"),
    }
    for name, call in cheap.items():
        yield name, call, 10
    for name, call in slow.items():
        yield name, call, 200


def main():
    """Warms each call up, then watches the memory."""
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, call, divisor in everything(folder):
            count = max(CALLS // divisor, 50)
            for _ in range(count):
                call()
            before = resident()
            for _ in range(3 * count):
                call()
            grown = (resident() - before) / (3 * count)
            if grown > 8 and grown * 3 * count > 1 << 19:
                bad += 1
                print(f"{name}: {grown:.1f} bytes for each call")
    print(f"{bad} calls leak" if bad else "no leaks")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
