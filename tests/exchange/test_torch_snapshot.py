# SPDX-License-Identifier: MIT
"""Memory snapshots of PyTorch, read and written: the recorded one of this folder, and made ones for every rule."""

import os
import pickle
import pickletools
import random

import insight
import pytest
from insight import Recording

DATA = os.path.join(os.path.dirname(__file__), "data")
PROFILE = os.path.join(DATA, "torch-profile.pickle")
RECORDED = sorted(os.path.join(DATA, name) for name in os.listdir(DATA))
PROTOCOLS = [2, 3, 4, 5]
BASE = 0x7F0000000000
MIB = 1 << 20


def frame(line, name="forward", filename="/opt/model.py"):
    return {"name": name, "filename": filename, "line": line}


def entry(action, addr, size, time_us, stream=0, **more):
    return {"action": action, "device_free" if action == "oom" else "addr": addr, "size": size, "stream": stream, "time_us": time_us, **more}


def segment(address, total_size, blocks, device=0, stream=0, **more):
    return {"device": device, "address": address, "total_size": total_size, "stream": stream, "blocks": blocks, **more}


def block(address, size, state, requested_size=0, frames=()):
    return {"address": address, "size": size, "requested_size": requested_size, "state": state, "frames": list(frames)}


def snapshot(segments, *traces):
    return {"segments": segments, "device_traces": list(traces), "allocator_settings": {"max_split_size": -1}}


def load(tmp_path, contents, protocol=4):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(contents if isinstance(contents, bytes) else pickle.dumps(contents, protocol))
    return Recording(path)


def kinds(recording):
    return [(insight.KINDS[event.kind], event.value) for event in recording.events]


def simple():
    stack = [frame(3, "inner"), frame(7, "outer")]
    trace = [
        entry("segment_alloc", BASE, 2 * MIB, 1_000_000, frames=stack),
        entry("alloc", BASE, 1000, 1_000_010, frames=stack, user_metadata="weights", compile_context="N/A"),
        entry("alloc", BASE + 1024, 500, 1_000_020, 0x5555AAAA0000, frames=stack, user_metadata="", compile_context="0/1"),
        entry("free_requested", BASE, 1000, 1_000_030, frames=stack),
        entry("free_completed", BASE, 1000, 1_000_040, frames=stack),
        entry("oom", 12345, 1 << 40, 1_000_050),
        entry("snapshot", 0, 0, 1_000_060),
    ]
    blocks = [block(BASE, 1024, "inactive"), block(BASE + 1024, 512, "active_allocated", 500, stack), block(BASE + 1536, 2 * MIB - 1536, "inactive")]
    return snapshot([segment(BASE, 2 * MIB, blocks)], trace)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_reads_the_same(tmp_path, protocol):
    recording = load(tmp_path, simple(), protocol)
    stack = ["inner at /opt/model.py:3", "outer at /opt/model.py:7"]
    assert recording.story() == [
        (0, "take", 2 * MIB, BASE, "cuda:0", *stack),
        (10_000, "alloc", 1000, BASE, "weights", 0, False, *stack),
        (20_000, "alloc", 500, BASE + 1024, "0/1", 1, False, *stack),
        (30_000, "free", 1000, BASE, "weights", 0, False, *stack),
        (50_000, "fail", 1 << 40, "cuda:0"),
    ]
    info = recording.info
    assert (info.peak_requested, info.peak_reserved, info.live_bytes, info.stacks) == (1500, 2 * MIB, 500, 1)
    assert (info.started_ns, info.duration_ns, info.has_addresses) == (1_000_000_000, 50_000, 1)


def test_shared_and_repeated_stacks_are_stored_once(tmp_path):
    shared = [frame(1), frame(2)]
    traces = [entry("alloc", BASE + i * 512, 512, i, frames=shared if i % 2 else [frame(1), frame(2)]) for i in range(3000)]
    recording = load(tmp_path, snapshot([], traces))
    assert (recording.info.stacks, recording.info.blocks, recording.info.live_blocks) == (1, 3000, 3000)


def test_what_the_trace_does_not_show_was_there_before(tmp_path):
    """A free without its allocation; a live block and a segment without any event; a segment freed that no event made."""
    trace = [
        entry("free_completed", BASE + 4096, 64, 1),  # its request was before: no free of anything, and no start of the time
        entry("free_requested", BASE, 100, 2),
        entry("free_completed", BASE, 100, 3),
        entry("segment_free", BASE + 64 * MIB, 2 * MIB, 4),
    ]
    blocks = [block(BASE, 512, "inactive"), block(BASE + 512, 512, "active_allocated", 300, [frame(9)]),
              block(BASE + 1024, 1024, "active_pending_free", 1000), block(BASE + 2048, 2 * MIB - 2048, "inactive")]  # fmt: skip
    recording = load(tmp_path, snapshot([segment(BASE, 2 * MIB, blocks, stream=77)], trace))
    assert recording.story() == [
        (0, "take", 2 * MIB, BASE + 64 * MIB, "cuda:0"),
        (0, "take", 2 * MIB, BASE, "cuda:0"),
        (0, "alloc", 100, BASE, "", 0, True),
        (0, "alloc", 300, BASE + 512, "", 1, True, "forward at /opt/model.py:9"),
        (0, "free", 100, BASE, "", 0, True),
        (2000, "give", 2 * MIB, BASE + 64 * MIB, "cuda:0"),
    ]


def test_a_snapshot_without_a_trace_has_its_live_blocks(tmp_path):
    blocks = [{"size": 512, "state": "inactive"}, {"size": 1024, "state": "active_allocated"}]  # as old ones have it
    recording = load(tmp_path, [segment(BASE, 1536, blocks)])
    assert kinds(recording) == [("take", 1536), ("alloc", 1024)]
    assert recording.blocks[0].address == BASE + 512


def test_devices_are_merged_by_time(tmp_path):
    first = [entry("alloc", BASE, 1, 10), entry("alloc", BASE + 512, 2, 30)]
    third = [entry("alloc", BASE, 3, 20), entry("free_requested", BASE, 3, 40), entry("free_completed", BASE, 3, 40)]
    recording = load(tmp_path, snapshot([], first, [], third))
    assert kinds(recording) == [("alloc", 1), ("alloc", 3), ("alloc", 2), ("free", 3)]
    assert [recording.name("device", i) for i in range(recording.info.devices)] == ["cuda:0", "cuda:2"]
    assert [recording.name("allocator", b.allocator) for b in recording.blocks] == ["cuda:0", "cuda:2", "cuda:0"]


def test_private_pools_are_allocators_of_their_own(tmp_path):
    blocks = [block(BASE, 512, "active_allocated", 100)]
    recording = load(tmp_path, snapshot([segment(BASE, 512, blocks, segment_pool_id=(0, 3)), segment(BASE + MIB, 512, [block(BASE + MIB, 512, "active_allocated", 5)], segment_pool_id=(0, 0))], []))
    assert [recording.name("allocator", b.allocator) for b in recording.blocks] == ["cuda:0 pool 0:3", "cuda:0"]


def test_expandable_segments_are_cut_where_they_are_unmapped(tmp_path):
    trace = [entry("segment_map", BASE, 20 * MIB, 1), entry("segment_unmap", BASE + 4 * MIB, 6 * MIB, 2), entry("segment_unmap", BASE, 4 * MIB, 3)]
    recording = load(tmp_path, snapshot([segment(BASE + 10 * MIB, 10 * MIB, [])], trace))
    assert kinds(recording) == [("take", 20 * MIB), ("give", 20 * MIB), ("take", 10 * MIB), ("take", 4 * MIB), ("give", 4 * MIB)]
    assert recording.info.peak_reserved == 20 * MIB


def test_an_unmap_that_reaches_over_known_and_unknown_parts(tmp_path):
    trace = [entry("segment_map", BASE + 4 * MIB, 4 * MIB, 1), entry("segment_unmap", BASE, 8 * MIB, 2)]
    recording = load(tmp_path, snapshot([], trace))
    assert kinds(recording) == [("take", 4 * MIB), ("take", 4 * MIB), ("give", 4 * MIB), ("give", 4 * MIB)]


def test_a_trace_without_requests_frees_when_it_completes(tmp_path):
    trace = [entry("alloc", BASE, 7, 1), entry("free_completed", BASE, 7, 2), entry("free_completed", BASE + 512, 9, 3)]
    assert kinds(load(tmp_path, snapshot([], trace))) == [("alloc", 9), ("alloc", 7), ("free", 7), ("free", 9)]


def test_an_address_that_is_used_again_without_a_free(tmp_path):
    trace = [entry("alloc", BASE, 7, 1), entry("alloc", BASE, 9, 2)]
    assert kinds(load(tmp_path, snapshot([], trace))) == [("alloc", 7), ("free", 7), ("alloc", 9)]


def test_the_recorded_profile(tmp_path):
    with open(PROFILE, "rb") as file:
        real = pickle.load(file)
    live, peak = {}, 0
    for part in real["segments"]:
        address = part["address"]
        for b in part["blocks"]:
            live[address] = b["requested_size"] if b["state"] == "active_allocated" else 0
            address += b["size"]
    trace = real["device_traces"][0]
    seen = {e["addr"] for e in trace if e["action"] == "alloc"}
    first = {e["addr"]: e for e in reversed(trace)}  # blocks that were there: their first event is a free
    live = {a: n for a, n in live.items() if n and a not in seen}
    live.update({a: e["size"] for a, e in first.items() if e["action"] != "alloc"})
    held = sum(live.values())
    for e in trace:
        if e["action"] == "alloc":
            live[e["addr"]] = e["size"]
        elif e["action"] == "free_requested":
            del live[e["addr"]]
        held = sum(live.values())
        peak = max(peak, held)
    recording = Recording(PROFILE)
    assert (recording.info.peak_requested, recording.info.live_bytes) == (peak, held)
    assert recording.name("device", 0) == "device:0"
    tags = {recording.name("tag", i) for i in range(recording.info.tags)}
    assert {"input", "activation", "gradient", "parameter"} <= tags


# --- writing ---


def with_device(story):
    return [tuple("cuda:0" if word == "device:0" else word for word in event) for event in story]


def late():
    """Starts with what is no event of a recording, and with memory that was there before."""
    trace = [entry("snapshot", 0, 0, 5), entry("free_completed", BASE + 8192, 64, 6), *simple()["device_traces"][0][1:]]
    early = [block(BASE + 512 * i, 512, "active_allocated", 500) for i in (2, 16, 17)]  # the first one is of the trace
    return snapshot([segment(BASE, 2 * MIB, early), segment(BASE + 2 * MIB, 2 * MIB, []), segment(BASE + 8 * MIB, 4096, [])], trace)


@pytest.mark.parametrize("source", [simple(), late(), *RECORDED], ids=["made", "late", *map(os.path.basename, RECORDED)])
def test_there_and_back_keeps_every_event(tmp_path, source):
    first = Recording(source) if isinstance(source, str) else load(tmp_path, source)
    second = Recording(first.save(tmp_path / "again.pickle"))
    assert second.story() == with_device(first.story())
    third = Recording(second.save(tmp_path / "third.pickle"))
    assert third.story() == second.story()


def test_the_viewer_knows_every_opcode(tmp_path):
    """The reader of memory_viz's page is small. These are the opcodes that it has, and portions of a thousand."""
    known = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SHORT_BINUNICODE", "BINUNICODE", "MEMOIZE", "BINGET", "LONG_BINGET", "BININT",
             "BININT1", "BININT2", "LONG1", "BINFLOAT", "NEWTRUE", "NEWFALSE", "TUPLE2", "SETITEMS", "APPENDS", "STOP"}  # fmt: skip
    trace = [entry("alloc", BASE + i * 512, 400, i, frames=[frame(i)], user_metadata="x" * 300) for i in range(2500)]
    path = load(tmp_path, snapshot([], trace)).save(tmp_path / "out.pickle")
    data = path.read_bytes()
    assert {opcode.name for opcode, _, _ in pickletools.genops(data)} <= known
    assert data[1] == 4
    written = pickle.loads(data)
    assert len(written["device_traces"][0]) == 2500
    depth, items, most = [], 0, 0
    for opcode, _, _ in pickletools.genops(data):
        if opcode.name == "MARK":
            depth.append(items)
            items = 0
        elif opcode.name in ("APPENDS", "SETITEMS"):
            most = max(most, items)
            items = depth.pop()
        elif opcode.stack_after and not opcode.stack_before:
            items += 1
    assert most <= 1000


def holds(mapped, start, end):
    """Whether stretches of addresses hold [start, end), one or several together."""
    for first, last in sorted(mapped):
        if first <= start < last:
            start = last
    return start >= end


def check_snapshot(data):
    """What every reader of a snapshot relies on."""
    for part in data["segments"]:
        assert sum(b["size"] for b in part["blocks"]) == part["total_size"]
        address = part["address"]
        for b in part["blocks"]:
            assert b["address"] == address and 0 <= b["requested_size"] <= b["size"]
            address += b["size"]
    for device, trace in enumerate(data["device_traces"]):
        # Backwards from the end, as the viewer goes: every block lies in a segment at every moment.
        mapped = [[s["address"], s["address"] + s["total_size"]] for s in data["segments"] if s["device"] == device]
        live = {b["address"]: b["size"] for s in data["segments"] if s["device"] == device for b in s["blocks"] if b["state"] == "active_allocated"}
        for e in reversed(trace):
            if e["action"] == "alloc":
                del live[e["addr"]]
            elif e["action"] == "free_completed":
                assert e["addr"] not in live
                assert holds(mapped, e["addr"], e["addr"] + e["size"])
                live[e["addr"]] = e["size"]
            elif e["action"] in ("segment_free", "segment_unmap"):
                mapped.append([e["addr"], e["addr"] + e["size"]])
            elif e["action"] == "segment_alloc":
                mapped.remove([e["addr"], e["addr"] + e["size"]])


def random_trace(seed, count=400):
    pick, time, live, trace = random.Random(seed), 0, {}, [entry("segment_alloc", BASE, 64 * MIB, 0)]
    for _ in range(count):
        time += pick.randrange(3)
        if live and pick.random() < 0.45:
            place = pick.choice(sorted(live))
            for action in ("free_requested", "free_completed"):
                trace.append(entry(action, BASE + place * 65536, live[place], time))
            del live[place]
        elif len(live) < 900:
            place = pick.choice([p for p in range(1000) if p not in live])
            live[place] = pick.randrange(1, 65537)
            trace.append(entry("alloc", BASE + place * 65536, live[place], time, pick.choice([0, 0, 1 << 40]), frames=[frame(pick.randrange(9))]))
    blocks, address = [], BASE
    for place in sorted(live):
        start = BASE + place * 65536
        if start > address:
            blocks.append(block(address, start - address, "inactive"))
        blocks.append(block(start, 65536, "active_allocated", live[place]))
        address = start + 65536
    blocks.append(block(address, BASE + 64 * MIB - address, "inactive"))
    return snapshot([segment(BASE, 64 * MIB, blocks)], trace)


@pytest.mark.parametrize("seed", range(5))
def test_random_traces_there_and_back(tmp_path, seed):
    first = load(tmp_path, random_trace(seed), PROTOCOLS[seed % 4])
    path = first.save(tmp_path / "again.pickle")
    check_snapshot(pickle.loads(path.read_bytes()))
    assert Recording(path).story() == first.story()


# --- what is refused ---


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_executed(tmp_path, protocol):
    touched = tmp_path / "touched"
    with pytest.raises(insight.Failure, match=r"byte \d+: opcode 0x\w\w \((STACK_)?GLOBAL\) asks for code to be run"):
        load(tmp_path, {"segments": [], "extra": Evil(touched)}, protocol)
    assert not touched.exists()


@pytest.mark.parametrize(
    "data, sentence",
    [
        (b"\x80\x06}.", "protocol"),
        (b"\x80\x04", "byte 2: the file ends in the middle"),
        (b"\x80\x04}", "ends in the middle"),
        (b"\x80\x04.", "stack has too few"),
        (b"\x80\x04\xff.", "byte 2: opcode 0xff (unknown)"),
        (b"\x80\x02I1\n.", "(INT) is not one"),
        (b"\x80\x04h\x07.", "memo has no such value"),
        (b"\x80\x04}r\xff\xff\xff\xff.", "memo has no such place"),
        (b"\x80\x04}u.", "no mark"),
        (b"\x80\x04(u.", "nothing below the mark"),
        (b"\x80\x04}(K\x01u.", "key without a value"),
        (b"\x80\x04X\xff\xff\xff\xffabc.", "ends in the middle"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.", "ends in the middle"),
        (b"\x80\x04K\x01.", "no list of segments"),
        (b"\x80\x04}.", "no list of segments"),
        (pickle.dumps({"segments": [1]}), "no segment"),
        (pickle.dumps({"segments": [], "device_traces": [3]}), "no list of events"),
        (pickle.dumps({"segments": [], "device_traces": [[3]]}), "event 0 of device 0 is no dictionary"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1}]]}), "event 0 of device 0 has no size"),
        (pickle.dumps({"segments": [], "device_traces": [[], [{"action": "alloc", "size": 1}]]}), "event 0 of device 1 has no address"),
        (pickle.dumps({"segments": [], "device_traces": [[entry("alloc", 1, -1, 0)]]}), "more bytes than"),
        (pickle.dumps({"segments": [segment(BASE, 1 << 63, [])]}), "more bytes than"),
        (pickle.dumps({"segments": [segment(BASE, 1, [{"state": "inactive"}])]}), "has no size"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path, data, sentence):
    with pytest.raises(insight.Failure) as failure:
        load(tmp_path, data)
    assert sentence in str(failure.value)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_file_that_ends_early(tmp_path, protocol):
    data = pickle.dumps(simple(), protocol)
    for length in range(2, len(data)):
        with pytest.raises(insight.Failure):
            load(tmp_path, data[:length])


@pytest.mark.parametrize("name, peak", [("torch-h200.pickle", 69501444), ("torch-h200-plain.pickle", 69582600)])
def test_figures_of_a_gpu_are_those_of_pytorch(name, peak):
    """Snapshots of PyTorch 2.11 on an H200; torch.cuda.memory_stats() of the same programs had these numbers."""
    info = insight.Recording(os.path.join(DATA, name)).info
    assert (info.peak_requested, info.peak_reserved, info.live_bytes) == (peak, 73400320, 68951552)
