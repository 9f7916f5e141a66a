# SPDX-License-Identifier: MIT
"""Classes that stand for those of other packages have their methods and arguments.

The other packages are read, not imported: their imports need a GPU. A package that is not installed is skipped.
"""

import ast
import importlib.util
import pathlib

import pytest

OURS = pathlib.Path(importlib.util.find_spec("loch").submodule_search_locations[0])


def find_package(name):
    """The folder of an installed package."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the package that it lies in
        spec = None
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return pathlib.Path(spec.submodule_search_locations[0])


def read_class(path, name):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def read_arguments(function):
    """Names of the arguments with whether they have a default, those for keywords apart."""
    given = function.args
    first_default = len(given.args) - len(given.defaults)
    plain = [(argument.arg, number >= first_default) for number, argument in enumerate(given.args)]
    keywords = {argument.arg: default is not None for argument, default in zip(given.kwonlyargs, given.kw_defaults)}
    return [pair for pair in plain if pair[0] not in ("self", "cls")], keywords


def read_methods(found):
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}


def is_setter(function):
    return any(isinstance(mark, ast.Attribute) and mark.attr == "setter" for mark in function.decorator_list)


def read_properties(found):
    """Names of the properties, and of those that can be set."""
    functions = [node for node in found.body if isinstance(node, ast.FunctionDef)]
    read = {node.name for node in functions
            if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list)}
    return read, {node.name for node in functions if is_setter(node)}


def compare(theirs, ours, left_out=()):
    """Every public method of theirs is in ours and takes their arguments, in their order."""
    our_methods = read_methods(ours)
    checked = 0
    for name, method in read_methods(theirs).items():
        if name.startswith("_") or name in left_out or is_setter(method):
            continue
        assert name in our_methods, f"{theirs.name}.{name} is missing"
        expected, their_keywords = read_arguments(method)
        have, our_keywords = read_arguments(our_methods[name])
        assert have[:len(expected)] == expected, f"{name}: {have} instead of {expected}"
        assert all(default for _, default in have[len(expected):]), name
        assert their_keywords.keys() <= our_keywords.keys(), name
        checked += 1
    assert checked


def test_torch_memory_saver():
    theirs = read_class(find_package("torch_memory_saver") / "entrypoint.py", "TorchMemorySaver")
    ours = read_class(OURS / "torch" / "memory_saver.py", "TorchMemorySaver")
    compare(theirs, ours)
    assert read_properties(theirs) == read_properties(ours)


def test_torch_memory_saver_module():
    tree = ast.parse((find_package("torch_memory_saver") / "__init__.py").read_text(encoding="utf-8"))
    names = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    names |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    ours = ast.parse((OURS / "torch" / "memory_saver.py").read_text(encoding="utf-8"))
    have = {getattr(node, "name", None) for node in ours.body}
    have |= {target.id for node in ours.body if isinstance(node, ast.Assign) for target in node.targets}
    assert names <= have


def test_vllm_allocator():
    folder = find_package("vllm") / "device_allocator"
    ours = read_class(OURS / "vllm" / "__init__.py", "LochAllocator")
    compare(read_class(folder / "__init__.py", "MemAllocator"), ours)
    cumem = read_methods(read_class(folder / "cumem.py", "CuMemAllocator"))
    for name in ("release_pools", "cudagraph_pool", "get_instance"):  # vLLM calls them besides the protocol
        assert name in cumem and name in read_methods(ours)
    assert "DEFERRABLE_TAGS: tuple[str, ...] = (\"weights\", \"kv_cache\")" in (folder / "__init__.py").read_text()


def test_vllm_backend():
    path = find_package("vllm") / "device_allocator" / "sleep_mode_backend.py"
    ours = read_class(OURS / "vllm" / "backend.py", "LochBackend")
    compare(read_class(path, "SleepModeBackend"), ours, ("state", "supports_durable_storage"))
    register = read_methods(read_class(path, "SleepModeBackendFactory"))["register_backend"]
    assert [name for name, _ in read_arguments(register)[0]] == ["name", "module_path", "class_name"]


def test_vllm_worker():
    """The method that register() wraps exists, and the worker has its settings at that time."""
    path = find_package("vllm") / "v1" / "worker" / "worker_base.py"
    methods = read_methods(read_class(path, "WorkerWrapperBase"))
    assert "self.vllm_config" in ast.unparse(methods["init_device"])
    assert read_arguments(methods["init_device"]) == ([], {})


def test_cuda_core():
    path = find_package("cuda.core") / "cu13" / "_memory" / "_buffer.pyi"
    if not path.is_file():
        pytest.skip("cuda.core has no stubs")
    theirs, ours = read_class(path, "MemoryResource"), read_class(OURS / "cuda.py", "MemoryResource")
    compare(theirs, ours)
    assert read_properties(theirs)[0] <= read_properties(ours)[0]
    from_handle = read_methods(read_class(path, "Buffer"))["from_handle"]
    names = [name for name, _ in read_arguments(from_handle)[0]] + list(read_arguments(from_handle)[1])
    assert {"ptr", "size", "mr", "stream"} <= set(names)
