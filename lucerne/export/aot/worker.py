"""The process that writes: an exported program to an object file for some machine.

It is started by `door.build` with `LUCERNE_TARGET` set, so that the engine writes code for that
machine; it runs none of it (what it has to compute, it computes by the reference backend). What it
is told and what it answers are JSON files in one folder.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucerne._src.backends.contract import registry
from lucerne._src.backends.contract.objects import (
    UnwrittenError,
    Variant,
    WeightsFile,
    WrittenRunner,
)
from lucerne._src.base.process.source_location import Origin
from lucerne._src.io import safetensors
from lucerne._src.ir.graph import Graph
from lucerne._src.tensor import api as lu
from lucerne.export import blueprint as bp
from lucerne.export.aot.spec import ANSWER, PROGRAM, SPEC, WEIGHTS, Spec
from lucerne.export.errors import ExportError
from lucerne.export.file import load
from lucerne.export.pipeline import runner_of
from lucerne.export.program import ExportedProgram

_BACKEND = "aot"


class Written:
    """The variants of a program, and the weights that they read."""

    def __init__(self, program: ExportedProgram, spec: Spec) -> None:
        self.program, self.spec = program, spec
        self.tensors: dict[str, Any] = {}
        """What the file of weights holds, by name."""
        self._names: dict[int, str] = {}
        self._graphs = [program.plan.at(dict(at))[0] for at in spec.sizes]
        self._check()
        self._runners = [self._runner(g) for g in self._graphs]

    def _runner(self, graph: Graph) -> WrittenRunner:
        made = runner_of(graph, _BACKEND, None)
        assert isinstance(made, WrittenRunner), made
        return made

    def _check(self) -> None:
        """Refuse what no C program could be given or take."""
        plan = self.program.plan
        for graph in self._graphs:
            for target, _ in graph.writes:
                name = plan.inputs[graph.inputs.index(target)].name
                raise ExportError(
                    f"build: the program writes to {name}. A built program keeps nothing between "
                    "calls: call `eval()` before exporting, or return what is new"
                )
            inputs = zip(graph.inputs, plan.inputs, strict=True)
            for value, i in inputs:
                if i.kind == bp.ARGUMENT and not value.meta.contiguous:
                    name = plan.in_names[i.leaf]
                    raise ExportError(f"build: the input {name} is not contiguous in the example")
            for k, value in enumerate(graph.outputs):
                if not value.meta.contiguous:
                    raise ExportError(
                        f"build: result {k} is a view whose elements lie in another order than its "
                        "shape says; return `.contiguous()` of it"
                    )

    # ---- weights -------------------------------------------------------------------------------

    def _name_of(self, t: Any, name: str) -> str:
        """The name of a weight in the file; one that several inputs share has one."""
        found = self._names.get(id(t))
        if found is None:
            found = self._names[id(t)] = name
            self.tensors[name] = _as_it_lies(t)
        return found

    def _weights(self) -> dict[int, str]:
        """The names of the graph's inputs that are no arguments."""
        found = {}
        for k, i in enumerate(self.program.plan.inputs):
            if i.kind != bp.ARGUMENT:
                t = self.program.tensors[i.kind, i.target]
                name = i.target if i.kind != bp.CONSTANT else f"constant.{i.target}"
                found[k] = self._name_of(t, name)
        return found

    def write(self, folder: Path) -> dict[str, Any]:
        """The object and the weights into a folder; what is to be known about them."""
        weights = self._weights()
        constants: list[list[str]] = []
        for runner in self._runners:
            held: Sequence[Any] = runner.program.constants  # type: ignore[attr-defined]
            constants.append([self._name_of(t, f"made.{len(self._names)}") for t in held])
        data = safetensors.save(self.tensors, digest=False) if self.tensors else b""
        starts, head = starts_in(data)
        (folder / WEIGHTS).write_bytes(data)
        plan = self.program.plan
        arguments = [k for k, i in enumerate(plan.inputs) if i.kind == bp.ARGUMENT]
        variants = [
            Variant(
                runner, tuple(at.values()), {k: n for n, k in enumerate(arguments)},
                {k: starts[name] for k, name in weights.items()},
                [starts[name] for name in names], [text for _, text in plan.checks],
            )
            for runner, at, names in zip(self._runners, self.spec.sizes, constants, strict=True)
        ]  # fmt: skip
        known = WeightsFile(head, len(data), self.spec.inside)
        made = self._runners[0].object_code(self.spec.prefix, variants, known)
        (folder / f"{self.spec.prefix}.o").write_bytes(made.data)
        return {"imports": made.imports, "facts": made.facts}


def _as_it_lies(t: Any) -> Any:
    """A tensor with the elements of this one as they lie in memory."""
    t = t.detach()
    return t if t._meta.contiguous else lu.as_strided(t, (t._meta.span,), (1,))


def starts_in(data: bytes) -> tuple[dict[str, int], bytes]:
    """Where each tensor of a safetensors file begins, and the file's head."""
    if not data:
        return {}, b""
    [length] = struct.unpack_from("<Q", data)
    head = data[: 8 + length]
    fields = json.loads(head[8:])
    fields.pop("__metadata__", None)
    return {name: len(head) + field["data_offsets"][0] for name, field in fields.items()}, head


def _with_lines(program: ExportedProgram, lines: Sequence[Any]) -> None:
    """Tell the nodes which lines of the user's they come from: files of programs do not say."""
    for node, line in zip(program.plan.graph.nodes, lines, strict=False):
        node.place = None if line is None else Origin(*line)


def write(folder: Path) -> dict[str, Any]:
    """Do what the folder's specification says; the answer."""
    spec = Spec.read(folder / SPEC)
    registry.register(_BACKEND, registry.engine())
    program = load(folder / PROGRAM)
    _with_lines(program, spec.lines)
    try:
        return Written(program, spec).write(folder)
    except UnwrittenError as error:
        return {"refused": error.steps}
    except ExportError as error:
        return {"error": str(error)}


def main(folder: str) -> None:
    answer = write(Path(folder))
    (Path(folder) / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
