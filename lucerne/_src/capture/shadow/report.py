"""What shadow mode says: what differs, who is to blame, how to see it alone, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base.process.source_location import Origin
from lucerne._src.capture.shadow.reproduce import script
from lucerne._src.ir.graph import Graph
from lucerne._src.pipeline import passes

GUARDS, RESULTS, ASSEMBLY, EAGER, UNKNOWN = (
    "guards", "results", "assembly", "eager kernel", "unknown",
)  # fmt: skip
MEANING: dict[str, str] = {
    "capture": "the captured graph does something else than the function",
    GUARDS: "a version was used for a call that it was not made for",
    "functionalize": "taking writes out of the graph changed what it computes",
    "partition": "cutting the graph into forward and backward changed what it computes",
    "kernel": "a kernel gives other numbers than its ops do one by one",
    EAGER: "the kernel of an op is wrong, in eager mode as well",
    "memory plan": "a value was overwritten before its last reader",
    "fusion": "the groups of ops run in a wrong order",
    ASSEMBLY: "all steps are right one by one, but not when they run as one program",
    RESULTS: "the program is right; how it is launched, or what is made of its results, is not",
    UNKNOWN: "no stage is wrong by itself",
}


@dataclass
class Finding:
    """One difference, explained.

    `stage` is a pass of `pipeline.passes.PASSES` or one of `MEANING`, `op` the first op that
    differs, `place` the user's line of it.
    """

    stage: str
    op: str
    difference: str
    place: Origin | None = None
    kernel: str = ""
    """The ops of the step, if it is a step's kernel."""
    seen: dict[str, str] = field(default_factory=dict)
    """What the user would have seen: by name, how it differs."""
    detail: str = ""
    graph: Graph | None = None
    inputs: list[Any] = field(default_factory=list)
    function: str = ""
    action: str = ""

    @property
    def line(self) -> str:
        p = self.place
        return "an unknown line" if p is None else f"{p.file}:{p.line} in {p.function}"

    @property
    def is_pass(self) -> bool:
        return any(p.name == self.stage for p in passes.PASSES)

    def __str__(self) -> str:
        meaning = "this pass changed what is computed" if self.is_pass else MEANING[self.stage]
        lines = [
            f"shadow mode: {self.function} compiled gives other numbers than eager.",
            f"  op:         {self.op or 'none in particular'}",
            f"  line:       {self.line}",
            f"  to blame:   {self.stage}: {meaning}",
            f"  difference: {self.difference}",
        ]
        if self.kernel:
            lines.append(f"  kernel:     {self.kernel}")
        if self.detail:
            lines.append(f"  detail:     {self.detail}")
        for name, text in list(self.seen.items())[:4]:
            lines.append(f"  you'd see:  {name}: {text}")
        lines.append(f"  what to do: {self.advice()}")
        if self.action:
            lines.append(f"  now:        {self.action}")
        if self.graph is not None:
            lines += [
                "  by itself (ready to run):",
                *("    " + x for x in self.script.splitlines()),
            ]
        return "\n".join(lines)

    def advice(self) -> str:
        """The way around it."""
        if self.is_pass:
            return f'compile with options={{"disable": ["{self.stage}"]}}, and report this text'
        if self.stage in ("kernel", "fusion", "memory plan", ASSEMBLY):
            return 'compile with options={"disable": ["fuse"]} or backend="eager", and report this'
        if self.stage == EAGER:
            return "eager mode is wrong too: use another op for it, and report this text"
        return "leave this function uncompiled (torch.compiler.disable), and report this text"

    @property
    def script(self) -> str:
        """A program that shows the fault by itself; empty: there is none."""
        return "" if self.graph is None else script(self.graph, self.inputs, self.stage)
