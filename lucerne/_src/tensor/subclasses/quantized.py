"""Quantized tensors: integer codes with a scale and a zero point. They are for keeping and sending;
computing happens on what `dequantize` gives."""

from __future__ import annotations

from typing import Any, NoReturn

from lucerne._src.base import dtype as dt
from lucerne._src.base import qscheme as qs
from lucerne._src.ir.convert import as_optional_dtype
from lucerne._src.tensor.format import add_suffixes, contents_text
from lucerne._src.tensor.interop.construct import as_tensor
from lucerne._src.tensor.interop.outside import values
from lucerne._src.tensor.subclasses.by_table import here, name_of
from lucerne._src.tensor.tensor import Tensor

CODES = {
    dt.by_name("quint8"): (dt.uint8, 0, 255),
    dt.by_name("qint8"): (dt.int8, -128, 127),
    dt.by_name("qint32"): (dt.int32, -(2**31), 2**31 - 1),
}
"""The integers that hold the codes of a quantized type, and their range."""
MOVES = frozenset((
    "view", "view_method", "reshape", "permute", "transpose", "t", "select", "narrow", "flatten",
    "squeeze", "unsqueeze", "clone", "contiguous", "index_select", "slice", "expand", "flip",
))  # fmt: skip
"""Ops that only move elements: they act on the codes (of per-tensor schemes)."""


class QuantizedTensor(Tensor, watched=False):
    """Codes, and how to read them.

    >>> import lucerne
    >>> q = lucerne.quantize_per_tensor(lucerne.tensor([-1.0, 0.5]), 0.5, 10, lucerne.quint8)
    >>> q.int_repr(), q.dequantize()
    (tensor([ 8, 11], dtype=torch.uint8), tensor([-1.0000,  0.5000]))
    """

    _codes: Any
    _kind: dt.dtype
    _scheme: qs.qscheme
    _scale: Any
    _zero: Any
    _axis: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("use quantize_per_tensor or quantize_per_channel to make one")

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = name_of(func, MOVES)
        q = args[0]
        if name == "equal":
            return _equal(*args)
        if name not in MOVES or not isinstance(q, cls) or q._axis >= 0:
            raise NotImplementedError(
                f"{name} has no form for quantized tensors.{here()}\nHint: x.dequantize() first, "
                "or x.int_repr() for the codes."
            )
        moved = func(q._codes, *args[1:], **(kwargs or {}))
        return make(moved, q._kind, q._scheme, q._scale, q._zero, q._axis)

    @property
    def dtype(self) -> dt.dtype:
        return self._kind

    @property
    def is_quantized(self) -> bool:
        return True

    def int_repr(self) -> Any:
        """The codes."""
        return self._codes.clone()

    def dequantize(self) -> Any:
        """The numbers the codes stand for."""
        scale, zero = self._scale, self._zero
        if self._axis >= 0:
            shape = [-1 if d == self._axis else 1 for d in range(self._codes.ndim)]
            scale, zero = scale.reshape(shape).to(dt.float32), zero.reshape(shape)
        return (self._codes.to(dt.int64) - zero).to(dt.float32) * scale

    def qscheme(self) -> qs.qscheme:
        return self._scheme

    def q_scale(self) -> float:
        self._expect(per_channel=False)
        return float(self._scale)

    def q_zero_point(self) -> int:
        self._expect(per_channel=False)
        return int(self._zero)

    def q_per_channel_scales(self) -> Any:
        self._expect(per_channel=True)
        return self._scale

    def q_per_channel_zero_points(self) -> Any:
        self._expect(per_channel=True)
        return self._zero

    def q_per_channel_axis(self) -> int:
        self._expect(per_channel=True)
        return self._axis

    def _expect(self, per_channel: bool) -> None:
        if (self._axis >= 0) is not per_channel:
            wanted = "kPerChannelAffine" if per_channel else "kPerTensorAffine"
            raise RuntimeError(
                f"Expected quantizer->qscheme() == {wanted} to be true, but got false"
            )

    def detach(self) -> Any:
        return make(self._codes, self._kind, self._scheme, self._scale, self._zero, self._axis)

    def clone(self, *, memory_format: Any = None) -> Any:
        return self.__deepcopy__({})

    def tolist(self) -> Any:
        return self.dequantize().tolist()

    def item(self) -> Any:
        return self.dequantize().item()

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise TypeError(
            "can't convert a quantized tensor to numpy. Use x.int_repr() or x.dequantize()"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        codes = self._codes.clone()
        memo[id(self)] = made = make(
            codes, self._kind, self._scheme, self._scale, self._zero, self._axis
        )
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return make, (self._codes, self._kind, self._scheme, self._scale, self._zero, self._axis)

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        text = f"tensor({contents_text(values(self.dequantize()), 7)}"
        facts = [f"size={tuple(self.shape)}", f"dtype={self._kind}"]
        facts.append(f"quantization_scheme={self._scheme}")
        if self._axis < 0:
            facts += [f"scale={self._scale}", f"zero_point={self._zero}"]
        else:
            facts += [f"scale={self._scale!r}", f"zero_point={self._zero!r}", f"axis={self._axis}"]
        return add_suffixes(text, facts, 7)


def make(codes: Any, kind: dt.dtype, scheme: Any, scale: Any, zero: Any, axis: int = -1) -> Any:
    """A quantized tensor of these parts."""
    made: Any = object.__new__(QuantizedTensor)
    made._meta, made._storage, made._offset = codes._meta, codes._storage, codes._offset
    made._auto = made._view = made._array = None
    made._codes, made._kind, made._scheme = codes, kind, scheme
    made._scale, made._zero, made._axis = scale, zero, axis
    return made


def _equal(a: Any, b: Any) -> bool:
    both = isinstance(a, QuantizedTensor) and isinstance(b, QuantizedTensor)
    if not both or a._kind is not b._kind or a._axis != b._axis:
        return False
    return bool(a._codes.equal(b._codes)) and bool(a.dequantize().equal(b.dequantize()))


def _range(dtype: Any) -> tuple[dt.dtype, tuple[dt.dtype, int, int]]:
    kind = as_optional_dtype(dtype)
    if kind not in CODES:
        raise RuntimeError(
            f"Unsupported quantized dtype {dtype}: expected torch.quint8, torch.qint8 or "
            "torch.qint32"
        )
    return kind, CODES[kind]


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """`input` as codes: `round(input / scale) + zero_point`.

    >>> import lucerne
    >>> lucerne.quantize_per_tensor(lucerne.tensor([0.26]), 0.25, 0, lucerne.qint8).int_repr()
    tensor([1], dtype=torch.int8)
    """
    kind, (held, low, high) = _range(dtype)
    step, zero = float(scale), int(zero_point)
    if not low <= zero <= high:
        raise RuntimeError(f"zero_point {zero} is outside of the range [{low}, {high}] of {kind}")
    codes = ((input.detach() / step).round() + zero).clamp(low, high).to(held)
    return make(codes, kind, qs.per_tensor_affine, step, zero)


def quantize_per_channel(input: Any, scales: Any, zero_points: Any, axis: int, dtype: Any) -> Any:
    """The same with a scale and a zero point for each place of dimension `axis`."""
    kind, (held, low, high) = _range(dtype)
    axis = axis % input.ndim
    steps, zeros = as_tensor(scales).to(dt.float64), as_tensor(zero_points).to(dt.int64)
    if steps.ndim != 1 or steps.numel() != input.shape[axis] or zeros.shape != steps.shape:
        raise RuntimeError(
            "quantize_per_channel: expected one scale and one zero point for each of the "
            f"{input.shape[axis]} places of dimension {axis}"
        )
    shape = [-1 if d == axis else 1 for d in range(input.ndim)]
    ratio = input.detach() / steps.reshape(shape).to(input.dtype)
    codes = (ratio.round() + zeros.reshape(shape)).clamp(low, high).to(held)
    return make(codes, kind, qs.per_channel_affine, steps, zeros, axis)


def quantize_per_tensor_dynamic(input: Any, dtype: Any, reduce_range: bool) -> Any:
    """`quantize_per_tensor` with a scale and a zero point that fit the elements."""
    _, (_, low, high) = _range(dtype)
    if reduce_range:
        low, high = low // 2, high // 2
    least, most = (float(x) for x in (input.min().clamp(max=0), input.max().clamp(min=0)))
    step = (most - least) / (high - low) or 0.1
    ends = (low - least / step, high - most / step)
    errors = (abs(low) + abs(least / step), abs(high) + abs(most / step))
    zero = round(ends[0] if errors[0] < errors[1] else ends[1])
    return quantize_per_tensor(input, step, min(max(zero, low), high), dtype)


def dequantize(*tensors: Any, **named: Any) -> Any:
    """Numbers of quantized tensors; others as float32. Takes one tensor or a list."""
    given: Any = tensors[0] if tensors else named.get("tensors", named.get("input"))
    if isinstance(given, (list, tuple)):
        return tuple(t.dequantize() for t in given)
    return given.dequantize()


def _only_quantized(name: str) -> Any:
    def method(self: Any) -> NoReturn:
        raise NotImplementedError(
            f"Could not run 'aten::{name}': it is for quantized tensors, this one has dtype "
            f"{self.dtype}.{here()}\nHint: torch.quantize_per_tensor(x, scale, zero_point, dtype)"
        )

    method.__name__ = name
    method.__doc__ = "Only for quantized tensors."
    return method


def install() -> None:
    cls: Any = Tensor
    cls.dequantize = lambda self: self.to(dt.float32)
    for name in ("int_repr", "q_scale", "q_zero_point", "q_per_channel_scales", "qscheme",
                 "q_per_channel_zero_points", "q_per_channel_axis"):  # fmt: skip
        setattr(cls, name, _only_quantized(name))


install()
