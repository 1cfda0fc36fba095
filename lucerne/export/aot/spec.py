"""What the process that writes is told, and the names of the files that pass between the two."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SPEC, PROGRAM, WEIGHTS, ANSWER = "spec.json", "program.pt2", "weights.safetensors", "answer.json"


@dataclass
class Spec:
    """A program to be written."""

    prefix: str
    sizes: list[dict[str, int]]
    """By symbol of the program's template."""
    inside: bool
    """Whether the object will have the weights inside."""
    lines: list[Any]
    """Of each node of the graph: the fields of its `Origin`, or None."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Spec:
        return cls(**json.loads(path.read_text(encoding="utf-8")))
