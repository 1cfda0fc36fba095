"""Models out of GGUF files are those that the files were made of."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.generate.gguf_models import _BLOCK, _TOP
from lucerne._src.generate.models import Rotary
from lucerne._src.io.errors import CorruptFileError, LoadError, UnsupportedFileError
from lucerne.generate import Decoder, DecoderConfig, Decoding, load_decoder
from lucerne.quantization import QuantizedLinear
from tests.generate.naive import greedy, prompt_of
from tests.quantization import craft

F32, Q8_0 = 0, 8


def _q8_0(a: Any) -> tuple[bytes, Any]:
    """Blocks of 32 in 8 bits, and the numbers that they stand for."""
    wide = a.reshape(-1, 32)
    scale = (abs(wide).max(1) / 127).astype(np.float16)
    codes = np.round(wide / scale.astype(np.float32)[:, None]).clip(-127, 127).astype(np.int8)
    raw = np.concatenate([scale.view(np.uint8).reshape(-1, 2), codes.view(np.uint8)], 1)
    return raw.tobytes(), (codes * scale.astype(np.float32)[:, None]).reshape(a.shape)


def _config(kind: str) -> DecoderConfig:
    shared = 2 if kind == "llama" else None
    return DecoderConfig(
        words=40, width=64, layers=2, heads=4, kind=kind, key_heads=shared, hidden=96, context=64
    )


def _file(kind: str, small: bool = True) -> tuple[dict[str, Any], dict[str, Any], Decoder]:
    """Tensors and facts of a file, and the model that it stands for."""
    torch.manual_seed(0)
    model = Decoder(_config(kind)).eval()
    names = dict(_TOP)
    for i in range(2):
        names |= {f"blocks.{i}.{k}": f"blk.{i}.{v}" for k, v in _BLOCK.items()}
    tensors = {}
    with torch.no_grad():
        for path, t in model.named_parameters():
            layer, _, part = path.rpartition(".")
            name, a = f"{names[layer]}.{part}", t.numpy()
            if small and a.ndim == 2 and "embd" not in name:
                raw, numbers = _q8_0(a)
                t.copy_(torch.from_numpy(numbers))
                tensors[name] = (a.shape, Q8_0, raw)
            else:
                tensors[name] = (a.shape, F32, a.tobytes())
    eps = "layer_norm_epsilon" if kind == "gpt2" else "layer_norm_rms_epsilon"
    facts: dict[str, Any] = {
        "embedding_length": 64, "block_count": 2, "attention.head_count": 4,
        "attention.head_count_kv": 2 if kind == "llama" else 4, "feed_forward_length": 96,
        "context_length": 64, f"attention.{eps}": 1e-5,
    }  # fmt: skip
    return tensors, {f"{kind}.{k}": v for k, v in facts.items()}, model


def _loaded(tensors: Any, facts: Any, kind: str, **options: Any) -> Decoder:
    return load_decoder(io.BytesIO(craft.gguf(tensors, more=facts, kind=kind)), **options)


def _joined(tensors: dict[str, Any]) -> dict[str, Any]:
    """As GPT-2's files have it: queries, keys and values in one tensor."""
    made = dict(tensors)
    for i, part in [(i, p) for i in range(2) for p in ("weight", "bias")]:
        pieces = [made.pop(f"blk.{i}.attn_{n}.{part}") for n in "qkv"]
        shape, kind, _ = pieces[0]
        whole = (3 * shape[0], *shape[1:]), kind, b"".join(p[2] for p in pieces)
        made[f"blk.{i}.attn_qkv.{part}"] = whole
    return made


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_file_gives_the_model_s_logits(kind: str, small: bool) -> None:
    tensors, facts, model = _file(kind, small)
    made = _loaded(_joined(tensors) if kind == "gpt2" else tensors, facts, kind)
    assert isinstance(made.blocks[0].key, QuantizedLinear) == small
    with torch.no_grad():
        tokens = torch.tensor([prompt_of(9)]) % 40
        np.testing.assert_allclose(made(tokens).numpy(), model(tokens).numpy(), atol=1e-5)
    prompt = [t % 40 for t in prompt_of(20)]
    decoding = Decoding(made, capacity=64, compile=False)
    assert decoding.generate([prompt], 6) == [greedy(model, prompt, 6)[0]]


def test_rows_in_8_bits_are_near() -> None:
    tensors, facts, model = _file("llama")
    made = _loaded(tensors, facts, "llama", dynamic=True)
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        want = model(tokens)
        assert float((made(tokens) - want).abs().max()) < 0.05 * float(want.abs().max())


def test_words_serve_as_head_where_a_file_has_none() -> None:
    tensors, facts, _ = _file("llama", small=False)
    del tensors["output.weight"]
    made = _loaded(tensors, facts, "llama")
    assert torch.equal(made.head.weight, made.word.weight)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda t, f: f.pop("llama.block_count"), CorruptFileError, "block_count is None"),
        (lambda t, f: f.update({"llama.block_count": 10**9}), CorruptFileError, "not those of"),
        (lambda t, f: f.update({"llama.block_count": 3}), CorruptFileError, "is not in the file"),
        (lambda t, f: f.update({"llama.embedding_length": 32}), CorruptFileError, "not those of"),
        (lambda t, f: f.update({"llama.attention.head_count": 3}), CorruptFileError, "divide"),
        (lambda t, f: f.update({"llama.feed_forward_length": 64}), CorruptFileError, "shape"),
        (lambda t, f: f.update({"llama.rope.dimension_count": 8}), UnsupportedFileError, "size"),
        (lambda t, f: f.update({"llama.rope.freq_base": -1.0}), CorruptFileError, "no number"),
        (lambda t, f: t.pop("blk.1.ffn_up.weight"), CorruptFileError, "is not in the file"),
        (lambda t, f: t.pop("token_embd.weight"), CorruptFileError, "not those of"),
        (lambda t, f: t.update({"rope_freqs.weight": ((1,), 0, b"1234")}), LoadError, "scales"),
    ],
)
def test_files_that_are_no_such_model(change: Any, error: type[Exception], text: str) -> None:
    tensors, facts, _ = _file("llama")
    change(tensors, facts)
    with pytest.raises(error, match=text):
        _loaded(tensors, facts, "llama")


def test_other_kinds_are_refused() -> None:
    tensors, facts, _ = _file("llama")
    with pytest.raises(UnsupportedFileError, match="'mamba'"):
        _loaded(tensors, facts, "mamba")


@pytest.mark.parametrize("halves", [False, True])
def test_places_turn_pairs_as_complex_numbers_do(halves: bool) -> None:
    config = DecoderConfig(
        words=4, width=16, layers=1, heads=2, context=32, rotary_base=100.0, rotary_halves=halves
    )
    x, places = np.random.default_rng(0).normal(size=(1, 2, 3, 8)), np.array([[0, 5, 31]])
    pairs = x.reshape(1, 2, 3, 2, 4).swapaxes(3, 4) if halves else x.reshape(1, 2, 3, 4, 2)
    angle = places[:, None, :, None] * 100.0 ** -(np.arange(4) / 4)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)
    want = np.stack([turned.real, turned.imag], -1)
    want = want.swapaxes(3, 4).reshape(x.shape) if halves else want.reshape(x.shape)
    got = Rotary(config)(torch.tensor(x, dtype=torch.float32), torch.tensor(places))
    np.testing.assert_allclose(got.numpy(), want, atol=1e-5)
