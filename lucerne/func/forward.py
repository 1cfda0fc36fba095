"""`jvp` and `linearize`: derivatives in a direction, of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.ir.dispatch import call_inside
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.engine import run_backward
from lucerne._src.tensor.autograd.node import gradient_edge
from lucerne._src.tensor.forward.level import ForwardLevel, check_tangent
from lucerne.func.arguments import (
    check_outputs,
    check_tensors,
    leaves_of,
    map_tensors,
    parted,
    put_back,
    spelled,
)
from lucerne.func.reverse import Recording

_JVP = "jvp(f, primals, tangents)"


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """The value of `func` at `primals`, and its derivative in the direction of `tangents`.

    >>> import lucerne as torch
    >>> torch.func.jvp(torch.sin, (torch.zeros(2),), (torch.tensor([1.0, 10.0]),))
    (tensor([0., 0.]), tensor([ 1., 10.]))
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{_JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    xs, shape = leaves_of(primals)
    ts, given = leaves_of(tangents)
    if given != shape:
        raise RuntimeError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. For "
            "example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with "
            f"structure {spelled(shape)} and tangents with structure {spelled(given)}"
        )
    check_tensors(xs, _JVP, "primals")
    check_tensors(ts, _JVP, "tangents")
    with ForwardLevel() as level:
        duals = [level.dual(x, check_tangent(x, t)) for x, t in zip(xs, ts, strict=True)]
        output, aux = parted(call_inside(func, *put_back(duals, shape)), has_aux, _JVP)
        outs, out_shape = leaves_of(output)
        check_outputs(output, outs, _JVP)
        found = [_tangent(level, o, strict) for o in outs]
    result = output, put_back(found, out_shape)
    return (*result, aux) if has_aux else result


def _tangent(level: ForwardLevel, output: Any, strict: bool) -> Any:
    found = level.tangent(output)
    if found is not None:
        return found
    if strict:
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the "
            "inputs. This is not allowed with strict=True."
        )
    return lu.zeros_like(output)


# ---- linearize ---------------------------------------------------------------------------------


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of `func` at `primals`, and its derivative there as a function of the direction.

    The function runs once: what it recorded gives gradients for any cotangent, and that map,
    recorded in its turn, is transposed for each direction.

    >>> import lucerne as torch
    >>> value, push_forward = torch.func.linearize(torch.sin, torch.zeros(2))
    >>> push_forward(torch.tensor([1.0, 10.0]))
    tensor([ 1., 10.])
    """
    recording = Recording()
    inputs, shape = leaves_of(primals)
    xs = [recording.primal(x) for x in inputs]
    with recording.on():
        outs, out_shape = leaves_of(call_inside(func, *put_back(xs, shape)))
        check_outputs(outs, outs, "linearize(f, *primals)")
        slots = [recording.leaf(o) for o in outs]
        pulled = run_backward(
            [(gradient_edge(o), s) for o, s in zip(outs, slots, strict=True) if o.requires_grad],
            keep_graph=True,
            create_graph=True,
            wanted=[gradient_edge(x) for x in xs],
        )

    def jvp_fn(*tangents: Any) -> Any:
        given, given_shape = leaves_of(tangents)
        if given_shape != shape:
            raise RuntimeError(
                f"Expected the tangents {spelled(given_shape)} to have the same argspec as the "
                f"primals {spelled(shape)}"
            )
        _check_like(given, inputs)
        return put_back(_pushed(recording, pulled, slots, given), out_shape)

    return map_tensors(recording.finished, put_back(outs, out_shape)), jvp_fn


def _pushed(
    recording: Recording, pulled: Sequence[Any], slots: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """The transpose of what leads from `slots` to `pulled`, applied to `tangents`."""
    roots = [
        (gradient_edge(p), t)
        for p, t in zip(pulled, tangents, strict=True)
        if p is not None and p.requires_grad
    ]
    live = [t for _, t in roots]
    outer = recording.wanted and recording.reaches_outside(
        [*(p for p in pulled if p is not None), *live]
    )
    with recording.below(outer):
        found = run_backward(
            roots,
            keep_graph=True,
            create_graph=outer,
            wanted=[gradient_edge(s) for s in slots],
        )
    pairs = zip(found, slots, strict=True)
    return [recording.finished(lu.zeros_like(s) if t is None else t) for t, s in pairs]


def _check_like(tangents: Sequence[Any], primals: Sequence[Any]) -> None:
    for i, (t, x) in enumerate(zip(tangents, primals, strict=True)):
        for what in ("shape", "device", "dtype"):
            have, want = getattr(t, what), getattr(x, what)
            if have != want:
                raise RuntimeError(
                    f"tangent:{i} with {what} {have} in flattened pytree doesn't match the {what} "
                    f"{want} of the corresponding primal."
                )
