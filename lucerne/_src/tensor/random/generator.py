"""torch.Generator's spelling over the Mersenne twister, and the generator used by default."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lucerne._src.ir import dispatch
from lucerne._src.tensor.random.kinds import U8
from lucerne._src.tensor.random.methods import DrawMethods
from lucerne._src.tensor.random.mt19937 import DEFAULT_SEED, Mersenne


class SeedRangeError(ValueError, RuntimeError):
    """A seed beyond 64 bits: PyTorch documents a RuntimeError and raises a ValueError."""


def check_seed(seed: object) -> int:
    """The seed in [0, 2^64): negative ones count from the top."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
        raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
    if not -(2**63) <= int(seed) < 2**64:
        raise SeedRangeError(
            f"Overflow when unpacking long long: seed {seed} is outside [-2^63, 2^64)"
        )
    return int(seed) % 2**64


class Generator(DrawMethods):
    """A source of random numbers that continues PyTorch's CPU stream bit for bit.

    The bits are drawn on the host whatever `device` says: the attribute is kept as given so that
    programs which check it work unchanged.
    """

    def __init__(self, device: Any = "cpu") -> None:
        self._engine = Mersenne(DEFAULT_SEED)
        super().__init__(self._engine)
        self.device = device

    def manual_seed(self, seed: int) -> Generator:
        """Restart the stream at `seed`, in [-2^63, 2^64)."""
        checked = check_seed(seed)
        self._changes()
        with self.lock:
            self._engine.seed(checked)
        return self

    def seed(self) -> int:
        """Restart from an unpredictable seed and return it."""
        fresh = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(fresh)
        return fresh

    def initial_seed(self) -> int:
        """The seed the stream started from."""
        return self._engine.initial_seed

    def state_bytes(self) -> U8:
        """The state as torch.Generator.get_state() lays it out."""
        with self.lock:
            return self._engine.state_bytes()

    def load_state_bytes(self, state: Any) -> None:
        """Continue from a state, ours or PyTorch's; a damaged one raises ValueError."""
        self._changes()
        with self.lock:
            self._engine.load_state_bytes(state)

    def _changes(self) -> None:
        """Tell whoever records what happens, who can't record this."""
        if dispatch.recording():
            dispatch.state.kernel_level[-1].reseeded(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles carry the state; the lock stays behind."""
        return _rebuild, (type(self), self.device, self.state_bytes().tobytes())


def _rebuild(kind: type[Generator], device: Any, state: bytes) -> Generator:
    generator = kind(device)
    generator.load_state_bytes(state)
    return generator


default_generator = Generator()
default_generator.seed()
