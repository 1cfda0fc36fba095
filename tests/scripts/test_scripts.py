"""Every script prints the same under torch and under Lucerne; only the import line changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import printed, scripts

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPTS = scripts()


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


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_script_prints_the_same(path: Path) -> None:
    want, got = printed(path, "torch"), printed(path, "lucerne")
    differ = [f"torch:   {a}\nlucerne: {b}" for a, b in zip(want, got, strict=False) if a != b]
    assert not differ, "\n".join(differ[:20])
    assert len(want) == len(got)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 33
