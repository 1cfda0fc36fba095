"""`lucerne.hub`: models by the `hubconf.py` of a folder, and weights by their address."""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib.util
import io
import os
import re
import sys
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lucerne._src.base.config import torch_home
from lucerne._src.io.atomic import write_atomic
from lucerne._src.io.files import load as _load_file
from lucerne._src.io.progress import ProgressLine

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
"""The first digits of a file's digest, at the end of its name."""
tqdm = ProgressLine
"""What shows how far a download is."""
_CHUNK = 1 << 20
_MOST_PACKED = 16
"""How many times its archive a packed checkpoint may be: more is no checkpoint."""


class _Place:
    folder: str | None = None
    """What `set_dir` set."""


def _get_torch_home() -> str:
    """Where torch keeps what it has fetched: `TORCH_HOME`, or `torch` in the user's cache."""
    return torch_home()


def get_dir() -> str:
    """Where what the hub has fetched is kept."""
    return _Place.folder or os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep what the hub fetches in this folder."""
    _Place.folder = os.path.expanduser(d)


# ---- models of a folder -----------------------------------------------------------------------


def load(
    repo_or_dir: str | os.PathLike[str],
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What the entry `model` of a folder's `hubconf.py` gives for these arguments.

    The folder is a path, with `source="local"`, or a `file://` address. A repository on the network
    is refused: its code would run unread. The other options concern repositories alone.

    >>> import pathlib, tempfile, lucerne as torch
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> text = "import lucerne as torch\\n\\ndef line(n): return torch.nn.Linear(n, 1)\\n"
    >>> _ = (folder / "hubconf.py").write_text(text)
    >>> torch.hub.load(folder, "line", 3, source="local")
    Linear(in_features=3, out_features=1, bias=True)
    """
    with _hubconf(repo_or_dir, "load", source) as module:
        return _entry(module, model)(*args, **kwargs)


def list(
    github: str | os.PathLike[str], force_reload: bool = False, skip_validation: bool = False,
    trust_repo: Any = "check", verbose: bool = True,
) -> builtins.list[str]:  # fmt: skip
    """The entries of a folder's `hubconf.py`, by its `file://` address."""
    with _hubconf(github, "list", "github") as module:
        return [k for k in dir(module) if callable(getattr(module, k)) and not k.startswith("_")]


def help(
    github: str | os.PathLike[str], model: str, force_reload: bool = False,
    skip_validation: bool = False, trust_repo: Any = "check",
) -> str | None:  # fmt: skip
    """The docstring of an entry of a folder's `hubconf.py`, by its `file://` address."""
    with _hubconf(github, "help", "github") as module:
        return _entry(module, model).__doc__


@contextlib.contextmanager
def _hubconf(place: str | os.PathLike[str], what: str, source: str) -> Iterator[Any]:
    """The module in a folder; the folder is on the path meanwhile, so that it finds its own."""
    if source.lower() not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    asked = urllib.parse.urlsplit(os.fspath(place))
    if asked.scheme == "file":
        folder = urllib.request.url2pathname(asked.path)
    elif source.lower() == "local":
        folder = os.path.expanduser(os.fspath(place))
    else:
        raise NotImplementedError(
            f"torch.hub.{what}: Lucerne runs no code from the network ({os.fspath(place)!r}). "
            "Clone the repository, read it, and give its folder: load(folder, model, "
            'source="local"), or a file:// address.'
        )
    file = os.path.join(os.path.abspath(folder), "hubconf.py")
    if not os.path.isfile(file):
        raise FileNotFoundError(f"torch.hub.{what}: {folder} has no hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", file)
    assert spec is not None
    assert spec.loader is not None
    sys.path.insert(0, os.path.dirname(file))
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(os.path.dirname(file))


def _entry(module: Any, name: str) -> Callable[..., Any]:
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    missing = [p for p in getattr(module, "dependencies", ()) if not importlib.util.find_spec(p)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    entry = getattr(module, name, None)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    found: Callable[..., Any] = entry
    return found


# ---- files by their address -------------------------------------------------------------------


def download_url_to_file(
    url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Fetch a file; `dst` is there when all of it is, with the SHA-256 it should have.

    `hash_prefix` is how the digest begins, in hexadecimal digits.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    digest = hashlib.sha256()
    with urllib.request.urlopen(request) as answer:
        said = answer.headers.get("Content-Length")
        total = int(said) if said else None

        def produce(write: Callable[[Any], None]) -> None:
            got = 0
            with tqdm(
                total=total, disable=not progress, unit="B", unit_scale=True, unit_divisor=1024
            ) as line:
                while part := answer.read(_CHUNK):
                    write(part)
                    digest.update(part)
                    got += len(part)
                    line.update(len(part))
            if total not in (None, got):
                raise ConnectionError(f"{url}: {got} bytes came, {total} were announced")
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(
                    f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")'
                )

        write_atomic(dst, produce)


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool | None = None,
) -> Any:
    """What `torch.load` reads from the file at an address; it is fetched once.

    It stays in `model_dir` (else `checkpoints` in `get_dir()`), under its own name or `file_name`.
    With `check_hash`, a name like `resnet18-5c106cde.pth` says how its SHA-256 begins.
    """
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.fspath(model_dir)
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urllib.parse.urlsplit(url).path)
    file = os.path.join(folder, name)
    if not os.path.exists(file):
        print(f'Downloading: "{url}" to {file}', file=sys.stderr)
        digits = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, file, digits[1] if digits else None, progress=progress)
    return _load_file(_unpacked(Path(file)), map_location, weights_only=weights_only)


def _unpacked(file: Path) -> Any:
    """The file, or the one that a zip archive around it holds (archives of torch hold many)."""
    if not zipfile.is_zipfile(file):
        return file
    with zipfile.ZipFile(file) as archive:
        held = archive.infolist()
        if len(held) != 1 or held[0].is_dir():
            return file
        if held[0].file_size > _MOST_PACKED * file.stat().st_size:
            raise RuntimeError(f"{file}: unpacked it would be {held[0].file_size} bytes")
        return io.BytesIO(archive.read(held[0]))
