"""`python -m tests.ecosystem`: run other people's libraries on Lucerne, and print a table.

    python -m tests.ecosystem                    every scenario whose library is installed
    python -m tests.ecosystem llama peft_lora    these
    python -m tests.ecosystem --ring core        the ten core libraries (or: next)
    python -m tests.ecosystem --models           Hugging Face models compiled, beside eager
    python -m tests.ecosystem --causal           every causal language model of transformers, tiny
    python -m tests.ecosystem --own-tests        the libraries' own test files, on the real torch of
                                                 --torch and on the Lucerne of --lucerne, from the
                                                 unpacked sources in --sources; --only PART of the
                                                 files' paths, --again those that had misses
    python -m tests.ecosystem --torch PYTHON     also on the real torch of that Python, which
                                                 gives the reference and a time to compare
    python -m tests.ecosystem --markdown FILE    also write docs/results/ecosystem.md's page
    python -m tests.ecosystem --since FILE       also say which library's new release broke what
                                                 passed at the sweep before, which FILE holds;
                                                 rows of scenarios that do not run now stay

Each scenario runs in a process of its own, with nothing but the import hook. Numbers are compared
with those of torch, which stand in reference.json. The libraries are those of libraries.txt.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from tests.ecosystem import batches, causal, models, own_tests, releases, sweep


def _models(names: list[str], seconds: float) -> int:
    """A table of models: differences from eager (of the largest value), breaks and programs of a
    training step over 50, CPU seconds of the first call of each kind."""
    print(models.HEAD, flush=True)
    right = 0
    for name in names:
        row = sweep.run_model(name, seconds)
        right += models.is_right(row)
        print(models.as_line(row), flush=True)
    print(f"{right} of {len(names)} are one program with eager's numbers")
    return 0 if right == len(names) else 1


def _causal(names: list[str], torch: str, seconds: float) -> int:
    """What is not as torch has it, kind by kind; kinds that torch can't run so small are listed."""
    part = ["-m", "tests.ecosystem.causal"]
    version = metadata.version("transformers")
    if torch:
        for told in batches.run([torch, *part], names or causal.kinds(), seconds):
            causal.record(told, version)
    known = causal.recorded()
    chosen = [kind for kind in names or known if "error" not in known[kind]]
    right, ours, theirs = 0, 0.0, 0.0
    for told in batches.run([sys.executable, "-m", "lucerne.as_torch", *part], chosen, seconds):
        kind = told["kind"]
        why = causal.wrong(told, known[kind])
        right += not why
        ours, theirs = ours + told.get("seconds", 0.0), theirs + known[kind]["seconds"]
        print(f"{kind:<28} {why or 'ok'}", flush=True)
    for kind in sorted(set(names or known) - set(chosen)):
        print(f"{kind:<28} not on torch either, at {known[kind]['at']}: {known[kind]['error']}")
    print(f"{right} of {len(chosen)} as torch has them, {ours:.0f} s of CPU (torch {theirs:.0f} s)")
    return 0 if right == len(chosen) else 1


def _own_tests(options: argparse.Namespace) -> int:
    """A line after some files, then a table of libraries; misses are shown as they come."""
    right = True
    before = own_tests.recorded()
    for name in options.names or list(own_tests.SUITES):
        missed = (
            {file for file, x in before[name].files.items() if x.misses} if options.again else ()
        )
        row, said = None, set[str]()
        for row in own_tests.run(
            name, options.sources, options.torch, options.lucerne,
            lambda file: options.only in file and (not options.again or file in missed),  # noqa: B023
            options.seconds,
        ):  # fmt: skip
            print(own_tests.as_line(row), flush=True)
            for test in sorted(set(row.misses) - said):
                print(f"    {test}: {row.misses[test]}", flush=True)
            said |= set(row.misses)
        if row is None:
            print(f"{name}: no such test files of it in {options.sources}")
        right = right and row is not None and row.share >= own_tests.ENOUGH
    return 0 if right else 1


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m tests.ecosystem")
    made.add_argument("names", nargs="*", help="scenarios (default: all)")
    made.add_argument("--ring", choices=sorted(sweep.RINGS), help="only this ring")
    made.add_argument("--models", action="store_true", help="models compiled with fullgraph=True")
    made.add_argument("--causal", action="store_true", help="causal language models, tiny")
    made.add_argument("--torch", default="", help="a Python with real torch and the libraries")
    made.add_argument("--own-tests", action="store_true", help="the libraries' own test files")
    made.add_argument("--lucerne", default=sys.executable, help="a Python without torch")
    made.add_argument("--sources", type=Path, default=Path(), help="unpacked sdists or checkouts")
    made.add_argument("--only", default="", help="own tests: files whose path has this in it")
    made.add_argument("--again", action="store_true", help="own tests: files with misses")
    made.add_argument("--since", type=Path, help="the sweep before; this one takes its place")
    made.add_argument("--seconds", type=float, default=300.0, help="how long a scenario may take")
    made.add_argument("--markdown", type=Path, help="also write the table as a page")
    made.add_argument("--when", default="on a machine of two cores", help="the page says it")
    options = made.parse_args()
    if options.models:
        return _models(options.names or list(models.MODELS), options.seconds)
    if options.own_tests:
        return _own_tests(options)
    if options.causal:
        return _causal(options.names, options.torch, options.seconds)
    known = sweep.names(options.ring)
    chosen = options.names or known
    unknown = [n for n in chosen if n not in known]
    if unknown:
        print(f"no scenario named {', '.join(unknown)}; there are: {' '.join(known)}")
        return 2
    rows = []
    for name in chosen:
        if options.torch:
            row = sweep.beside(name, options.torch, options.seconds)
        else:
            row = sweep.run(name, seconds=options.seconds)
        rows.append(row)
        print(sweep.as_line(row), flush=True)
    passed = sum(row.state == "ok" for row in rows)
    absent = sum(row.state == "absent" for row in rows)
    print(f"{passed} of {len(rows) - absent} pass; {absent} not installed")
    if options.since:
        rows = _since(options.since, rows)
    if options.markdown:
        options.markdown.write_text(sweep.as_markdown(rows, options.when), encoding="utf-8")
    return 0 if passed + absent == len(chosen) else 1


def _since(path: Path, rows: list[sweep.Row]) -> list[sweep.Row]:
    """Say what broke since the sweep that the file holds, and keep this one there: all its rows."""
    now = {row.name: asdict(row) for row in rows}
    before = releases.read(path)
    if before is None:
        print(f"{path}: the first sweep, for the next to compare with")
    else:
        lines = releases.broken(before, {"versions": releases.versions(), "scenarios": now}, _needs)
        print("\n".join(lines) or "nothing that passed broke")
        now = {**before["scenarios"], **now}
    releases.write(path, {"versions": releases.versions(), "scenarios": now})
    return [sweep.Row(**now[name]) for name in sweep.names() if name in now]


def _needs(name: str) -> set[str]:
    return releases.closure(releases.distribution_of(sweep.library_of(name)))


if __name__ == "__main__":
    sys.exit(main())
