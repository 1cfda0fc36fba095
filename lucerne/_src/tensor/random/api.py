"""Seeds and states: the process-wide generator, and the in-place draws that need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lucerne._src.base.process import default_generator as rng
from lucerne._src.ops.random.draws import bernoulli_fill, normal_fill, randint
from lucerne._src.tensor.eager.inplace import InPlace
from lucerne._src.tensor.interop.outside import from_numpy, values
from lucerne._src.tensor.random.generator import Generator as _Generator
from lucerne._src.tensor.random.generator import default_generator as default_generator
from lucerne._src.tensor.tensor import Tensor

rng.install(default_generator)
_KEYS, _KEY_SIZE = 1 << 62, (2,)


def manual_seed(seed: int) -> Any:
    """Start the default generator anew; the same seed gives torch's own CPU stream.

    >>> import lucerne
    >>> _ = lucerne.manual_seed(0)
    >>> lucerne.rand(2)
    tensor([0.4963, 0.7682])
    """
    return default_generator.manual_seed(int(seed))


def new_key(device: Any = None) -> Any:
    """The key of one call of a compiled program (two int64: a seed and an offset), on a device.

    It is drawn from the default generator: seeds and states decide over programs too, and no two
    calls get the same.
    """
    made: Any = randint(0, _KEYS, _KEY_SIZE)
    return made if device is None or device == made._meta.device else made.to(device)


def mark() -> Any:
    """Where the default generator is, for `take_back`."""
    return default_generator._engine.mark()


def take_back(marked: Any) -> None:
    """Take back a key that was drawn since `marked` for a program that then did not fit: the call
    draws again. If somebody else has drawn as well, the key is left out instead."""
    engine = default_generator._engine
    with default_generator.lock:
        now = engine.mark()
        engine.rewind(marked)
        new_key()
        engine.rewind(marked if engine.mark() == now else now)


def rewind(marked: Any) -> None:
    """Go back to where the default generator was: what was drawn since is drawn again."""
    with default_generator.lock:
        default_generator._engine.rewind(marked)


def seed() -> int:
    """Seed the default generator from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    return default_generator.initial_seed()


def get_rng_state() -> Any:
    """The default generator's state, as a tensor of bytes in torch's layout."""
    return _get_state(default_generator)


def set_rng_state(new_state: Any) -> None:
    """Continue from a state that `get_rng_state` (ours or torch's) gave."""
    _set_state(default_generator, new_state)


def _get_state(self: _Generator) -> Any:
    return from_numpy(np.array(self.state_bytes()))


def _set_state(self: _Generator, new_state: Any) -> _Generator:
    if not isinstance(new_state, Tensor):
        raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
    try:
        self.load_state_bytes(np.ascontiguousarray(values(new_state)))
    except ValueError as error:
        raise RuntimeError(str(error)) from None
    return self


def _clone_state(self: _Generator) -> _Generator:
    made = type(self)(self.device)
    made.load_state_bytes(self.state_bytes())
    return made


_Generator.get_state = _get_state  # type: ignore[attr-defined]
_Generator.set_state = _set_state  # type: ignore[attr-defined]
_Generator.clone_state = _clone_state  # type: ignore[attr-defined]


@contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cpu",
) -> Iterator[None]:
    """What is drawn inside leaves no trace: the generator continues as if nothing had happened."""
    if not enabled:
        yield
        return
    before = default_generator.state_bytes()
    try:
        yield
    finally:
        default_generator.load_state_bytes(before)


def _normal_(self: Any, mean: float = 0, std: float = 1, *, generator: Any = None) -> Any:
    """Fill with normal values."""
    return normal_fill(self, mean, std, generator, InPlace(self))


def _bernoulli_(self: Any, p: Any = 0.5, *, generator: Any = None) -> Any:
    """Fill with zeros and ones; `p` is the probability of a one."""
    return bernoulli_fill(self, p, generator, InPlace(self))


Tensor.normal_ = _normal_  # type: ignore[method-assign]
Tensor.bernoulli_ = _bernoulli_  # type: ignore[method-assign]
Generator = _Generator
