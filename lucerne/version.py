"""Versions: of Lucerne, and of the PyTorch whose behaviour it follows.

Programs look at `torch.__version__` to learn what they may call. So `lucerne.__version__` says that
first, and after the plus sign which Lucerne this is.
"""

from __future__ import annotations

from lucerne._src.torch_version import TorchVersion as TorchVersion

lucerne = "0.1.0"
follows = "2.15.0"

debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "unknown"


__version__ = TorchVersion(f"{follows}+lucerne.{lucerne}")
