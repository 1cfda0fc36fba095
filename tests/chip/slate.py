"""The chip of docs/extend/porting_a_chip.md, made by running the page up to its registration."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tests.test_docs import examples, run

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "porting_a_chip.md"


@functools.cache
def page() -> dict[str, Any]:
    """What the page has defined after its first two stages."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for _, code, _ in examples(PAGE):
        run(code, namespace)
        if 'backends.register("slate", Slate())' in code:
            break
    return namespace


def make() -> Any:
    """A fresh backend."""
    return page()["Slate"]()
