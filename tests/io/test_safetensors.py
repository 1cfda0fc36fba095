"""safetensors: we read what the library writes and the reverse; models; digests."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import lucerne
from lucerne.io import safetensors as st
from lucerne.serialization import LoadError
from tests.io.corpus import assert_same

NUMPY = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool",
         "uint16", "uint32", "uint64", "complex64")  # fmt: skip


def tensors(t: Any) -> dict[str, Any]:
    made = {name: t.arange(6).reshape(2, 3).to(getattr(t, name)) for name in NUMPY}
    made |= {"bf16": t.arange(5).to(t.bfloat16), "f8": t.arange(4.0).to(t.float8_e4m3fn)}
    made |= {
        "f8b": t.arange(4.0).to(t.float8_e5m2),
        "empty": t.zeros(0, 3),
        "scalar": t.tensor(2.5),
    }
    return made


def test_round_trip(tmp_path: Path) -> None:
    given = tensors(lucerne)
    st.save_file(given, tmp_path / "x.safetensors", {"who": "me"}, digest=True)
    path = tmp_path / "x.safetensors"
    for found in (st.load_file(path), lucerne.load(path), st.load(st.save(given))):
        assert set(found) == set(given)
        for name, t in given.items():
            assert_same(found[name], t, name)
    said = st.metadata_of(tmp_path / "x.safetensors")
    assert said["who"] == "me"
    assert len(said[st.DIGEST]) == 72


def test_the_library_agrees(tmp_path: Path) -> None:
    arrays = {
        name: np.arange(6).reshape(2, 3).astype(name) for name in NUMPY if name != "complex64"
    }
    raw = safetensors.numpy.save(arrays, {"a": "b"})
    found = st.load(raw)
    for name, array in arrays.items():
        assert found[name].numpy().tobytes() == array.tobytes()
    ours = {name: lucerne.from_numpy(array) for name, array in arrays.items()}
    assert (
        st.save(ours, {"a": "b"}) == raw
        or safetensors.numpy.load(st.save(ours)).keys() == ours.keys()
    )
    for name, array in safetensors.numpy.load(st.save(ours, digest=True)).items():
        assert array.tobytes() == arrays[name].tobytes()
        assert array.shape == arrays[name].shape


@pytest.mark.torch
def test_torch_agrees(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import safetensors.torch

    path = tmp_path / "x.safetensors"
    st.save_file(tensors(lucerne), path)
    for name, t in safetensors.torch.load_file(path).items():
        assert_same(t, tensors(torch)[name], name)
    safetensors.torch.save_file(tensors(torch), path)
    for name, t in st.load_file(path).items():
        assert_same(t, tensors(lucerne)[name], name)


def test_mapped_and_private(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file({"w": lucerne.zeros(3)}, path)
    before = path.read_bytes()
    found = st.load_file(path)["w"]
    found += 1
    assert found.tolist() == [1.0] * 3
    assert path.read_bytes() == before
    assert st.load_file(path, "meta")["w"].device.type == "meta"
    assert lucerne.load(path, map_location="meta")["w"].device.type == "meta"
    assert lucerne.load(path, map_location={"cuda:0": "cpu"})["w"].tolist() == [0.0] * 3


def test_strided_tensors_are_saved_dense() -> None:
    x = lucerne.arange(6.0).reshape(2, 3)
    found = st.load(st.save({"x": x.t(), "e": lucerne.ones(1).expand(3)}))
    assert found["x"].tolist() == x.t().tolist()
    assert found["x"].is_contiguous()
    assert found["e"].tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1], "Expected a dict"),
        ({"a": 1}, "expected torch.Tensor"),
        ({1: lucerne.ones(1)}, "invalid"),
        ({"a": lucerne.empty(2, device="meta")}, "only dense"),
        ({"__metadata__": lucerne.ones(1)}, "reserved"),
        ({"a": lucerne.ones(1, dtype=lucerne.complex128)}, "no type"),
    ],
)
def test_what_is_not_saved(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        st.save(given)


def test_shared_memory_needs_save_model(tmp_path: Path) -> None:
    model = lucerne.nn.Sequential(lucerne.nn.Linear(3, 3), lucerne.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    with pytest.raises(RuntimeError, match="save_model"):
        st.save(dict(model.state_dict()))
    st.save_model(model, tmp_path / "m.safetensors")
    said = st.metadata_of(tmp_path / "m.safetensors")
    assert {k: v for k, v in said.items() if k != st.DIGEST} == {"1.weight": "0.weight"}
    other = lucerne.nn.Sequential(lucerne.nn.Linear(3, 3), lucerne.nn.Linear(3, 3))
    other[1].weight = other[0].weight
    assert st.load_model(other, tmp_path / "m.safetensors") == ([], [])
    assert lucerne.equal(other[1].weight, model[0].weight)
    with pytest.raises(RuntimeError, match="missing"):
        st.load_model(lucerne.nn.Linear(3, 3), tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="metadata"):
        st.save({}, {"a": 1})


def test_side_by_side_is_not_shared() -> None:
    x = lucerne.arange(6.0)
    found = st.load(st.save({"a": x[:3], "b": x[3:]}))
    assert found["b"].tolist() == [3.0, 4.0, 5.0]


def test_digest_is_optional_and_checked() -> None:
    raw = bytearray(st.save({"w": lucerne.zeros(4)}, digest=True))
    raw[-1] ^= 1
    with pytest.raises(LoadError, match="digest"):
        st.load(bytes(raw))
    assert st.load(bytes(raw), checksums=False)["w"].shape == (4,)
    plain = st.save({"w": lucerne.zeros(4)}, digest=False)
    length = struct.unpack("<Q", plain[:8])[0]
    assert json.loads(plain[8 : 8 + length]) == {
        "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    }
