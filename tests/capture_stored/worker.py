"""Run rows of the table in this process and print what came out: `python -m ... name ...`."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import sys
from typing import Any

import lucerne as torch
from lucerne._src.capture.cache.disk import lookup
from tests.capture_stored import table

_RUNS = itertools.count()


class _Unseen(functools.partial):
    """A call that nobody looks into, so that running the body can be counted."""


_Unseen.__module__ = torch.__name__  # as what stands in that place has it: no class to guard
_HEARD = _Unseen(next, _RUNS)
"""Takes the place of `is_tensor`: a call that leaves no trace but a number."""


def told(value: Any) -> str:
    """A value exactly, a tensor by all its bits."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    bits = value.detach().clone(memory_format=torch.contiguous_format).numpy().tobytes()
    facts = value.dtype, tuple(value.shape), value.stride(), value.requires_grad
    return f"{facts} {hashlib.sha256(bits).hexdigest()[:16]}"


def run(name: str) -> dict[str, Any]:
    """One row: its values, how often bodies ran, what the store did."""
    torch.manual_seed(0)
    before = next(_RUNS)
    lookup.account.__init__()  # type: ignore[misc]
    try:
        found = [told(v) for v in table.ROWS[name]()]
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"]
    did = lookup.account
    return {
        "values": found, "runs": next(_RUNS) - before - 1, "hits": did.hits, "misses": did.misses,
        "outside": table.OUTSIDE.get(name, 0), "kept": did.kept, "stale": did.stale,
        "refused": did.refused,
    }  # fmt: skip


def main(names: list[str]) -> None:
    torch.is_tensor = _HEARD
    torch.set_num_threads(1)
    print(json.dumps({name: run(name) for name in names or table.ROWS}))


if __name__ == "__main__":
    main(sys.argv[1:])
