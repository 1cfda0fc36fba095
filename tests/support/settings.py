"""Settings of the whole process, put back when a piece of work ends."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Threads, default dtype and grad mode (of torch too, if it is loaded) are afterwards what
    they were."""
    modules = [m for m in map(sys.modules.get, ("lucerne", "torch")) if m is not None]
    before = [(m, m.get_num_threads(), m.get_default_dtype(), m.is_grad_enabled()) for m in modules]
    try:
        yield
    finally:
        for module, threads, dtype, grad in before:
            if module.get_num_threads() != threads:
                module.set_num_threads(threads)
            module.set_default_dtype(dtype)
            module.set_grad_enabled(grad)
