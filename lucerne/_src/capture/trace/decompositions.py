"""A user's decompositions: what is recorded in the place of an op.

A table maps overloads of `torch.ops` to functions of the same arguments. The recorder asks it about
every op that is about to become a node. What a function of the table calls is looked up in the
table again; only the op itself stays itself inside its own decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.ir import op as op_
from lucerne._src.ir.op import Op
from lucerne._src.ir.overload import OpOverload, OpOverloadPacket
from lucerne._src.ops import aten
from lucerne._src.tensor.eager.composite import body_of

Function = Callable[..., Any]


def _of_rows(input: Any, weight: Any, bias: Any, dims: Any, eps: float) -> tuple[Any, ...]:
    return input, [input.shape[d] for d in dims], weight, bias, eps


_FIRST_RESULTS: dict[str, tuple[str, Callable[..., tuple[Any, ...]]]] = {
    "layer_norm_rows": ("native_layer_norm", _of_rows),
}
"""Ops that torch has as the first result of another one, whose decomposition serves for them too:
its name, and its arguments from those of ours."""


def _whole(name: str) -> OpOverload:
    """The op of several results."""
    found: OpOverload = getattr(aten.SPACE, _FIRST_RESULTS[name][0]).default
    return found


class OwnBody:
    """The entry of the default table: a composite is taken apart into the ops of its body."""

    def __init__(self, op: Op) -> None:
        self.op = op

    def __repr__(self) -> str:
        return f"<the body of {self.op.qualified}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        defaults = [kwargs.get(p.name, p.default) for p in self.op.params[len(args) :]]
        return body_of(self.op, (*args, *defaults))


def default_decompositions() -> dict[OpOverload, Function]:
    """Every composite that would be a node of an exported graph, with its body.

    >>> import lucerne as torch
    >>> table = torch.export.default_decompositions()
    >>> table.pop(torch.ops.aten.linear.default)
    <the body of nn.functional.linear>
    """
    return {
        overload: OwnBody(op)
        for op in op_.table().values()
        if op.kind == op_.COMPOSITE and op.explicit
        for overload in aten.overloads_of(op)
    }


def warn_of_strangers(table: Mapping[Any, Any], *, exported: bool) -> None:
    """Name the entries for operators that never come by: they change nothing.

    An exported program holds no composites but those with a derivative of their own.
    """
    checked(table)
    ops = [*op_.table().values(), *op_.custom_ops().values()]
    if exported:
        ops = [op for op in ops if op.kind != op_.COMPOSITE or op.explicit]
    seen = {overload for op in ops for overload in aten.overloads_of(op)}
    seen |= set(map(_whole, _FIRST_RESULTS))
    strangers = sorted(str(key) for key in table if seen.isdisjoint(checked({key: table[key]})))
    if strangers:
        where = "an exported program" if exported else "what make_fx records"
        notices.warn(
            f"decompositions: {', '.join(strangers)} never is an op of {where} here, so what the "
            "table has for it is not used. TorchDispatchMode shows which ops a function runs."
        )


class Decompositions:
    """A table, in the place of who is asked which composites stay whole (`composites.Composites`).

    `rest` answers for what the table does not name.
    """

    def __init__(self, table: Mapping[Any, Any], rest: Any) -> None:
        self.table = checked(table)
        self.rest = rest
        self._open: list[OpOverload] = []
        """Whose decompositions run just now, the innermost last."""

    def __call__(self, op: Op, args: tuple[Any, ...]) -> bool:
        found = self._entry(op, args)[0]
        if found is not None:
            return not isinstance(found, OwnBody)
        return bool(self.rest(op, args))

    def body(self, op: Op, args: tuple[Any, ...]) -> Any:
        return self.rest.body(op, args)

    def instead(self, op: Op, args: tuple[Any, ...]) -> Any:
        """What the table gives for a call; NotImplemented: the op is to be recorded as it is."""
        function, overload, given, named = self._entry(op, args)
        if function is None or isinstance(function, OwnBody):
            return NotImplemented
        self._open.append(overload)
        try:
            found = function(*given, **named)
        finally:
            self._open.pop()
        is_first = op.name in _FIRST_RESULTS and overload is _whole(op.name)
        return found[0] if is_first and found is not NotImplemented else found

    def _entry(self, op: Op, args: tuple[Any, ...]) -> tuple[Function | None, Any, Any, Any]:
        overload, given, named = aten.call_of(op, args, None)
        if op.name in _FIRST_RESULTS and overload not in self.table:
            overload, given, named = _whole(op.name), _FIRST_RESULTS[op.name][1](*args), {}
        function = None if overload in self._open else self.table.get(overload)
        return function, overload, given, named


def checked(table: Mapping[Any, Any]) -> dict[OpOverload, Function]:
    """A table by overloads; the name of a packet stands for all its overloads."""
    if not isinstance(table, Mapping):
        raise TypeError(
            "a decomposition table is a dict of operators and functions, not "
            f"{type(table).__name__}"
        )
    found: dict[OpOverload, Function] = {}
    for key, function in table.items():
        if not isinstance(key, (OpOverload, OpOverloadPacket)):
            raise TypeError(
                "the keys of a decomposition table are operators such as "
                f"torch.ops.aten.silu.default, not {key!r}"
            )
        if not callable(function):
            raise TypeError(
                f"the decomposition of {key} must be a function of the operator's arguments, not "
                f"{function!r}"
            )
        if isinstance(key, OpOverload):
            found[key] = function
        else:
            found.update({getattr(key, name): function for name in key.overloads()})
    return found
