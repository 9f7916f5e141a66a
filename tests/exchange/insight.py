# SPDX-License-Identifier: MIT
"""libloch_insight for tests: recordings as Python objects."""

import ctypes
import os

LIBRARY = os.environ["LOCH_LIBRARY"]
_core = ctypes.CDLL(LIBRARY, ctypes.RTLD_GLOBAL)
_insight = ctypes.CDLL(os.path.join(os.path.dirname(LIBRARY), "libloch_insight.so"))

NONE = 0xFFFFFFFF
TEXT, BINARY, TORCH, CHROME, FOLDED, METRICS = range(1, 7)
KINDS = ["alloc", "free", "use", "resize", "move", "take", "give", "call", "sleep", "wake", "fail"]
NUMBERS = [
    "events", "blocks", "ranges", "tags", "allocators", "devices", "threads", "streams", "calls", "stacks", "lost",
    "duration_ns", "started_ns", "peak_requested", "peak_event", "peak_reserved", "live_blocks", "live_bytes",
]  # fmt: skip


class Info(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("format", ctypes.c_int), ("path", ctypes.c_char_p), ("program", ctypes.c_char_p),
        *((name, ctypes.c_uint64) for name in NUMBERS),
        ("has_addresses", ctypes.c_uint32), ("was_ended", ctypes.c_uint32),
    ]  # fmt: skip


class Event(ctypes.Structure):
    _fields_ = [
        ("time_ns", ctypes.c_uint64), ("value", ctypes.c_uint64), ("subject", ctypes.c_uint32), ("stack", ctypes.c_uint32),
        ("stream", ctypes.c_uint16), ("thread", ctypes.c_uint16), ("kind", ctypes.c_uint16), ("flags", ctypes.c_uint16),
    ]  # fmt: skip


class Block(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("address", ctypes.c_uint64),
        ("alloc_event", ctypes.c_uint32), ("free_event", ctypes.c_uint32), ("tag", ctypes.c_uint32),
        ("allocator", ctypes.c_uint16), ("stream", ctypes.c_uint16), ("alignment", ctypes.c_uint8),
        ("is_present", ctypes.c_uint8), ("reserved", ctypes.c_uint8 * 6), ("max_bytes", ctypes.c_uint64),
    ]  # fmt: skip


class Range(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("take_event", ctypes.c_uint32),
        ("give_event", ctypes.c_uint32), ("device", ctypes.c_uint16), ("kind", ctypes.c_uint16),
        ("reserved", ctypes.c_uint32),
    ]  # fmt: skip


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("format", ctypes.c_int), ("progress", ctypes.c_void_p), ("user", ctypes.c_void_p)]


class Error(ctypes.Structure):
    _fields_ = [
        ("status", ctypes.c_int), ("driver", ctypes.c_char_p), ("driver_code", ctypes.c_long), ("sentence", ctypes.c_char * 256),
    ]  # fmt: skip


class Failure(Exception):
    pass


_core.loch_error_get.restype = ctypes.POINTER(Error)
_insight.loch_recording_get_events.restype = ctypes.POINTER(Event)
_insight.loch_recording_get_blocks.restype = ctypes.POINTER(Block)
_insight.loch_recording_get_ranges.restype = ctypes.POINTER(Range)
_insight.loch_recording_get_name.restype = ctypes.c_char_p
_insight.loch_recording_get_stack.restype = ctypes.POINTER(ctypes.c_char_p)


def _check(status):
    if status:
        raise Failure(_core.loch_error_get().contents.sentence.decode())


class Recording:
    def __init__(self, path):
        self._handle = ctypes.c_void_p()
        _check(_insight.loch_recording_load(str(path).encode(), None, ctypes.byref(self._handle)))
        self.info = Info(size=ctypes.sizeof(Info))
        _check(_insight.loch_recording_get_info(self._handle, ctypes.byref(self.info)))
        self.events = _insight.loch_recording_get_events(self._handle)[: self.info.events]
        self.blocks = _insight.loch_recording_get_blocks(self._handle)[: self.info.blocks]
        self.ranges = _insight.loch_recording_get_ranges(self._handle)[: self.info.ranges]

    def __del__(self):
        _insight.loch_recording_destroy(self._handle)

    def save(self, path, format=0):
        options = Options(size=ctypes.sizeof(Options), format=format)
        _check(_insight.loch_recording_save(self._handle, str(path).encode(), ctypes.byref(options)))
        return path

    def name(self, noun, index):
        nouns = ["tag", "allocator", "device", "thread", "call"]
        return _insight.loch_recording_get_name(self._handle, nouns.index(noun), ctypes.c_size_t(index)).decode()

    def stack(self, index):
        count = ctypes.c_size_t()
        frames = _insight.loch_recording_get_stack(self._handle, ctypes.c_uint32(index), ctypes.byref(count))
        return [frames[i].decode() for i in range(count.value)]

    def story(self):
        """Every event as a tuple of what it means, without indices."""
        story = []
        for event in self.events:
            kind = KINDS[event.kind]
            if kind in ("alloc", "free", "resize", "move", "use"):
                block = self.blocks[event.subject]
                where = (block.address, self.name("tag", block.tag), event.stream, bool(block.is_present))
            elif kind in ("take", "give"):
                where = (self.ranges[event.subject].address, self.name("device", event.stream))
            else:
                where = (self.name("allocator", event.subject),)
            story.append((event.time_ns, kind, event.value, *where, *self.stack(event.stack)))
        return story
