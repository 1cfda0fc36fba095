# ruff: noqa: E501 - rows of a table
"""The planted bugs: a file under lucerne/, a text in it that stands there once, and what it becomes.

Bugs of the kinds that compilers have: a step off, a cast dropped, two memories taken for one or one for two, a
guard that doesn't look, a value freed or overwritten too early, operands swapped, a tail without its mask.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str


FUNCTIONALIZE = "_src/transforms/functionalize.py"
CSE = "_src/transforms/cse.py"
DEAD = "_src/transforms/dead.py"
FOLD = "_src/transforms/fold.py"
SIMPLIFY = "_src/transforms/simplify.py"
ARITHMETIC = "_src/transforms/rules/arithmetic.py"
MOVES = "_src/transforms/rules/moves.py"
PARTITION = "_src/transforms/partition.py"
READS = "_src/ir/checks/fused_reads.py"
GROUP = "_src/loops/group.py"
LOWER = "_src/loops/lower.py"
MEMORY = "_src/loops/memory.py"
ENTRY = "_src/capture/cache/entry.py"
LOOKED = "_src/capture/guards/tensor_reads.py"
TRACE = "_src/capture/trace/stand_ins.py"
RECORDER = "_src/capture/trace/recorder.py"
BACKWARD = "_src/capture/aot/backward.py"
MAKING = "_src/capture/cache/build.py"
PROGRAM = "_src/backends/cpu/fused/program.py"
LAYOUT = "_src/backends/cpu/fused/layout.py"
PASSES = "_src/backends/cpu/fused/passes.py"
UNIT = "_src/backends/cpu/fused/unit.py"
APPLY = "_src/backends/cpu/elementwise/apply.py"
ROWS = "_src/backends/cpu/fused/rows.py"
BLOCKS = "_src/backends/cpu/program/blocks.py"

MUTANTS: tuple[Mutant, ...] = (
    # mutation out of the graph
    Mutant("a region is read one element late", FUNCTIONALIZE,
           "tuple(meta.shape), meta.strides, offset), [meta])[0]",
           "tuple(meta.shape), meta.strides, offset + 1), [meta])[0]"),
    Mutant("a view keeps its value after a write", FUNCTIONALIZE,
           "if age != self.ages[root]:", "if age != self.ages[root] and v is root:"),
    Mutant("a whole write that is only a part", FUNCTIONALIZE,
           "if target.meta is root.meta and offset == 0:", "if target.meta.shape == root.meta.shape:"),
    Mutant("a written value is not converted", FUNCTIONALIZE,
           "if isinstance(source, Value) and source.meta is now.meta:", "if isinstance(source, Value):"),
    Mutant("a write to an input is forgotten", FUNCTIONALIZE,
           "if walk.ages[v] and v not in fresh", "if walk.ages[v] > 1 and v not in fresh"),
    Mutant("a view of a view begins at the first one", FUNCTIONALIZE,
           "start = _rescaled(source.offset, node.args[0].meta, old.meta) + offset", "start = offset"),
    Mutant("a region goes into the old value", FUNCTIONALIZE,
           "args = (now, source, tuple(meta.shape), meta.strides, offset)",
           "args = (self.known[root][1], source, tuple(meta.shape), meta.strides, offset)"),
    Mutant("results as they were at first", FUNCTIONALIZE,
           "made.outputs = (*(walk.current[r] for r in roots),",
           "made.outputs = (*(walk.known[r][1] for r in roots),"),
    # common subexpressions, dead code
    Mutant("the last argument doesn't count", CSE,
           "key = (node.op, *map(_item, args),", "key = (node.op, *map(_item, args[:-1] or args),"),
    Mutant("all floats are equal", CSE, "if kind is GivenFloat else exact(a)", "if kind is GivenFloat else kind if kind is float else exact(a)"),
    Mutant("the op doesn't count", CSE, "key = (node.op, *map", "key = (node.op.kind, *map"),
    Mutant("two results of the caller become one", CSE,
           "if any(a.index in aliases.leaving and b.index in aliases.leaving for a, b in pairs):",
           "if False:"),
    Mutant("writes are dead", DEAD,
           "wanted = {v.index for v in results(made)}", "wanted = {v.index for v in made.outputs}"),
    Mutant("only the first result keeps a node", DEAD,
           "any(v.index in wanted for v in node.outputs)", "node.outputs[0].index in wanted"),
    Mutant("one operand keeps its maker", DEAD,
           "wanted.update(v.index for v in operands(node.args))",
           "wanted.update(v.index for v in operands(node.args)[:2])"),
    # constants
    Mutant("a folded sum counts one dimension too few", FOLD, "count *= meta.shape[d]", "count = meta.shape[d]"),
    Mutant("a constant is what its first element is", FOLD,
           "if not elements.ndim or bool((_bits(elements) == _bits(first)).all()):", "if True:"),
    Mutant("a joined constant looks uniform", FOLD,
           "return node.op.kind == op_.POINTWISE or node.op.qualified in (\"cast\", \"clone_as\")", "return True"),
    # rules
    Mutant("a product with two is the other factor", ARITHMETIC,
           "return _beside(look, node, lambda x: _is(x, 1))", "return _beside(look, node, lambda x: _is(x, 2))"),
    Mutant("zero minus x is x", ARITHMETIC,
           "    a, b = node.args\n    number = look.number(b)\n", "    b, a = node.args\n    number = look.number(b)\n"),
    Mutant("alpha of two is none", ARITHMETIC, "if alpha == 1:", "if alpha in (1, 2):"),
    Mutant("where takes the other side", ARITHMETIC,
           "a = b = a if number else b", "a = b = b if number else a"),
    Mutant("a cast there and back loses nothing", MOVES,
           "return source if dtype is node.args[1] and holds(inner.args[1], dtype) else None",
           "return source if dtype is node.args[1] else None"),
    Mutant("of two casts the last counts", MOVES,
           "NewNode(CAST, (source, node.args[1])) if holds(inner.args[1], source.meta.dtype) else None",
           "NewNode(CAST, (source, node.args[1]))"),
    Mutant("a region laid out otherwise is all", MOVES,
           "or tuple(size) != tuple(meta.shape) or tuple(stride) != meta.strides:", "or tuple(size) != tuple(meta.shape):"),
    Mutant("parts change places around an empty one", MOVES,
           "full = tuple(t for t in tensors if t.meta.shape[dim])",
           "full = tuple(t for t in tensors[::-1] if t.meta.shape[dim])"),
    Mutant("a copy may be the same memory", SIMPLIFY,
           "if aliases.may_stand_for(found, node.outputs[0]):", "if found.meta is node.outputs[0].meta:"),
    # forward and backward
    Mutant("an overwritten input is read in backward", PARTITION,
           "if v.index in inputs and v.index not in cut.overwritten:", "if v.index in inputs:"),
    Mutant("the wrong value is kept", PARTITION,
           "saved.append(Saved(v, OUTPUT, places[v.index]))", "saved.append(Saved(v, OUTPUT, 0))"),
    Mutant("tangents in another order", PARTITION,
           "_started(list(wanted) + cut.tangents)", "_started(list(wanted) + cut.tangents[::-1])"),
    Mutant("gradients in another order", PARTITION,
           "backward.outputs = tuple(here[v.index] for v in cut.gradients)",
           "backward.outputs = tuple(here[v.index] for v in cut.gradients[::-1])"),
    Mutant("the layout of a gradient is taken on trust", BACKWARD,
           "if g._meta is meta:", "if g._meta.shape == meta.shape:"),
    Mutant("a missing gradient is one", BACKWARD,
           "return filled(tuple(meta.shape), 0, meta.dtype", "return filled(tuple(meta.shape), 1, meta.dtype"),
    # grouping
    Mutant("readers of views are not readers", GROUP,
           "self.readers.setdefault(base, []).append(at)", "self.readers.setdefault(v, []).append(at)"),
    Mutant("a part of a value is read where the value is made", READS,
           "return None if left else tuple(found)", "return tuple(found)"),
    Mutant("groups of any shape fit", GROUP,
           "return None if mine.full == other.full else OTHER_SHAPE", "return None if len(mine.full) == len(other.full) else OTHER_SHAPE"),
    Mutant("folds over other dimensions fit", GROUP,
           "same = (mine.full, mine.folds) == (other.full, other.folds)", "same = mine.full == other.full"),
    Mutant("ways around are not looked for", GROUP,
           "return not (self._detour(a, b) or self._detour(b, a))", "return True"),
    Mutant("groups in the order of their first node", GROUP,
           "    left = {id(g): len(waits[id(g)]) for g in groups}", "    left = {id(g): 0 for g in groups}\n    for g in groups:\n        after[id(g)] = []"),
    # places in memory
    Mutant("values are freed one step early", LOWER,
           "last = max(self.last.get(v, at), at)", "last = max(self.last.get(v, at) - 1, at)"),
    Mutant("reads through views don't keep a value", LOWER,
           "found[low._base(v)] = at", "found[v] = at"),
    Mutant("an input is overwritten while it is needed", LOWER,
           "if self.last.get(old, -1) > at or old in low.kept:", "if old in low.kept:"),
    Mutant("an input is overwritten by what reads it askew", LOWER,
           "alike = all(v is old for v in reads)", "alike = True"),
    Mutant("a region is put into a value still needed", LOWER,
           "if old not in self.room_of or self.last.get(old, -1) > at:", "if old not in self.room_of:"),
    Mutant("a region without what was there", LOWER,
           "            self._copy(self.place(old), self.place(new), node)\n        meta",
           "            self.place(old)\n        meta"),
    Mutant("a view begins where its base does", LOWER,
           "return Place(kind, index, offset + start + more, meta or v.meta)",
           "return Place(kind, index, offset + more, meta or v.meta)"),
    Mutant("inputs that change places see each other's new values", LOWER,
           "if base in targets and v not in saved:", "if False:"),
    Mutant("views of one value share a start", LOWER,
           "self.base[v] = base, start + part.offset * v.meta.dtype.itemsize",
           "self.base[v] = base, start + parts[0].offset * v.meta.dtype.itemsize"),
    Mutant("results made in a group for others are not written", LOWER,
           "if v in self.kept\n", "if self._base(v) is v and v in self.graph.outputs\n"),
    Mutant("too little room", MEMORY,
           "found: int = most(_ALIGN, -(-nbytes // _ALIGN) * _ALIGN)", "found = _ALIGN"),
    Mutant("a result's memory is used too long", MEMORY,
           "if room.last < until else None", "if room.last <= until else None"),
    Mutant("rooms in use together are one", MEMORY,
           "if r.first <= room.last and room.first <= r.last]", "if r.first < room.last and room.first < r.last]"),
    Mutant("a value is written over while it is needed", LOWER,
           "if room is None or room.last > at or start or v.meta is not new.meta:",
           "if room is None or start or v.meta is not new.meta:"),
    Mutant("freed room is given twice", MEMORY,
           "            self._free.remove((at, room))\n", "            pass\n"),
    # capture and guards
    Mutant("a capture for all sizes looks at nothing else", "_src/capture/symbolic/families.py",
           "if not found or self.guards.failure(leaves, shape, sizes=False) is not None:", "if not found:"),
    Mutant("numbers are not guarded", ENTRY,
           "if x is not value and not _equal(x, value):", "if type(x) is not type(value):"),
    Mutant("grad mode is not guarded", ENTRY, "if now != self.circumstances:", "if False:"),
    Mutant("a gradient that is there already is not guarded", LOOKED,
           "return grad is self.value", "return True"),
    Mutant("a returned view begins at the start", ENTRY,
           "return make_tensor(base._storage, x.offset, x.meta)", "return make_tensor(base._storage, 0, x.meta)"),
    Mutant("two outcomes are one object", ENTRY,
           "and not x.offset and x.index not in handed:", "and not x.offset:"),
    Mutant("gradients are not set", ENTRY,
           "if effect.outcome is not None:", "if effect.outcome is not None and effect.outcome.of_input:"),
    Mutant("arguments that share memory are apart", TRACE,
           "memory = self.memories.setdefault(at, NoBytes())", "memory = NoBytes()"),
    Mutant("a view as read starts elsewhere", RECORDER,
           "at = offset_of(t) - offset_of(first)", "at = offset_of(first)"),
    Mutant("a kept argument is another one", MAKING,
           "saved.append((True, place[kept.index]))", "saved.append((True, kept.index))"),
    # the program of a call
    Mutant("kernels work in the memory of values", BLOCKS,
           "self.workspace_at = -(-program.arena // ALIGNMENT) * ALIGNMENT", "self.workspace_at = 0"),
    Mutant("all results are the first one", BLOCKS, "return self._results + place.index", "return self._results"),
    Mutant("a constant is read from its start", BLOCKS,
           "address_of(self.program.constants[place.index]) + place.offset",
           "address_of(self.program.constants[place.index])"),
    Mutant("a value in a buffer is at its start", BLOCKS,
           ".append((word, place.offset))", ".append((word, 0))"),
    # kernels
    Mutant("a view in a kernel has no offset", PROGRAM,
           "(slot, out.meta, offset + geometry.offset * unit)", "(slot, out.meta, offset)"),
    Mutant("one axis for both dimensions of a value", PROGRAM,
           "if len(set(axes)) != len(axes):\n                raise NotTaken(\"one axis runs along two dimensions of a value\")",
           "if False:\n                raise NotTaken(\"never\")"),
    Mutant("a cast in a kernel is dropped", PROGRAM,
           "return FusedValue(self._add(Convert(seen.expr, out.dtype)), tuple(dims))", "return FusedValue(seen.expr, tuple(dims))"),
    Mutant("two loads are one", PROGRAM, "key = (slot, meta, offset)\n", "key = (slot, meta)\n"),
    Mutant("a copy broadcasts from the left", PROGRAM,
           "zip(reversed(dims), reversed(seen.dims), strict=False)", "zip(dims, seen.dims, strict=False)"),
    Mutant("an unrounded operand", APPLY,
           "            x = machine.rounded(x, common)\n", "            x = machine.to(x, kind)\n"),
    Mutant("values of a kernel are not rounded", APPLY,
           "return x if dtype.compute is dtype else machine.rounded(x, dtype)", "return x"),
    Mutant("a strip of the tail without its mask", ROWS,
           "moved(column + parts.index), 1, left - parts.index), parts.index)",
           "moved(column + parts.index), 1, left - parts.index + 1), parts.index)"),
    Mutant("a row short", ROWS,
           "stop = f.minimum(start + frame[\"chunk\"], frame[\"units\"])",
           "stop = f.minimum(start + frame[\"chunk\"], frame[\"units\"] - 1)"),
    Mutant("rows by the wrong size", ROWS,
           "index, rest = rest % size, rest // size", "index, rest = rest // size, rest % size"),
    Mutant("a tail without its mask", UNIT,
           "mask = f.low_mask(stop - loop.index, lanes)", "mask = f.low_mask(stop - loop.index + 1, lanes)"),
    Mutant("vectors side by side overlap", UNIT,
           "self._visit(walk, pointers, index + u * lanes, base, 0, inner[u], None, u)",
           "self._visit(walk, pointers, index, base, 0, inner[u], None, u)"),
    Mutant("loops merge that don't", LAYOUT,
           "if loops and all(\n                o == i * loop.size", "if loops and any(\n                o == i * loop.size"),
    Mutant("numbers of the code are not in its name", PASSES,
           "known = repr(e.value) if e.baked else type(e.value).__name__", "known = type(e.value).__name__"),
    Mutant("any quotient is a softmax", PASSES,
           "return schedule.is_full(a) and b.how == \"add\" and b.source is a and _is_shifted_exp(a)",
           "return schedule.is_full(a) and b.how == \"add\""),
    Mutant("a kept value where a result is written before it is read again", PASSES,
           "in self.passes[self._last_use(e, number) :]:", "in self.passes[number:]:"),
    Mutant("a sum reads a kept value after the result over it is written", UNIT,
           "sources = [spot.value(fold.source) for fold in walk.folds]", "sources = (spot.value(fold.source) for fold in walk.folds)"),
    Mutant("a kept value in a result of another pass", PASSES,
           "            for r in walk.results:\n                taken = r in self.in_result.values()",
           "            for r in self.program.results:\n                taken = False"),
)  # fmt: skip
