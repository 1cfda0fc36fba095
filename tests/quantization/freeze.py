"""`python -m tests.quantization.freeze`: a GGUF file by llama.cpp's own package, and its numbers.

Needs `pip install gguf`; run in an environment that has it. The file and what that package reads
out of it stay in `data/`, so that tests need neither.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

DATA = Path(__file__).parent / "data"
KINDS = ("Q8_0", "Q4_0", "Q4_K", "Q6_K")
ROWS, COLUMNS = 3, 512


def _blocks(kind: object, rng: np.random.Generator) -> np.ndarray:
    """Rows of blocks of any bits, with scales that are sane."""
    numbers, nbytes = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (ROWS * COLUMNS // numbers, nbytes), dtype=np.uint8)
    places = {"Q8_0": [0], "Q4_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}[kind.name]
    for at in places:
        halves = rng.uniform(-0.01, 0.01, len(raw)).astype(np.float16)
        raw[:, at : at + 2] = halves[:, None].view(np.uint8)
    return raw.reshape(ROWS, -1)


def main() -> None:
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(DATA / "small.gguf", "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "\u00e9"])
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_bool("some.flag", True)
    expected = {}
    for name in KINDS:
        kind = gguf.GGMLQuantizationType[name]
        raw = _blocks(kind, rng)
        writer.add_tensor(name, raw, raw_dtype=kind)
        expected[name] = gguf.quants.dequantize(raw, kind).reshape(ROWS, COLUMNS)
    for plain in (np.float32, np.float16):
        made = rng.standard_normal((2, 5)).astype(plain)
        writer.add_tensor(np.dtype(plain).name, made)
        expected[np.dtype(plain).name] = made
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.savez_compressed(DATA / "small.npz", **expected)


if __name__ == "__main__":
    main()
