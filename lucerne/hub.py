"""`lucerne.hub`: models from the network. Lucerne fetches nothing by itself, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from lucerne._src.base.config import torch_home


class _Place:
    folder: Path | None = None
    """What `set_dir` set."""


def _get_torch_home() -> str:
    """Where torch keeps what it has fetched: `TORCH_HOME`, or `torch` in the user's cache."""
    return torch_home()


def get_dir() -> str:
    """Where torch keeps what its hub has fetched."""
    return str(_Place.folder or Path(_get_torch_home()) / "hub")


def set_dir(d: Any) -> None:
    _Place.folder = Path(d)


def _refuse(what: str, instead: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.hub.{what}: Lucerne downloads nothing and runs no code from the network. {instead}"
    )


def load(repo_or_dir: Any, model: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuses: it would run a repository's code."""
    _refuse("load", "Clone the repository, read it, and import its model.")


def list(github: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuses: it would run a repository's code."""
    _refuse("list", "Clone the repository and look into its hubconf.py.")


def help(github: str, model: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuses: it would run a repository's code."""
    _refuse("help", "Clone the repository and look into its hubconf.py.")


def download_url_to_file(url: str, dst: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuses to download."""
    _refuse("download_url_to_file", f"Download {url} to {dst} yourself.")


def load_state_dict_from_url(url: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refuses to download."""
    _refuse(
        "load_state_dict_from_url",
        f"Download {url} yourself and read it with torch.load(path, weights_only=True).",
    )
