"""`FlopCounterMode`: how many floating-point operations matrix products and convolutions take.

A multiplication with an addition counts as two. Backward passes are counted when they run inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.ir.dispatch import Interpreter, Proceed
from lucerne._src.ir.op import Op
from lucerne._src.ops import aten
from lucerne.nn.modules.hooks import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from lucerne.profiler import work

GLOBAL = "Global"


_COUNTED = frozenset(("batch_matmul", "conv", "conv_input", "conv_weight"))
_SHOWN = {"conv_input": "convolution_backward", "conv_weight": "convolution_backward"}


flop_registry: dict[Any, Callable[..., int]] = {}
"""Formulas for further ops, by packet (`torch.ops.mylib.f`)."""


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Any], Any]:
    """Decorate the formula of an op: it takes the shapes of tensors (the tensors themselves with
    `get_raw`) and `out_shape` (`out_val`), and returns how many operations there are."""

    def enter(formula: Callable[..., int]) -> Callable[..., int]:
        def shaped(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
            shapes = [getattr(a, "shape", a) for a in args]
            return formula(*shapes, out_shape=getattr(out_val, "shape", None), **kwargs)

        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            flop_registry[target] = formula if get_raw else shaped
        return formula

    return enter


class FlopCounterMode(Interpreter):
    """Counts while it is entered, by module and by op.

    >>> import lucerne as torch
    >>> from lucerne.utils.flop_counter import FlopCounterMode
    >>> with FlopCounterMode(display=False) as counter:
    ...     y = torch.ones(2, 3) @ torch.ones(3, 4)
    >>> counter.get_total_flops()
    48
    """

    level = "kernel"

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        if mods is not None:
            notices.warn("mods argument is not needed anymore, you can stop passing it")
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = {}
        self._custom = {**flop_registry, **(custom_mapping or {})}
        self._modules: list[str] = []
        self._handles: list[Any] = []

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Proceed) -> Any:
        result = proceed(op, args, out)
        if op.qualified in _COUNTED and out is None:
            func = aten.call_of(op, args, out)[0].overloadpacket
            if op.qualified in _SHOWN:
                func = getattr(aten.SPACE, _SHOWN[op.qualified])
            metas = [getattr(a, "_meta", a) for a in args]
            self._count(func, work.flops(op, metas, [result._meta]))
        elif self._custom and out is None:
            self._count_custom(op, args, result)
        return result

    def _count_custom(self, op: Op, args: tuple[Any, ...], result: Any) -> None:
        func, given, named = aten.call_of(op, args, None)
        formula = self._custom.get(func.overloadpacket) or self._custom.get(func)
        if formula is not None:
            if func.overloadpacket in flop_registry:
                flops = formula(*given, out_val=result, **named)
            else:
                shapes = [getattr(a, "shape", a) for a in given]
                flops = formula(*shapes, out_shape=result.shape, **named)
            self._count(func.overloadpacket, flops)

    def _count(self, func: Any, flops: int) -> None:
        for name in {GLOBAL, *self._modules}:
            found = self.flop_counts.setdefault(name, {})
            found[func] = found.get(func, 0) + flops

    # ---- modules -----------------------------------------------------------------------------

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        for handle in self._handles:
            handle.remove()
        if self.display:
            print(self.get_table(self.depth))

    def _enter_module(self, module: Any, inputs: Any) -> None:
        own = type(module).__name__
        if self._modules:
            parent = self._modules[-1]
            own = f"{parent}.{self._name_in_parent(module)}"
        self._modules.append(own)
        self._parents.append(module)

    def _leave_module(self, module: Any, inputs: Any, output: Any) -> None:
        self._modules.pop()
        self._parents.pop()

    @property
    def _parents(self) -> list[Any]:
        found: list[Any] = self.__dict__.setdefault("_stack_of_modules", [])
        return found

    def _name_in_parent(self, module: Any) -> str:
        for name, child in self._parents[-1].named_modules():
            if child is module:
                return str(name)
        return type(module).__name__

    # ---- results -----------------------------------------------------------------------------

    def get_total_flops(self) -> int:
        return sum(self.flop_counts.get(GLOBAL, {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """By module ("Global" is everything), then by op."""
        return {name: dict(found) for name, found in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A table for people: module, flops, share."""
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        lines = [f"{'Module':<40} {'FLOP':>12} {'% Total':>8}"]
        for name in sorted(self.flop_counts, key=lambda n: (n != GLOBAL, n)):
            if name != GLOBAL and name.count(".") > depth:
                continue
            flops = sum(self.flop_counts[name].values())
            lines.append(f"{name:<40} {flops:>12,} {100 * flops / total:>7.2f}%")
        return "\n".join(lines)
