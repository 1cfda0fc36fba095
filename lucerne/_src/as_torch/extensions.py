"""`torch.ops.load_library`: nothing made for libtorch is loaded, two libraries' ops are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lucerne._src.as_torch.extension_ops import audio, vision

_KNOWN = {
    ("torchvision", "_C"): vision.register,
    ("torchvision", "_C_stable"): vision.register,
    ("lib", "_torchaudio"): audio.register,
    ("lib", "libtorchaudio"): audio.register,
}
"""By folder and name of the file: who enters the operators that it would."""


def load_library(path: Any) -> None:
    """Enter the operators of a library that Lucerne has in Python.

    Others are refused, with the error that libraries expect of one that is not there.
    """
    file = Path(path)
    known = _KNOWN.get((file.parent.name, file.name.partition(".")[0]))
    if known is None:
        raise OSError(
            f"{path}: Lucerne loads no extension made for libtorch. Operators can be registered in "
            "Python (torch.library) or compiled from C++ (torch.utils.cpp_extension, see "
            "docs/extend/cpp.md)"
        )
    known()
