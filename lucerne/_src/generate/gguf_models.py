"""Decoders out of GGUF files of the kinds "gpt2" and "llama"."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.generate.models import Decoder, DecoderConfig, Rotary
from lucerne._src.io.errors import CorruptFileError, UnsupportedFileError
from lucerne._src.ops.linalg.quantized import PANEL
from lucerne._src.quantization.codes import QuantizedWeight
from lucerne._src.quantization.gguf import GGUFFile, load_gguf
from lucerne._src.quantization.linear import QuantizedLinear
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn.modules.linear import Linear
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import Parameter

Weight = Tensor | QuantizedWeight
_BLOCK = {
    "attention_norm": "attn_norm", "network_norm": "ffn_norm", "query": "attn_q", "key": "attn_k",
    "value": "attn_v", "out": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
_TOP = {"word": "token_embd", "place": "position_embd", "norm": "output_norm", "head": "output"}
_EPS = {"gpt2": "layer_norm_epsilon", "llama": "layer_norm_rms_epsilon"}


def load_decoder(
    file: str | os.PathLike[str] | Any, *, dynamic: bool = False, most_context: int = 8192
) -> Decoder:
    """The model of a GGUF file (llama.cpp's "gpt2" and "llama"), in the codes that the file has.

    `dynamic`: rows of inputs are rounded to 8 bits too, as llama.cpp does; faster, and a little
    less exact. The model knows at most `most_context` places.
    """
    found = file if isinstance(file, GGUFFile) else load_gguf(file)
    config = _config(found, most_context)
    with device("meta"):
        model = Decoder(config)
    if config.is_rotary:
        model.turn = Rotary(config)
    parts = _Parts(found.tensors)
    for path, name in _names(model):
        _fill(model, path, parts, name, dynamic)
    return model.eval()


def _config(found: GGUFFile, most_context: int) -> DecoderConfig:
    facts = found.metadata
    kind = facts.get("general.architecture")
    if kind not in _EPS:
        raise UnsupportedFileError(
            f"a GGUF file of the kind {kind!r}: models of {list(_EPS)} are built; "
            "lucerne.quantization.load_gguf reads the tensors of any"
        )
    if "rope_freqs.weight" in found.tensors or f"{kind}.rope.scaling.type" in facts:
        raise UnsupportedFileError("this model scales its rotary places, which is not there")

    def number(name: str, default: int | None = None) -> int:
        value = facts.get(f"{kind}.{name}", default)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise CorruptFileError(f"the fact {kind}.{name} is {value!r}: no size")
        return value

    word, heads = found.tensors.get("token_embd.weight"), number("attention.head_count")
    layers, width = number("block_count"), number("embedding_length")
    if (
        word is None
        or len(word.shape) != 2
        or word.shape[1] != width
        or layers > len(found.tensors)
    ):
        raise CorruptFileError("the tensors of the file are not those of a model of its sizes")
    eps, base = facts.get(f"{kind}.attention.{_EPS[kind]}", 1e-5), facts.get(
        f"{kind}.rope.freq_base", 10000.0
    )  # fmt: skip
    if type(eps) is not float or type(base) is not float or not (eps > 0 and base > 0):
        raise CorruptFileError(
            f"epsilon {eps!r} or the base of rotary places {base!r} is no number"
        )
    size = number("rope.dimension_count", width // heads)
    if number("attention.key_length", size) != width // heads or size != width // heads:
        raise UnsupportedFileError("heads of another size than width / heads are not there")
    try:
        return DecoderConfig(
            words=word.shape[0], width=width, layers=layers, heads=heads, kind=kind,
            key_heads=number("attention.head_count_kv", heads),
            hidden=number("feed_forward_length"), eps=eps, rotary_base=base,
            context=min(number("context_length"), most_context),
        )  # fmt: skip
    except ValueError as error:
        raise CorruptFileError(str(error)) from None


def _names(model: Decoder) -> Iterator[tuple[str, str]]:
    """Names of the model's layers, and those of the file."""
    yield from ((path, name) for path, name in _TOP.items() if getattr(model, path) is not None)
    for i, block in enumerate(model.blocks):
        for path, name in _BLOCK.items():
            if getattr(block, path) is not None:
                yield f"blocks.{i}.{path}", f"blk.{i}.{name}"


class _Parts:
    """Tensors by name, and those that lie in others."""

    def __init__(self, tensors: dict[str, Weight]) -> None:
        self.tensors = tensors

    def find(self, name: str, rows: int) -> Weight | None:
        """A tensor with so many rows: of its own, a part of attn_qkv, or the words again."""
        if name in self.tensors:
            return self.tensors[name]
        if name == "output.weight":
            return self.tensors["token_embd.weight"]
        for n, part in enumerate(("attn_q.", "attn_k.", "attn_v.")):
            whole = self.tensors.get(name.replace(part, "attn_qkv."))
            if part in name and whole is not None and whole.shape[0] == 3 * rows:
                return _rows(whole, n * rows, (n + 1) * rows)
        return None


def _rows(weight: Weight, start: int, stop: int) -> Weight:
    """Some rows; in codes where they are whole panels."""
    if isinstance(weight, Tensor):
        return weight[start:stop]
    if start % PANEL or stop % PANEL:
        return weight.dequantize()[start:stop]
    at = slice(start // PANEL, stop // PANEL)
    return QuantizedWeight(
        weight.codes[at].clone(), weight.scale[at].clone(),
        None if weight.base is None else weight.base[at].clone(), stop - start, weight.columns,
        weight.group_size, weight.stored, weight.order,
    )  # fmt: skip


def _fill(model: Decoder, path: str, parts: _Parts, name: str, dynamic: bool) -> None:
    """Put the numbers of the file into one layer, or a layer of codes in its place."""
    layer: Any = model.get_submodule(path)
    weight = _checked(parts, f"{name}.weight", tuple(layer.weight.shape))
    bias = None
    if getattr(layer, "bias", None) is not None:
        bias = _float(_checked(parts, f"{name}.bias", tuple(layer.bias.shape)))
    if isinstance(weight, QuantizedWeight) and isinstance(layer, Linear):
        owner, _, key = path.rpartition(".")
        made: Module = QuantizedLinear.from_weight(weight, bias, dynamic=dynamic)
        setattr(model.get_submodule(owner), key, made)
        return
    layer.weight = Parameter(_float(weight), requires_grad=False)
    if bias is not None:
        layer.bias = Parameter(bias, requires_grad=False)


def _checked(parts: _Parts, name: str, shape: tuple[int, ...]) -> Weight:
    found = parts.find(name, shape[0])
    if name == "position_embd.weight" and isinstance(found, Tensor) and found.ndim == 2:
        found = found[: shape[0]]
    if found is None or tuple(found.shape) != shape:
        there = "is not in the file" if found is None else f"has the shape {list(found.shape)}"
        raise CorruptFileError(f"{name!r} {there}, a model of its sizes has {list(shape)}")
    return found


def _float(weight: Weight) -> Tensor:
    """As float32 of its own."""
    if isinstance(weight, QuantizedWeight):
        return weight.dequantize()
    return weight.to(dt.float32).contiguous()
