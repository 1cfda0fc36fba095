"""What stands around the kernels: memory that is not there, commands, folders of others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lucerne
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.io.errors import LoadError
from lucerne.cli import main
from lucerne.io import safetensors

ROOT = Path(lucerne.__file__).parents[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: lucerne.empty(1 << 46),
        lambda: lucerne.zeros(1 << 46),
        lambda: lucerne.ones(1 << 23, 1) + lucerne.ones(1 << 23),
    ],
)
def test_no_memory_is_said_as_programs_expect_it(call: object) -> None:
    assert callable(call)
    with pytest.raises(
        lucerne.OutOfMemoryError, match="DefaultCPUAllocator: can't allocate"
    ) as caught:
        call()
    assert isinstance(caught.value, RuntimeError)


def test_missing_names_the_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["missing", "--device", "nosuch"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("lucerne missing: ")
    assert "nosuch" in said


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"{sys.executable} -m lucerne primitives | head -1"
    ran = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=300,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system knows no owners of files")
@pytest.mark.parametrize("kind", ["writable", "link"])
def test_a_folder_inside_of_a_refused_one_is_not_made(kind: str, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    outer.chmod(0o777)
    if kind == "link":
        outer.chmod(0o700)
        (tmp_path / "link").symlink_to(outer)
    given = tmp_path / "link" if kind == "link" else outer
    with pytest.warns(RuntimeWarning, match="programs are not kept"):
        found = Cache(str(given / "programs"), 1 << 20, ".program", "programs", inside=str(given))
    assert not found.is_on
    assert list(outer.iterdir()) == []
    own = tmp_path / "own"
    assert Cache(str(own / "programs"), 1 << 20, inside=str(own)).is_on


def test_safetensors_carry_a_digest_unless_told_not_to(tmp_path: Path) -> None:
    tensors = {"w": lucerne.arange(64.0)}
    for digest in (True, False):
        raw = bytearray(
            safetensors.save(tensors) if digest else safetensors.save(tensors, digest=False)
        )
        raw[-3] ^= 1
        (tmp_path / "f").write_bytes(raw)
        if digest:
            with pytest.raises(LoadError, match="digest does not match"):
                safetensors.load_file(tmp_path / "f")
        else:
            safetensors.load_file(tmp_path / "f")
