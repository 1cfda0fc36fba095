"""Every script prints the same under torch and under Lucerne; only the import line changes."""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FOLDER = Path(__file__).parent
SCRIPTS = sorted(p for p in FOLDER.rglob("*.py") if not p.name.startswith(("test_", "__")))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """These tensors are small: torch's threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _printed(path: Path, module: str) -> list[str]:
    source = path.read_text(encoding="utf-8")
    if module != "torch":
        source = re.sub(r"^(import|from) torch\.", rf"\1 {module}.", source, flags=re.M)
        source = re.sub(r"^import torch$", f"import {module} as torch", source, flags=re.M)
        source = re.sub(r"^from torch import", f"from {module} import", source, flags=re.M)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, str(path), "exec"), {"__name__": "__main__"})
    return out.getvalue().splitlines()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_script_prints_the_same(path: Path) -> None:
    want, got = _printed(path, "torch"), _printed(path, "lucerne")
    differ = [f"torch:   {a}\nlucerne: {b}" for a, b in zip(want, got, strict=False) if a != b]
    assert not differ, "\n".join(differ[:20])
    assert len(want) == len(got)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 33
