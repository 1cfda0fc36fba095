"""`build`: from an exported program to native code, a C header and an example that checks it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucerne import version
from lucerne._src.backends.contract.machines import MACHINES, NATIVE
from lucerne._src.base.config import child_environment
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.ir.graph import Node
from lucerne._src.tensor import api as lu
from lucerne.export import blueprint as bp
from lucerne.export.aot import example, link
from lucerne.export.aot.interface import Interface, Port, dims_of, header
from lucerne.export.aot.spec import ANSWER, PROGRAM, SPEC, WEIGHTS, Spec
from lucerne.export.aot.weights import weights_object
from lucerne.export.door import resized
from lucerne.export.errors import ExportError
from lucerne.export.file import load, save
from lucerne.export.program import ExportedProgram, dynamic_of

INSIDE, FILE = "inside", "file"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MOST_INSIDE = 1 << 30
_PROCESS = {
    "LUCERNE_HOST_BACKEND": "reference",
    "LUCERNE_FAST_PATH": "0",
    "LUCERNE_PROGRAM_CACHE": "0",
}


@dataclass
class BuiltProgram:
    """What `build` made."""

    folder: Path
    name: str
    target: str
    files: list[str]
    """In the folder."""
    library: Path | None
    """The shared library; None: it was not linked."""
    command: str
    """What links it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Numbers: steps, kernels, bytes of a model and of a context, seconds."""
    differences: list[str] = field(default_factory=list)
    """What the example said; empty: it was not run."""

    @property
    def report(self) -> str:
        """All of it in some lines."""
        f = self.facts
        lines = [
            f"{self.name} for {self.target} ({f['triple']}): {f['steps']} steps, {f['kernels']} "
            f"kernels, {f['packed_weights']} packed weights",
            f"code {f['code_bytes']:,} bytes, weights {f['weights_bytes']:,}, a model "
            f"{f['model_bytes']:,}, a context {f['context_bytes']:,}",
            f"files in {self.folder}: {', '.join(self.files)}",
        ]
        if self.library is None:
            lines.append(f"not linked; there: {self.command}")
        return "\n".join([*lines, *self.differences])


def build(
    program: ExportedProgram | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    target: str = NATIVE,
    name: str = "model",
    sizes: Sequence[Mapping[str, int]] | None = None,
    weights: str = INSIDE,
    link: bool = True,
    check: bool = True,
) -> BuiltProgram:
    """An exported program (or its file) as native code that needs no Python, in a folder.

    `target` is "native" or a name of `MACHINES`. `sizes`: one dict for each combination of the
    sizes that change, by the names of their `Dim`s; none: those of the example. `weights`: "inside"
    the object, or in a "file" that the caller maps. `link`: make a shared library where a compiler
    is found. `check`: where this machine can, compile the C example, run it and compare.

    >>> import lucerne as torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> program = torch.export.export(net, (torch.ones(2, 4),))
    >>> made = torch.export.build(program, "out", name="net")  # doctest: +SKIP
    >>> made.files  # doctest: +SKIP
    ['net.o', 'net_weights.o', 'net.h', 'net_example.c', 'net_example.bin', 'libnet.so']
    """
    if not isinstance(program, ExportedProgram):
        program = load(program)
    order = Order(program, target, name, sizes, weights)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lucerne-build-") as work:
        answer = order.written(Path(work))
        made = order.laid_out(Path(work), out, answer)
    if link:
        _link(made, check)
    return made


class Order:
    """What is to be built."""

    def __init__(
        self, program: ExportedProgram, target: str, name: str,
        sizes: Sequence[Mapping[str, int]] | None, weights: str,
    ) -> None:  # fmt: skip
        if target != NATIVE and target not in MACHINES:
            raise ValueError(
                f"build: there is no target {target!r}; there are {', '.join((NATIVE, *MACHINES))}"
            )
        if not _NAME.fullmatch(name):
            raise ValueError(f"build: name={name!r} must be a name in C: letters, digits and _")
        if weights not in (INSIDE, FILE):
            raise ValueError(f"build: weights is {INSIDE!r} or {FILE!r}, not {weights!r}")
        self.program, self.target, self.name = program, target, name
        self.inside = weights == INSIDE
        self.sizes = _by_symbol(program, sizes)

    # ---- writing -------------------------------------------------------------------------------

    def written(self, work: Path) -> dict[str, Any]:
        """Have the object written by a process of its own; what it answers."""
        plan = self.program.plan
        _refuse_operators(plan.graph.nodes)
        lines = [None if n.place is None else list(n.place) for n in plan.graph.nodes]
        Spec(self.name, self.sizes, self.inside, lines).write(work / SPEC)
        save(self.program, str(work / PROGRAM))
        command = [sys.executable, "-m", "lucerne.export.aot.worker", str(work)]
        done = subprocess.run(
            command, env=child_environment({**_PROCESS, "LUCERNE_TARGET": self.target}),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        path = work / ANSWER
        if done.returncode or not path.exists():
            raise ExportError(f"build: writing code for {self.target} failed:\n{done.stderr}")
        answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "refused" in answer:
            raise ExportError(_refusal(answer["refused"]))
        if "error" in answer:
            raise ExportError(answer["error"])
        return answer

    def laid_out(self, work: Path, out: Path, answer: dict[str, Any]) -> BuiltProgram:
        """Put the files into the folder."""
        p, machine = self.name, link.machine_of(self.target)
        code, data = (work / f"{p}.o").read_bytes(), (work / WEIGHTS).read_bytes()
        files: dict[str, bytes] = {f"{p}.o": code}
        objects = [f"{p}.o"]
        if data and self.inside:
            if machine is None or len(data) > _MOST_INSIDE:
                raise ExportError("build: these weights can't be inside here: use weights='file'")
            objects.append(f"{p}_weights.o")
            files[objects[-1]] = weights_object(data, f"{p}_weights", *machine.elf)
        elif data:
            files[f"{p}.safetensors"] = data
        variants = [self._example(at) for at in self.sizes]
        interface = self._interface(variants, bool(data) and not self.inside)
        facts = {**answer["facts"], "code_bytes": len(code), "weights_bytes": len(data)}
        files[f"{p}.h"] = header(interface, facts, version.lucerne).encode()
        line = " ".join(["cc", *link.example_command(p)]).replace("$ORIGIN", "'$ORIGIN'")
        files[f"{p}_example.c"] = example.source(interface, line).encode()
        files[f"{p}_example.bin"] = example.data([[*a, *b] for a, b in variants])
        for name, content in files.items():
            (out / name).write_bytes(content)
        told = " ".join(["cc", *link.command(p, objects)])
        return BuiltProgram(out, p, self.target, list(files), None, told, facts)

    # ---- examples ------------------------------------------------------------------------------

    def _example(self, sizes: dict[str, int]) -> tuple[list[Any], list[Any]]:
        """Inputs at some sizes, and the outputs of the program run op by op."""
        plan, program = self.program.plan, self.program
        leaves: list[Any] = []
        if program.example_inputs is not None:
            flatten(program.example_inputs, leaves)
            dynamic = dynamic_of(plan)
            named = {plan.ranges[s].name: n for s, n in sizes.items()}
            leaves = resized(leaves, dynamic.sizes(named)) if named else leaves
        else:
            metas = plan.at(dict(sizes))[0].inputs
            given = {
                i.leaf: v.meta for v, i in zip(metas, plan.inputs, strict=True)
                if i.kind == bp.ARGUMENT
            }  # fmt: skip
            leaves = [
                _some(given[k]) if x is bp.TENSOR else x for k, x in enumerate(plan.in_leaves)
            ]
        args, kwargs = rebuild(plan.in_shape, iter(leaves))
        found: list[Any] = []
        with lu.no_grad():
            flatten(program.module()(*args, **kwargs), found)
        tensors = [leaves[i.leaf] for i in plan.inputs if i.kind == bp.ARGUMENT]
        return tensors, [t for t in found if isinstance(t, lu.Tensor)]

    def _interface(self, variants: list[Any], outside: bool) -> Interface:
        plan = self.program.plan
        names = tuple(plan.ranges[s].name for s in self.sizes[0])
        sizes = tuple(tuple(at.values()) for at in self.sizes)
        inputs = [plan.in_names[i.leaf] for i in plan.inputs if i.kind == bp.ARGUMENT]
        outputs = [f"result{k}" for k in range(len(variants[0][1]))]

        def port(name: str, side: int, k: int) -> Port:
            metas = tuple(v[side][k]._meta for v in variants)
            return Port(name, metas, dims_of(metas, sizes, names))

        return Interface(
            self.name, tuple(port(n, 0, k) for k, n in enumerate(inputs)),
            tuple(port(n, 1, k) for k, n in enumerate(outputs)), names, sizes, not outside,
        )  # fmt: skip


def _some(meta: Any) -> Any:
    """A tensor to try: numbers in [0, 1), and zeros where they may be positions."""
    if meta.dtype.is_floating_point:
        return lu.rand(*meta.shape, generator=lu.Generator().manual_seed(0)).to(meta.dtype)
    return lu.zeros(*meta.shape, dtype=meta.dtype)


def _by_symbol(
    program: ExportedProgram, sizes: Sequence[Mapping[str, int]] | None
) -> list[dict[str, int]]:
    """The sizes by the symbols of the program's template."""
    plan = program.plan
    if sizes is None:
        return [plan.example_sizes()]
    names = {r.name: s for s, r in plan.ranges.items()}
    found = []
    for at in sizes:
        if set(at) != set(names):
            raise ValueError(
                f"build: sizes has {dict(at)}; the sizes of this program are {sorted(names)}"
            )
        for name, n in at.items():
            known = plan.ranges[names[name]]
            if not known.least <= n <= known.most:
                raise ValueError(f"build: {name} = {n}: the program was exported for {known}")
        found.append({s: int(at[r.name]) for s, r in plan.ranges.items()})
    if not found or len({tuple(f.values()) for f in found}) < len(found):
        raise ValueError("build: sizes is a list of different dicts, one at least")
    return found


def _refusal(steps: Sequence[Sequence[str]]) -> str:
    told = [f"  {op} ({line}): {why}" if line else f"  {op}: {why}" for op, line, why in steps]
    return "\n".join(["build: no code without Python can be written for these steps:", *told])


_OPERATOR = "its kernel is called through Python"


def _refuse_operators(nodes: Sequence[Node]) -> None:
    """Raise for operators of the user's."""
    steps = [
        (f"torch.{n.op.qualified}", str(n.place or ""), _OPERATOR)
        for n in nodes
        if n.op.host is not None
    ]
    if steps:
        raise ExportError(_refusal(steps))


# ---- linking ------------------------------------------------------------------------------------


def _link(made: BuiltProgram, check: bool) -> None:
    """Link and try a build, if there is a compiler for its machine."""
    machine = link.machine_of(made.target)
    words = None if machine is None else link.compiler(machine)
    if machine is None or words is None:
        return
    objects = [name for name in made.files if name.endswith(".o")]
    link.run([*words, *link.command(made.name, objects)], made.folder)
    made.library = made.folder / f"lib{made.name}.so"
    made.files.append(made.library.name)
    if check and link.is_here(machine):
        link.run([*words, *link.example_command(made.name)], made.folder)
        made.files.append(f"{made.name}_example")
        path = str((made.folder / made.files[-1]).resolve())
        said = link.run([path], made.folder, (0, example.NOT_HERE))
        made.differences = said.strip().splitlines()
