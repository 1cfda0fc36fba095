"""Write the stubs: `python -m tools.stubs`; with `--check`, say which of them are stale."""

from __future__ import annotations

import sys
from pathlib import Path

import lucerne
from tools.stubs.layout import COMMAND, HEADER
from tools.stubs.modules import stubs


def stale(texts: dict[Path, str]) -> list[Path]:
    """Stubs that are not what the table makes now."""
    return [p for p, text in texts.items() if not p.exists() or p.read_text("utf-8") != text]


def orphans(texts: dict[Path, str], package: Path) -> list[Path]:
    """Stubs that were made for a module that has moved."""
    found = [p for p in sorted(package.rglob("*.pyi")) if p not in texts]
    return [p for p in found if p.read_text("utf-8").startswith(HEADER)]


def main() -> str | None:
    texts = stubs()
    old, left = stale(texts), orphans(texts, Path(lucerne.__file__).parent)
    if "--check" in sys.argv[1:]:
        wrong = ", ".join(map(str, (*old, *left)))
        return f"stale: {wrong}: run `{COMMAND}`" if wrong else None
    for path in old:
        path.write_text(texts[path], encoding="utf-8")
    for path in left:
        path.unlink()
    print(f"{len(texts)} stubs: {len(old)} written, {len(left)} removed")
    return None


if __name__ == "__main__":
    sys.exit(main())
