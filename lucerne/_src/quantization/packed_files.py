"""Checkpoints of GPTQ and AWQ: integers of 32 bits with codes in them, scales, zero points.

| | codes | zero points | number |
|---|---|---|---|
| GPTQ | `qweight` (columns / 8, rows): along columns | (groups, rows / 8), less 1 | s (q - z - 1) |
| AWQ | `qweight` (columns, rows / 8): along rows, in AWQ's order | alike | s (q - z) |

In 8 bits four codes stand in a word instead of eight. GPTQ's `g_idx` says which group a column
belongs to; where columns are not in the order of their groups they are sorted, and the input is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.io.errors import CorruptFileError, UnsupportedFileError
from lucerne._src.ops.linalg.quantized import INT4, INT8, MIDDLE, arranged, arranged_scales
from lucerne._src.quantization.codes import QuantizedWeight
from lucerne._src.quantization.linear import QuantizedLinear
from lucerne._src.tensor import api as lu
from lucerne.nn.modules.linear import Linear

Array = np.ndarray[Any, Any]
_STORED = {4: INT4, 8: INT8}
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def from_gptq(
    tensors: Mapping[str, Any], prefix: str, *, bits: int, group_size: int, version: int = 1
) -> QuantizedWeight:
    """The weight `prefix` of a GPTQ checkpoint. `version` 2 stores zero points as they are."""
    if version not in (1, 2):
        raise UnsupportedFileError(f"GPTQ checkpoints of version {version}: 1 and 2 are read")
    per, stored = _per_word(bits), _STORED[bits]
    words = _words(tensors, f"{prefix}.qweight")
    columns, rows = words.shape[0] * per, words.shape[1]
    group = columns if group_size == -1 else group_size
    codes = _unpacked(words, bits).transpose(0, 2, 1).reshape(columns, rows)
    scale, zeros = _scales(tensors, prefix, bits, columns, rows, group)
    zeros = _unpacked(zeros, bits).reshape(len(zeros), rows) + (1 if version == 1 else 0)
    order = _order(tensors, prefix, columns, group)
    if order is not None:
        codes = codes[order]
    return _weight(codes.T, scale, zeros, stored, group, order)


def from_awq(
    tensors: Mapping[str, Any], prefix: str, *, bits: int = 4, group_size: int
) -> QuantizedWeight:
    """The weight `prefix` of an AWQ checkpoint."""
    if bits != 4:
        raise UnsupportedFileError(f"AWQ checkpoints in {bits} bits: 4 are read")
    words = _words(tensors, f"{prefix}.qweight")
    columns, rows = words.shape[0], words.shape[1] * 8
    group = columns if group_size == -1 else group_size
    scale, zeros = _scales(tensors, prefix, bits, columns, rows, group)
    place = np.argsort(_AWQ_ORDER)
    codes, zeros = (_unpacked(w, 4)[:, :, place].reshape(-1, rows) for w in (words, zeros))
    return _weight(codes.T, scale, zeros, INT4, group, None)


def load_packed_(model: Any, tensors: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Put the layers of a GPTQ or AWQ checkpoint into a model, and all other tensors as they are.

    `tensors` is what `lucerne.io.safetensors.load_file` gives, `config` the `quantization_config`
    of the checkpoint's config.json. Names of the layers in codes are given back.
    """
    method = config.get("quant_method")
    if method not in ("gptq", "awq"):
        raise UnsupportedFileError(f"quant_method {method!r}: 'gptq' and 'awq' are read")
    bits, group = config.get("bits"), config.get("group_size")
    if type(bits) is not int or type(group) is not int:
        raise CorruptFileError(f"the config says bits={bits!r}, group_size={group!r}")
    prefixes = sorted(name[: -len(".qweight")] for name in tensors if name.endswith(".qweight"))
    layers = dict(model.named_modules())
    made = {}
    for prefix in prefixes:
        if not isinstance(layers.get(prefix), Linear):
            raise CorruptFileError(f"the model has no linear layer {prefix[:80]!r}")
        if method == "gptq":
            version = 2 if config.get("checkpoint_format") == "gptq_v2" else 1
            weight = from_gptq(tensors, prefix, bits=bits, group_size=group, version=version)
        else:
            weight = from_awq(tensors, prefix, bits=bits, group_size=group)
        layer = layers[prefix]
        if weight.shape != (layer.out_features, layer.in_features):
            raise CorruptFileError(
                f"{prefix[:80]!r} is {weight.shape} in the file, the layer has "
                f"{(layer.out_features, layer.in_features)}"
            )
        bias = tensors.get(f"{prefix}.bias")
        if bias is not None and not (bias.is_floating_point() and bias.shape == weight.shape[:1]):
            raise CorruptFileError(f"{prefix[:80]!r}: bias is {bias.dtype} {list(bias.shape)}")
        made[prefix] = QuantizedLinear.from_weight(weight, bias)
    inside = tuple(f"{prefix}." for prefix in prefixes)
    rest = {k: v for k, v in tensors.items() if not k.startswith(inside)}
    _check_rest(model, rest, inside)
    model.load_state_dict(rest, strict=False)
    for prefix, layer in made.items():
        parent, _, key = prefix.rpartition(".")
        setattr(model.get_submodule(parent), key, layer)
    return prefixes


def _check_rest(model: Any, rest: Mapping[str, Any], inside: tuple[str, ...]) -> None:
    wanted = {k: v for k, v in model.state_dict().items() if not k.startswith(inside)}
    missing, more = sorted(set(wanted) - set(rest)), sorted(set(rest) - set(wanted))
    if missing or more:
        raise CorruptFileError(f"the file lacks {missing[:5]} and has {more[:5]} beside the layers")
    for name, t in wanted.items():
        if t.shape != rest[name].shape or t.is_complex() != rest[name].is_complex():
            raise CorruptFileError(f"{name[:80]!r} is {rest[name].dtype} {list(rest[name].shape)}")


def _per_word(bits: int) -> int:
    if bits not in _STORED:
        raise UnsupportedFileError(f"codes of {bits} bits: 4 and 8 are read")
    return 32 // bits


def _words(tensors: Mapping[str, Any], name: str) -> Array:
    """A matrix of int32 words."""
    t = tensors.get(name)
    if t is None or t.dtype is not dt.int32 or t.ndim != 2 or not t.numel():
        what = "nothing" if t is None else f"{t.dtype} {list(t.shape)}"
        raise CorruptFileError(f"{name[:80]!r}: expected a matrix of int32, got {what}")
    made: Array = t.numpy().view(np.uint32)
    return made


def _unpacked(words: Array, bits: int) -> Array:
    """The codes of each word, in a last dimension."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    made: Array = (words[..., None] >> shifts & (1 << bits) - 1).astype(np.uint8)
    return made


def _scales(
    tensors: Mapping[str, Any], prefix: str, bits: int, columns: int, rows: int, group: int
) -> tuple[Array, Array]:
    """Scales (groups, rows) and words of zero points."""
    if group <= 0 or columns % group:
        raise CorruptFileError(f"{prefix[:80]!r}: {columns} columns are no groups of {group}")
    groups = columns // group
    scale, zeros = tensors.get(f"{prefix}.scales"), _words(tensors, f"{prefix}.qzeros")
    if scale is None or not scale.is_floating_point() or tuple(scale.shape) != (groups, rows):
        raise CorruptFileError(f"{prefix[:80]!r}: expected scales {(groups, rows)}")
    if zeros.shape != (groups, -(-rows // (32 // bits))) or rows % (32 // bits):
        raise CorruptFileError(f"{prefix[:80]!r}: zero points are {zeros.shape}")
    return scale.to(dt.float32).numpy(), zeros


def _order(tensors: Mapping[str, Any], prefix: str, columns: int, group: int) -> Array | None:
    """The columns by groups, if they are not in that order."""
    given = tensors.get(f"{prefix}.g_idx")
    if given is None:
        return None
    if given.dtype not in (dt.int32, dt.int64) or tuple(given.shape) != (columns,):
        raise CorruptFileError(f"{prefix[:80]!r}: g_idx is {given.dtype} {list(given.shape)}")
    groups = given.numpy()
    order = np.argsort(groups, kind="stable")
    if (groups[order] != np.arange(columns) // group).any():
        raise CorruptFileError(f"{prefix[:80]!r}: g_idx has no {group} columns in each group")
    return None if (order == np.arange(columns)).all() else order


def _weight(
    codes: Array, scale: Array, zeros: Array, stored: str, group: int, order: Array | None
) -> QuantizedWeight:
    """Codes (rows, columns) with scales and zero points (groups, rows)."""
    base = (MIDDLE[stored] - zeros.astype(np.float32)) * scale
    return QuantizedWeight(
        codes=arranged(lu.from_numpy(np.ascontiguousarray(codes)), stored),
        scale=arranged_scales(lu.from_numpy(np.ascontiguousarray(scale.T))),
        base=arranged_scales(lu.from_numpy(np.ascontiguousarray(base.T))) if base.any() else None,
        rows=codes.shape[0],
        columns=codes.shape[1],
        group_size=group,
        stored=stored,
        order=None if order is None else lu.from_numpy(order),
    )
