"""`opcheck`: does a custom op keep what it promised?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucerne._src import capture
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.base import TensorBase
from lucerne.library.binding import bind, tensors_of
from lucerne.library.definition import CustomOpDef, defined
from lucerne.library.fake import as_fakes, faking, metas_in


class OpCheckError(Exception):
    """An op does not keep what it promised: says which promise."""


def _copies(value: Any) -> Any:
    if isinstance(value, TensorBase):
        made = value.detach().clone()  # type: ignore[attr-defined]
        return made.requires_grad_(value._needs_grad)
    if isinstance(value, (tuple, list)):
        return type(value)(_copies(v) for v in value)
    return value


def _outs(result: Any) -> list[Any]:
    return tensors_of(result if isinstance(result, tuple) else (result,))


def check_schema(op: CustomOpDef, args: Any, kwargs: Any, **_: Any) -> None:
    """Only arguments marked in the schema are written to."""
    values = bind(op.schema, _copies(tuple(args)), _copies(dict(kwargs)))
    before = [_copies(v) for v in values]
    with no_grad():
        op.below(values)
    for i, (a, old, new) in enumerate(zip(op.schema.arguments, before, values, strict=True)):
        same = all(
            lu.equal(x, y) for x, y in zip(tensors_of((old,)), tensors_of((new,)), strict=True)
        )
        if not same and i not in op.schema.written:
            raise OpCheckError(
                f"opcheck(test_schema): Argument {a.name} is not defined as mutable but was "
                f"mutated. Schema: {op.schema}. Add it to mutates_args."
            )


def check_fake(op: CustomOpDef, args: Any, kwargs: Any, **_: Any) -> None:
    """The fake implementation says what the kernel does."""
    values = bind(op.schema, _copies(tuple(args)), _copies(dict(kwargs)))
    with no_grad():
        real = _outs(op.below(values))
    fakes = tuple(as_fakes(metas_in(v)) for v in values)
    with faking(op.schema.name), no_grad():
        told: list[TensorMeta] = [t._meta for t in _outs(op.fake(fakes))]
    if len(told) != len(real):
        raise OpCheckError(
            f"opcheck(test_faketensor): the fake implementation returns {len(told)} tensors, the "
            f"kernel {len(real)}"
        )
    for i, (said, found) in enumerate(zip(told, (t._meta for t in real), strict=True)):
        if (said.dtype, said.shape, said.strides) != (found.dtype, found.shape, found.strides):
            raise OpCheckError(
                f"opcheck(test_faketensor): result {i} of the fake implementation is {said}, of "
                f"the kernel {found}"
            )


def check_autograd(op: CustomOpDef, args: Any, kwargs: Any, **_: Any) -> None:
    """Results require grad if and only if the op knows its derivative."""
    values = bind(op.schema, _copies(tuple(args)), _copies(dict(kwargs)))
    if not any(t._needs_grad for t in tensors_of(values)) or op.schema.is_mutable:
        return
    recorded = [t for t in _outs(op.above(values)) if t._needs_grad]
    if recorded and op.backward is None and op.composite is None and op.autograd_kernel is None:
        raise OpCheckError(
            f"opcheck(test_autograd_registration): {op._qualname} has no derivative, but was "
            "called with an input that requires grad. Use register_autograd."
        )


def check_compiled(
    op: CustomOpDef, args: Any, kwargs: Any, rtol: float | None = None, atol: float | None = None
) -> None:
    """Compiled, the op gives what it gives alone, gradients included."""

    def run(call: Callable[..., Any]) -> tuple[list[Any], list[Any]]:
        values, named = _copies(tuple(args)), _copies(dict(kwargs))
        outs = _outs(call(*values, **named))
        leaves = [t for t in tensors_of((*values, *named.values())) if t._needs_grad]
        smooth = [o for o in outs if o._needs_grad]
        if leaves and smooth and op.backward is not None:
            sum((o.sum() for o in smooth[1:]), smooth[0].sum()).backward()
        return [o.detach() for o in outs], [t.grad for t in leaves]

    expected, found = run(op), run(capture.compile(lambda *a, **k: op(*a, **k)))
    limits = {"rtol": 1e-5 if rtol is None else rtol, "atol": 1e-6 if atol is None else atol}
    for what, one, two in (("result", expected[0], found[0]), ("gradient", expected[1], found[1])):
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            if (a is None) != (b is None) or (
                a is not None and not lu.allclose(a, b, equal_nan=True, **limits)
            ):
                raise OpCheckError(
                    f"opcheck(test_aot_dispatch_dynamic): {what} {i} differs when the op runs "
                    "inside a compiled function"
                )


TESTS: dict[str, Callable[..., None]] = {
    "test_schema": check_schema,
    "test_autograd_registration": check_autograd,
    "test_faketensor": check_fake,
    "test_aot_dispatch_dynamic": check_compiled,
}


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = tuple(TESTS),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Run a custom op on sample arguments and check what it promised.

    Returns a word for each check: "SUCCESS", or the error if `raise_exception` is False.
    """
    found = defined(op)
    names = [test_utils] if isinstance(test_utils, str) else list(test_utils)
    unknown = set(names) - set(TESTS)
    if unknown:
        raise ValueError(f"opcheck: test_utils may hold {tuple(TESTS)}, got {sorted(unknown)}")
    results: dict[str, Any] = {}
    for name in names:
        more = {"rtol": rtol, "atol": atol} if name == "test_aot_dispatch_dynamic" else {}
        try:
            TESTS[name](found, args, kwargs or {}, **more)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise
            results[name] = error
    return results
