# SPDX-License-Identifier: MIT
"""NumPy and Loch share memory: types, layouts, lifetimes, what is refused, and .npy files."""

import gc
import io
import subprocess
import sys

import loch
import numpy as np
import pytest

TYPES = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
}  # fmt: skip
SHAPES = [(), (1,), (7,), (2, 3), (2, 1, 4), (3, 0, 2), (0,), (1,) * 16, (2, 2, 2, 2, 2)]


def numbers(shape, dtype):
    """An array whose elements differ as far as the type allows."""
    return (np.arange(np.prod(shape, dtype=int)) % 120).astype(dtype).reshape(shape)


def address(array):
    return array.__array_interface__["data"][0]


# --- both ways ---


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_from_numpy_and_back(name, shape):
    array = numbers(shape, TYPES[name])
    tensor = loch.from_dlpack(array)
    assert (tensor.dtype, tensor.shape, tensor.device) == (name, shape, "cpu")
    assert tensor.address == (address(array) if array.size else 0)
    back = np.from_dlpack(tensor)
    assert back.dtype == array.dtype and back.shape == shape
    assert np.array_equal(back, array)
    assert not array.size or address(back) == address(array)


@pytest.mark.parametrize("name", TYPES)
def test_writing_is_seen_on_the_other_side(name):
    tensor = loch.zeros((3, 4), name)
    array = np.from_dlpack(tensor)
    assert array.flags.writeable and not array.any()
    array[1, 2] = 1
    assert np.from_dlpack(tensor.clone())[1, 2] == 1
    tensor[0].fill(1)
    assert array.sum() == 5
    shared = loch.from_dlpack(array)
    shared[2, 3] = 1
    assert array[2, 3] == 1


@pytest.mark.parametrize(
    "cut",
    [
        np.s_[::-1], np.s_[:, ::-1], np.s_[::-1, ::-2], np.s_[1:5:2, 3], np.s_[4], np.s_[..., 2], np.s_[:, 2:2],
        np.s_[None, 1, None], np.s_[-1, -1, ...], np.s_[5:0:-2, -3:],
    ],
    ids=str,
)  # fmt: skip
def test_slices_of_both(cut):
    array = numbers((6, 7), np.int32)
    shared = loch.from_dlpack(array[cut])
    assert shared.shape == array[cut].shape
    assert np.array_equal(np.from_dlpack(shared), array[cut])
    ours = np.from_dlpack(loch.from_dlpack(array)[cut])
    assert np.array_equal(ours, array[cut])
    if ours.size:
        assert address(ours) == address(array[cut])
        assert shared.address == address(array[cut])


def test_transposed_and_fortran_order():
    array = np.asfortranarray(numbers((3, 4, 5), np.float32))
    tensor = loch.from_dlpack(array)
    assert tensor.strides == (1, 3, 12) and not tensor.is_contiguous
    assert np.array_equal(np.from_dlpack(tensor), array)
    assert np.array_equal(np.from_dlpack(tensor.permute((2, 0, 1))), array.transpose(2, 0, 1))


def test_elements_that_share_a_place():
    array = np.broadcast_to(np.arange(3, dtype=np.int64), (4, 3))
    tensor = loch.from_dlpack(array)
    assert tensor.strides == (0, 1) and tensor.is_read_only
    assert np.array_equal(np.from_dlpack(tensor), array)
    with pytest.raises(loch.Error, match="."):
        tensor.fill(0)
    wide = np.from_dlpack(loch.tensor([1.0, 2.0]).expand((3, 2)))
    assert wide.strides == (0, 4) and np.array_equal(wide, [[1, 2]] * 3)


def test_read_only_arrays():
    array = numbers((4,), np.float64)
    array.flags.writeable = False
    tensor = loch.from_dlpack(array)
    assert tensor.is_read_only
    with pytest.raises(loch.Error) as error:
        tensor.fill(1)
    assert error.value.status == "E_INVALID" and not array[0]
    again = np.from_dlpack(tensor)
    assert not again.flags.writeable
    with pytest.raises(BufferError, match="read-only"):  # the older structure cannot say so
        tensor.__dlpack__()
    copy = np.from_dlpack(tensor, copy=True)
    assert copy.flags.writeable and address(copy) != address(array)


def test_copies_on_demand():
    tensor = loch.tensor([1, 2, 3])
    assert address(np.from_dlpack(tensor, copy=False)) == tensor.address
    copy = np.from_dlpack(tensor, copy=True)
    copy[0] = 9
    assert np.from_dlpack(tensor)[0] == 1
    array = numbers((3,), np.int16)
    assert loch.from_dlpack(array, copy=False).address == address(array)
    own = loch.from_dlpack(array, copy=True)
    own.fill(5)
    assert own.address != address(array) and array[1] == 1


def test_the_capsules():
    tensor = loch.tensor([1.0])
    assert '"dltensor"' in repr(tensor.__dlpack__())
    assert '"dltensor"' in repr(tensor.__dlpack__(max_version=(0, 8)))
    for version in (1, 0), (1, 1), (2, 0):
        assert '"dltensor_versioned"' in repr(tensor.__dlpack__(max_version=version))
    assert tensor.__dlpack_device__() == (1, 0)
    capsule = tensor.__dlpack__(max_version=(1, 0))
    taken = loch.from_dlpack(capsule)
    assert taken.address == tensor.address and '"used_dltensor_versioned"' in repr(capsule)
    with pytest.raises(TypeError):
        loch.from_dlpack(capsule)
    for wrong in None, 5, [1.0], "text":
        with pytest.raises(TypeError):
            loch.from_dlpack(wrong)
    for options in {"stream": 1}, {"dl_device": (2, 0)}, {"dl_device": (2, 0), "copy": True}:
        with pytest.raises(BufferError):
            tensor.__dlpack__(**options)
    tensor.__dlpack__(dl_device=(1, 0), copy=False, stream=None)


class Older:
    """An exporter from before versions: knows neither max_version nor copy."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_older_exporters():
    array = numbers((2, 2), np.float32)
    tensor = loch.from_dlpack(Older(array))
    assert tensor.address == address(array)
    copy = loch.from_dlpack(Older(array), copy=True)
    assert copy.address != address(array) and np.array_equal(np.from_dlpack(copy), array)


def test_simulated_devices_are_refused():
    tensor = loch.zeros((2,), "f32", "sim:16MiB")
    with pytest.raises(BufferError, match="sim:16MiB"):
        np.from_dlpack(tensor)
    assert np.array_equal(np.from_dlpack(tensor.to("cpu")), [0, 0])


# --- lifetimes ---


def test_an_export_holds_the_buffer():
    tensor = loch.zeros((8,), "f32")
    assert tensor.references == 1
    for version in None, (1, 0):
        capsule = tensor.__dlpack__(max_version=version)
        assert tensor.references == 2
        del capsule  # nobody took it
        assert tensor.references == 1
    array = np.from_dlpack(tensor)
    part = array[2:4]
    assert tensor.references == 2
    del array
    assert tensor.references == 2
    del part
    assert tensor.references == 1


def test_an_array_outlives_the_tensor():
    array = np.from_dlpack(loch.tensor([1.5, 2.5]))
    gc.collect()
    assert array.tolist() == [1.5, 2.5]


def test_an_import_holds_the_array():
    array = numbers((5,), np.int32)
    before = sys.getrefcount(array)
    tensor = loch.from_dlpack(array)
    view = tensor[1:3]
    assert sys.getrefcount(array) == before + 1
    del tensor
    assert sys.getrefcount(array) == before + 1
    again = np.from_dlpack(view)
    del view
    assert sys.getrefcount(array) == before + 1 and again.tolist() == [1, 2]
    del again
    assert sys.getrefcount(array) == before
    copied = loch.from_dlpack(array, copy=True)
    assert sys.getrefcount(array) == before and copied.shape == (5,)


def test_a_receiver_that_fails_lets_go_and_says_why():
    tensor = loch.zeros((2,), "bf16")  # which NumPy has not
    with pytest.raises((RuntimeError, BufferError, TypeError), match="dtype"):
        np.from_dlpack(tensor)
    assert tensor.references == 1


def test_a_refused_import_leaves_the_array_alone():
    array = np.zeros(4, np.complex64)
    before = sys.getrefcount(array)
    with pytest.raises(loch.Error, match="type code 5 with 64 bits") as error:
        loch.from_dlpack(array)
    del error
    gc.collect()
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize(
    "array",
    [
        np.array([None, "text"], object), np.zeros(3, [("a", "i4"), ("b", "f8")]), np.array(["text"]),
        np.zeros(3, ">i4"), np.zeros(3, "datetime64[s]"), np.zeros(3, np.longdouble),
    ],
    ids=lambda array: str(array.dtype),
)  # fmt: skip
def test_types_that_are_not_shared(array):
    with pytest.raises((BufferError, loch.Error)):
        loch.from_dlpack(array)


def test_misaligned_data():
    array = np.frombuffer(b"\0" * 33, np.uint8)[1:].view(np.float64)
    if address(array) % 8 == 0:
        array = np.frombuffer(b"\0" * 34, np.uint8)[2:].view(np.float64)
    with pytest.raises(loch.Error, match="multiple of the 8 bytes"):
        loch.from_dlpack(array)


def test_too_many_dimensions():
    with pytest.raises(loch.Error, match="17 dimensions"):
        loch.from_dlpack(np.zeros((1,) * 17))


# --- .npy files ---


def saved(array):
    """What np.save writes."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_files_of_loch_are_those_of_numpy(tmp_path, name, shape):
    array = numbers(shape, TYPES[name])
    path = tmp_path / "ours.npy"
    loch.from_dlpack(array).save(path)
    assert path.read_bytes() == saved(array)
    back = np.load(path)
    assert back.dtype == array.dtype and np.array_equal(back, array)
    if array.size:
        assert np.array_equal(np.load(path, mmap_mode="r"), array)


@pytest.mark.parametrize("mapped", [None, False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_files_of_numpy(tmp_path, name, shape, mapped):
    array = numbers(shape, TYPES[name])
    path = tmp_path / "theirs.npy"
    np.save(path, array)
    tensor = loch.load(path, mapped=mapped)
    assert (tensor.dtype, tensor.shape) == (name, shape)
    assert np.array_equal(np.from_dlpack(tensor), array)


def test_columns_first(tmp_path):
    array = np.asfortranarray(numbers((3, 4), np.float64))
    path = tmp_path / "columns.npy"
    np.save(path, array)
    tensor = loch.load(path)
    assert tensor.strides == (1, 3)
    assert np.array_equal(np.from_dlpack(tensor), array)
    tensor.save(path)  # over the file that it is mapped from
    assert np.array_equal(np.load(path), array)
    assert np.array_equal(np.from_dlpack(tensor), array)


@pytest.mark.parametrize("dtype", [">f8", ">i4", ">u2", ">f2"])
def test_the_other_byte_order(tmp_path, dtype):
    array = numbers((3, 5), np.dtype(dtype))
    path = tmp_path / "swapped.npy"
    np.save(path, array)
    assert np.array_equal(np.from_dlpack(loch.load(path)), array)
    with pytest.raises(loch.Error):
        loch.load(path, mapped=True)


def test_a_mapped_file_is_not_written(tmp_path):
    path = tmp_path / "mapped.npy"
    np.save(path, numbers((4,), np.int32))
    before = path.read_bytes()
    private = loch.load(path, mapped=True)
    private.fill(7)
    assert np.from_dlpack(private).tolist() == [7] * 4 and path.read_bytes() == before
    shown = loch.load(path, mapped=True, read_only=True)
    assert not np.from_dlpack(shown).flags.writeable
    with pytest.raises(loch.Error):
        shown.fill(7)


def test_files_with_strides(tmp_path):
    array = numbers((6, 7), np.float32)
    path = tmp_path / "cut.npy"
    loch.from_dlpack(array)[::-2, 1::3].save(path)
    assert path.read_bytes() == saved(np.ascontiguousarray(array[::-2, 1::3]))


@pytest.mark.parametrize(
    "array", [np.zeros(2, complex), np.array(["text"]), np.zeros(2, [("a", "i4")]), np.zeros(2, "M8[s]")], ids=str
)
def test_files_with_types_that_loch_has_not(tmp_path, array):
    path = tmp_path / "other.npy"
    np.save(path, array)
    with pytest.raises(loch.Error) as error:
        loch.load(path)
    assert error.value.status == "E_UNSUPPORTED"


def test_versions_of_the_format(tmp_path):
    array = numbers((2, 3), np.float32)
    for version in (1, 0), (2, 0), (3, 0):
        path = tmp_path / f"version{version[0]}.npy"
        with path.open("wb") as file:
            np.lib.format.write_array(file, array, version)
        assert np.array_equal(np.from_dlpack(loch.load(path)), array)


def test_files_that_are_none(tmp_path):
    with pytest.raises(loch.Error) as error:
        loch.load(tmp_path / "missing.npy")
    assert error.value.status == "E_NOT_FOUND"
    path = tmp_path / "broken.npy"
    whole = saved(numbers((4,), np.float64))
    for cut in 0, 3, 6, 9, 40, len(whole) - 1:
        path.write_bytes(whole[:cut])
        with pytest.raises(loch.Error) as error:
            loch.load(path)
        assert error.value.status == "E_CORRUPT"


# --- the module ---


def test_tensors_of_lists():
    assert np.from_dlpack(loch.tensor([[1, 2], [3, 4]])).tolist() == [[1, 2], [3, 4]]
    assert (
        loch.tensor(True).dtype == "bool" and loch.tensor([1]).dtype == "i64" and loch.tensor([1, 2.5]).dtype == "f32"
    )
    assert loch.tensor([1, 2], "f16").dtype == "f16"
    assert loch.tensor([[], []]).shape == (2, 0)
    for wrong in [[1], [2, 3]], [1, [2]], [[1], 2]:
        with pytest.raises(ValueError):
            loch.tensor(wrong)
    with pytest.raises(TypeError):
        loch.zeros((2,), "c64")


def test_indices_and_assignment():
    tensor = loch.zeros((3, 4), "i32")
    tensor[1] = 5
    tensor[:, -1] = loch.tensor([7, 8, 9], "i32")
    tensor[0:2, 0:2] = loch.tensor([1], "i32")
    assert np.from_dlpack(tensor).tolist() == [[1, 1, 0, 7], [1, 1, 5, 8], [0, 0, 0, 9]]
    assert len(tensor) == 3 and tensor.ndim == 2
    turned = tensor.transpose(0, 1)
    assert turned[()].address == turned[...].address == tensor.address
    for wrong in (3,), (0, 4), (0, 0, 0), (..., ...):
        with pytest.raises((IndexError, loch.Error)):
            tensor[wrong]
    for wrong in True, 1.0, "a":
        with pytest.raises(TypeError):
            tensor[wrong]


def test_conversions():
    tensor = loch.tensor([0.5, -1.5, 2.5])
    assert np.from_dlpack(tensor.to(dtype="i8")).tolist() == [0, -1, 2]
    assert np.from_dlpack(tensor.to(dtype="bf16").to(dtype="f32")).tolist() == [0.5, -1.5, 2.5]
    assert tensor.to().address == tensor.address
    assert repr(tensor) == "loch.tensor([ 0.5, -1.5,  2.5], dtype='f32')"


def test_the_end_of_the_interpreter():
    """What is still held then goes in whatever order, without a word."""
    program = """
import loch, numpy
held = loch.from_dlpack(numpy.arange(5)), numpy.from_dlpack(loch.tensor([1])), loch.tensor([2]).__dlpack__()
loch.kept, numpy.kept = held[0][1:], loch.from_dlpack(numpy.ones(3))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
