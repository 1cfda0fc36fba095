"""From a seed to a program. Each step is tried on PyTorch, so that its results are known.

What is kept stays of moderate size (a result is compared with an absolute tolerance), and ops that
jump (comparisons, rounding, positions of the largest) take only operands without rounding: there a
last-bit difference, which a compiler may make, would look like a mistake.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import torch

from tests.compiler.inputs import ALIASES, LAYOUTS, tensors
from tests.compiler.ops import EVERY, INSIDE, TABLE
from tests.compiler.ops_moves import WITH_ITSELF
from tests.compiler.program import FLOATS, NARROW, Input, Program, Ref, Step
from tests.compiler.table import Live, Op, Wanted, anything

# Few shapes, so that kernels are met again; sizes above a vector for the tails.
SHAPES: list[tuple[int, ...]] = [
    (3, 4), (4, 5), (5, 33), (2, 3, 4), (17,), (5,), (2, 4, 5, 5), (4, 4), (2, 1, 4), (1, 5),
    (1,), (), (0,), (3, 0), (33, 17), (2, 2, 3, 4),
]  # fmt: skip
SHAPE_WEIGHTS = [8, 6, 4, 6, 4, 3, 4, 3, 2, 2, 1, 2, 1, 1, 2, 2]
MOST_ELEMENTS = 2000
MOST_INPUTS = 6
LIMIT = 300.0
NUMBERS = [0.5, 2.0, -1.5, 3.0, 0.25]
WHOLE_NUMBERS = [2, -1, 3, 1]
BAD = [
    ("bad_view", "{0}.view(7, 11)"),
    ("bad_dim", "{0}.sum(9)"),
    ("bad_mm", "torch.mm({0}, torch.ones(91, 3))"),
    ("bad_add", "{0} + torch.ones(2, 91)"),
    ("bad_index", "{0}.index_select(0, torch.tensor([0.5]))"),
    ("bad_cat", "torch.cat([{0}, torch.ones(91, 91, 91)], 0)"),
    ("bad_write", "{0}.expand(4, *{0}.shape).add_(1)"),
]


class Generator:
    """The program so far, and its values on PyTorch (`Maker` of the table)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.values: dict[str, Live] = {}
        self.space: dict[str, Any] = {"torch": torch}
        self.used: set[str] = set()
        self.count = 0
        self.plain = True
        self.grads = False
        self.float = "float32"

    # ---- what rows ask for

    def live(self) -> list[Live]:
        return [v for v in self.values.values() if isinstance(v.t, torch.Tensor)]

    def pick(self, wanted: Wanted = anything, *, exact: bool = False) -> Live | None:
        found = [v for v in self.live() if wanted(v) and (v.exact or not exact or not v.is_float)]
        if not found:
            return None
        weights = [(3 if v.name not in self.used else 1) * (1 + i) for i, v in enumerate(found)]
        return self.rng.choices(found, weights)[0]

    def fresh(
        self, shape: tuple[int, ...], dtype: str = "float32", values: str = "normal"
    ) -> Live | None:
        """An input that fits, or a new one; None: there are enough."""
        for spec in self.inputs:
            if (spec.shape, spec.dtype, spec.values) == (shape, dtype, values) and not spec.of:
                return self.values[spec.name]
        if len(self.inputs) >= MOST_INPUTS + values.startswith("index"):
            return None
        return self.add_input(shape, dtype, values)

    def number(self, whole: bool = False) -> Any:
        """A constant, or now and then an argument that is a number."""
        if self.rng.random() < 0.25 and len(self.inputs) < MOST_INPUTS + 1:
            kind = int if whole else float
            for spec in self.inputs:
                if spec.dtype == "number" and isinstance(spec.number, kind):
                    return Ref(spec.name)
            given = self.rng.choice(WHOLE_NUMBERS if whole else NUMBERS)
            spec = Input(f"n{len(self.inputs)}", dtype="number", number=given)
            self._place(spec)
            return Ref(spec.name)
        return self.rng.choice(WHOLE_NUMBERS if whole else [*NUMBERS, *WHOLE_NUMBERS])

    # ---- inputs

    def add_input(
        self, shape: tuple[int, ...], dtype: str, values: str = "normal", layout: str = ""
    ) -> Live:
        r = self.rng
        if not layout:
            fitting = [n for n, x in LAYOUTS.items() if len(shape) >= x.dims]
            layout = r.choice(fitting) if r.random() < 0.4 else "contiguous"
        grad = self.grads and dtype in FLOATS and r.random() < 0.6
        spec = Input(f"x{len(self.inputs)}", shape, dtype, layout, values, grad)
        return self._place(spec)

    def add_alias(self) -> None:
        """An input that is a view of another one."""
        roots = [s for s in self.inputs if s.shape and not s.of and not s.requires_grad]
        roots = [s for s in roots if s.dtype != "number" and min(s.shape) > 0]
        if roots:
            root = self.rng.choice(roots)
            layout = self.rng.choice(list(ALIASES))
            spec = Input(f"x{len(self.inputs)}", root.shape, root.dtype, layout, of=root.name)
            self._place(spec)

    def _place(self, spec: Input) -> Live:
        self.inputs.append(spec)
        self._replay()
        return self.values[spec.name]

    def _replay(self) -> None:
        """Inputs anew and all steps again: what was written to is as it should be."""
        program = Program(tuple(self.inputs), tuple(self.steps), (), seed=self.seed)
        space: dict[str, Any] = {"torch": torch}
        for a in tensors(program, torch):
            space[a.spec.name] = a.value
        for step in self.steps:
            exec("\n".join(step.lines()), space)
        for name, value in space.items():
            if name in self.values:
                self.values[name].t = value
            elif name not in ("torch", "__builtins__"):
                self.values[name] = Live(name, value)
        self.space = space

    def _replay_or_shorten(self) -> None:
        """PyTorch may refuse a write the second time (through a view whose history nobody asked
        for in between): such a step goes, with what came after it."""
        while True:
            try:
                return self._replay()
            except RuntimeError:
                for name in self.steps.pop().outs:
                    self.values.pop(name, None)

    # ---- steps

    def step(self, op: Op) -> bool:
        """One more step; False: the op has no operands here, or its result is of no use."""
        try:
            args = op.pick(self)
            if not args:
                return False
            step = Step(op.name, op.text, args)
            made = self._tried(op, step)
        except (RuntimeError, IndexError, TypeError, ValueError):
            self._replay_or_shorten()
            return False
        if made is None:
            self._replay_or_shorten()
            return False
        self._note(op, step, made)
        return True

    def _tried(self, op: Op, step: Step) -> tuple[Any, ...] | None:
        text = "\n".join(step.lines())
        if op.writes or op.name in ("backward", "backward_square", "update", "zero_grad"):
            exec(text, self.space)
            results: tuple[Any, ...] = ()
            changed = [v.t for v in self.live()] if op.writes or op.name == "update" else []
        else:
            result = eval(text, self.space)
            results = tuple(result) if isinstance(result, tuple | list) else (result,)
            changed = list(results)
        if len(results) > 5 or not all(map(_useful, changed)):
            return None
        return results

    def _note(self, op: Op, step: Step, results: tuple[Any, ...]) -> None:
        reads = [self.values[n] for n in step.reads() if n in self.values]
        outs = tuple(f"v{self.count + i}" for i in range(len(results)))
        self.count += len(results)
        step = Step(step.op, step.text, step.args, outs)
        self.steps.append(step)
        self.used.update(step.reads())
        exact = op.exact and all(v.exact for v in reads if isinstance(v.t, torch.Tensor))
        exact = exact and not any(isinstance(v.t, float) for v in reads)
        loose = any(v.loose for v in reads) or op.loose
        for name, t in zip(outs, results, strict=True):
            self.values[name] = Live(name, t, exact, loose)
            self.space[name] = t
        if op.writes:
            self._wrote(reads[0], exact)

    def _wrote(self, target: Live, exact: bool) -> None:
        """What shares memory with the target is as exact as what was written."""
        at = target.t.untyped_storage().data_ptr()
        family = [v for v in self.live() if v.t.untyped_storage().data_ptr() == at]
        for v in family:
            v.exact = v.exact and exact
        if target.loose or any(v.loose for v in family):
            self.plain = False
        # Copies made by a loose op (`reshape`) are not in the family here, but are in NumPy.
        if any(v.loose for v in self.values.values()):
            self.plain = False


def _useful(t: Any) -> bool:
    if not isinstance(t, torch.Tensor):
        return False
    if t.numel() > MOST_ELEMENTS or t.ndim > 5:
        return False
    if not t.dtype.is_floating_point:
        return t.dtype in (torch.bool, torch.int64, torch.int32) and (
            t.dtype == torch.bool or t.numel() == 0 or int(t.abs().max()) < 10**6
        )
    if t.numel() == 0:
        return True
    most = float(t.detach().abs().max())
    return most <= (LIMIT if str(t.dtype)[6:] not in NARROW else 64.0)


def generated(seed: int) -> Program:
    """The program of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _generated(seed)


def _generated(seed: int) -> Program:
    g = Generator(seed)
    r = g.rng
    kind = r.choices(["forward", "outside", "inside", "error"], [45, 30, 20, 5])[0]
    g.grads = kind in ("outside", "inside")
    g.float = r.choices(FLOATS, [1, 7, 1, 1])[0]
    for _ in range(r.randrange(1, 4)):
        _first_input(g, kind)
    if r.random() < 0.12:
        g.add_alias()
    wanted = r.choice([3, 4, 5, 6, 8, 10, 12, 16, 20])
    tries = 0
    while len(g.steps) < wanted and tries < 4 * wanted + 20:
        tries += 1
        inside = kind == "inside" and len(g.steps) > 2 and r.random() < 0.3
        table = INSIDE if inside else TABLE
        g.step(r.choices(list(table.values()), [o.weight for o in table.values()])[0])
    _add_parts(g)
    if kind == "inside" and not any(s.op in INSIDE for s in g.steps):
        g.step(EVERY["backward"])
    if kind == "error":
        _add_error(g)
    grad = r.choice(["sum", "cotangents", "cotangents", "first"]) if kind == "outside" else "none"
    return Program(
        tuple(g.inputs), tuple(g.steps), _returns(g), grad, seed, g.plain and kind != "error"
    )


def _first_input(g: Generator, kind: str) -> None:
    r = g.rng
    shape = r.choices(SHAPES, SHAPE_WEIGHTS)[0]
    if r.random() < 0.3 and g.inputs:  # like one there is, so that they meet
        shape = r.choice(g.inputs).shape
    dtype = g.float if r.random() < 0.8 else r.choice([*FLOATS, "int64", "int32", "bool"])
    values = r.choices(["normal", "grid", "positive"], [6, 2, 2])[0]
    g.add_input(shape, dtype, values)


def _add_parts(g: Generator) -> None:
    """Now and then one or two values with parts of themselves, drawn apart from all others."""
    kept, g.rng = g.rng, random.Random(f"{g.seed} and a part of it")
    for _ in range(g.rng.choice([0, 0, 1, 2])):
        g.step(g.rng.choice(WITH_ITSELF))
    g.rng = kept


def _add_error(g: Generator) -> None:
    v = g.rng.choice(g.live())
    name, text = g.rng.choice(BAD)
    g.steps.append(Step(name, text, (v.ref,), (f"v{g.count}",)))
    g.count += 1


def _returns(g: Generator) -> tuple[str, ...]:
    """What nothing reads, and now and then an input, a second name for a value, or one twice."""
    r = g.rng
    made = [n for s in g.steps for n in s.outs]
    last = [n for n in made if n not in g.used]
    names = (last if len(last) <= 4 else r.sample(last, 4)) or made[-1:]
    if made and r.random() < 0.3:
        names = [*names, r.choice(made)]
    tensor_inputs = [s.name for s in g.inputs if s.dtype != "number"]
    if r.random() < 0.1 or not names:
        names = [*names, r.choice(tensor_inputs)]
    r.shuffle(names)
    return tuple(names)
