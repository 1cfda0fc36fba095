"""Hugging Face models compiled with `fullgraph=True`, beside themselves uncompiled.

`python -m tests.ecosystem --models` runs each in a process of its own, behind the hook, without a
program of an earlier process. `python -m lucerne.as_torch -m tests.ecosystem.models NAME` is one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

MARK = "RESULT "
LAYERS, WIDTH, WORDS, BATCH, LENGTH = 4, 64, 128, 2, 16
STEPS = 50


def _words(torch: Any) -> dict[str, Any]:
    ids = torch.randint(3, WORDS, (BATCH, LENGTH))
    return {"input_ids": ids, "labels": ids.clone()}


def _classes(torch: Any) -> dict[str, Any]:
    return {"input_ids": _words(torch)["input_ids"], "labels": torch.randint(0, 2, (BATCH,))}


def _decoder(config: str, model: str, **more: Any) -> Callable[[], Any]:
    """A model that reads words; `more`: what its configuration calls things."""

    def make() -> Any:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**more)), _words

    return make


_LLAMA = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _bert() -> Any:
    import transformers

    more = {**_LLAMA, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    del more["num_key_value_heads"]
    return transformers.BertForSequenceClassification(transformers.BertConfig(**more)), _classes


def _vit() -> Any:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=4, image_size=16, patch_size=4, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip

    def given(torch: Any) -> dict[str, Any]:
        pictures = torch.randn(BATCH, 3, 16, 16)
        return {"pixel_values": pictures, "labels": torch.randint(0, 2, (BATCH,))}

    return transformers.ViTForImageClassification(config), given


def _whisper() -> Any:
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=WORDS, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=2 * WIDTH,
        decoder_ffn_dim=2 * WIDTH, num_mel_bins=8, max_source_positions=LENGTH,
        max_target_positions=LENGTH, dropout=0.0, decoder_start_token_id=1, **_ENDS,
    )  # fmt: skip

    def given(torch: Any) -> dict[str, Any]:
        sound = torch.randn(BATCH, 8, 2 * LENGTH)
        return {"input_features": sound, "labels": _words(torch)["labels"]}

    return transformers.WhisperForConditionalGeneration(config), given


MODELS: dict[str, Callable[[], Any]] = {
    "Llama": _decoder("LlamaConfig", "LlamaForCausalLM", **_LLAMA),
    "Qwen3": _decoder("Qwen3Config", "Qwen3ForCausalLM", **_LLAMA, head_dim=16),
    "GPT-2": _decoder(
        "GPT2Config", "GPT2LMHeadModel", vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=4,
        n_positions=LENGTH, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ),
    "BERT": _bert,
    "ViT": _vit,
    "Whisper": _whisper,
    "T5": _decoder(
        "T5Config", "T5ForConditionalGeneration", vocab_size=WORDS, d_model=WIDTH, d_kv=16,
        d_ff=2 * WIDTH, num_layers=LAYERS, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=2,
    ),
}  # fmt: skip


def _gap(a: Any, b: Any) -> float:
    """The largest difference, measured by the largest value."""
    size = max(float(b.abs().max()), 1e-6)
    return float((a - b).abs().max()) / size


def _gradients(model: Any, call: Any, given: dict[str, Any]) -> dict[str, Any]:
    model.zero_grad()
    call(**given).loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def compared(name: str) -> dict[str, Any]:
    """The row of a model: differences, breaks, programs, and what the first calls cost."""
    import torch

    torch.manual_seed(0)
    model, make = MODELS[name]()
    compiled = torch.compile(model, fullgraph=True)
    inside = compiled.__dict__["forward"]
    row: dict[str, Any] = {"model": name}
    given = make(torch)
    with torch.no_grad():
        model.eval()
        began = time.process_time()
        found = compiled(**given).logits
        row["forward_seconds"] = time.process_time() - began
        row["forward"] = _gap(found, model(**given).logits)
    forward = len(inside.entries)
    model.train()
    began = time.process_time()
    found = _gradients(model, compiled, given)
    row["training_seconds"] = time.process_time() - began
    wanted = _gradients(model, model, given)
    assert found.keys() == wanted.keys(), "other parameters have gradients"
    row["gradient"] = max(_gap(found[n], g) for n, g in wanted.items())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        compiled(**make(torch)).loss.backward()
        optimizer.step()
    row["programs"] = len(inside.entries) - forward
    row["breaks"] = len(inside.breaks)
    last = make(torch)
    row["after"] = _gap(compiled(**last).logits.detach(), model(**last).logits.detach())
    return row


HEAD = (
    f"{'model':<8} {'forward':>9} {'gradient':>9} {'after 50':>9} {'breaks':>6} {'programs':>8} "
    f"{'first forward':>13} {'first training':>14}"
)


def as_line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    if "error" in row:
        return f"{row['model']:<8} fails: {row['error']}"
    return (
        f"{row['model']:<8} {row['forward']:>9.1e} {row['gradient']:>9.1e} {row['after']:>9.1e} "
        f"{row['breaks']:>6} {row['programs']:>8} {row['forward_seconds']:>11.1f} s "
        f"{row['training_seconds']:>12.1f} s"
    )


def is_right(row: dict[str, Any]) -> bool:
    """Whether a model is one program, with eager's numbers."""
    if "error" in row:
        return False
    near = max(row["forward"], row["gradient"], row["after"]) < 1e-4
    return near and row["breaks"] == 0 and row["programs"] == 1


def main(name: str) -> int:
    try:
        row = compared(name)
    except Exception as error:
        text = " ".join(str(error).split())
        row = {"model": name, "error": f"{type(error).__name__}: {text[:300]}"}
    print(MARK + json.dumps(row))
    return 0 if is_right(row) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
