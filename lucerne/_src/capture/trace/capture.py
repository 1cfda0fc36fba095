"""Capture: one call of a function as a graph, with everything needed to repeat the call.

The function runs once on stand-ins for its tensor arguments (fake tensors), watched by a
`Recorder`. What it leaves behind is told in terms of the graph: what it returns, which gradients it
sets (`GradientStore`), which tensors it writes to (`graph.writes`). If it returns tensors that need
gradients, its backward pass is recorded too (the joint graph).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from lucerne._src.base.process.source_location import naming_modules
from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import GivenFloat, NumberUse, watching
from lucerne._src.base.unspecialized_ints import GivenInt
from lucerne._src.capture.aot.zero_gradients import ZeroGradients, feeding
from lucerne._src.capture.effects.stores import OptimizerStates, Slot, counts_of, put_back, stored
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.guards.tensor_reads import (
    IS,
    Fact,
)
from lucerne._src.capture.process_state import quiet
from lucerne._src.capture.trace import subclasses
from lucerne._src.capture.trace.captured import Captured, CapturedResult, GradientStore
from lucerne._src.capture.trace.fake import (
    CaptureError,
    StandIn,
    expose,
    fake_tensor,
    is_fake,
)
from lucerne._src.capture.trace.input_sources import (
    ARGUMENT,
    CONSTANT,
    COVER,
    GRADIENT,
    HELD,
    INNER,
    NUMBER,
    SLOT,
    TANGENT,
    InputSource,
)
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.capture.trace.recorder import AS_STRIDED, Recorder
from lucerne._src.capture.trace.stand_ins import Tracing, geometry_of
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Node, Value
from lucerne._src.ir.meta import TensorMeta, with_flip
from lucerne._src.ir.symbolic.numbers import generic
from lucerne._src.tensor.autograd.engine import gradient_parts, run_backward, without_hooks
from lucerne._src.tensor.autograd.node import Edge, gradient_edge
from lucerne._src.tensor.autograd.state import ADDING
from lucerne._src.tensor.base import TensorBase, offset_of
from lucerne._src.tensor.eager.specialize import PlaceQuestions

Whole = Callable[[Any, tuple[Any, ...]], bool]


class Capture:
    """The capture of one call: runs the function, then reads off what it did."""

    _backward_code: Any = None
    """What runs user code in the backward pass (`callbacks.BackwardCode`)."""

    def __init__(
        self, fn: Any, args: Any, kwargs: Any, reach: ReachableState, whole: Whole
    ) -> None:
        self.leaves: list[Any] = []
        self.given = flatten((args, kwargs), self.leaves)
        self.fn, self.reach, self.whole = fn, reach, whole
        self.asked_sizes = False
        """Whether it ended at a size that depends on data."""

    keeps_states = True
    """Whether what a captured call does to the states of optimizers (it begins them) stays."""

    def make_tracing(self) -> Tracing:
        return Tracing(self.reach, Recorder(self.whole))

    def run(self) -> Captured:
        tracing = self.make_tracing()
        self.tracing, self.recorder = tracing, tracing.recorder
        self.roots: dict[Value, int] = {}
        self.gradient_roots: list[Value] = []
        self.outcomes: dict[int, CapturedResult] = {}
        """By id of a tensor of the trace."""
        with ADDING:  # another thread would add to stand-ins of gradients
            return self._traced()

    def _traced(self) -> Captured:
        tracing = self.tracing
        states, done = OptimizerStates(self.reach.optimizers.values()), False
        try:
            with quiet(), watching() as uses:
                tracing.own_reached()
                once = {id(x): x for x in self.leaves if is_a(x, TensorBase)}
                tensors = subclasses.plain_tensors(once.values())
                memories = [id(x._storage.buffer) for x in tensors]
                given = [tracing.stand_in_for(x, k, memories) for k, x in enumerate(self.leaves)]
                tracing.stand_ins = given
                args, kwargs = rebuild(self.given, iter(given))
                with self.recorder:
                    with naming_modules(self.reach.module_names, Capture._traced.__code__):
                        result = self._called(args, kwargs)
                    found = self._read_off(result, uses)
            done = self.keeps_states
            return found
        finally:
            if not done:
                states.put_back()
            tracing.restore()
            put_back(self.reach.tables)
            expose(self.recorder.seen_tensors)
            self.asked_sizes = bool(self.recorder.asked_sizes)

    def _called(self, args: Any, kwargs: Any) -> Any:
        """Where the function raises because its arguments are stand-ins (two views of one memory
        don't share a history), what it is refused for is said, not what came of it."""
        if hasattr(self.fn, "reach"):
            self.fn.reach = self.reach
        if hasattr(self.fn, "looked"):
            self.fn.looked = self.tracing.looked
        outer, PlaceQuestions.told = PlaceQuestions.told, self.tracing.asked_place
        try:
            found = self.fn(*args, **kwargs)
        except Exception:
            self._check_written()
            raise
        finally:
            PlaceQuestions.told = outer
            if hasattr(self.fn, "looked"):
                self.fn.looked = None  # it holds what the call worked with
        if self.recorder.refusal is not None and hasattr(self.fn, "reach"):
            raise self.recorder.refusal  # the function has caught it, as if it were its own
        return found

    # ---- reading off ---------------------------------------------------------------------------

    def _read_off(self, result: Any, uses: list[NumberUse]) -> Captured:
        recorder, tracing = self.recorder, self.tracing
        found: list[Any] = []
        shape = flatten(result, found)
        leaves: list[Any] = []
        shape = subclasses.opened_shape(shape, iter(found), leaves, self._is_from_outside)
        leaves = [x.by_value() if type(x) in (GivenFloat, GivenInt) else x for x in leaves]
        tracing.check_flags()
        tracing.inside.check()
        kept = self._stored(leaves)
        checks = [(len(leaves) + k, error) for k, (_, error) in enumerate(recorder.checks)]
        leaves += [flag for flag, _ in recorder.checks]
        effects = self._effects()
        outcomes = [self._outcome(x) if is_a(x, TensorBase) else x for x in leaves]
        if _note_views(leaves, outcomes):
            self._check_inside()
        self._keep_roots()
        wanted, gradients = self._differentiate(leaves, outcomes)
        tangents = {id(t): k for k, t in enumerate(self._tangents)}
        sources = []
        for t in recorder.outside:
            if type(t) is GivenFloat:
                sources.append(InputSource(NUMBER, thing=t))
            elif id(t) in tangents:
                sources.append(InputSource(TANGENT, index=tangents[id(t)]))
            elif id(t) in recorder.covers:
                sources.append(InputSource(COVER, thing=tracing.source_of(recorder.covers[id(t)])))
            else:
                sources.append(tracing.source_of(t))
        fresh = frozenset(recorder.constants)
        for v, s in zip(recorder.graph.inputs, sources, strict=True):
            if v in fresh:
                s.kind = CONSTANT
        self._check_written()
        covered = [
            (
                tracing.source_of(recorder.covers.get(id(first), first)),
                tracing.source_of(t), t._offset, t._storage.nbytes,
            )
            for first, t in recorder.joined
        ]  # fmt: skip
        captured = Captured(
            recorder.graph, sources, [*self.roots, *self.gradient_roots], fresh, shape, outcomes,
            effects, self._facts(sources), uses, len(self.roots), gradients, wanted, kept,
            counts_of(self.reach.tables), checks, covered, backward_at=self._backward_at,
            differentiated=self._differentiated,
            backward_uses=getattr(self._backward_code, "uses", []), handled=recorder.handled,
            draws=any(n.op.kind == op_.RANDOM for n in recorder.graph.nodes),
        )  # fmt: skip
        _held_first(captured)
        return captured

    def _keep_roots(self) -> None:
        """Make roots of what a program is to give besides results."""

    def _stored(self, leaves: list[Any]) -> list[tuple[Slot, Any, int]]:
        """What the function keeps for its next call: more leaves, and other sources."""
        kept = []
        slots = stored(self.reach.tables)
        for slot, old, new in slots:
            first = len(leaves)
            if any(map(subclasses.is_wrapper, (old, new))):
                raise CaptureError(f"{slot}: a tensor that wraps others is kept from call to call")
            kept.append((slot, flatten(new, leaves), first))
            before: list[Any] = []
            flatten(old, before)
            for k, t in enumerate(before):
                if is_a(t, TensorBase) and not any(t is x for x in self.leaves):
                    self.tracing.sources[id(t)] = InputSource(SLOT, index=k, thing=slot)
        one = [*self.tracing.looked.one.values()]
        self.reach.loosen([(slot, old) for slot, old, _ in slots], self.leaves, one)
        return kept

    def _is_from_outside(self, t: Any) -> bool:
        return id(t) in self.tracing.sources or id(t) in self.reach.tensors

    def _outcome(self, t: Any) -> CapturedResult:
        """One tensor is one outcome, however often it is returned or somebody's gradient."""
        found = self.outcomes.get(id(t))
        if found is None:
            if subclasses.is_wrapper(t):
                found = CapturedResult(False, 0, 0, t._meta, self.tracing.source_of(t))
            else:
                found = self._new_outcome(t)
                found.subclass = subclasses.subclass_of(t) if found.itself is None else None
            self.outcomes[id(t)] = found
        return found

    def _left_as(self, t: Any) -> Any:
        """What becomes of a gradient, which may be a wrapper."""
        if not subclasses.is_wrapper(t):
            return self._outcome(t)
        parts: list[Any] = []
        shape = subclasses.opened(t, parts, self._is_from_outside)
        return subclasses.Wrapped(shape, [self._outcome(x) for x in parts])

    def _new_outcome(self, t: Any) -> CapturedResult:
        """How to make a tensor again from results and inputs."""
        value, first = self.recorder.root(t)
        inputs = self.recorder.graph.inputs
        known, constants = self.recorder.known_inputs, self.recorder.constants
        of_input = value in known and value not in constants
        index = inputs.index(value) if of_input else self.roots.setdefault(value, len(self.roots))
        unit, first_unit = t._meta.dtype.itemsize, first._meta.dtype.itemsize
        offset = (offset_of(t) * unit - offset_of(first) * first_unit) // unit
        itself = self._known_object(t) if of_input else None
        if of_input and itself is None and t._needs_grad and _overlaps(first._meta):
            # A view is made again by its strides, whose derivative can't tell such elements apart.
            raise CaptureError("a view of an expanded argument that needs a gradient is returned")
        if of_input and itself is None and t._needs_grad:
            self._check_inside()
        if of_input and t._meta.dtype is not first._meta.dtype and t._needs_grad:
            raise CaptureError("a view with another dtype of an argument is returned")
        is_leaf = t._needs_grad and (t._auto is None or t._auto.grad_fn is None)
        return CapturedResult(
            of_input, index, offset, t._meta, itself, requires_grad=t._needs_grad, is_leaf=is_leaf,
            inference=t._storage.inference,
            detached=of_input and itself is None and not self._is_view_of(t, first),
            gradient=self._gradient_of(t) if is_leaf and itself is None else None,
        )  # fmt: skip

    def _gradient_of(self, leaf: Any) -> Any:
        """What becomes of the gradient of a leaf that was made inside."""
        grad = leaf.grad
        if grad is not None and grad._needs_grad:
            raise CaptureError("a tensor is returned whose gradient has a history (create_graph)")
        return None if grad is None else self._left_as(grad)

    def _check_inside(self) -> None:
        """A view made again is one step from its base. That has the gradient of the steps that the
        function took only if none of them read elements that the step before had left out."""
        if any(_reads_beside(node) for node in self.recorder.graph.nodes):
            raise CaptureError("a view is returned that as_strided() made of more than its input")

    def _is_view_of(self, t: Any, first: Any) -> bool:
        """Whether a tensor in the memory of an input shares its history (not `x.t().detach()`)."""
        if t._view is None:
            return False
        base = t._view.base
        of_first = first._view is not None and base is first._view.base
        return base is first or of_first or self._known_object(base) is not None

    def _is_covered(self, t: Any) -> bool:
        return id(self.recorder.root(t)[1]) in self.recorder.covers

    def _known_object(self, t: Any) -> InputSource | None:
        """Where a tensor object comes from, if it is one that was there before."""
        known = id(t) in self.tracing.sources or id(t) in self.reach.tensors
        return (
            self.tracing.source_of(t) if known or any(t is x for x in self.recorder.met) else None
        )

    def _effects(self) -> list[GradientStore]:
        effects = []
        for owner in self.tracing.owners:
            now, source = owner.now(), owner.source
            if now is owner.begun and not owner.written:
                continue
            if now is owner.begun is not None:
                raise CaptureError("a gradient is set to what it was")
            outcome = None if now is None else self._left_as(now)
            if source.kind == ARGUMENT and _has_hooks(self.leaves[source.index]):
                raise CaptureError("backward() reaches an argument that has hooks")
            effects.append(GradientStore(source, outcome))
        return effects

    def _facts(self, sources: list[InputSource]) -> list[Fact]:
        """What the function has asked about tensors from outside, besides their values."""
        tracing = self.tracing
        read = {id(s.thing) for s in sources if s.kind == GRADIENT}  # (looked at in another way)
        facts = [x.fact() for x in tracing.owners if x.read and id(x.source) not in read]
        first: dict[int, int] = {}
        for k, x in enumerate(self.leaves):
            if id(x) in tracing.stood_for and first.setdefault(id(x), k) != k:
                source, other = (
                    InputSource(ARGUMENT, index=first[id(x)]),
                    InputSource(ARGUMENT, index=k),
                )
                facts.append(Fact(IS, source, True, other))
        return facts + tracing.looked.facts(tracing.source_of, sources)

    def _differentiate(
        self, leaves: list[Any], outcomes: list[Any]
    ) -> tuple[list[InputSource], list[CapturedResult | None]]:
        """Record the backward pass from the outputs that need gradients."""
        self._tangents: list[Any] = []
        self._backward_at = 0
        self._differentiated: list[Any] = []
        follow = getattr(self.fn, "backward_code", None)
        self._backward_code = None if follow is None else follow()
        roots, outputs = [], []
        for t, outcome in self._with_history(leaves, outcomes):
            tangent = fake_tensor(_dense(t._meta))
            roots.append((gradient_edge(t), tangent, outcome))
            outputs.append(t)
        if not roots:
            return [], []
        for k in feeding([edge for edge, _, _ in roots]):
            roots[k][2].feeds = True
        edges, wanted = self._wanted()
        self._check_leaves(edges, outcomes)
        code = self._backward_code
        with nullcontext() if code is None else code.following():
            found = self._backward(roots, outputs, edges)
        place = {edge: k for k, edge in enumerate(self._reached)}
        order = sorted(range(len(edges)), key=lambda k: place.get(edges[k], len(place)))
        pairs = [(wanted[k], x) for k in order if found for x in found[k]]
        return [s for s, _ in pairs], [x for _, x in pairs]

    def _with_history(
        self, leaves: list[Any], outcomes: list[Any]
    ) -> list[tuple[Any, CapturedResult]]:
        """The outputs that the recorded backward pass starts from.

        A view of an argument is made anew outside, with a node of its own. Where every bit counts
        it is one of them all the same: what it adds to the gradient of the argument has a place
        among what the function itself adds, and what arrives at several views is added up on the
        way.
        """
        made, views = [], []
        for t, outcome in zip(leaves, outcomes, strict=True):
            if not isinstance(outcome, CapturedResult) or not outcome.requires_grad:
                continue
            if outcome.view_of is not None:  # its gradient is a part of that tensor's
                continue
            if outcome.itself is not None or t._auto.grad_fn is None:
                continue
            if outcome.of_input and not self._is_covered(t):
                views.append((t, outcome))
            else:
                made.append((t, outcome))
        joins = getattr(self.whole, "bitwise", False) and (made or len(views) > 1)
        return [*made, *views] if joins else made

    @staticmethod
    def _check_leaves(edges: list[Edge], outcomes: list[Any]) -> None:
        """Gradients that would go to a tensor made inside have nowhere to go."""
        inside = [
            x for x in outcomes if type(x) is CapturedResult and x.is_leaf and x.itself is None
        ]
        if inside or not edges:
            raise CaptureError(
                "results take part in autograd through a tensor that was made inside and needs a "
                "gradient (requires_grad_ in the function). Make it outside, or detach the results"
            )

    def _backward(
        self, roots: list[Any], outputs: list[Any], edges: list[Edge]
    ) -> list[list[CapturedResult | None]] | None:
        """Gradients of the edges, by a backward pass from all roots that have one; None: none has.

        Where every bit counts, each comes in the parts that eager adds up one by one.

        A pass that raises is no error of the function: whoever calls it hears so.
        """
        differentiated = [self.recorder.value(t) for t in outputs]
        before = self.recorder.mark()
        self._tangents = []
        made: list[Value] = []
        for _, tangent, outcome in roots:
            outcome.tangent = len(self._tangents)
            self._tangents.append(tangent)
            made.append(self.recorder.tangent(tangent))
        link = ZeroGradients(self.recorder, made) if len(roots) > 1 else None
        starts = [(edge, tangent) for edge, tangent, _ in roots]
        self._reached: list[Edge] = []
        """The order in which gradients reach the inputs: their hooks are called in it."""
        try:
            with without_hooks(edges):
                if getattr(self.whole, "bitwise", False):
                    found = [
                        parts or [None]
                        for parts in gradient_parts(starts, edges, link, self._reached)
                    ]
                else:
                    whole = run_backward(
                        starts, keep_graph=True, create_graph=False, wanted=edges, link=link,
                        reached=self._reached,
                    )  # fmt: skip
                    found = [[g] for g in whole]
        except CaptureError:
            raise  # eager's backward pass would not raise: it is the graph that can't hold it
        except RuntimeError as error:
            self.recorder.back_to(before)
            self._tangents = []
            good = self._refuse(roots, edges, str(error), before)
            if not any(good):
                return None
            left = [
                ((edge, fake_tensor(tangent._meta), outcome), t)
                for (edge, tangent, outcome), t, fine in zip(roots, outputs, good, strict=True)
                if fine
            ]
            return self._backward([r for r, _ in left], [t for _, t in left], edges)
        self._backward_at, self._differentiated = before[1], differentiated
        return [[None if g is None else self._gradient_as(g) for g in parts] for parts in found]

    def _refuse(self, roots: list[Any], edges: list[Edge], text: str, before: Any) -> list[bool]:
        """The backward pass raises: for which outputs it does not.

        Each output is asked on its own, as each may be differentiated on its own.
        """
        good = []
        for edge, tangent, outcome in roots:
            outcome.used_up, outcome.tangent = text, None
            if len(roots) == 1:
                return [False]
            self.recorder.tangent(tangent)  # what was taken back has forgotten it
            try:
                with without_hooks(edges):
                    run_backward(
                        [(edge, tangent)], keep_graph=True, create_graph=False, wanted=edges
                    )
            except CaptureError:
                raise
            except RuntimeError as error:
                outcome.used_up = str(error)
                good.append(False)
            else:
                outcome.used_up = ""
                good.append(True)
            finally:
                self.recorder.back_to(before)
        if all(good):
            raise CaptureError("outputs can only be differentiated one by one")
        return good

    def _gradient_as(self, g: Any) -> Any:
        if not subclasses.is_wrapper(g):
            return self._gradient(g)
        parts: list[Any] = []
        shape = subclasses.opened(g, parts, lambda t: False)
        return subclasses.Wrapped(shape, [self._gradient(x) for x in parts])

    def _gradient(self, g: Any) -> CapturedResult:
        """A gradient is always a result of the backward part, even if it is a tangent as it is."""
        value, first = self.recorder.root(g)
        self.gradient_roots.append(value)
        unit = g._meta.dtype.itemsize
        offset = offset_of(g) - offset_of(first) * first._meta.dtype.itemsize // unit
        index = len(self.gradient_roots) - 1
        return CapturedResult(False, index, offset, g._meta, value=self.recorder.known(g))

    def _wanted(self) -> tuple[list[Edge], list[InputSource]]:
        """The inputs whose gradients matter outside."""
        tracing, edges, wanted = self.tracing, [], []
        for t in [*self.recorder.met, *tracing.wrapping]:
            if not t._needs_grad:
                continue
            edges.append(tracing.edges.get(id(t)) or gradient_edge(t))
            wanted.append(tracing.source_of(t))
        return edges, wanted

    def _check_written(self) -> None:
        """An input whose history or place changed inside would have to change outside as well."""
        for t, *before in self.tracing.geometry:
            if [*geometry_of(t)] != before:
                raise CaptureError(
                    "a tensor from outside gets another shape or other memory (t_, set_, resize_, "
                    ".data = ...). Write to it (copy_), or do that outside of the compiled function"
                )
        if self.recorder.changed_histories():
            raise CaptureError("a tensor from outside that takes part in autograd is written to")
        for t in [*self.recorder.outside, *self.tracing.stand_ins]:
            if not is_a(t, TensorBase) or t._auto is None:
                continue
            edge = self.tracing.edges.get(id(t))
            known = edge is not None and is_a(edge[0], StandIn)
            same = known and edge is not None and t._auto.grad_fn is edge[0]
            if t._auto.grad_fn is not None and not same and is_fake(t):
                raise CaptureError("an argument that takes part in autograd is written to")


def _held_first(captured: Captured) -> None:
    """Put the inputs that are always the same objects in front; outcomes follow.

    From here on an outcome over an input has the number of that input among the tensors that are
    given for each call.
    """
    rank = {HELD: 0, GRADIENT: 2, ARGUMENT: 1, COVER: 2, SLOT: 2, INNER: 2}
    graph, sources = captured.graph, captured.sources
    captured.recorded = list(graph.inputs)
    order = sorted(range(len(sources)), key=lambda k: rank.get(sources[k].kind, 3))
    graph.inputs[:] = [graph.inputs[k] for k in order]
    captured.sources = [sources[k] for k in order]
    place = {old: new for new, old in enumerate(order)}
    outcomes = [x for x in captured.leaves if type(x) is CapturedResult]
    outcomes += [x for e in captured.effects for x in subclasses.plain_outcomes(e.outcome)]
    for x in {id(x): x for x in outcomes}.values():  # one may be returned twice
        if x.of_input:
            x.index = place[x.index]


def _reads_beside(node: Node) -> bool:
    """Whether raw strides may read other elements of the memory than those of their input."""
    if node.op is not AS_STRIDED:
        return False
    source, out = node.args[0].meta, node.outputs[0].meta
    start = node.args[3]
    return not (source.is_dense and start >= 0 and start + out.span <= source.numel)


def _note_views(leaves: list[Any], outcomes: list[Any]) -> bool:
    """A view that is left beside the tensor it is a view of has no history of its own. Whether
    there are any."""
    bases = {
        id(t): k
        for k, (t, x) in enumerate(zip(leaves, outcomes, strict=True))
        if type(x) is CapturedResult
        and x.requires_grad
        and not (x.of_input or x.is_leaf or x.itself)
    }
    for t, x in zip(leaves, outcomes, strict=True):
        if type(x) is CapturedResult and x.requires_grad and not x.of_input and t._view is not None:
            x.view_of = bases.get(id(t._view.base))
    return any(type(x) is CapturedResult and x.view_of is not None for x in outcomes)


def _overlaps(meta: TensorMeta) -> bool:
    """Whether elements share memory, as an expanded tensor's do."""
    return any(step == 0 and n > 1 for n, step in zip(meta.shape, meta.strides, strict=True))


def _has_hooks(t: Any) -> bool:
    return t._auto is not None and bool(t._auto.hooks or t._auto.post_hooks)


def _dense(meta: TensorMeta) -> TensorMeta:
    with generic():
        return with_flip(meta, False) if meta.is_dense else meta.like(shape=tuple(meta.shape))
