"""`@tiles.autotune`: the block sizes of a kernel, chosen by trying them, and remembered."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src import backends
from lucerne._src.base.config import config
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tiles.index import TileError
from lucerne._src.tiles.kernel import Kernel

_ROUNDS = 5
_HOPELESS = 3.0
"""A choice that takes this many times as long as the best one is tried once."""
_FOLDER_BYTES = 1 << 20


@functools.cache
def _folder() -> Cache:
    path = os.path.join(config.cache_dir, "tiles") if config.cache_dir else ""
    return Cache(path, _FOLDER_BYTES, ".choice", "choices of block sizes", inside=config.cache_dir)


class Tuned:
    """A kernel that is called without the parameters that are chosen for it.

    >>> import lucerne as torch
    >>> from lucerne import tiles
    >>> @tiles.autotune([{"B": 4}, {"B": 8}])
    ... @tiles.kernel(grid=lambda x, B: -(-x.shape[0] // B))
    ... def double(x: tiles.In, y: tiles.Out, B: int):
    ...     i = tiles.program_id(0) * B
    ...     tiles.store(y[i : i + B], x[i : i + B] * 2)
    >>> double(torch.ones(10)).sum(), len(double.choices)
    (tensor(20.), 1)
    """

    def __init__(
        self, kernel: Kernel, configs: Sequence[dict[str, Any]], key: Callable[..., Any] | None
    ) -> None:
        functools.update_wrapper(self, kernel)
        self.kernel, self.key = kernel, key
        self.configs = [dict(c) for c in configs]
        self.choices: dict[str, dict[str, Any]] = {}
        """By what calls have in common: what was chosen."""
        self._check()
        kept = [p for n, p in kernel.called.parameters.items() if n not in self.configs[0]]
        self.called = kernel.called.replace(parameters=kept)
        self._text = _text_of(kernel)  # now: libraries patch `inspect`, and calls may be captured

    def _check(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise TypeError("tiles.autotune decorates a kernel: put @tiles.kernel below it")
        names = sorted(self.configs[0]) if self.configs else []
        if not names or any(sorted(c) != names for c in self.configs):
            raise TypeError(
                "tiles.autotune: expected choices for the same parameters, as dicts: "
                f'[{{"B": 16}}, {{"B": 32}}], got {self.configs}'
            )
        unknown = [n for n in names if n not in self.kernel.statics]
        if unknown:
            raise TypeError(
                f"tiles.autotune: {', '.join(unknown)} is no parameter of {self.kernel!r} that is "
                f"fixed when it is compiled; those are: {', '.join(self.kernel.statics) or 'none'}"
            )

    def __repr__(self) -> str:
        return f"<tuned {self.kernel!r} of {len(self.configs)} choices>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.called.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        return self.kernel(**values, **self.choice(values))

    def backward(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The derivative, as `Kernel.backward` has it."""
        return self.kernel.backward(rule)

    def choice(self, values: dict[str, Any]) -> dict[str, Any]:
        """What is taken for arguments like these (by name): tried when they are first seen."""
        which = self._which(values)
        found = self.choices.get(which)
        if found is None:
            if dispatch.recording():  # nothing runs now, so nothing can be measured
                return self._kept(which) or self.configs[0]
            found = self.choices[which] = self._kept(which) or self._tried(values, which)
        return found

    def _which(self, values: dict[str, Any]) -> str:
        """By default: dtypes, and sizes up to the next power of two."""
        if self.key is not None:
            names = inspect.signature(self.key).parameters
            return repr(dispatch.call_back(self.key, *[values[n] for n in names]))
        tensors = [values[n]._meta for n in self.kernel.inputs]
        shapes = [(m.dtype.name, [int(n - 1).bit_length() for n in m.shape]) for m in tensors]
        return repr((shapes, [values[n] for n in self.kernel.statics if n in values]))

    # ---- trying --------------------------------------------------------------------------------

    def _tried(self, values: dict[str, Any], which: str) -> dict[str, Any]:
        best, chosen, refused = float("inf"), None, None
        with no_grad():
            for choice in self.configs:
                try:
                    took = self._seconds({**values, **choice}, best)
                except TileError as error:  # too much to keep, say
                    refused = refused or error
                    continue
                if took < best:
                    best, chosen = took, choice
        if chosen is None:
            assert refused is not None
            raise refused
        key = self._disk_key(which)
        if key is not None:
            _folder().write(key, json.dumps(chosen).encode())
        return chosen

    def _seconds(self, values: dict[str, Any], best: float) -> float:
        self.kernel.run(values)  # compiles
        found = float("inf")
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            self.kernel.run(values)
            found = min(found, time.perf_counter() - began)
            if found > _HOPELESS * best:
                break
        return found

    # ---- remembering ---------------------------------------------------------------------------

    def _kept(self, which: str) -> dict[str, Any] | None:
        """What an earlier process has chosen, if it is one of the choices."""
        key = self._disk_key(which)
        raw = None if key is None else _folder().read(key)
        try:
            found = None if raw is None else json.loads(raw)
        except ValueError:
            return None
        return next((c for c in self.configs if c == found), None)

    def _disk_key(self, which: str) -> bytes | None:
        """The processor, the number of threads, the kernel's text, the choices, the call."""
        made_by = backends.get(backends.HOST).identity()
        if made_by is None or self._text is None or not _folder().is_on:
            return None
        told = repr((made_by, config.threads, self._text, self.configs, which))
        return hashlib.sha256(told.encode()).digest()


def _text_of(kernel: Kernel) -> str | None:
    try:
        return inspect.getsource(kernel.function)
    except (OSError, TypeError):  # typed in somewhere
        return None


def autotune(configs: Sequence[dict[str, Any]], key: Callable[..., Any] | None = None) -> Any:
    """Choose parameters of a kernel (block sizes) by trying, once for each kind of call.

    `configs` are the choices: dicts with the same names, which are parameters of the kernel that
    are fixed when it is compiled. `key`: a function of arguments (by name); calls for which it
    gives the same take the same choice. By default, calls with the same dtypes, and sizes that are
    the same up to the next power of two. Choices are kept beside the compiled kernels. While a
    function is captured nothing can be tried: what is known is taken, or the first choice.
    """

    def make(kernel: Kernel) -> Tuned:
        return Tuned(kernel, configs, key)

    return make
