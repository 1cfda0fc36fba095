"""Running replicas on their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """The result of each module on its inputs.

    Host devices share one pool of threads, which one module fills: they run one after the other.
    """
    named: Sequence[dict[str, Any]] = kwargs_tup or [{}] * len(modules)
    if not len(modules) == len(inputs) == len(named):
        raise AssertionError(
            f"The number of modules {len(modules)} is not equal to the number of inputs "
            f"{len(inputs)}"
        )
    found = []
    for module, given, kwargs in zip(modules, inputs, named, strict=True):
        args = given if isinstance(given, (list, tuple)) else (given,)
        found.append(module(*args, **kwargs))
    return found
