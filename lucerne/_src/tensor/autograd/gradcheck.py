"""gradcheck: compare the gradients autograd gives with differences of the function's values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ops.copy import join
from lucerne._src.tensor.autograd.api import grad
from lucerne._src.tensor.autograd.mapping import mapped
from lucerne._src.tensor.autograd.modes import enable_grad, no_grad
from lucerne._src.tensor.autograd.state import requires_grad
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.forward.level import ForwardLevel
from lucerne._src.tensor.interop.outside import assign, bits, values

Fn = Callable[..., Any]


class GradcheckError(RuntimeError):
    """Analytical and numerical gradients differ, or the function can't be checked."""


def _outputs(result: Any) -> list[Any]:
    outs = result if isinstance(result, (tuple, list)) else (result,)
    return [o for o in outs if isinstance(o, TensorBase) and o._meta.dtype.category >= dt.FLOAT]


def _checked_inputs(inputs: tuple[Any, ...]) -> list[Any]:
    found = [t for t in inputs if isinstance(t, TensorBase) and requires_grad(t)]
    if not found:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them "
            "have requires_grad=True."
        )
    for t in found:
        if t._meta.dtype not in (dt.float64, dt.complex128):
            raise GradcheckError(
                f"gradcheck needs double precision: an input has dtype {t._meta.dtype}. Hint: "
                "x.double().requires_grad_()"
            )
        if not t._meta.is_dense:
            raise RuntimeError("gradcheck: an input has overlapping memory; clone() it first")
    return found


def gradcheck(
    func: Fn,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """True if the gradients of `func` at `inputs` agree with finite differences.

    >>> import lucerne as torch
    >>> x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.exp, (x,))
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    args = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    try:
        xs = _checked_inputs(args)
        if check_backward_ad:
            _compare(func, args, xs, eps, atol, rtol)
        if check_forward_ad:
            _compare_forward(func, args, xs, eps, atol, rtol)
            if check_batched_forward_grad:
                _compare_batched_forward(func, args, xs, atol, rtol)
        if check_batched_grad:
            _compare_batched(func, args, xs, atol, rtol)
        if check_undefined_grad and check_backward_ad:
            _check_zero_gradient(func, args, xs)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _compare(
    func: Fn, args: tuple[Any, ...], xs: list[Any], eps: float, atol: float, rtol: float
) -> None:
    outs = _outputs(func(*args))
    for i, x in enumerate(xs):
        numerical = _numerical(func, args, x, eps, len(outs))
        for o in range(len(outs)):
            analytical = _analytical(outs[o], x)
            if not np.allclose(analytical, numerical[o], rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian mismatch for output {o} with respect to input {i},\n"
                    f"numerical:{numerical[o]}\nanalytical:{analytical}\n"
                )


def _compare_forward(
    func: Fn, args: tuple[Any, ...], xs: list[Any], eps: float, atol: float, rtol: float
) -> None:
    """Forward mode in the direction of each element of each input."""
    count = len(_outputs(func(*args)))
    for i, x in enumerate(xs):
        numerical = _numerical(func, args, x, eps, count)
        columns = [_derivatives(func, args, x, k) for k in range(x._meta.numel * _components(x))]
        for o in range(count):
            analytical = np.array([c[o] for c in columns]).reshape(numerical[o].shape)
            if not np.allclose(analytical, numerical[o], rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {o} with respect to "
                    f"input {i},\nnumerical:{numerical[o]}\nanalytical:{analytical}\n"
                )


def _derivatives(func: Fn, args: tuple[Any, ...], x: Any, k: int) -> list[Any]:
    """The derivative of each output in the direction of element `k` of `x` (complex: re, im)."""
    unit = x.detach().new_zeros(x.shape)
    parts = _components(x)
    unit.reshape(-1)[k // parts] = 1 if k % parts == 0 else 1j
    with ForwardLevel() as level:
        given = tuple(level.dual(x, unit) if a is x else a for a in args)
        outs = _outputs(func(*given))
        found = [level.tangent(o) for o in outs]
    pairs = zip(found, outs, strict=True)
    return [_flat_real(o) * 0 if t is None else _flat_real(t) for t, o in pairs]


def _compare_batched(
    func: Fn, args: tuple[Any, ...], xs: list[Any], atol: float, rtol: float
) -> None:
    """Two cotangents at once against one after the other."""
    outs = [o for o in _outputs(func(*args)) if requires_grad(o)]
    rng = np.random.RandomState(0)
    for o in outs:
        pair = [_random_like(o, rng) for _ in range(2)]
        try:
            both = grad(
                o, xs, join.stack(pair), retain_graph=True, allow_unused=True, is_grads_batched=True
            )
        except RuntimeError as error:
            raise GradcheckError(_batched_failed("gradients", error)) from error
        for i, g in enumerate(pair):
            single = grad(o, xs, g, retain_graph=True, allow_unused=True)
            for have, want in zip(both, single, strict=True):
                if (have is None) != (want is None) or not np.allclose(
                    0 if have is None else _flat_real(have[i]),
                    0 if want is None else _flat_real(want),
                    rtol=rtol,
                    atol=atol,
                ):
                    raise GradcheckError(
                        "Batched gradients do not agree with gradients taken one by one"
                    )


def _compare_batched_forward(
    func: Fn, args: tuple[Any, ...], xs: list[Any], atol: float, rtol: float
) -> None:
    """Two directions at once against one after the other."""
    rng = np.random.RandomState(0)
    for x in xs:
        pair = [_random_like(x, rng) for _ in range(2)]
        direction = partial(_in_direction, func, args, x)
        try:
            both = mapped(direction)(join.stack(pair))
        except RuntimeError as error:
            raise GradcheckError(_batched_failed("forward-mode gradients", error)) from error
        for i, t in enumerate(pair):
            for have, want in zip(both, direction(t), strict=True):
                if not np.allclose(_flat_real(have[i]), _flat_real(want), rtol=rtol, atol=atol):
                    raise GradcheckError(
                        "Batched forward-mode gradients do not agree with those taken one by one"
                    )


def _in_direction(func: Fn, args: tuple[Any, ...], x: Any, tangent: Any) -> tuple[Any, ...]:
    with ForwardLevel() as level:
        given = tuple(level.dual(x, tangent) if a is x else a for a in args)
        outs = _outputs(func(*given))
        found = [level.tangent(o) for o in outs]
    pairs = zip(found, outs, strict=True)
    return tuple(o.new_zeros(o.shape) if t is None else t for t, o in pairs)


def _batched_failed(what: str, error: Exception) -> str:
    return (
        f"While computing batched {what}, got: {error}\n\ngradcheck or gradgradcheck failed while "
        "testing batched gradient computation: something in the function or in its backward can't "
        "run under vmap. Rewrite it, or call gradcheck with check_batched_grad=False and "
        "check_batched_forward_grad=False."
    )


def _components(t: Any) -> int:
    return 2 if t._meta.dtype.category == dt.COMPLEX else 1


def _flat_real(t: Any) -> np.ndarray[Any, Any]:
    """Elements in logical order as reals (complex: re, im pairs)."""
    flat = np.ascontiguousarray(values(t.detach())).reshape(-1)
    return flat.view(np.float64) if np.iscomplexobj(flat) else flat.astype(np.float64)


def _numerical(func: Fn, args: tuple[Any, ...], x: Any, eps: float, count: int) -> list[Any]:
    """d out / d x for each output, by central differences, on real components."""
    n = x._meta.numel * _components(x)
    columns: list[list[Any]] = [[] for _ in range(count)]
    place, bare = np.array(bits(x.detach())), x.detach()

    def put(at: Any, value: Any) -> None:
        place[at] = value
        assign(bare, place)

    with no_grad():
        for k in range(n):
            at = np.unravel_index(k // _components(x), place.shape) if place.ndim else ()
            step = eps if _components(x) == 1 or k % 2 == 0 else eps * 1j
            if x._meta.flipped:  # in memory are the conjugates, or the negatives
                step = step.conjugate() if _components(x) == 2 else -step
            original = place[at].copy()
            put(at, original + step)
            plus = [_flat_real(o).copy() for o in _outputs(func(*args))]
            put(at, original - step)
            minus = [_flat_real(o).copy() for o in _outputs(func(*args))]
            put(at, original)
            for o in range(count):
                columns[o].append((plus[o] - minus[o]) / (2 * eps))
    return [np.array(c).reshape(n, -1) for c in columns]


def _analytical(out: Any, x: Any) -> np.ndarray[Any, Any]:
    """The same Jacobian from autograd, one row of cotangents at a time."""
    parts = _components(out)
    rows = []
    for k in range(out._meta.numel * parts):
        cotangent = out.detach().new_zeros(out.shape)
        flat = cotangent.reshape(-1)
        flat[k // parts] = 1 if k % parts == 0 else 1j
        if not requires_grad(out):
            rows.append(np.zeros(x._meta.numel * _components(x)))
            continue
        (g,) = grad(out, x, cotangent, retain_graph=True, allow_unused=True)
        rows.append(np.zeros(x._meta.numel * _components(x)) if g is None else _flat_real(g))
    return np.array(rows).reshape(out._meta.numel * parts, -1).T


def _check_zero_gradient(func: Fn, args: tuple[Any, ...], xs: list[Any]) -> None:
    """A zero cotangent must give a zero gradient, not nan or an error."""
    outs = [o for o in _outputs(func(*args)) if requires_grad(o)]
    if not outs:
        return
    zeros = [o.detach().new_zeros(o.shape) for o in outs]
    for g in grad(outs, xs, zeros, allow_unused=True):
        if g is not None and not np.all(_flat_real(g) == 0):
            raise GradcheckError("backward with zero gradients did not give zeros")


def gradgradcheck(
    func: Fn, inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5,
    rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
    check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """gradcheck of the gradient itself: are second derivatives right?"""
    args = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    xs = _checked_inputs(args)
    outs = [o for o in _outputs(func(*args)) if requires_grad(o)]
    if grad_outputs is None:
        rng = np.random.RandomState(0)
        cotangents = [_random_like(o, rng).requires_grad_() for o in outs]
    else:
        cotangents = [grad_outputs] if isinstance(grad_outputs, TensorBase) else list(grad_outputs)

    def first(*all_inputs: Any) -> Any:
        with enable_grad():
            return first_order(*all_inputs)

    def first_order(*all_inputs: Any) -> Any:
        given = all_inputs[: len(args)]
        results = [o for o in _outputs(func(*given)) if requires_grad(o)]
        wanted = [t for t in given if isinstance(t, TensorBase) and requires_grad(t)]
        found = grad(results, wanted, all_inputs[len(args) :], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    del xs
    return gradcheck(
        first, (*args, *cotangents), eps=eps, atol=atol, rtol=rtol,
        raise_exception=raise_exception, check_undefined_grad=False,
        check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )  # fmt: skip


def _random_like(t: Any, rng: Any) -> Any:
    made = t.detach().new_zeros(t.shape)
    noise = rng.standard_normal(tuple(t.shape))
    noise = noise + 1j * rng.standard_normal(tuple(t.shape)) if t.is_complex() else noise
    assign(made, noise)
    return made
