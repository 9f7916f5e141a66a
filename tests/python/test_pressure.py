# SPDX-License-Identifier: MIT
"""Pressure functions, grants and headroom: what a pool does when memory is short."""

import gc
import os
import sys
import threading
import weakref

import loch
import pytest

MIB = 1 << 20


class Cache:
    """Blocks that can be dropped, one for each call."""

    def __init__(self, pool, count, size=MIB):
        self.blocks = [pool.alloc(size) for _ in range(count)]
        self.size, self.calls = size, []

    def evict(self, bytes):
        """Drops one block."""
        self.calls.append(bytes)
        if not self.blocks:
            return 0
        self.blocks.pop().free()
        return self.size


@pytest.fixture
def reported(monkeypatch):
    """What goes to sys.unraisablehook."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: seen.append((report.exc_type, report.object)))
    return seen


def test_a_function_is_called_until_the_request_fits():
    pool = loch.Pool("sim:1GiB", limit="64MiB")
    cache = Cache(pool, 64)
    assert pool.add_pressure(cache.evict) == cache.evict
    block = pool.alloc("4MiB")
    assert cache.calls == [4 * MIB] * 4 and len(cache.blocks) == 60
    pool.remove_pressure(cache.evict)  # another object of the same bound method
    with pytest.raises(loch.OutOfMemoryError) as caught:
        pool.alloc("4MiB")
    assert len(cache.calls) == 4 and caught.value.remedy == "free" and caught.value.attempts == 1
    block.free()


def test_no_function_is_called_for_a_request_that_can_never_fit():
    pool = loch.Pool("sim:1GiB", limit="64MiB")
    cache = Cache(pool, 60)
    pool.add_pressure(cache.evict)
    with pytest.raises(loch.OutOfMemoryError) as caught:
        pool.alloc("65MiB", timeout=1000)
    assert cache.calls == [] and caught.value.remedy == "none" and caught.value.missing_bytes >= MIB


def test_functions_of_a_parent_help_its_children():
    pool = loch.Pool("sim:1GiB", name="server", limit="8MiB")
    cache = Cache(pool, 8)
    child = pool.child("request")
    pool.add_pressure(cache.evict)
    child.alloc("2MiB").free()
    assert len(cache.calls) == 2


@pytest.mark.parametrize("result", [None, "1MiB", 1.5, -1, 1 << 70])
def test_a_result_that_is_no_number_of_bytes_counts_as_nothing(result, reported):
    pool = loch.Pool("sim:1GiB", limit="4MiB")
    held, calls = pool.alloc("4MiB"), []
    pool.add_pressure(lambda bytes: calls.append(bytes) or result)
    with pytest.raises(loch.OutOfMemoryError):
        pool.alloc("1MiB")
    assert len(calls) == 1 and len(reported) == 1
    assert issubclass(reported[0][0], (TypeError, OverflowError))
    held.free()


def test_an_exception_is_reported_and_counts_as_nothing(reported):
    pool = loch.Pool("sim:1GiB", name="full", limit="4MiB")
    held = pool.alloc("4MiB")

    def fails(bytes):
        loch.Pool("sim:1GiB", name="other", limit="2MiB").alloc("4MiB")  # leaves another error of the same kind

    def frees(bytes):
        held.free()
        return 4 * MIB

    pool.add_pressure(fails)
    with pytest.raises(loch.OutOfMemoryError, match='pool "full" is at its limit') as caught:
        pool.alloc("1MiB")
    assert caught.value.owner == "full"
    assert reported == [(loch.OutOfMemoryError, fails)]
    pool.add_pressure(frees)  # the next one is asked nevertheless
    pool.alloc("1MiB").free()
    assert len(reported) == 2


def test_wrong_uses(reported):
    pool = loch.Pool("sim:1GiB", limit="4MiB")
    with pytest.raises(TypeError):
        pool.add_pressure(5)
    with pytest.raises(TypeError):
        pool.add_pressure()

    @pool.add_pressure
    def evict(bytes):
        return 0

    with pytest.raises(loch.Error) as caught:
        pool.add_pressure(evict)
    assert caught.value.status == "E_EXISTS"
    pool.remove_pressure(evict)
    with pytest.raises(loch.Error) as caught:
        pool.remove_pressure(evict)
    assert caught.value.status == "E_NOT_FOUND"
    pool.close()
    for call in (pool.add_pressure, pool.remove_pressure):
        with pytest.raises(ValueError):
            call(evict)

    class Strange:
        def __eq__(self, other):
            raise RuntimeError("not comparable")

        def __call__(self, bytes):
            return 0

    pool, strange = loch.Pool("sim:1GiB"), Strange()
    pool.add_pressure(strange)
    with pytest.raises(RuntimeError, match="not comparable"):
        pool.remove_pressure(evict)
    pool.remove_pressure(strange)
    assert reported == []


# --- lifetimes ---


def test_functions_end_with_their_pool_object():
    parent = loch.Pool("sim:1GiB", limit="4MiB")
    held, calls = parent.alloc("4MiB"), []
    for end in (lambda pool: pool.close(), lambda pool: None):
        other = loch.Pool("sim:1GiB", limit="4MiB")
        child, block = other.child(), other.alloc("4MiB")
        function = lambda bytes: calls.append(bytes) or 0  # noqa: E731
        watched = weakref.ref(function)
        other.add_pressure(function)
        del function
        assert watched() is not None
        end(other)
        del other
        assert watched() is None
        with pytest.raises(loch.OutOfMemoryError):
            child.alloc("1MiB")
        block.free()
    assert calls == []
    held.free()


def test_a_cycle_through_a_function_is_collected():
    pool = loch.Pool("sim:1GiB", limit="4MiB")
    pool.add_pressure(lambda bytes: pool.trim())
    watched = weakref.ref(pool)
    child = pool.child()
    del pool
    gc.collect()
    assert watched() is None
    with pytest.raises(loch.OutOfMemoryError):
        child.alloc("5MiB")


def test_references_are_balanced(reported):
    pool = loch.Pool("sim:1GiB", limit="4MiB")
    held = pool.alloc("4MiB")

    def evict(bytes):
        return 0

    before = sys.getrefcount(evict)
    for _ in range(50):
        pool.add_pressure(evict)
        with pytest.raises(loch.OutOfMemoryError):
            pool.alloc("1MiB")
        pool.remove_pressure(evict)
    assert sys.getrefcount(evict) == before
    held.free()


def test_a_function_may_remove_itself_or_close_the_pool(reported):
    for end in (lambda pool, function: pool.remove_pressure(function), lambda pool, function: pool.close()):
        pool = loch.Pool("sim:1GiB", limit="4MiB")
        child, held, calls = pool.child(), pool.alloc("4MiB"), []

        def once(bytes):
            calls.append(bytes)
            end(pool, once)
            return 1  # not nothing: it would be called again

        pool.add_pressure(once)
        for _ in range(2):
            with pytest.raises(loch.OutOfMemoryError):
                child.alloc("1MiB")
        assert calls == [MIB]
        held.free()
    assert reported == []


def test_a_function_may_drop_the_last_reference_of_its_pool(reported):
    pools, calls = [loch.Pool("sim:1GiB", limit="4MiB")], []
    child, held = pools[0].child(), pools[0].alloc("4MiB")

    def drop(bytes):
        calls.append(bytes)
        pools.clear()
        held.free()
        return 4 * MIB

    pools[0].add_pressure(drop)
    child.alloc("1MiB").free()
    assert calls == [MIB] and reported == []


# --- threads and processes ---


def test_threads_allocate_while_functions_come_and_go(reported):
    pool = loch.Pool("sim:1GiB", limit="8MiB")
    stop, failures = threading.Event(), []
    cache, lock = [], threading.Lock()

    def evict(bytes):
        with lock:
            if not cache:
                return 0
            cache.pop().free()
        return MIB

    def allocate():
        try:
            while not stop.is_set():
                try:
                    block = pool.alloc("1MiB", timeout=0.01)
                except loch.OutOfMemoryError:
                    continue
                with lock:
                    cache.append(block)
        except BaseException as error:  # noqa: BLE001: shown by the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=allocate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        pool.add_pressure(evict)
        pool.stats()
        pool.remove_pressure(evict)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == [] and reported == []
    cache.clear()


def test_a_forked_child_does_not_call_what_it_inherited():
    pool = loch.Pool("cpu", limit="4MiB")
    held, calls = pool.alloc("4MiB"), []
    pool.add_pressure(lambda bytes: calls.append(bytes) or 0)
    child = os.fork()
    if child == 0:
        try:
            pool.alloc("1MiB")
        except loch.Error:
            os._exit(len(calls))
        os._exit(99)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(loch.OutOfMemoryError):
        pool.alloc("1MiB")
    assert len(calls) == 1
    held.free()


# --- grants and headroom ---


def test_a_grant_is_raised_by_a_function():
    pool = loch.Pool("sim:1GiB", name="member")
    pool.set_grant("2MiB", "8MiB")
    assert pool.limit == 2 * MIB
    with pytest.raises(loch.OutOfMemoryError) as caught:
        pool.alloc("4MiB")
    assert caught.value.remedy == "free"  # more may be granted
    with pytest.raises(loch.OutOfMemoryError) as caught:
        pool.alloc("9MiB")
    assert caught.value.remedy == "none" and caught.value.owner == "member"

    def ask(bytes):
        pool.set_grant(limit="8MiB", granted=pool.limit + bytes)
        return bytes

    pool.add_pressure(ask)
    pool.alloc("4MiB").free()
    assert pool.limit == 6 * MIB
    with pytest.raises(ValueError):
        pool.set_grant("9MiB", "8MiB")
    with pytest.raises(TypeError):
        pool.set_grant()
    pool.limit = None
    pool.alloc("9MiB").free()


@pytest.mark.parametrize("headroom", [None, 8 * MIB, "8MiB"])
def test_headroom_is_an_argument_of_children(headroom):
    device = loch.Device("sim:64MiB,granule=64KiB,id=31")
    child = loch.Pool(device).child(headroom=headroom)
    blocks = [child.alloc("2MiB") for _ in range(22)]
    for block in blocks[::2]:
        block.free()  # 22 MiB are idle, in pieces of 2 MiB
    other = loch.Pool(device).alloc("19MiB")
    assert device.memory_info().free < 8 * MIB
    block = child.alloc("3MiB")  # takes memory, so it looks at the device
    assert (device.memory_info().free >= 8 * MIB) == (headroom is not None)
    for block in [block, other, *blocks[1::2]]:
        block.free()
    with pytest.raises(ValueError):
        child.child(headroom="much")
