"""`export`: from a module to an exported program, checked against the module itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base.refusals import only
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.ir.op import Op
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import TensorBase
from lucerne.export import blueprint as bp
from lucerne.export.dims import Dynamic, argument_names, resolve
from lucerne.export.errors import ExportError
from lucerne.export.program import ExportedModule, ExportedProgram
from lucerne.export.record import Recording
from lucerne.nn.modules.module import Module
from lucerne.testing import assert_close


def export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
    check: bool = True,
) -> ExportedProgram:
    """A module as one graph with its weights, which runs without the module's source.

    `dynamic_shapes` says which sizes may change, by `Dim`s; all others are those of the example.
    `check`: run both on the example (and at another size if some may change), and refuse if they
    differ. `strict` changes nothing: a program is recorded in one way.

    >>> import lucerne as torch
    >>> from lucerne.export import Dim, export
    >>> batch = Dim("batch", min=2, max=64)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> program = export(net, (torch.ones(8, 4),), dynamic_shapes=({0: batch},))
    >>> program.module()(torch.ones(5, 4)).shape
    torch.Size([5, 3])
    """
    if not isinstance(mod, Module):
        raise ValueError(
            f"export: a Module is expected, not {type(mod).__name__}; put a function into the "
            "forward of one"
        )
    if not isinstance(args, tuple):
        raise TypeError(f"export: args is a tuple of arguments, not a {type(args).__name__}")
    only(
        "export", "preserve_module_call_signature", tuple(preserve_module_call_signature), (),
        "submodules are not part of a program, which is one graph",
    )  # fmt: skip
    only(
        "export", "prefer_deferred_runtime_asserts_over_guards",
        prefer_deferred_runtime_asserts_over_guards, False,
        "what was decided by a size must hold in its whole range",
    )  # fmt: skip
    return export_callable(mod, mod.forward, args, kwargs or {}, dynamic_shapes, check=check)


def export_callable(
    fn: Any,
    forward: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any = None,
    *,
    check: bool = True,
    apart: bool = False,
    keep: Callable[[Op, tuple[Any, ...]], bool] | None = None,
    tolerance: tuple[float, float] | None = None,
) -> ExportedProgram:
    """`export` for anything that can be called; `forward` tells the names of its arguments.

    `keep`: which composites may be one node (else: those that name their own derivative).
    """
    named = argument_names(forward, args, kwargs)
    dynamic = resolve(forward, args, kwargs, dynamic_shapes)
    recording = Recording(fn, args, kwargs, apart=apart, keep=keep)
    plan = recording.blueprint(dynamic, leaf_names(named))
    plan.top_names = list(named)
    owner = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    state = {}
    if isinstance(owner, Module):
        state = dict(owner.state_dict(keep_vars=True))
    tensors = {
        (kind, name): state.get(name, t) if kind != bp.CONSTANT else t.detach()
        for (kind, name), t in recording.tensors.items()
    }
    made = ExportedProgram(plan, tensors, state, (args, kwargs))
    if check:
        check_against(fn, made, args, kwargs, dynamic, tolerance)
    return made


def leaf_names(named: dict[str, Any]) -> list[str]:
    """What messages call each leaf of the arguments: `x`, `batch['ids']`, `states[0]`."""
    found: list[str] = []

    def walk(x: Any, name: str) -> None:
        if isinstance(x, dict):
            for key, value in x.items():
                walk(value, f"{name}[{key!r}]")
        elif isinstance(x, (list, tuple)):
            for k, value in enumerate(x):
                walk(value, f"{name}[{k}]")
        else:
            leaves: list[Any] = []
            flatten(x, leaves)
            found.extend(
                [name] if len(leaves) == 1 else [f"{name}.{k}" for k in range(len(leaves))]
            )

    for name, value in named.items():
        walk(value, name)
    return found


# ---- checking -----------------------------------------------------------------------------------


def check_against(
    fn: Any,
    made: ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic: Dynamic,
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Run the module and its program on the example, and at another size; refuse if they differ."""
    leaves: list[Any] = []
    shape = flatten((args, kwargs), leaves)
    _compare(fn, made, leaves, shape, "on the example", tolerance)
    if dynamic.roots:
        at = {}
        for name, root in dynamic.roots.items():
            n = dynamic.example[name]
            at[name] = n + 1 if n + 1 <= root.max else max(n - 1, root.min)
        if at != dynamic.example:
            other = resized(leaves, dynamic.sizes(at))
            told = ", ".join(f"{name} = {n}" for name, n in at.items())
            _compare(fn, made, other, shape, f"at {told}", tolerance)


def resized(leaves: list[Any], sizes: dict[tuple[int, int], int]) -> list[Any]:
    """The example with other sizes: its elements, repeated or cut off."""
    found = []
    for k, x in enumerate(leaves):
        if isinstance(x, TensorBase):
            t: Any = x
            for d in range(t.dim()):
                if (k, d) in sizes:
                    n = lu.arange(sizes[k, d]) % max(t.shape[d], 1)
                    t = t.detach().index_select(d, n)
            x = t
        found.append(x)
    return found


def _compare(
    fn: Any, made: ExportedProgram, leaves: list[Any], shape: Any, where: str, tolerance: Any
) -> None:
    if any(x.device.type == "meta" for x in leaves if isinstance(x, lu.Tensor)):
        return
    wants = _run(fn, leaves, shape, None)
    gets = _run(made.module(), leaves, shape, made)
    for k, (want, got) in enumerate(zip(wants, gets, strict=True)):
        if not isinstance(want, lu.Tensor):
            if want != got and want == want:
                raise ExportError(
                    f"export: result {k} {where} is {got!r}, the module gives {want!r}"
                )
            continue
        try:
            kwargs = {} if tolerance is None else {"rtol": tolerance[0], "atol": tolerance[1]}
            assert_close(got.detach(), want.detach(), equal_nan=True, **kwargs)
        except AssertionError as error:
            raise ExportError(
                f"export: the program differs from the module {where}, result {k}: "
                f"{_largest(got, want)}. The module may be random in a way that no seed fixes, or "
                f"depend on values, not only on shapes.\n{error}"
            ) from None


def _largest(got: Any, want: Any) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {list(got.shape)} instead of {want.dtype} {list(want.shape)}"
    wide = lu.complex128 if want.is_complex() else lu.float64
    gap = (got.detach().to(wide) - want.detach().to(wide)).abs().nan_to_num(nan=float("inf"))
    return f"the largest difference is {gap.max().item():.3g}"


def _run(fn: Any, leaves: list[Any], shape: Any, made: ExportedProgram | None) -> list[Any]:
    """The leaves of the result; what the call writes is put back, random numbers are the same."""
    given = [x.detach().clone() if isinstance(x, lu.Tensor) else x for x in leaves]
    args, kwargs = rebuild(shape, iter(given))
    kept = _written_tensors(fn)
    before = [t.detach().clone() for t in kept]
    state = lu.get_rng_state()
    try:
        lu.manual_seed(0)
        with lu.no_grad():
            result = fn(*args, **kwargs)
    finally:
        lu.set_rng_state(state)
        with lu.no_grad():
            now = [t.detach().clone() for t in kept]
            for t, old in zip(kept, before, strict=True):
                t.copy_(old)
    found: list[Any] = []
    flatten(result, found)
    found = [x.clone() if isinstance(x, lu.Tensor) else x for x in found]
    return [*found, *now, *(x for x in given if isinstance(x, lu.Tensor))]


def _written_tensors(fn: Any) -> list[Any]:
    """The buffers of a module, in the order of their names."""
    owner = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    if not isinstance(owner, Module):
        return []
    return [t for _, t in sorted(owner.named_buffers(), key=lambda x: x[0])]


__all__ = ["ExportedModule", "check_against", "export", "export_callable", "leaf_names"]
