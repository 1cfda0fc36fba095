"""Where lazy mode had to run what it had written down, why, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field

from lucerne._src.base.process.source_location import Place, describe

READ, SHAPE, RANDOM, LONG, STEP, END, OTHER, ASKED = (
    "a value is looked at", "the shape of a result depends on values",
    "random numbers depend on values that are not there yet", "the graph has become long",
    "the optimizer's step is done", "lazy mode ends", "an op that a graph can't hold",
    "somebody asked for it",
)  # fmt: skip
FIXES: dict[str, str] = {
    READ: "look at it after the loop, or every so many steps",
    SHAPE: "torch.where and masks keep shapes fixed",
    RANDOM: "draw with fixed probabilities, or evaluate before",
    OTHER: "it runs by itself, as in eager mode",
}
"""What would make fewer cuts; the other reasons cost nothing."""


@dataclass
class CutReport:
    """What lazy mode did in this process.

    >>> import lucerne as torch
    >>> torch.lazy_report().clear()
    >>> with torch.lazy():
    ...     y = torch.ones(3) + 1
    ...     total = y.sum().item()
    >>> report = torch.lazy_report()
    >>> report.evaluated, list(report.cuts)[0][0]
    (1, 'a value is looked at')
    """

    evaluated: int = 0
    """Graphs that were run."""
    compiled: int = 0
    nodes: int = 0
    """Ops that went through graphs."""
    alone: int = 0
    """Ops that no graph could hold and that ran by themselves."""
    seconds_compiling: float = 0.0
    seconds_running: float = 0.0
    cuts: dict[tuple[str, Place | None], int] = field(default_factory=dict)
    """How often, by reason and the user's line."""

    def cut(self, why: str, place: Place | None) -> None:
        self.cuts[why, place] = self.cuts.get((why, place), 0) + 1

    def clear(self) -> None:
        """Begin anew."""
        self.__init__()  # type: ignore[misc]

    def __str__(self) -> str:
        found = self.evaluated - self.compiled
        lines = [
            f"lazy mode: {self.nodes} ops in {self.evaluated} graphs, {self.compiled} compiled "
            f"({self.seconds_compiling:.2f} s), {found} found again; {self.alone} ops ran alone"
        ]
        for (why, place), count in sorted(self.cuts.items(), key=lambda x: -x[1])[:20]:
            hint = f" ({FIXES[why]})" if why in FIXES else ""
            lines.append(f"  {count:6d} cuts at {describe(place)}: {why}{hint}")
        return "\n".join(lines)


REPORT = CutReport()
