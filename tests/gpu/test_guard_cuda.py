# SPDX-License-Identifier: MIT
"""Guards of Loch and the CUDA runtime of PyTorch and CuPy in one process: what they queue inside a guard lands on the seat's GPU.

Run by scripts/gpu-test; nothing here is skipped. Engines and contexts are called by ctypes: the package has no engines.
"""

import ctypes
import threading

import cupy
import loch
import pytest
import torch

library = ctypes.CDLL(loch.get_library())
cuda = ctypes.CDLL("libcuda.so.1")
runtime = cupy.cuda.runtime


class Device(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("limit_bytes", ctypes.c_size_t),
                ("limit_fraction", ctypes.c_double), ("spare_bytes", ctypes.c_size_t)]  # fmt: skip


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("devices", ctypes.c_void_p),
                ("devices_count", ctypes.c_size_t)]  # fmt: skip


class Seat(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint)]


class Guard(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("number", ctypes.c_uint64)]


FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, Seat, ctypes.c_void_p)
library.loch_context_begin_seat.argtypes = [ctypes.c_void_p, Seat, ctypes.c_int, ctypes.POINTER(Guard)]
library.loch_engine_for_each.argtypes = [ctypes.c_void_p, FUNCTION, ctypes.c_void_p, ctypes.c_void_p]
library.loch_guard_end.argtypes = [ctypes.POINTER(Guard)]
library.loch_guard_end.restype = None
for name in ("loch_context_open", "loch_engine_open", "loch_context_close", "loch_engine_close"):
    getattr(library, name).argtypes = {
        "loch_engine_open": [ctypes.POINTER(Options), ctypes.POINTER(ctypes.c_void_p)],
        "loch_context_open": [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)],
        "loch_context_close": [ctypes.c_void_p],
        "loch_engine_close": [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    }[name]


def current():
    """The thread's current CUDA context; None for none."""
    context = ctypes.c_void_p(1)
    assert cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value


def primary():
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuDevicePrimaryCtxRelease_v2(0) == 0
    return context.value


@pytest.fixture
def engine():
    """On the GPU. Structures of Loch carry their size, so their first members are enough."""
    torch.zeros(1, device="cuda:0")
    device = Device(ctypes.sizeof(Device), b"cuda:0", 64 << 20)
    options = Options(ctypes.sizeof(Options), b"guards", ctypes.addressof(device), 1)
    made = ctypes.c_void_p()
    assert library.loch_engine_open(ctypes.byref(options), ctypes.byref(made)) == 0
    yield made
    assert library.loch_engine_close(made, 0, None, None, None) == 0


def in_fresh_thread(function):
    """Runs a function in a thread that has never used CUDA."""
    failures = []

    def run():
        try:
            function()
        except BaseException as failure:  # noqa: BLE001: handed on
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


class Guarded:
    """A context of the calling thread, and a guard on its first seat."""

    def __init__(self, engine):
        self.context = ctypes.c_void_p()
        self.guard = Guard()
        assert library.loch_context_open(engine, None, ctypes.byref(self.context)) == 0

    def __enter__(self):
        assert library.loch_context_begin_seat(self.context, Seat(0), 0, ctypes.byref(self.guard)) == 0

    def __exit__(self, *_):
        library.loch_guard_end(ctypes.byref(self.guard))
        assert library.loch_context_close(self.context) == 0


def test_a_fresh_thread_has_the_context_inside_alone(engine):
    def body():
        assert current() is None
        with Guarded(engine):
            assert current() == primary()
            assert runtime.getDevice() == 0
        assert current() is None

    in_fresh_thread(body)


@pytest.mark.parametrize("who", ["torch", "cupy"])
def test_what_is_queued_inside_lands_on_the_seat(engine, who):
    def body():
        assert current() is None
        with Guarded(engine):
            context = current()
            assert context == primary()
            if who == "torch":
                made = torch.arange(1000, device="cuda").mul_(2)
                assert made.get_device() == 0 and made.sum().item() == 999000
                address = made.data_ptr()
            else:
                made = cupy.arange(1000) * 2
                assert made.device.id == 0 and int(made.sum()) == 999000
                address = made.data.ptr
            assert current() == context
            owner = ctypes.c_void_p()
            assert cuda.cuPointerGetAttribute(ctypes.byref(owner), 1, ctypes.c_uint64(address)) == 0  # its context
            assert owner.value == context
            del made
        assert current() is None

    in_fresh_thread(body)


def test_what_the_runtime_sets_inside_ends_with_the_guard(engine):
    def body():
        assert current() is None
        with Guarded(engine):
            runtime.setDevice(0)
            torch.cuda.set_device(0)
        assert current() is None

    in_fresh_thread(body)


def test_for_each_and_workers(engine):
    seen = []

    @FUNCTION
    def look(_engine, _seat, _user):
        seen.append((current(), int(cupy.arange(10).sum())))
        return 0

    before = current()
    for _ in range(3):
        assert library.loch_engine_for_each(engine, look, None, None) == 0
    assert seen == [(primary(), 45)] * 3
    assert current() == before
