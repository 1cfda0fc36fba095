"""A backend for another contract is told what to do; one in a package is found by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from lucerne import backends
from lucerne._src.backends.contract.handshake import taken
from lucerne._src.conformance import Case
from lucerne._src.conformance.workers import Progress, run_apart
from lucerne.backends import ContractError
from lucerne.backends.api import CHANGES, CONTRACT_VERSION, OLDEST_CONTRACT, Backend
from tests.chip import slate

ROOT = Path(__file__).parents[2]


def backend(**fields: Any) -> Any:
    made = type("Odd", (type(slate.make()),), fields)
    return made()


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (1, r"written for contract 1; this Lucerne knows 2 to 9(.|\n)*What changed since:\n  2: "),
        (CONTRACT_VERSION + 1, "Install a newer Lucerne .* or an older release of the backend"),
        (None, "does not say which version of the contract"),
        ("3", "says '3', which is no number"),
        (True, "says True, which is no number"),
    ],
)
def test_a_contract_that_does_not_fit(version: Any, told: str) -> None:
    with pytest.raises(ContractError, match=told):
        backends.register("odd", backend(contract_version=version))
    assert "odd" not in backends.names()


def test_missing_methods_are_named() -> None:
    with pytest.raises(ContractError, match="has no compile, supports"):
        backends.register("odd", backend(compile=None, supports=None))


class Plain:
    """Contract 4: an object with what it can do."""

    contract_version = 4
    heads = frozenset({"batch_matmul"})

    def __init__(self) -> None:
        self.inner = slate.make()

    def is_free(self, node: Any) -> bool:
        return True

    def write(self, buffer: Any, start: int, data: Any) -> None:
        self.inner.write(buffer, start, data)

    devices = allocate = to_host = from_host = address = compile = supports = lambda self, *args: (
        None
    )


def test_an_object_of_an_older_contract_is_adapted() -> None:
    found = taken("plain", Plain())
    assert isinstance(found, Backend)
    assert set(found.abilities) == {"own_memory", "write", "anchors", "folds_into_loads"}
    assert found.own_memory
    assert found.anchors == {"batch_matmul"}
    assert found.folds_into_loads(None)
    assert not found.fuses(None)
    assert found.inner.contract_version == 4


def test_an_object_of_this_contract_derives_from_backend() -> None:
    newer = type("Newer", (Plain,), {"contract_version": CONTRACT_VERSION})
    with pytest.raises(ContractError, match=r"derives from lucerne\.backends\.api\.Backend; Newer"):
        taken("newer", newer())


def test_abilities_are_what_differs_from_the_default() -> None:
    assert backends.get("null").abilities == ()
    assert set(slate.make().abilities) == {"own_memory", "write"}
    assert {"fuses_groups", "assemble", "anchors"} <= set(backends.get("cpu").abilities)


def test_every_version_says_what_it_brought() -> None:
    assert sorted(CHANGES) == list(range(1, CONTRACT_VERSION + 1))
    assert 1 <= OLDEST_CONTRACT <= CONTRACT_VERSION


# ---- a package, as pip leaves it -----------------------------------------------------------------

CHALK = """
import ctypes, time
import numpy as np
from lucerne._src.base.device import device


class Chalk:
    contract_version = {version}

    def devices(self):
        return [device("chalk")]

    def allocate(self, nbytes):
        return np.zeros(nbytes, np.uint8)

    def from_host(self, data):
        return data.reshape(-1).view(np.uint8).copy()

    def to_host(self, buffer):
        return buffer

    def address(self, buffer):
        return 0

    def supports(self, op):
        return op.qualified in ("neg", "exp", "copy", "cast", "clone_as")

    def compile(self, graph):
        name = graph.nodes[0].op.qualified
        if not self.supports(graph.nodes[0].op):
            raise NotImplementedError(f"chalk has no rule for {{name}}")
        return lambda inputs, outputs: run(name, inputs, outputs[0])


def run(name, inputs, out):
    if name == "neg":
        ctypes.string_at(0)                  # a kernel that crashes
    if name == "exp":
        time.sleep(60)                       # one that hangs
    source = inputs[-1]
    array = lambda t: np.ndarray(
        t._meta.shape, t._meta.dtype.storage, t._storage.buffer,
        t._offset * t._meta.dtype.itemsize, t._meta.byte_strides)
    array(out)[...] = array(source) if hasattr(source, "_meta") else source
"""


def install(folder: Path, *, version: int = 4, target: str = "chalk:Chalk") -> None:
    """What `pip install` would leave in a folder of packages."""
    (folder / "chalk.py").write_text(textwrap.dedent(CHALK).format(version=version))
    info = folder / "lucerne_chalk-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lucerne-chalk\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[lucerne.backends]\nchalk = {target}\n")


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_installed_backend_is_found_and_imported_late(tmp_path: Path) -> None:
    install(tmp_path)
    code = """
    import sys
    import lucerne as torch
    assert "chalk" not in sys.modules
    where = torch.device("chalk")
    assert "chalk" not in sys.modules
    print(torch.ones(2).to(where).clone())
    """
    done = python(tmp_path, "-c", textwrap.dedent(code))
    assert done.stdout == "tensor([1., 1.], device='chalk')\n", done.stderr


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"version": 99}, "(lucerne-chalk 0.1, chalk:Chalk) was written for contract 99"),
        ({"target": "chalk:Missing"}, "is installed but can't be loaded"),
        ({"target": "nowhere:Chalk"}, "No module named 'nowhere'"),
    ],
    ids=["too new", "no such class", "no such module"],
)
def test_an_installed_backend_that_does_not_fit(
    tmp_path: Path, fields: dict[str, Any], told: str
) -> None:
    install(tmp_path, **fields)
    done = python(tmp_path, "-c", "import lucerne; lucerne.ones(1).to('chalk')")
    assert done.returncode == 1
    assert told in done.stderr


def test_a_crash_and_a_hang_end_an_op_and_not_the_run(tmp_path: Path) -> None:
    install(tmp_path)
    command = [
        "-m", "lucerne", "conformance", "--device", "chalk", "--tier", "T0",
        "--op", "neg", "--op", "exp", "--op", "clone", "--timeout", "2",
        "--json", str(tmp_path / "all.json"), "--resume", str(tmp_path / "done.jsonl"),
    ]  # fmt: skip
    done = python(tmp_path, *command)
    assert done.returncode == 1, done.stderr
    assert "its process crashed: SIGSEGV" in done.stdout
    assert "hung for 2 s" in done.stdout
    data = json.loads((tmp_path / "all.json").read_text())
    scores = {(o["op"], o["dtype"]): o["passed"] == o["total"] for o in data["outcomes"]}
    assert scores["clone", "float32"]
    assert not scores["neg", "float32"]
    known = Progress(tmp_path / "done.jsonl", json.loads(first_line(tmp_path / "done.jsonl")))
    assert set(known.known) == {"neg", "exp", "clone"}


def first_line(path: Path) -> str:
    return path.read_text().splitlines()[0]


def test_progress_goes_on_where_it_was(tmp_path: Path) -> None:
    path, head = tmp_path / "done.jsonl", {"device": "chalk"}
    Progress(path, head).add({"op": "neg", "outcomes": [], "bill": []})
    kept = Progress(path, head)
    asked: list[str] = []
    case = Case("neg", "T0", "float32", lambda device: None, None)
    answers = list(run_apart([case], ["false"], progress=kept, tell=asked.append))
    assert not asked
    assert [a["op"] for a in answers] == ["neg"]
    with pytest.raises(ValueError, match="is of another run"):
        Progress(path, {"device": "slate"})


def test_a_worker_that_cannot_begin_is_a_failure_of_its_op() -> None:
    case = Case("neg", "T0", "float32", lambda device: None, None)
    (answer,) = run_apart([case], [sys.executable, "-c", "raise SystemExit(3)"])
    (row,) = answer["outcomes"]
    assert row["first_failure"] == "could not begin: its process ended with status 3"
    assert (row["passed"], row["total"]) == (0, 1)
