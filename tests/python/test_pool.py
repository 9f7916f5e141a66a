# SPDX-License-Identifier: MIT
"""Pools, blocks, sessions, tags, limits, statistics, sleep."""

import ast
import gc
import inspect
import pickle
import threading

import loch
import numpy as np
import pytest

MIB = 1 << 20


# --- limits and errors ---


@pytest.mark.parametrize("limit", [64 * MIB, "64MiB", "64 MiB", "64M", "65536KiB", "0.0625GiB", np.int64(64 * MIB)])
def test_limits_are_numbers_or_text(limit):
    pool = loch.Pool(limit=limit, name="limited")
    assert pool.limit == 64 * MIB
    pool.limit = None
    assert pool.limit is None and loch.Pool().limit is None
    pool.limit = limit
    assert pool.limit == 64 * MIB and pool.info().limit_bytes == 64 * MIB


@pytest.mark.parametrize("wrong", ["", "GiB", "-1", "1.5B", "12 apples", "1e400", "12XiB", "0x10", "nan", -1])
def test_sizes_that_are_none(wrong):
    with pytest.raises((ValueError, OverflowError)):
        loch.Pool(limit=wrong)
    with pytest.raises((ValueError, OverflowError)):
        loch.Pool().alloc(wrong)


def test_text_means_what_it_means_in_options():
    """"40GB" is not "40GiB", here and in an option of the library."""
    texts = ["1", "7B", "3k", "3K", "3KB", "3kib", "2MB", "2MiB", "2M", "1.5GiB", "0.5GB", "1T", "1PiB", "9007199254740993", "0.123456M",
             "1.", ".5G", "1.5", "1.1234567G", "5X", "5Ki", "5KiBB", "1e3", "1,5G", "20000000000000000000", "17000000TiB"]  # fmt: skip
    for number, text in enumerate(texts):
        try:
            loch.set_option("pool_limit", text)  # of the pool of a device that nothing has used yet
            expected = loch.Device(f"sim:1GiB,id={4000 + number}").default_pool.limit
        except loch.Error:
            expected = None
        finally:
            loch.set_option("pool_limit", None)
        if expected is None:
            with pytest.raises((ValueError, OverflowError)):
                loch.Pool(limit=text)
        else:
            assert loch._core.read_bytes(text) == expected, text
    assert loch.Pool(limit="2GB").limit == 2 * 10**9


@pytest.mark.parametrize("device", ["cpu", "sim:64MiB"])
def test_limits_that_never_serve_a_request(device):
    """They are refused where they are set, with the reason. The least limit that is taken serves one."""
    pool = loch.Pool(device)
    limited = loch.Pool(device, limit="8MiB")
    for wrong, why in ((0, "None is no limit"), ("0GiB", "None is no limit"), (1 << 20, "a limit of 1 MiB .* units of 2 MiB")):
        for call in (lambda: loch.Pool(device, limit=wrong), lambda: pool.child(limit=wrong),
                     lambda: setattr(limited, "limit", wrong)):  # fmt: skip
            with pytest.raises(ValueError, match=why):
                call()
    assert limited.limit == 8 * MIB and pool.children == []
    for least in (loch.Pool(device, limit="2MiB"), pool.child(limit="2MiB"), pool.child(kind="range", limit="16KiB")):
        assert least.alloc(1).nbytes == 1
    with pytest.raises(ValueError, match="too small"):
        pool.child(kind="range", limit=100)
    with pytest.raises(ValueError, match="None is no limit"):
        pool.set_grant("2MiB", 0)
    assert loch.Pool("sim:64MiB", kind="pinned", limit="16KiB").alloc(1).nbytes == 1


@pytest.mark.parametrize("wrong", [1.5, [], object(), b"1GiB"])
def test_things_that_are_no_sizes(wrong):
    with pytest.raises(TypeError):
        loch.Pool(limit=wrong)


def test_out_of_memory_is_a_memory_error():
    pool = loch.Pool(limit="4MiB", name="small")
    with pytest.raises(loch.OutOfMemoryError) as caught:
        pool.alloc("8MiB")
    error = caught.value
    assert isinstance(error, MemoryError) and isinstance(error, loch.Error) and isinstance(error, RuntimeError)
    assert error.status == "E_LIMIT" and "small" in error.sentence and "4 MiB" in str(error)
    with pytest.raises(MemoryError):
        loch.zeros((4 * MIB,), "f32", pool=pool)
    assert pool.alloc("1MiB").nbytes == MIB  # the program goes on


def test_wrong_words():
    for wrong in ({"kind": "fast"}, {"preset": "best"}, {"captures": "maybe"}, {"share": "all"}):
        with pytest.raises(ValueError, match=next(iter(wrong.values()))):
            loch.Pool(**wrong)
    with pytest.raises(TypeError):
        loch.Pool("cpu", "positional name")
    for device in ("no such device", "gpu:0"):
        with pytest.raises(LookupError) as caught:
            loch.Pool(device)
        assert isinstance(caught.value, loch.Error) and not isinstance(caught.value, OSError)
    with pytest.raises(TypeError):
        loch.Pool(7)


# --- blocks ---


def test_blocks():
    pool = loch.Pool(name="blocks")
    block = pool.alloc(1000, alignment=4096, tag="raw")
    assert block.address % 4096 == 0 and block.nbytes == 1000 and block.device == "cpu" and not block.freed
    assert [row["requested_bytes"] for row in pool.blocks()] == [1000]
    assert pool.blocks()[0]["address"] == block.address and pool.blocks()[0]["tag"] == "raw"
    block.free()
    assert block.freed and pool.stats().blocks == 0
    with pytest.raises(ValueError, match="freed"):
        block.free()
    with pytest.raises(loch.Error, match="freed"):
        _ = block.address
    assert "freed" in repr(block)


def test_a_block_is_freed_with_its_object():
    pool = loch.Pool()
    block = pool.alloc(100)
    assert pool.stats().blocks == 1
    del block
    assert pool.stats().blocks == 0
    with pool.alloc(100) as block:
        assert pool.stats().blocks == 1
    assert block.freed and pool.stats().blocks == 0
    with pool.alloc(100) as block:
        block.free()  # the end of `with` finds it free


def test_a_detached_block_is_freed_by_its_address():
    pool = loch.Pool()
    block = pool.alloc(100)
    address = block.detach()
    del block
    assert pool.stats().blocks == 1
    pool.free(address)
    assert pool.stats().blocks == 0
    for wrong in (address, address + 8, 12345678):
        with pytest.raises(loch.Error) as caught:
            pool.free(wrong)
        assert caught.value.status in ("E_DOUBLE_FREE", "E_FOREIGN", "E_INTERIOR")
    with pytest.raises(TypeError):
        pool.free("address")
    with pytest.raises(OverflowError):
        pool.free(2**70)


def test_empty_and_zeroed_blocks():
    pool = loch.Pool()
    assert pool.alloc(0).address == 0
    import ctypes

    block = pool.alloc(4096, zeroed=True)
    assert ctypes.string_at(block.address, 4096) == bytes(4096)


def test_a_block_of_one_handle():
    pool = loch.Pool("sim:64MiB", name="registered")
    weights = pool.alloc("3MiB", one_handle=True, zeroed=True)
    assert pool.stats()["allocated_bytes"] == 4 << 20  # two granules
    with pytest.raises(loch.OutOfMemoryError):
        pool.alloc("62MiB", one_handle=True)
    del weights


def test_blocks_outlive_their_pool():
    pool = loch.Pool(name="gone")
    block, tensor = pool.alloc(1000), loch.ones(10, pool=pool)
    pool.close()
    assert pool.closed and "closed" in repr(pool)
    del pool
    gc.collect()
    assert tensor.tolist() == [1] * 10 and tensor.pool.name == "gone"
    block.free()


def test_a_closed_pool_says_so():
    with loch.Pool() as pool:
        pass
    calls = [
        pool.stats, pool.info, pool.report, pool.trim, pool.compact, pool.sleep, pool.wake, pool.blocks, pool.child,
        pool.session, lambda: pool.alloc(1), lambda: pool.free(0), lambda: pool.name, lambda: pool.device,
        lambda: pool.limit, lambda: pool.children, lambda: loch.zeros(3, pool=pool), lambda: setattr(pool, "limit", 5),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()
    pool.close()  # twice is once


# --- children ---


def test_children():
    parent = loch.Pool(limit="64MiB", name="parent")
    child = parent.child("tenant", limit="8MiB", minimum="2MiB")
    assert child.parent == parent and parent.children == [child] and hash(child.parent) == hash(parent)
    with pytest.raises(loch.OutOfMemoryError, match="tenant"):
        child.alloc("16MiB")
    part = parent.child("range", kind="range", limit="1MiB")
    assert part.alloc(1000).nbytes == 1000
    with pytest.raises(loch.Error):
        parent.child(minimum="65MiB")
    del child, part
    gc.collect()
    assert parent.children == []


# --- tags and statistics ---


def test_tags_of_the_thread():
    pool = loch.Pool()
    with loch.tag("weights"):
        weights = loch.zeros(1000, "f32", pool=pool)
        with loch.tag("inner"):
            inner = pool.alloc(10)
        other = loch.zeros(10, "u8", pool=pool, tag="named")
    untagged = pool.alloc(5)
    assert pool.stats("weights").requested_bytes == 4000 and pool.stats("inner").requested_bytes == 10
    assert pool.stats("named").requested_bytes == 10
    assert pool.stats().requested_bytes == 4025
    assert {"weights", "inner", "named"} <= set(loch.tags())
    seen = []
    with loch.tag("mine"):
        thread = threading.Thread(target=lambda: seen.append(loch._core.thread_tag()))
        thread.start()
        thread.join()
    assert seen == [None]  # other threads have their own
    del weights, inner, other, untagged


def test_a_tag_decorates_and_survives_exceptions():
    pool = loch.Pool()
    kept = []

    @loch.tag("decorated")
    def allocate(depth):
        kept.append(pool.alloc(100))
        if depth:
            allocate(depth - 1)

    allocate(3)
    assert pool.stats("decorated").blocks == 4
    with pytest.raises(RuntimeError, match="inside"), loch.tag("failing"):
        raise RuntimeError("inside")
    assert loch._core.thread_tag() is None
    for wrong in ("", "x" * 64):
        with pytest.raises(ValueError), loch.tag(wrong):
            pass
    with pytest.raises(TypeError):
        loch.tag(5)


def test_statistics_are_attributes_and_entries():
    pool = loch.Pool(name="figures")
    block = pool.alloc(3000)
    stats = pool.stats()
    assert stats.blocks == stats["blocks"] == 1 and stats.peak_requested_bytes == 3000
    assert 0 <= stats.fragmentation <= 1 and "blocks" in dir(stats)
    with pytest.raises(AttributeError, match="no figure"):
        _ = stats.nonsense
    import json
    import pickle

    assert json.loads(json.dumps(stats)) == dict(stats)
    assert pickle.loads(pickle.dumps(stats)) == stats
    info = pool.info()
    assert info.used_bytes >= 3000 and info.reserved_bytes >= info.used_bytes
    assert "figures" in pool.report()
    block.free()
    assert pool.stats().cached_bytes > 0 and pool.stats().fragmentation == 0  # nothing lies between free pieces
    pool.reset_stats()
    assert pool.stats().peak_requested_bytes == 0 and pool.trim() > 0 and pool.info().reserved_bytes == 0
    report = pool.compact()
    assert report["moves"] == 0


def test_types_of_figures_are_whole():
    """What type checkers know of a dictionary is what it has."""
    pool = loch.Pool()
    block = pool.alloc(10)
    tree = ast.parse(inspect.getsource(loch._stats))
    known = {node.name: [name.target.id for name in ast.walk(node) if isinstance(name, ast.AnnAssign)]
             for node in tree.body if isinstance(node, ast.ClassDef)}  # fmt: skip
    for name, figures in {"Stats": pool.stats(), "PoolInfo": pool.info(), "BlockInfo": pool.blocks()[0], "Compaction": pool.compact(),
                          "OptionInfo": loch.options()[0], "DeviceProperties": loch.Device("cpu").properties}.items():  # fmt: skip
        assert sorted(known[name]) == sorted(figures), name
    block.free()


# --- sessions ---


def test_a_session_frees_its_blocks():
    pool = loch.Pool()
    kept = pool.alloc(10)
    with pool.session("request") as session:
        blocks = [session.alloc(1000) for _ in range(5)]
        blocks[0].free()
        assert session.stats() == (4, 4000, 5000) and session.stats().blocks == 4
    assert session.ended and all(block.freed for block in blocks) and pool.stats().blocks == 1
    for block in blocks:
        with pytest.raises(ValueError, match="freed"):
            block.free()
        with pytest.raises(ValueError, match="freed"):
            _ = block.address
    for call in (session.stats, session.end, lambda: session.alloc(1)):
        with pytest.raises(ValueError, match="ended"):
            call()
    others = [pool.alloc(1000) for _ in range(20)]  # at the addresses of the old ones
    del blocks
    gc.collect()
    assert pool.stats().blocks == 21  # dead blocks free nothing
    del others, kept


def test_sessions_end_with_their_objects():
    pool = loch.Pool()
    session = pool.session()
    block = session.alloc(10)
    del session
    assert pool.stats().blocks == 1 and not block.freed
    del block
    gc.collect()
    assert pool.stats().blocks == 0
    session = pool.session()
    pool.close()
    assert session.alloc(5).nbytes == 5
    assert session.end() == 0


# --- sleep ---


@pytest.mark.parametrize("device", ["cpu", "sim:64MiB"])
@pytest.mark.parametrize("contents", ["pinned", "host", "file", None])
def test_sleep_keeps_addresses_and_contents(contents, device, tmp_path):
    pool = loch.Pool(device, name="sleeper")
    tensor = loch.arange(5000, dtype="i32", device=device, pool=pool)
    address = tensor.address
    options = {"path": tmp_path} if contents == "file" else {}
    released = pool.sleep(contents, **options) if contents else pool.sleep()  # a sleep keeps, unless it is told not to
    assert list(tmp_path.iterdir()) == []  # a file has no name
    assert released >= 20000 and pool.info().asleep_bytes > 0
    touch = [
        tensor.tolist, tensor.clone, lambda: tensor.fill(1), lambda: str(tensor), lambda: tensor.item(3),
        lambda: tensor.to("cpu", "f32"), lambda: tensor.save(tmp_path / "x.npy"), lambda: tensor == tensor,
        lambda: tensor.__setitem__(0, 1), lambda: tensor[0].item(), lambda: 3 in tensor, lambda: bool(tensor[0]),
        lambda: loch.zeros(5000, "i32").copy_from(tensor), lambda: tensor.copy_from(loch.zeros(5000, "i32")),
        lambda: loch.zeros(5000, "i32").__setitem__(slice(None), tensor), lambda: tensor.reshape(50, 100).contiguous(),
    ]  # fmt: skip
    for call in touch[:-1]:
        with pytest.raises(loch.Error, match="sleeps") as caught:
            call()
        assert caught.value.status == "E_BUSY"
    with pytest.raises(loch.Error):
        pool.alloc(10)
    if device == "cpu":
        for call in (lambda: memoryview(tensor), lambda: np.from_dlpack(tensor), tensor.numpy):
            with pytest.raises(loch.Error, match="sleeps"):
                call()
    assert pool.wake() >= 20000
    assert tensor.address == address and tensor.tolist() == list(range(5000))


def test_a_pool_does_not_sleep_under_arrays():
    pool = loch.Pool(name="shared")
    tensor = loch.ones(1000, pool=pool)
    for share in (np.asarray, np.from_dlpack, memoryview, lambda t: t.__dlpack__(), lambda t: loch.from_dlpack(t)):
        held = share(tensor)
        with pytest.raises(loch.Error, match="shared") as caught:
            pool.sleep()
        assert caught.value.status == "E_BUSY"
        del held
        gc.collect()
    pool.sleep("host")
    pool.wake()
    assert tensor.tolist() == [1] * 1000


def test_one_tag_sleeps():
    pool = loch.Pool()
    kept = loch.ones(10, pool=pool)
    with loch.tag("weights"):
        weights = loch.ones(1 << 20, "f32", pool=pool)
    assert pool.sleep("host", tag="weights") > 0
    assert kept.tolist() == [1] * 10
    with pytest.raises(loch.Error, match="sleeps"):
        weights.item(0)
    pool.wake()
    assert weights.item(-1) == 1


def test_dropped_contents_are_zero(tmp_path):
    for value, bits in (("off", 0.0), ("on", float("nan"))):
        pool = loch.Pool("sim:64MiB")
        tensor = loch.ones(1 << 20, "f32", pool=pool)
        loch.set_option("sleep_nan", value)
        pool.sleep("drop")
        loch.set_option("sleep_nan", "off")
        assert pool.wake() == 0
        assert np.array_equal(np.asarray(tensor.to("cpu")), np.full(1 << 20, bits, "f"), equal_nan=True)


def test_sleep_words():
    pool = loch.Pool()
    with pytest.raises(ValueError, match="'file' or 'drop'"):
        pool.sleep("deep")
    with pytest.raises(TypeError):
        pool.sleep("host", tag=5)
    for _ in range(2):  # the first one creates nothing
        with pytest.raises(ValueError, match="no tag 'mistyped'"):
            pool.sleep("host", tag="mistyped")
        with pytest.raises(ValueError, match="no tag 'mistyped'"):
            pool.stats("mistyped")
    assert "mistyped" not in loch.tags()
    with pytest.raises(ValueError, match="no path"):
        pool.sleep("host", path="/tmp")
    with pytest.raises(OSError, match="/no/such/folder"):
        kept = pool.alloc(100)
        pool.sleep("file", path="/no/such/folder")
    del kept
    assert pool.wake() == 0


# --- threads ---


def test_threads_close_and_use_a_pool():
    for _ in range(50):
        pool = loch.Pool(name="race")
        errors = []

        def use(pool=pool, errors=errors):
            try:
                for _ in range(100):
                    pool.alloc(64).free()
                    pool.stats()
            except ValueError:
                pass
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        pool.close()
        for thread in threads:
            thread.join()
        assert not errors


def test_one_of_many_threads_frees_a_block():
    pool = loch.Pool()
    for _ in range(100):
        block, freed = pool.alloc(64), []

        def free(block=block, freed=freed):
            try:
                block.free()
                freed.append(True)
            except ValueError:
                pass

        threads = [threading.Thread(target=free) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert freed == [True]
    assert pool.stats().blocks == 0


def test_the_default_pool():
    device = loch.Device("cpu")
    before = device.default_pool
    own = loch.Pool(name="own")
    try:
        device.default_pool = own
        assert loch.zeros(3).pool == own == device.default_pool
    finally:
        device.default_pool = None
    assert loch.zeros(3).pool == device.default_pool and before != own
    with pytest.raises(AttributeError):
        del device.default_pool
    with pytest.raises(TypeError):
        device.default_pool = 5
    with pytest.raises(loch.Error, match="belongs"):
        loch.zeros(3, device="sim:16MiB", pool=own)


def test_an_error_says_whose_memory_is_missing_and_what_helps():
    pool = loch.Pool("sim:64MiB", name="narrow", limit="4MiB", headroom="1MiB")
    with pytest.raises(loch.OutOfMemoryError) as never:
        loch.empty(8 << 20, dtype="uint8", pool=pool)
    assert (never.value.owner, never.value.remedy, never.value.attempts) == ("narrow", "none", 1)
    assert never.value.missing_bytes == 4 << 20
    held = loch.empty(3 << 20, dtype="uint8", pool=pool)
    with pytest.raises(loch.OutOfMemoryError) as now:
        loch.empty(2 << 20, dtype="uint8", pool=pool)
    assert (now.value.owner, now.value.remedy) == ("narrow", "free")
    assert now.value.missing_bytes > 0
    copied = pickle.loads(pickle.dumps(now.value))
    assert (copied.owner, copied.missing_bytes) == (now.value.owner, now.value.missing_bytes)
    del held


def test_a_pool_takes_its_memory_at_creation_if_told_to():
    with loch.Pool("sim:64MiB", limit="32MiB", initial="32MiB") as pool:
        assert pool.info().reserved_bytes == 32 << 20
    with pytest.raises(loch.OutOfMemoryError):
        loch.Pool("sim:64MiB", initial="1GiB")
