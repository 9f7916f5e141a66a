# SPDX-License-Identifier: MIT
"""Makes Loch the allocator of this process, as loch.torch.enable() does, from a build folder: without the package.

LOCH_TORCH_ALLOCATOR is native, loch or plugin. LOCH_TORCH_SHIM names the shim; without it the one in build/lib of the
tree that fits this PyTorch serves.
"""

import ctypes
import os
import pathlib

import torch

TREE = pathlib.Path(__file__).resolve().parents[2]


class Part(ctypes.Structure):
    """loch_torch_sleep_part."""

    _fields_ = [("tag", ctypes.c_char_p), ("contents", ctypes.c_int), ("directory", ctypes.c_char_p)]


CONTENTS = ("pinned", "host", "file", "drop")  # loch_sleep_contents


class Door(ctypes.Structure):
    """The first members of loch_torch_door in adapters/torch/door.h; loch.torch has regions and sleep."""

    ERROR = [ctypes.c_void_p, ctypes.c_size_t]
    TEXT = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t), *ERROR]
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_char_p),
        ("install", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, *ERROR)),
        ("is_installed", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("get_pool", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)),
        ("print_stats", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *TEXT)),
        ("print_report", ctypes.CFUNCTYPE(ctypes.c_int, *TEXT)),
        ("region_begin", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, *ERROR)),
        ("region_end", ctypes.CFUNCTYPE(ctypes.c_int, *ERROR)),
        ("sleep", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Part), ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t), *ERROR)),
        ("wake", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t, ctypes.c_int,
                                  ctypes.POINTER(ctypes.c_size_t), *ERROR)),
        ("find_tag", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
        ("print_pools", ctypes.CFUNCTYPE(ctypes.c_int, *TEXT)),
    ]


def name():
    """Returns the name of the allocator that this process is to have."""
    return os.environ.get("LOCH_TORCH_ALLOCATOR", "loch")


def shim():
    """Returns the path of the shim for this PyTorch."""
    if os.environ.get("LOCH_TORCH_SHIM"):
        return os.environ["LOCH_TORCH_SHIM"]
    version = "_".join(torch.__version__.split(".")[:2])
    for folder in (os.environ.get("LOCH_TORCH_LIB"), TREE / "build" / "lib"):
        path = folder and pathlib.Path(folder) / f"loch_torch_{version}.so"
        if path and path.exists():
            return str(path)
    raise FileNotFoundError(f"there is no loch_torch_{version}.so: build it with scripts/build-torch-shim, or name it in LOCH_TORCH_SHIM")


def cuda_headers():
    """Returns the folder of CUDA's runtime headers: the first that is whole. Packages of NVIDIA may lack crt/."""
    local = pathlib.Path("/usr/local")
    folders = [*sorted(pathlib.Path(torch.__file__).parents[1].glob("nvidia/cu*/include")),
               pathlib.Path(os.environ.get("CUDA_HOME", local / "cuda")) / "include", local / "cuda" / "include",
               *sorted(local.glob("cuda-*/targets/*/include"))]
    for folder in folders:
        if (folder / "cuda_runtime_api.h").exists() and (folder / "crt" / "host_config.h").exists():
            return folder
    raise FileNotFoundError("there is no folder with cuda_runtime_api.h and crt/host_config.h: set CUDA_HOME")


_door = None


def get():
    """Loads the shim and returns its table of functions."""
    global _door
    if not _door:
        library = ctypes.CDLL(shim())
        library.loch_torch_get_door.restype = ctypes.POINTER(Door)
        _door = library.loch_torch_get_door().contents
    return _door


def call(function, *arguments):
    """Calls a function of the table; raises RuntimeError with its sentence."""
    error = ctypes.create_string_buffer(2000)
    if function(*arguments, ctypes.addressof(error), len(error)):
        raise RuntimeError(error.value.decode())


def install(allocator=None, options=""):
    """Makes the allocator PyTorch's. Call it before the first use of CUDA."""
    allocator = allocator or name()
    if allocator == "plugin":
        import sys

        sys.path.insert(0, str(TREE / "bench" / "torch"))
        import plugin

        return plugin.Loch()
    if allocator == "loch":
        call(get().install, options.encode())
    return None


def print_text(function, *arguments):
    """Returns the text that a function of the table writes."""
    length = ctypes.c_size_t()
    call(function, *arguments, None, 0, ctypes.byref(length))
    text = ctypes.create_string_buffer(length.value + 1)
    call(function, *arguments, ctypes.addressof(text), len(text), None)
    return text.value.decode()


class region:
    """A part of the program whose memory can sleep, by tag."""

    def __init__(self, tag):
        self.tag = tag

    def __enter__(self):
        call(get().region_begin, self.tag.encode())

    def __exit__(self, *_):
        call(get().region_end)


def sleep(*tags, contents="pinned"):
    """Puts memory to sleep; returns the bytes given back."""
    parts = (Part * len(tags))(*(Part(tag.encode(), CONTENTS.index(contents), None) for tag in tags))
    released = ctypes.c_size_t()
    call(get().sleep, parts, len(tags), ctypes.byref(released))
    return released.value


def wake(keeps_host=False):
    """Wakes all memory; returns the bytes of contents restored."""
    restored = ctypes.c_size_t()
    call(get().wake, None, 0, int(keeps_host), ctypes.byref(restored))
    return restored.value
