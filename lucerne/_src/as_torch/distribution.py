"""A distribution named `torch` for the current environment, generated on the spot.

pip, `importlib.metadata`, console scripts and spawned workers look for an installed distribution;
an import hook in one process is not enough for them. This one is a package of one line, with the
metadata that pip wants.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from lucerne import version
from lucerne._src.as_torch import names
from lucerne._src.as_torch.finder import MARK, THEIRS, real_torch
from lucerne._src.as_torch.metadata import metadata

PACKAGE = f'''"""`import torch`, answered by Lucerne (`lucerne torch uninstall` takes it away)."""

{MARK} = True

import lucerne.as_torch  # noqa: E402

lucerne.as_torch.install()
'''
BESIDE_PACKAGE = f'''"""`import {{name}}`, answered by Lucerne: a package of torch's."""

{MARK} = True

import importlib  # noqa: E402
import sys  # noqa: E402

import lucerne.as_torch  # noqa: E402

lucerne.as_torch.install()
del sys.modules[__name__]
importlib.import_module(__name__)  # the one that the hook makes; it is what `import` gives
'''
WHEEL = "Wheel-Version: 1.0\nGenerator: lucerne\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class TorchInstallError(RuntimeError):
    """The distribution cannot be put here, or is not there to be taken away."""


@dataclass(frozen=True)
class TorchState:
    """What stands in an environment under the name torch."""

    folder: Path
    ours: str
    """The version of the distribution that was generated; empty: none is there."""
    real: str
    """Why `torch` is somebody else's here; empty: it is not."""


def site_folder() -> Path:
    """Where the current environment keeps pure Python packages."""
    return Path(sysconfig.get_path("purelib"))


def _records(folder: Path) -> list[Path]:
    """The `.dist-info` folders of ours, of this version and of others."""
    return sorted(folder.glob("torch-*+lucerne.*.dist-info"))


def state(folder: Path | None = None) -> TorchState:
    """What is installed."""
    folder = site_folder() if folder is None else folder
    found = _records(folder)
    ours = found[-1].name.removeprefix("torch-").removesuffix(".dist-info") if found else ""
    return TorchState(folder, ours, real_torch())


def constraints() -> str:
    """The text of a constraints file: with it, no installation replaces this torch."""
    return f"torch=={version.__version__}\n"


def install(folder: Path | None = None) -> TorchState:
    """Put the distribution there, in place of an older one of ours."""
    now = state(folder)
    if now.real:
        raise TorchInstallError(
            f"{now.real}. It is left as it is: make an environment without it (python -m venv), or "
            "uninstall it (pip uninstall torch)."
        )
    if now.ours:
        uninstall(now.folder)
    files = {
        "torch/__init__.py": PACKAGE,
        **{f"{n}/__init__.py": BESIDE_PACKAGE.format(name=n) for n in names.BESIDE},
        f"{_record_name()}/METADATA": metadata(),
        f"{_record_name()}/WHEEL": WHEEL,
        f"{_record_name()}/INSTALLER": "lucerne\n",
        f"{_record_name()}/top_level.txt": "\n".join(_packages()) + "\n",
    }
    rows = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{_record_name()}/RECORD"] = "\n".join([*rows, f"{_record_name()}/RECORD,,", ""])
    for path, text in files.items():
        target = now.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")
    return state(now.folder)


def _packages() -> list[str]:
    """The top-level packages that it brings."""
    return [THEIRS, *names.BESIDE]


def _record_name() -> str:
    return f"torch-{version.__version__}.dist-info"


def _digest(text: str) -> str:
    found = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return "sha256=" + found.rstrip(b"=").decode()


def uninstall(folder: Path | None = None) -> list[Path]:
    """Take the distribution away, every file of it. Which folders went."""
    folder = site_folder() if folder is None else folder
    found = _records(folder)
    if not found:
        raise TorchInstallError(
            f"no torch of Lucerne's is installed in {folder}: there is nothing to take away"
        )
    for package in map(folder.joinpath, _packages()):
        text = package / "__init__.py"  # (one of an older Lucerne has torch alone)
        if text.exists() and MARK in text.read_text(encoding="utf-8"):
            found.append(package)
    for gone in found:
        shutil.rmtree(gone)
    return found
