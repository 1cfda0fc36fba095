"""How sparse tensors print."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.tensor.autograd.state import requires_grad
from lucerne._src.tensor.format import add_suffixes, contents_text
from lucerne._src.tensor.interop.outside import values
from lucerne._src.tensor.sparse.kinds import BY_ROWS, SparseTensor


def represent(self: Any, **options: Any) -> str:
    """The text torch shows for a sparse tensor."""
    coo = self.is_sparse
    names = ["indices"] if coo else ["crow_indices", "col_indices"]
    if not coo and self.layout not in BY_ROWS:
        names = ["ccol_indices", "row_indices"]
    parts = zip([*names, "values"], self._parts(), strict=True)
    text = ",\n       ".join(f"{name}={_indented(t, len(name) + 8)}" for name, t in parts)
    facts = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
    common = (defaults.get_default_dtype(), dt.int64, dt.bool_, defaults.default_complex())
    if self.dtype not in common:
        facts.append(f"dtype={self.dtype}")
    facts.append(f"layout={self.layout}")
    if self.grad_fn is not None:
        facts.append(f"grad_fn=<{self.grad_fn.name()}>")
    elif requires_grad(self):
        facts.append("requires_grad=True")
    if coo:
        text, facts = f"{text},\n       {facts[0]}", facts[1:]
    shown = add_suffixes(f"tensor({text}", facts, 7)
    return f"Parameter containing:\n{shown}" if getattr(self, "_is_param", False) else shown


def _indented(t: Any, width: int) -> str:
    """The text of a part; it shows no dtype, which stands at the end of the whole."""
    empty = f", size={tuple(t.shape)}" if not t.numel() else ""
    return f"tensor({contents_text(values(t), width + 7)}{empty})"


SparseTensor.__repr__ = represent  # type: ignore[method-assign, assignment]
