"""The programs, in groups; each group writes into a folder of its own, in a process of its own.

Compiled programs are dumped (`LUCERNE_DUMP`): guards, every stage, groups, memory. Beside them are
the kernels that were asked for, compiled or not. The ledger tells what was compiled, and why.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lucerne as torch
from lucerne._src.backends.cpu.runtime import code
from tests.capture_cases.all_rows import CASES
from tests.capture_cases.runs import judged
from tests.pairs.functions import functions
from tests.pairs.programs import given, pairs
from tests.programs.measure import ran
from tests.programs.rows import found
from tests.support.sources import printed, scripts

_KEPT = ("function", "line", "kind", "why", "nodes", "steps", "breaks", "problem")


def training(part: int, of: int) -> None:
    """Two steps of each training program, compiled as a whole."""
    for _, made in sorted(found("lucerne").items())[part::of]:
        ran("lucerne", made, "step", 2)


def captured(part: int, of: int) -> None:
    for case in CASES[part :: of * 4]:
        judged(case, 120)


def paired(part: int, of: int) -> None:
    for program in pairs(range(part * 40, part * 40 + 160 // of)):
        x = given(program.base).requires_grad_()
        with contextlib.suppress(Exception):  # not of this shape: no program
            y = torch.compile(program.call)(x)
            y.sum().backward()


def eager(part: int, of: int) -> None:
    """What single functions and scripts ask for."""
    for f in list(functions().values())[part::of]:
        _with_gradient(f)
    for path in scripts()[part::of]:
        printed(path, "lucerne")


def _with_gradient(f: Callable[[Any], Any]) -> None:
    with contextlib.suppress(Exception):
        x = given("4x6").requires_grad_()
        f(x).sum().backward()


GROUPS: dict[str, Callable[..., None]] = {
    "training": training, "captured": captured, "paired": paired, "eager": eager,
}  # fmt: skip


def write(group: str, folder: Path, part: int, of: int) -> None:
    """Run a group, or a part of it. The dumps are where the environment says: `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernels = code.listed(lambda: GROUPS[group](part, of))
    (folder / "kernels").mkdir()
    for kernel in kernels:
        name = hashlib.sha256(repr(kernel.key).encode()).hexdigest()[:16]
        text = f"; {kernel.key!r}\n{kernel.text}"
        (folder / "kernels" / f"{name}.ll").write_text(text, encoding="utf-8")
    (folder / "ledger.json").write_text(json.dumps(list(_told()), indent=1), encoding="utf-8")


def _told() -> Iterator[dict[str, Any]]:
    """What was compiled and why, without what differs from run to run."""
    for row in torch.compiler.ledger().json():
        yield {k: row[k] for k in _KEPT}
