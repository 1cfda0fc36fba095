"""The sizes, starting weights and data of the whole programs: the same numbers for every side.

Names are those of the modules in `programs.py`; the JAX programs use them as keys.
"""

from __future__ import annotations

import dataclasses

import numpy as np

Shapes = dict[str, tuple[int, ...]]
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Language:
    """Sizes of a transformer over words."""

    layers: int
    width: int
    heads: int
    words: int
    batch: int
    length: int


@dataclasses.dataclass(frozen=True)
class Images:
    """Sizes of a ResNet with two residual blocks a stage, and of its batch."""

    widths: tuple[int, ...]
    batch: int
    side: int


@dataclasses.dataclass(frozen=True)
class Vectors:
    """Sizes of a perceptron and of its batch."""

    widths: tuple[int, ...]
    batch: int


GPT = Language(layers=6, width=384, heads=6, words=8192, batch=4, length=256)
DECODE = dataclasses.replace(GPT, batch=1)
CHAR_GPT = Language(layers=4, width=128, heads=4, words=65, batch=16, length=64)
BERT = Language(layers=12, width=768, heads=12, words=30522, batch=8, length=128)
RESNET = Images(widths=(64, 128, 256, 512), batch=32, side=32)
MLP = Vectors(widths=(784, 256, 256, 10), batch=64)

SMALL_GPT = Language(layers=1, width=32, heads=2, words=64, batch=2, length=16)
SMALL_DECODE = dataclasses.replace(SMALL_GPT, batch=1)
SMALL_BERT = Language(layers=1, width=32, heads=2, words=64, batch=2, length=8)
SMALL_RESNET = Images(widths=(8, 16), batch=2, side=8)
SMALL_MLP = Vectors(widths=(20, 16, 16, 10), batch=8)


def gpt_shapes(s: Language) -> Shapes:
    shapes: Shapes = {"token.weight": (s.words, s.width), "place.weight": (s.length, s.width)}
    for i in range(s.layers):
        shapes |= _block(f"blocks.{i}.", s.width)
    shapes |= _pair("norm", s.width)
    return shapes | {"head.weight": (s.words, s.width)}


def bert_shapes(s: Language) -> Shapes:
    shapes: Shapes = {"token.weight": (s.words, s.width), "place.weight": (512, s.width)}
    shapes |= {"kind.weight": (2, s.width)} | _pair("norm", s.width)
    for i in range(s.layers):
        shapes |= _block(f"layers.{i}.", s.width)
    return shapes


def _pair(name: str, *shape: int) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _block(prefix: str, width: int) -> Shapes:
    found = _pair(prefix + "norm1", width) | _pair(prefix + "norm2", width)
    found |= _pair(prefix + "qkv", 3 * width, width) | _pair(prefix + "out", width, width)
    return found | _pair(prefix + "up", 4 * width, width) | _pair(prefix + "down", width, 4 * width)


def residuals(s: Images) -> list[tuple[str, int, int, int]]:
    """Prefix, input channels, output channels and stride of each residual block."""
    found, inputs = [], s.widths[0]
    for i, outputs in enumerate(s.widths):
        found.append((f"blocks.{2 * i}.", inputs, outputs, 1 if i == 0 else 2))
        found.append((f"blocks.{2 * i + 1}.", outputs, outputs, 1))
        inputs = outputs
    return found


def resnet_shapes(s: Images) -> Shapes:
    shapes: Shapes = {"stem.weight": (s.widths[0], 3, 3, 3)} | _pair("norm", s.widths[0])
    for prefix, inputs, outputs, stride in residuals(s):
        shapes[prefix + "conv1.weight"] = (outputs, inputs, 3, 3)
        shapes |= _pair(prefix + "norm1", outputs)
        shapes[prefix + "conv2.weight"] = (outputs, outputs, 3, 3)
        shapes |= _pair(prefix + "norm2", outputs)
        if stride != 1 or inputs != outputs:
            shapes[prefix + "fit.weight"] = (outputs, inputs, 1, 1)
            shapes |= _pair(prefix + "fit_norm", outputs)
    return shapes | _pair("head", 10, s.widths[-1])


def mlp_shapes(s: Vectors) -> Shapes:
    shapes: Shapes = {}
    for i, (inputs, outputs) in enumerate(zip(s.widths, s.widths[1:], strict=False)):
        shapes |= _pair(f"layers.{i}", outputs, inputs)
    return shapes


def filled(shapes: Shapes, seed: int = 0) -> Arrays:
    """Random numbers of a trainable size: scales near 1, biases near 0, matrices by fan-in."""
    random = np.random.default_rng(seed)
    arrays = {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, np.float32)
        if len(shape) == 1:
            values = 0.1 * values + float(name.endswith("weight"))
        elif name.startswith(("token", "place", "kind", "head")):
            values *= 0.05
        else:
            values *= 0.7 * float(np.prod(shape[1:])) ** -0.5
        arrays[name] = values.astype(np.float32)
    return arrays


def words(s: Language, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Input ids (batch, length) and the targets of every position, in one row."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, s.words, (s.batch, s.length), np.int64)
    return ids, random.integers(0, s.words, s.batch * s.length, np.int64)


def pictures(s: Images, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((s.batch, 3, s.side, s.side), np.float32)
    return x, random.integers(0, 10, s.batch, np.int64)


def rows(s: Vectors, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.random((s.batch, s.widths[0]), np.float32)
    return x, random.integers(0, s.widths[-1], s.batch, np.int64)
