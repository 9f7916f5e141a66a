# SPDX-License-Identifier: MIT
"""New tensors, assignment and numbers, as NumPy's users expect them."""

import inspect
import operator

import loch
import loch.safetensors
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from test_numpy import TYPES


def test_tensors_without_values_are_made_without_python_code():
    for made in (loch.empty, loch.zeros, loch.full):
        assert inspect.isbuiltin(made)
    assert str(inspect.signature(loch.zeros)) == str(inspect.signature(loch.empty))
    assert loch.empty(3, "i8", "cpu").dtype == loch.int8
    assert loch.zeros((2,), None).dtype == loch.float32
    with pytest.raises(TypeError):
        loch.empty(3, "f32", "cpu", None)


def test_new_tensors():
    assert loch.zeros(3).tolist() == [0, 0, 0] and loch.zeros(3).dtype == "f32" and loch.zeros(()).shape == ()
    assert loch.ones((2, 2), "i8").tolist() == [[1, 1], [1, 1]]
    assert loch.full((2,), 7).dtype == "i64" and loch.full((2,), 2.5).dtype == "f32" and loch.full(2, True).dtype == "bool"
    assert loch.full([2, 1], 3, "bf16").tolist() == [[3], [3]]
    assert loch.empty((0, 3)).tolist() == [] and loch.empty(np.array([2, 3])).shape == (2, 3)
    assert loch.zeros((2, 3), device="sim:16MiB").device == "sim:16MiB"


@pytest.mark.parametrize("wrong", [(-1,), (2, -3), (1,) * 17, (2**40, 2**40), (2**62, 4)])
def test_shapes_that_cannot_be(wrong):
    for make in (loch.empty, loch.zeros, loch.ones):
        with pytest.raises(ValueError):
            make(wrong)


@pytest.mark.parametrize("wrong", ["ab", 2.5, (1.5,), None, [[1]], object(), {1.5}])
def test_things_that_are_no_shape(wrong):
    with pytest.raises(TypeError):
        loch.zeros(wrong)


def test_sentences_say_what_to_write():
    tensor = loch.ones(1)
    cases = [
        (lambda: loch.zeros(2, 3), r"one argument, as in zeros\(\(2, 3\)\)"),
        (lambda: loch.ones(2, 3, 4), r"one argument, as in zeros\(\(2, 3\)\)"),
        (lambda: tensor.to("f16"), "'f16' is a type of elements, not a device: write dtype='f16'"),
        (lambda: tensor.to(loch.float16), "write dtype=loch.float16"),
        (lambda: tensor.to(float), "write dtype="),
        (lambda: loch.zeros(3, "f32", "bf16"), "write dtype='bf16'"),
        (lambda: loch.safetensors.save("/no/such/file", {1: tensor}), "write 1 as a str"),
        (lambda: loch.safetensors.save("/no/such/file", {"a": tensor}, {"step": 2}), "write 2 as a str"),
        (lambda: loch.tag(5), "a tag is a name, not 5"),
    ]
    for call, sentence in cases:
        with pytest.raises(TypeError, match=sentence):
            call()


def test_memory_that_is_not_there():
    with pytest.raises(MemoryError):
        loch.zeros((1 << 50,), "u8")


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-5, 5).filter(bool))
def test_arange(start, stop, step):
    assert loch.arange(start, stop, step).tolist() == np.arange(start, stop, step).tolist()
    assert loch.arange(stop).tolist() == np.arange(stop).tolist()
    floats = loch.arange(start / 4, stop / 4, step / 8)
    assert floats.dtype == "f32" and floats.tolist() == np.arange(start / 4, stop / 4, step / 8).tolist()


def test_arange_types():
    assert loch.arange(5).dtype == "i64" and loch.arange(5, dtype="f16").dtype == "f16" and loch.arange(1.0).dtype == "f32"
    with pytest.raises(ValueError):
        loch.arange(1, 5, 0)


NESTED = st.recursive(
    st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans(), lambda inner: st.lists(inner, max_size=3), max_leaves=20
)


@given(NESTED)
def test_nested_lists_are_numpys(values):
    try:
        expected = np.array(values)
    except ValueError:
        expected = None
    if expected is None or expected.dtype == object:
        with pytest.raises((ValueError, OverflowError)):
            loch.tensor(values)
        return
    if expected.dtype == np.float64:
        with np.errstate(over="ignore"):
            expected = expected.astype(np.float32)  # floats of Python are f32
    got = loch.tensor(values)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert got.tolist() == expected.tolist()


def test_lists_of_other_things():
    assert loch.tensor(range(4)).tolist() == [0, 1, 2, 3]
    assert loch.tensor([np.arange(2), [3, 4], (5, np.int8(6))]).tolist() == [[0, 1], [3, 4], [5, 6]]
    assert loch.tensor([loch.tensor([1, 2]), loch.tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]
    assert loch.tensor([loch.tensor(3), np.array(4)]).tolist() == [3, 4]
    assert loch.tensor([np.bool_(True), False]).tolist() == [1, 0]
    assert loch.tensor(np.float32(2.5)).item() == 2.5 and loch.tensor(np.arange(3), "f16").dtype == "f16"
    assert loch.tensor(b"ab").tolist() == [97, 98]
    circle = []
    circle.append(circle)
    with pytest.raises(ValueError):
        loch.tensor(circle)
    for wrong in ("text", ["a"], [None], object(), [1j], {}, [b"x"]):
        with pytest.raises((TypeError, ValueError)):
            loch.tensor(wrong)


def test_one_rule_for_types():
    """What has a type keeps it; floats of Python are f32, as are tensors without values."""
    for make in (loch.zeros, loch.ones, loch.empty):
        assert make(1).dtype == "f32"
    for values in (1.5, [1.5], [1, 2.5], [], [[]], [np.float32(1), 2.0], [np.float16(1), np.float32(1)]):
        assert loch.tensor(values).dtype == "f32", values
    for kind in (np.float64, np.float32, np.float16, np.int8, np.uint16, np.int64, np.bool_):
        for values in (kind(1), [kind(1), kind(0)], [[kind(1)], (kind(0),)], [np.zeros(2, kind)], np.zeros(2, kind)):
            assert loch.tensor(values).dtype == np.dtype(kind), values
        assert loch.full(2, kind(1)).dtype == np.dtype(kind) == loch.full(2, np.array(1, kind)).dtype
        assert loch.tensor([loch.ones(2, kind), loch.ones(2, kind)]).dtype == np.dtype(kind)
    assert loch.tensor([np.float64(0.1), 2.0]).dtype == "f64" and loch.tensor([0.1], "f64").item() == 0.1
    assert loch.tensor([np.int8(5), 6]).dtype == "i64" and loch.tensor([loch.tensor(0.5, "bf16")]).dtype == "bf16"
    assert (loch.tensor([0.1], "f64") == [0.1]).item() and not (loch.tensor([0.1]) == [0.1]).item()  # exact


def test_a_list_that_changes_while_it_is_read():
    values = []

    class Sly:
        def __index__(self):
            values.clear()
            return 1

    values.extend([Sly(), 2, 3])
    assert loch.tensor(values).tolist() == [1, 2, 3]


def test_tensor_copies():
    source = np.arange(4.0)
    tensor = loch.tensor(source)
    tensor[0] = 9
    assert source[0] == 0
    again = loch.tensor(tensor)
    again[1] = 8
    assert tensor[1].item() == 1
    pool = loch.Pool()
    assert loch.tensor(source, pool=pool).pool == pool and loch.tensor([1], pool=pool).pool == pool
    assert loch.tensor(source, device="sim:16MiB").tolist() == source.tolist()


@pytest.mark.parametrize("name", TYPES)
@given(value=st.integers(-(2**70), 2**70) | st.floats() | st.booleans())
def test_numbers_that_fit_are_those_of_numpy(name, value):
    array = np.zeros(2, TYPES[name])
    tensor = loch.zeros(2, name)
    try:
        with np.errstate(all="ignore"):
            array[0] = value
    except (OverflowError, ValueError) as error:
        if name[0] == "f" or name == "bool":
            return  # NumPy refuses integers beyond 64 bits for floats of 16 bits
        with pytest.raises((OverflowError, ValueError)):
            tensor[0] = value
        assert isinstance(error, (OverflowError, ValueError)) and tensor.tolist() == [0, 0]
        return
    if isinstance(value, float) and name[0] in "iu":
        return  # NumPy leaves the wrap of floats open
    tensor[0] = value
    assert np.array_equal(np.asarray(tensor), array, equal_nan=name[0] == "f")


def test_assignment_broadcasts_as_numpy():
    array, tensor = np.zeros((2, 3), "i8"), loch.zeros((2, 3), "i8")
    for value in ([1, 2, 3], [[4], [5]], np.array([[[6, 7, 8]]]), 9, np.arange(3), [10], range(3)):
        array[...] = value
        tensor[...] = value
        assert tensor.tolist() == array.tolist()
    for wrong in ([1, 2], [[1, 2, 3]] * 3, [[[1, 2, 3]]] * 2):
        with pytest.raises(ValueError):
            tensor[...] = wrong
    for wrong in ("a", None, {}, object(), b"abc"):
        with pytest.raises((TypeError, ValueError)):
            tensor[...] = wrong
    with pytest.raises(TypeError):
        del tensor[0]
    tensor[0] = tensor[1]
    tensor[::-1] = tensor
    tensor[True and 1] = 3


@pytest.mark.parametrize("values", [[300, 1], [1, -129], [[1, 2], [3, 1 << 70]], [1, float("nan")], [1e10, 0]])
def test_numbers_in_lists_do_not_wrap(values):
    tensor = loch.zeros(np.shape(values), "i8")
    with pytest.raises((OverflowError, ValueError), match="does not fit i8"):
        tensor[:] = values
    assert not np.asarray(tensor).any()  # nothing was written


def test_integers_saturate_where_it_is_asked():
    names = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
    for source in names:
        bounds = np.iinfo(TYPES[source])
        array = np.array([bounds.min, bounds.min // 2, 0, 5, bounds.max // 3, bounds.max], TYPES[source])
        for target in names:
            limits = np.iinfo(TYPES[target])
            clipped = [min(max(value, int(limits.min)), int(limits.max)) for value in array.tolist()]
            tensor = loch.zeros(6, target)
            assert tensor.copy_from(loch.from_numpy(array), overflow="saturate").tolist() == clipped
            with np.errstate(all="ignore"):
                assert tensor.copy_from(loch.from_numpy(array)).tolist() == array.astype(TYPES[target]).tolist()
    there = loch.tensor([300, -300, 7], device="sim:16MiB")
    stream = loch.Stream("sim:16MiB")
    assert loch.zeros(3, "i8").copy_from(there, overflow="saturate", stream=stream).tolist() == [127, -128, 7]
    assert loch.zeros(3, "u8", "sim:16MiB").copy_from(loch.tensor([300, -300, 7]), overflow="saturate").tolist() == [255, 0, 7]


@given(
    npst.arrays(st.sampled_from([np.float64, np.int64, np.uint64, np.int8]), npst.array_shapes(max_dims=3, max_side=3)),
    st.integers(-(2**66), 2**66) | st.floats(allow_nan=True),
)
def test_order(array, number):
    tensor = loch.from_numpy(array)
    for operation in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        answer = operation(tensor, number)
        expected = [operation(value, number) for value in array.ravel().tolist()]  # exact, as Python compares
        assert answer.shape == array.shape and answer.reshape(-1).tolist() == expected
        assert operation(tensor, tensor).tolist() == operation(array, array).tolist()


def test_items():
    tensor = loch.arange(6).reshape(2, 3)
    array = np.arange(6).reshape(2, 3)
    for index in ((0,), (5,), (-1,), (1, 2), (-1, -1), ((1, 0),)):
        assert tensor.item(*index) == array.item(*index)
    for wrong in ((6,), (-7,), (2, 0)):
        with pytest.raises(IndexError):
            tensor.item(*wrong)
    with pytest.raises(ValueError):
        tensor.item()
    assert tensor.item(np.int64(3)) == 3


def test_shapes_of_numpy():
    tensor, array = loch.arange(24).reshape(2, 3, 4), np.arange(24).reshape(2, 3, 4)
    assert tensor.T.shape == array.T.shape and tensor.T.tolist() == array.T.tolist()
    assert tensor.transpose().tolist() == array.transpose().tolist()
    assert tensor.transpose((1, 2, 0)).tolist() == array.transpose((1, 2, 0)).tolist()
    assert tensor.transpose(1, 2, 0).tolist() == array.transpose(1, 2, 0).tolist()
    assert tensor.permute(2, 0, 1).tolist() == array.transpose(2, 0, 1).tolist()
    assert tensor.swapaxes(0, 2).tolist() == array.swapaxes(0, 2).tolist()
    assert tensor.reshape(4, -1).tolist() == array.reshape(4, -1).tolist() == tensor.reshape((4, -1)).tolist()
    assert (tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == (array.ndim, array.size, array.nbytes, len(array))
    for wrong in ((5, 5), (-1, -1), (7, -1)):
        with pytest.raises(ValueError):
            tensor.reshape(wrong)
    with pytest.raises((ValueError, TypeError)):
        tensor.permute(0, 0, 1)
    with pytest.raises(ValueError):
        tensor.permute(0, 1, 2**40)
    assert tensor.squeeze().shape == (2, 3, 4) and tensor[None].squeeze(0).shape == (2, 3, 4)


@given(npst.arrays(np.int32, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)), st.data())
def test_indices_are_numpys(array, data):
    keys = data.draw(npst.basic_indices(array.shape, allow_newaxis=True, allow_ellipsis=True, min_dims=0))
    tensor = loch.from_numpy(array)
    part = tensor[keys]
    expected = array[keys]
    assert part.shape == np.shape(expected) and part.tolist() == np.asarray(expected).tolist()
    part.fill(7)
    assert np.all(array[keys] == 7)


@given(npst.arrays(np.int32, npst.array_shapes(min_dims=1, max_dims=3, max_side=4)), st.data())
def test_indices_with_arrays_are_numpys(array, data):
    kind = data.draw(st.sampled_from(["integers", "mask", "list", "mixed"]))
    rows = data.draw(npst.arrays(np.int64, npst.array_shapes(max_dims=2, max_side=3), elements=st.integers(-len(array), len(array) - 1)))
    key = {"integers": rows, "mask": array % 2 == 0, "list": rows.tolist(), "mixed": (..., rows % array.shape[-1])}[kind]
    turned = key if kind in ("list", "mixed") or data.draw(st.booleans()) else loch.from_numpy(key)
    tensor = loch.tensor(array)
    part = tensor[turned]
    assert isinstance(part, loch.Tensor) and part.dtype == "i32" and part.tolist() == array[key].tolist()
    changed = array.copy()
    changed[key] = 7
    tensor[turned] = 7
    assert tensor.tolist() == changed.tolist() and part.tolist() == array[key].tolist()  # the part is a copy


def test_indices_with_arrays_of_other_types():
    tensor = loch.tensor([[1.5, 2.5], [3.5, 4.5]], "bf16")
    assert tensor[[1, 0]].tolist() == [[3.5, 4.5], [1.5, 2.5]] and tensor[[1]].dtype == "bf16"
    tensor[tensor > 2] = loch.tensor(0.5, device="sim:16MiB")
    tensor[[0], [0]] = [9]
    assert tensor.tolist() == [[9, 0.5], [0.5, 0.5]]
    with pytest.raises(OverflowError, match="300 does not fit i8"):
        loch.zeros(2, "i8")[[0]] = [300]
    with pytest.raises(ValueError):
        tensor[[0, 1]] = [1, 2, 3]
    with pytest.raises(TypeError, match=r'\.to\("cpu"\) first'):
        loch.ones(3, device="sim:16MiB")[[0]]


@pytest.mark.parametrize("key", [1.0, True, "a", [0.5], np.array([0.0]), b"x", object(), (0, 1.5), ([0], "a"), loch.zeros(2), [5], [[True]]])
def test_things_that_are_no_index(key):
    tensor = loch.zeros((2, 2))
    with pytest.raises((IndexError, TypeError)):
        tensor[key]
    with pytest.raises((IndexError, TypeError)):
        tensor[key] = 1
    assert tensor.tolist() == [[0, 0], [0, 0]]


def test_files(tmp_path):
    path = tmp_path / "x.npy"
    loch.save(path, [[1, 2], [3, 4]])
    assert loch.load(path).tolist() == np.load(path).tolist() == [[1, 2], [3, 4]]
    kept = loch.load(path)
    path.write_bytes(b"")  # as a program that writes the file anew
    assert kept.tolist() == [[1, 2], [3, 4]]
    loch.save(str(path), loch.ones(3, "bf16"), as_bits=True)
    assert loch.load(path, "bf16").tolist() == [1, 1, 1]
    assert loch.load(path, "bf16", device="sim:16MiB").device.startswith("sim")
    np.save(path, np.arange(3))
    for mapped in (False, None):
        converted = loch.load(path, "f32", mapped=mapped)
        assert (converted.dtype, converted.tolist()) == ("f32", [0, 1, 2])
    assert loch.load(path, "i8", device="sim:16MiB").tolist() == [0, 1, 2]
    assert loch.load(path, "i64", mapped=True).dtype == loch.load(path).dtype == "i64"
    with pytest.raises(ValueError, match="i64 cannot become f32: load it without mapped=True"):
        loch.load(path, "f32", mapped=True)
    with pytest.raises(FileNotFoundError):
        loch.load(tmp_path / "missing.npy")
    with pytest.raises(OSError):
        loch.save("/no/such/folder/x.npy", [1])
    for wrong in (5.5, None, "a\0b"):
        with pytest.raises((TypeError, ValueError)):
            loch.load(wrong)


# --- simulated devices ---


def test_simulated_memory_has_contents(tmp_path):
    there = loch.ones(4, device="sim:1GiB")
    assert there.tolist() == [1] * 4
    path = tmp_path / "there.npy"
    there.save(path)
    assert np.load(path).tolist() == [1] * 4


def test_unbacked_memory_is_not_read(tmp_path):
    there = loch.ones(4, device="sim:1GiB,unbacked")
    there.fill(2)
    there.copy_from(loch.ones(4))
    for read in (there.tolist, lambda: str(there), lambda: there.item(0), lambda: there.to("cpu"), lambda: bool(there[0]),
                 lambda: there.save(tmp_path / "x.npy"), lambda: loch.zeros(4).copy_from(there)):  # fmt: skip
        with pytest.raises(loch.Error, match='without "unbacked"') as caught:
            read()
        assert caught.value.status == "E_UNSUPPORTED"
