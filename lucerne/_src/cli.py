"""The `lucerne` command."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucerne._src import backends, contract, environment
from lucerne._src.as_torch import command as torch_command
from lucerne._src.backends.contract import machines, registry
from lucerne._src.backends.contract.backend import CONTRACT_VERSION
from lucerne._src.backends.contract.fallback_report import Bill
from lucerne._src.conformance import (
    Case,
    DataError,
    Outcome,
    frozen_cases,
    oracle_cases,
    report,
    run,
)
from lucerne._src.conformance.cases import TIERS
from lucerne._src.conformance.page import page
from lucerne._src.conformance.workers import Progress, as_data, from_data, run_apart, serve
from lucerne._src.distributed.plan import command as plan_command
from lucerne._src.distributed.run import agent, jobs
from lucerne._src.distributed.run import options as run_options
from lucerne._src.ir.scalar.protocol import REQUIRED
from lucerne._src.pipeline import passes


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
    has, lacks = contract.abilities(options.device)
    print(f"optional abilities of {options.device}: {len(has)} of {len(has) + len(lacks)}")
    print("  " + " ".join(has))
    print("  by default: " + " ".join(lacks))
    return 0


def _passes(options: argparse.Namespace) -> int:
    sys.stdout.write(passes.as_markdown())
    return 0


def _missing(options: argparse.Namespace) -> int:
    try:
        gaps = contract.missing(options.device)
    except (RuntimeError, ImportError, ValueError) as error:
        print(f"lucerne missing: {error}", file=sys.stderr)  # no such device, mostly
        return 2
    print(f"{options.device}: {len(gaps)} of {len(contract.primitives())} primitives have no rule")
    for name in gaps:
        print(f"  {name}")
    return 0


def _devices(options: argparse.Namespace) -> int:
    for line in contract.device_lines():
        print(line)
    return 0


def _cases(options: argparse.Namespace) -> list[Case]:
    chosen = list(frozen_cases(top_package(), options.data))
    if not options.tier or TIERS[-1] in options.tier:
        chosen += oracle_cases()
    if options.op:
        chosen = [case for case in chosen if case.op in options.op]
    if options.tier:
        chosen = [case for case in chosen if case.tier in options.tier]
    return chosen


def _load_backend(options: argparse.Namespace) -> None:
    """The backend under test, from where the command line says."""
    if options.backend:
        module, _, name = options.backend.partition(":")
        backends.register(options.device, getattr(importlib.import_module(module), name)())
    backends.get(options.device)


def _conformance(options: argparse.Namespace) -> int:
    backends.set_fallback(options.fallback)
    try:
        _load_backend(options)
        chosen = _cases(options)
        if options.worker:
            serve(lambda op: _answer([c for c in chosen if c.op == op], op, options.device))
            return 0
        if not chosen:
            names = ", ".join([*(options.op or ()), *(options.tier or ())])
            print(f"lucerne conformance: no cases for {names}", file=sys.stderr)
            return 2
        found, bill = _scored(chosen, options)
    except (DataError, RuntimeError, ImportError, AttributeError, ValueError) as error:
        print(f"lucerne conformance: {error}", file=sys.stderr)  # no such device, mostly
        return 2
    print(report.text(found, options.device, failures=not options.summary))
    if bill:
        print(f"\nleft the device:\n{Bill.of(bill)}")
    if options.html:
        Path(options.html).write_text(page(found, options.device, bill), encoding="utf-8")
        print(f"page: {options.html}")
    if options.json:
        data = report.as_json(found, options.device, bill)
        Path(options.json).write_text(json.dumps(data, indent=1), encoding="utf-8")
        print(f"data: {options.json}")
    strictly = options.strict and bill
    if strictly:
        print("strict: an op left the device", file=sys.stderr)
    return 0 if all(o.ok for o in found) and not strictly else 1


def _answer(cases: Sequence[Case], op: str, device: str) -> dict[str, Any]:
    """One op, in this process."""
    before = backends.bill().snapshot()
    found = run(cases, device)
    rows = backends.bill().since(before).rows()
    return {"op": op, "outcomes": [as_data(o) for o in found], "bill": rows}


def _scored(cases: list[Case], options: argparse.Namespace) -> tuple[list[Outcome], list[Any]]:
    """Outcomes and what was billed, from this process or from others."""
    apart = options.apart
    if apart is None:
        apart = bool(options.backend) or options.device in registry.installed()
    if not apart:
        before = backends.bill().snapshot()
        found = run(cases, options.device, progress=sys.stderr.isatty())
        return found, backends.bill().since(before).rows()
    head = {"device": options.device, "contract": CONTRACT_VERSION, "fallback": options.fallback}
    progress = Progress(options.resume, head)
    answers = list(
        run_apart(
            cases,
            _worker_command(options),
            jobs=options.jobs,
            seconds=options.timeout,
            progress=progress,
            tell=_tell if sys.stderr.isatty() else lambda text: None,
        )
    )
    outcomes = [from_data(row) for a in answers for row in a["outcomes"]]
    wanted = {(c.op, c.tier) for c in cases}
    return [o for o in outcomes if (o.op, o.tier) in wanted], [
        r for a in answers for r in a["bill"]
    ]


def _tell(text: str) -> None:
    print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)


def _worker_command(options: argparse.Namespace) -> list[str]:
    made = [sys.executable, "-m", "lucerne", "conformance", "--worker", "--device", options.device]
    made += ["--fallback", options.fallback]
    for name in ("backend", "data"):
        if getattr(options, name):
            made += [f"--{name}", str(getattr(options, name))]
    for tier in options.tier or ():
        made += ["--tier", tier]
    return made


def top_package() -> Any:
    """`lucerne` itself, whose public functions the frozen calls name."""
    return sys.modules["lucerne"]


def parser() -> argparse.ArgumentParser:
    """The command line, as data."""
    made = argparse.ArgumentParser(prog="lucerne", description="Lucerne's own tools.")
    made.add_argument("--version", action="version", version=environment.version_line())
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    primitives = commands.add_parser("primitives", help="print the contract of a backend")
    primitives.add_argument("--markdown", action="store_true", help="as docs/extend/primitives.md")
    primitives.add_argument("--device", default=backends.HOST, help="whose abilities to print")
    primitives.set_defaults(run=_primitives)
    listed = commands.add_parser("passes", help="print the steps from graph to program")
    listed.set_defaults(run=_passes)
    missing = commands.add_parser("missing", help="primitives a backend has no rule for")
    missing.add_argument("--device", default="reference")
    missing.set_defaults(run=_missing)
    there = commands.add_parser("devices", help="the devices of this machine: platform, memory")
    there.set_defaults(run=_devices)
    _conformance_options(commands)
    torch_command.add_options(commands)
    _run_options(commands)
    _plan_options(commands)
    _export_options(commands)
    _build_options(commands)
    _convert_options(commands)
    _serve_options(commands)
    return made


def _run_options(commands: Any) -> None:
    made = commands.add_parser("run", help=run_options.DESCRIPTION)
    run_options.add_arguments(made)
    made.set_defaults(run=agent.run)
    ranks = commands.add_parser("ranks", help="what the ranks of running jobs are doing")
    jobs.add_arguments(ranks)
    ranks.set_defaults(run=jobs.show)


def _plan_options(commands: Any) -> None:
    made = commands.add_parser("plan", help=plan_command.DESCRIPTION)
    plan_command.add_arguments(made)
    made.set_defaults(run=plan_command.run)


def _export_options(commands: Any) -> None:
    made = commands.add_parser("export", help="say what of a model a format can't hold")
    made.add_argument("--check", choices=("onnx",), required=True, help="the format")
    made.add_argument("--opset", type=int, default=20, help="version of ONNX's operators")
    made.add_argument("file", help="a Python file with `build()`: (module, args), or with kwargs")
    made.set_defaults(run=_export)


def _build_options(commands: Any) -> None:
    made = commands.add_parser("build", help="write an exported program as native code")
    made.add_argument("file", help="a program, as `lucerne.export.save` writes it")
    made.add_argument("-o", "--output", default=".", help="the folder to write to")
    made.add_argument(
        "--target", default=machines.NATIVE, help=f"native, {', '.join(machines.MACHINES)}"
    )
    made.add_argument("--name", help="of the files and functions; default: that of the file")
    made.add_argument(
        "--sizes", action="append", metavar="batch=1,t=64", help="build for these (repeatable)"
    )
    made.add_argument("--weights", choices=("inside", "file"), default="inside")
    made.add_argument("--no-link", action="store_true", help="write the object only")
    made.add_argument("--no-check", action="store_true", help="do not run the example")
    made.set_defaults(run=_build)


def _build(options: argparse.Namespace) -> int:
    command = importlib.import_module("lucerne.export.aot.command")
    status: int = command.build_file(options)
    return status


def _serve_options(commands: Any) -> None:
    made = commands.add_parser("serve", help="serve exported programs (Open Inference Protocol)")
    importlib.import_module("lucerne._src.serve.command").add_arguments(made)


def _convert_options(commands: Any) -> None:
    made = commands.add_parser(
        "convert", help="take the state dict out of a file that holds a whole module"
    )
    made.add_argument("source", help="the .pt file; no code of it is run, no class loaded")
    made.add_argument("target", help="a .safetensors file, or one for torch.load")
    made.set_defaults(run=_convert)


def _convert(options: argparse.Namespace) -> int:
    modules = importlib.import_module("lucerne._src.io.modules")
    for line in modules.convert(options.source, options.target):
        print(line)
    return 0


def _export(options: argparse.Namespace) -> int:
    command = importlib.import_module("lucerne.export.onnx.command")
    status: int = command.check(options.file, options.opset)
    return status


def _conformance_options(commands: Any) -> None:
    made = commands.add_parser("conformance", help="score a device against the op table")
    made.add_argument("--device", default="reference")
    made.add_argument("--backend", help="module:factory of a backend that is not installed")
    made.add_argument("--op", action="append", help="only this op (may be repeated)")
    made.add_argument("--tier", action="append", choices=TIERS, help="only this tier (repeatable)")
    made.add_argument("--html", help="also write one self-contained page here")
    made.add_argument("--json", help="also write everything as JSON here")
    made.add_argument("--summary", action="store_true", help="scores without the failures")
    made.add_argument(
        "--fallback",
        choices=("refuse", "host"),
        default="refuse",
        help="let the host compute what the device has no rule for, and print the bill",
    )
    made.add_argument("--strict", action="store_true", help="fail if anything left the device")
    made.add_argument("--resume", type=Path, help="a file that keeps what is done: an ended run")
    made.add_argument("--jobs", type=int, default=1, help="how many processes run ops")
    made.add_argument("--timeout", type=float, default=300.0, help="seconds an op may take")
    made.add_argument(
        "--apart",
        action=argparse.BooleanOptionalAction,
        help="run ops in other processes, which may crash (default: for backends that are "
        "installed or named by --backend)",
    )
    made.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--data", type=Path, help="folder of frozen cases (default: the package's)")
    made.set_defaults(run=_conformance)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `lucerne` command."""
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has enough (`| head`). Python would complain once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
