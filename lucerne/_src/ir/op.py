"""Op: one entry of the table. Signature, meaning, derivative, oracle and samples stand together.

An entry is written as a decorated Python function (see `ir/define.py`); the decorator returns an
ordinary function with torch's signature whose attribute `.op` is the Op. Its parameters are of
three kinds, told by their annotation:

* tensors (`Tensor`, `Tensor | None`, `TensorList`): may be given as Python numbers where torch
  allows it;
* runtime numbers (`Scalar`): values that change from call to call, so not part of a plan's key;
* everything else is static: part of the key, fixed when a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from lucerne._src.base.homes import own_home
from lucerne._src.ir.signature import Parameter, clean_doc, parameter_names, parameters

Tensor = Any
"""What op bodies handle: the tensor layer's Tensor, a fake, or a traced value.

Duck-typed on purpose.
"""
TensorList = Any
Scalar = Any

TENSOR, TENSOR_LIST, SCALAR, STATIC, OPAQUE = "t", "l", "n", "s", "o"
_KINDS = {
    "Tensor": TENSOR,
    "Tensor | None": TENSOR,
    "TensorList": TENSOR_LIST,
    "Scalar": SCALAR,
    "Scalar | None": SCALAR,
    "Opaque": OPAQUE,
}

POINTWISE, REDUCTION, VIEW, STRUCTURAL, RANDOM, COMPOSITE = (
    "pointwise", "reduction", "view", "structural", "random", "composite",
)  # fmt: skip

VALUES, POSITIONS, DIVISION = "values", "positions", "division"
"""What a kernel looks at before it goes on, and raises for: values of its operands (an index out of
range, a matrix without an inverse), integers that are divided by nought."""


_PACKAGE = __name__.partition(".")[0]


class Param:
    """One parameter of an op."""

    __slots__ = ("annotation", "default", "keyword_only", "kind", "name")

    def __init__(self, p: Parameter) -> None:
        self.name = p.name
        self.annotation = p.annotation if isinstance(p.annotation, str) else "Tensor"
        self.kind = _KINDS.get(self.annotation, STATIC)
        self.default = p.default
        self.keyword_only = p.keyword_only


CHEAP, LIGHT, HEAVY, MEMORY = "cheap", "light", "heavy", "memory"
"""What a pointwise op costs: less than storing a value and reading it again; a few instructions per
vector, so that memory decides; so long that one copy of its body has to do. What others cost that
only read and write memory."""
CHOICE = "choice"
"""An exact result that rounds nothing: a choice among elements, or what their bits say."""
AUTOCAST = ("", "lower", "full", "promote", "promote state", "as given")
"""Under autocast: as it comes; in the low precision, where it pays; in float32, where the low one
loses too much; in the widest precision of the inputs; of the first two; as given, inside too."""


class Op:
    """An operator: what it is called, what it means, how it differentiates, how it is checked."""

    __slots__ = (
        "__weakref__", "aliases", "args", "autocast", "body", "checks", "cost", "data_dependent",
        "derivatives", "doc", "elementwise", "exact", "expanded", "explicit", "folds", "foreach",
        "fuse", "grad_fn", "holomorphic", "host", "images", "inplace", "internal", "keeps_order",
        "kind", "kinds", "linear", "meta", "method", "name", "namespace", "native", "needs_opmath",
        "numbers", "onnx", "oracle", "out", "params", "promote", "public", "reduce", "samples",
        "save_names", "sparse", "torch", "ufunc", "up_to_sign", "updates", "whole", "zero_for",
    )  # fmt: skip

    def __init__(self, name: str, kind: str, body: Callable[..., Any], **fields: Any) -> None:
        self.name = name
        self.kind = kind
        self.body = body
        self.params = tuple(Param(p) for p in parameters(body))
        self.args = tuple(p.name for p in self.params)
        self.kinds = "".join(p.kind for p in self.params)
        self.doc = clean_doc(body)
        self.meta: Callable[..., Any] | None = fields.get("meta")
        self.derivatives: Derivatives = _derivatives(fields.get("vjp"))
        self.explicit = fields.get("vjp") is not None
        self.ufunc: Callable[..., Any] | None = fields.get("ufunc")
        """NumPy's function that is the whole op where no dtype changes, and its oracle."""
        self.oracle: Callable[..., Any] | None = fields.get("oracle", self.ufunc)
        self.samples: Any = fields.get("samples")
        self.promote: str = fields.get("promote", "default")
        self.reduce: Any = fields.get("reduce")
        self.numbers: str = fields.get("numbers", "some")
        self.whole: str = fields.get("whole", "scalars")
        self.method: bool = fields.get("method", False)
        self.inplace: bool = fields.get("inplace", False)
        # False: no out=. Else words: "exact": out= must have the dtype; "apart": and share no
        # memory with an input; "plain": contiguous when resized; "lapack": contiguous when resized
        # from something that had elements.
        self.out: bool | str = fields.get("out", True)
        self.internal: bool = fields.get("internal", False)
        self.namespace: str = fields.get("namespace", "")
        self.aliases: tuple[str, ...] = tuple(fields.get("aliases", ()))
        self.data_dependent: bool = fields.get("data_dependent", False)
        self.checks: str = fields.get("checks", "")
        """What may be wrong with what it is given, when it runs: VALUES, POSITIONS (in its first
        operand, told by those behind it), DIVISION, or empty: it never raises."""
        self.linear: bool = fields.get("linear", False)
        """Whether it maps the tangent of its first argument as it maps the argument."""
        self.holomorphic: bool = fields.get("holomorphic", False)
        """Whether it has a complex derivative: its formula multiplies by the conjugate of that."""
        self.exact: bool | str = fields.get("exact", False)
        """Whether its result on real numbers is the one correctly rounded one, or a choice among
        the operands (CHOICE): every backend gives the same bits. (Not so `exp`, `sin`, ...)"""
        self.cost: str = fields.get("cost", "")
        """CHEAP, LIGHT, HEAVY, or empty: of a pointwise op, for one element. MEMORY: of others."""
        self.elementwise: bool = fields.get("elementwise", False)
        """Of an op that is not pointwise: whether an element of the result depends on those at its
        place alone, so that it joins loops."""
        self.folds: bool = fields.get("folds", False)
        """Of an op that is neither pointwise, view nor reduction: whether a small result of it is
        computed while compiling, where its operands are known."""
        self.keeps_order: bool = fields.get("keeps_order", False)
        """Of a view: whether it reads elements in their order, whatever it is a view of."""
        self.images: tuple[int, ...] = fields.get("images", ())
        """Which arguments of an op that is not pointwise are images, in either order of memory."""
        self.updates: bool = fields.get("updates", False)
        """Whether its results may be written over the inputs they come from, one by one."""
        self.expanded: str = fields.get("expanded", "")
        """What it does in place with elements that share memory: "fill", "add", empty: refuse."""
        self.zero_for: tuple[str, ...] = fields.get("zero_for", ())
        """Which arguments it depends on in steps alone (which way relu went): where others have a
        gradient, theirs is zero, as in torch, and not None."""
        self.up_to_sign: bool = fields.get("up_to_sign", False)
        """Whether vectors among its results have either sign."""
        self.fuse: bool = fields.get("fuse", False)
        """Whether a composite is worth one kernel."""
        self.autocast: str | tuple[str, Callable[..., bool]] = fields.get("autocast", "")
        """What autocast does to its inputs (`tensor/eager/autocast.py`), or that and for which
        arguments; empty: nothing. By experiment: `python -m tests.amp.table` compares."""
        self.onnx: str = fields.get("onnx", "")
        """Of a pointwise op of one float operand: the ONNX operator that means the same; empty: its
        body is written out in ONNX's own instructions."""
        self.torch: str | None = fields.get("torch", "")
        """PyTorch's name of it, where it is not ours; None: what it calls has names, it has none.
        Empty, of an internal op: there is nothing of the kind in PyTorch."""
        self.grad_fn: str | Callable[..., str] = fields.get("grad_fn", "")
        """What its backward node is called, or that for its arguments, where it does not follow
        from PyTorch's name. Of a composite without `vjp`: how its last node is called."""
        self.foreach: bool = fields.get("foreach", False)
        """Whether there is `_foreach_*` of it, for lists of tensors."""
        self.sparse: bool = fields.get("sparse", False)
        """Whether it is applied to the stored values of a sparse tensor: it keeps zero."""
        self.needs_opmath: bool | str = fields.get("opmath", False)
        self.save_names = _save_names(self.derivatives, self.args)
        self.public: Callable[..., Any] = body
        self.host: Hosted | None = None
        """Of a custom op (`lucerne.library`): the Python function that computes it."""
        self.native: int | None = None
        """What an engine's fast path knows about the op: the address of its own description."""

    def __repr__(self) -> str:
        """With its address, as Python shows what is of one process alone, if it was defined outside
        of the package: its text may be another one in the next process, so that nothing that is
        kept on disk may go by its name."""
        home = own_home(self.body.__module__).partition(".")[0]
        address = "" if home == _PACKAGE else f" at 0x{id(self):x}"
        return f"<op {self.qualified}{address}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return get, (self.qualified,)

    @property
    def qualified(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def is_primitive(self) -> bool:
        """Whether a backend needs a rule (or a scalar body) for it."""
        return self.kind != COMPOSITE

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.public(*args, **kwargs)

    def named(self, args: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self.args, args, strict=True))


_PREFIXED = ("linalg", "special", "fft")
"""Namespaces whose ops have them in their name: `aten::linalg_norm`."""


def torch_name(entry: Any) -> str | None:
    """PyTorch's name of an op or a front, without `aten::`; None: it has none (`Op.torch`)."""
    if entry.torch != "":
        named: str | None = entry.torch
        return named
    name: str = entry.name.removesuffix("_op")
    return f"{entry.namespace}_{name}" if entry.namespace in _PREFIXED else name


class Hosted(Protocol):
    """What computes a custom op: Python code that takes and returns tensors."""

    def run(self, args: tuple[Any, ...]) -> Any:
        """The result for tensors and statics in signature order."""

    def executable(self, node: Any) -> Any:
        """What runs a node of a compiled program (`backends.api.Executable`)."""


Derivatives = Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]]


class GradientPart:
    """One result of a formula that gives the gradients of several inputs at once.

    Who evaluates several parts of one `whole` should call it once and pick.
    """

    __slots__ = ("index", "whole")

    def __init__(self, whole: Callable[..., Any], index: int) -> None:
        self.whole, self.index = whole, index

    def __call__(self, *args: Any) -> Any:
        return self.whole(*args)[self.index]


def _derivatives(vjp: Mapping[Any, Callable[..., Any]] | None) -> Derivatives:
    """For each differentiable input: the formula, and the names of what it reads."""
    found: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}
    given: Mapping[Any, Any] = vjp or {}
    for name, formula in given.items():
        if formula is None:
            continue
        reads = parameter_names(formula)
        if isinstance(name, tuple):
            found.update((n, (GradientPart(formula, i), reads)) for i, n in enumerate(name))
        else:
            found[name] = (formula, reads)
    return found


def _save_names(derivatives: Derivatives, args: tuple[str, ...]) -> frozenset[str]:
    wanted = {name for _, reads in derivatives.values() for name in reads}
    return frozenset(wanted & set(args)) | (wanted & {"y", *RESULTS})


RESULTS = ("y0", "y1", "y2")
"""How a formula names one of several results, so that the others aren't kept for it."""


_TABLE: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Enter an op into the table under its qualified name."""
    if op.qualified in _TABLE:
        raise ValueError(f"op {op.qualified!r} is already in the table: an op has one entry")
    _TABLE[op.qualified] = op
    return op


_CUSTOM: dict[str, Op] = {}
"""Ops that users defined: found by name as those of the table, but no part of the contract of
backends, and they can be replaced."""


def register_custom(op: Op) -> Op:
    """Enter an op of a user; one of the same name is replaced."""
    _CUSTOM[op.qualified] = op
    return op


def custom_ops() -> Mapping[str, Op]:
    """The ops that users defined, by qualified name."""
    return _CUSTOM


def get(name: str) -> Op:
    return _TABLE[name] if name in _TABLE else _CUSTOM[name]


def table() -> Mapping[str, Op]:
    """Every op by its qualified name."""
    return _TABLE


def positional_body(op: Op) -> Callable[..., Any]:
    """The body of an op, taking all its parameters by position."""
    names = [p.name for p in op.params if p.keyword_only]
    if not names:
        return op.body
    count = len(op.params) - len(names)
    return lambda *args: op.body(*args[:count], **dict(zip(names, args[count:], strict=True)))
