"""`lucerne.as_torch`: `import torch`, answered by Lucerne.

`install()` in a program, `python -m lucerne.as_torch script.py` for one that shall not be changed,
`lucerne torch install` for an environment.
"""

from __future__ import annotations

from lucerne._src.as_torch.finder import install as install

__all__ = ["install"]
