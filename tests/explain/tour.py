"""Writes what the examples of the tour print into the page: python -m tests.explain.tour

With `--check` nothing is written; it fails if something would change.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path
from typing import Any

from lucerne._src.backends.cpu.runtime.llvm import llvm, version
from tests.test_docs import FENCE, ROOT, run

PAGE = ROOT / "docs" / "inside" / "machine_code_tour.md"
OF_THE_MACHINE = ("llvm", "asm")
MACHINE = re.compile(r"^<!-- machine: (\w+) -->\n", re.MULTILINE)


def machine() -> str:
    """Names the processor and the compiler that excerpts were made with."""
    found = llvm()
    named = b"|".join((found.triple, found.cpu, found.features, version().encode()))
    return hashlib.sha256(named).hexdigest()[:16]


def written(page: str) -> str:
    """The page with what its examples print now."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found: list[str] = []
    at, printed = 0, None
    for block in FENCE.finditer(page):
        language, body = block[1], block[2]
        if language == "python":
            printed = run(body, namespace)
        elif printed is not None and language in ("", *OF_THE_MACHINE):
            body, printed = printed.rstrip() + "\n", None
        found += [page[at : block.start()], f"```{language}\n{body}```"]
        at = block.end()
    text = "".join([*found, page[at:]])
    head, _, rest = MACHINE.sub("", text).partition("\n")
    return f"{head}\n<!-- machine: {machine()} -->\n{rest}"


def shape(code: str) -> set[str]:
    """The instructions of an excerpt, without registers, numbers and the width of vectors."""
    return set(re.findall(r"\b(?:load|store|fadd|fmul|getelementptr|br|phi)\b", code))


def differences(page: Path = PAGE) -> list[str]:
    """What the page says and is no longer so."""
    old, new = page.read_text(), written(page.read_text())
    blocks = [[(b[1], b[2]) for b in FENCE.finditer(t)] for t in (old, new)]
    same_machine = MACHINE.findall(old) == [machine()]
    found = []
    for (language, before), (_, now) in zip(*blocks, strict=True):
        if language in OF_THE_MACHINE and not same_machine:
            if not now.strip() or (language == "llvm" and shape(before) != shape(now)):
                found.append(f"an excerpt of {language} has another shape:\n{now}")
        elif before != now:
            found.append(f"it prints\n{now}\ninstead of\n{before}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.explain.tour", description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        found = differences()
        print("\n".join(found) or "the tour is true")
        return int(bool(found))
    PAGE.write_text(written(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
