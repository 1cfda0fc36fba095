"""Which of the tests before a test make it fail: a search that halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Fails = Callable[[list[str]], bool]
"""Whether the last test of a list fails when the list runs in one process."""


def culprits(test: str, before: Sequence[str], fails: Fails) -> list[str] | None:
    """The tests after which `test` fails: none of them may be left out.

    The empty list: it fails alone. None: it passes even after all of them, so it was chance (or
    the machine's load). Usually one test is found, after about log2 of their number tries.
    """
    if fails([test]):
        return []
    if not fails([*before, test]):
        return None
    needed: list[str] = []
    left = list(before)
    while not needed or not fails([*needed, test]):
        # the shortest beginning of `left` that fails together with what is known to be needed
        low, high = 0, len(left)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fails([*left[:middle], *needed, test]) else (middle, high)
        if not left:
            break
        needed.insert(0, left[high - 1])
        left = left[: high - 1]
    return needed
