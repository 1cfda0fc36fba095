"""How metas and static arguments are written in graphs: exactly, so that they can be read back.

`float32[2, 3]` is contiguous on the host; `{1, 2}` behind it are other strides, `@meta` is another
device. See `ir/text.py` for the reader.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import shape as sh
from lucerne._src.base.device import HOST
from lucerne._src.ir.meta import TensorMeta


def meta_text(meta: Any) -> str:
    """The type of a value: a tensor's, a number's, or `object` for what only a backend knows."""
    if isinstance(meta, TensorMeta):
        text = f"{meta.dtype.name}{list(map(int, meta.shape))}"
        if tuple(meta.strides) != tuple(sh.contiguous_strides(tuple(meta.shape))):
            text += f"{{{', '.join(map(str, meta.strides))}}}"
        if str(meta.device) != HOST:
            text += f"@{meta.device}"
        return text + " flipped" if meta.flipped else text
    return meta.__name__ if isinstance(meta, type) else "object"


def static_text(a: Any) -> str:
    """An argument: numbers, strings, dtypes and tuples as Python has them.

    What has no text of its own (a generator) is its type in angle brackets: that can't be read.
    """
    if isinstance(a, tuple):
        inner = ", ".join(map(static_text, a))
        return f"({inner},)" if len(a) == 1 else f"({inner})"
    if isinstance(a, list):
        return f"[{', '.join(map(static_text, a))}]"
    if isinstance(a, complex):
        return f"complex({static_text(a.real)}, {static_text(a.imag)})"
    if isinstance(a, float):
        if math.isnan(a) and math.copysign(1.0, a) < 0:
            return "-nan"
        return float.__repr__(a)
    if isinstance(a, int) and not isinstance(a, bool):
        return int.__repr__(a)
    if isinstance(a, (bool, str)) or a is None or a is ...:
        return "..." if a is ... else repr(a)
    if isinstance(a, slice):
        return f"slice({', '.join(map(static_text, (a.start, a.stop, a.step)))})"
    if hasattr(a, "nodes") and hasattr(a, "writes"):  # a graph inside a node, on one line
        return f"{{{'; '.join(line.strip() for line in str(a).splitlines())}}}"
    text = repr(a)
    plain = text.startswith(("torch.", "device(", "%"))
    return text if plain else f"<{type(a).__name__}>"
