"""Torch's own `redistribute`, asked once for a table of rows: the oracle of test_redistribute.py.

`python -m tests.xla.redistribution FOLDER` starts 4 ranks that talk by gloo; each writes what it
has of every row. (A process of its own: ranks are forked, which one that has loaded JAX must not.)
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RANKS = 4
REFUSED = "refused"
"""What stands in place of a part where torch raises."""


class Row(NamedTuple):
    """One call: placements by their short names (`S0`, `R`, `P`, `Pmax`)."""

    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    have: tuple[str, ...]
    want: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.sizes} {self.shape}: {' '.join(self.have)} -> {' '.join(self.want)}"


WAYS = ("S0", "S1", "R", "P")
SHAPES = ((8, 4), (5, 7), (3, 2), (1, 6))
"""Sizes that the meshes divide, that they do not, and with fewer rows than ranks."""
MESHES = ((4,), (2, 2))
TERMS = ("Pavg", "Pmax", "Pmin")


def _between(sizes: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Row]:
    ways = list(itertools.product(WAYS, repeat=len(sizes)))
    for have, want in itertools.product(ways, ways):
        yield Row(sizes, shape, have, want)


def rows(sizes: tuple[int, ...], shape: tuple[int, ...]) -> list[Row]:
    """All pairs on a mesh, those that torch refuses (something becomes terms) among them."""
    found = list(_between(sizes, shape))
    if len(sizes) == 1 and shape == SHAPES[1]:
        found += [Row(sizes, shape, (p,), (w,)) for p in TERMS for w in ("S0", "S1", "R", p)]
    return found


def terms(row: Row) -> list[np.ndarray[Any, Any]]:
    """What each rank has in the beginning, row by row of the mesh: whole numbers, so that sums are
    exact in any order. Ranks that are to have the same have the same, terms differ."""
    full = np.arange(1.0, 1 + np.prod(row.shape), dtype=np.float32).reshape(row.shape)
    found = []
    for at in itertools.product(*(range(n) for n in row.sizes)):
        part = full
        for k, n, p in zip(at, row.sizes, row.have, strict=True):
            if p[0] == "S":
                part = _slice(part, int(p[1]), n, k)
            elif p[0] == "P":
                part = part * (k + 2) * (-1) ** k
        found.append(np.ascontiguousarray(part))
    return found


def _slice(x: np.ndarray[Any, Any], dim: int, count: int, k: int) -> np.ndarray[Any, Any]:
    size = x.shape[dim]
    step = -(-size // count)
    at = [slice(None)] * x.ndim
    at[dim] = slice(min(k * step, size), min((k + 1) * step, size))
    return x[tuple(at)]


def _placement(module: Any, name: str) -> Any:
    if name[0] == "S":
        return module.Shard(int(name[1:]))
    return module.Replicate() if name == "R" else module.Partial(name[1:] or "sum")


def placements(module: Any, names: tuple[str, ...]) -> list[Any]:
    """Of `torch.distributed.tensor`, or of ours."""
    return [_placement(module, name) for name in names]


# ---- a rank of torch's ---------------------------------------------------------------------------


def _rank(k: int, folder: str) -> None:
    import torch
    from torch import distributed
    from torch.distributed import tensor as dtensor
    from torch.distributed.device_mesh import init_device_mesh

    store = distributed.FileStore(f"{folder}/store", RANKS)
    distributed.init_process_group("gloo", store=store, rank=k, world_size=RANKS)
    found = {}
    for sizes in MESHES:
        mesh = init_device_mesh("cpu", sizes)
        for row in itertools.chain(*(rows(sizes, shape) for shape in SHAPES)):
            given = torch.from_numpy(terms(row)[k])
            stride = (row.shape[1], 1)
            have = dtensor.DTensor.from_local(
                given, mesh, placements(dtensor, row.have), shape=row.shape, stride=stride
            )
            try:
                made = have.redistribute(mesh, placements(dtensor, row.want))
            except RuntimeError:
                found[str(row)] = np.array(REFUSED)
            else:
                found[str(row)] = made.to_local().numpy()
    np.savez(f"{folder}/{k}.npz", **found)
    distributed.destroy_process_group()


def main(folder: str) -> None:
    from torch import multiprocessing

    multiprocessing.start_processes(_rank, (folder,), RANKS, start_method="fork")


def read(folder: Path) -> list[Any]:
    """What each rank has of every row."""
    return [np.load(folder / f"{k}.npz") for k in range(RANKS)]


if __name__ == "__main__":
    main(sys.argv[1])
