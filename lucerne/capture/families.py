"""Families: captures of one function that differ in nothing but sizes, and how one capture for all
sizes is learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne.base.shape import wrap_dim
from lucerne.capture.dynamic import Sized, SizedCapture, Told, generalized, sized
from lucerne.capture.entry import Guards
from lucerne.capture.fake import fake_tensor
from lucerne.capture.narrow import also, narrow
from lucerne.capture.reach import Reach
from lucerne.capture.trace import ARGUMENT, TANGENT, Capture, Captured, StandIn, Whole
from lucerne.capture.tree import rebuild
from lucerne.ir.meta import TensorMeta, make_meta
from lucerne.ir.symbols import SMALLEST
from lucerne.tensor.autograd.state import AutogradState
from lucerne.tensor.base import TensorBase, new_tensor
from lucerne.transforms.generalize import Reason, Template

Dims = set[tuple[int, int]]
"""Pairs (number of the leaf, dimension)."""
Sizes = dict[tuple[int, int], int]

_MOST_ATTEMPTS = 4
_REST = 4

_MARK = "_dynamic_dims"


def mark_dynamic(t: Any, dim: int | Sequence[int]) -> None:
    """Say of a tensor that its size in this dimension (or these) is not always the same.

    A compiled function that gets it as an argument is then made for all sizes at once.
    """
    dims = (dim,) if isinstance(dim, int) else dim
    found = {wrap_dim(d, t._meta.ndim) for d in dims}
    setattr(t, _MARK, getattr(t, _MARK, frozenset()) | found)


def marked_dims(t: Any) -> set[int]:
    """The dimensions of an argument that `mark_dynamic` was told about."""
    if not isinstance(t, TensorBase):
        return set()
    return {d for d in getattr(t, _MARK, ()) if t._meta.shape[d] >= SMALLEST}


class Outline:
    """What is remembered of an argument, without keeping its bytes."""

    __slots__ = ("has_grad", "history", "kind", "meta", "needs_grad")

    def __init__(self, t: Any) -> None:
        self.meta, self.kind, self.needs_grad = t._meta, type(t), t._needs_grad
        self.history = t.grad_fn is not None
        self.has_grad = not self.history and t.grad is not None

    def tensor(self, meta: TensorMeta) -> Any:
        """A tensor that stands for such an argument, with other sizes."""
        made = fake_tensor(meta)
        made.__class__ = self.kind
        if self.needs_grad:
            made._auto = AutogradState(requires_grad=True)
            if self.history:
                made._auto.grad_fn = StandIn([], (meta,))
            elif self.has_grad:
                made._auto.grad = new_tensor(meta)
        return made


class Family:
    """A first capture, the sizes that were seen to change since, and what was learned of them."""

    def __init__(self, captured: Captured, guards: Guards, leaves: Sequence[Any]) -> None:
        self.captured, self.guards = captured, guards
        same = {k for k, _ in guards.same}
        self.leaves = [
            Outline(x) if isinstance(x, TensorBase) and k not in same else x
            for k, x in enumerate(leaves)
        ]
        self.sized: list[Sized] = []
        self.changing: Dims = set()
        self.attempts = 0
        self.refused = ""
        """Why there is no capture for all sizes."""

    def other_sizes(self, leaves: Sequence[Any], shape: Any) -> Sizes | None:
        """The sizes that are not those of the first capture; None: something else differs too."""
        found: Sizes = {}
        for k, meta, _, kind in self.guards.tensors:
            if k >= len(leaves) or type(leaves[k]) is not kind:
                return None
            have: TensorMeta = leaves[k]._meta
            if have is meta:
                continue
            if have.dtype is not meta.dtype or have.ndim != meta.ndim:
                return None
            for d, (n, m) in enumerate(zip(have.shape, meta.shape, strict=True)):
                if n != m:
                    if min(n, m) < SMALLEST or have.device != meta.device:
                        return None
                    found[k, d] = int(n)
        if not found or self.guards.failure(leaves, shape, sizes=False) is not None:
            return None
        return found

    def outlines(self, sizes: Sizes) -> list[Any] | None:
        """Leaves with these sizes and no bytes; None: nobody can tell what strides they have."""
        found = []
        for k, x in enumerate(self.leaves):
            if type(x) is Outline:
                meta = x.meta
                shape = tuple(sizes.get((k, d), int(n)) for d, n in enumerate(meta.shape))
                if shape != tuple(meta.shape):
                    if not meta.contiguous:
                        return None
                    meta = make_meta(meta.dtype, shape, None, meta.device)
                x = x.tensor(meta)
            found.append(x)
        return found

    def sizes_for(self, dims: Dims, decided: Sizes) -> Sizes:
        """Sizes unlike the first capture's for all these dimensions; equal ones stay equal."""
        found: Sizes = dict(decided)
        chosen: dict[int, int] = {}
        for (k, d), n in decided.items():
            chosen.setdefault(int(self.leaves[k].meta.shape[d]), n)
        for k, d in sorted(dims - decided.keys()):
            n = int(self.leaves[k].meta.shape[d])
            found[k, d] = chosen.setdefault(n, 2 * n + 2 * len(chosen) + 2)
        return found

    def candidates(self, marked: Dims) -> list[Dims]:
        """Dimensions that may well change together: all of one size, all of one size at one
        position; marked ones first."""
        groups: dict[Any, Dims] = {}
        for k, meta, *_ in self.guards.tensors:
            for d, n in enumerate(meta.shape):
                if n >= SMALLEST:
                    groups.setdefault(int(n), set()).add((k, d))
                    groups.setdefault((int(n), d), set()).add((k, d))
        found = [marked] if marked else []
        for dims in groups.values():
            if dims not in found:
                found.append(dims)
        return found


class Learner:
    """Traces a function at sizes nobody has called it with, to learn how it depends on them."""

    def __init__(self, fn: Any, whole: Whole, family: Family) -> None:
        self.fn, self.whole, self.family = fn, whole, family
        self.traces = 0
        self.reaches: list[Reach] = []
        """Of the traces: what they have read."""

    def learn(self, second: Captured, told: Told) -> Sized | Reason:
        """From the first capture, a sized one at other sizes, and one more to make sure."""
        first = self.family.captured
        found = generalized([first, second], told)
        if not isinstance(found, Template):
            return found
        captures = [first, second]
        for sizes in found.probes():
            third = self._probe(found, sizes, told)
            if third is None:
                continue
            captures.append(third)
            sure = sized(captures, told)
            if isinstance(sure, Sized) and sure.template.named:
                # Sizes that are rounded: what is so at odd ones may not be so at even ones.
                captures += self._rounded(sure.template, told)
                sure = sized(captures, told)
            return sure
        return Reason("the function takes no other sizes")

    def _probe(self, template: Template, sizes: dict[str, int], told: Told) -> Captured | None:
        """A capture at these sizes, its guards added to what was told; None: the function does not
        take them, and says so."""
        found = self._sized(self._leaves_at(template, sizes))
        if found is None:
            return None
        told.guards += [g for g in found[1].guards if g not in told.guards]
        return found[0]

    def _rounded(self, template: Template, told: Told) -> list[Captured]:
        """Captures at sizes that leave other rests when they are divided by 4."""
        seen = template.traced
        rests = {n: {x % _REST for x in seen[n]} for n in template.symbols}
        found = []
        for k in range(_REST):
            if all(k in rests[n] for n in rests):
                continue
            for step in (1, 2, -1, -2, 0):
                sizes = {n: _REST * (max(seen[n]) // _REST + step) + k for n in rests}
                if min(sizes.values()) >= SMALLEST and template.admits(sizes):
                    captured = self._probe(template, sizes, told)
                    if captured is not None:
                        found.append(captured)
                        break
        return found

    def second(self, sizes: Sizes) -> tuple[Captured, Told] | None:
        """A sized capture on tensors that are not there; None: the function does not take them."""
        leaves = self.family.outlines(sizes)
        return None if leaves is None else self._sized(leaves)

    def among(self, candidates: list[Dims]) -> Sized | Reason:
        """For all dimensions among the candidates that the function lets change."""
        free: Dims = set()
        found = None
        for dims in candidates:
            if not dims <= free:
                tried = self.second(self.family.sizes_for(dims | free, {}))
                if tried is not None:
                    free, found = dims | free, tried
        return Reason("no size can change") if found is None else self.learn(*found)

    def _sized(self, leaves: list[Any]) -> tuple[Captured, Told] | None:
        args, kwargs = rebuild(self.family.guards.shape, iter(leaves))
        reach = Reach(self.fn, leaves)
        first = self.family.captured
        capture = SizedCapture(self.fn, args, kwargs, reach, self.whole, first)
        self.traces += 1
        try:
            captured = capture.run()
        except Exception:  # the function does not take these sizes, and says so in its way
            return None
        if reach.noted is not None:  # (else it is a part, which tells in another way)
            narrow(reach, captured)
            reach.refresh()
            self.reaches.append(reach)
        return captured, capture.told

    def _leaves_at(self, template: Template, sizes: dict[str, int]) -> list[Any]:
        metas: dict[int, Any] = {}
        sources = [s for s in self.family.captured.sources if s.kind != TANGENT]
        for s, meta in zip(sources, template.metas(sizes), strict=True):
            if s.kind == ARGUMENT:
                metas[s.index] = meta
        return [
            x.tensor(metas.get(k, x.meta)) if type(x) is Outline else x
            for k, x in enumerate(self.family.leaves)
        ]


class Families:
    """All first captures of a function."""

    def __init__(self, fn: Any, whole: Whole, dynamic: bool | None) -> None:
        self.fn, self.whole, self.dynamic = fn, whole, dynamic
        self.members: list[Family] = []
        self.traces = 0
        self._pending: tuple[Family, Captured, Told] | None = None

    def instance(self, leaves: Sequence[Any], shape: Any) -> tuple[Captured, Guards] | None:
        """A captured call for leaves of sizes that were never traced; None: it must be traced."""
        for family in self.members:
            if not family.sized or family.other_sizes(leaves, shape) is None:
                continue
            for learned in family.sized:
                captured = learned.at(leaves)
                if captured is not None:
                    return captured, Guards(leaves, shape, captured, family.guards.reach)
        return None

    def capture(
        self, args: Any, kwargs: Any, leaves: Sequence[Any], shape: Any, reach: Reach
    ) -> Captured:
        """Capture a call, in step with the first capture of its family if it has one."""
        self.traces += 1
        self._pending = None
        family = self._family(leaves, shape)
        if family is not None:
            capture = SizedCapture(self.fn, args, kwargs, reach, self.whole, family.captured)
            try:
                captured = capture.run()
            except Exception as error:  # perhaps it minds sizes that are not plain integers
                family.refused = str(error) or type(error).__name__
            else:
                self._pending = family, captured, capture.told
                return captured
        return Capture(self.fn, args, kwargs, reach, self.whole).run()

    def learn(self, captured: Captured, guards: Guards, leaves: Sequence[Any]) -> None:
        """Make what can be made of a capture that was compiled."""
        if self.dynamic is False:
            return
        pending, self._pending = self._pending, None
        if pending is None:
            self._begin(captured, guards, leaves)
            return
        family, second, found = pending
        sizes = family.other_sizes(leaves, guards.shape) or {}
        family.changing |= sizes.keys()
        family.attempts += 1
        learner = Learner(self.fn, self.whole, family)
        if guards.reach.was_seen:
            learner.reaches.append(guards.reach)
        if family.changing - sizes.keys():  # others changed before: all of them together
            both = learner.second(family.sizes_for(family.changing, sizes))
            second, found = both or (second, found)
        self._note(family, learner.learn(second, found), learner)

    def _family(self, leaves: Sequence[Any], shape: Any) -> Family | None:
        for family in self.members:
            if not family.refused and family.other_sizes(leaves, shape) is not None:
                return family
        return None

    def _begin(self, captured: Captured, guards: Guards, leaves: Sequence[Any]) -> None:
        """A capture that is like no other one."""
        if guards.shares or captured.covered or captured.stored or guards.wrapped is not None:
            return
        family = Family(captured, guards, leaves)
        self.members.append(family)
        marked = {(k, d) for k, t in enumerate(leaves) for d in marked_dims(t)}
        if self.dynamic or marked:
            learner = Learner(self.fn, self.whole, family)
            tried = family.candidates(marked) if self.dynamic else [marked]
            self._note(family, learner.among(tried), learner)

    def _note(self, family: Family, found: Sized | Reason, learner: Learner) -> None:
        self.traces += learner.traces
        for reach in learner.reaches:
            also(family.guards.reach, reach)
        if isinstance(found, Sized):
            family.sized.insert(0, found)
            del family.sized[_MOST_ATTEMPTS:]
        elif family.attempts >= _MOST_ATTEMPTS or not family.sized:
            family.refused = str(found)
