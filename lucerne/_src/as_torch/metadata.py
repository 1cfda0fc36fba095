"""The metadata of the distribution named torch. Loaded when somebody asks for it."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from lucerne import version


class TorchMetadata(importlib.metadata.Distribution):
    """The distribution, where only the hook is there."""

    def read_text(self, filename: str) -> str | None:
        return metadata() if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return path


def metadata() -> str:
    """The METADATA file."""
    return (
        "Metadata-Version: 2.1\n"
        "Name: torch\n"
        f"Version: {version.__version__}\n"
        "Summary: `import torch`, answered by Lucerne\n"
        "Requires-Python: >=3.11\n"
        f"Requires-Dist: lucerne=={version.lucerne}\n"
    )


def version_of_torch() -> str:
    """The version of the torch that is installed, as far as it says."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"
