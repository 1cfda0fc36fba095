"""Who runs a program, and how: Lucerne compiled and eager, torch eager and compiled, JAX jitted.

A way is one setting of a side (`torch.compile` with a fused optimizer, channels last, ...): each
side is judged by its best way. `build` makes one of them ready to be called.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import programs, weights

OURS, OURS_EAGER = "lucerne", "lucerne eager"
TORCH, TORCH_COMPILE, JAX = "torch eager", "torch.compile", "JAX jit"
SIDES = (OURS, OURS_EAGER, TORCH, TORCH_COMPILE, JAX)
RIVALS = (TORCH, TORCH_COMPILE, JAX)

SIZES = {
    "gpt": (weights.GPT, weights.SMALL_GPT),
    "gpt_bf16": (weights.GPT, weights.SMALL_GPT),
    "char_gpt": (weights.CHAR_GPT, weights.SMALL_GPT),
    "resnet": (weights.RESNET, weights.SMALL_RESNET),
    "mlp": (weights.MLP, weights.SMALL_MLP),
    "decode": (weights.DECODE, weights.SMALL_DECODE),
    "bert": (weights.BERT, weights.SMALL_BERT),
}
TRAINING = ("gpt", "char_gpt", "gpt_bf16", "resnet", "mlp")

CHECKED = 3
"""So many first steps (or words, times four) are compared between the sides."""


@dataclasses.dataclass
class Ready:
    """A program that can be called: `call` returns when its work is done."""

    call: Callable[[], Any]
    values: list[float]
    """What the first calls computed: all sides must agree on them."""
    state: Callable[[], list[np.ndarray]] = list
    """The numbers whose bits must not depend on threads or the process."""

    def digest(self) -> str:
        found = hashlib.sha256(np.asarray(self.values).tobytes())
        for array in self.state():
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()


def ways(program: str, smoke: bool = False) -> dict[str, list[str]]:
    """The ways of each side that are tried for a program."""
    plain = {OURS: ["step"], OURS_EAGER: ["plain"], TORCH: ["plain"]}
    if program in ("decode", "bert"):
        plain[OURS] = ["masked"] if program == "decode" else ["forward"]
        if program == "decode":
            plain[TORCH], plain[OURS_EAGER] = ["sliced"], ["sliced"]
    if smoke:
        return plain
    compiled, more = ["step", "loss, fused"], ["plain", "fused"]
    if program == "resnet":
        compiled = ["step, channels last", "loss, fused, channels last", "loss, fused"]
        more += ["fused, channels last"]
    if program == "decode":
        compiled, more = ["masked", "masked, frozen"], ["sliced", "masked"]
        plain[OURS_EAGER] = ["sliced", "masked"]
    if program == "bert":
        compiled, more = ["forward", "forward, frozen"], ["plain", "stock"]
    return {**plain, TORCH: more, TORCH_COMPILE: compiled, JAX: ["step"]}


def build(
    side: str, way: str, program: str, small: bool = False, words: int | None = None
) -> Ready:
    """Make one way ready: the first calls, which compile, are done and their values noted.

    `words`: how many a call of the decoder makes (all that fit).
    """
    size = SIZES[program][small]
    if side == JAX:
        return _jax(program, size)
    torch = importlib.import_module("lucerne" if side.startswith("lucerne") else "torch")
    compiled = side in (OURS, TORCH_COMPILE)
    if program == "decode":
        return _decoding(torch, way, size, compiled, words or size.length)
    if program == "bert":
        return _encoding(torch, way, size, compiled)
    return _training(torch, way, program, size, compiled)


def training(torch: Any, way: str, program: str, size: Any) -> programs.Training:
    """Model, optimizer and batch of a training program."""
    options: dict[str, Any] = {"fused": True} if "fused" in way else {}
    if program == "resnet":
        return programs.resnet(torch, size, last="channels last" in way, **options)
    if program == "mlp":
        return programs.mlp(torch, size, **options)
    return programs.gpt(torch, size, half=program == "gpt_bf16", **options)


def step_of(torch: Any, way: str, job: programs.Training, compiled: bool) -> Callable[..., Any]:
    """The training step: as it is, compiled as a whole, or with a compiled loss."""
    if not compiled:
        return job.step
    if way.startswith("step"):
        return torch.compile(job.step)
    job.loss = torch.compile(job.loss)  # type: ignore[method-assign]
    return job.step


def _training(torch: Any, way: str, program: str, size: Any, compiled: bool) -> Ready:
    job = training(torch, way, program, size)
    step = step_of(torch, way, job, compiled)
    values = [float(step(*job.batch).detach()) for _ in range(CHECKED)]

    def state() -> list[np.ndarray]:
        return [p.detach().numpy() for p in job.model.parameters()]

    return Ready(lambda: step(*job.batch), values, state)


def _frozen(torch: Any, way: str) -> None:
    """Let torch's compiler bake the weights into the program, packed for its products."""
    if "frozen" in way:
        importlib.import_module("torch._inductor.config").freezing = True


def _decoding(torch: Any, way: str, size: Any, compiled: bool, words: int) -> Ready:
    _frozen(torch, way)
    model = programs.decoder(torch, size)
    step = torch.compile(model) if compiled else model
    sliced = way.startswith("sliced")
    chosen, logits = programs.generate(torch, step, size, sliced, 4 * CHECKED)
    values = [*map(float, chosen.tolist()), *map(float, logits.tolist())]

    def call() -> Any:
        return programs.generate(torch, step, size, sliced, words)

    return Ready(call, values, lambda: [x.numpy() for x in call()])


def _encoding(torch: Any, way: str, size: Any, compiled: bool) -> Ready:
    _frozen(torch, way)
    model, ids = (programs.stock_bert if way == "stock" else programs.bert)(torch, size)
    step = torch.compile(model) if compiled else model

    def call() -> Any:
        with torch.inference_mode():
            return step(ids)

    return Ready(call, _sampled(call().numpy()), lambda: [call().numpy()])


def _sampled(hidden: np.ndarray) -> list[float]:
    return [float(x) for x in hidden.ravel()[:: hidden.size // 16]]


def _jax(program: str, size: Any) -> Ready:
    rivals = importlib.import_module("benchmarks.rivals")
    if program == "decode":
        generate = rivals.decoder(size)
        chosen, logits = generate(4 * CHECKED)
        values = [*map(float, chosen.tolist()), *map(float, logits.tolist())]
        return Ready(lambda: generate(size.length)[1].block_until_ready(), values)
    if program == "bert":
        call = rivals.bert(size)
        return Ready(call, _sampled(np.asarray(call())))
    half = {"half": True} if program == "gpt_bf16" else {}
    running = getattr(rivals, "gpt" if "gpt" in program else program)(size, **half)
    return Ready(running.step, [float(running.step()) for _ in range(CHECKED)])


def disagreement(program: str, values: dict[str, list[float]]) -> str:
    """A note when sides computed different things; the tolerance is that of the arithmetic.

    ResNet: after three steps torch's own two layouts differ by 3e-4 from each other.
    """
    allowed = {"gpt_bf16": 0.02, "resnet": 1e-3}.get(program, 2e-4)
    names = list(values)
    for name in names[1:]:
        a, b = np.asarray(values[names[0]]), np.asarray(values[name])
        off = float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(a))))
        if not off <= allowed:
            return f"WRONG: {names[0]} and {name} differ by {off:.2g}"
    return ""
