"""`lucerne torch install`: a distribution named torch, and none of it left afterwards."""

from __future__ import annotations

import csv
import hashlib
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from lucerne import version
from lucerne._src.as_torch import distribution
from lucerne._src.as_torch.metadata import metadata
from tests.ecosystem import without_torch


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no torch were installed here."""
    monkeypatch.setattr(distribution, "real_torch", lambda: "")


@pytest.mark.usefixtures("alone")
def test_installs_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    found = distribution.install(tmp_path)
    assert found.ours == version.__version__
    [record] = tmp_path.glob("*.dist-info/RECORD")
    rows = list(csv.reader(record.read_text().splitlines()))
    on_disk = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert {row[0] for row in rows} == on_disk
    for path, digest, size in rows[:-1]:
        data = (tmp_path / path).read_bytes()
        expected = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={expected}", len(data))
    distribution.install(tmp_path)  # again: in its own place
    assert len(list(tmp_path.glob("*.dist-info"))) == 1
    distribution.uninstall(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["torchvision"]


def test_uninstall_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(distribution.TorchInstallError, match="nothing to take away"):
        distribution.uninstall(tmp_path)


def test_refuses_where_a_real_torch_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "real_torch", lambda: "torch 2.13.0 is installed here")
    with pytest.raises(distribution.TorchInstallError, match="make an environment without it"):
        distribution.install(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_constraints_name_this_version() -> None:
    assert distribution.constraints() == f"torch=={version.__version__}\n"
    assert f"Version: {version.__version__}\n" in metadata()


@pytest.mark.usefixtures("alone")
def test_programs_and_spawned_workers_see_it(tmp_path: Path) -> None:
    packages = without_torch.folder(tmp_path / "site")
    distribution.install(packages)
    program = packages / "program.py"
    program.write_text(
        "import importlib.metadata, multiprocessing\n"
        "def work(n):\n"
        "    import functorch, torch.nn\n"
        "    assert functorch.vmap is torch.func.vmap\n"
        "    return torch.__name__, float(torch.ones(n).sum()), torch.nn.Linear.__module__\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(work, [3])[0], importlib.metadata.version('torch'))\n"
    )
    done = without_torch.run(packages, str(program))
    expected = f"('torch', 3.0, 'torch.nn.modules.linear') {version.__version__}\n"
    assert (done.stdout, done.stderr) == (expected, "")
