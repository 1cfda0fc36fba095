"""Exercise 14: read the LLVM text of a kernel: how many numbers does one instruction take?"""

from __future__ import annotations

import re
from collections.abc import Callable

import lucerne as torch
from lucerne import backends

TOLD = r"AssertionError: float32: 1 number at a time was the answer, but the text"


def start() -> object:
    def width(text: str) -> int:
        """The most floats (or doubles) that one `load` takes."""
        return len(re.findall(r"load float,", text)) or 1

    return width


def solution() -> object:
    def width(text: str) -> int:
        """The most floats (or doubles) that one `load` takes."""
        found = re.findall(r"= load <(\d+) x (?:float|double)>", text)
        return max(map(int, found), default=1)

    return width


def check(width: Callable[[str], int]) -> None:
    answers = {}
    for dtype, word in ((torch.float32, "float"), (torch.float64, "double")):
        step = torch.compile(lambda x: (x * 2 + 1).relu(), fullgraph=True)
        step(torch.ones(1000, dtype=dtype))
        (kernel,) = step.entries[0].stages.program.steps
        text = backends.get("cpu").kernel_text(kernel.graph)["ll"]
        answers[word] = got = width(text)
        name = str(dtype).removeprefix("torch.")
        loads = [line.strip() for line in text.splitlines() if re.search(rf"load <.*{word}>", line)]
        assert not loads or any(f"<{got} x {word}>" in line for line in loads), (
            f"{name}: {got} number at a time was the answer, but the text says {loads[0]}"
        )
        assert not any(f"load <{2 * got} x {word}>" in line for line in loads), f"{name}: wider"
    assert answers["float"] == 2 * answers["double"], f"a double is two floats: {answers}"
    assert width("%v1 = load float, ptr %p, align 4") == 1, "a number alone is one number"
