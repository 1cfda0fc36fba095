"""The proof that kernels stay inside their tensors: see `watch`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lucerne import backends
from tests.cpu.proof.cases import Case, all_cases, quietly
from tests.cpu.proof.compiled import Wrong
from tests.cpu.proof.watch import WatchedBackend
from tests.cpu.proof.workers import Notice, Result, run_all


@dataclasses.dataclass
class Row:
    """All cases of one op."""

    op: str
    cases: int = 0
    calls: int = 0
    refused: int = 0
    faults: int = 0
    touched: int = 0
    differing_bits: int = 0
    wrong: int = 0
    fallbacks: Counter[str] = dataclasses.field(default_factory=Counter)
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.faults or self.touched or self.differing_bits or self.wrong)

    def add(self, case: Case, result: Result) -> None:
        self.cases += 1
        if result.death:
            self.faults += 1
            self.notes.append(f"{result.death}: {case}: {result.doing}")
            return
        said = result.said
        self.calls += said["calls"]
        self.refused += bool(said["refused"])
        self.touched += said["touched"]
        self.differing_bits += said["differing_bits"]
        self.wrong += said["wrong"]
        self.fallbacks.update(said["fallbacks"])
        self.notes += [f"{case}: {note}" for note in said["notes"]]


class Proof:
    """A list of cases and the backend that runs them in the children."""

    def __init__(self, cases: Sequence[Case], backend: Any = WatchedBackend, more: bool = False):
        self.cases, self.backend, self.more = cases, backend, more
        self.watched: Any = None
        self.rows: dict[str, Row] = {}
        self.refusals: Counter[tuple[str, str]] = Counter()

    def run(self, processes: int) -> Proof:
        for result in run_all(len(self.cases), self._work, processes):
            case = self.cases[result.index]
            self.rows.setdefault(case.op, Row(case.op)).add(case, result)
            if result.said.get("refused"):
                self.refusals[case.op, result.said["refused"]] += 1
        return self

    def _work(self, index: int, notice: Notice) -> dict[str, Any]:
        """In the child: one case."""
        if self.watched is None:
            self.watched = self.backend(notice.write, more=self.more)
            backends.register("cpu", self.watched)
        found = self.watched.findings = type(self.watched.findings)()
        notice.write("before its first kernel")
        refused = ""
        try:
            refused = quietly(self.cases[index])
        except Wrong as problem:
            found.wrong += 1
            found.note(str(problem))
        return {**dataclasses.asdict(found), "refused": refused}

    # ---- the report --------------------------------------------------------------------------

    def total(self, field: str) -> int:
        return sum(getattr(row, field) for row in self.rows.values())

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows.values())

    def last_line(self) -> str:
        return (
            f"{len(self.rows)} ops, {len(self.cases)} cases ({self.total('refused')} refused), "
            f"{self.total('calls')} kernel calls: {self.total('faults')} faults, "
            f"{self.total('touched')} bytes touched, "
            f"{self.total('differing_bits')} differing bits, {self.total('wrong')} wrong results"
        )

    def table(self, every: bool) -> str:
        """Ops with problems, or every op."""
        lines = [
            f"{'op':<72}{'cases':>7}{'calls':>8}{'faults':>7}{'touched':>9}{'bits':>7}{'wrong':>6}"
        ]
        for row in sorted(self.rows.values(), key=lambda row: row.op):
            if every or not row.ok:
                lines.append(
                    f"{row.op[:71]:<72}{row.cases:>7}{row.calls:>8}{row.faults:>7}"
                    f"{row.touched:>9}{row.differing_bits:>7}{row.wrong:>6}"
                )
                lines += [f"    {note}" for note in row.notes[:6]]
        fallbacks: Counter[str] = sum((r.fallbacks for r in self.rows.values()), Counter())
        if fallbacks:
            named = ", ".join(f"{name} {count}" for name, count in fallbacks.most_common())
            lines.append(f"compiled by the reference backend, not proved: {named}")
        return "\n".join(lines)


def main(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    names: list[str] = options.op
    full = options.full or bool(names)
    found = all_cases(full=full, source=options.source)
    cases = [c for c in found if not names or any(name in c.op for name in names)]
    if not cases:
        print("no such op")
        return 2
    proof = Proof(cases, more=full).run(options.processes or os.cpu_count() or 1)
    print(proof.table(options.every))
    if options.refusals:
        for (op, why), count in proof.refusals.most_common():
            print(f"{count:>7} {op}: {why}")
    print(f"{proof.last_line()} ({time.perf_counter() - began:.0f} s)")
    return 0 if proof.ok else 1
