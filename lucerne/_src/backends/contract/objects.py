"""Programs that are written for another process: what `assemble` gives where nothing is run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.backends.contract.backend import Runner, TensorState


@dataclass
class WeightsFile:
    """The file that a program's weights come from, as far as code depends on it."""

    head: bytes
    """Its first bytes, which another file must have too."""
    nbytes: int
    inside: bool
    """Whether the object has it, under the name `<prefix>_weights`."""


@dataclass
class Variant:
    """A program at known sizes, and what its arguments are."""

    runner: WrittenRunner
    sizes: tuple[int, ...]
    inputs: Mapping[int, int]
    """Which argument of the program is which input of a call."""
    weights: Mapping[int, int]
    """Of the other arguments: where in the file of weights each begins."""
    constants: Sequence[int]
    """The same of the program's constants."""
    checks: Sequence[str] = ()
    """What is wrong if one of the last results is true."""


class UnwrittenError(Exception):
    """Steps that only this process could run: (name, the user's line, why) of each."""

    def __init__(self, steps: Sequence[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(" ".join(s) for s in steps))
        self.steps = list(steps)


@dataclass
class ObjectCode:
    """What came of it."""

    data: bytes
    """An object file with `<prefix>_run` and its companions."""
    imports: list[str] = field(default_factory=list)
    """The functions that it calls of others."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Sizes of memory, numbers of steps: for people and headers."""


class WrittenRunner(Runner):
    """A program whose machine code is text so far."""

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        raise RuntimeError("this process writes code for another one, and runs none")

    @abstractmethod
    def object_code(
        self, prefix: str, variants: Sequence[Variant], weights: WeightsFile
    ) -> ObjectCode:
        """All of them as one object (runners of the same backend)."""
