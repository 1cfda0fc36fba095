"""Grouping: which nodes of a graph one kernel computes.

A value that is made and read inside one kernel never goes through memory. Two shapes of groups pay:

* element-wise ops and folds over one set of dimensions, on tensors of one shape (`loops`);
* a heavy op (a matrix product, a normalisation) with the element-wise ops on its result (`head`),
  or, where the backend says so, with those that make its first operand (`prologue_anchors`).

Nodes are visited in order. Each joins the groups of what it reads when the shapes fit and nothing
between them would have to run both before and after the group. Whether a group is really one
kernel is the backend's word in the end (`lower`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.fused_reads import dims_read
from lucerne._src.ir.checks.may_raise import may_raise
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.graph import Graph, Node, Value, geometries, operands
from lucerne._src.loops.updates import COUNTS, LISTS, gradient_of, overwritten

_LARGE = 1 << 16
_MOST_BITS = 20_000
"""Nodes of a graph for which each has a bit for every other: 50 megabytes at most."""
_MOST_NODES = 40
"""A kernel with more ops than this takes long to compile and runs out of registers."""


TOO_MANY = "together they have more ops than one kernel should"
TWO_HEADS = "both have a heavy op, and a kernel is built around one"
COSTLY = "an op with long code would slow the heavy op's inner loop down"
READ_TWICE = "others read the heavy op's result too: it is written anyway, and so is the new one"
FOLD_BEHIND = "a fold needs all of the heavy op's result, which is made tile by tile"
OTHER_SIZE = "the heavy op's result has another number of elements"
BEFORE_HEAD = "it makes an operand of the heavy op, so it can't stand behind it"
OTHER_FOLDS = "they fold other dimensions"
OTHER_SHAPE = "they go through tensors of different shapes"
OTHER_INDEX = "one reads another part of the other's result than a loop has at hand when it is made"
ORDER = "something in between reads one of them and is read by the other"
"""Why two groups are not one."""


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def is_elementwise(node: Node) -> bool:
    return node.op.kind == op_.POINTWISE or node.op.elementwise


Space = tuple[tuple[int, ...], tuple[int, ...] | None, frozenset[int] | None]


class Group:
    """Nodes of one kernel. `full` is the shape of the space it walks (without ones)."""

    __slots__ = (
        "after", "before", "first", "folds", "full", "head", "last", "mask", "nodes", "rows",
        "updates",
    )  # fmt: skip

    def __init__(self, at: int, node: Node, before: int = 0, after: int = 0) -> None:
        self.nodes: dict[int, Node] = {at: node}
        self.mask, self.before, self.after = 1 << at, before, after
        """As bits: its nodes, all that they need, and those that read from them."""
        self.first = self.last = at
        self.head: Node | None = None
        self.full: tuple[int, ...] = ()
        self.rows: tuple[int, ...] | None = None
        """The shape that folds leave, when there are any."""
        self.folds: frozenset[int] | None = None
        """Which dimensions of `full` they fold."""
        self.updates = False
        """Whether a heavy op makes a gradient and the new values of its parameter."""

    @property
    def is_open(self) -> bool:
        """Whether nodes may join at all."""
        return bool(self.full) or self.head is not None

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an element-wise op on this shape fits the space."""
        if self.head is not None:  # views may cut its result anew
            return prod(shape) == prod(self.full)
        return shape == self.full or (shape == self.rows and self.ends_rows)

    @property
    def ends_rows(self) -> bool:
        """Folds over the last dimensions: what follows them can be done row by row."""
        assert self.folds is not None
        count = len(self.full)
        return self.folds == frozenset(range(count - len(self.folds), count))


@dataclass(frozen=True)
class Fusion:
    """What may become a group."""

    anchors: frozenset[str] = frozenset()
    """Heavy ops (by qualified name) that take element-wise ops on their result along."""
    prologue_anchors: frozenset[str] = frozenset()
    """Those of them that also take the ones that make their first operand."""
    folds: bool = True
    """Whether folds join others: the order in which they add depends on it."""
    is_costly: Callable[[Node], bool] = lambda node: False
    """Ops that heavy ones don't take along on large results: loops of their own do them better."""
    folds_into_loads: Callable[[Node], bool] = lambda node: False
    """Ops that heavy ones do while they read, at no cost: better done by each reader than once in
    memory."""
    recomputed_in_readers: Callable[[Node, Sequence[Node]], bool] = lambda node, readers: False
    """Whether all readers of an op would rather do it themselves, so that it joins nobody before:
    what makes its operand then writes fewer bytes."""
    updates: Callable[[Node, str], bool] = lambda node, op: False
    """Whether a heavy op can do an optimizer's step for the parameter whose gradient it makes."""
    most_nodes: int = _MOST_NODES


class Grouping:
    """The groups of a graph, in an order in which they can run."""

    def __init__(
        self, graph: Graph, fusion: Fusion, notes: list[tuple[int, int, str]] | None = None
    ) -> None:
        """`notes` gets (node, later node, why their groups were not joined), if anybody asks."""
        self.graph, self.fusion, self.notes = graph, fusion, notes
        self.maker: dict[Value, int] = {}
        """The node that makes a value."""
        self.source: dict[Value, Value] = {}
        """A view: what it is a view of."""
        self.starts: dict[Value, int] = {}
        """A view: where in its source it begins, in bytes."""
        self.same: dict[Value, Value] = {}
        """A view that keeps the order of elements: likewise, through all of them."""
        self.readers: dict[Value, list[int]] = {}
        """Nodes that read a value, themselves or through views."""
        self.elsewhere: dict[int, set[int]] = {}
        """Nodes that read what a node makes at other indices than it has at hand: no group may have
        both (`ir/checks/fused_reads.py`)."""
        self.leaving = {*graph.outputs, *(v for _, v in graph.writes)}
        """Values that somebody outside gets."""
        self.of: dict[int, Group] = {}
        """The group that a node is in now."""
        self.before: dict[int, int] = {}
        """As bits: the nodes that a node needs, directly or not."""
        self.after: dict[int, int] = {}
        """As bits: the nodes that read what a node makes."""
        self.makers: dict[int, list[int]] = {}
        """The nodes whose results a node reads."""
        self.has_bits = len(graph.nodes) <= _MOST_BITS
        for at, node in enumerate(graph.nodes):
            self._enter(at, node)
        for at, node in enumerate(graph.nodes):
            if node.op.kind != op_.VIEW:
                self._place(at, node)

    def _enter(self, at: int, node: Node) -> None:
        for v in node.outputs:
            self.maker[v] = at
        if node.op.kind == op_.VIEW:
            self._enter_views(node)
            return
        before, makers = 0, self.makers.setdefault(at, [])
        for v in operands(node.args):
            base = self.source.get(v, v)
            self.readers.setdefault(base, []).append(at)
            made = self.maker.get(base)
            if made is None:
                continue
            makers.append(made)
            if self.has_bits:
                before |= self.before[made] | (1 << made)
                self.after[made] |= 1 << at
            if v is not base and not self._reads_in_place(v, base):
                self.elsewhere.setdefault(made, set()).add(at)
        self.before[at], self.after[at] = before, 0

    def _enter_views(self, node: Node) -> None:
        source = node.args[0]
        keeps = node.op.keeps_order and (source not in self.source or source in self.same)
        for v, part in zip(node.outputs, geometries(node), strict=True):
            self.source[v] = self.source.get(source, source)
            self.starts[v] = self.starts.get(source, 0) + part.offset * v.meta.dtype.itemsize
            if keeps:
                self.same[v] = self.same.get(source, source)

    def _reads_in_place(self, v: Value, base: Value) -> bool:
        """Whether a view has its source's elements in their order, or at their own indices."""
        if v in self.same:
            return True
        same_type = v.meta.dtype is base.meta.dtype
        there = dims_read(base.meta, v.meta.shape, v.meta.byte_strides, self.starts[v])
        return same_type and there is not None

    # ---- one node ------------------------------------------------------------------------------

    def _place(self, at: int, node: Node) -> None:
        group = self.of[at] = Group(at, node, self.before[at], self.after[at])
        if node.op.qualified in LISTS:
            self._update(group, node)
            return
        space = self._space(node)
        if space is None:
            if node.op.qualified in self.fusion.anchors:
                group.head, group.full = node, squeezed(node.outputs[0].meta.shape)
                if node.op.qualified in self.fusion.prologue_anchors:
                    self._catch(group, node)
            return
        if self._is_for_readers(node):
            return
        group.full, group.rows, group.folds = space
        for other in self._makers(node):
            mine = self.of[at]
            if other is mine:
                continue
            why = self._apart(mine, other)
            if why is None:
                self._join(mine, other)
            elif self.notes is not None:
                self.notes.append((other.last, at, why))

    def _update(self, group: Group, node: Node) -> None:
        """The step of an optimizer joins the heavy op that makes the gradient, if that is alone."""
        gradient = gradient_of(node)
        if gradient is None or gradient not in self.maker:
            return
        heavy = self.of[self.maker[gradient]]
        if heavy.head is None or len(heavy.nodes) > 1:
            return
        read = {self.source.get(v, v) for v in operands(heavy.head.args)}
        apart = read.isdisjoint(overwritten(node))
        willing = self.fusion.updates(heavy.head, node.op.qualified)
        if apart and willing and self._may_join(heavy, group):
            self._join(group, heavy)
            heavy.full, heavy.updates = (), True  # what follows must not join

    def _is_for_readers(self, node: Node) -> bool:
        if not self.leaving.isdisjoint(node.outputs):
            return False
        readers = [self.graph.nodes[k] for k in self.readers.get(node.outputs[0], ())]
        return bool(readers) and self.fusion.recomputed_in_readers(node, readers)

    def _catch(self, head: Group, node: Node) -> None:
        """Take the element-wise group that makes the first operand into a heavy op's own."""
        first, *others = (self.source.get(v, v) for v in operands(node.args))
        if first is not node.args[0] or first not in self.maker:
            return
        group = self.of[self.maker[first]]
        plain = group.head is None and group.folds is None and group.full == head.full
        beside = any(v in self.maker and self.of[self.maker[v]] is group for v in others)
        few = len(group.nodes) < self.fusion.most_nodes
        if plain and few and not beside and self._may_join(group, head):
            self._join(group, head)
            head.full = ()  # what follows must not join: it would stand on both sides

    def _space(self, node: Node) -> Space | None:
        """(full shape, shape left by folds, folded dims) of a node that loops can take."""
        if len(node.outputs) != 1:
            return None
        if any(not hasattr(v.meta, "shape") for v in operands(node.args)):
            return None  # a number that is given at run time
        if may_raise(node):
            return None  # it runs though nobody may read its result
        out = node.outputs[0].meta
        if is_elementwise(node):
            if node.op.qualified == "filled" and type(node.args[1]) is Value:
                return None
            return (squeezed(out.shape) or (1,), None, None) if out.numel else None
        if node.op.kind != op_.REDUCTION or not self.fusion.folds:
            return None
        named = node.op.named(node.args)
        source = named["input"].meta
        if not source.numel:
            return None
        dims = reduced_dims(named.get("dim"), source.ndim)
        wide = [d for d, n in enumerate(source.shape) if n != 1]
        folds = frozenset(k for k, d in enumerate(wide) if d in dims)
        full = tuple(source.shape[d] for d in wide)
        rows = tuple(source.shape[d] for d in wide if d not in dims)
        return (full, rows, folds) if folds else None

    def _makers(self, node: Node) -> list[Group]:
        """Groups whose results it reads element by element, those of heavy ops first."""
        found: dict[Group, int] = {}
        for v in operands(node.args):
            base = self.same.get(v, v if v not in self.source else None)
            if base is not None and base in self.maker:
                group = self.of[self.maker[base]]
                if group.is_open:
                    found[group] = max(found.get(group, 0), base.meta.numel)
        return sorted(found, key=lambda g: (g.head is None, -found[g], -g.last))

    def _apart(self, mine: Group, other: Group) -> str | None:
        """Why two groups can't be one; None: they can."""
        why = self._misfit(mine, other)
        if why is None and self._reads_elsewhere(mine.nodes.keys() | other.nodes.keys()):
            why = OTHER_INDEX
        return why if why is not None or self._may_join(other, mine) else ORDER

    def _reads_elsewhere(self, nodes: set[int]) -> bool:
        """Whether some of these nodes read of others what is not at hand in a loop of them all."""
        elsewhere = self.elsewhere
        return any(at in elsewhere and not elsewhere[at].isdisjoint(nodes) for at in nodes)

    def _misfit(self, mine: Group, other: Group) -> str | None:
        """Why two groups don't walk the same space; None: they do."""
        if len(mine.nodes) + len(other.nodes) > self.fusion.most_nodes:
            return TOO_MANY
        if mine.head is not None and other.head is not None:
            return TWO_HEADS
        if mine.head is not None or other.head is not None:
            head, rest = (mine, other) if mine.head is not None else (other, mine)
            return self._misfit_of_head(head, rest)
        if mine.folds is not None and other.folds is not None:
            same = (mine.full, mine.folds) == (other.full, other.folds)
            return None if same else OTHER_FOLDS
        if mine.folds is None and other.folds is None:
            return None if mine.full == other.full else OTHER_SHAPE
        folding, plain = (mine, other) if mine.folds is not None else (other, mine)
        return None if folding.accepts(plain.full) else OTHER_SHAPE

    def _misfit_of_head(self, head: Group, rest: Group) -> str | None:
        if prod(head.full) > _LARGE:
            if any(map(self.fusion.is_costly, rest.nodes.values())):
                return COSTLY
            if not self._pays(head, rest):
                return READ_TWICE
        if rest.folds is not None:
            return FOLD_BEHIND
        if not head.accepts(rest.full):
            return OTHER_SIZE
        return None if self._follows(head, rest) else BEFORE_HEAD

    def _pays(self, head: Group, rest: Group) -> bool:
        """Whether nodes behind a heavy op with a large result take the place of a value that nobody
        else reads: else the group would write more than the op alone."""
        inside = head.nodes.keys() | rest.nodes.keys()
        made = [v for node in head.nodes.values() for v in node.outputs]
        read = {self.source.get(v, v) for n in rest.nodes.values() for v in operands(n.args)}
        return any(
            v in read and v not in self.leaving and inside.issuperset(self.readers.get(v, ()))
            for v in made
        ) or not read.intersection(made)

    def _follows(self, head: Group, rest: Group) -> bool:
        """Whether element-wise nodes stand behind a heavy op, none of them before it."""
        assert head.head is not None
        return not any(
            self.of[self.maker[base]] is rest
            for v in operands(head.head.args)
            if (base := self.source.get(v, v)) in self.maker
        )

    # ---- joining -------------------------------------------------------------------------------

    def _may_join(self, a: Group, b: Group) -> bool:
        """No group that runs after one of them must run before the other."""
        return not (self._detour(a, b) or self._detour(b, a))

    def _detour(self, start: Group, goal: Group) -> bool:
        """Whether a way leads from one to the other through a third.

        Searched from both ends in turn: where one of them has few neighbours it is soon over, as
        for the derivative of an early activation, which the forward pass may compute as well.
        """
        if start.after & ~(start.mask | goal.mask) & goal.before:
            return True  # from node to node: long, and known at once
        ahead = [g for g in self._readers_of(start) if g is not goal]
        back = [g for g in self._makers_of(goal) if g is not start]
        seen_ahead, seen_back = {start}, {goal}
        while ahead and back:
            group = ahead.pop()
            if group is goal:
                return True
            if group not in seen_ahead:
                seen_ahead.add(group)
                ahead.extend(self._readers_of(group))
            group = back.pop()
            if group is start:
                return True
            if group not in seen_back:
                seen_back.add(group)
                back.extend(self._makers_of(group))
        return False

    def _readers_of(self, group: Group) -> set[Group]:
        """Groups that read what a group makes."""
        of = self.of
        near = (self.readers.get(v, ()) for n in group.nodes.values() for v in n.outputs)
        return {of[at] for readers in near for at in readers if at in of}

    def _makers_of(self, group: Group) -> set[Group]:
        """Groups that make what a group reads."""
        return {self.of[at] for node in group.nodes for at in self.makers[node]}

    def _join(self, a: Group, b: Group) -> None:
        """Make two groups one; it is `b` from now on."""
        if a.head is not None:
            a, b = b, a
        elif b.head is None and a.folds is not None and b.folds is None:
            b.full, b.rows, b.folds = a.full, a.rows, a.folds
        b.nodes.update(a.nodes)
        b.mask, b.before, b.after = b.mask | a.mask, b.before | a.before, b.after | a.after
        b.first, b.last = min(a.first, b.first), max(a.last, b.last)
        self.of.update(dict.fromkeys(a.nodes, b))

    # ---- the result ----------------------------------------------------------------------------

    def groups(self) -> list[list[int]]:
        """Positions of nodes, group by group, in an order in which they can run."""
        found = {id(g): g for g in self.of.values()}
        return in_order(list(found.values()), self)


def in_order(groups: list[Group], grouping: Grouping) -> list[list[int]]:
    """Groups sorted so that each comes after those it reads from; else as the nodes came.

    Updates come after all that read the old values, where that can be.
    """
    waits: dict[int, set[int]] = {id(g): set() for g in groups}
    for g in groups:
        for node in g.nodes.values():
            for v in operands(node.args):
                base = grouping.source.get(v, v)
                if base in grouping.maker:
                    made = grouping.of[grouping.maker[base]]
                    if made is not g:
                        waits[id(g)].add(id(made))
    late = {id(g): waits[id(g)] | _readers_of_old(g, grouping) for g in groups}
    done = _sorted(groups, late) or _sorted(groups, waits)
    if done is None:
        raise AssertionError("groups wait for each other: grouping let a circle through")
    return done


def _readers_of_old(group: Group, grouping: Grouping) -> set[int]:
    """Other groups (their ids) that read what the update in a group will write over."""
    old = overwritten(group.nodes[group.last]) if group.updates else []
    at = (k for v in old for k in _all_readers(v, grouping))
    return {id(grouping.of[k]) for k in at} - {id(group)}


def _all_readers(v: Value, grouping: Grouping) -> Iterator[int]:
    """Nodes that read a value, and the readers of free ones, which do these themselves."""
    for k in grouping.readers.get(v, ()):
        yield k
        node = grouping.graph.nodes[k]
        if grouping.fusion.folds_into_loads(node):
            yield from grouping.readers.get(node.outputs[0], ())


def _sorted(groups: list[Group], waits: dict[int, set[int]]) -> list[list[int]] | None:
    """Groups in the order of their nodes as far as what they wait for lets them; None: a circle."""
    after: dict[int, list[Group]] = {id(g): [] for g in groups}
    for g in groups:
        for k in waits[id(g)]:
            after[k].append(g)
    left = {id(g): len(waits[id(g)]) for g in groups}
    # Where two have the same turn, the first node decides: never an address.
    ready = [(_turn(g), g.first, g) for g in groups if not left[id(g)]]
    heapq.heapify(ready)
    done: list[list[int]] = []
    while ready:
        g = heapq.heappop(ready)[2]
        done.append(sorted(g.nodes))
        for other in after[id(g)]:
            left[id(other)] -= 1
            if not left[id(other)]:
                heapq.heappush(ready, (_turn(other), other.first, other))
    return done if len(done) == len(groups) else None


def _turn(group: Group) -> int:
    """When it is a group's turn: by its last node, but updates and their counts come early."""
    if group.updates:
        return group.first
    counts = any(node.op.qualified == COUNTS for node in group.nodes.values())
    return -1 if counts else group.last
