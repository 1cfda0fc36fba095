"""Written programs as one object: kernels, tables, runner and thread pool in one module."""

from __future__ import annotations

from collections.abc import Sequence

from lucerne._src.backends.contract.backend import Executable
from lucerne._src.backends.contract.objects import (
    ObjectCode,
    UnwrittenError,
    Variant,
    WeightsFile,
    WrittenRunner,
)
from lucerne._src.backends.cpu.aot import words as W
from lucerne._src.backends.cpu.aot.layout import (
    COMES_ALONG,
    PackedWeights,
    Patch,
    Tables,
    VariantTables,
    Word,
    is_of_c,
)
from lucerne._src.backends.cpu.aot.runner import Layout, RunnerWriter
from lucerne._src.backends.cpu.emit.builder import Module
from lucerne._src.backends.cpu.runtime import pool, unlinked
from lucerne._src.backends.cpu.runtime.llvm import llvm
from lucerne._src.ir.program import Program

_POOL = "pool."
_TILES = "@llvm.x86.tdp"


class WrittenProgram(WrittenRunner):
    """A program whose kernels are text."""

    def __init__(self, program: Program, executables: Sequence[Executable]) -> None:
        self.program, self.executables = program, list(executables)

    def object_code(
        self, prefix: str, variants: Sequence[Variant], weights: WeightsFile
    ) -> ObjectCode:
        packed, tables = PackedWeights(), Tables()
        refused: list[tuple[str, str, str]] = []
        sheets = []
        for variant in variants:
            try:
                sheets.append(VariantTables(variant, packed, tables))
            except UnwrittenError as error:
                refused += error.steps
        if refused:
            raise UnwrittenError(list(dict.fromkeys(refused)))
        unit = ObjectUnit(prefix, sheets, packed, weights)
        unit.write(tables)
        return unit.emit()


class ObjectUnit:
    """The module of some variants."""

    def __init__(
        self,
        prefix: str,
        sheets: Sequence[VariantTables],
        packed: PackedWeights,
        weights: WeightsFile,
    ) -> None:
        self.m, self.sheets, self.weights = Module(), sheets, weights
        self.jobs = list(packed.jobs.values())
        for k, module in enumerate(unlinked.modules):
            self.m.adopt(module, unlinked.prefix_of(k))
        results = len(sheets[0].program.results) - len(sheets[0].variant.checks)
        self.layout = Layout(
            prefix, len(sheets[0].variant.sizes), len(sheets), results,
            len(sheets[0].variant.checks), max(8 * len(s.words) for s in sheets),
            max(s.scratch for s in sheets), packed.nbytes, self._write_pool(), self._has_tiles(),
        )  # fmt: skip

    def _write_pool(self) -> bool:
        if not COMES_ALONG & set(self.m.imports()):
            return False
        made = Module()
        pool.write_pool(pool.way_to_sleep())(made)
        self.m.adopt(made, _POOL, keep=frozenset(("lucerne_pfor",)))
        for name, place in (("lucerne_threads", pool.WANTED), ("lucerne_spins", pool.SPINS_AT)):
            self.m.alias(name, _POOL + pool.VARIABLE, place)
        return True

    def _has_tiles(self) -> bool:
        return any(_TILES in m.text() for m in unlinked.modules)

    # ---- tables --------------------------------------------------------------------------------

    def write(self, tables: Tables) -> None:
        m = self.m
        for name, words in tables.words.items():
            self._table(name, words)
        variants: list[Word] = []
        error = 1
        for k, sheet in enumerate(self.sheets):
            variants += self._variant(k, sheet, error)
            error += len(sheet.steps) + len(sheet.variant.checks)
        self._table("variants", variants)
        if self.layout.sizes:
            self._table("sizes", [n for s in self.sheets for n in s.variant.sizes])
        for k, job in enumerate(self.jobs):
            self._table(f"pack{k}", list(job.packing.words))
        if self.jobs:
            entries = [unlinked.name_at(j.packing.entry) for j in self.jobs]
            self._table("pack_entries", [x for x in entries if x is not None])
        self._messages()
        if self.weights.inside and self.weights.nbytes:
            m.hidden(f"{self.layout.prefix}_weights")
        RunnerWriter(m, self.layout, self.weights, self.jobs).write()

    def _table(self, name: str, words: Sequence[Word]) -> None:
        texts = [f"i64 {_text(w)}" for w in words]
        self.m.constant(name, f"[{len(texts)} x i64]", f"[{', '.join(texts)}]")

    def _variant(self, k: int, sheet: VariantTables, error: int) -> list[Word]:
        lists: dict[str, Sequence[Word]] = {
            "template": sheet.words,
            "fixed": _patches(sheet.fixed),
            "inputs": _patches(sheet.inputs),
            "results": _patches(sheet.results),
            "steps": [w for step in sheet.steps for w in step],
        }
        for name, words in lists.items():
            self._table(f"{name}{k}", words)
        made: list[Word] = [0] * W.VARIANT_WORDS
        for name, at, count in (
            ("template", W.TEMPLATE, 8 * len(sheet.words)),
            ("fixed", W.FIXED, len(sheet.fixed)),
            ("inputs", W.INPUTS, len(sheet.inputs)),
            ("results", W.RESULTS, len(sheet.results)),
            ("steps", W.STEPS, len(sheet.steps)),
        ):
            made[at : at + 2] = [f"{name}{k}", count]
        made[W.FIRST_ERROR] = error
        return made

    def _messages(self) -> None:
        """The texts of errors, by number from the least on; the last is that of numbers outside."""
        texts = [W.MESSAGES[k] for k in range(min(W.MESSAGES), 1)]
        for sheet in self.sheets:
            for step in sheet.program.steps:
                lines = ", ".join(map(str, step.origins))
                texts.append(f"{step.name} failed: what it was given is out of its range"
                             + (f" ({lines})" if lines else ""))  # fmt: skip
            texts += sheet.variant.checks
        words: list[Word] = [len(texts)]
        names: dict[str, str] = {}
        for text in [*texts, "no error of this program has this number"]:
            if text not in names:
                names[text] = f"text{len(names)}"
                data = text.encode() + b"\0"
                escaped = "".join(f"\\{b:02X}" for b in data)
                self.m.constant(names[text], f"[{len(data)} x i8]", f'c"{escaped}"', align=1)
            words.append(names[text])
        self._table("messages", words)

    # ---- the object ----------------------------------------------------------------------------

    def emit(self) -> ObjectCode:
        imports = sorted({*self.m.imports()} - {f"{self.layout.prefix}_weights"})
        assert all(map(is_of_c, imports)), imports
        facts = {
            "steps": sum(len(s.steps) for s in self.sheets), "kernels": len(unlinked.modules),
            "packed_weights": len(self.jobs), "model_bytes": self.layout.model,
            "context_bytes": self.layout.context, "threads": pool.MAX_THREADS,
            "triple": llvm().triple.decode(),
        }  # fmt: skip
        return ObjectCode(llvm().emit_object(self.m.text()), imports, facts)


def _patches(patches: Sequence[Patch]) -> list[Word]:
    return [w for p in patches for w in (p.word | p.base << W.BASE_SHIFT, p.offset)]


def _text(word: Word) -> str:
    """A word as LLVM's text."""
    if not isinstance(word, str):
        return str(word)
    symbol, _, offset = word.partition("+")
    place = f"getelementptr (i8, ptr @{symbol}, i64 {offset})" if offset else f"@{symbol}"
    return f"ptrtoint (ptr {place} to i64)"
