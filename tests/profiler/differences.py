"""Where top-level names differ from PyTorch's, and why. Nothing else may."""

from __future__ import annotations

_ENGINE = "autograd::engine::evaluate_function: "

UNSEEN = {
    "aten::broadcast_tensors": "losses broadcast inside their op here, not before it",
    "aten::detach": "no op: a tensor over the same memory, which nothing has to run for",
    "aten::resolve_conj": "no op: what is no conjugate is the tensor itself",
    "aten::resolve_neg": "the same",
    _ENGINE + "LogSoftmaxBackward0": "cross_entropy has one derivative here, not two in a row",
    _ENGINE + "TBackward0": "linear takes the weight as it is: no transpose to go back through",
}
"""PyTorch's names that don't show here."""

RENAMED = {
    "aten::rsub": ("aten::sub", "`1 - x` is sub with a number in front"),
    "aten::mT": ("aten::transpose", "`x.mT` is a property that calls it"),
    "aten::expand_as": ("aten::expand", "F.normalize expands to a shape it knows"),
}
"""PyTorch's names, and what shows instead."""

MORE = {"indexing": ("aten::slice", "`x[:, 1]` takes a slice for the `:`")}
"""Names that show once more here, by program."""


def translated(names: list[str], program: str) -> list[str]:
    """What PyTorch showed, as it has to show here."""
    found = [RENAMED[n][0] if n in RENAMED else n for n in names if n not in UNSEEN]
    if program in MORE:
        more = MORE[program][0]
        found.insert(found.index(more), more)
    return found
