"""Files of llama.cpp, GPTQ and AWQ give the numbers that their makers say."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.io.errors import CorruptFileError, LoadError, UnsupportedFileError
from lucerne.io import safetensors
from lucerne.quantization import (
    QuantizedLinear,
    QuantizedWeight,
    from_awq,
    from_gptq,
    load_gguf,
    load_packed_,
)
from tests.quantization import craft, fuzz

DATA = Path(__file__).parent / "data"


def test_a_file_of_llama_cpp_s_own_package() -> None:
    found = load_gguf(DATA / "small.gguf")
    assert found.metadata["llama.block_count"] == 2
    assert found.metadata["tokenizer.ggml.tokens"] == ["a", "b", "\u00e9"]
    assert found.metadata["some.numbers"] == [1, 2, 3]
    assert found.metadata["some.flag"] is True
    with np.load(DATA / "small.npz") as expected:
        assert set(expected) == set(found.tensors)
        for name, want in expected.items():
            got = found.tensors[name]
            made = got.dequantize() if isinstance(got, QuantizedWeight) else got
            np.testing.assert_allclose(made.numpy(), want, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_layer_of_blocks_multiplies() -> None:
    found = load_gguf(DATA / "small.gguf")
    x = torch.randn(2, 512, generator=torch.Generator().manual_seed(0))
    with np.load(DATA / "small.npz") as expected:
        for name in ("Q8_0", "Q4_0", "Q4_K", "Q6_K"):
            got = QuantizedLinear.from_weight(found.tensors[name])(x)
            want = x.double().numpy() @ expected[name].T.astype(np.float64)
            assert abs(got.numpy() - want).max() <= 1e-5 * abs(want).max(), name


@pytest.mark.parametrize(
    ("method", "bits", "shuffled"),
    [("gptq", 4, False), ("gptq", 4, True), ("gptq", 8, False), ("awq", 4, False)],
)
def test_packed_checkpoints(method: str, bits: int, shuffled: bool) -> None:
    tensors, want = craft.packed_layer(method, 16, 64, 16, bits, shuffled)
    read = from_gptq if method == "gptq" else from_awq
    weight = read(tensors, "fc", bits=bits, group_size=16)
    np.testing.assert_allclose(weight.dequantize().numpy(), want, atol=1e-6)
    model = torch.nn.Sequential()
    model.add_module("fc", torch.nn.Linear(64, 16))
    tensors["fc.bias"] = torch.ones(16)
    tensors = safetensors.load(safetensors.save(tensors))
    config = {"quant_method": method, "bits": bits, "group_size": 16}
    assert load_packed_(model, tensors, config) == ["fc"]
    x = torch.randn(3, 64)
    got = model(x).numpy()
    assert abs(got - (x.numpy() @ want.T + 1)).max() < 1e-4


def test_version_2_of_gptq_stores_zero_points_as_they_are() -> None:
    tensors, want = craft.packed_layer("gptq", 16, 32, 16)
    one, two = (from_gptq(tensors, "fc", bits=4, group_size=16, version=v) for v in (1, 2))
    np.testing.assert_allclose(one.dequantize().numpy(), want, atol=1e-6)
    assert (two.dequantize() > one.dequantize()).all()


def test_plain_numbers_of_gguf() -> None:
    numbers = np.array([1.5, -2.0], np.float32)
    high = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    made = craft.gguf({
        "b": ((2,), 30, high.tobytes()), "i": ((1, 2), 27, np.array([3, -4]).tobytes()),
        "s": ((), 28, np.array(0.5).tobytes()),
    })  # fmt: skip
    found = load_gguf(io.BytesIO(made)).tensors
    assert found["b"].dtype is torch.bfloat16
    assert [found[name].tolist() for name in "bis"] == [[1.5, -2.0], [[3, -4]], 0.5]


REFUSED = [
    (b"", UnsupportedFileError, "no GGUF file"),
    (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), UnsupportedFileError, "version 1"),
    (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), CorruptFileError, "tensors do not fit"),
    (craft.gguf({"a": ((4,), 0, b"")}), CorruptFileError, "end at"),
    (craft.gguf({"a": ((1, 33), 8, b"\0" * 64)}), CorruptFileError, "no blocks of 32"),
    (craft.gguf({"a": ((1, 32), 10, b"\0" * 64)}), UnsupportedFileError, "kind 10"),
    (craft.gguf({"a": ((2, 2, 32), 8, b"\0" * 160)}), UnsupportedFileError, "3 dimensions"),
    (craft.small_gguf()[:-40], CorruptFileError, "end at"),
]


@pytest.mark.parametrize(("data", "kind", "says"), REFUSED, ids=[r[2] for r in REFUSED])
def test_gguf_refusals_say_why(data: bytes, kind: type[LoadError], says: str) -> None:
    with pytest.raises(kind, match=says):
        load_gguf(io.BytesIO(data))


def test_damaged_files_are_read_or_refused() -> None:
    """The command runs 5,000."""
    for name, seen in fuzz.run(150).items():
        assert seen["refused"] > 10, (name, seen)
