"""From a graph of element-wise ops and folds to one kernel, or a word that it can't be one."""

from __future__ import annotations

from lucerne._src.backends.cpu.fused.account import Account
from lucerne._src.backends.cpu.fused.frame import FusedWords
from lucerne._src.backends.cpu.fused.layout import LoopLayout
from lucerne._src.backends.cpu.fused.monoids import LONG, monoid
from lucerne._src.backends.cpu.fused.passes import Schedule, describe
from lucerne._src.backends.cpu.fused.program import NOWHERE, Fold, FusedProgram, Load
from lucerne._src.backends.cpu.fused.rows import write
from lucerne._src.backends.cpu.math.number import NotTaken
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.checks.index_maps import LoopWalk
from lucerne._src.ir.graph import Graph


def fused_kernel(graph: Graph) -> NativeKernel | None:
    """One kernel that computes all outputs of the graph; None: it does not have that form."""
    try:
        program = FusedProgram(graph)
        layout = LoopLayout(program)
        schedule = Schedule(layout)
        words = FusedWords(layout)
        code = compiled(_key(schedule), lambda m: write(m, schedule, words))
    except NotImplementedError:  # NotTaken, or a function the machine lacks
        return None
    return NativeKernel(
        code["entry"],
        outputs=len(graph.outputs),
        tensors=len(graph.inputs),
        extra=words.values,
        workspace=words.space,
        work=layout.work,
    )


def walk(graph: Graph) -> tuple[Graph, LoopWalk]:
    """What the loops of that kernel go through."""
    program = FusedProgram(graph)
    layout = LoopLayout(program)
    account = Account(program)
    for k, (v, r) in enumerate(zip(graph.outputs, program.results, strict=True)):
        account.store(v, r.memory.offset, k)
    for k, load in enumerate(e for e in program.exprs if isinstance(e, Load)):
        account.load(load, len(program.results) + k)
    loops = (*layout.kept, *layout.folded)
    return graph, account.walk([(loop.size, loop.steps) for loop in loops])


def _key(schedule: Schedule) -> tuple[object, ...]:
    """Everything the text depends on."""
    layout, program = schedule.layout, schedule.program
    at = {e: k for k, e in enumerate(program.exprs)}
    kept = tuple(at[e] for e in schedule.in_scratch), tuple(at[e] for e in schedule.in_result)
    wide = any(
        monoid(e.how, e.compute, layout.fold_size).types[-1].bits == 64
        for e in program.exprs
        if isinstance(e, Fold) and e.is_position
    )
    long = [layout.fold_size >= count for count in LONG.values()]
    full = tuple(schedule.is_full(e) for e in program.exprs)
    loops = (layout.way, layout.lanes, layout.unroll, len(layout.kept), len(layout.folded))
    even = [layout.starts_even(k) for k, m in enumerate(layout.operands) if m.slot == NOWHERE]
    how = (layout.splits > 1, schedule.in_groups, program.inputs, wide, *long, *even)
    return "rows", describe(program), layout.classes(), loops, how, kept, full


__all__ = ["NotTaken", "fused_kernel", "walk"]
