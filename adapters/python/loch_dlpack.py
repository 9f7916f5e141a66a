# SPDX-License-Identifier: MIT
"""Loch's tensors in Python, shared with NumPy, PyTorch, CuPy and others by DLPack.

    import numpy, loch_dlpack as loch

    here = loch.zeros((2, 3), "f32")
    array = numpy.from_dlpack(here)        # the same memory
    back = loch.from_dlpack(array[:, ::-1])

Pure Python over ctypes. libloch.so is found by LOCH_LIBRARY (a file), in build/lib of the tree, in lib of the installed tree, or
by the loader.
"""

import ctypes
import ctypes.util
import math
import operator
import os
import pathlib
import sys
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)

__all__ = ["LochError", "Tensor", "collect", "empty", "from_dlpack", "load", "tensor", "zeros"]

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLPack's device types
DTYPES = ["none", "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"]  # in the order of loch_dtype
DTYPES += ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"]
KINDS = {0: CUDA, 1: CUDA_HOST, 2: CUDA_MANAGED}  # loch_memory_kind on CUDA; the others are plain host memory

_OPEN = -(2**63)
_ZEROED = 1 << 2
_READ_ONLY = 1
_SHARE, _COPY = 0, 1
_NAMES = {True: b"dltensor_versioned", False: b"dltensor"}  # by whether versioned; capsules keep these addresses
_USED = {True: b"used_dltensor_versioned", False: b"used_dltensor"}


class LochError(RuntimeError):
    """A call of Loch that failed: the sentence, and the name of its status."""

    def __init__(self, sentence, status):
        super().__init__(sentence)
        self.status = status

    def __reduce__(self):
        return type(self), (str(self), self.status)


class ExportError(LochError, BufferError):
    """A failed export: the protocol of DLPack requires a BufferError."""


class OutsideError(LochError, IndexError):
    """An index out of range; it ends a loop over a sequence."""


# --- structures, as in the headers ---


class _Sized(ctypes.Structure):
    """A struct that begins with its own size."""

    def __init__(self, **members):
        super().__init__(size=ctypes.sizeof(self), **members)


class _Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("driver", c_char_p), ("driver_code", ctypes.c_long), ("sentence", c_char * 256)]


class _Properties(_Sized):  # only the members that are used here
    _fields_ = [
        ("size", c_size_t),
        ("driver", c_char * 16),
        ("model", c_char * 128),
        ("capabilities", c_uint32),
        ("index", c_int),
    ]


class _Memory(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("allocator", c_void_p),
        ("device", c_void_p),
        ("stream", c_void_p),
        ("alignment", c_size_t),
        ("tag", c_uint32),
        ("flags", c_uint32),
        ("timeout_ns", c_uint64),
        ("name", c_char_p),
    ]


class _Print(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("precision", c_int),
        ("threshold", c_size_t),
        ("edge", c_size_t),
        ("width", c_size_t),
        ("notation", c_int),
        ("separator", c_char_p),
        ("stream", c_void_p),
    ]


class _Save(_Sized):
    _fields_ = [("size", c_size_t), ("stream", c_void_p), ("as_bits", c_int)]


class _Load(_Sized):
    _fields_ = [
        ("size", c_size_t),
        ("mapping", c_int),
        ("access", c_int),
        ("dtype", c_int),
        ("memory", POINTER(_Memory)),
    ]


class _CopyOptions(_Sized):
    _fields_ = [("size", c_size_t), ("stream", c_void_p), ("wait", c_int), ("overflow", c_int)]


class _Scalar(ctypes.Structure):
    """The bits replace the union, which ctypes does not pass by value as C does."""

    _fields_ = [("dtype", c_int), ("bits", c_uint64)]


class _Export(_Sized):
    _fields_ = [("size", c_size_t), ("access", c_int), ("copy", c_int), ("producer", c_void_p), ("consumer", c_void_p)]


class _Import(_Sized):
    _fields_ = [("size", c_size_t), ("copy", c_int)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class _Legacy(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", c_void_p), ("deleter", _Deleter)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", _Deleter),
        ("flags", c_uint64),
        ("tensor", _DLTensor),
    ]


# --- the library ---


def _find_library():
    named = os.environ.get("LOCH_LIBRARY")
    above = pathlib.Path(__file__).resolve().parents
    beside = [folder / "libloch.so" for folder in (above[2] / "build" / "lib", above[3] / "lib")]
    found = [str(path) for path in beside if path.exists()]
    return named or (found + [ctypes.util.find_library("loch") or "libloch.so"])[0]


_library = ctypes.CDLL(_find_library())
_P = c_void_p
_OUT = POINTER(c_void_p)
_SHAPE = [c_size_t, POINTER(c_int64)]

# Functions that return a status.
_STATUS = {
    "loch_device_open": [c_char_p, _OUT],
    "loch_device_get_properties": [_P, POINTER(_Properties)],
    "loch_stream_wrap": [_P, _P, _OUT],
    "loch_stream_require_thread_default": [_P, _OUT],
    "loch_buffer_collect": [c_int, POINTER(c_size_t)],
    "loch_tensor_create": [c_int, *_SHAPE, POINTER(_Memory), _OUT],
    "loch_tensor_create_from": [c_int, *_SHAPE, _P, POINTER(_Memory), _OUT],
    "loch_tensor_get_address": [_P, _OUT],
    "loch_tensor_view": [_P, *_SHAPE, _OUT],
    "loch_tensor_view_as": [_P, c_int, _OUT],
    "loch_tensor_slice": [_P, c_int, c_int64, c_int64, c_int64, _OUT],
    "loch_tensor_index": [_P, c_int, c_int64, _OUT],
    "loch_tensor_transpose": [_P, c_int, c_int, _OUT],
    "loch_tensor_permute": [_P, c_size_t, POINTER(c_int), _OUT],
    "loch_tensor_squeeze": [_P, _OUT],
    "loch_tensor_squeeze_axis": [_P, c_int, _OUT],
    "loch_tensor_unsqueeze": [_P, c_int, _OUT],
    "loch_tensor_expand": [_P, *_SHAPE, _OUT],
    "loch_tensor_chunk": [_P, c_int, c_size_t, _OUT, POINTER(c_size_t)],
    "loch_tensor_copy": [_P, _P, POINTER(_CopyOptions)],
    "loch_tensor_fill": [_P, _Scalar, _P],
    "loch_tensor_contiguous": [_P, POINTER(_Memory), _OUT],
    "loch_tensor_reshape": [_P, *_SHAPE, POINTER(_Memory), _OUT],
    "loch_tensor_clone": [_P, POINTER(_Memory), _OUT],
    "loch_tensor_to": [_P, c_int, POINTER(_Memory), _OUT],
    "loch_tensor_print": [_P, POINTER(_Print), _P, c_size_t, POINTER(c_size_t)],
    "loch_tensor_describe": [_P, _P, c_size_t, POINTER(c_size_t)],
    "loch_npy_save": [_P, c_char_p, POINTER(_Save)],
    "loch_npy_load": [c_char_p, POINTER(_Load), _OUT],
    "loch_tensor_to_dlpack": [_P, POINTER(_Export), _OUT],
    "loch_tensor_to_dlpack_legacy": [_P, POINTER(_Export), _OUT],
    "loch_tensor_from_dlpack": [_P, POINTER(_Import), _OUT],
    "loch_tensor_from_dlpack_legacy": [_P, POINTER(_Import), _OUT],
}
# Functions that return something else.
_PLAIN = {
    "loch_error_get": (POINTER(_Error), []),
    "loch_status_name": (c_char_p, [c_int]),
    "loch_dtype_find": (c_int, [c_char_p]),
    "loch_dtype_bytes": (c_size_t, [c_int]),
    "loch_device_release": (None, [_P]),
    "loch_device_get_name": (c_char_p, [_P]),
    "loch_stream_close": (None, [_P]),
    "loch_stream_get_default": (c_void_p, [_P]),
    "loch_buffer_get_kind": (c_int, [_P]),
    "loch_buffer_get_references": (c_size_t, [_P]),
    "loch_tensor_release": (None, [_P]),
    "loch_tensor_retain": (c_void_p, [_P]),
    "loch_tensor_get_dtype": (c_int, [_P]),
    "loch_tensor_get_dimensions": (c_size_t, [_P]),
    "loch_tensor_get_shape": (POINTER(c_int64), [_P]),
    "loch_tensor_get_strides": (POINTER(c_int64), [_P]),
    "loch_tensor_get_buffer": (c_void_p, [_P]),
    "loch_tensor_get_device": (c_void_p, [_P]),
    "loch_tensor_get_access": (c_int, [_P]),
    "loch_tensor_is_contiguous": (c_int, [_P]),
    "loch_tensor_is_on_host": (c_int, [_P]),
}


def _raise(status, _function, _arguments):
    if status == 0:
        return None
    error = _library.loch_error_get().contents
    raise LochError(error.sentence.decode(errors="replace"), _library.loch_status_name(status).decode())


for _name, _arguments in _STATUS.items():
    _function = getattr(_library, _name)
    _function.argtypes, _function.restype, _function.errcheck = _arguments, c_int, _raise
for _name, (_result, _arguments) in _PLAIN.items():
    _function = getattr(_library, _name)
    _function.argtypes, _function.restype = _arguments, _result


def _made(name, *arguments):
    """Returns the tensor that a function creates in its last argument."""
    out = c_void_p()
    getattr(_library, name)(*arguments, byref(out))
    return Tensor(out.value)


def _numbers(kind, values):
    """Returns a C array of integers and its length. Checks the range: ctypes would truncate."""
    values = [operator.index(value) for value in values]
    most = 2 ** (8 * ctypes.sizeof(kind) - 1) - 1
    for value in values:
        if not -most - 1 <= value <= most:
            raise OverflowError(f"{value} does not fit {8 * ctypes.sizeof(kind)} bits")
    return len(values), (kind * len(values))(*values)


def _sizes(shape):
    return _numbers(c_int64, shape if hasattr(shape, "__iter__") else (shape,))


def _dtype(name):
    number = _library.loch_dtype_find(str(name).encode())
    if number == 0:
        raise TypeError(f"Loch has no type {name!s}: {' '.join(DTYPES[1:])}")
    return number


def _scalar(value):
    try:
        value = operator.index(value)
    except TypeError:
        return _Scalar(DTYPES.index("f64"), c_uint64.from_buffer_copy(ctypes.c_double(value)))
    if not -(2**63) <= value < 2**64:
        raise OverflowError(f"{value} does not fit 64 bits")
    return _Scalar(DTYPES.index("u64" if value >= 2**63 else "i64"), value % 2**64)


class _Device:
    """Opens a device by name for the time of a `with`; None lets Loch choose the device."""

    def __init__(self, name):
        self.handle = c_void_p()
        if name is not None:
            _library.loch_device_open(str(name).encode(), byref(self.handle))

    def __enter__(self):
        return self.handle

    def __exit__(self, *_):
        _library.loch_device_release(self.handle)


# --- capsules ---

_api = ctypes.pythonapi
_api.PyCapsule_New.restype, _api.PyCapsule_New.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
_api.PyCapsule_IsValid.restype, _api.PyCapsule_IsValid.argtypes = c_int, [py_object, c_char_p]
_api.PyCapsule_GetPointer.restype, _api.PyCapsule_GetPointer.argtypes = c_void_p, [py_object, c_char_p]
_api.PyCapsule_SetName.restype, _api.PyCapsule_SetName.argtypes = c_int, [py_object, c_char_p]

# Capsules have no destructor: one that is written in Python would lose the exception of a receiver that fails and drops
# the capsule. Capsules that were handed out stay in this list. The next call here runs the deleter of capsules that
# were not consumed and have no other reference.
_handed_out = []
# A forked child has copies of the capsules; only the parent runs their deleters.
os.register_at_fork(after_in_child=_handed_out.clear)


def _pop(handed_out):
    """Pops the last pair of a list. Returns it with the references of its capsule; _ALONE if there are no others."""
    capsule, is_versioned = handed_out.pop()
    return capsule, is_versioned, sys.getrefcount(capsule)


_ALONE = _pop([(object(), True)])[2]


def _sweep():
    handed_out, _handed_out[:] = _handed_out[:], []
    while handed_out:
        capsule, is_versioned, references = _pop(handed_out)
        if not _api.PyCapsule_IsValid(capsule, _NAMES[is_versioned]):
            continue  # consumed: its receiver runs the deleter
        if references > _ALONE:
            _handed_out.append((capsule, is_versioned))
            continue
        address = _api.PyCapsule_GetPointer(capsule, _NAMES[is_versioned])
        (_Versioned if is_versioned else _Legacy).from_address(address).deleter(address)


def collect(wait=False):
    """Frees capsules that were not consumed, and memory whose work has ended. Returns how many buffers still wait."""
    waiting = c_size_t()
    _sweep()
    _library.loch_buffer_collect(2 if wait else 0, byref(waiting))
    return waiting.value


# --- tensors ---


class _OnHost:
    """Exports a tensor whose memory the host can access as plain host memory, for NumPy."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self, *, dl_device=None, **options):
        return self._tensor.__dlpack__(dl_device=(CPU, 0), **options)


def _unpickle(dtype, shape, contents, device):
    made = _made("loch_tensor_create_from", _dtype(dtype), *_sizes(shape), contents, None)
    return made if device == made.device else made.to(device)


class Tensor:
    """A tensor of Loch. Views share its memory, and keep it.

    copy.copy gives a second object for the same tensor, copy.deepcopy a clone, pickle the contents, which are a new tensor
    on a device of the same name where they are loaded. A process that was forked may read the tensors that it has
    inherited; they are its parent's to free.
    """

    __slots__ = ("_handle", "_process", "__weakref__")
    __hash__ = object.__hash__  # by identity, as PyTorch: == compares elements

    def __init__(self, handle):
        self._handle = handle
        self._process = os.getpid()

    def __del__(self, _release=_library.loch_tensor_release, _getpid=os.getpid):
        if getattr(self, "_process", None) == _getpid():
            _release(self._handle)

    def __copy__(self):
        return Tensor(_library.loch_tensor_retain(self._handle))

    def __deepcopy__(self, memo):
        return self.clone()

    def __reduce_ex__(self, _protocol):
        here = self.to("cpu").contiguous()
        length = math.prod(self.shape) * _library.loch_dtype_bytes(_dtype(self.dtype))
        return _unpickle, (self.dtype, self.shape, ctypes.string_at(here.address, length) if length else b"", self.device)

    # properties

    @property
    def ndim(self):
        """Number of dimensions."""
        return _library.loch_tensor_get_dimensions(self._handle)

    @property
    def shape(self):
        """The sizes."""
        return tuple(_library.loch_tensor_get_shape(self._handle)[: self.ndim])

    @property
    def strides(self):
        """The strides, in elements."""
        return tuple(_library.loch_tensor_get_strides(self._handle)[: self.ndim])

    @property
    def dtype(self):
        """The name of the type: "f32"."""
        return DTYPES[_library.loch_tensor_get_dtype(self._handle)]

    @property
    def device(self):
        """The name of the device: "cpu", "cuda:0"."""
        device = _library.loch_tensor_get_device(self._handle)
        return _library.loch_device_get_name(device).decode() if device else "cpu"

    @property
    def address(self):
        """Address of the element with all indices 0; 0 without elements."""
        out = c_void_p()
        _library.loch_tensor_get_address(self._handle, byref(out))
        return out.value or 0

    @property
    def is_read_only(self):
        """Whether the tensor is read-only."""
        return _library.loch_tensor_get_access(self._handle) == _READ_ONLY

    @property
    def is_contiguous(self):
        """Whether the elements are contiguous, row after row."""
        return bool(_library.loch_tensor_is_contiguous(self._handle))

    @property
    def references(self):
        """Number of references to its buffer."""
        _sweep()
        return _library.loch_buffer_get_references(_library.loch_tensor_get_buffer(self._handle))

    def __len__(self):
        if not self.ndim:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __iter__(self):
        return (self.index(0, at) for at in range(len(self)))

    def __str__(self):
        return self.format()

    def __repr__(self):
        return f"<loch {self._text('loch_tensor_describe')}>"

    def format(self, **options):
        """The elements as text; options as in loch/print.h (precision, threshold, edge, width, notation, separator)."""
        if "separator" in options:
            options["separator"] = options["separator"].encode()
        return self._text("loch_tensor_print", _Print(**options))

    def _text(self, name, *options):
        length = c_size_t()
        write = getattr(_library, name)
        write(self._handle, *options, None, 0, byref(length))
        text = ctypes.create_string_buffer(length.value + 1)
        write(self._handle, *options, text, len(text), byref(length))
        return text.value.decode()

    # views

    def view(self, shape):
        """Another shape of the same elements, where the strides allow it."""
        return _made("loch_tensor_view", self._handle, *_sizes(shape))

    def view_as(self, dtype):
        """The same bits as another type."""
        return _made("loch_tensor_view_as", self._handle, _dtype(dtype))

    def slice(self, axis, start=None, stop=None, step=None):
        """start:stop:step along one axis."""
        bounds = [_OPEN if bound is None else max(1 - 2**63, min(bound, 2**63 - 1)) for bound in (start, stop)]
        step = 1 if step is None else max(1 - 2**63, min(operator.index(step), 2**63 - 1))
        return _made("loch_tensor_slice", self._handle, axis, *bounds, step)

    def index(self, axis, at):
        """Selects one index along an axis; the result has one dimension less."""
        try:
            return _made("loch_tensor_index", self._handle, axis, *_numbers(c_int64, [at])[1])
        except OverflowError:
            raise OutsideError(f"index {at} is in no axis", "E_OUT_OF_RANGE") from None
        except LochError as error:
            if error.status != "E_OUT_OF_RANGE":
                raise
            raise OutsideError(str(error), error.status) from None

    def transpose(self, axis, other):
        """Exchanges two axes."""
        return _made("loch_tensor_transpose", self._handle, axis, other)

    def permute(self, axes):
        """Permutes all axes."""
        return _made("loch_tensor_permute", self._handle, *_numbers(c_int, axes))

    def squeeze(self, axis=None):
        """Removes the axes of size 1, or one of them."""
        if axis is None:
            return _made("loch_tensor_squeeze", self._handle)
        return _made("loch_tensor_squeeze_axis", self._handle, axis)

    def unsqueeze(self, axis):
        """Inserts an axis of size 1 before `axis`."""
        return _made("loch_tensor_unsqueeze", self._handle, axis)

    def expand(self, shape):
        """Repeats the tensor to a shape, like NumPy broadcasting."""
        return _made("loch_tensor_expand", self._handle, *_sizes(shape))

    def chunk(self, chunks, axis=0):
        """Cuts the tensor into at most that many pieces."""
        out, count = (c_void_p * chunks)(), c_size_t()
        _library.loch_tensor_chunk(self._handle, axis, chunks, out, byref(count))
        return [Tensor(handle) for handle in out[: count.value]]

    def __getitem__(self, key):
        """Basic indexing: integers, slices, Ellipsis and None."""
        keys = list(key) if isinstance(key, tuple) else [key]
        open_ends = self.ndim - sum(k is not None and k is not Ellipsis for k in keys)
        ellipses = [at for at, k in enumerate(keys) if k is Ellipsis]  # not by ==, which compares elements of arrays
        if len(ellipses) > 1 or open_ends < 0:
            raise IndexError(f"{key!r} does not fit {self.ndim} dimensions")
        for at in ellipses:
            keys[at : at + 1] = [slice(None)] * open_ends
        view, axis = self, 0
        for k in keys:
            if k is None:
                view = view.unsqueeze(axis) if axis < view.ndim else view.unsqueeze(-1)
            elif isinstance(k, slice):
                view = view.slice(axis, k.start, k.stop, k.step)
            elif isinstance(k, bool):
                raise TypeError("a bool is no index")
            else:
                view = view.index(axis, operator.index(k))
                continue
            axis += 1
        return view

    # contents

    def copy_from(self, other, overflow=0):
        """Copies the elements of a tensor of the same shape, of any type, layout and device."""
        _library.loch_tensor_copy(self._handle, other._handle, _CopyOptions(overflow=overflow))
        return self

    def fill(self, value):
        """Sets all elements."""
        _library.loch_tensor_fill(self._handle, _scalar(value), None)
        return self

    def __setitem__(self, key, value):
        part = self[key]
        if isinstance(value, (list, tuple)):
            value = tensor(value)
        elif not isinstance(value, Tensor) and hasattr(value, "__dlpack__"):
            value = from_dlpack(value)
        if not isinstance(value, Tensor):
            part.fill(value)
        else:
            part.copy_from(value if value.shape == part.shape else value.expand(part.shape))

    # elements as Python's numbers: for a few of them; NumPy is faster for many

    def _flat(self):
        """All elements as a list of Python's numbers, row after row."""
        kind = {"f": "f64", "b": "f64", "i": "i64", "u": "u64"}[self.dtype[0]] if self.dtype != "bool" else "bool"
        number = {"f64": ctypes.c_double, "i64": c_int64, "u64": c_uint64, "bool": ctypes.c_bool}[kind]
        here, count = self.to("cpu", kind).contiguous(), math.prod(self.shape)
        return list((number * count).from_address(here.address)) if count else []

    def tolist(self):
        """The elements in nested lists; a number for a scalar."""
        flat = self._flat()
        if not self.ndim:
            return flat[0]
        for size in self.shape[:0:-1]:
            flat = [flat[at * size : (at + 1) * size] for at in range(len(flat) // size)] if size else []
        if 0 in self.shape[1:]:
            return [self[at].tolist() for at in range(len(self))]
        return flat

    def item(self):
        """The one element, as a number of Python's."""
        if math.prod(self.shape) != 1:
            raise ValueError(f"a tensor of shape {self.shape} has not one element")
        return self._flat()[0]

    def __bool__(self):
        if math.prod(self.shape) != 1:
            raise ValueError(f"whether a tensor of shape {self.shape} is true is not clear: compare elements, or its len()")
        return bool(self.item())

    def __int__(self):
        return int(self._one())

    def __float__(self):
        return float(self._one())

    def __index__(self):
        if self.ndim or self.dtype[0] not in "iu":
            raise TypeError(f"a tensor of {self.dtype} and shape {self.shape} is no index: only whole numbers without dimensions")
        return self.item()

    def _one(self):
        if math.prod(self.shape) != 1:
            raise TypeError(f"a tensor of shape {self.shape} is not one number")
        return self.item()

    def __contains__(self, value):
        if getattr(value, "shape", ()) or isinstance(value, (list, tuple)):
            raise TypeError("`in` looks for one number")
        return value in self._flat()

    def __eq__(self, other):
        """Compares elements, as NumPy: a tensor of bool on the host. Slow for many elements."""
        return self._compare(other, operator.eq)

    def __ne__(self, other):
        """Compares elements, as NumPy: a tensor of bool on the host. Slow for many elements."""
        return self._compare(other, operator.ne)

    def _compare(self, other, operation):
        if not isinstance(other, (Tensor, bool, int, float)):
            return NotImplemented
        if not isinstance(other, Tensor):
            answers = [operation(value, other) for value in self._flat()]
            return tensor(answers, "bool").view(self.shape)
        pairs = zip(reversed(self.shape), reversed(other.shape))
        if any(a != b and 1 not in (a, b) for a, b in pairs):
            raise ValueError(f"tensors of shapes {self.shape} and {other.shape} are not compared: they do not broadcast")
        longer, shorter = (self, other) if self.ndim >= other.ndim else (other, self)
        shape = list(longer.shape)
        for back in range(1, shorter.ndim + 1):
            shape[-back] = shorter.shape[-back] if shape[-back] == 1 else shape[-back]
        answers = map(operation, self.expand(shape)._flat(), other.expand(shape)._flat())
        return tensor(list(answers), "bool").view(shape)

    def __array__(self, dtype=None, copy=None):
        """For NumPy: an array that shares the memory if the host can access it and the type stays."""
        import numpy

        if not _library.loch_tensor_is_on_host(self._handle):
            raise TypeError(f'a tensor on {self.device} is not copied to the host unasked: .to("cpu") first')
        if self.dtype in ("bf16", "f8e4m3", "f8e5m2"):
            raise TypeError(f'NumPy has no {self.dtype}: .to(dtype="f32") first')
        array = numpy.from_dlpack(_OnHost(self))
        if dtype is not None and numpy.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"{self.dtype} as {numpy.dtype(dtype)} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def reshape(self, shape):
        """Another shape: a view, or else a copy."""
        return _made("loch_tensor_reshape", self._handle, *_sizes(shape), None)

    def contiguous(self):
        """Returns the tensor itself if it is contiguous, else a contiguous copy."""
        return _made("loch_tensor_contiguous", self._handle, None)

    def clone(self):
        """A copy."""
        return _made("loch_tensor_clone", self._handle, None)

    def to(self, device=None, dtype=None):
        """Returns the tensor on a device, with a type: itself if nothing changes, else a copy."""
        number = 0 if dtype is None else _dtype(dtype)
        with _Device(device or self.device) as handle:
            return _made("loch_tensor_to", self._handle, number, _Memory(device=handle))

    def save(self, path, as_bits=False):
        """Writes a .npy file; `as_bits` for types that NumPy lacks."""
        _library.loch_npy_save(self._handle, os.fsencode(path), _Save(as_bits=as_bits))

    # DLPack

    def __dlpack_device__(self):
        """Type and number of the device, as DLPack counts them."""
        device = _library.loch_tensor_get_device(self._handle)
        properties = _Properties()
        if device:
            _library.loch_device_get_properties(device, properties)
        if properties.driver in (b"", b"cpu"):
            return CPU, 0
        if properties.driver != b"cuda":
            raise ExportError(f"DLPack has no word for memory of {self.device}", "E_UNSUPPORTED")
        kind = _library.loch_buffer_get_kind(_library.loch_tensor_get_buffer(self._handle))
        return (KINDS[kind], properties.index) if kind in KINDS else (CPU, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Returns a capsule for a receiver, as the protocol of DLPack requires."""
        _sweep()
        place = self.__dlpack_device__()
        wanted = place if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        on_host = bool(_library.loch_tensor_is_on_host(self._handle))
        if wanted == place or (wanted[0] == CPU and on_host):
            return self._export(stream, max_version, wanted, _COPY if copy else _SHARE)
        if copy is False or wanted[0] != CPU:
            raise ExportError(f"a tensor on {self.device} is not exported to DLPack's device {wanted}", "E_UNSUPPORTED")
        return self.to("cpu")._export(None, max_version, wanted, _COPY)

    def _export(self, stream, max_version, place, copy):
        is_versioned = max_version is not None and max_version[0] >= 1
        export = _library.loch_tensor_to_dlpack if is_versioned else _library.loch_tensor_to_dlpack_legacy
        out = c_void_p()
        consumer, wrapped = self._consumer(stream, place)
        try:
            export(self._handle, _Export(copy=copy, consumer=consumer), byref(out))
        except LochError as error:
            raise ExportError(str(error), error.status) from None
        finally:
            _library.loch_stream_close(wrapped)
        managed = (_Versioned if is_versioned else _Legacy).from_address(out.value)
        managed.tensor.device_type, managed.tensor.device_id = place  # pinned memory may be exported as host memory
        capsule = _api.PyCapsule_New(out, _NAMES[is_versioned], None)
        _handed_out.append((capsule, is_versioned))
        return capsule

    def _consumer(self, stream, place):
        """Returns the receiver's stream, and the wrapper to destroy after use; None makes Loch wait on the host."""
        if place[0] == CPU and stream is not None:
            raise ExportError(f"the host has no stream {stream!r}", "E_INVALID")
        if place[0] != CUDA and stream is None:  # the host may read it at once
            return None, None
        device = _library.loch_tensor_get_device(self._handle)
        default = _library.loch_stream_get_default(device)
        if stream in (None, 1, -1):  # Loch's own work is on the default stream: nothing to wait for
            return default, None
        out = c_void_p()
        if stream == 2:
            _library.loch_stream_require_thread_default(device, byref(out))
            return out, None
        if stream == 0:
            raise ExportError("stream 0 may mean two things: 1 is the default stream, 2 the thread's", "E_INVALID")
        _library.loch_stream_wrap(device, stream, byref(out))
        return out, out


def from_dlpack(source, *, stream=None, copy=None):
    """A tensor that shares the memory of any object with __dlpack__, or of a capsule.

    `stream` is the raw stream (an int as in __dlpack__) whose later work may use it; the default stream when None.
    `copy`: True always copies, False and None never do here, though the exporter may where it has to.
    """
    _sweep()
    capsule, is_copied = _ask(source, stream, copy) if hasattr(source, "__dlpack__") else (source, False)
    for is_versioned, name in _NAMES.items():
        if not _api.PyCapsule_IsValid(capsule, name):
            continue
        address = _api.PyCapsule_GetPointer(capsule, name)
        function = "loch_tensor_from_dlpack" + ("" if is_versioned else "_legacy")
        made = _made(function, address, _Import(copy=_COPY if copy and not is_copied else _SHARE))
        _api.PyCapsule_SetName(capsule, _USED[is_versioned])
        return made
    raise TypeError(f"a {type(source).__name__} is no tensor of DLPack, or one that was taken already")


def _ask(source, stream, copy):
    """Returns the capsule of an object, and whether the object made a copy. Older objects accept only `stream`."""
    streams = {}
    if hasattr(source, "__dlpack_device__") and int(source.__dlpack_device__()[0]) == CUDA:
        streams["stream"] = 1 if stream is None else stream
    try:
        copies = {} if copy is None else {"copy": copy}
        return source.__dlpack__(max_version=(1, 1), **streams, **copies), bool(copy)
    except TypeError:
        return source.__dlpack__(**streams), False


# --- new tensors ---


def empty(shape, dtype="f32", device=None, _flags=0):
    """A tensor with undefined contents."""
    with _Device(device) as handle:
        return _made("loch_tensor_create", _dtype(dtype), *_sizes(shape), _Memory(device=handle, flags=_flags))


def zeros(shape, dtype="f32", device=None):
    """A tensor of zeros."""
    return empty(shape, dtype, device, _ZEROED)


def _flatten(values, shape, out):
    if not isinstance(values, (list, tuple)):
        if shape:
            raise ValueError("rows of different lengths")
        out.append(values)
    elif not shape or len(values) != shape[0]:
        raise ValueError("rows of different lengths")
    else:
        for value in values:
            _flatten(value, shape[1:], out)


def _kind(numbers):
    """Returns the type that holds all the numbers, and its ctypes type."""
    if numbers and all(isinstance(number, bool) for number in numbers):
        return "bool", ctypes.c_bool
    if not numbers or not all(hasattr(number, "__index__") for number in numbers):
        return "f64", ctypes.c_double
    numbers[:] = map(operator.index, numbers)
    least, most = min(numbers), max(numbers)
    if least < -(2**63) or most >= 2**64 or (least < 0 and most >= 2**63):
        raise OverflowError(f"no type of 64 bits holds {least} and {most}")
    return ("u64", c_uint64) if most >= 2**63 else ("i64", c_int64)


def tensor(values, dtype=None, device=None):
    """A tensor of numbers in nested lists: bool, i64 (u64 where needed) or f64 unless a type is named."""
    shape, row, numbers = [], values, []
    while isinstance(row, (list, tuple)):
        shape.append(len(row))
        row = row[0] if row else 0
    _flatten(values, shape, numbers)
    name, kind = _kind(numbers)
    data = (kind * len(numbers))(*numbers)
    made = _made("loch_tensor_create_from", _dtype(name), *_sizes(shape), data, None)
    return made.to(device, dtype)


def load(path, dtype=None, mapped=None, read_only=False, device=None):
    """The tensor of a .npy file.

    `mapped`: None where it serves, True or else an error, False never. `dtype` says what raw bytes are.
    """
    mapping = {None: 0, False: 1, True: 2}[mapped]
    number = 0 if dtype is None else _dtype(dtype)
    with _Device(device) as handle:
        options = _Load(mapping=mapping, access=int(read_only), dtype=number)
        if device is not None:
            options.memory = ctypes.pointer(_Memory(device=handle))
        return _made("loch_npy_load", os.fsencode(path), options)
