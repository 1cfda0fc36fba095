"""Random Python programs over sizes, as source.

A program gets two tensors of one dimension. It computes integers and floats from their sizes,
decides by them, loops over them, keeps them in containers, slices and makes tensors with them, and
returns a tensor with all its numbers.
"""

from __future__ import annotations

import linecache
import math
import random
import re
from collections.abc import Callable
from typing import Any

import lucerne as torch
from lucerne.nn import functional as F

# In these, I and J are integers, R and S floats, T is a tensor, and digits are as they stand.
INTEGERS = (
    "I + J", "I - J", "I * 2", "I * J % 17", "I // 2", "I // 3", "I // (J + 1)", "I % 4", "I % 5",
    "-I", "abs(I - 6)", "(I + 1) ** 2 % 23", "min(I, 5)", "max(I, J)", "min(I, J, 9)",
    "max([I, 3])", "divmod(I, 3)[0]", "divmod(I, 5)[1]", "I & 3", "I | 4", "I ^ J", "I >> 1",
    "(I % 5) << 2", "~I", "int(R)", "int(I * 0.3)", "int(0.75 * I)", "round(R)", "round(I * 0.7)",
    "math.floor(I / 3)", "math.ceil(I / 4)", "math.trunc(R)", "math.isqrt(abs(I))",
    "int(abs(I) ** 0.5)", "int(math.log2(abs(I) + 1))", "math.gcd(I, 6)", "math.prod((I % 5, 3))",
    "len(str(I))", "int(str(abs(I)))", "[3, 1, 4, 1, 5][I % 5]", "(2, 7, 1)[I % 3]",
    "{3: 1, 5: 2, 8: 4}.get(I, 6)", "sum(range(I % 6))", "sum([I, J, 1])",
    "len(range(0, I % 9, 2))", "abs(I).bit_length()", "helper(I)", "(lambda k: k + J)(I)",
    "sorted([I, J, 4])[1]", "(I if I > J else J)", "(I == 7) + 1", "bool(I) + J", "T.shape[0]",
    "len(T)", "T.size(-1)", "T.numel()", "T.unsqueeze(0).shape[1]", "T[1:].shape[0]",
    "int(float(I))", "holder['n'] + I", "counts[I % 2]", "pow(I, 2) % 19", "T.stride(0) + I",
    "round(I / 3, 1) // 1 == 2", "I.__index__()", "F.pad(T, (1, 2)).shape[0]",
    "F.max_pool1d(T[None], 2, ceil_mode=True).shape[1]",
    "F.conv1d(T[None, None], torch.ones(1, 1, 3), padding=2, stride=2).shape[2]",
    "math.comb(abs(I) % 7, 2)", "hash(I) % 11", "int(isinstance(I, int)) + I",
    "int(type(I) is int)",
)  # fmt: skip
FLOATS = (
    "R + S", "R - S", "R * 0.5", "R / 3", "I / 3", "I / (abs(J) + 1)", "I * 0.1", "abs(I) ** 0.5",
    "(abs(I) + 1) ** -0.5", "math.sqrt(abs(I))", "1 / math.sqrt(abs(I) + 1)",
    "math.log(abs(I) + 1)", "math.exp(-abs(I) / 9)", "float(I)", "round(R, 1)", "abs(R)", "-R",
    "R % 2.5", "R // 0.7", "max(R, 1.5)", "min(R, S)", "I * R / 7", "1.5 if I == J else R",
    "math.sin(I)", "math.hypot(I, 2.0)", "float(str(I))", "sum([R, S])", "0.5 * (I % 3)",
    "math.copysign(R, I)", "math.fmod(R, 3)", "math.pow(1.1, I % 8)", "float(math.floor(R))",
)  # fmt: skip
CONDITIONS = (
    "I == 7", "I != J", "I < 5", "I >= J", "3 <= I <= 8", "I in (7, 11)", "I not in [2, 5, 6]",
    "I % 2 == 0", "I", "not I - 4", "R > 1.5", "R == S", "S <= R", "str(I) == '7'", "I == 7.0",
    "I > 4.5", "x.shape == (6,)", "x.shape == y.shape", "len(T) > 5", "I == J and J > 3",
    "I < 3 or R < 2", "{7: 1}.get(I)", "I in {4, 9}", "I in {6: 0, 8: 0}", "bool(I % 3)",
    "T.shape[0] == I", "divmod(I, 3) == (2, 1)", "[I, J] < [J, I]", "(I, 3) == (J, 3)",
    "any([I == 3, I == 8])", "all((I > 2, J > 2))", "math.isfinite(R)", "R.is_integer()",
    "max(I, J) == I", "f'{I}'.startswith('1')", "isinstance(I, int) and I > 6",
)  # fmt: skip
TENSORS = (
    "T * I", "T + R", "T * R", "T - J", "T / (abs(I) + 1)", "T[: I]", "T[I % 4 :]",
    "T[:: I % 3 + 1]", "T[: int(len(T) * 0.6) + 1]", "T[-(abs(I) % 3 + 1) :]", "T + T[-1:]",
    "T + x.sum()", "T.flip(0)", "torch.cat([T, y[: I % 5]])", "torch.cat([x, T])[:40]",
    "F.pad(T, (I % 3, 1))", "T + torch.arange(T.shape[0])", "T * torch.linspace(0, 1, len(T))",
    "T + torch.zeros(len(T))", "torch.full((abs(I) % 6 + 1,), R) + T.sum()",
    "torch.ones(abs(I) % 7 + 2) * T.mean()", "T.expand(2, len(T)).reshape(-1)[:50]",
    "T.repeat(2)[: len(T) + 1]", "T.view(1, -1).t().reshape(-1)", "T.topk(min(3, len(T)))[0]",
    "T.sort()[0]", "T.cumsum(0) * 0.1", "T.roll(I % 4)", "T.chunk(2)[0]",
    "T.split(abs(I) % 3 + 2)[0]", "torch.stack([T, T * 2]).sum(0)",
    "F.interpolate(T[None, None], scale_factor=1.5)[0, 0][:50]", "T.softmax(0) * len(T)",
    "F.interpolate(T[None, None], size=abs(I) % 9 + 2, mode='linear')[0, 0]",
    "F.avg_pool1d(T[None], 2, ceil_mode=True)[0] + I",
    "F.layer_norm(T + torch.arange(len(T)), T.shape)",
    "F.conv1d(T[None, None], torch.ones(1, 1, 3) * 0.5, padding=1)[0, 0]",
    "T.unfold(0, 2, 1).sum(1)", "T.reshape(-1, 1).expand(-1, 3).sum(1)",
    "torch.where(T > R, T, T * 2)", "T.narrow(0, 0, (len(T) + 1) // 2)",
    "(T[:, None] * T[None]).sum(1) / len(T)", "T - T.mean()", "torch.tensor(I) + T",
    "torch.tensor([I, J]).sum() + T", "T.new_ones(len(T)) * I + T", "T * (T.shape[0] ** -0.5)",
    "T.var() + T", "F.pad(T, (0, -len(T) % 4)).view(-1, 4).sum(1)", "T.clone().fill_(R) + T",
    "torch.eye(len(T))[0] + T", "T[T.shape[0] // 2] * T", "T.std() * T",
    "torch.arange(0, len(T) * 2, 2)[: len(T)] + T",
    "T.masked_fill(torch.arange(len(T)) > I, 1.5)",
)  # fmt: skip
STATEMENTS = (
    "for i in range(I % 4): T = T + i",
    "for k in (I, J): T = T + k",
    "if C: T = T * 2.0",
    "if C: I = I + 3",
    "if C: T = T + I",
    "if C: R = R * 2",
    "assert I == I",
    "counts[0] = I",
    "holder['n'] = I",
    "T = T.clone(); T[: I % 5] = R",
    "T = T.clone(); T[-1] += I",
    "I, J = J, I",
    "while I > 20: I //= 2",
    "counts.append(I % 7)",
    "T = T + sum(counts)",
    "T = T * [R, S][I % 2]",
    "T = T + {I: 1.0, J: 2.0}[J]",
    # (by 0 a tensor is multiplied, not divided: that would show the sign of a rounding error)
    "try: T = T * (10 // (I - 6))\n    except ZeroDivisionError: T = T - 1",
)
HELPERS = (
    "def helper(k):\n    return k * 2 if k < 9 else k - 4\n",
    "def helper(k):\n    if k == 7:\n        return 1\n    return k // 2 + 1\n",
    "def helper(k):\n    return int(k * 0.4) + len(str(k))\n",
    "def helper(k):\n    total = 0\n    while k > 1:\n        k, total = k // 2, total + 1\n"
    "    return total\n",
)
NAMES = {"I": ("a", "b", "c", "n", "m"), "J": ("a", "b", "c", "n", "m"), "R": ("p", "q"),
         "S": ("p", "q"), "T": ("t",)}  # fmt: skip
_LETTER = re.compile(r"(?<![\w.'])[IJRST](?![\w'])")


class Program:
    """One program by its number."""

    def __init__(self, seed: int) -> None:
        self.seed, self.dice = seed, random.Random(seed)
        self.source = self._source()
        self.file = f"<size program {seed}>"

    def function(self) -> Callable[..., Any]:
        """A new function of the source, whose lines tracebacks and the compiler find."""
        linecache.cache[self.file] = len(self.source), None, self.source.splitlines(True), self.file
        scope: dict[str, Any] = {"torch": torch, "F": F, "math": math, "__name__": self.file}
        exec(compile(self.source, self.file, "exec"), scope)
        made: Callable[..., Any] = scope["program"]
        return made

    def sizes(self) -> list[tuple[int, int]]:
        """Eight pairs of sizes, in random order; some are 0 or 1, some are the same for both."""
        low = 0 if self.dice.random() < 0.1 else 1 if self.dice.random() < 0.3 else 2
        found = []
        for _ in range(8):
            n = self.dice.randint(low, 24)
            same = self.dice.random() < 0.4
            found.append((n, n if same else self.dice.randint(max(low, 1), 24)))
        return found

    def _filled(self, text: str) -> str:
        names = {letter: self.dice.choice(given) for letter, given in NAMES.items()}
        return _LETTER.sub(lambda found: names[found[0]], text)

    def _statement(self) -> str:
        kind = self.dice.random()
        if kind < 0.3:
            return self._filled(f"{self.dice.choice('abc')} = {self.dice.choice(INTEGERS)}")
        if kind < 0.42:
            return self._filled(f"{self.dice.choice('pq')} = {self.dice.choice(FLOATS)}")
        if kind < 0.75:
            return self._filled(f"t = {self.dice.choice(TENSORS)}")
        text = self.dice.choice(STATEMENTS).replace("C", self.dice.choice(CONDITIONS))
        return self._filled(text)

    def _source(self) -> str:
        lines = [
            "n, m = x.shape[0], len(y)", "a, b, c = n, m, n + m", "p, q = n / 4, 1.5",
            "counts, holder = [n, 2], {'n': m}", "t = x + 0.5",
        ]  # fmt: skip
        lines += [self._statement() for _ in range(self.dice.randint(3, 8))]
        lines.append("return t, (a, b, c), [p, q], counts")
        body = "".join(f"    {line}\n" for line in lines)
        return f"{self.dice.choice(HELPERS)}\n\ndef program(x, y):\n{body}"
