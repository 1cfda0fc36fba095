"""Dumps: the text of every stage of a compile in a folder, with an index to click through.

    LUCERNE_DUMP=stages python train.py
    lucerne.compile(f, options={"dump": "stages"})

Each compile gets a folder of its own, `<folder>/<function>/<number>`; its files are written before
the index names them, and each appears at once or not at all.
"""

from __future__ import annotations

import html
import itertools
import os
import re
import secrets
from pathlib import Path
from typing import Any

from lucerne._src import backends
from lucerne._src.base.config import config
from lucerne._src.capture.guards import describe
from lucerne._src.capture.ledger import LedgerRow, ledger
from lucerne._src.capture.report import page
from lucerne._src.capture.report.replay import ReplayedPart, replay


def dump(folder: Path, fn: Any, entry: Any, options: Any, row: LedgerRow | None = None) -> Path:
    """Write every stage of an entry; returns the folder of this compile."""
    name = re.sub(r"[^\w.-]+", "_", describe.name_of(fn)).strip("_") or "function"
    home = _numbered(folder / name)
    listed: list[tuple[str, str, str]] = []
    guards = "\n".join(describe.guards_in_words(fn, entry.guards))
    write(home / "guards.txt", guards + "\n")
    listed.append(("guards.txt", f"{guards.count(chr(10)) + 1} guards", "when it may be used"))
    for part in replay(entry, options):
        prefix = "" if part.name == "call" else f"{part.name}-"
        listed += _stages(home, prefix, part)
        listed += _program(home, prefix, part, options)
    why = "" if row is None else f"{row.kind}: {row.why}"
    write(home / "index.html", _page(describe.name_of(fn), why, listed))
    write(folder / "index.html", _overview(folder))
    return home


def _stages(home: Path, prefix: str, part: ReplayedPart) -> list[tuple[str, str, str]]:
    found = []
    for k, stage in enumerate(part.stages):
        file = f"{prefix}{k:02d}-{stage.name}.txt"
        write(home / file, f"{stage.graph}\n")
        found.append((file, f"{len(stage.graph.nodes)} nodes", stage.why))
    return found


def _program(
    home: Path, prefix: str, part: ReplayedPart, options: Any
) -> list[tuple[str, str, str]]:
    program = part.program
    if program is None:
        return []
    groups = []
    for k, step in enumerate(program.steps):
        lines = [f"step {k}: {step.name}", *(f"  from {origin}" for origin in step.origins)]
        groups += [*lines, *(f"  {line}" for line in str(step.graph).splitlines()), ""]
    apart = [
        f"step {a.first} ({a.op}) and step {a.second} ({a.reader}): {a.why}" for a in part.apart
    ]
    texts = {
        "groups.txt": ("\n".join(groups), "what one kernel computes, and the lines it comes from"),
        "apart.txt": ("\n".join(apart) + "\n", "why neighbours are two kernels"),
        "program.txt": (f"{program}\n", "steps in order, with their places in memory"),
    }
    for name, text in kernel_texts(program, options).items():
        texts[f"kernels/{name}"] = text, "machine code's text"
    found = []
    for name, (text, why) in texts.items():
        write(home / f"{prefix}{name}", text)
        found.append((f"{prefix}{name}", f"{text.count(chr(10))} lines", why))
    return found


def kernel_texts(program: Any, options: Any) -> dict[str, str]:
    """LLVM IR of each different kernel by file name, where the backend tells and is asked to."""
    if not (options.dump_kernels or config.dump_kernels):
        return {}
    backend = backends.get(options.backend)
    found: dict[str, str] = {}
    for k, step in enumerate(program.steps):
        for kind, text in backend.kernel_text(step.graph).items():
            found[f"{k:03d}.{kind}"] = text
    return found


# ---- files --------------------------------------------------------------------------------------


def _numbered(folder: Path) -> Path:
    """A new folder inside; two processes never get the same one."""
    folder.mkdir(parents=True, exist_ok=True)
    for k in itertools.count(1):
        try:
            (folder / f"{k:03d}").mkdir()
        except FileExistsError:
            continue
        return folder / f"{k:03d}"
    raise AssertionError("counting ends")


def write(file: Path, text: str) -> None:
    """A file appears with all of its text, or stays as it was."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with part.open("x", encoding="utf-8") as out:
            out.write(text)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _page(title: str, why: str, listed: list[tuple[str, str, str]]) -> str:
    rows = [
        (_link(file, file), html.escape(size), html.escape(what)) for file, size, what in listed
    ]
    return page.page(title, f"<p>{html.escape(why)}</p>{page.table(('file', '', ''), rows)}")


def _overview(folder: Path) -> str:
    found = sorted(p.parent.relative_to(folder) for p in folder.glob("*/*/index.html"))
    rows = "".join(f"<li>{_link(f'{p}/index.html', str(p))}</li>" for p in found)
    return page.page("What was compiled", f"<ul>{rows}</ul>{ledger().table_html()}")


def _link(target: str, label: str) -> str:
    return f'<a href="{html.escape(target)}">{html.escape(label)}</a>'
