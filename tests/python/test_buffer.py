# SPDX-License-Identifier: MIT
"""The buffer protocol in both directions, and types of elements of NumPy and Python."""

import array
import gc
import io
import mmap
import pickle
import sys

import loch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from test_numpy import SHAPES, TYPES, numbers

ARRAYS = npst.arrays(
    st.sampled_from(sorted(TYPES.values(), key=str)), npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_memoryviews(name, shape):
    source = numbers(shape, TYPES[name])
    tensor = loch.tensor(source)
    view = memoryview(tensor)
    assert view.shape == shape and view.nbytes == tensor.nbytes and not view.readonly
    assert view.itemsize == tensor.itemsize and view.format == memoryview(source).format
    assert np.array_equal(np.asarray(view), source) and np.asarray(view).dtype == source.dtype
    if name != "f16" and 0 not in shape:  # memoryview itself reads no halves
        assert view.tolist() == source.tolist()


@given(ARRAYS, st.data())
def test_buffers_of_views(source, data):
    keys = tuple(data.draw(npst.basic_indices(source.shape, allow_newaxis=True, allow_ellipsis=True)) for _ in range(1))[0]
    expected = source[keys]
    if not isinstance(expected, np.ndarray):
        return
    tensor = loch.from_numpy(source)[keys]
    assert tensor.shape == expected.shape
    view = np.asarray(memoryview(tensor))
    assert np.array_equal(view, expected, equal_nan=source.dtype.kind == "f") and view.dtype == source.dtype
    again = loch.from_buffer(memoryview(tensor))
    assert again.tolist() == tensor.tolist() or source.dtype.kind == "f"


def test_what_a_receiver_may_ask():
    tensor = loch.tensor([[1, 2, 3], [4, 5, 6]], "i32")
    assert bytes(tensor) == np.asarray(tensor).tobytes() and len(bytearray(tensor)) == 24
    assert bytes(tensor.T) == np.asarray(tensor).T.tobytes()
    with pytest.raises(BufferError, match="contiguous"):
        io.BytesIO().write(tensor.T[::2])
    assert io.BytesIO(bytes(24)).readinto(tensor) == 24
    assert tensor.tolist() == [[0, 0, 0], [0, 0, 0]]
    wide = loch.tensor([1, 2]).expand(3, 2)
    assert memoryview(wide).readonly and np.asarray(wide).tolist() == [[1, 2]] * 3
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(bytes(48)).readinto(wide)
    assert memoryview(loch.from_buffer(b"abc")).readonly


@pytest.mark.parametrize("name", ["bf16", "f8e4m3", "f8e5m2"])
def test_types_without_a_format(name):
    tensor = loch.zeros(3, name)
    with pytest.raises(BufferError, match=name):
        memoryview(tensor)
    bits = tensor.view_as("u16" if name == "bf16" else "u8")
    assert memoryview(bits).tolist() == [0, 0, 0]


def test_a_device_has_no_buffer():
    with pytest.raises(BufferError, match=r"\.to\(\"cpu\"\)"):
        memoryview(loch.zeros(3, device="sim:16MiB"))


def test_a_view_keeps_the_tensor():
    view = memoryview(loch.tensor([1.5, 2.5]))
    gc.collect()
    others = [loch.zeros(2, "f64") for _ in range(50)]
    assert view.tolist() == [1.5, 2.5] and len(others) == 50
    view.release()


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_arrays_of_python(code):
    source = array.array(code, [1, 2, 3])
    before = sys.getrefcount(source)
    tensor = loch.from_buffer(source)
    assert tensor.tolist() == [1, 2, 3] and tensor.itemsize == source.itemsize and not tensor.is_read_only
    tensor[1] = 9
    assert source[1] == 9
    with pytest.raises(BufferError):
        source.append(1)  # locked by the export
    del tensor
    source.append(1)
    assert sys.getrefcount(source) == before


def test_bytes_and_mappings(tmp_path):
    tensor = loch.from_buffer(b"hello")
    assert tensor.is_read_only and tensor.tolist() == list(b"hello") and tensor.dtype == "u8"
    with pytest.raises(loch.Error):
        tensor.fill(1)
    own = loch.from_buffer(b"hello", copy=True)
    own.fill(1)
    assert own.tolist() == [1] * 5
    assert loch.from_buffer(b"").shape == (0,)
    with mmap.mmap(-1, 4096) as memory:
        tensor = loch.from_buffer(memory)
        tensor[0] = 65
        assert memory[0] == 65
        with pytest.raises(BufferError):
            memory.close()
        del tensor
    for wrong in (None, 5, "text", object()):
        with pytest.raises(TypeError):
            loch.from_buffer(wrong)
    for source in (np.zeros(3, complex), np.zeros(3, ">i4"), np.zeros(3, [("a", "i4")]), np.zeros((1,) * 17)):
        with pytest.raises((TypeError, ValueError)):
            loch.from_buffer(source)
    odd = np.frombuffer(bytes(41), np.uint8)[1:].view(np.float64)
    with pytest.raises((loch.Error, ValueError)):
        loch.from_buffer(odd)
    skewed = np.zeros(3, [("a", "u1"), ("b", "<i2")])["b"]  # strides of three bytes
    with pytest.raises((loch.Error, ValueError)):
        loch.from_buffer(skewed)


def test_from_numpy():
    source = np.arange(6.0).reshape(2, 3)
    tensor = loch.from_numpy(source)
    assert tensor.address == source.__array_interface__["data"][0]
    tensor[0, 0] = 9
    assert source[0, 0] == 9
    assert loch.from_numpy(source[:, ::-1]).strides == (3, -1)
    assert loch.from_numpy(source, copy=True).address != tensor.address
    source.flags.writeable = False
    assert loch.from_numpy(source).is_read_only
    for wrong in ([1, 2], memoryview(b"x"), 5):
        with pytest.raises(TypeError):
            loch.from_numpy(wrong)
    before = sys.getrefcount(source)
    kept = [loch.from_numpy(source)[0] for _ in range(10)]
    assert sys.getrefcount(source) == before + 10
    kept.clear()
    assert sys.getrefcount(source) == before


def test_pickles_out_of_band():
    tensor = loch.tensor(np.arange(10000.0), "bf16").reshape(100, 100)
    buffers = []
    small = pickle.dumps(tensor, 5, buffer_callback=buffers.append)
    assert len(small) < 300 and len(buffers) == 1 and buffers[0].raw().nbytes == tensor.nbytes
    assert buffers[0].raw().obj is not None
    again = pickle.loads(small, buffers=buffers)
    assert again.dtype == "bf16" and again.tolist() == tensor.tolist() and again.address != tensor.address


def test_damaged_pickles():
    for shape, contents in (((3,), b"12345"), ((2, 2), bytes(12)), ((0, 5), b"x"), ((-1,), b"1234"), ((), b"")):
        with pytest.raises((ValueError, loch.Error)):
            loch._core._create_from("f32", shape, contents, "cpu")


# --- types of elements ---


@pytest.mark.parametrize("name", TYPES)
def test_types_of_numpy_both_ways(name):
    theirs = TYPES[name]
    for given_type in (theirs, np.dtype(theirs), np.dtype(theirs).name, name, loch.dtype(name)):
        assert loch.zeros(2, given_type).dtype == name
    ours = loch.zeros(2, name).dtype
    assert ours == theirs and ours == np.dtype(theirs) and np.dtype(theirs) == ours and ours == name
    assert np.dtype(ours) == np.dtype(theirs) and np.zeros(3, ours).dtype == np.dtype(theirs)
    assert ours.itemsize == np.dtype(theirs).itemsize and ours.numpy == np.dtype(theirs)
    assert {name: 1}[ours] == 1 and str(ours) == name and pickle.loads(pickle.dumps(ours)) is ours
    assert getattr(loch, np.dtype(theirs).name if name != "bool" else "bool_") is ours


def test_types_of_python_and_others():
    assert loch.zeros(1, float).dtype == "f64" and loch.zeros(1, int).dtype == "i64" and loch.zeros(1, bool).dtype == "bool"
    assert loch.dtype("bfloat16") is loch.bfloat16 and loch.dtype("torch.float8_e5m2") == loch.float8_e5m2
    assert loch.bfloat16 != loch.float16 and loch.float32 != "f64" and loch.float32 != 5
    for wrong in (complex, object, "f128", np.dtype(">f4"), np.complex64, 5, [], np.dtype([("a", "i4")])):
        with pytest.raises(TypeError):
            loch.zeros(1, wrong)
    with pytest.raises(TypeError):
        loch.dtype(None)
    with pytest.raises(TypeError, match="ml_dtypes"):
        _ = loch.bfloat16.numpy
