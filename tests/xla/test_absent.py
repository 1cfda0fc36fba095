"""What holds of a machine without jax: nobody asks for it, and who needs it is told what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.structure import load

LUCERNE = Path(__file__).parents[2] / "lucerne"
FOLDER = "lucerne._src.backends.xla"


def _said(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_one_folder_imports_jax() -> None:
    package = load(LUCERNE, having="jax")
    users = {
        name
        for name, found in package.imports.items()
        if any(i.target.split(".")[0] in ("jax", "jaxlib") for i in found)
    }
    assert users, "nobody imports jax: this test would not see who does"
    assert {name for name in users if not name.startswith(f"{FOLDER}.")} == set()


def test_lucerne_does_not_import_jax() -> None:
    code = "import lucerne, sys; lucerne.ones(2).sum(); print('jax' in sys.modules)"
    assert _said(code) == "False"


def test_without_jax_the_device_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import lucerne\n"
        "try:\n"
        "    lucerne.ones(2, device='xla')\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    said = _said(code)
    assert "pip install lucerne[xla]" in said
    assert "docs/guide/xla.md" in said


def test_the_command_lists_a_device_that_is_not_there() -> None:
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from lucerne import cli\n"
        "raise SystemExit(cli.main(['devices']))\n"
    )
    lines = _said(code).splitlines()
    assert [line for line in lines if line.startswith("xla: can't be used here: ")]
    assert [line for line in lines if line.startswith("cpu (1): ")]


@pytest.mark.parametrize("name", ["take", "takes", "about"])
def test_abilities_have_defaults(name: str) -> None:
    """No probing: the framework calls them on every backend."""
    probe = f'attr(backend, "{name}"'
    contract = LUCERNE / "_src" / "backends" / "contract"
    files = [path for path in LUCERNE.rglob("*.py") if contract not in path.parents]
    assert files, "no file was looked at"
    assert [str(path) for path in files if probe in path.read_text(encoding="utf-8")] == []
