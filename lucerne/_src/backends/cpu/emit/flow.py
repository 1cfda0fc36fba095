"""Structured control flow of the builder: what `f.loop`, `f.while_` and `f.if_` return."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.types import I64
from lucerne._src.backends.cpu.emit.values import LLVMValue


class Loop:
    """A rotated counting loop. After it `results` holds the final carried values."""

    def __init__(
        self,
        f: Any,
        start: LLVMValue,
        stop: LLVMValue,
        step: LLVMValue,
        carry: list[LLVMValue],
        sure: bool,
    ) -> None:
        self.f, self.start, self.stop, self.step, self._first, self.sure = (
            f,
            start,
            stop,
            step,
            carry,
            sure,
        )
        self.results: list[LLVMValue] = []
        self._next: list[LLVMValue] | None = None

    def __enter__(self) -> Loop:
        f = self.f
        self._body, self._exit = f.fresh("loop"), f.fresh("done")
        if self.sure:
            f.jump(self._body)
        else:
            f.branch(f.compare("lt", self.start, self.stop), self._body, self._exit)
        self._before = f.block
        f.label(self._body)
        self.index = LLVMValue(f, I64, f"%{f.fresh('i')}")
        self._index_line = f.reserve()
        self.carried = [LLVMValue(f, v.type, f"%{f.fresh('c')}") for v in self._first]
        self._carry_lines = [f.reserve() for _ in self._first]
        return self

    def next(self, *values: Any) -> None:
        """The carried values of the next round."""
        self._next = [self.f.constant(v, c.type) for v, c in zip(values, self.carried, strict=True)]

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            return
        f = self.f
        after = self._next if self._next is not None else ([] if not self._first else None)
        if after is None:
            raise ValueError("a loop with carried values must call loop.next(...)")
        following = f.value(I64, f"add nsw i64 {self.index.text}, {self.step.text}")
        again = f.compare("lt", following, self.stop)
        last = f.block
        f.branch(again, self._body, self._exit)
        before = self._before
        sources = f"[{self.start.text}, %{before}], [{following.text}, %{last}]"
        f.fill(self._index_line, f"{self.index.text} = phi i64 {sources}")
        for line, c, v0, v1 in zip(
            self._carry_lines, self.carried, self._first, after, strict=True
        ):
            f.fill(
                line, f"{c.text} = phi {c.type.text} [{v0.text}, %{before}], [{v1.text}, %{last}]"
            )
        f.label(self._exit)
        if self.sure:
            self.results = after
        else:
            self.results = [
                f.value(v0.type, f"phi {v0.type.text} [{v0.text}, %{before}], [{v1.text}, %{last}]")
                for v0, v1 in zip(self._first, after, strict=True)
            ]


class While:
    """A loop that runs at least once and goes on while `again`'s condition holds."""

    def __init__(self, f: Any, carry: list[LLVMValue]) -> None:
        self.f, self._first = f, carry
        self.results: list[LLVMValue] = []

    def __enter__(self) -> While:
        f = self.f
        self._body, self._exit = f.fresh("while"), f.fresh("over")
        f.jump(self._body)
        self._before = f.block
        f.label(self._body)
        self.carried = [LLVMValue(f, v.type, f"%{f.fresh('c')}") for v in self._first]
        self._lines = [f.reserve() for _ in self._first]
        self._again: tuple[LLVMValue, list[LLVMValue]] | None = None
        return self

    def again(self, condition: LLVMValue, *values: Any) -> None:
        """Go round again with these values if `condition`; else they are the results."""
        made = [self.f.constant(v, c.type) for v, c in zip(values, self.carried, strict=True)]
        self._again = (condition, made)

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            return
        if self._again is None:
            raise ValueError("a while loop must call again(condition, ...)")
        f = self.f
        condition, values = self._again
        last = f.block
        f.branch(condition, self._body, self._exit)
        for line, c, v0, v1 in zip(self._lines, self.carried, self._first, values, strict=True):
            f.fill(
                line,
                f"{c.text} = phi {c.type.text} [{v0.text}, %{self._before}], [{v1.text}, %{last}]",
            )
        f.label(self._exit)
        self.results = values


class Branch:
    """An if with an optional else; both sides may give values."""

    def __init__(self, f: Any, condition: LLVMValue) -> None:
        self.f, self.condition = f, condition
        self._given: list[list[LLVMValue]] = []
        self._ends: list[tuple[str, bool]] = []
        self.results: list[LLVMValue] = []
        self._no: str | None = None

    def __enter__(self) -> Branch:
        f = self.f
        yes, self._no, self._join = f.fresh("yes"), f.fresh("no"), f.fresh("join")
        f.branch(self.condition, yes, self._no)
        f.label(yes)
        self._given.append([])
        return self

    def give(self, *values: LLVMValue) -> None:
        """The values of this side."""
        self._given[-1] = list(values)

    def _close(self) -> None:
        f = self.f
        self._ends.append((f.block, not f._ended))
        f.jump(self._join)

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            return
        self._close()
        f = self.f
        assert self._no is not None
        f.label(self._no)
        # Without an else this empty block falls through to the join.
        self._pending = len(f._lines)
        f.emit(f"br label %{self._join}")
        f.label(self._join)

    def else_(self) -> _Else:
        return _Else(self)


class _Else:
    def __init__(self, branch: Branch) -> None:
        self.b = branch

    def __enter__(self) -> Branch:
        b, f = self.b, self.b.f
        if len(f._lines) != b._pending + 2:
            raise ValueError("else_ must follow its if_ directly")
        del f._lines[b._pending :]
        assert b._no is not None
        f.block, f._ended = b._no, False
        b._given.append([])
        return b

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            return
        b, f = self.b, self.b.f
        b._close()
        (one, one_lives), (two, two_lives) = b._ends
        f.label(b._join)
        if not one_lives and not two_lives:
            f.emit("unreachable")
            f._ended = True
            return
        first, second = b._given
        if one_lives and two_lives:
            b.results = [
                f.value(x.type, f"phi {x.type.text} [{x.text}, %{one}], [{y.text}, %{two}]")
                for x, y in zip(first, second, strict=True)
            ]
        else:
            b.results = first if one_lives else second
