# SPDX-License-Identifier: MIT
"""loch.arrow under the real pyarrow: the default memory pool, pools with tags, limits, and files."""

import gc
import io
import pathlib
import stat
import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import loch
import loch.arrow
from loch.arrow import _shim


@pytest.fixture
def enabled():
    loch.arrow.enable()
    yield pa.default_memory_pool()
    loch.arrow.disable()


def make_table(rows):
    return pa.table({"key": [i * 7919 % 1000 for i in range(rows)], "name": [f"name {i % 5000}" for i in range(rows)]})


def test_enable_makes_loch_the_default_pool(enabled):
    assert enabled.backend_name == "loch"
    assert loch.arrow.is_enabled()
    before = enabled.bytes_allocated()
    array = pa.array(range(100000), type=pa.int64())
    assert enabled.bytes_allocated() >= before + 800000
    assert loch.arrow.stats().requested_bytes == enabled.bytes_allocated()
    assert "arrow" in loch.arrow.report()
    del array
    gc.collect()
    assert enabled.bytes_allocated() == before


def test_disable_brings_the_old_pool_back():
    old = pa.default_memory_pool().backend_name
    loch.arrow.enable()
    array = pa.array(range(1000))
    loch.arrow.disable()
    assert pa.default_memory_pool().backend_name == old
    assert not loch.arrow.is_enabled()
    assert array.to_pylist() == list(range(1000))  # its memory stays


def test_results_are_those_of_the_default_pool():
    def work():
        table = make_table(50000).sort_by([("name", "descending"), ("key", "ascending")])
        grouped = table.group_by("key").aggregate([("name", "count"), ("name", "min")]).sort_by("key")
        return table, grouped, pc.cast(table["key"], pa.string()).combine_chunks()

    expected = work()
    loch.arrow.enable()
    try:
        actual = work()
        assert pa.default_memory_pool().backend_name == "loch"
    finally:
        loch.arrow.disable()
    for a, b in zip(actual, expected):
        assert a.equals(b)


def test_parquet_through_loch(enabled):
    table = make_table(30000)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    assert pq.read_table(io.BytesIO(sink.getvalue().to_pybytes())).equals(table)


def test_a_pool_has_its_tag():
    pool = loch.Pool("cpu", name="tagged")
    memory = loch.arrow.make_pool(pool, tag="arrow test")
    buffer = pa.allocate_buffer(64000, memory_pool=memory)
    assert memory.backend_name == "loch"
    assert memory.bytes_allocated() == 64000
    assert pool.stats("arrow test").requested_bytes == 64000
    del buffer
    assert memory.bytes_allocated() == 0
    assert pool.stats("arrow test").blocks == 0
    assert memory.max_memory() == 64000


def test_a_limit_becomes_arrows_error():
    memory = loch.arrow.make_pool(loch.Pool("cpu", name="small", limit="4MiB"))
    with pytest.raises(pa.ArrowMemoryError, match='"small".*4 MiB'):
        pa.allocate_buffer(16 << 20, memory_pool=memory)
    assert pa.allocate_buffer(1 << 20, memory_pool=memory).size == 1 << 20  # goes on


def test_trim_gives_memory_back(enabled):
    array = pa.array(range(1000000), type=pa.int64())
    del array
    gc.collect()
    assert loch.arrow.trim() > 0


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="host cannot use"):
        loch.arrow.make_pool(loch.Pool("sim:1GiB"))
    with pytest.raises(ValueError, match="tag"):
        loch.arrow.make_pool(loch.Pool("cpu"), tag="x" * 100)
    loch.arrow.enable()
    try:
        loch.arrow.enable()  # equal settings
        with pytest.raises(RuntimeError, match="in use with"):
            loch.arrow.enable(limit="1GiB")
    finally:
        loch.arrow.disable()


def test_the_shim_is_compiled_once_and_kept_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(_shim.ShimError, match="no C\\+\\+ compiler"):
        _shim.find()
    folder = _shim.get_cache()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "loch_arrow.so").write_bytes(b"kept")
    assert _shim.find() == folder / "loch_arrow.so"  # not compiled again
    with pytest.raises(_shim.ShimError, match="cannot be loaded"):
        _shim.load()
    folder.chmod(0o777)
    with pytest.raises(_shim.ShimError, match="can be written by others"):
        _shim.find()


def test_a_process_ends_well_with_buffers_of_loch():
    program = "import loch.arrow, pyarrow as pa; loch.arrow.enable(); kept = pa.array(range(100000)); print(kept[99999])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                          cwd=pathlib.Path(__file__).parent)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "99999", "")
