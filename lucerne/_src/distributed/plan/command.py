"""The command: it runs the user's script on a device that is not here."""

from __future__ import annotations

import argparse
import dataclasses
import os
import runpy
import sys
import time
from pathlib import Path

from lucerne._src import backends
from lucerne._src.backends.contract.planned import PlanComplete, PlanError, Planner
from lucerne._src.base.process.free_memory import peak_memory
from lucerne._src.capture.report import dump
from lucerne._src.distributed.plan import report

DESCRIPTION = "what a script with a mesh would need on a cluster that is not here"
_DEVICE = "xla"
_CALLS = 10
_GB = 1e9
_NOTHING = (
    "the script called no compiled function on the device: put the model and its batch there "
    '(`.to("xla")`), and compile the step (`@torch.compile`)'
)


def add_arguments(made: argparse.ArgumentParser) -> None:
    """The options; what stands after the script is the script's."""
    made.add_argument("--chip", default="h100", help="h100, v5e, or cpu:N for N devices of a CPU")
    made.add_argument("--device", default=_DEVICE, help=f"of the script's tensors ({_DEVICE})")
    made.add_argument("--html", type=Path, help="also write one self-contained page here")
    made.add_argument("--memory", type=float, help="of each device, in GB (default: the chip's)")
    made.add_argument(
        "--calls",
        type=int,
        default=_CALLS,
        help=f"end the script when a program was called so many times ({_CALLS}); 0: never",
    )
    made.add_argument("script", metavar="SCRIPT", help="a Python file")
    made.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")


def run(options: argparse.Namespace) -> int:
    """0: it fits. 1: it does not. 2: there is no plan, and why is said."""
    began = time.process_time()
    try:
        planner = _planner(options)
        if options.memory is not None:
            planner.chip = dataclasses.replace(planner.chip, memory=int(options.memory * _GB))
        with planner:
            run_script(options.script, options.arguments)
            found = _plan(planner, options.script)
    except PlanError as error:
        print(f"lucerne plan: {error}", file=sys.stderr)
        return 2
    found.seconds, found.resident = time.process_time() - began, peak_memory()
    if not found.costs:
        print(f"lucerne plan: {_NOTHING}", file=sys.stderr)
        return 2
    print(report.text(found))
    if options.html:
        dump.write(options.html, report.html(found))
        print(f"page: {options.html}")
    return 0 if found.fits else 1


def _planner(options: argparse.Namespace) -> Planner:
    try:
        return backends.get(options.device).plan(options.chip, options.calls)
    except (backends.NoBackendError, NotImplementedError) as error:
        raise PlanError(str(error)) from error


def _plan(planner: Planner, script: str) -> report.ClusterPlan:
    made = planner.programs()
    return report.ClusterPlan(script, planner.chip, made, planner.eager, planner.looks)


def run_script(script: str, arguments: list[str]) -> None:
    """As `python script.py ...` would, until all is planned."""
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except PlanComplete:
        print(f"lucerne plan: {script} ends here, its programs are known", file=sys.stderr)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    finally:
        sys.argv, sys.path[:] = before
