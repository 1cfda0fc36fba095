"""What goes wrong between programs and ONNX files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lucerne.export.errors import ExportError


class Refusal(NamedTuple):
    """One node that has no form in ONNX."""

    op: str
    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.op}: {self.reason}"


class OnnxExporterError(ExportError):
    """A program has no form in ONNX; `refusals` has every reason, not only the first."""

    def __init__(self, text: str, refusals: Sequence[Refusal] = ()) -> None:
        super().__init__(text)
        self.refusals = tuple(refusals)


class NotExpressibleError(Exception):
    """Raised by a rule: ONNX has no way to say this. The text says what."""


class OnnxImportError(RuntimeError):
    """An ONNX file is damaged, or asks for what can't be done here."""
