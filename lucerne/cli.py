"""The `lucerne` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lucerne import contract


def _primitives(options: argparse.Namespace) -> int:
    if options.markdown:
        sys.stdout.write(contract.as_markdown())
        return 0
    print(f"scalar instructions: {len(contract.REQUIRED)} required")
    print("  " + " ".join(contract.REQUIRED))
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
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `lucerne` command."""
    options = parser().parse_args(arguments)
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
