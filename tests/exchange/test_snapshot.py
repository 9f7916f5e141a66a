# SPDX-License-Identifier: MIT
"""Snapshots are what docs/snapshot.schema.json says, and the schema refuses what they are not."""
import copy
import ctypes
import json
import os
import pathlib

import jsonschema
import pytest

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs" / "snapshot.schema.json").read_text())
os.environ["LOCH_LEAKS"] = "1"  # so that live blocks have call stacks
LIBRARY = ctypes.CDLL(os.environ["LOCH_LIBRARY"])
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t


class Request(ctypes.Structure):
    _fields_ = [("size", SIZE), ("bytes", SIZE), ("alignment", SIZE), ("stream", POINTER), ("tag", ctypes.c_uint32),
                ("flags", ctypes.c_uint32), ("timeout_ns", ctypes.c_uint64), ("round_bytes", SIZE), ("max_bytes", SIZE)]


def call(name, *arguments):
    assert getattr(LIBRARY, name)(*arguments) == 0, name


def make(name, *arguments):
    out = POINTER()
    call(name, *arguments, ctypes.byref(out))
    return out


def alloc(allocator, **members):
    return make("loch_allocator_alloc", allocator, ctypes.byref(Request(size=ctypes.sizeof(Request), **members)))


@pytest.fixture(params=["sim:256MiB", "sim:256MiB,virtual=off", "cpu"])
def snapshot(request, tmp_path):
    """A pool with blocks of many kinds, a child, a wrapper and a direct allocator; what they are in is released at the end."""
    release, free = LIBRARY.loch_allocator_release, LIBRARY.loch_free
    tag = ctypes.c_uint32()
    device = make("loch_device_open", request.param.encode())
    pool = make("loch_pool_create", device, b"pool \"\xc3\xa9\xff\"", None)
    child = make("loch_pool_create_child", pool, b"child", None)
    direct = make("loch_direct_create", device, b"direct", None)
    wrapper = make("loch_locked_create", pool, b"locked")
    stream = make("loch_stream_create", device, 0)
    call("loch_tag_create", b"weights", ctypes.byref(tag))
    held = [(pool, alloc(pool, bytes=100, tag=tag.value)), (pool, alloc(pool, bytes=70000, stream=stream)),
            (pool, alloc(pool, bytes=3 << 20, tag=tag.value)), (wrapper, alloc(wrapper, bytes=5000)),
            (child, alloc(child, bytes=1 << 20)), (direct, alloc(direct, bytes=12345))]
    if "virtual" not in request.param:
        held.append((pool, alloc(pool, bytes=1 << 20, max_bytes=16 << 20)))
    freed = alloc(pool, bytes=2 << 20, stream=stream)
    call("loch_allocator_record_use", pool, freed, None)
    call("loch_free", pool, freed)
    path = tmp_path / "snapshot.json"
    call("loch_snapshot_save", str(path).encode())
    yield json.loads(path.read_text())
    for allocator, block in held:
        assert free(allocator, block) == 0
    for allocator in (child, direct, wrapper, pool):
        release(allocator)
    LIBRARY.loch_stream_release(stream)
    LIBRARY.loch_device_release(device)


for name in ("loch_allocator_release", "loch_stream_release", "loch_device_release"):
    getattr(LIBRARY, name).argtypes = [POINTER]
    getattr(LIBRARY, name).restype = None


def walk(blocks):
    for block in blocks:
        yield block
        yield from walk(block.get("blocks", ()))


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_snapshot_fits_the_schema(snapshot):
    jsonschema.Draft202012Validator(SCHEMA).validate(snapshot)
    by_name = {allocator["name"]: allocator for allocator in snapshot["allocators"]}
    pool = by_name["pool \"\u00e9\ufffd\""]
    assert by_name["locked"]["wraps"] == by_name["child"]["pool"]["parent"] == pool["number"]
    assert snapshot["devices"][pool["device"]]["total_bytes"] > 0
    used = [block for block in walk(pool["blocks"]) if block["state"] in ("used", "growable")]
    tag = next(tag["tag"] for tag in snapshot["tags"] if tag["name"] == "weights")
    assert sorted(block["requested_bytes"] for block in used if block.get("tag") == tag) == [100, 3 << 20]
    assert sum(block["requested_bytes"] for block in used) == pool["statistics"]["requested_bytes"]
    assert len(used) == pool["statistics"]["blocks"]
    assert sum(handle["bytes"] for handle in pool["handles"]) == pool["pool"]["reserved_bytes"]
    assert [block["requested_bytes"] for block in by_name["direct"]["blocks"]] == [12345]
    for block in used + by_name["direct"]["blocks"]:
        assert any("loch" in frame and "+0x" in frame for frame in block["stack"])


def test_blocks_are_in_order_and_tile_what_they_lie_in(snapshot):
    for allocator in snapshot["allocators"]:
        end = 0
        for block in allocator.get("blocks", ()):
            start = int(block["address"], 16)
            assert start >= end
            if allocator.get("reservations"):
                assert start == (end or int(allocator["reservations"][0]["address"], 16))
            end = start + block["bytes"]
        if allocator.get("reservations"):
            reservation = allocator["reservations"][0]
            assert end == int(reservation["address"], 16) + reservation["bytes"]


@pytest.mark.parametrize("spoil", [
    lambda s: s.pop("format"),
    lambda s: s.update(version=2),
    lambda s: s["allocators"][0].pop("number"),
    lambda s: s["allocators"][0]["blocks"][0].update(state="lost"),
    lambda s: s["allocators"][0]["blocks"][0].update(address=5),
    lambda s: s["allocators"][0]["statistics"].update(fragmentation=2),
])
def test_the_schema_refuses_other_things(snapshot, spoil):
    wrong = copy.deepcopy(snapshot)
    spoil(wrong)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(wrong)
