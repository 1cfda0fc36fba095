"""Calling a module with other parameters than its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.ir.dispatch import call_inside
from lucerne.nn.modules.module import Module

_ABSENT = object()


def _named_tensors(module: Any) -> dict[str, Any]:
    """Parameters and buffers by path, shared ones under each of their paths."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _with_ties(module: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What was given for one name of a shared tensor, for its other names as well."""
    names: dict[int, set[str]] = {}
    everything = _named_tensors(module)
    for name, t in everything.items():
        names.setdefault(id(t), set()).add(name)
    found = dict(given)
    for name in [n for n in given if n in everything]:
        for other in sorted(names[id(everything[name])] - {name}):
            if other in given and given[other] is not given[name]:
                raise ValueError(
                    f"functional_call got multiple values for keys {sorted((name, other))}, which "
                    "are tied. Consider using tie_weights=False"
                )
            found[other] = given[name]
    return found


def _check_strict(module: Any, given: dict[str, Any]) -> None:
    names = set(_named_tensors(module))
    missing = sorted(names - set(given))
    unexpected = sorted(set(given) - names)
    lines = []
    if unexpected:
        listed = ", ".join(map(repr, unexpected))
        lines.append(f"Unexpected key(s): {listed}.")
    if missing:
        listed = ", ".join(map(repr, missing))
        lines.append(f"Missing key(s): {listed}.")
    if lines:
        text = "\n\t".join(lines)
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t{text}")


def _swap(module: Any, path: str, value: Any) -> Any:
    """Put a tensor where a parameter or buffer stands; gives what stood there."""
    where, _, name = path.rpartition(".")
    owner = module.get_submodule(where)
    for store in (owner._parameters, owner._buffers):
        if name in store:
            old, store[name] = store[name], value
            return old
    old = owner.__dict__.get(name, _ABSENT)
    if value is _ABSENT:
        owner.__dict__.pop(name, None)
    else:
        owner.__dict__[name] = value
    return old


@contextmanager
def _reparametrize_module(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """Inside, the module's tensors of these names are the given ones.

    What the module writes into its buffers there (running statistics) ends up in
    `parameters_and_buffers`.
    """
    given = _with_ties(module, parameters_and_buffers) if tie_weights else parameters_and_buffers
    if strict:
        _check_strict(module, given)
    order = list(given)
    old: dict[str, Any] = {}
    try:
        for path in order:
            old[path] = _swap(module, path, given[path])
        yield
    finally:
        for path in reversed(order) if stack_weights else order:
            if path in old:
                now = _swap(module, path, old[path])
                if path in parameters_and_buffers and now is not _ABSENT:
                    parameters_and_buffers[path] = now


def call_with(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What `lucerne.func.functional_call` and the deprecated `stateless.functional_call` do."""
    if not isinstance(module, Module):
        raise TypeError(f"expected a Module, but got: {type(module).__name__}")
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return call_inside(module, *positional, **(kwargs or {}))


_functional_call = call_with


def functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module` with these tensors in place of its own, leaving it unchanged.

    Deprecated in favour of `lucerne.func.functional_call`.
    """
    notices.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be "
        "removed in a future version of PyTorch. Please use `torch.func.functional_call` instead "
        "which is a drop-in replacement.",
        FutureWarning,
    )
    return call_with(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
