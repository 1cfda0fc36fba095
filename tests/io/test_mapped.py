"""A checkpoint of a large model: opened without being read, and resident only where it is used."""

from __future__ import annotations

import json
import math
import struct
import sys
import time
from pathlib import Path

import pytest

import lucerne
from lucerne.io import safetensors

WIDE, LAYERS, INNER, WORDS = 4096, 32, 11008, 32000
LAYER = {
    "self_attn.q_proj": (WIDE, WIDE), "self_attn.k_proj": (WIDE, WIDE),
    "self_attn.v_proj": (WIDE, WIDE), "self_attn.o_proj": (WIDE, WIDE),
    "mlp.gate_proj": (INNER, WIDE), "mlp.up_proj": (INNER, WIDE), "mlp.down_proj": (WIDE, INNER),
    "input_layernorm": (WIDE,), "post_attention_layernorm": (WIDE,),
}  # fmt: skip
SHARDS = 3


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def make(folder: Path) -> int:
    """Files of seven billion weights in bfloat16, as holes: they take no room on disk."""
    rows: dict[str, tuple[int, ...]] = {"embed_tokens": (WORDS, WIDE), "lm_head": (WORDS, WIDE)}
    rows |= {f"{k}.{name}": shape for k in range(LAYERS) for name, shape in LAYER.items()}
    whole = 0
    for number in range(SHARDS):
        fields, at = {}, 0
        for name, shape in list(rows.items())[number::SHARDS]:
            end = at + 2 * math.prod(shape)
            fields[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
            at = end
        header = json.dumps(fields).encode()
        header += b" " * (-len(header) % 8)
        with (folder / f"{number}.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + at)
        whole += at
    return whole


@pytest.mark.skipif(sys.platform != "linux", reason="what is resident is read from /proc")
def test_a_model_of_seven_billion_weights(tmp_path: Path) -> None:
    whole = make(tmp_path)
    assert whole > 13e9
    if sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()) > 1e9:
        pytest.skip("this file system keeps no holes: the files would take 13 GB")
    before, start = resident(), time.process_time()
    found = {}
    for number in range(SHARDS):
        found |= safetensors.load_file(tmp_path / f"{number}.safetensors")
    assert len(found) == 2 + LAYERS * len(LAYER)
    assert time.process_time() - start < 3
    assert resident() - before < 32e6
    weight = found["7.mlp.up_proj"]
    assert weight.view(lucerne.int16).numpy().max() == 0  # every byte of it is looked at
    assert resident() - before < weight.nbytes + 32e6
    weight[0, 0] = 1.0  # a page of our own: the file stays as it was
    assert resident() - before < weight.nbytes + 32e6
    for number in range(SHARDS):
        again = safetensors.load_file(tmp_path / f"{number}.safetensors")
        if "7.mlp.up_proj" in again:
            assert again["7.mlp.up_proj"][0, 0] == 0
            return
    raise AssertionError("no file has the weight")
