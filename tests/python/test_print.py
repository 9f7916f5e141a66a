# SPDX-License-Identifier: MIT
"""Loch's text of a tensor is NumPy's."""

import loch
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_numpy import TYPES

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)
FLOATS = [np.float64, np.float32, np.float16]


def same(array, **options):
    """Options by Loch's names."""
    theirs = {"precision": "precision", "threshold": "threshold", "edge": "edgeitems", "width": "max_line_width",
              "separator": "separator"}  # fmt: skip
    expected = np.array2string(array, **{theirs[name]: value for name, value in options.items()})
    if options.get("precision") == 0:
        options["precision"] = -1
    assert loch.from_dlpack(array).format(**options) == expected


# few numbers of many kinds, so that columns of all kinds come together
special = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 0.5, 100.0, 1e5, 1e-5, 123456.789, 1e8, 1e16, np.inf, -np.inf, np.nan, 1 / 3]
)


@given(st.data(), st.sampled_from(FLOATS), shapes)
@settings(max_examples=800)
def test_floats(data, dtype, shape):
    width = np.dtype(dtype).itemsize * 8
    elements = data.draw(
        st.sampled_from(
            [special, st.floats(width=width), st.floats(-1000, 1000, width=width), st.integers(-99, 99).map(float)]
        )
    )
    with np.errstate(all="ignore"):
        values = data.draw(st.lists(elements, min_size=1, max_size=8))
        same(np.resize(np.array(values, np.float64).astype(dtype), shape))


@given(st.data(), st.sampled_from([name for name in TYPES if name[0] in "iub"]), shapes)
@settings(max_examples=300)
def test_integers_and_bools(data, name, shape):
    elements = hnp.from_dtype(np.dtype(TYPES[name])) | st.integers(0, 1)
    values = data.draw(st.lists(elements, min_size=1, max_size=8))
    same(np.resize(np.array(values, object).astype(TYPES[name]), shape))


@given(
    st.data(),
    hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=9),
    st.sampled_from([np.float64, np.float32, np.int32, np.bool_]),
)
@settings(max_examples=500)
def test_options(data, shape, dtype):
    options = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "precision": st.integers(0, 12),
                "threshold": st.integers(1, 200),
                "edge": st.integers(1, 4),
                "width": st.integers(10, 120),
                "separator": st.sampled_from([" ", ", ", ",", " | "]),
            },
        )
    )
    seed = data.draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    same((rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4)).astype(dtype), **options)


@given(st.integers(0, 2**32), st.sampled_from([(1001,), (40, 40), (3, 400), (12, 12, 12), (2, 2, 2, 2, 100)]))
@settings(max_examples=60)
@example(0, (1000,))
def test_long_ones_are_shortened(seed, shape):
    rng = np.random.default_rng(seed)
    same(rng.standard_normal(shape))
    same(rng.integers(-(10**6), 10**6, shape))


def test_views_are_printed_as_they_are_seen():
    array = np.arange(60.0).reshape(3, 4, 5)
    for cut in np.s_[::-1, 1:3, ::2], np.s_[1], np.s_[:, 0, 0], np.s_[0, 0, 0], np.s_[:, 2:2]:
        assert str(loch.from_dlpack(array)[cut]) == np.array2string(array[cut])
    assert str(loch.from_dlpack(np.broadcast_to(np.float32(0.1), (2, 3)))) == np.array2string(
        np.full((2, 3), 0.1, "f4")
    )


@given(shapes, st.sampled_from(sorted(TYPES)), st.integers(0, 2**32))
@settings(max_examples=300)
def test_repr_makes_the_tensor_again(shape, name, seed):
    array = np.asarray(np.random.default_rng(seed).standard_normal(shape) * 100).astype(np.int64).astype(TYPES[name])
    tensor = loch.from_dlpack(np.asarray(array))
    text = repr(tensor)
    if array.size <= 1000:
        again = eval(text)
        assert (again.dtype, again.shape, again.tolist()) == (tensor.dtype, tensor.shape, tensor.tolist())
    if array.size:
        assert text.startswith("loch.tensor(" + np.array2string(array, separator=", ", prefix="loch.tensor(", suffix=")"))
        assert all(len(line) <= 75 for line in text.split("\n"))


def test_repr_of_what_is_not_shown_whole():
    assert "..., 1997, 1998, 1999],\n            shape=(2000,), dtype='i64')" in repr(loch.arange(2000))
    there = loch.ones(2, device="sim:16MiB")
    assert repr(there) == "loch.tensor([1., 1.], dtype='f32', device='sim:16MiB')"
    assert repr(loch.ones(3, device="sim:1GiB,unbacked")) == "<loch f32[3], 12 bytes on sim:1GiB,unbacked>"
    pool = loch.Pool()
    sleeping = loch.ones(3, pool=pool)
    pool.sleep()
    assert repr(sleeping) == "<loch f32[3], 12 bytes on cpu>"
    pool.wake()


def test_format_of_a_number():
    assert f"{loch.tensor(1.2345):.2f} {loch.tensor(7):>3d} {loch.ones(2)[0]:.1f}" == "1.23   7 1.0"
    assert f"{loch.ones(2)}" == str(loch.ones(2)) == "[1. 1.]"
    with pytest.raises(TypeError, match="for one number"):
        f"{loch.ones(2):.2f}"
    with pytest.raises(ValueError):
        f"{loch.tensor(7):nonsense}"
