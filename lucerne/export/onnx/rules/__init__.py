"""What ops are in ONNX, by family."""

from __future__ import annotations

from lucerne.export.onnx.rules import arrange, control, index, layers, move, view

_FAMILIES = (view, move, arrange, index, layers, control)


def load_rules() -> int:
    """All rules are entered when this module is; how many families there are."""
    return len(_FAMILIES)
