"""What generating must give: everything computed again for each token, without a cache."""

from __future__ import annotations

from typing import Any

import numpy as np

import lucerne as torch
from lucerne.generate import Decoder, DecoderConfig

WORDS = 61
CONFIGS = {
    "llama": DecoderConfig(
        words=WORDS, width=32, layers=2, heads=4, key_heads=2, hidden=48, context=2048
    ),
    "gpt2": DecoderConfig(words=WORDS, width=32, layers=2, heads=4, kind="gpt2", context=2048),
}


def model_of(kind: str) -> Decoder:
    torch.manual_seed(3)
    return Decoder(CONFIGS[kind]).eval()


def prompt_of(length: int) -> list[int]:
    found: list[int] = np.random.default_rng(length).integers(0, WORDS, length).tolist()
    return found


def greedy(model: Any, prompt: list[int], count: int) -> tuple[list[int], list[Any]]:
    """The tokens, and the logits that each was chosen by."""
    text, logits = list(prompt), []
    with torch.no_grad():
        for _ in range(count):
            logits.append(model(torch.tensor([text]))[0, -1])
            text.append(int(logits[-1].argmax()))
    return text[len(prompt) :], logits


def compiles_since(began: float) -> int:
    """How many rows the ledger has got. (It keeps a number of them: their count tells nothing.)"""
    return sum(row.began >= began for row in torch.compiler.ledger().rows)
