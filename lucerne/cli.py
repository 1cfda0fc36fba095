"""The `lucerne` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucerne import backends, contract
from lucerne.conformance import DataError, frozen_cases, oracle_cases, report, run
from lucerne.conformance.page import page
from lucerne.ir.scalar import REQUIRED


def _primitives(options: argparse.Namespace) -> int:
    if options.markdown:
        sys.stdout.write(contract.as_markdown())
        return 0
    print(f"scalar instructions: {len(REQUIRED)} required")
    print("  " + " ".join(REQUIRED))
    print(f"scalar instructions with a default: {len(contract.optional_instructions())}")
    print("  " + " ".join(contract.optional_instructions()))
    ops = contract.primitives()
    print(f"primitives: {len(ops)}")
    for op in ops:
        print(f"  {op.kind:<11}{contract.signature(op):<60} {contract.first_line(op)}")
    return 0


def _missing(options: argparse.Namespace) -> int:
    gaps = contract.missing(options.device)
    print(f"{options.device}: {len(gaps)} of {len(contract.primitives())} primitives have no rule")
    for name in gaps:
        print(f"  {name}")
    return 0


def _conformance(options: argparse.Namespace) -> int:
    try:
        backends.get(options.device)
        chosen = [*frozen_cases(top_package(), options.data), *oracle_cases()]
    except (DataError, RuntimeError) as error:  # RuntimeError: no such device
        print(f"lucerne conformance: {error}", file=sys.stderr)
        return 2
    if options.op:
        chosen = [case for case in chosen if case.op in options.op]
    if not chosen:
        print(f"lucerne conformance: no cases for {', '.join(options.op)}", file=sys.stderr)
        return 2
    found = run(chosen, options.device, progress=sys.stderr.isatty())
    print(report.text(found, options.device, failures=not options.summary))
    if options.html:
        Path(options.html).write_text(page(found, options.device), encoding="utf-8")
        print(f"page: {options.html}")
    return 0 if all(o.ok for o in found) else 1


def top_package() -> Any:
    """`lucerne` itself, whose public functions the frozen calls name."""
    return sys.modules["lucerne"]


def parser() -> argparse.ArgumentParser:
    """The command line, as data."""
    made = argparse.ArgumentParser(prog="lucerne", description="Lucerne's own tools.")
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    primitives = commands.add_parser("primitives", help="print the contract of a backend")
    primitives.add_argument("--markdown", action="store_true", help="as docs/primitives.md")
    primitives.set_defaults(run=_primitives)
    missing = commands.add_parser("missing", help="primitives a backend has no rule for")
    missing.add_argument("--device", default="reference")
    missing.set_defaults(run=_missing)
    conformance = commands.add_parser("conformance", help="score a device against the op table")
    conformance.add_argument("--device", default="reference")
    conformance.add_argument("--op", action="append", help="only this op (may be repeated)")
    conformance.add_argument("--html", help="also write one self-contained page here")
    conformance.add_argument("--summary", action="store_true", help="scores without the failures")
    conformance.add_argument(
        "--data", type=Path, help="folder of frozen cases (default: the package's)"
    )
    conformance.set_defaults(run=_conformance)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `lucerne` command."""
    options = parser().parse_args(arguments)
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
