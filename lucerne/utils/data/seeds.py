"""Random draws of a loader: one seed for each sample, and states to return to.

A sample's seed is a hash of the epoch's seed and the sample's key. Whatever loads the sample, in
whatever order and process, draws the same numbers: the number of workers does not matter, and a
sample can be loaded again after its worker died.
"""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lucerne._src.tensor import api as lu

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """Spread the bits of a 64-bit number over all of it (the finisher of SplitMix64)."""
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def number_of(key: Any) -> int:
    """A number for a sample's key: itself if it is one, else a digest of how it prints."""
    try:
        return operator.index(key)
    except TypeError:
        return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little")


class SampleSeeds:
    """The seeds of one epoch's samples."""

    def __init__(self, base_seed: int, epoch: int) -> None:
        self.root = mix(base_seed + _GOLDEN * (epoch + 1))

    def seed_for(self, key: Any, occurrence: int = 0) -> int:
        """64 bits for the sample `key` (the second time in an epoch it has `occurrence` 1)."""
        return mix(mix(self.root + _GOLDEN * (number_of(key) + 1)) + occurrence)

    def sow(self, key: Any, occurrence: int = 0) -> None:
        """Seed the global generators of Lucerne, Python and NumPy for one sample."""
        sow(self.seed_for(key, occurrence))


# What `random.seed` ends in for a number, without its look at the argument's type.
_PYTHON: Any = random._inst
_seed_python = super(random.Random, _PYTHON).seed


def sow(seed: int) -> None:
    """Seed all global generators from 64 bits; NumPy's gets others than Lucerne's, as both are
    Mersenne twisters and would draw the same words."""
    lu.default_generator._engine.seed(seed)
    _seed_python(seed)
    _PYTHON.gauss_next = None
    np.random.seed(seed >> 32)


# ---- states -----------------------------------------------------------------------------------


def save_generator(generator: Any) -> str:
    return _text(generator.state_bytes().tobytes())


def load_generator(generator: Any, saved: str) -> None:
    generator.load_state_bytes(_bytes(saved))


def _text(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def _bytes(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


class GlobalState:
    """The states of the three global generators."""

    def __init__(self) -> None:
        self.lucerne = lu.default_generator.state_bytes()
        self.python = random.getstate()
        self.numpy = np.random.get_state(legacy=True)

    def restore(self) -> None:
        lu.default_generator.load_state_bytes(self.lucerne)
        random.setstate(self.python)
        np.random.set_state(self.numpy)

    def text(self) -> str:
        """For a state_dict: one string."""
        _, words, *rest = self.numpy
        state = [
            base64.b64encode(self.lucerne.tobytes()).decode(),
            self.python,
            [np.asarray(words).tolist(), *rest],
        ]
        return _text(json.dumps(state).encode())

    @classmethod
    def from_text(cls, text: str) -> GlobalState:
        lucerne, python, (words, *rest) = json.loads(_bytes(text))
        made = cls.__new__(cls)
        made.lucerne = np.frombuffer(base64.b64decode(lucerne), np.uint8)
        made.python = (python[0], tuple(python[1]), python[2])
        made.numpy = ("MT19937", np.array(words, np.uint32), *rest)
        return made


@contextmanager
def no_trace(enabled: bool = True) -> Iterator[None]:
    """What is drawn or seeded inside leaves no trace in the global generators."""
    if not enabled:
        yield
        return
    before = GlobalState()
    try:
        yield
    finally:
        before.restore()


class Occurrences:
    """How often each key came before in this epoch: drawn twice, a sample is augmented twice."""

    def __init__(self, never_repeats: bool) -> None:
        self.seen: Counter[Any] | None = None if never_repeats else Counter()

    def of(self, keys: Any, batched: bool) -> list[int] | None:
        """The occurrence of each key of a batch; None when all are first ones."""
        if self.seen is None:
            return None
        found = []
        for key in keys if batched else [keys]:
            name = number_of(key)
            found.append(self.seen[name])
            self.seen[name] += 1
        return found if any(found) else None
