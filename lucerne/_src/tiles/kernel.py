"""`@tiles.kernel`: a Python function over blocks becomes a function on tensors."""

from __future__ import annotations

import functools
import inspect
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.config import config
from lucerne._src.ir import dispatch
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.tile import TileProgram
from lucerne._src.ops.tile import MOST_NUMBERS, TILE_CALL
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.function import Function
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tiles.index import TileError
from lucerne._src.tiles.interpreter import TileInterpreter
from lucerne._src.tiles.language import Block, TensorParam, current
from lucerne._src.tiles.tracer import Tracer

_programs: weakref.WeakKeyDictionary[Kernel, dict[Any, TileProgram]] = weakref.WeakKeyDictionary()
"""What each kernel was traced to. Not in the kernels themselves: a function that is captured must
not change what it looks at."""


class In:
    """Annotates a tensor that a kernel reads."""


class Out:
    """Annotates a tensor that a kernel writes. It is made for each call and returned."""


class TileSpec:
    """What an output looks like: `tiles.empty(shape, dtype)`, `tiles.like(x)`."""

    def __init__(self, shape: tuple[int, ...], dtype: dt.dtype) -> None:
        self.shape, self.dtype = tuple(int(n) for n in shape), dtype


def empty(shape: Any, dtype: dt.dtype = dt.float32) -> TileSpec:
    """An output of this shape and dtype."""
    return TileSpec((shape,) if isinstance(shape, int) else tuple(shape), dtype)


def like(x: Any, dtype: dt.dtype | None = None) -> TileSpec:
    """An output with the shape (and dtype) of an input."""
    return TileSpec(tuple(x.shape), dtype or x.dtype)


class Kernel:
    """A kernel: call it with the inputs and numbers of its signature, it returns the outputs.

    >>> import lucerne as torch
    >>> from lucerne import tiles
    >>> @tiles.kernel
    ... def double(x: tiles.In, y: tiles.Out):
    ...     row = tiles.program_id(0)
    ...     tiles.store(y[row, :], x[row, :] * 2)
    >>> double(torch.ones(1, 3))
    tensor([[2., 2., 2.]])
    """

    def __init__(
        self,
        function: Callable[..., Any],
        out: Callable[..., Any] | None,
        grid: Any,
        interpret: bool,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.out, self.grid, self.interpret = function, out, grid, interpret
        self._name = function.__name__
        self._read_signature()
        self._rule: Callable[..., Any] | None = None
        self._recorded = _make_function(self)

    def _read_signature(self) -> None:
        self.signature = inspect.signature(self.function)
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.numbers: list[str] = []
        """Floats, given at each call."""
        self.statics: list[str] = []
        """Everything else: a program is made for each value."""
        for name, p in self.signature.parameters.items():
            kind = _named(p.annotation)
            if kind == "In":
                self.inputs.append(name)
            elif kind == "Out":
                self.outputs.append(name)
            elif kind == "float":
                self.numbers.append(name)
            elif kind in ("int", "bool", "str", "dtype"):
                self.statics.append(name)
            else:
                raise TypeError(
                    f"tile kernel {self._name}: expected the parameter {name!r} to be annotated "
                    f"as tiles.In, tiles.Out, float, int, bool or str, got {p.annotation!r}"
                )
        if not self.outputs or not self.inputs:
            raise TypeError(
                f"tile kernel {self._name}: a kernel needs an input (tiles.In) and an output "
                "(tiles.Out)"
            )
        if len(self.numbers) > MOST_NUMBERS:
            raise TypeError(f"tile kernel {self._name}: at most {MOST_NUMBERS} float parameters")
        kept = [p for n, p in self.signature.parameters.items() if n not in self.outputs]
        self.called = self.signature.replace(
            parameters=kept, return_annotation=inspect.Signature.empty
        )

    def __repr__(self) -> str:
        return f"<tile kernel {self._name}{self.called}>"

    # ---- calls -----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self._bound(args, kwargs)
        if (
            self._rule is not None
            and dispatch.state.grad_enabled
            and any(values[n]._needs_grad for n in self.inputs)
        ):
            found = self._recorded.apply(self, tuple(values), *values.values())
        else:
            found = self.run(values)
        return found

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = self.called.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"tile kernel {self._name}{self.called}: {error}") from None
        bound.apply_defaults()
        for name in self.inputs:
            if not isinstance(bound.arguments[name], TensorBase):
                raise TypeError(
                    f"tile kernel {self._name}: expected a Tensor for {name!r}, got "
                    f"{type(bound.arguments[name]).__name__}"
                )
        return dict(bound.arguments)

    def run(self, values: dict[str, Any]) -> Any:
        """Outputs, without a derivative."""
        tensors = [values[n] for n in self.inputs]
        numbers = [float(values[n]) for n in self.numbers]
        program = self.program(values)
        if program.body and (self.interpret or config.tile_interpret):
            return self._interpreted(program, tensors, numbers)
        if not program.body:
            made = tuple(lu.empty(m.shape, dtype=m.dtype, device=m.device) for m in program.outputs)
            return made[0] if len(made) == 1 else made
        padded = (*numbers, *[None] * (MOST_NUMBERS - len(numbers)))
        return dispatch.entry.run(TILE_CALL, (tuple(tensors), program, *padded))

    def program(self, values: dict[str, Any]) -> TileProgram:
        """The program for tensors and numbers like these: traced once."""
        metas = tuple(values[n]._meta for n in self.inputs)
        key = (metas, tuple((type(values[n]), values[n]) for n in self.statics))
        known = _programs.setdefault(self, {})
        found = known.get(key)
        if found is None:
            with dispatch.unseen():  # once, whoever calls: compiled functions need not repeat it
                found = known[key] = self._traced(metas, values)
        return found

    def _layout(
        self, metas: tuple[TensorMeta, ...], values: dict[str, Any]
    ) -> tuple[list[TensorParam], tuple[int, ...]]:
        """The tensors of a call, outputs first, and the grid."""
        seen = dict(values) | dict(zip(self.inputs, metas, strict=True))
        specs = self._specs(seen)
        device = metas[0].device
        made = [make_meta(s.dtype, s.shape, None, device) for s in specs]
        params = [
            TensorParam(n, k, m, k < len(made))
            for k, (n, m) in enumerate(
                zip([*self.outputs, *self.inputs], [*made, *metas], strict=True)
            )
        ]
        return params, self._grid(seen | dict(zip(self.outputs, made, strict=True)))

    def _specs(self, seen: dict[str, Any]) -> list[TileSpec]:
        if self.out is None:
            first = seen[self.inputs[0]]
            return [like(first) for _ in self.outputs]
        found = _call_by_name(self.out, seen)
        listed = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(listed) != len(self.outputs):
            raise TypeError(
                f"tile kernel {self._name}: out= describes {len(listed)} outputs, the signature "
                f"has {len(self.outputs)}: {', '.join(self.outputs)}"
            )
        return [s if isinstance(s, TileSpec) else like(s) for s in listed]

    def _grid(self, seen: dict[str, Any]) -> tuple[int, ...]:
        grid = self.grid
        if grid is None:
            shape = seen[self.outputs[0]].shape
            return (int(shape[0]),) if shape else (1,)
        if callable(grid):
            grid = _call_by_name(grid, seen)
        return (int(grid),) if isinstance(grid, int) else tuple(int(n) for n in grid)

    def _traced(self, metas: tuple[TensorMeta, ...], values: dict[str, Any]) -> TileProgram:
        params, grid = self._layout(metas, values)
        outputs = tuple(p.meta for p in params if p.is_output)
        numbers = "f" * len(self.numbers)
        if 0 in grid or not any(m.numel for m in outputs):  # nothing is to be done
            return TileProgram(self._name, grid, (), outputs, metas, numbers, (), ())
        tracer = Tracer(grid, params)
        given: dict[str, Any] = {p.name: p for p in params}
        given |= {n: values[n] for n in self.statics}
        for k, n in enumerate(self.numbers):
            given[n] = Block(tracer.given(k))
        with _engine(tracer):
            result = self.function(**given)
        if result is not None:
            raise TileError(
                f"tile kernel {self._name}: a kernel returns nothing, it stores to its outputs"
            )
        program = tracer.finish(self._name, numbers)
        statics = {n: values[n] for n in self.statics}
        program.interpret = functools.partial(self._in_numpy, params, grid, statics)
        return program

    # ---- NumPy -----------------------------------------------------------------------------------

    def _interpreted(self, program: TileProgram, tensors: list[Any], numbers: list[float]) -> Any:
        arrays = [np.array(_computable(t)) for t in tensors]
        found = program.interpret(arrays, numbers)
        outs = tuple(
            lu.from_numpy(a).to(m.dtype) for a, m in zip(found, program.outputs, strict=True)
        )
        return outs[0] if len(outs) == 1 else outs

    def _in_numpy(
        self, params: list[TensorParam], grid: tuple[int, ...], statics: dict[str, Any],
        inputs: list[Any], numbers: list[float],
    ) -> list[Any]:  # fmt: skip
        outs = [np.zeros(p.shape, p.dtype.compute.storage) for p in params if p.is_output]
        writers = [np.zeros(p.shape, np.int64) for p in params if p.is_output]
        given: dict[str, Any] = {p.name: p for p in params} | statics
        given |= dict(zip(self.numbers, numbers, strict=True))
        for ids in itertools.product(*map(range, grid)):
            engine = TileInterpreter(ids, [*outs, *inputs], writers)
            engine.grid = grid
            with _engine(engine):
                self.function(**given)
        for p, w in zip(params, writers, strict=False):
            if w.size and not w.all():
                raise RuntimeError(
                    f"tile kernel {self._name}: no program wrote the element "
                    f"{p.name}{[int(n[0]) for n in np.nonzero(w == 0)]}"
                )
        return outs

    # ---- derivative ------------------------------------------------------------------------------

    def backward(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate the rule of the derivative.

        It names what it reads: inputs, numbers and outputs of the kernel by their names, `grad`
        (of the one output) or `grad_y` (of the output `y`). It returns a gradient for each input
        (None: no gradient), as a tuple if there are several.
        """
        names = [*inspect.signature(rule).parameters]
        grads = ["grad", *(f"grad_{n}" for n in self.outputs)]
        unknown = set(names) - {*self.signature.parameters, *grads}
        if unknown:
            raise TypeError(
                f"tile kernel {self._name}: the rule of the derivative reads "
                f"{', '.join(sorted(unknown))}; there are: "
                f"{', '.join([*self.signature.parameters, *grads])}"
            )
        self._rule, self._rule_names = rule, names
        return rule


def _named(annotation: Any) -> str:
    """`tiles.In`, the class or its name."""
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2]
    return getattr(annotation, "__name__", str(annotation))


def _call_by_name(function: Callable[..., Any], seen: dict[str, Any]) -> Any:
    """Call with those of the values that its parameters name."""
    return function(*[seen[n] for n in inspect.signature(function).parameters])


def _computable(t: Any) -> Any:
    """A tensor as an array of the type that is computed in."""
    kind = t.dtype.compute
    return t.detach().to(kind).cpu().numpy()


class _engine:
    """Inside, the functions of the language run on this engine."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        self._before = current.engine
        current.engine = self._engine

    def __exit__(self, *exc: object) -> None:
        current.engine = self._before


def _make_function(kernel: Kernel) -> type[Function]:
    """The `autograd.Function` around a kernel."""

    def forward(ctx: Any, owner: Kernel, names: tuple[str, ...], *values: Any) -> Any:
        given = dict(zip(names, values, strict=True))
        result = owner.run(given)
        outs = result if isinstance(result, tuple) else (result,)
        read = {**given, **dict(zip(owner.outputs, outs, strict=True))}
        saved = [n for n in owner._rule_names if isinstance(read.get(n), TensorBase)]
        ctx.save_for_backward(*[read[n] for n in saved])
        ctx.saved_names = saved
        ctx.others = {n: v for n, v in given.items() if not isinstance(v, TensorBase)}
        ctx.order = names
        return result

    def backward(ctx: Any, *grads: Any) -> Any:
        known = dict(zip(ctx.saved_names, ctx.saved_tensors, strict=True)) | ctx.others
        known["grad"] = grads[0]
        known |= {f"grad_{n}": g for n, g in zip(kernel.outputs, grads, strict=True)}
        assert kernel._rule is not None
        found = dispatch.call_back(kernel._rule, *[known[n] for n in kernel._rule_names])
        answers = found if isinstance(found, tuple) else (found,)
        if len(answers) != len(kernel.inputs):
            raise RuntimeError(
                f"tile kernel {kernel._name}: the rule of the derivative returned {len(answers)} "
                f"gradients for {len(kernel.inputs)} inputs ({', '.join(kernel.inputs)})"
            )
        by_name = dict(zip(kernel.inputs, answers, strict=True))
        return (None, None, *[by_name.get(n) for n in ctx.order])

    kind: Any = type(Function)
    made: type[Function] = kind(
        f"{kernel._name.title().replace('_', '')}Tile",
        (Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )
    return made


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    out: Callable[..., Any] | None = None,
    grid: Any = None,
    interpret: bool = False,
) -> Any:
    """Make a function over blocks a kernel.

    `out` describes the outputs: a function of the inputs (by name) that returns `tiles.like(x)`,
    `tiles.empty(shape, dtype)` or an input, one for each output; without it they look like the
    first input. `grid` is how many programs run: ints, or a function of tensors and numbers by
    name; without it, one for each row of the first output. `interpret=True` runs it in NumPy.
    """

    def make(f: Callable[..., Any]) -> Kernel:
        return Kernel(f, out, grid, interpret)

    return make if function is None else make(function)
