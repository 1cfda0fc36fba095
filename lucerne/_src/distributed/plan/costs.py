"""From what a program does to seconds, and to whether it fits.

Times are bounds. The lower one is at the chip's best, with all that is sent hidden behind what is
computed; the upper one at the share of it that programs reach, with nothing hidden.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from lucerne._src.backends.contract.placement import MeshShape
from lucerne._src.backends.contract.planned import Chip, Collective, PlannedProgram
from lucerne._src.ir import op as op_

MOVES = ("all-to-all", "collective-permute")
"""What brings a tensor from one placement to another, and would not be needed if it lay right."""
_TWICE = "all-reduce"


@dataclass
class Sent:
    """Collectives of one kind along the same dimensions of the mesh."""

    kind: str
    axes: tuple[str, ...]
    devices: int
    """In each group."""
    count: int = 0
    nbytes: int = 0
    seconds: float = 0.0


@dataclass
class StepCosts:
    """One program on one kind of device."""

    program: PlannedProgram
    chip: Chip
    products: float
    """Seconds of products at the chip's best."""
    moved: float
    """Seconds of its memory."""
    sent: list[Sent]

    @property
    def wire(self) -> float:
        """Seconds of all that is sent."""
        return sum(s.seconds for s in self.sent)

    @property
    def best(self) -> float:
        return max(self.products, self.moved, self.wire)

    @property
    def worst(self) -> float:
        return max(self.products / self.chip.reached, self.moved) + self.wire

    @property
    def peak(self) -> int:
        return self.program.memory.peak

    @property
    def fits(self) -> bool:
        return self.peak <= self.chip.memory


def costs_of(program: PlannedProgram, chip: Chip) -> StepCosts:
    """The figures of a program."""
    found: dict[tuple[str, tuple[str, ...]], Sent] = {}
    for c in program.collectives:
        row = found.setdefault((c.kind, c.axes), Sent(c.kind, c.axes, _members(c)))
        row.count += c.times
        row.nbytes += c.times * c.nbytes
        row.seconds += c.times * seconds_of(c, program.mesh, chip)
    return StepCosts(
        program,
        chip,
        program.flops / chip.flops,
        program.nbytes / chip.bandwidth,
        sorted(found.values(), key=lambda s: -s.seconds),
    )


def _members(c: Collective) -> int:
    return len(c.group) or 2


def seconds_of(c: Collective, mesh: MeshShape | None, chip: Chip) -> float:
    """How long a collective takes: a ring, in which each of `n` devices passes on `(n - 1) / n` of
    the whole (twice that to reduce and to gather again); and the first byte's way, which doubles
    its reach at each turn.

    Between hosts each device has a connection of its own, so of a group with `k` devices in each
    host every one carries a `k`-th of what the host sends. In an exchange (`all-to-all`) `nbytes`
    is what each device has; all of that but an `n`-th goes to others.

    >>> from lucerne._src.backends.contract.planned import ChipLink
    >>> chip = Chip("c", "gpu", 0, 1.0, 1.0, ChipLink(4.0, 0.0), ChipLink(1.0, 0.0), 2, 8)
    >>> near = Collective("all-gather", 8, (0, 1))
    >>> seconds_of(near, None, chip)  # half of 8 bytes at 4 bytes a second
    1.0
    >>> seconds_of(Collective("all-gather", 8, (0, 1, 2, 3)), None, chip)  # 3/4, by two devices
    3.0
    """
    if c.pairs:
        far = any(_host(a, mesh, chip) != _host(b, mesh, chip) for a, b in c.pairs)
        link = chip.far if far else chip.near
        return c.nbytes / link.bandwidth + link.latency
    n = len(c.group)
    if n < 2:
        return 0.0
    hosts = [_host(k, mesh, chip) for k in c.group]
    together = hosts.count(hosts[0])
    turns = 2 if c.kind == _TWICE else 1
    passed = turns * c.nbytes * (n - 1) / n
    latency = turns * math.ceil(math.log2(together)) * chip.near.latency
    seconds = passed / chip.near.bandwidth
    if together < n:
        latency += turns * math.ceil(math.log2(n / together)) * chip.far.latency
        outside = c.nbytes * (n - together) / n if c.kind in MOVES else passed / together
        seconds = max(seconds, outside / chip.far.bandwidth)
    return seconds + latency


def _host(k: int, mesh: MeshShape | None, chip: Chip) -> int:
    number = k if mesh is None else mesh.devices[k]
    return number // chip.together


# ---- what to do ----------------------------------------------------------------------------------


def fixes(costs: StepCosts) -> list[str]:
    """What would make a program fit, the most helpful first; empty: it fits."""
    memory, over = costs.program.memory, costs.peak - costs.chip.memory
    if over <= 0:
        return []
    found: list[tuple[float, str]] = []
    spread = [a for a in costs.program.arguments if a.whole > a.nbytes]
    devices = 1 if costs.program.mesh is None else len(costs.program.mesh.devices)
    alone = [a for a in costs.program.arguments if a.whole == a.nbytes]
    if alone and devices > 1:
        saved = sum(a.nbytes for a in alone) * (devices - 1) / devices
        found.append((saved, "cut what lies whole on each device (`fully_shard`, `Shard`)"))
    if memory.temporaries:
        half = memory.temporaries / 2
        found.append((half, "halve the batch of each device, or run it as two micro-batches"))
        kept = 0.6 * memory.temporaries
        found.append((kept, "keep fewer activations: `torch.utils.checkpoint` around each layer"))
    if spread:
        half = sum(a.nbytes for a in spread) / 2
        found.append((half, "cut parameters and optimizer state over twice as many devices"))
    if memory.elsewhere:
        found.append((memory.elsewhere, "free the tensors that are alive beside the program"))
    found.sort(key=lambda pair: -pair[0])
    return [
        f"{text}: about {saved / 1e9:.2f} GB less" + (", enough alone" if saved >= over else "")
        for saved, text in found[:3]
    ]


_PARTS = (
    "shard the heads: what it takes apart is cut across its parts. Give each part a weight of its "
    "own (queries, keys and values), or cut along another dimension"
)
_SHAPES = (
    "it splits or joins the dimension that is cut, and the mesh does not divide the pieces: cut by "
    "a number that does (of heads), or along another dimension"
)
_LOOKUPS = (
    "it looks rows up that are cut: cut the table along its features (ColwiseParallel), or leave "
    "it whole"
)
_JOINS = "it joins or moves along the dimension that is cut: cut along another one"
_ALONG = (
    "it goes along the dimension that is cut: redistribute its operand to another one before this "
    "line"
)
_ADVICE = {
    "view.splitting": _PARTS, "view.slicing": _PARTS, "view": _SHAPES, "index.sorting": _ALONG,
    "index": _LOOKUPS, "nn.embedding": _LOOKUPS, "copy": _JOINS, "spatial.padding": _JOINS,
    "reduce": _ALONG,
}  # fmt: skip
"""By the room of an op: the first that fits."""
_ELSE = (
    "its operands lie in different ways: redistribute one before this line, or name the placement "
    "in the style (input_layouts, output_layouts)"
)
_NUMBER = re.compile(r"(?<![^.])\d+(?=\.|$)")


@dataclass
class Reshard:
    """Tensors that change their placement in the middle of a program, at one line of one module
    (layers that differ by their number are one)."""

    module: str
    line: str
    op: str
    kinds: set[str]
    times: int = 0
    backward: int = 0
    """How many of these are of the backward pass of that line."""
    nbytes: int = 0

    def __str__(self) -> str:
        """As a sentence.

        >>> print(Reshard("blocks.*.qkv", "model.py:12", "cat", {"all-to-all"}, 4, 1))
        4 reshards in blocks.*.qkv, model.py:12 (1 backward): cat joins or moves along ...
        """
        count = f"{self.times} reshard{'s' * (self.times != 1)}"
        place = f"{self.module}, {self.line}" if self.module else self.line
        back = f" ({self.backward} backward)" if self.backward else ""
        return f"{count} in {place}{back}: {self.fix}"

    @property
    def fix(self) -> str:
        """What would make them unnecessary."""
        entry = op_.table().get(self.op)
        room = "" if entry is None else entry.body.__module__.partition(".ops.")[2]
        fits = (text for where, text in _ADVICE.items() if f"{room}.".startswith(f"{where}."))
        text = next(fits, _ELSE)
        return f"{self.op} {text.removeprefix('it ')}" if text.startswith("it ") else text


def reshards(program: PlannedProgram) -> list[Reshard]:
    """Where tensors change their placement, the most bytes first."""
    found: dict[tuple[str, str, str], Reshard] = {}
    for c in program.collectives:
        if c.kind in MOVES:
            where = c.where or "an unknown line"
            line, _, module = where.removeprefix("backward of ").partition(" ")
            line, module = (line, _NUMBER.sub("*", module)) if c.where else (where, "")
            row = found.setdefault((module, line, c.op), Reshard(module, line, c.op, set()))
            row.kinds.add(c.kind)
            row.times += c.times
            row.backward += c.times if where.startswith("backward of ") else 0
            row.nbytes += c.times * c.nbytes
    return sorted(found.values(), key=lambda row: -row.nbytes)
