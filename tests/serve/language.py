"""A small language model in a GGUF file, with tokens for every byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lucerne as torch
from lucerne._src.generate.gguf_models import _BLOCK, _TOP
from lucerne.generate import Decoder, DecoderConfig
from tests.quantization import craft

TEMPLATE = (
    "{% for m in messages %}{% if m.role not in ('user', 'assistant', 'system') %}"
    "{{ raise_exception('no role ' + m.role) }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}<|assistant|>"
)
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "i n", "in g"]
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]


def byte_signs() -> list[str]:
    """The signs that stand for bytes: themselves where they print, else those from 256 on."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in own else chr(next(others)) for b in range(256)]


def byte_facts(cut: str = "gpt-2") -> dict[str, Any]:
    """The tokenizer's facts of GPT-2's kind."""
    pieces = [*byte_signs(), *(m.replace(" ", "") for m in MERGES), *SPECIAL]
    first = len(pieces) - len(SPECIAL)
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": cut,
        "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.token_type": [1] * first + [3] * len(SPECIAL),
        "tokenizer.ggml.bos_token_id": first, "tokenizer.ggml.eos_token_id": first + 1,
        "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip


def piece_facts() -> dict[str, Any]:
    """The tokenizer's facts of SentencePiece's kind: letters, unions, and bytes for the rest."""
    space = "\N{LOWER ONE EIGHTH BLOCK}"
    unions = [f"{space}h", "el", "ll", f"{space}hel", "lo", f"{space}hello", f"{space}w", "or"]
    letters = [space, *"abcdefghijklmnopqrstuvwxyz!"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *unions, *letters]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(unions) + len(letters))]
    scores = [0.0] * 259 + [-float(n) for n in range(len(unions) + len(letters))]
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip


def model_of(facts: dict[str, Any], context: int = 96) -> tuple[bytes, Decoder]:
    """A file with these tokens, and the model in it."""
    torch.manual_seed(5)
    config = DecoderConfig(
        words=len(facts["tokenizer.ggml.tokens"]), width=32, layers=1, heads=2, kind="llama",
        hidden=48, context=context,
    )  # fmt: skip
    model = Decoder(config).eval()
    names = {**_TOP, **{f"blocks.0.{k}": f"blk.0.{v}" for k, v in _BLOCK.items()}}
    tensors = {}
    for path, t in model.named_parameters():
        layer, _, part = path.rpartition(".")
        array = t.detach().numpy()
        tensors[f"{names[layer]}.{part}"] = (array.shape, 0, array.tobytes())
    sizes = {
        "embedding_length": 32, "block_count": 1, "attention.head_count": 2,
        "attention.head_count_kv": 2, "feed_forward_length": 48, "context_length": context,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    whole = {**{f"llama.{k}": v for k, v in sizes.items()}, **facts}
    return craft.gguf(tensors, more=whole), model


def write(folder: Path, name: str = "small.gguf") -> Path:
    """A file that can be served."""
    path = folder / name
    path.write_bytes(model_of(byte_facts())[0])
    return path
