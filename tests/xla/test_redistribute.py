"""`redistribute` against torch's DTensor: each rank's part of every row, on 4 ranks, 4 devices."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import lucerne

pytest.importorskip("torch")
jax = pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

from lucerne.distributed import tensor as dtensor  # noqa: E402 - after the skip
from lucerne.distributed.device_mesh import init_device_mesh  # noqa: E402
from tests.xla import redistribution  # noqa: E402
from tests.xla.redistribution import MESHES, REFUSED, SHAPES, Row, placements, rows, terms  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("meshes")]


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What torch's ranks have of every row."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-W", "ignore", "-m", "tests.xla.redistribution", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return redistribution.read(folder)


@functools.cache
def _given(row: Row) -> Any:
    """The tensor that a row begins with."""
    mesh = init_device_mesh("xla", row.sizes)
    given = [lucerne.from_numpy(x) for x in terms(row)]
    return dtensor.DTensor.from_local(given, mesh, placements(dtensor, row.have))


def _parts(row: Row) -> list[Any] | None:
    """Each device's part; None: it is refused."""
    have = _given(row._replace(want=row.have))
    try:
        made = have.redistribute(placements=placements(dtensor, row.want))
    except RuntimeError:
        return None
    return [part.cpu().numpy() for part in dtensor.local_parts(made)]


def _difference(row: Row, torchs: list[Any]) -> str:
    wanted, found = [of_rank[str(row)] for of_rank in torchs], _parts(row)
    refused = [x.dtype.kind == "U" and str(x) == REFUSED for x in wanted]
    if found is None or any(refused):
        return "" if found is None and all(refused) else f"{row}: torch {refused}, here {found}"
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape or not np.array_equal(a, b):
            return f"{row}: device {k} has {a.tolist()}, torch's rank {b.tolist()}"
    return ""


QUICK = [
    (sizes, shape) for sizes in MESHES for shape in SHAPES if len(sizes) == 1 or shape == (5, 7)
]


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        pytest.param(*k, marks=[] if k in QUICK else [pytest.mark.nightly], id=str(k))
        for k in itertools.product(MESHES, SHAPES)
    ],
)
def test_parts_are_torchs(sizes: Any, shape: Any, torchs: list[Any]) -> None:
    table = rows(sizes, shape)
    wrong = [text for row in table if (text := _difference(row, torchs))]
    print(f"{sizes}, {shape}: {len(table) - len(wrong)} of {len(table)} rows are torch's")
    assert not wrong, "\n".join(wrong[:10])
