"""What `compile` was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src import backends
from lucerne._src.base.changed import changed
from lucerne._src.base.config import config
from lucerne._src.capture.trace.composites import Composites
from lucerne._src.ir.graph import Graph
from lucerne._src.ops.random.counted import counted_draw

MODES = (
    None, "default", "bitwise", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs",
)  # fmt: skip
UNMEANT = {
    "reduce-overhead": "a compiled program is one call already, there are no launches to save",
    **dict.fromkeys(
        ("max-autotune", "max-autotune-no-cudagraphs"),
        "kernels are chosen by their sizes, nothing is tried out",
    ),
}
"""PyTorch's modes that mean nothing here, and why."""
KNOWN = ("disable", "memory_budget", "dump", "dump_kernels", "shadow", "shadow_action")
"""What `compile(options={...})` may hold."""
ACTIONS = ("warn", "raise")
"""What shadow mode may do about a difference."""

COUNTED_DRAW: Any = counted_draw.op  # type: ignore[attr-defined]

Maker = Callable[[Graph, dict[int, Any]], Any]
"""From a graph without mutation, and the tensors of inputs (by number) that never change, to what
runs it: `runner(arguments, numbers, results)`."""


def check_options(options: dict[str, Any]) -> None:
    """Refuse an option that nothing reads: a typing error, or one of PyTorch's own compiler."""
    for name in options:
        if name not in KNOWN:
            raise RuntimeError(
                f"Unexpected optimization option {name}, known options are {list(KNOWN)}. Leave "
                "out what was meant for another compiler"
            )


class Options:
    """What `compile` was told."""

    def __init__(
        self,
        backend: str,
        mode: str | None,
        fullgraph: bool,
        disable: frozenset[str],
        budget: float = 1.0,
        dynamic: bool | None = None,
        maker: Maker | None = None,
    ) -> None:
        self.maker = maker
        self.backend, self.mode, self.fullgraph, self.disable = backend, mode, fullgraph, disable
        self.budget, self.dynamic = budget, dynamic
        self.shadow, self.shadow_action = config.shadow, config.shadow_action
        """How many calls of each version are compared with eager, and what a difference does."""
        self.too_large = False
        """Whether the function sees more than a key of the programs on disk can describe."""
        self.dump, self.dump_kernels = "", False
        """A folder for the text of each stage."""
        self.whole = Composites(backend, mode == "bitwise")
        self.compile_half: Any = None
        """`build.compiled_half` for those that do not load it: programs found on disk need it
        seldom."""
        self.tell: Any = None
        """What hears of errors inside of the compiler (`faults.Teller`)."""
        self.follows = False
        """Whether the backend is that of the device the tensors are on; else it was named."""

    def on(self, device: str) -> Options:
        """The same for tensors of another device."""
        return changed(self, backend=device, whole=Composites(device, self.mode == "bitwise"))

    @property
    def counts_draws(self) -> bool:
        """Whether random numbers follow from a key and counters, not from the generator: then they
        are computed where they are used, on any device that has the formula."""
        backend = backends.get(self.backend)
        if backend.own_memory and not backend.supports(COUNTED_DRAW):
            return False
        return self.mode != "bitwise" and "count_draws" not in self.disable

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.backend, self.mode, self.fullgraph, self.disable, self.budget, self.dynamic
        return Options, given
