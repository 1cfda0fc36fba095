"""The closed list of names: each can be made, each is torch's, and the page lists them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from lucerne._src.as_torch import names, page
from tests.ecosystem import without_torch

ROOT = Path(__file__).parents[2]


def test_every_name_of_the_table_can_be_made(tmp_path: Path) -> None:
    packages = without_torch.folder(tmp_path / "site")
    program = """
import importlib, lucerne.as_torch
lucerne.as_torch.install()
from lucerne._src.as_torch import names
for rest in sorted(names.OWN | set(names.SPACES)):
    if rest.startswith("utils.tensorboard"):
        continue
    module = importlib.import_module(f"torch.{rest}" if rest else "torch")
    found = names.SPACES.get(rest)
    for name in found.rows if found else ():
        getattr(module, name)
        if not found.rows[name].says:
            print(rest, name, "says nothing")
"""
    done = without_torch.run(packages, "-c", program)
    assert (done.stdout, done.stderr) == ("", "")


def test_every_module_of_ours_is_there() -> None:
    ours = [name for name in names.OWN if not name.startswith("utils.tensorboard")]  # (an extra)
    assert [name for name in ours if importlib.util.find_spec(f"lucerne.{name}") is None] == []


def test_no_row_hides_a_name_of_lucerne() -> None:
    """A row comes on top: where Lucerne has the name itself, the row would never be asked."""
    hidden = [
        f"{rest}.{name}"
        for rest, found in names.SPACES.items()
        if rest in names.OWN and not rest.startswith("utils.tensorboard")
        for name in found.rows
        if name in vars(importlib.import_module(f"lucerne.{rest}"))
    ]
    assert hidden == []


def test_the_page_is_fresh() -> None:
    path = ROOT / "docs" / "extend" / "torch_names.md"
    assert path.read_text() == page.as_markdown(), "write it again: lucerne torch names"


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_every_module_is_one_of_torch() -> None:
    """No module behind the door that torch does not have (or had not in 2.13)."""
    import torch

    home = Path(torch.__file__).parent
    unknown = []
    for rest in sorted(names.OWN | set(names.SPACES)):
        path = home.joinpath(*rest.split("."))
        there = not rest or path.with_suffix(".py").exists() or (path / "__init__.py").exists()
        if not there and rest not in ELSEWHERE:
            unknown.append(rest)
    assert unknown == []


ELSEWHERE = {
    # made by torch's extension module, or objects that stand for modules
    "distributed._tensor.experimental",
    "_C._nn", "_C._distributed_c10d", "_C._functorch", "_C._profiler", "_C", "classes", "ops",
}  # fmt: skip
