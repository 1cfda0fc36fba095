"""`autograd.functional`: Jacobians, Hessians and products with them, of plain functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.ir.dispatch import call_inside
from lucerne._src.ops.copy import join
from lucerne._src.tensor.autograd.api import grad
from lucerne._src.tensor.autograd.mapping import mapped
from lucerne._src.tensor.autograd.modes import enable_grad
from lucerne._src.tensor.autograd.state import requires_grad
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.forward.level import ForwardLevel

Fn = Callable[..., Any]


def _tuple(x: Any, what: str, name: str) -> tuple[bool, tuple[Any, ...]]:
    if isinstance(x, TensorBase):
        return False, (x,)
    if not isinstance(x, (tuple, list)) or not all(isinstance(t, TensorBase) for t in x):
        raise TypeError(
            f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but got "
            f"{type(x).__name__}."
        )
    return True, tuple(x)


def _fresh(inputs: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """Inputs to differentiate: views of the given ones, connected to them only if asked for."""
    if create_graph:
        return tuple(
            t.view_as(t) if requires_grad(t) else t.detach().requires_grad_() for t in inputs
        )
    return tuple(t.detach().requires_grad_() for t in inputs)


def _pack(several: bool, values: Any) -> Any:
    return tuple(values) if several else values[0]


def _done(values: Any, create_graph: bool) -> tuple[Any, ...]:
    return tuple(values) if create_graph else tuple(v.detach() for v in values)


def _grads(
    outputs: Any, inputs: Any, cotangents: Any, create_graph: bool, strict: bool
) -> list[Any]:
    """Gradients with zeros where there is no connection (an error when `strict`)."""
    live = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if requires_grad(o)]
    if not live:
        if strict:
            raise RuntimeError(
                "The output of the user-provided function is independent of the inputs. This is "
                "not allowed in strict mode."
            )
        return [t.new_zeros(t.shape) for t in inputs]
    found = grad(
        [o for o, _ in live], inputs, [c for _, c in live],
        create_graph=create_graph, retain_graph=True, allow_unused=True,
    )  # fmt: skip
    if strict and any(g is None for g in found):
        raise RuntimeError(
            "The output of the user-provided function is independent of one of the inputs. This is "
            "not allowed in strict mode."
        )
    return [t.new_zeros(t.shape) if g is None else g for t, g in zip(inputs, found, strict=True)]


def vjp(
    func: Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """(outputs, vᵀ J): the product of a vector with the Jacobian."""
    with enable_grad():
        several_in, given = _tuple(inputs, "inputs", "vjp")
        xs = _fresh(given, create_graph)
        several_out, outs = _tuple(
            call_inside(func, *xs), "outputs of the user-provided function", "vjp"
        )
        if v is None:
            if len(outs) != 1 or outs[0].numel() != 1:
                raise RuntimeError(
                    "The vector v can only be None if the user-provided function returns a single "
                    "Tensor with a single element."
                )
            vs: tuple[Any, ...] = (outs[0].new_ones(outs[0].shape),)
        else:
            vs = _tuple(v, "v", "vjp")[1]
        _check_vector(vs, outs)
        found = _grads(outs, xs, vs, create_graph, strict)
    return _pack(several_out, _done(outs, create_graph)), _pack(
        several_in, _done(found, create_graph)
    )


def _check_vector(vs: tuple[Any, ...], like: tuple[Any, ...]) -> None:
    if len(vs) != len(like):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(like)} but got {len(vs)}."
        )
    for i, (a, b) in enumerate(zip(vs, like, strict=True)):
        if a.shape != b.shape:
            raise RuntimeError(
                f"Entry {i} in v has invalid size: should be {b.shape} but got {a.shape}."
            )


def jvp(
    func: Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """(outputs, J v): by differentiating the vector-Jacobian product, linear in its vector."""
    with enable_grad():
        given = _tuple(inputs, "inputs", "jvp")[1]
        xs = _fresh(given, create_graph)
        if v is None:
            if len(xs) != 1 or xs[0].numel() != 1:
                raise RuntimeError(
                    "The vector v can only be None if the input to the user-provided function is a "
                    "single Tensor with a single element."
                )
            vs: tuple[Any, ...] = (xs[0].new_ones(xs[0].shape),)
        else:
            vs = _tuple(v, "v", "jvp")[1]
        _check_vector(vs, xs)
        several_out, outs = _tuple(
            call_inside(func, *xs), "outputs of the user-provided function", "jvp"
        )
        dummies = tuple(o.new_zeros(o.shape).requires_grad_() for o in outs)
        back = _grads(outs, xs, dummies, True, strict)
        found = _grads(back, dummies, vs, create_graph, strict)
    return _pack(several_out, _done(outs, create_graph)), _pack(
        several_out, _done(found, create_graph)
    )


def jacobian(
    func: Fn, inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian of `func` at `inputs`: for each output and input a tensor of both shapes.

    With `vectorize` its rows (columns with the strategy "forward-mode") are computed at once.

    >>> import lucerne as torch
    >>> torch.autograd.functional.jacobian(lambda x: x * x, torch.tensor([1.0, 3.0]))
    tensor([[2., 0.],
            [0., 6.]])
    """
    _check_strategy("jacobian", strategy, vectorize, strict, create_graph)
    if strategy == "forward-mode":
        return _jacobian_forward(func, inputs)
    with enable_grad():
        several_in, given = _tuple(inputs, "inputs", "jacobian")
        xs = _fresh(given, create_graph)
        several_out, outs = _tuple(
            call_inside(func, *xs), "outputs of the user-provided function", "jacobian"
        )
        if vectorize:
            table = _vectorized(outs, xs, create_graph)
        else:
            table = [_jacobian_of(o, xs, create_graph, strict) for o in outs]
    rows = [_pack(several_in, _done(r, create_graph)) for r in table]
    return _pack(several_out, rows)


def _jacobian_of(out: Any, xs: tuple[Any, ...], create_graph: bool, strict: bool) -> list[Any]:
    flat = out.reshape(-1)
    rows = [
        _grads([flat[i]], xs, [flat[i].new_ones(())], create_graph, strict)
        for i in range(out.numel())
    ]
    return [
        _stack([r[k] for r in rows], x).reshape(tuple(out.shape) + tuple(x.shape))
        for k, x in enumerate(xs)
    ]


def _check_strategy(
    name: str, strategy: str, vectorize: bool, strict: bool, create_graph: bool
) -> None:
    """Refuse what PyTorch refuses."""
    if strategy not in ("forward-mode", "reverse-mode"):
        hint = (
            ' Hint: If your function has more outputs than inputs, "forward-mode" tends to be more '
            'performant. Otherwise, prefer to use "reverse-mode".'
        )
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode".'
            + (hint if name == "jacobian" else "")
        )
    if strategy == "forward-mode" and create_graph and name == "jacobian":
        raise NotImplementedError(
            "torch.autograd.functional.jacobian: `create_graph=True` and "
            '`strategy="forward-mode"` are not supported together (yet). Please either set '
            '`create_graph=False` or `strategy="reverse-mode"`.'
        )
    if vectorize and strict:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
            "supported together. Please either set `strict=False` or `vectorize=False`."
        )
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
            "implemented for `vectorize=True`."
        )


def _jacobian_forward(func: Fn, inputs: Any) -> Any:
    """The Jacobian column by column: derivatives in the direction of every input element, at once
    by vmap."""
    several_in, given = _tuple(inputs, "inputs", "jacobian")
    several_out = False

    def column(*tangents: Any) -> Any:
        nonlocal several_out
        with ForwardLevel() as level:
            xs = [level.dual(x.detach(), t) for x, t in zip(given, tangents, strict=True)]
            result = call_inside(func, *xs)
            several_out, outs = _tuple(result, "outputs of the user-provided function", "jacobian")
            found = [level.tangent(o) for o in outs]
        pairs = zip(found, outs, strict=True)
        return tuple(o.new_zeros(o.shape) if t is None else t for t, o in pairs)

    columns = mapped(column)(*_unit_vectors(given))
    sizes = [x._meta.numel for x in given]
    table = []
    for c in columns:
        parts = c.movedim(0, -1).split(sizes, -1)
        shape = tuple(c.shape[1:])
        pairs = zip(parts, given, strict=True)
        rows = [p.reshape((*shape, *x.shape)).detach() for p, x in pairs]
        table.append(_pack(several_in, rows))
    return _pack(several_out, table)


def _unit_vectors(tensors: tuple[Any, ...]) -> list[Any]:
    """All unit vectors of the space that has all elements of the tensors."""
    total, at = sum(t._meta.numel for t in tensors), 0
    found = []
    for t in tensors:
        meta = t._meta
        ones = t.new_zeros((total, meta.numel))
        ones[at : at + meta.numel].fill_diagonal_(1)
        found.append(ones.reshape((total, *meta.shape)))
        at += meta.numel
    return found


def _vectorized(outs: tuple[Any, ...], xs: tuple[Any, ...], create_graph: bool) -> list[Any]:
    """The rows of the Jacobian of all outputs, computed at once by vmap."""
    live = [o for o in outs if requires_grad(o)]
    units = _unit_vectors(tuple(live))
    found: tuple[Any, ...] = (None,) * len(xs)
    if live:
        found = grad(
            live, xs, units, create_graph=create_graph, retain_graph=True, allow_unused=True,
            is_grads_batched=True,
        )  # fmt: skip
    table: list[Any] = []
    at = 0
    for o in outs:
        count = o._meta.numel if requires_grad(o) else 0
        rows = []
        for x, g in zip(xs, found, strict=True):
            shape = (*o.shape, *x.shape)
            dead = g is None or not requires_grad(o)
            rows.append(x.new_zeros(shape) if dead else g[at : at + count].reshape(shape))
        table.append(rows)
        at += count
    return table


def _stack(parts: list[Any], like: Any) -> Any:
    return join.stack(parts) if parts else like.new_zeros((0, *like.shape))


def hessian(
    func: Fn, inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """Second derivatives of a function with one scalar result."""
    _check_strategy("hessian", outer_jacobian_strategy, vectorize, strict, create_graph)
    several, given = _tuple(inputs, "inputs", "hessian")

    def scalar(*xs: Any) -> Any:
        out = call_inside(func, *xs)
        if not isinstance(out, TensorBase):
            raise RuntimeError("The function given to hessian should return a single Tensor")
        if out.numel() != 1:  # type: ignore[attr-defined]
            raise RuntimeError(
                "The Tensor returned by the function given to hessian should contain a single "
                "element"
            )
        return out.squeeze()  # type: ignore[attr-defined]

    def first(*xs: Any) -> Any:
        xs = tuple(x if requires_grad(x) else x.requires_grad_() for x in xs)
        out = scalar(*xs)
        return tuple(_grads([out], xs, [out.new_ones(())], True, strict))

    found = jacobian(
        first, given, create_graph=create_graph, strict=strict,
        vectorize=vectorize, strategy=outer_jacobian_strategy,
    )  # fmt: skip
    return found if several else found[0][0]


def vhp(
    func: Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """(output, vᵀ H): the product of a vector with the Hessian."""
    return _hessian_product(func, inputs, v, create_graph, strict, "vhp")


def hvp(
    func: Fn, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """(output, H v). The Hessian is symmetric, so this is `vhp`."""
    return _hessian_product(func, inputs, v, create_graph, strict, "hvp")


def _hessian_product(
    func: Fn, inputs: Any, v: Any, create_graph: bool, strict: bool, name: str
) -> Any:
    with enable_grad():
        several, given = _tuple(inputs, "inputs", name)
        xs = _fresh(given, create_graph)
        vs = (xs[0].new_ones(xs[0].shape),) if v is None else _tuple(v, "v", name)[1]
        _check_vector(vs, xs)
        out = call_inside(func, *xs)
        if not isinstance(out, TensorBase) or out._meta.numel != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {name} should contain a single "
                "element"
            )
        first = _grads([out], xs, [out.new_ones(out.shape)], True, strict)  # type: ignore[attr-defined]
        found = _grads(first, xs, vs, create_graph, strict)
    return _done([out], create_graph)[0], _pack(several, _done(found, create_graph))
