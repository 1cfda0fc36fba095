"""`lucerne torch install | uninstall | status | names`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from lucerne import version
from lucerne._src.as_torch import distribution, page


def add_options(commands: Any) -> None:
    """The command's part of the command line."""
    made = commands.add_parser("torch", help="let `import torch` be Lucerne in this environment")
    made.add_argument("action", choices=("install", "uninstall", "status", "names"))
    made.add_argument("--constraints", type=Path, help="also write the constraints to this file")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do what was asked for; 1: it cannot be done here, and why is said."""
    try:
        return _run(options.action, options.constraints)
    except distribution.TorchInstallError as error:
        print(f"lucerne torch {options.action}: {error}", file=sys.stderr)
        return 1


def _run(action: str, constraints: Path | None) -> int:
    if action == "names":
        sys.stdout.write(page.as_markdown())
        return 0
    if action == "uninstall":
        for gone in distribution.uninstall():
            print(f"removed {gone}")
        return 0
    if action == "install":
        found = distribution.install()
        print(f"torch {found.ours} is Lucerne now, in {found.folder}")
        print("# pip keeps it with these constraints: pip install -c FILE ...")
        sys.stdout.write(distribution.constraints())
    else:
        _say(distribution.state())
    if constraints is not None:
        constraints.write_text(distribution.constraints(), encoding="utf-8")
    return 0


def _say(found: distribution.TorchState) -> None:
    if found.real:
        print(f"not Lucerne: {found.real}")
    elif not found.ours:
        print(f"no torch in {found.folder}; `lucerne torch install` puts Lucerne there")
    elif found.ours != version.__version__:
        print(f"torch {found.ours} is of another Lucerne: `lucerne torch install` puts it right")
    else:
        print(f"torch {found.ours} is Lucerne, in {found.folder}")
