"""Decorators that make an entry of the op table out of a Python function.

    @pointwise(vjp={"input": lambda g, y: g * y}, method=True, inplace=True, oracle=np.exp)
    def exp(input: Tensor) -> Tensor:
        \"\"\"`e` to the power of each element.\"\"\"
        return s.exp(input)

Fields every decorator takes:

* `vjp`: for each differentiable input the gradient formula. A formula names what it reads: `g` the
  incoming gradient (a tuple when the op has several results), `y` the result (`y0`, `y1`, `y2` one
  of several), any parameter of the op, or `<parameter>_meta` / `y_meta` for shape and dtype alone.
  Only what is named is kept for the backward pass. Broadcasting and dtype changes are undone by
  the engine. A tuple of inputs may share one formula that returns all their gradients.
* `method`, `inplace`: also `Tensor.name`, also `Tensor.name_`. `aliases`: other names for it.
* `numbers` (pointwise): which operands may be Python numbers: "none", "rest" (all but the first),
  "some" (one must be a tensor, the default) or "all".
* `whole` (pointwise): what the body gets unrounded beside 16-bit floats. "scalars" (the default):
  `Scalar` parameters, while operands are first rounded to the common type; "second": a second
  operand of one element too, as in torch's products and quotients; "none".
* `internal=True`: a building block of other entries, not a public name.
* `namespace`: "" for `lucerne.name`, else for example "nn.functional" or "linalg".
* `oracle`, `samples`: how `lucerne conformance` checks it without torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.device import HOST, device
from lucerne._src.base.process.source_location import GENERATED
from lucerne._src.ir import dispatch, promote
from lucerne._src.ir import op as op_
from lucerne._src.ir.convert import CONVERTERS
from lucerne._src.ir.meta import NumberMeta, TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ir.signature import MISSING, takes
from lucerne._src.ir.spelling import takes_numpy_names

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


def pointwise(*, promote: str = "default", **fields: Any) -> Decorator:
    """An op on each element: operands broadcast and promote, the body runs on scalars."""
    return _entry(op_.POINTWISE, {"promote": promote, **fields}, pointwise_meta)


def reduction(*, reduce: str, **fields: Any) -> Decorator:
    """A fold over dimensions.

    `reduce` names the monoid; parameters `dim` and `keepdim` say where.
    """
    return _entry(op_.REDUCTION, {"reduce": reduce, **fields}, reduction_meta)


def view(**fields: Any) -> Decorator:
    """An index map.

    The body takes the input's TensorMeta and returns `Geometry` (or a list of them).
    """
    return _entry(op_.VIEW, {"out": False, **fields}, None)


def structural(*, meta: Function | None, **fields: Any) -> Decorator:
    """A primitive with one rule per backend. `meta` gives the TensorMeta of the results.

    The body is never run: it documents. `meta=None` only with `data_dependent=True`.
    """
    return _entry(op_.STRUCTURAL, {"meta": meta, **fields}, None)


def random(*, meta: Function, **fields: Any) -> Decorator:
    """A primitive that draws from a generator (an `Opaque` parameter)."""
    return _entry(op_.RANDOM, {"meta": meta, **fields}, None)


def composite(**fields: Any) -> Decorator:
    """An op written with other ops. Without `vjp` it differentiates through its body.

    `opmath=True`: low-precision floats are computed in float32 and rounded once at the end, unless
    operands are of several float types; "first": then too, to the first low type.
    """
    return _entry(op_.COMPOSITE, fields, None)


_FRONTS: dict[str, Front] = {}


class Front:
    """A public function that chooses among ops (an overloaded signature), with its method forms."""

    __slots__ = (
        "aliases", "autocast", "foreach", "function", "inplace", "linear", "method", "name",
        "namespace", "sparse", "torch",
    )  # fmt: skip
    internal = False

    def __init__(self, function: Function, fields: dict[str, Any]) -> None:
        self.function = function
        self.name: str = fields.get("name") or function.__name__
        self.namespace: str = fields.get("namespace", "")
        self.method: bool = fields.get("method", False)
        self.inplace: bool = fields.get("inplace", False)
        self.aliases: tuple[str, ...] = tuple(fields.get("aliases", ()))
        self.autocast: str = fields.get("autocast", "")
        self.linear: bool = fields.get("linear", False)
        self.torch: str | None = fields.get("torch", "")
        self.foreach: bool = fields.get("foreach", False)
        self.sparse: bool = fields.get("sparse", False)

    @property
    def qualified(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


def front(**fields: Any) -> Decorator:
    """Register a plain function as public name, method and in-place method; it calls ops itself.

    `options`: a function that reads the `**options` of the plain one. Its keywords are keywords of
    the public function too, so that those which many fronts share are written once.
    """
    options = fields.pop("options", None)

    def decorate(plain: Function) -> Function:
        function = takes_numpy_names(plain if options is None else takes(options)(plain))
        entry = Front(function, fields)
        if entry.qualified in _FRONTS:
            raise ValueError(f"{entry.qualified!r} has a front already")
        _FRONTS[entry.qualified] = entry
        return function

    return decorate


def fronts() -> dict[str, Front]:
    return _FRONTS


def entries() -> list[Any]:
    """Every op and every front of the table."""
    return [*op_.table().values(), *_FRONTS.values()]


def _entry(kind: str, fields: dict[str, Any], meta: Callable[[Op], Function] | None) -> Decorator:
    def decorate(body: Function) -> Function:
        name = fields.pop("name", None) or body.__name__
        op = Op(name, kind, body, **fields)
        if meta is not None:
            op.meta = meta(op)
        op.public = public_function(op)
        op_.register(op)
        return op.public

    return decorate


class Geometry:
    """What a view reads: another shape and strides over the same storage, from another offset.

    `flipped`: see TensorMeta; None: as the source.
    """

    __slots__ = ("dtype", "flipped", "offset", "shape", "strides")

    def __init__(
        self,
        shape: sh.Shape,
        strides: sh.Shape,
        offset: int = 0,
        dtype: dt.dtype | None = None,
        flipped: bool | None = None,
    ) -> None:
        self.shape, self.strides, self.offset, self.dtype = shape, strides, offset, dtype
        self.flipped = flipped


@functools.cache
def _compiled(text: str) -> CodeType:
    """Many ops share a signature, so they share the code."""
    return compile(text, GENERATED, "exec")


def public_function(op: Op) -> Function:
    """A function with torch's signature that reads the arguments and enters the dispatcher.

    Made from text, as dataclasses make `__init__`: Python's own argument binding is then the
    fastest there is, and `help()` shows the real signature.
    """
    scope: dict[str, Any] = {"_entry": dispatch.entry, "_op": op}
    heads, passed = [], []
    starred = False
    for i, p in enumerate(op.params):
        if p.keyword_only and not starred:
            heads.append("*")
            starred = True
        default = ""
        if p.default is not MISSING:
            scope[f"_d{i}"] = p.default
            default = f"=_d{i}"
        heads.append(p.name + default)
        convert = CONVERTERS.get(p.annotation)
        if convert is not None:
            scope[f"_c{i}"] = convert
        passed.append(f"_c{i}({p.name})" if convert is not None else p.name)
    tail = ""
    if op.out:
        heads.extend([] if starred else ["*"])
        heads.append("out=None")
        tail = ", out"
    arguments = "".join(f"{p}, " for p in passed)
    text = f"def op({', '.join(heads)}):\n    return _entry.run(_op, ({arguments}){tail})\n"
    exec(_compiled(text), scope)
    made: Function = scope["op"]
    made.__name__ = made.__qualname__ = op.name
    made.__doc__ = op.doc
    made.__module__ = op.body.__module__
    made.op = op  # type: ignore[attr-defined]
    return takes_numpy_names(made)


# ---- metas that follow from the kind ------------------------------------------------------------


def common_device(metas: list[TensorMeta]) -> Any:
    """The one device of all operands; 0-dim host tensors may join any."""
    first = next((m for m in metas if m.ndim), metas[0])
    for m in metas:
        if m.device != first.device and m.ndim:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{first.device} and {m.device}!"
            )
    return first.device


def pointwise_meta(op: Op) -> Function:
    """Shape by broadcasting, dtype by the op's promotion rule, strides by the operands' order."""
    rule = op.promote
    host = device(HOST)

    def meta(*args: Any) -> TensorMeta:
        operands = [
            a
            for a, kind in zip(args, op.kinds, strict=True)
            if kind == op_.TENSOR and isinstance(a, (TensorMeta, NumberMeta))
        ]
        tensors = [a for a in operands if isinstance(a, TensorMeta)]
        if len(tensors) < len(operands):
            _check_numbers(op, args, bool(tensors))
        _, result = promote.compute_and_result(rule, operands)
        if not tensors:
            return make_meta(result, (), None, host)
        return elementwise_like(tensors, result)

    return meta


def _check_numbers(op: Op, args: tuple[Any, ...], any_tensor: bool) -> None:
    """Refuse Python numbers where torch does: see `numbers` of an entry."""
    allowed = op.numbers
    if allowed == "all" or (allowed == "some" and any_tensor):
        return
    for i, (p, a) in enumerate(zip(op.params, args, strict=True)):
        if isinstance(a, NumberMeta) and (allowed != "rest" or i == 0):
            raise TypeError(
                f"{op.name}(): argument '{p.name}' (position {i + 1}) must be Tensor, not "
                f"{a.kind.__name__}"
            )


def elementwise_like(tensors: list[TensorMeta], dtype: dt.dtype) -> TensorMeta:
    """The meta of an element-wise result over these operands."""
    shape = sh.broadcast_shapes(*(t.shape for t in tensors))
    strides = sh.elementwise_strides(shape, tuple((tuple(t.shape), t.strides) for t in tensors))
    return make_meta(dtype, shape, strides, common_device(tensors))


def reduction_meta(op: Op) -> Function:
    """The input's shape with the reduced dimensions gone (or of size one)."""
    at = {p.name: i for i, p in enumerate(op.params)}

    def meta(*args: Any) -> TensorMeta:
        input: TensorMeta = args[at["input"]]
        keepdim = args[at["keepdim"]] if "keepdim" in at else False
        dtype = args[at["dtype"]] if "dtype" in at else None
        dim = args[at["dim"]] if "dim" in at else None
        dims = reduced_dims(dim, input.ndim)
        if op.reduce in NO_IDENTITY:
            _check_foldable(op, input, dim, dims)
        return reduced_meta(input, dims, keepdim, dtype or reduction_dtype(op.promote, input.dtype))

    return meta


NO_IDENTITY = frozenset(("max", "min", "argmax", "argmin"))
"""Folds that have no value for an empty range."""


def _check_foldable(op: Op, input: TensorMeta, dim: Any, dims: sh.Shape) -> None:
    """Folds without an identity refuse empty ranges; those that compare refuse complex numbers."""
    if input.dtype.category == dt.COMPLEX:
        if op.reduce in ("argmax", "argmin"):
            raise RuntimeError(f"{op.name}(): does not support complex input")
        raise NotImplementedError(
            f"\"{op.reduce}_values_cpu\" not implemented for '{dt.cxx_name(input.dtype)}'"
        )
    if input.numel or not input.ndim:
        return
    if dim is None or dim == ():
        kind = IndexError if op.reduce in ("argmax", "argmin") else RuntimeError
        raise kind(
            f"{op.name}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
            "the reduction dim with the 'dim' argument."
        )
    for d in dims:
        if input.shape[d] == 0:
            raise IndexError(f"{op.name}(): Expected reduction dim {d} to have non-zero size.")


def reduction_dtype(rule: str, dtype: dt.dtype) -> dt.dtype:
    if rule == "int64" and dtype.category < dt.FLOAT:
        return dt.int64
    if rule == "index":
        return dt.int64
    if rule == "bool":
        return dt.uint8 if dtype is dt.uint8 else dt.bool_
    return dtype


def reduced_dims(dim: Any, ndim: int) -> sh.Shape:
    """Dimensions to fold: None or an empty list means all of them."""
    if ndim > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")
    if dim is None or dim == ():
        return tuple(range(ndim))
    return sh.wrap_dims((dim,) if isinstance(dim, int) else dim, ndim)


def reduced_meta(input: TensorMeta, dims: sh.Shape, keepdim: bool, dtype: dt.dtype) -> TensorMeta:
    """Result of a reduction: contiguous, as torch leaves it, whatever the input's strides."""
    if keepdim or not input.ndim:
        shape = tuple(1 if d in dims else n for d, n in enumerate(input.shape))
    else:
        shape = tuple(n for d, n in enumerate(input.shape) if d not in dims)
    return make_meta(dtype, shape, None, input.device)
