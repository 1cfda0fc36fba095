"""Programs made at random: nested branches, loops, handlers, closures, generators, tensors.

`source_of(seed)` is the text of a function `program(a, b, log)`; with tensors, it also has a tensor
`t` and an object `box` that holds some. It always ends, and says in `log` which way it took.
"""

from __future__ import annotations

import random
from typing import Any

import lucerne as torch
from tests.capture_bytecode.cases import Case

_NAMES = ("a", "b", "c")


class _Writer:
    """Writes a function, one line after another."""

    def __init__(self, seed: int, tensors: bool = False) -> None:
        self.random, self.tensors = random.Random(seed), tensors
        self.lines: list[str] = []
        self.left = 14
        """How many compound statements there may still be."""
        self.fresh = 0

    def program(self) -> str:
        self.write(0, "def program(a, b, log, t=None, box=None):")
        self.write(1, "c = a - b")
        for _ in range(self.random.randint(2, 5)):
            self.statement(1, loop=False)
        self.write(1, "return a, b, c, t")
        return "\n".join(self.lines) + "\n"

    def write(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def name(self) -> str:
        return self.random.choice(_NAMES)

    def new(self) -> str:
        self.fresh += 1
        return f"v{self.fresh}"

    def value(self, depth: int = 2) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.3:
            return r.choice((*_NAMES, str(r.randint(-3, 9))))
        left, right = self.value(depth - 1), self.value(depth - 1)
        form = r.choice(
            (
                "({} + {})", "({} - {})", "({} * {} % 17)", "({} // {})", "({} % {})",
                "max({}, {})", "({} if {} > 2 else 1)", "({} and {})", "({} or {})",
                "sum(x for x in ({}, {}))",
                "[{}, {}][0]", "(lambda p, q=3: p + q)({}, {})", "len([{}] * abs({} % 4))",
            )
        )  # fmt: skip
        return form.format(left, right)

    def condition(self) -> str:
        r = self.random
        if self.tensors and r.random() < 0.15:
            return f"t.sum() > {self.value(1)}"
        form = r.choice(
            ("{} < {}", "{} == {}", "{} in (1, 2, {})", "{} < {} < 9", "not {} and {}", "{} or {}")
        )
        return form.format(self.value(1), self.value(1))

    def body(self, depth: int, loop: bool) -> None:
        self.write(depth, f"log.append({self.random.randint(0, 999)})")
        for _ in range(self.random.randint(1, 2)):
            self.statement(depth, loop)

    def statement(self, depth: int, loop: bool) -> None:
        simple = [self.assign, self.assign, self.note, self.unpack]
        if self.tensors:
            simple += [self.compute] * 6
        if loop:
            simple.append(self.leave_loop)
        if depth > 1:
            simple.append(self.fail)
        compound = [self.branch, self.loop, self.attempt, self.closure, self.generator, self.scope]
        if self.left <= 0 or depth > 5 or self.random.random() < 0.35:
            self.random.choice(simple)(depth)
            return
        self.left -= 1
        self.random.choice(compound)(depth, loop)

    def assign(self, depth: int) -> None:
        sign = self.random.choice(("=", "+=", "-="))
        self.write(depth, f"{self.name()} {sign} {self.value()}")

    def compute(self, depth: int) -> None:
        """A line with tensors; sizes stay, and so do numbers that floats hold exactly."""
        lines = (
            "t = (t + {}) % 16",
            "t = torch.relu(t - {})", "t = torch.stack([t, t * 2]).amax(0) % 8",
            "t += {}", "t.sub_(1)", "box.t = t * 2", "t = box.t % 8 + 1", "log.append(t + {})",
            "box.table['k'] = t", "box.steps += 1", "t = sum(t * k for k in range(2)) % 16",
            "t = t.flip(0)", "log.append(tuple(t.shape))", "log.append(t.max().item())",
            "t = torch.where(t > {}, t, -t)", "t = layer(t, {})", "t = [t, t + 1][{} % 2]",
        )  # fmt: skip
        self.write(depth, self.random.choice(lines).format(self.value(1)))

    def note(self, depth: int) -> None:
        self.write(depth, f'log.append(f"{{{self.name()}!r:>4}}|{{{self.value(1)}}}")')

    def unpack(self, depth: int) -> None:
        self.write(depth, f"a, *_, b = [k + {self.value(1)} for k in range(2, 5) if k != c]")

    def leave_loop(self, depth: int) -> None:
        word = self.random.choice(("break", "continue", "return (a, 'early')"))
        self.write(depth, f"if {self.condition()}: {word}")

    def fail(self, depth: int) -> None:
        kind = self.random.choice(("ValueError", "KeyError", "ZeroDivisionError"))
        self.write(depth, f"if {self.condition()}: raise {kind}({self.value(1)})")

    def branch(self, depth: int, loop: bool) -> None:
        self.write(depth, f"if {self.condition()}:")
        self.body(depth + 1, loop)
        if self.random.random() < 0.6:
            self.write(depth, "else:")
            self.body(depth + 1, loop)

    def loop(self, depth: int, loop: bool) -> None:
        k = self.new()
        if self.random.random() < 0.5:
            self.write(depth, f"for {k} in range(abs({self.name()} % 4)):")
        else:
            self.write(depth, f"{k} = 0")
            self.write(depth, f"while {k} < 3:")
            self.write(depth + 1, f"{k} += 1")
        self.body(depth + 1, True)
        if self.random.random() < 0.3:
            self.write(depth, "else:")
            self.body(depth + 1, loop)

    def attempt(self, depth: int, loop: bool) -> None:
        self.write(depth, "try:")
        self.body(depth + 1, loop)
        kinds = self.random.choice(("ValueError", "(KeyError, ZeroDivisionError)", "Exception"))
        ending = self.random.random()
        if ending < 0.8:
            self.write(depth, f"except {kinds} as error:")
            self.write(depth + 1, "log.append(repr(error))")
            self.write(depth + 1, "log.append(repr(error.__context__))")
            self.body(depth + 1, loop)
            if self.random.random() < 0.3:
                self.write(depth + 1, self.random.choice(("raise", "raise KeyError from error")))
        if self.random.random() < 0.4 or ending >= 0.8:
            self.write(depth, "finally:")
            self.write(depth + 1, "log.append('finally')")

    def closure(self, depth: int, loop: bool) -> None:
        f = self.new()
        self.write(depth, f"def {f}(x, *more, y={self.value(1)}):")
        self.write(depth + 1, "nonlocal_log = log")
        self.write(depth + 1, f"nonlocal_log.append(('in', x, more, y, {self.name()}))")
        self.write(depth + 1, f"return x + y + {self.name()}")
        call = self.random.choice((f"{f}({self.value(1)})", f"{f}(*(1, 2), y={self.value(1)})"))
        self.write(depth, f"{self.name()} = {call}")

    def generator(self, depth: int, loop: bool) -> None:
        g = self.new()
        self.write(depth, f"def {g}(n):")
        # With tensors nothing tells when a generator is closed: who compiles the program may hold
        # it longer than Python does.
        if not self.tensors:
            self.write(depth + 1, "try:")
        self.write(depth + 2, "for k in range(n):")
        self.write(depth + 3, f"yield k * {self.value(1)}")
        self.write(depth + 2, "yield from (n, n)")
        if not self.tensors:
            self.write(depth + 1, "finally:")
            self.write(depth + 2, "log.append('closed')")
        k = self.new()
        self.write(depth, f"for {k} in {g}(abs({self.name()} % 3)):")
        self.write(depth + 1, f"log.append({k})")
        self.body(depth + 1, True)

    def scope(self, depth: int, loop: bool) -> None:
        self.write(depth, f"with Noted(log, {self.condition()}):")
        self.body(depth + 1, loop)


class Noted:
    """A context that may swallow a KeyError."""

    def __init__(self, log: list[Any], swallow: Any) -> None:
        self.log, self.swallow = log, swallow

    def __enter__(self) -> Noted:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.log.append(("exit", repr(error)))
        return bool(self.swallow) and isinstance(error, KeyError)


class Box:
    """State that a program changes."""

    def __init__(self, t: Any) -> None:
        self.t, self.steps, self.table = t, 0, {"k": t}


def layer(t: Any, k: Any) -> Any:
    """A function of the user's outside of the program."""
    if k > 3:
        return (t * 2 - k) % 8
    return torch.minimum(t, t.flip(0)) + 1


def source_of(seed: int, tensors: bool = False) -> str:
    """The text of a program."""
    return _Writer(seed, tensors).program()


def case_of(seed: int, tensors: bool = False) -> Case:
    """A program with arguments that depend on the seed too."""
    space: dict[str, Any] = {"Noted": Noted, "torch": torch, "layer": layer}
    space["__name__"] = "programs_random"
    exec(compile(source_of(seed, tensors), "/programs_random.py", "exec"), space)
    numbers = random.Random(seed)
    a, b = numbers.randint(-4, 12), numbers.randint(-4, 12)

    def make() -> tuple[Any, ...]:
        if not tensors:
            return a, b, []
        return a, b, [], torch.arange(4.0) - 1, Box(torch.ones(4))

    return Case(f"random-{seed}", space["program"], make)
