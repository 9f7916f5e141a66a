# SPDX-License-Identifier: MIT
"""Views and strided copies against NumPy's, on shapes and sequences of views at random."""

import itertools

import loch
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_numpy import TYPES, address, numbers

names = st.sampled_from(sorted(TYPES))
sizes = st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 5]), max_size=5).map(tuple)
bounds = st.none() | st.integers(-8, 8) | st.sampled_from([2**63 - 1, -(2**63), 2**70, -(2**70)])
steps = st.none() | st.integers(-3, 3).filter(bool) | st.sampled_from([2**62, -(2**62)])


def check(tensor, array):
    """The same elements, at the same place."""
    assert tensor.shape == array.shape
    seen = np.from_dlpack(tensor)
    assert seen.dtype == array.dtype and np.array_equal(seen, array)
    if array.size:
        assert tensor.address == address(array)
        assert [s * array.itemsize for n, s in zip(tensor.shape, tensor.strides) if n > 1] == [
            s for n, s in zip(array.shape, array.strides) if n > 1
        ]


def both(ours, theirs):
    """Results of both sides, or None where both refuse."""
    try:
        expected = theirs()
    except (ValueError, IndexError, TypeError):
        expected = None
    try:
        got = ours()
    except (loch.Error, IndexError, TypeError):
        got = None
    assert (got is None) == (expected is None), f"Loch {got!r}, NumPy {expected!r}"
    return None if got is None else (got, expected)


def factors(draw, count):
    """A shape with that many elements."""
    shape = []
    while count > 1 and len(shape) < 4:
        divisor = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
        shape.append(divisor)
        count //= divisor
    shape.append(count)
    if draw(st.booleans()):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    if draw(st.booleans()):
        shape[draw(st.integers(0, len(shape) - 1))] = -1
    return tuple(shape)


def do_slice(draw, tensor, array):
    axis = draw(st.integers(0, array.ndim - 1))
    start, stop, step = draw(bounds), draw(bounds), draw(steps)
    return tensor.slice(axis, start, stop, step), array[(slice(None),) * axis + (slice(start, stop, step),)]


def do_index(draw, tensor, array):
    axis = draw(st.integers(-array.ndim, array.ndim - 1))
    at = draw(st.integers(-6, 6))
    # a slice of one, so that the last index gives a view and not a number
    return both(
        lambda: tensor.index(axis, at),
        lambda: (
            np.squeeze(array[(slice(None),) * (axis % array.ndim) + ([at],)], axis) is None
            or array[(slice(None),) * (axis % array.ndim) + (at, ...)]
        ),
    )


def do_transpose(draw, tensor, array):
    first, second = (draw(st.integers(-array.ndim, array.ndim - 1)) for _ in range(2))
    return tensor.transpose(first, second), array.swapaxes(first, second)


def do_permute(draw, tensor, array):
    axes = draw(st.permutations(range(array.ndim)))
    axes = [axis - array.ndim if draw(st.booleans()) else axis for axis in axes]
    return tensor.permute(axes), array.transpose(axes)


def do_view(draw, tensor, array):
    shape = factors(draw, array.size)
    return both(lambda: tensor.view(shape), lambda: array.reshape(shape, copy=False))


def do_squeeze(draw, tensor, array):
    if not array.ndim or draw(st.booleans()):
        return tensor.squeeze(), array.squeeze()
    axis = draw(st.integers(-array.ndim, array.ndim - 1))
    return both(lambda: tensor.squeeze(axis), lambda: array.squeeze(axis))


def do_unsqueeze(draw, tensor, array):
    assume(array.ndim < 8)
    axis = draw(st.integers(-array.ndim - 1, array.ndim))
    return tensor.unsqueeze(axis), np.expand_dims(array, axis)


def do_expand(draw, tensor, array):
    assume(array.ndim < 8 and array.size < 2000)
    shape = tuple(draw(st.sampled_from([size, size, 3])) for size in array.shape)
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=1))) + shape
    return both(lambda: tensor.expand(shape), lambda: np.broadcast_to(array, shape))


def do_chunk(draw, tensor, array):
    axis = draw(st.integers(-array.ndim, array.ndim - 1))
    chunks = draw(st.integers(1, 6))
    pieces = tensor.chunk(chunks, axis)
    length = -(-array.shape[axis] // chunks)
    starts = range(0, array.shape[axis], length) if length else [0] * chunks  # as torch.chunk
    assert len(pieces) == len(starts)
    at = draw(st.integers(0, len(pieces) - 1))
    cut = slice(starts[at], starts[at] + length)
    return pieces[at], array[(slice(None),) * (axis % array.ndim) + (cut,)]


def do_basic(draw, tensor, array):
    keys = []
    for _ in range(draw(st.integers(0, array.ndim))):
        keys.append(slice(draw(bounds), draw(bounds), draw(steps)))
    keys.insert(draw(st.integers(0, len(keys))), ...)
    for _ in range(draw(st.integers(0, 1))):
        keys.insert(draw(st.integers(0, len(keys))), None)
    return tensor[tuple(keys)], array[tuple(keys)]


ANYWHERE = [do_view, do_squeeze, do_unsqueeze, do_expand, do_basic]
WITH_AXES = ANYWHERE + [do_slice, do_slice, do_index, do_transpose, do_permute, do_chunk]


@given(st.data(), names, sizes)
@settings(max_examples=1500)
def test_sequences_of_views(data, name, shape):
    array = numbers(shape, TYPES[name])
    tensor = loch.from_dlpack(array)
    for _ in range(data.draw(st.integers(1, 6))):
        assume(tensor.ndim < 12)
        result = data.draw(st.sampled_from(WITH_AXES if array.ndim else ANYWHERE))(data.draw, tensor, array)
        if result is not None:
            tensor, array = result
        check(tensor, array)
    assert np.array_equal(np.from_dlpack(tensor.contiguous()), array)
    assert np.array_equal(np.from_dlpack(tensor.clone()), array)
    assert np.array_equal(np.from_dlpack(tensor.reshape((-1,) if array.size else (0,))), array.reshape(-1))


@given(names, names, sizes.filter(len), st.data())
@settings(max_examples=400)
def test_the_same_bits_as_another_type(name, other, shape, data):
    array = numbers(shape, TYPES[name])
    tensor = loch.from_dlpack(array)
    if data.draw(st.booleans()):
        tensor, array = do_slice(data.draw, tensor, array)
    try:
        expected = array.view(TYPES[other])
    except ValueError:
        expected = None
    try:
        got = tensor.view_as(other)
    except loch.Error:
        # NumPy also takes what is not aligned, and strides that are no multiple of the new size
        is_aligned = address(array) % np.dtype(TYPES[other]).itemsize == 0
        assert expected is None or not array.flags.c_contiguous or not array.size or not is_aligned
        return
    assert expected is not None and got.shape == expected.shape
    assert np.from_dlpack(got).tobytes() == expected.tobytes()


def laid_out(draw, shape, dtype):
    """An array of that shape in a layout at random: steps, backwards, axes in any order. And what it is a part of."""
    order = draw(st.permutations(range(len(shape))))
    strides = [draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in shape]
    extents = [(size - 1) * abs(step) + 1 if size else 0 for size, step in zip(shape, strides)]
    margins = [draw(st.integers(0, 1)) for _ in shape]
    whole = np.zeros([extents[axis] + margins[axis] for axis in order], dtype)
    inner = whole.transpose(np.argsort(order) if shape else ())
    cut = tuple(
        slice(margin, margin + extent, step)
        if step > 0
        else slice(margin + extent - 1, margin - 1 if margin else None, step)
        for margin, extent, step in zip(margins, extents, strides)
    )
    part = inner[(*cut, ...)] if all(shape) else inner[tuple(slice(0, size) for size in shape)]
    assert part.shape == shape
    return whole, part


# What both sides convert alike: NumPy leaves numbers beyond the range of an integer open, and rounds some twice.
def convertible(rng, shape, source, target):
    if source == np.bool_:
        return rng.integers(0, 2, shape).astype(source)
    low = 0 if np.dtype(source).kind == "u" or np.dtype(target).kind == "u" else -100
    if np.dtype(source).kind == "f" and np.dtype(target).kind == "f":
        return (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)).astype(source)
    if np.dtype(source).kind == "f":
        return (rng.random(shape) * (100 - low) + low).astype(source)
    return rng.integers(low, 100, shape).astype(source)


@given(st.data(), names, names, sizes, st.integers(0, 2**32))
@settings(max_examples=1500)
def test_copies_between_layouts_and_types(data, to_name, from_name, shape, seed):
    to_whole, to_part = laid_out(data.draw, shape, TYPES[to_name])
    _, from_part = laid_out(data.draw, shape, TYPES[from_name])
    with np.errstate(all="ignore"):
        from_part[...] = convertible(np.random.default_rng(seed), shape, TYPES[from_name], TYPES[to_name])
        expected = from_part.astype(TYPES[to_name])
    to, source = loch.from_dlpack(to_part), loch.from_dlpack(from_part)
    to.copy_from(source)
    assert np.array_equal(to_part, expected, equal_nan=to_part.dtype.kind == "f")
    assert np.count_nonzero(to_whole) == np.count_nonzero(expected)  # and nothing beside it
    converted = source.to(dtype=to_name)
    assert np.array_equal(np.from_dlpack(converted), expected, equal_nan=to_part.dtype.kind == "f")


@given(st.data(), names, st.integers(1, 3))
@settings(max_examples=800)
def test_copies_between_views_that_overlap(data, name, dimensions):
    sizes = [data.draw(st.integers(1, 8)) for _ in range(dimensions)]
    array = numbers(sizes, TYPES[name])
    expected = array.copy()
    tensor = loch.from_dlpack(array)
    cuts = []
    for _ in range(2):
        cuts.append(
            tuple(
                slice(data.draw(bounds), data.draw(bounds), data.draw(st.sampled_from([1, 1, 2, -1, -2])))
                for _ in sizes
            )
        )
    shape = tuple(min(a, b) for a, b in zip(expected[cuts[0]].shape, expected[cuts[1]].shape))
    trim = tuple(slice(0, size) for size in shape)
    # copied, because NumPy itself gets some overlaps wrong: a[::2] = a[:3] of five elements, in 2.4
    expected[cuts[0]][trim] = expected[cuts[1]][trim].copy()
    tensor[cuts[0]][trim].copy_from(tensor[cuts[1]][trim])
    assert np.array_equal(array, expected)


def test_a_matrix_onto_its_own_transpose():
    for name, size in itertools.product(TYPES, (1, 2, 5, 64, 100)):
        array = numbers((size, size), TYPES[name])
        expected = array.T.copy()
        tensor = loch.from_dlpack(array)
        tensor.copy_from(tensor.transpose(0, 1))
        assert np.array_equal(array, expected)


def test_copies_to_a_simulated_device_and_back():
    array = numbers((4, 5, 6), np.float32)
    for cut in np.s_[:], np.s_[::2, ::-1], np.s_[1:3, 2], np.s_[..., ::-3]:
        there = loch.from_dlpack(array)[cut].to("sim:16MiB")
        assert there.device.startswith("sim") and np.array_equal(np.from_dlpack(there.to("cpu")), array[cut])
