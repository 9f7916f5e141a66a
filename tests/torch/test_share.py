# SPDX-License-Identifier: MIT
"""Memory of PyTorch's allocator in two processes: memory of the CPU stands in for a GPU's."""

import os
import subprocess
import sys

import pytest
from conftest import HERE

HEAD = f"""
import ctypes, sys
sys.path.insert(0, {str(HERE)!r})
import door, torch
door.install("loch")
torch.cuda._initialized = True
probe = ctypes.PyDLL(sys.argv[1])
probe.probe_error.restype = ctypes.c_char_p
alloc = torch._C._cuda_cudaCachingAllocator_raw_alloc
free = torch._C._cuda_cudaCachingAllocator_raw_delete
def need(result):
    if result: raise RuntimeError(probe.probe_error().decode())
def share(address):
    handle, size, offset = ctypes.create_string_buffer(256), ctypes.c_size_t(256), ctypes.c_size_t()
    need(probe.probe_share(ctypes.c_size_t(address), handle, ctypes.byref(size), ctypes.byref(offset)))
    return handle.raw[:size.value].hex(), offset.value
def open_handle(text):
    handle, base = bytes.fromhex(text), ctypes.c_size_t()
    need(probe.probe_open(handle, ctypes.c_size_t(len(handle)), ctypes.byref(base)))
    return base.value
def say(*words): print(*words, flush=True)
"""

OWNER = HEAD + """
small, beside, large = alloc(1000, 0), alloc(1000, 0), alloc(40 << 20, 0)
for address, letter in (small, b"s"), (beside, b"b"), (large, b"l"):
    ctypes.memset(address, letter[0], 1000)
    say(*share(address))
assert share(small) == share(small)
for line in sys.stdin:
    word = line.strip()
    if word == "read": say(ctypes.string_at(small, 4).decode(), ctypes.string_at(large + 999, 1).decode())
    if word == "again":
        free(large); torch._C._cuda_emptyCache(); large = alloc(40 << 20, 0)
        ctypes.memset(large, ord("n"), 1000)
        say(*share(large))
    if word == "wrong":
        for address in (small + 512, 4096):
            try: share(address)
            except RuntimeError as error: say(str(error).splitlines()[0])
"""


def start(program, path, *arguments):
    environment = {**os.environ, "LOCH_TORCH_DEVICE": "cpu"}
    return subprocess.Popen([sys.executable, "-c", program, path, *arguments], env=environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def ask(process, word):
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return process.stdout.readline().split()


@pytest.fixture
def owner(probe):
    process = start(OWNER, probe.library._name)
    process.shared = [process.stdout.readline().split() for _ in range(3)]
    yield process
    process.stdin.close()
    assert process.wait(60) == 0


def run(probe, program, *arguments):
    process = start(HEAD + program, probe.library._name, *arguments)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    return text.split()


def test_another_process_has_the_memory(probe, owner):
    (small, small_at), (beside, beside_at), (large, large_at) = owner.shared
    assert small == beside and small_at != beside_at  # one piece of memory, mapped once
    program = """
(small, small_at, beside, beside_at, large, large_at) = sys.argv[2:]
base, again, other = open_handle(small), open_handle(beside), open_handle(large)
assert base == again and other != base
say(ctypes.string_at(base + int(small_at), 1000) == b"s" * 1000, ctypes.string_at(base + int(beside_at), 1000) == b"b" * 1000,
    ctypes.string_at(other + int(large_at), 1000) == b"l" * 1000)
ctypes.memmove(base + int(small_at), b"here", 4)
ctypes.memset(other + int(large_at) + 999, ord("!"), 1)
for number in range(3): need(probe.probe_close(ctypes.c_size_t(number)))
assert not any(hex(base)[2:] == line.split("-")[0] for line in open("/proc/self/maps"))  # unmapped
"""
    assert run(probe, program, small, small_at, beside, beside_at, large, large_at) == ["True"] * 3
    assert ask(owner, "read") == ["here", "!"]


def test_memory_of_another_process_is_no_segment(probe, owner):
    """The figures, the trace and the observers of segments have what this process took from the device."""
    program = """
need(probe.probe_attach_tracker(0))
need(probe.probe_record_history(1, ctypes.c_size_t(1000), 0, 1, b""))
alloc(100, 0)
def look():
    trace = torch._C._cuda_memorySnapshot(None)["device_traces"][0]
    stats = torch._C._cuda_memoryStats(0)
    return [sum(entry["action"].startswith("segment") for entry in trace), stats["segment"]["all"], stats["reserved_bytes"]["all"],
            stats["num_device_alloc"], probe.probe_segment_seen(ctypes.c_size_t(1 << 30), None)]
before = look()
base = open_handle(sys.argv[2])
during = look()
need(probe.probe_close(ctypes.c_size_t(0)))
say(base != 0, during == before, look() == before)
"""
    assert run(probe, program, owner.shared[2][0]) == ["True"] * 3


def test_memory_that_was_given_back_gets_another_handle(probe, owner):
    old = owner.shared[2]
    new = ask(owner, "again")
    assert new[0] != old[0]
    program = """
say(ctypes.string_at(open_handle(sys.argv[2]) + int(sys.argv[3]), 4).decode())
try: open_handle(sys.argv[4])
except RuntimeError as error: say(str(error).splitlines()[0].replace(" ", "_"))
"""
    seen, refused = run(probe, program, *new, old[0])
    assert seen == "nnnn" and "Loch_could_not_open_a_tensor_of_another_process" in refused


def test_what_is_not_a_block_is_refused(owner):
    assert ask(owner, "wrong")[:3] == ["invalid", "device", "pointer:"]  # as the native allocator says
    assert owner.stdout.readline().startswith("invalid device pointer")


def test_a_process_opens_its_own_memory(probe):
    program = """
address = alloc(5000, 0)
handle, at = share(address)
say(open_handle(handle) + at == address)
"""
    assert run(probe, program) == ["True"]


def test_sharing_that_is_off_says_so(probe):
    program = HEAD.replace('door.install("loch")', 'door.install("loch", "sharing=off")') + """
try: share(alloc(5000, 0))
except RuntimeError as error: say(str(error).splitlines()[0])
"""
    process = start(program, probe.library._name)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "sharing=on" in text
