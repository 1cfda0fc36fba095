"""The functions of a built program, which C calls: written once, told everything by tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucerne._src.backends.contract.objects import WeightsFile
from lucerne._src.backends.cpu.aot import words as W
from lucerne._src.backends.cpu.aot.layout import SCRATCH, PackJob
from lucerne._src.backends.cpu.aot.processor import LACKS, write_lacks
from lucerne._src.backends.cpu.emit.builder import (
    I1,
    I8,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.backends.cpu.program.blocks import ALIGNMENT
from lucerne._src.backends.cpu.runtime import pool

_PRIME, _BASIS = 0x100000001B3, 0xCBF29CE484222325
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@dataclass
class Layout:
    """Numbers that the functions are written with."""

    prefix: str
    sizes: int
    """How many a call gives."""
    variants: int
    results: int
    """Of a call, without flags."""
    flags: int
    blocks: int
    """Bytes of the largest variant's blocks."""
    scratch: int
    model: int
    """Bytes of a model."""
    has_pool: bool
    wants_tiles: bool

    @property
    def flags_at(self) -> int:
        return 8 * (W.CONTEXT_RESULTS + self.results + self.flags)

    @property
    def blocks_at(self) -> int:
        return _up(self.flags_at) + W.FLAG_BYTES * self.flags

    @property
    def scratch_at(self) -> int:
        return self.blocks_at + _up(self.blocks)

    @property
    def context(self) -> int:
        """Bytes of a context."""
        return self.scratch_at + _up(max(self.scratch, 1))


def _up(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def fingerprint(head: bytes) -> int:
    """What tells the head of one file of weights from another's (FNV-1a)."""
    found = _BASIS
    for byte in head:
        found = (found ^ byte) * _PRIME & (1 << 64) - 1
    return found


class RunnerWriter:
    """Writes them into a module that has the tables."""

    def __init__(
        self, m: Module, layout: Layout, weights: WeightsFile, jobs: Sequence[PackJob]
    ) -> None:
        self.m, self.layout, self.weights, self.jobs = m, layout, weights, jobs

    def write(self) -> None:
        self._number("model_bytes", self.layout.model)
        self._number("context_bytes", self.layout.context)
        self._write_fingerprint()
        write_lacks(self.m, HOST)
        self._write_model_init()
        self._write_context_init()
        self._write_place()
        self._write_run()
        self._write_error()
        self._write_set_threads()

    def _name(self, name: str) -> str:
        return f"{self.layout.prefix}_{name}"

    def _number(self, name: str, value: int) -> None:
        with self.m.function(self._name(name), [], I64) as f:
            f.ret(value)

    # ---- models --------------------------------------------------------------------------------

    def _write_fingerprint(self) -> None:
        with self.m.function("fingerprint", [("data", PTR), ("n", I64)], I64, internal=True) as f:
            data, n = f.args
            with f.loop(0, n, carry=[f.constant(_BASIS - (1 << 64))]) as loop:
                byte = f.convert("zext", f.load(I8, f.at(data, loop.index)), I64)
                loop.next(f.bits("xor", loop.carried[0], byte) * _PRIME)
            f.ret(loop.results[0])

    def _write_model_init(self) -> None:
        params = [("model", PTR), ("weights", PTR), ("nbytes", I64)]
        with self.m.function(self._name("model_init"), params, I64) as f:
            model, given, nbytes = f.args
            most = max((len(j.packing.words) for j in self.jobs), default=0)
            block = f.stack(8 * (3 + most))
            self._refuse(f, _is_crooked(f, model), W.NOT_ALIGNED)
            lacks = f.call(LACKS, I1, [])
            self._refuse(f, lacks, W.NO_INSTRUCTIONS)
            if self.layout.wants_tiles:
                asked = [f.constant(x) for x in (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)]
                status = f.call("syscall", I64, asked, more_after=1)
                self._refuse(f, f.compare("ne", status, 0), W.NO_TILES)
            weights = self._found_weights(f, given, nbytes)
            _set(f, model, W.MODEL_WEIGHTS, weights)
            for k, job in enumerate(self.jobs):
                count = len(job.packing.words)
                f.copy_bytes(f.at(block, 24), f.symbol(f"pack{k}"), 8 * count)
                _set(f, block, 0, f.at(model, job.target))
                _set(f, block, 1, f.at(weights, job.source))
                entry = f.word(f.symbol("pack_entries"), k, PTR)
                f.call_at(entry, I64, [block])
            f.ret(0)

    def _found_weights(self, f: LLVMFunction, given: LLVMValue, nbytes: LLVMValue) -> LLVMValue:
        """Those that were given, after a look at their head; else those inside."""
        known = self.weights
        if not known.nbytes:
            return given
        none = f.compare("eq", given, f.zero(PTR))
        if not known.inside:
            self._refuse(f, none, W.NO_WEIGHTS)
        with f.if_(f.compare("ne", given, f.zero(PTR))):
            self._refuse(f, f.compare("lt", nbytes, known.nbytes), W.OTHER_WEIGHTS)
            head = f.call("fingerprint", I64, [given, len(known.head)])
            want = _as_signed(fingerprint(known.head))
            self._refuse(f, f.compare("ne", head, want), W.OTHER_WEIGHTS)
        if not known.inside:
            return given
        return f.select(none, f.symbol(self._name("weights")), given)

    def _refuse(self, f: LLVMFunction, condition: LLVMValue, code: int) -> None:
        with f.if_(condition):
            f.ret(code)

    # ---- contexts ------------------------------------------------------------------------------

    def _write_context_init(self) -> None:
        params = [("context", PTR), ("model", PTR)]
        with self.m.function(self._name("context_init"), params, I64) as f:
            context, model = f.args
            self._refuse(f, _is_crooked(f, context), W.NOT_ALIGNED)
            _set(f, context, W.CONTEXT_MODEL, model)
            _set(f, context, W.CONTEXT_VARIANT, f.constant(-1))
            bases = (f.word(model, W.MODEL_WEIGHTS, PTR), model, f.at(context, self._scratch_at))
            for k, base in enumerate(bases):
                _set(f, context, W.CONTEXT_BASES + k, base)
            for k in range(self.layout.flags):
                place = f.at(context, _up(self.layout.flags_at) + W.FLAG_BYTES * k)
                _set(f, context, W.CONTEXT_RESULTS + self.layout.results + k, place)
            f.ret(0)

    @property
    def _scratch_at(self) -> int:
        assert SCRATCH == 2, "the bases stand in this order"
        return self.layout.scratch_at

    def _write_place(self) -> None:
        """`place(patches, count, bases, blocks)`: write what each patch says."""
        params = [("patches", PTR), ("count", I64), ("bases", PTR), ("blocks", PTR)]
        with self.m.function("place", params, internal=True) as f:
            patches, count, bases, blocks = f.args
            with f.loop(0, count) as loop:
                patch = f.at(patches, loop.index * (8 * W.PATCH_WORDS))
                both = f.word(patch, 0)
                word = f.bits("and", both, (1 << W.BASE_SHIFT) - 1)
                base = f.load(PTR, f.at(bases, f.bits("lshr", both, W.BASE_SHIFT), I64), align=8)
                f.store(f.at(base, f.word(patch, 1)), f.at(blocks, word, I64), align=8)

    # ---- calls ---------------------------------------------------------------------------------

    def _write_run(self) -> None:
        layout = self.layout
        params = [("context", PTR), ("sizes", PTR), ("inputs", PTR), ("outputs", PTR)]
        with self.m.function(self._name("run"), params, I64) as f:
            context, sizes, inputs, outputs = f.args
            number = self._variant_of(f, sizes)
            self._refuse(f, f.compare("lt", number, 0), W.NO_SIZES)
            variant = f.at(f.symbol("variants"), number * (8 * W.VARIANT_WORDS))
            blocks = f.at(context, layout.blocks_at)
            known = f.word(context, W.CONTEXT_VARIANT)
            with f.if_(f.compare("ne", known, number)):
                size = f.word(variant, W.TEMPLATE_BYTES)
                f.copy_bytes(blocks, f.word(variant, W.TEMPLATE, PTR), size)
                bases = f.at(context, 8 * W.CONTEXT_BASES)
                self._place(f, variant, W.FIXED, bases, blocks)
                _set(f, context, W.CONTEXT_VARIANT, number)
            results = f.at(context, 8 * W.CONTEXT_RESULTS)
            f.copy_bytes(results, outputs, 8 * layout.results)
            self._place(f, variant, W.INPUTS, inputs, blocks)
            self._place(f, variant, W.RESULTS, results, blocks)
            failed = self._run_steps(f, context, variant, blocks)
            with f.if_(f.compare("ne", failed, 0)):
                f.ret(failed)
            self._look_at_flags(f, context, variant)
            f.ret(0)

    def _place(
        self, f: LLVMFunction, variant: LLVMValue, which: int, bases: LLVMValue, blocks: LLVMValue
    ) -> None:
        table, count = f.word(variant, which, PTR), f.word(variant, which + 1)
        f.call("place", VOID, [table, count, bases, blocks])

    def _variant_of(self, f: LLVMFunction, sizes: LLVMValue) -> LLVMValue:
        """The number of the variant for these sizes, or -1."""
        if not self.layout.sizes:
            return f.constant(0)
        table = f.symbol("sizes")
        with f.loop(0, self.layout.variants, carry=[f.constant(-1)]) as loop:
            row = f.at(table, loop.index * (8 * self.layout.sizes))
            differ = f.constant(0)
            for k in range(self.layout.sizes):
                differ = f.bits("or", differ, f.bits("xor", f.word(row, k), f.word(sizes, k)))
            fits = f.compare("eq", differ, 0)
            loop.next(f.select(fits, loop.index, loop.carried[0]))
        return loop.results[0]

    def _run_steps(
        self, f: LLVMFunction, context: LLVMValue, variant: LLVMValue, blocks: LLVMValue
    ) -> LLVMValue:
        """0, or the number of the error; then the blocks are no longer what they were."""
        steps, first = f.word(variant, W.STEPS, PTR), f.word(variant, W.FIRST_ERROR)
        with f.loop(0, f.word(variant, W.STEP_COUNT)) as loop:
            step = f.at(steps, loop.index * (8 * W.STEP_WORDS))
            status = f.call_at(f.word(step, 0, PTR), I64, [f.at(blocks, f.word(step, 1))])
            with f.if_(f.compare("ne", status, 0)):
                _set(f, context, W.CONTEXT_VARIANT, f.constant(-1))
                f.ret(first + loop.index)
        return f.constant(0)

    def _look_at_flags(self, f: LLVMFunction, context: LLVMValue, variant: LLVMValue) -> None:
        after = f.word(variant, W.FIRST_ERROR) + f.word(variant, W.STEP_COUNT)
        for k in range(self.layout.flags):
            place = f.at(context, _up(self.layout.flags_at) + W.FLAG_BYTES * k)
            with f.if_(f.compare("ne", f.load(I8, place), 0)):
                f.ret(after + k)

    # ---- the rest ------------------------------------------------------------------------------

    def _write_error(self) -> None:
        """`error(code)`: its text."""
        with self.m.function(self._name("error"), [("code", I64)], PTR) as f:
            table = f.symbol("messages")
            count = f.word(table, 0)
            number = f.args[0] + (-min(W.MESSAGES))
            outside = f.compare("uge", number, count)
            f.ret(f.word(f.at(table, f.select(outside, count, number), I64), 1, PTR))

    def _write_set_threads(self) -> None:
        with self.m.function(self._name("set_threads"), [("n", I64)]) as f:
            if not self.layout.has_pool:
                return
            n = f.minimum(f.maximum(f.args[0], 1), pool.MAX_THREADS)
            f.store(n, f.symbol("lucerne_threads"), align=8)
            f.store(f.constant(pool.SPINS), f.symbol("lucerne_spins"), align=8)


def _is_crooked(f: LLVMFunction, memory: LLVMValue) -> LLVMValue:
    low = f.bits("and", f.convert("ptrtoint", memory, I64), ALIGNMENT - 1)
    return f.compare("ne", low, 0)


def _set(f: LLVMFunction, block: LLVMValue, index: int, value: LLVMValue) -> None:
    f.store(value, f.at(block, 8 * index), align=8)


def _as_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
