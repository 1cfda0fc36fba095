"""`torch.ops.load_library`: no C++ code is loaded."""

from __future__ import annotations

from typing import Any, NoReturn


def load_library(path: Any) -> NoReturn:
    """Refuses, with the error that libraries expect of a library that is not there."""
    raise OSError(
        f"{path}: Lucerne loads no C++ extension; operators can be registered in Python with "
        "torch.library"
    )
