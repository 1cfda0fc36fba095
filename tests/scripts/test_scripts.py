"""Every script prints the same under torch and under Lucerne; only the import line changes."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import swapped

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FOLDER = Path(__file__).parent
SCRIPTS = sorted(p for p in FOLDER.rglob("*.py") if not p.name.startswith(("test_", "__")))


@pytest.fixture(autouse=True)
def _torch_as_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch as a program finds it: its own test helpers and compiler, which other tests load,
    forbid setting backend flags and switch validation off. One thread: the tensors are small, and
    torch's threads would only wait for each other."""
    threads = torch.get_num_threads()
    settings = torch.backends.disable_global_flags.__globals__
    monkeypatch.setitem(settings, "__allow_nonbracketed_mutation_flag", True)
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", __debug__)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _printed(path: Path, module: str) -> list[str]:
    source = swapped(path.read_text(encoding="utf-8"), module)
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
