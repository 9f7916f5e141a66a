# SPDX-License-Identifier: MIT
"""loch.safetensors: what it writes and what the format's own library writes is the same, and each reads the other's files."""

import gc
import json
import os
import re
import struct
from random import Random

import loch
import numpy as np
import pytest
from loch import safetensors

theirs = pytest.importorskip("safetensors")
theirs_numpy = pytest.importorskip("safetensors.numpy")


def numbers(shape, dtype):
    return (np.arange(np.prod(shape, dtype=int)) % 120).astype(dtype).reshape(shape)


def arrays():
    found = {}
    found["scalar"] = np.array(7, np.int64)
    found["empty"] = np.zeros((0, 4), np.float16)
    found["deep/ü\n\"\\"] = numbers((2, 1, 3, 1), np.float32)
    for number, kind in enumerate([np.float64, np.float32, np.float16, np.int8, np.int16, np.int32, np.int64,
                                   np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]):  # fmt: skip
        found[f"layer.{number}"] = numbers((3, number + 1), kind)
    return found


def same(tensor, array):
    return tensor.shape == array.shape and np.array_equal(tensor.numpy(), array)


# --- the format's own library ---


@pytest.mark.parametrize("metadata", [None, {"format": "np\n\x01é"}], ids=str)
def test_files_are_the_bytes_of_the_other_library(tmp_path, metadata):
    ours, other = tmp_path / "ours", tmp_path / "theirs"
    theirs_numpy.save_file(arrays(), other, metadata=metadata)
    safetensors.save(ours, {name: loch.from_numpy(array) for name, array in arrays().items()}, metadata)
    assert ours.read_bytes() == other.read_bytes()


def test_the_other_library_reads_ours(tmp_path):
    path = tmp_path / "a.safetensors"
    turned = loch.from_numpy(numbers((4, 6), np.float32)).T
    half = loch.tensor([[1, 2], [3, 4]], "bf16")
    safetensors.save(path, {"turned": turned, "half": half, "list": [1.5, 2.5]}, {"a": "b"})
    with theirs.safe_open(path, framework="np") as file:
        assert file.metadata() == {"a": "b"}
        assert set(file.keys()) == {"turned", "half", "list"}
        assert np.array_equal(file.get_tensor("turned"), numbers((4, 6), np.float32).T)
        assert file.get_slice("half").get_dtype() == "BF16" and file.get_slice("half").get_shape() == [2, 2]


def test_ours_reads_the_other_library(tmp_path):
    path = tmp_path / "a.safetensors"
    theirs_numpy.save_file(arrays(), path, metadata={"a": "ä", "b": ""})
    with safetensors.open(path) as file:
        assert file.metadata == {"a": "ä", "b": ""}
        assert set(file) == set(arrays()) and len(file) == len(arrays())
        for name, array in arrays().items():
            assert same(file[name], array) and same(file.load(name), array)
            assert file.info(name).shape == array.shape
    for name, tensor in safetensors.load(path).items():
        assert same(tensor, arrays()[name])


@pytest.mark.parametrize("header", [
    '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}',
    '{"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}', '{"a":{"dtype":"U8","shape":[5],"data_offsets":[0,6]}}',
    '{"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]}', '[]', '{"a":1}', '{"a":{"dtype":"U8","shape":[-6],"data_offsets":[0,6]}}',
    '{"a":{"dtype":"U8","shape":[6.0],"data_offsets":[0,6]}}', '{"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6,6]}}',
    '{"a":{"dtype":"U8","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,6]}}',
    '{"__metadata__":{"a":1},"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]}}', '{"a":{"dtype":"U8","shape":[6]}}',
    '{"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}}', '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}', '',
])  # fmt: skip
def test_both_refuse(tmp_path, header):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + b"abcdef")
    with pytest.raises(theirs.SafetensorError):
        theirs.safe_open(path, framework="np").keys()
    with pytest.raises(loch.Error, match="a.safetensors"):
        safetensors.open(path)


BASES = [
    '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]}}',
    '{"__metadata__":{"k":"v","l":"\\u00e4"},"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},'
    '"b":{"shape":[0,3],"dtype":"F16","data_offsets":[8,8]},"c":{"data_offsets":[8,12],"dtype":"BF16","shape":[2]}}   ',
    '{ "x" : { "dtype" : "F64" , "shape" : [ 1 ] , "data_offsets" : [ 0 , 8 ] } ,\n"y":{"dtype":"I8","shape":[2,2],"data_offsets":[8,12]}}',
    '{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"b":{"dtype":"C64","shape":[1],"data_offsets":[1,9]},'
    '"c":{"dtype":"BOOL","shape":[3],"data_offsets":[9,12]}}',
]
PIECES = ["{", "}", "[", "]", ",", ":", '"', "0", "1", "4", "-1", "1.0", "1e0", "null", "true", '"a"', '"dtype"', '"shape"', '"U8"', " ", "\n",
          "18446744073709551615", "18446744073709551616", "\\u0061", "\\ud800", "\\u0000", "\\n", "\x01", "é", '"__metadata__":{},', '"x":1,',
          '"a":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},', "[[[[", "00"]  # fmt: skip
NUMBERS = [0, 1, 2, 3, 4, 6, 8, 9, 11, 12, 13, 1 << 32, (1 << 63) - 1, (1 << 64) - 1]


def mutate(random, text):
    """The text with one to three changes: pieces cut out, put in and doubled, numbers replaced."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice([1, 1, 1, 2, 5, 20]))
        numbers_there = list(re.finditer(r"[0-9]+", text))
        kind = random.randrange(5)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:start] + random.choice(PIECES) + text[start:]
        elif kind == 2:
            text = text[:start] + random.choice(PIECES) + text[end:]
        elif kind == 3 and numbers_there:
            found = random.choice(numbers_there)
            text = text[: found.start()] + str(random.choice(NUMBERS)) + text[found.end() :]
        else:
            text = text[:start] + 2 * text[start:end] + text[end:]
    return text


def test_both_agree_on_mutated_headers(tmp_path):
    """Loch accepts more in one point, types of the future, and less in three: names twice, zeros in text, sizes above 2^63 - 1."""
    random = Random(19)
    path = tmp_path / "a.safetensors"
    accepted = 0
    for _ in range(1500):
        header = mutate(random, random.choice(BASES)).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(12)))
        names = refusal = error = None
        try:
            with theirs.safe_open(path, framework="np") as file:
                names = set(file.keys())
        except theirs.SafetensorError as refused:
            refusal = str(refused)
        try:
            with safetensors.open(path) as file:
                accepted += 1
                if names is None:
                    assert "unknown variant" in refusal, header
                else:
                    assert set(file) == names
        except loch.Error as refused:
            error = str(refused)
        if error is not None and names is not None:
            assert re.search(r"two tensors|twice|second __metadata__|a zero in it|above 2\^63", error), (header, error)
    assert accepted > 50


# --- the package's own ---


def test_tensors_are_views_that_outlive_the_file(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.save(path, {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.arange(3, dtype=np.uint8)})
    file = safetensors.open(path, read_only=True)
    one, other = file["a"], file["a"]
    assert one.address == other.address
    assert not one.numpy().flags.writeable
    file.close()
    file.close()
    assert "closed" in repr(file)
    with pytest.raises(ValueError, match="is closed"):
        file["a"]
    del file
    gc.collect()
    assert same(one, np.arange(12, dtype=np.float32).reshape(3, 4))
    with safetensors.open(path) as private:
        private["b"].numpy()[:] = 9
        assert private["b"].tolist() == [9, 9, 9]
        assert private.load("b").tolist() == [0, 1, 2]  # the file


@pytest.mark.parametrize("device", ["cpu", "sim:64MiB"])
def test_parts_and_types(tmp_path, device):
    path = tmp_path / "a.safetensors"
    array = numbers((6, 8), np.float32)
    safetensors.save(path, {"a": array})
    pool = loch.Pool(device, limit="32MiB")
    with safetensors.open(path) as file:
        there = file.load("a", "bf16", axis=1, start=2, count=3, device=device)
        assert (there.device, there.dtype, there.shape) == (loch.Device(device).name, "bf16", (6, 3))
        assert np.array_equal(there.to("cpu", "f32").numpy(), array[:, 2:5])
        assert np.array_equal(file.load("a", start=4, pool=pool).to("cpu").numpy(), array[4:])
        assert file.load("a", axis=-1, start=7).shape == (6, 1)
        with pytest.raises(loch.Error, match="do not fit axis 0"):
            file.load("a", start=5, count=2)
        with pytest.raises(ValueError, match="at least one index"):
            file.load("a", count=0)
        for wrong in ("b", ""):
            with pytest.raises(KeyError):
                file[wrong]
            with pytest.raises(KeyError):
                file.load(wrong)
    found = safetensors.load(path, device=device)
    assert found["a"].device == loch.Device(device).name
    safetensors.save(path, found)  # from the device
    assert same(safetensors.load(path)["a"], array)


def test_models_in_several_files(tmp_path):
    safetensors.save(tmp_path / "model-1.safetensors", {"a": [1, 2], "b": [3]})
    safetensors.save(tmp_path / "model-2.safetensors", {"c": [4.5]})
    index = {"metadata": {"total_size": 32}, "weight_map": {"c": "model-2.safetensors", "a": "model-1.safetensors"}}
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index, indent=2))
    with safetensors.open(path) as model:
        assert list(model) == ["a", "c"] and model.metadata == {"total_size": "32"}
        assert model["a"].tolist() == [1, 2] and model["c"].tolist() == [4.5]


def test_types_that_loch_lacks(tmp_path):
    path = tmp_path / "a.safetensors"
    header = b'{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"x")
    with safetensors.open(path) as file:
        assert file.info("a") == ("F4", None, (2,))
        with pytest.raises(loch.Error, match="which Loch lacks"):
            file["a"]


def test_what_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises((loch.Error, OSError)):
        safetensors.open(path)
    with pytest.raises(loch.Error, match="reserves"):
        safetensors.save(path, {"__metadata__": [1]})
    with pytest.raises(TypeError):
        safetensors.save(path, {1: [1]})
    with pytest.raises(TypeError):
        safetensors.save(path, {"a": [1]}, {"k": 1})
    with pytest.raises(ValueError):
        safetensors.save(path, {"a\0b": [1]})
    with pytest.raises((TypeError, ValueError)):
        safetensors.save(path, {"a": object()})
    assert not os.listdir(tmp_path)
