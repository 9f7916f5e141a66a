# SPDX-License-Identifier: MIT
"""Regions and sleep under the real PyTorch, on a simulated device: no GPU is needed."""

import ctypes
import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
if torch.version.cuda is None:
    pytest.skip("PyTorch is built without CUDA", allow_module_level=True)

import loch.torch  # noqa: E402
import loch.torch.memory_saver  # noqa: E402
import loch.vllm  # noqa: E402

MIB = 1 << 20
CAPACITY = 512 * MIB
DEVICE = f"sim:{CAPACITY},backed,id=%d"


@pytest.fixture(autouse=True)
def enabled():
    """Loch serves PyTorch in this process; every test leaves everything awake and free."""
    loch.torch.enable(device=DEVICE, pinned=False)
    yield
    loch.torch.wake()
    for block in list(Block.live):
        block.free()
    torch._C._cuda_emptyCache()
    assert sum(pool["used_bytes"] for pool in get_pools()) == 0


class Block:
    """Memory of PyTorch's allocator with known contents. A test that ends frees its blocks."""

    live = set()

    def __init__(self, size, value=0):
        self.size = size
        self.address = torch._C._cuda_cudaCachingAllocator_raw_alloc(size, 0)
        ctypes.memset(self.address, value, size)
        self.live.add(self)

    def read(self):
        """The first and the last byte, which differ only if the contents are damaged."""
        return {ctypes.string_at(self.address, 1)[0], ctypes.string_at(self.address + self.size - 1, 1)[0]}

    def free(self):
        self.live.remove(self)
        torch._C._cuda_cudaCachingAllocator_raw_delete(self.address)

    def data_ptr(self):
        return self.address


def make(tag, size=8 * MIB, value=0):
    with loch.torch.region(tag):
        return Block(size, value)


def get_pools():
    return [pool for figures in loch.torch.stats().values() for pool in figures["pools"]]


def get_sum(name, tag):
    return sum(pool[name] for pool in get_pools() if pool["tag"] == tag)


@pytest.mark.parametrize("contents", ["pinned", "host", "file"])
def test_contents_come_back_at_the_same_address(contents):
    block = make("kept", value=7)
    assert loch.torch.sleep("kept", contents) == 8 * MIB
    assert get_sum("reserved_bytes", "kept") == 0
    assert get_sum("asleep_bytes", "kept") == 8 * MIB
    assert loch.torch.asleep() == ["kept"]
    assert loch.torch.wake("kept") == 8 * MIB
    assert block.read() == {7}
    assert get_sum("asleep_bytes", "kept") == 0


def count_files_in(folder):
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith(f"{folder}/") for link in links if os.path.islink(link))


def test_files_are_in_the_folder_without_a_name(tmp_path):
    block = make("filed", value=9)
    loch.torch.sleep("filed", "file", tmp_path)
    assert (list(tmp_path.iterdir()), count_files_in(tmp_path)) == ([], 1)
    loch.torch.wake("filed")
    assert (list(tmp_path.iterdir()), count_files_in(tmp_path)) == ([], 0)
    assert block.read() == {9}


def test_pinned_memory_is_held_only_while_asleep():
    make("kept", value=7)
    loch.torch.sleep("kept")
    assert loch.torch.stats()[0]["host_bytes"] >= 8 * MIB
    loch.torch.wake("kept", keep_host=True)
    assert loch.torch.stats()[0]["host_bytes"] >= 8 * MIB
    loch.torch.sleep("kept")
    loch.torch.wake("kept")
    assert loch.torch.stats()[0]["host_bytes"] == 0


@pytest.fixture
def no_threads():
    """New threads of C get stacks that are larger than the address space: they do not start."""
    libc = ctypes.CDLL(None)
    before, huge = ctypes.create_string_buffer(256), ctypes.create_string_buffer(256)
    assert libc.pthread_getattr_default_np(before) == 0 and libc.pthread_attr_init(huge) == 0
    assert libc.pthread_attr_setstacksize(huge, ctypes.c_size_t(1 << 47)) == 0

    class Switch:
        def __enter__(self):
            assert libc.pthread_setattr_default_np(huge) == 0

        def __exit__(self, *_):
            assert libc.pthread_setattr_default_np(before) == 0

    return Switch()


def test_pinned_memory_is_given_back_without_a_thread(no_threads):
    make("kept", value=7)
    loch.torch.sleep("kept")
    with no_threads:
        loch.torch.wake("kept")
    assert loch.torch.stats()[0]["host_bytes"] == 0


# The thread that gives pinned memory back is at work when the process forks or ends.
UNPINNING = f"""
import ctypes, os, sys, loch.torch, torch
loch.torch.enable(device="{DEVICE}", pinned=False)
with loch.torch.region("large"):
    block = torch._C._cuda_cudaCachingAllocator_raw_alloc({256 * MIB}, 0)
loch.torch.sleep("large")
loch.torch.wake("large")
"""


def test_a_process_ends_while_memory_is_unpinned():
    done = subprocess.run([sys.executable, "-c", UNPINNING + "ctypes.CDLL(None).exit(0)"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_child_of_a_fork_does_not_wait_for_the_parents_thread():
    program = UNPINNING + """
child = os.fork()
if not child:
    try:
        loch.torch.stats()
    except Exception:
        pass  # the device does not work here
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert loch.torch.stats()[0]["host_bytes"] == 0
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_dropped_contents_are_zero():
    block = make("dropped", value=7)
    loch.torch.sleep("dropped", "drop")
    loch.torch.wake()
    assert block.read() == {0}


def test_tags_share_no_memory():
    weights, cache, outside = make("weights"), make("cache"), Block(8 * MIB, 5)
    loch.torch.sleep({"weights": "host", "cache": "drop"})
    assert get_sum("reserved_bytes", "weights") == get_sum("reserved_bytes", "cache") == 0
    assert outside.read() == {5}


def test_everything_sleeps():
    blocks = [make("weights", value=1), make("cache", value=2), Block(3 * MIB, 3)]
    loch.torch.sleep()
    assert sum(pool["reserved_bytes"] for pool in get_pools()) == 0
    assert "" in loch.torch.asleep()
    with pytest.raises(RuntimeError, match="asleep"):
        Block(MIB)
    loch.torch.wake()
    assert [block.read() for block in blocks] == [{1}, {2}, {3}]


def test_caches_of_other_pools_are_given_back():
    make("weights").free()
    Block(64 * MIB).free()
    block = make("other")
    loch.torch.sleep("other", "drop")
    assert sum(pool["reserved_bytes"] for pool in get_pools()) == 0


def test_regions_nest_and_belong_to_their_thread():
    found = {}

    def allocate():
        found["thread"] = Block(MIB)

    with loch.torch.region("outer"):
        with loch.torch.region("inner"):
            found["inner"] = Block(MIB)
            thread = threading.Thread(target=allocate)
            thread.start()
            thread.join()
            with loch.torch.region(None):
                found["none"] = Block(MIB)
        found["outer"] = Block(MIB)
    tags = {name: loch.torch.get_tag(block) for name, block in found.items()}
    assert tags == {"inner": "inner", "outer": "outer", "thread": "", "none": ""}


class PrivatePool:
    """A pool as a graph has it: allocations of this thread go to it."""

    def __init__(self, number):
        self.id = (number, 0)

    def __enter__(self):
        torch._C._cuda_beginAllocateCurrentThreadToPool(0, self.id)

    def __exit__(self, *_):
        torch._C._cuda_endAllocateToPool(0, self.id)

    def release(self):
        torch._C._cuda_releasePool(0, self.id)


def test_private_pools_belong_to_the_region_that_made_them():
    inside, outside = PrivatePool(77), PrivatePool(78)
    with loch.torch.region("graphs"), inside:
        first = Block(3 * MIB, 8)
        Block(5 * MIB, 9).free()  # graphs also write into free memory: it stays mapped
    with outside:
        second = Block(3 * MIB, 7)
    with inside:  # outside of the region the pool keeps its tag
        third = Block(MIB, 6)
    assert [loch.torch.get_tag(block) for block in (first, second, third)] == ["graphs", "", "graphs"]
    assert get_sum("reserved_bytes", "graphs") >= 8 * MIB
    loch.torch.sleep("graphs")
    assert get_sum("reserved_bytes", "graphs") == 0
    with inside, pytest.raises(RuntimeError, match="asleep"):
        Block(MIB)
    loch.torch.sleep("")
    assert sum(pool["reserved_bytes"] for pool in get_pools()) == 0
    loch.torch.wake()
    assert [block.read() for block in (first, second, third)] == [{8}, {7}, {6}]
    for block in (first, second, third):
        block.free()
    inside.release(), outside.release()


def test_end_of_a_region_that_is_not_open():
    with pytest.raises(RuntimeError, match="no region"):
        loch.torch._core.torch_region_end()


def test_names_that_cannot_be_tags():
    for name in ('a"b', "a\nb", "x" * 64):
        with pytest.raises(RuntimeError, match="tag"):
            with loch.torch.region(name):
                pass


def test_refusals():
    block = make("weights")
    with pytest.raises(RuntimeError, match="there is no tag 'nothing': the tags are .*'weights'"):
        loch.torch.sleep("nothing")
    with pytest.raises(RuntimeError, match="there is no tag 'nothing'"):
        loch.torch.wake("nothing")
    with pytest.raises(RuntimeError, match="named twice"):
        loch.torch._core.torch_sleep([("weights", "drop", None), ("weights", "host", None)])
    with pytest.raises(ValueError, match="one of pinned"):
        loch.torch.sleep("weights", "somewhere")
    with pytest.raises(ValueError, match="contents='file'"):  # as for Pool.sleep
        loch.torch.sleep("weights", path="/tmp")
    loch.torch.sleep("weights")
    with pytest.raises(RuntimeError, match="'weights' is asleep already"):
        loch.torch.sleep("weights")
    with loch.torch.region("weights"):
        with pytest.raises(RuntimeError, match="'weights' is asleep: wake it"):
            Block(MIB)
    other = make("other")  # other tags work
    other.free()
    loch.torch.wake("weights")
    assert loch.torch.wake("weights") == 0


def test_a_block_may_be_freed_asleep():
    block = make("weights")
    loch.torch.sleep("weights")
    block.free()
    loch.torch.wake()
    assert get_sum("used_bytes", "weights") == 0


def test_a_failed_sleep_changes_nothing(tmp_path):
    first, second = make("first", value=1), make("second", value=2)
    with pytest.raises(RuntimeError, match="'torch cuda:0 second' cannot sleep"):
        loch.torch.sleep({"first": "pinned", "second": "file"}, path=tmp_path / "missing")
    assert loch.torch.asleep() == []
    assert first.read() == {1} and second.read() == {2}


def test_pools_that_keep_contents_sleep_first(tmp_path):
    """A sleep that fails has dropped nothing, even if the tag to drop was named first."""
    dropped, kept = make("dropped", value=1), make("kept", value=2)
    with pytest.raises(RuntimeError, match="cannot sleep"):
        loch.torch.sleep({"dropped": "drop", "kept": "file"}, path=tmp_path / "missing")
    assert dropped.read() == {1} and kept.read() == {2}


def test_a_failed_wake_changes_nothing():
    small, large = make("small", value=1), make("large", 300 * MIB, value=2)
    loch.torch.sleep(["small", "large"])
    taken = Block(300 * MIB)
    with pytest.raises(RuntimeError, match="'torch cuda:0 large' cannot wake"):
        loch.torch.wake(["small", "large"])
    assert sorted(loch.torch.asleep()) == ["large", "small"]
    assert get_sum("asleep_bytes", "small") == 8 * MIB
    taken.free()
    loch.torch.wake()
    assert small.read() == {1} and large.read() == {2}


def test_sleep_many_times_holds_nothing():
    block = make("weights", value=3)
    for _ in range(20):
        loch.torch.sleep()
        assert sum(pool["reserved_bytes"] for pool in get_pools()) == 0
        loch.torch.wake()
    assert block.read() == {3}


def test_callbacks_come_in_pairs(tmp_path):
    calls = []
    remove = loch.torch.add_callbacks(lambda: calls.append("before"), lambda: calls.append("after"))
    first, second = make("first"), make("second")
    try:
        loch.torch.sleep("first")
        loch.torch.sleep("second")
        loch.torch.wake("first")
        loch.torch.wake("second")
        assert calls == ["before", "after"]
        with pytest.raises(RuntimeError):
            loch.torch.sleep("first", "file", tmp_path / "missing")
        assert calls == ["before", "after"] * 2
    finally:
        remove()
    loch.torch.sleep("first")
    assert len(calls) == 4
    loch.torch.wake()


def test_a_callback_that_raises_stops_the_sleep():
    calls = []

    def refuse():
        raise ValueError("not now")

    removers = [loch.torch.add_callbacks(lambda: calls.append("before"), lambda: calls.append("after")),
                loch.torch.add_callbacks(refuse, lambda: calls.append("never"))]
    block = make("weights")
    with pytest.raises(ValueError, match="not now"):
        loch.torch.sleep("weights")
    for remove in removers:
        remove()
    assert calls == ["before", "after"]
    assert loch.torch.asleep() == []


def test_threads_allocate_while_a_tag_sleeps():
    kept = make("weights", 64 * MIB, 4)
    stop, failures = threading.Event(), []

    def churn():
        try:
            while not stop.is_set():
                Block(MIB).free()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        loch.torch.sleep("weights", "host")
        loch.torch.wake("weights")
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert kept.read() == {4}


def test_an_empty_cache_holds_nothing_of_regions():
    kept, other = make("kept"), make("kept", 64 * MIB)
    asleep = make("asleep")
    loch.torch.sleep("asleep", "drop")
    other.free()
    torch._C._cuda_emptyCache()
    assert get_sum("reserved_bytes", "kept") == kept.size
    assert get_sum("asleep_bytes", "asleep") == asleep.size


def test_report_names_what_sleeps():
    block = make("weights")
    loch.torch.sleep("weights", "drop")
    text = loch.torch.report()
    assert "asleep: weights" in text and "8.0 MiB asleep" in text
    loch.torch.wake()


# --- the names of torch_memory_saver ---


@pytest.fixture
def saver():
    """An object of its own for each test."""
    return loch.torch.memory_saver.TorchMemorySaver()


def test_saver_keeps_or_drops(saver):
    with saver.region(tag="weights", enable_cpu_backup=True):
        kept = Block(MIB, 1)
    with saver.region(tag="kv_cache"):
        dropped = Block(MIB, 2)
    with saver.region(tag="weights", enable_cpu_backup=True, cpu_backup_backend="mmap"):
        plain = Block(MIB, 3)
    saver.pause()
    saver.pause("weights")  # twice is allowed
    assert sum(pool["asleep_bytes"] for pool in get_pools()) >= 3 * MIB
    saver.resume("weights")
    assert kept.read() == {1} and plain.read() == {3}
    assert loch.torch.asleep() == ["kv_cache/drop"]
    saver.resume()
    assert dropped.read() == {0}


def test_saver_keeps_files_in_its_folder(saver, tmp_path):
    saver.set_disk_backup_dir(tmp_path / "new")
    with saver.region(enable_disk_backup=True):
        block = Block(MIB, 6)
    saver.pause("default")
    assert count_files_in(tmp_path / "new") == 1
    saver.resume("default")
    assert block.read() == {6}


def test_saver_disable(saver):
    with pytest.raises(AssertionError):
        with saver.disable():
            pass
    with saver.region("weights"):
        with saver.disable():
            block = Block(MIB, 1)
    saver.pause()
    assert block.read() == {1}
    saver.resume()


def test_saver_refuses_what_does_not_fit(saver):
    with pytest.raises(ValueError, match="requires enable_cpu_backup"):
        with saver.region(cpu_backup_backend="pinned"):
            pass
    with pytest.raises(AssertionError):
        with saver.region(enable_cpu_backup=True, enable_disk_backup=True):
            pass
    with pytest.raises(ValueError):
        saver.hook_mode = "other"
    saver.hook_mode = "torch"
    with pytest.raises(AttributeError):
        _ = saver.hook_mode
    saver.retain_cpu_backup = True
    assert saver.retain_cpu_backup and saver.enabled


# --- vLLM's allocator ---


def test_vllm_levels():
    allocator = loch.vllm.LochAllocator.get_instance()
    assert allocator.get_current_usage() == 0
    with allocator.use_memory_pool(tag="weights"):
        weights = Block(MIB, 1)
    with allocator.use_memory_pool(tag="kv_cache"):
        cache = Block(MIB, 2)
    runner = Block(MIB, 3)
    assert allocator.get_current_usage() == 3 * MIB  # the cache has a granule of its own
    allocator.sleep(offload_tags=("weights", "runtime"))
    assert sum(pool["reserved_bytes"] for pool in get_pools()) == 0
    assert allocator.get_current_usage() == 3 * MIB
    allocator.wake_up(["weights"])
    assert weights.read() == {1} and runner.read() == {3}
    assert loch.torch.asleep() == ["kv_cache"]
    allocator.wake_up()
    assert cache.read() == {0}
    allocator.discard("weights")
    allocator.sleep()  # the rest; weights keep what they have
    allocator.wake_up()
    assert weights.read() == {0}


def test_a_tag_with_a_zero_inside_is_refused():
    """The shim would read another tag."""
    make("zero").free()
    for call in (loch._core.torch_region_begin, lambda tag: loch._core.torch_wake([tag], False)):
        with pytest.raises(ValueError, match="null character"):
            call("zero\0and more")
    with pytest.raises(RuntimeError, match="in no region"):
        loch._core.torch_region_end()


@pytest.mark.parametrize("number", [-2, 1 << 31, 1 << 32])
def test_figures_of_a_device_that_cannot_be(number):
    with pytest.raises(ValueError, match="no device"):
        loch._core.torch_stats(number)


def test_all_callbacks_run_after_a_wake_though_one_fails():
    calls = []

    def fail():
        calls.append("fails")
        raise OSError("a library does not wake")

    removers = [loch.torch.add_callbacks(None, lambda: calls.append("first")),
                loch.torch.add_callbacks(None, fail),
                loch.torch.add_callbacks(None, lambda: calls.append("last"))]
    block = make("weights")
    try:
        loch.torch.sleep("weights")
        with pytest.raises(OSError, match="does not wake"):
            loch.torch.wake("weights")
        assert calls == ["last", "fails", "first"]
        assert loch.torch.asleep() == [] and block.read() == {0}
        loch.torch.wake()  # nothing is left to call
        assert len(calls) == 3
    finally:
        for remove in removers:
            remove()


def test_callbacks_that_are_added_or_removed_asleep_stay_in_pairs():
    calls = []
    gone = loch.torch.add_callbacks(lambda: calls.append("gone before"), lambda: calls.append("gone after"))
    make("weights")
    loch.torch.sleep("weights")
    late = loch.torch.add_callbacks(lambda: calls.append("late before"), lambda: calls.append("late after"))
    gone()
    loch.torch.wake()
    assert calls == ["gone before"]
    loch.torch.sleep("weights")
    loch.torch.wake()
    late()
    assert calls == ["gone before", "late before", "late after"]


def get_pool(tag):
    return next(pool for pool in get_pools() if pool["tag"] == tag)


def test_blocks_of_a_region_have_a_handle_each():
    """Of 1 MiB and more. On a simulated device a handle is a granule or more: what the pool holds tells."""
    with loch.torch.region("registered", one_handle=True):
        small = [Block(256 << 10, 1) for _ in range(4)]
        with loch.torch.region("shared"):
            shared = [Block(3 * MIB, 2) for _ in range(2)]
        large = [Block(3 * MIB, 3) for _ in range(2)]
    assert get_pool("registered")["reserved_bytes"] == 2 * 4 * MIB + 2 * MIB
    assert get_pool("shared")["reserved_bytes"] == 6 * MIB
    loch.torch.sleep(["registered"])
    loch.torch.wake(["registered"])
    assert all(block.read() == {3} for block in large) and all(block.read() == {1} for block in small)
    for block in large:
        block.free()
    with loch.torch.region("registered", one_handle=True):
        again = [Block(3 * MIB, 4) for _ in range(2)]
    assert get_pool("registered")["reserved_bytes"] == 2 * 4 * MIB + 2 * MIB
    assert shared[0].read() == {2} and again[0].read() == {4}
