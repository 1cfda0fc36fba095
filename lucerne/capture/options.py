"""What `compile` was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne import backends
from lucerne.base.config import config
from lucerne.capture.whole import Composites
from lucerne.ir.graph import Graph
from lucerne.ops.counted_random import counted_draw

MODES = (
    None, "default", "bitwise", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs",
)  # fmt: skip
"""PyTorch's modes mean nothing here: a program is one call, kernels are chosen by their sizes."""
ACTIONS = ("warn", "raise")
"""What shadow mode may do about a difference."""

COUNTED_DRAW: Any = counted_draw.op  # type: ignore[attr-defined]

Maker = Callable[[Graph, dict[int, Any]], Any]
"""From a graph without mutation, and the tensors of inputs (by number) that never change, to what
runs it: `runner(arguments, numbers, results)`."""


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
        """`making.compiled_half` for those that do not load it: programs found on disk need it
        seldom."""
        self.tell: Any = None
        """What hears of errors inside of the compiler (`faults.Teller`)."""
        self.follows = False
        """Whether the backend is that of the device the tensors are on; else it was named."""

    def on(self, device: str) -> Options:
        """The same for tensors of another device."""
        made = object.__new__(Options)
        made.__dict__.update(self.__dict__)
        made.backend, made.whole = device, Composites(device, self.mode == "bitwise")
        return made

    @property
    def counts_draws(self) -> bool:
        """Whether random numbers follow from a key and counters, not from the generator: then they
        are computed where they are used, on any device that has the formula."""
        backend = backends.get(self.backend)
        if hasattr(backend, "write") and not backend.supports(COUNTED_DRAW):
            return False
        return self.mode != "bitwise" and "count_draws" not in self.disable

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.backend, self.mode, self.fullgraph, self.disable, self.budget, self.dynamic
        return Options, given
