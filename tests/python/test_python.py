# SPDX-License-Identifier: MIT
"""Tensors are good citizens of Python: copies, pickles, forks, loops, numbers, comparisons and NumPy's functions."""

import copy
import gc
import multiprocessing
import operator
import os
import pickle
import signal
import subprocess
import sys
import timeit
import traceback

import loch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

TYPES = ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"]
KNOWN = [name for name in TYPES if name != "bf16" and not name.startswith("f8")]  # by NumPy
ARRAYS = npst.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint64, np.int8, np.bool_]),
    npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)


def counted(shape=(2, 3), dtype="f32"):
    """A tensor of 0, 1, 2 ..."""
    return loch.from_dlpack(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).to(dtype=dtype)


# --- copies ---


def test_copy_copies_the_contents():
    first = counted()
    for second in (copy.copy(first), first.copy(), first.clone()):
        assert second.address != first.address and second.tolist() == first.tolist()
        second[0, 0] = 7
        assert first[0, 0].item() == 0


@pytest.mark.parametrize("device", ["cpu", "sim:16MiB"])
@pytest.mark.parametrize("dtype", TYPES)
def test_deepcopy_is_a_clone(dtype, device):
    first = counted(dtype=dtype).to(device)
    for cut in (first, first[:, ::-1], first[0], first[0, 0], first[:0]):
        second = copy.deepcopy(cut)
        assert (second.dtype, second.shape, second.device) == (dtype, cut.shape, device)
        assert second.tolist() == cut.tolist()
        assert not cut.shape or not cut.shape[0] or second.address != cut.address
    kept = copy.deepcopy({"a": first, "b": [first]})
    kept["a"].fill(1)
    assert kept["b"][0][0, 0].item() == 1  # one object inside stays one object
    assert first[0, 0].item() == 0


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", TYPES)
def test_pickles_hold_the_contents(dtype, protocol):
    first = counted((3, 4), dtype)
    for cut in (first, first[::2, ::-1], first[1, 1], first[:, :0]):
        second = pickle.loads(pickle.dumps(cut, protocol))
        assert (second.dtype, second.shape, second.tolist()) == (dtype, cut.shape, cut.tolist())
    second = pickle.loads(pickle.dumps(first, protocol))
    second.fill(1)
    assert first[0, 0].item() == 0


def test_a_pickle_goes_to_its_device():
    there = counted(dtype="bf16").to("sim:16MiB")
    back = pickle.loads(pickle.dumps(there))
    assert back.device == there.device and back.tolist() == there.tolist()


def test_another_process_reads_a_pickle():
    script = "import pickle, sys; t = pickle.load(sys.stdin.buffer); t[0, 0] = 9; print(t.tolist())"
    ran = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(counted()), capture_output=True, check=True)
    assert ran.stdout.decode().strip() == "[[9.0, 1.0, 2.0], [3.0, 4.0, 0.0]]"


def test_errors_can_be_pickled():
    with pytest.raises(loch.Error) as caught:
        loch.zeros((2,)).view((3,))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.status) == (type(caught.value), str(caught.value), caught.value.status)


# --- forks ---


def doubled(tensor):
    """In another process."""
    return [2 * value for value in tensor.tolist()]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_passes_tensors(method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(doubled, (counted((4,), "i32"),)) == [0, 2, 4, 6]


def in_child(work):
    """Runs a function in a forked child; the child must end well."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(60)
            work()
            gc.collect()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_does_not_free_what_it_inherited():
    pool = loch.Pool(name="inherited")
    kept = [loch.tensor([0, 1, 2], pool=pool), pool.alloc(100), pool.session(), pool.child("child")]

    def let_go():
        assert kept[0].tolist() == [0, 1, 2]  # may be read
        before = pool.stats().blocks
        kept.clear()
        gc.collect()
        assert pool.stats().blocks == before
        own = loch.zeros(5, pool=pool)  # its own it frees
        assert pool.stats().blocks == before + 1
        del own
        assert pool.stats().blocks == before

    in_child(let_go)
    assert kept[0].tolist() == [0, 1, 2] and pool.stats().blocks == 2
    kept.clear()
    assert pool.stats().blocks == 0


def test_a_child_does_not_end_capsules_it_inherited():
    tensor = counted()
    capsules = [tensor.__dlpack__()]

    def drop():
        capsules.clear()
        assert tensor.references == 2

    in_child(drop)
    assert tensor.references == 2
    assert loch.from_dlpack(capsules[0]).tolist() == tensor.tolist()


# --- sequences ---


@pytest.mark.parametrize("key", [2, -3, 2**31, 2**63, 2**64, -(2**64), (0, 3), (0, -4), (0, 0, 0)])
def test_an_index_outside_is_an_index_error(key):
    tensor = counted()
    with pytest.raises(IndexError):
        tensor[key]
    with pytest.raises(IndexError):
        tensor[key] = 1
    assert tensor.tolist() == counted().tolist()


def test_an_error_of_an_index_is_one_of_loch_too():
    with pytest.raises(loch.Error, match="5") as caught:
        counted().index(0, 5)
    assert caught.value.status == "E_OUT_OF_RANGE" and isinstance(caught.value, IndexError)


def test_a_loop_ends():
    tensor = counted((3, 2))
    assert [row.tolist() for row in tensor] == [[0, 1], [2, 3], [4, 0]]
    assert [value.item() for value in reversed(tensor[:, 0])] == [4, 2, 0]
    assert list(loch.zeros((0, 3))) == []
    first, *rest = tensor
    assert first.tolist() == [0, 1] and len(rest) == 2
    for row in tensor:
        row.fill(1)
    assert tensor.tolist() == [[1, 1]] * 3
    for wrong in (len, iter, list):
        with pytest.raises(TypeError):
            wrong(loch.zeros(()))


def test_in():
    tensor = counted()
    assert 4 in tensor and 4.0 in tensor and 9 not in tensor and 0.5 not in tensor
    assert float("nan") not in loch.tensor([float("nan")])
    assert 1 not in loch.zeros((0,)) and True in loch.tensor([False, True])
    assert np.int64(4) in tensor and counted((3,))[2] in tensor
    for wrong in ([0, 1], np.zeros(3), tensor):
        with pytest.raises(TypeError):
            _ = wrong in tensor


# --- numbers ---


@given(ARRAYS)
def test_tolist_is_numpys(array):
    tensor = loch.from_dlpack(array)
    assert repr(tensor.tolist()) == repr(array.tolist())
    if array.size == 1:
        assert repr(tensor.item()) == repr(array.item())
        assert bool(tensor) == bool(array)
    else:
        for wrong in (loch.Tensor.item, bool):
            with pytest.raises(ValueError):
                wrong(tensor)
        for wrong in (int, float):
            with pytest.raises(TypeError):
                wrong(tensor)


def test_one_number():
    assert int(loch.tensor([2.75])) == 2 and float(loch.tensor(3)) == 3.0
    assert int(loch.tensor([2**64 - 1], "u64")) == 2**64 - 1 and loch.tensor([2**63]).dtype == "u64"
    assert operator.index(loch.tensor(3)) == 3 and [10, 11, 12][loch.tensor(2)] == 12
    assert counted()[loch.tensor(1)].tolist() == [3, 4, 0]
    for wrong in (loch.tensor(3.0), loch.tensor([3]), loch.tensor(True)):
        with pytest.raises(TypeError):
            operator.index(wrong)
    with pytest.raises(ValueError, match="not clear"):
        bool(loch.zeros((2,)))


@pytest.mark.parametrize("values", [[2**64], [-(2**63) - 1], [2**63, -1]])
def test_numbers_that_fit_no_type(values):
    with pytest.raises(OverflowError):
        loch.tensor(values)
    with pytest.raises(OverflowError):
        loch.zeros((2,), "i64").fill(2**64)
    with pytest.raises(OverflowError):
        loch.zeros((2**64 + 1,))


def test_assigning_what_numpy_people_assign():
    tensor = loch.zeros((2, 3), "i64")
    tensor[0] = [1, 2, 3]
    tensor[1] = np.arange(3) + 2**60
    assert tensor.tolist() == [[1, 2, 3], [2**60, 2**60 + 1, 2**60 + 2]]
    tensor[0, 0] = np.int64(2**60 + 1)
    tensor[0, 1] = np.float32(7)
    assert tensor[0].tolist() == [2**60 + 1, 7, 3]
    tensor[:, 1:] = ((5,), (6,))
    assert tensor[:, 1:].tolist() == [[5, 5], [6, 6]]
    assert loch.tensor([np.int64(2**60 + 1)]).tolist() == [2**60 + 1]


# --- comparisons ---


@given(ARRAYS, st.data())
def test_comparisons_are_numpys(array, data):
    shapes = npst.broadcastable_shapes(array.shape, min_side=0, max_side=4)
    other = data.draw(npst.arrays(np.int64, shapes, elements=st.integers(0, 1)))
    a, b = loch.from_dlpack(array), loch.from_dlpack(other)
    for operation in (operator.eq, operator.ne):
        answer = operation(a, b)
        assert isinstance(answer, loch.Tensor) and answer.dtype == "bool"
        assert np.array_equal(np.asarray(answer), operation(array, other))
        assert np.array_equal(np.asarray(operation(a, 1)), operation(array, 1))
        values = other.tolist() if other.size else other  # empty lists lose a part of the shape
        for turned in (operation(a, other), operation(a, values), operation(b, array)):
            assert isinstance(turned, loch.Tensor) and np.array_equal(turned, operation(array, other))
        assert np.array_equal(operation(values, a), operation(other, array))
        assert np.array_equal(operation(other, a), operation(other, array))  # NumPy's turn


def test_comparisons_with_other_things():
    tensor = counted()
    assert (tensor == None) is False and (tensor != None) is True and tensor != "text"  # noqa: E711
    assert tensor != b"ab" and tensor != ["a"] and tensor != 1j and tensor != {} and tensor != object()
    assert not (tensor == np.array(["a"])).any()  # NumPy's turn
    assert (tensor == np.float32(4)).tolist() == [[False, False, False], [False, True, False]]
    assert (tensor[0] == range(3)).tolist() == [True] * 3 and (tensor[0] < (1, 1, 1)).tolist() == [True, False, False]
    assert (tensor.to("sim:16MiB") == tensor).tolist() == [[True] * 3] * 2
    for wrong in ("a", None, 1j):
        with pytest.raises(TypeError):
            _ = tensor < wrong
    with pytest.raises(ValueError, match="broadcast"):
        _ = tensor == loch.zeros((2,))
    assert len({tensor, tensor[...], tensor}) == 2  # hashed by identity


EDGES = [0, 1, -1, 0.5, 127, 128, 255, 300, 2**24 + 1, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, 2**64 - 1,
         -(2**63), 1e300, float("inf"), float("nan")]  # fmt: skip


def edges_of(dtype, size):
    """A tensor of the type with the edges that it holds, again and again, in another order for each type."""
    held = []
    for value in EDGES:
        try:
            held.append(loch.full(1, value, dtype).item())
        except (OverflowError, ValueError):
            pass
    return loch.tensor([held[(at * 7 + len(dtype)) % len(held)] for at in range(size)], dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_comparisons_of_any_types_are_exact(dtype):
    """Whole blocks, the end of one, and blocks with few large numbers are compared as Python compares numbers."""
    for size in (1, 511, 513, 1100):
        left = edges_of(dtype, size)
        for other in TYPES:
            for right in (edges_of(other, size), loch.arange(size).to(dtype=other)):
                pairs = list(zip(left.tolist(), right.tolist()))
                for operation in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
                    assert operation(left, right).tolist() == [operation(a, b) for a, b in pairs], (other, operation)
        for value in EDGES:
            assert (left >= value).tolist() == [a >= value for a in left.tolist()], value


def test_comparisons_are_not_slow():
    """Not element by element: NumPy's time, with much room for a busy machine."""
    array = np.arange(100_000, dtype="f4")
    tensor = loch.from_numpy(array)

    def time(work):
        return min(timeit.repeat(work, number=5, repeat=20))

    assert time(lambda: tensor == tensor) < 20 * time(lambda: array == array)


# --- NumPy's functions ---


@pytest.mark.parametrize("dtype", KNOWN)
def test_asarray_shares(dtype):
    tensor = counted(dtype=dtype)
    array = np.asarray(tensor)
    assert array.__array_interface__["data"][0] == tensor.address and array.flags.writeable
    assert loch.from_dlpack(array).dtype == dtype
    turned = np.asarray(tensor[:, ::-1])
    assert np.array_equal(turned, array[:, ::-1])
    array[0, 0] = 1
    assert tensor[0, 0].item() == 1
    del tensor
    gc.collect()
    assert array[0, 0] == 1  # the array keeps it


def test_array_copies():
    tensor = counted()
    array = np.array(tensor)
    array[0, 0] = 9
    assert tensor[0, 0].item() == 0
    assert np.asarray(tensor, copy=True).__array_interface__["data"][0] != tensor.address
    assert np.asarray(tensor, copy=False).__array_interface__["data"][0] == tensor.address
    whole = np.asarray(tensor, dtype=np.int16)
    assert whole.dtype == np.int16 and whole.tolist() == [[0, 1, 2], [3, 4, 0]]
    with pytest.raises(ValueError, match="copy"):
        np.asarray(tensor, dtype=np.int16, copy=False)


def test_functions_of_numpy():
    tensor, array = counted(), np.asarray(counted())
    assert np.array_equal(tensor, array) and np.array_equal(tensor, tensor)
    assert not np.array_equal(tensor, array + 1) and np.allclose(tensor, array)
    assert np.sum(tensor) == 10 and np.concatenate([tensor, tensor]).shape == (4, 3)
    assert (array + np.asarray(tensor)).tolist() == [[0, 2, 4], [6, 8, 0]]
    np.testing.assert_array_equal(tensor, array)


def test_what_is_not_copied_unasked():
    for wrong in (counted().to("sim:16MiB"), counted(dtype="bf16"), counted(dtype="f8e5m2")):
        with pytest.raises(TypeError, match=r"\.to\("):
            np.asarray(wrong)


def test_read_only_stays_read_only():
    array = np.arange(3.0)
    array.flags.writeable = False
    shared = np.asarray(loch.from_dlpack(array))
    assert not shared.flags.writeable and shared.tolist() == [0, 1, 2]
    assert np.array(loch.from_dlpack(array)).flags.writeable
