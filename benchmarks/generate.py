"""Tokens a second: one request, eight at once, and torch with the same weights.

    python -m benchmarks generate                 GPT-2's size, float32
    python -m benchmarks generate --weights int8  weights in 8 bits (torch stays in float32)
    python -m benchmarks generate --layers 2      a smaller model

One thread, processor time, all sides in turn, the best of many. *Token*: one more token with a
static cache that is filled up to about 70 of its places, compiled and op by op, and torch's, eager,
with a cache of the same kind (`index_copy_`, attention with a mask). *Batch*: a `Batcher` of one
slot and one of eight, all slots taken; each of the eight requests must have the bits that it has
alone in such a batcher. Eight must give at least four times the tokens of one.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import lucerne as torch
from benchmarks.timing import best_in_turn
from lucerne import quantization as q
from lucerne.generate import Batcher, Decoder, DecoderConfig, Decoding

LEAST = 4.0
"""How many times the tokens of one slot eight slots must give."""
SLOTS = 8
FILLED = 70
CONFIGS: dict[str, Any] = {
    "float32": None,
    "int8": q.Int8WeightOnlyConfig(),
    "int8-dynamic": q.Int8DynamicActivationInt8WeightConfig(),
    "int4": q.Int4WeightOnlyConfig(group_size=32),
}


def model_of(layers: int, context: int) -> Decoder:
    """GPT-2's sizes with random weights."""
    config = DecoderConfig(
        words=50257, width=768, layers=layers, heads=12, kind="gpt2", context=context
    )
    return Decoder(config).eval()


def theirs(t: Any, model: Decoder, context: int) -> Callable[[], Any]:
    """One token by torch: the same weights, buffers of the same size."""
    F, c = t.nn.functional, model.config
    w = {name: t.from_numpy(p.detach().numpy()) for name, p in model.named_parameters()}
    keys, values = (
        [t.zeros(1, c.heads, context, c.size) for _ in range(c.layers)] for _ in range(2)
    )
    state = {"at": FILLED, "token": 5}

    def linear(name: str, x: Any) -> Any:
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def norm(name: str, x: Any) -> Any:
        return F.layer_norm(x, (c.width,), w[f"{name}.weight"], w[f"{name}.bias"], c.eps)

    def step() -> Any:
        at = t.tensor([state["at"]])
        seen = (t.arange(context) <= at).view(1, 1, 1, context)
        x = w["word.weight"][state["token"]].view(1, 1, -1) + w["place.weight"][at]
        for i in range(c.layers):
            b, y = f"blocks.{i}.", norm(f"blocks.{i}.attention_norm", x)
            heads = [
                linear(b + n, y).view(1, c.heads, 1, c.size) for n in ("query", "key", "value")
            ]
            keys[i].index_copy_(2, at, heads[1])
            values[i].index_copy_(2, at, heads[2])
            y = F.scaled_dot_product_attention(heads[0], keys[i], values[i], attn_mask=seen)
            x = x + linear(b + "out", y.reshape(1, 1, -1))
            y = F.gelu(linear(b + "up", norm(b + "network_norm", x)), approximate="tanh")
            x = x + linear(b + "down", y)
        logits = linear("head", norm("norm", x))[0, 0]
        state["token"] = int(logits.argmax())
        state["at"] = min(state["at"] + 1, context - 1)
        return logits

    return step


def ours(decoding: Decoding) -> Callable[[], Any]:
    """One token by a `Decoding` that has read a prompt."""
    state = {"token": 5}
    decoding.read([[5] * FILLED])
    one = torch.tensor([1])

    def step() -> Any:
        if int(decoding.cache.lengths[0]) >= decoding.capacity:
            decoding.cache.lengths.fill_(FILLED)
        logits = decoding.step(torch.tensor([[state["token"]]]), one)[0]
        state["token"] = int(logits.argmax())
        return logits

    return step


def token(model: Decoder, plain: Decoder, context: int, seconds: float) -> None:
    """Print milliseconds of a token."""
    calls = {
        "compiled": ours(Decoding(model, capacity=context)),
        "op by op": ours(Decoding(model, capacity=context, compile=False)),
    }
    if importlib.util.find_spec("torch") is not None:
        t = importlib.import_module("torch")
        t.set_num_threads(1)
        t.set_grad_enabled(False)
        calls["torch, eager, float32"] = theirs(t, plain, context)
    for call in calls.values():
        call()
        call()
    found = best_in_turn(calls, rounds=4, seconds=seconds)
    told = ", ".join(f"{n} {s * 1e3:.1f} ms ({1 / s:.1f} a second)" for n, s in found.items())
    print(f"a token, room for {context}: {told}", flush=True)


def same_bits(batcher: Batcher, words: int) -> bool:
    """Whether requests together have the bits that they have alone."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, words, n).tolist() for n in (5, 30, 12, 3, 20, 9, 7, 18)]

    def bits(requests: list[Any]) -> list[Any]:
        return [(r.tokens, [t.numpy().tobytes() for t in r.kept_logits]) for r in requests]

    alone = []
    for prompt in prompts[:3]:
        alone.append(batcher.submit(prompt, 4, keep_logits=True))
        batcher.run()
    together = [batcher.submit(p, 4, keep_logits=True) for p in prompts[::-1]]
    batcher.run()
    return bits(alone) == bits(together[::-1])[:3]


def batch(model: Decoder, context: int, seconds: float) -> bool:
    """Print tokens a second with one slot and with eight; whether both goals are met."""
    batchers = {n: Batcher(model, slots=n, capacity=context) for n in (1, SLOTS)}
    same = same_bits(batchers[SLOTS], model.config.words)
    calls: dict[str, Callable[[], Any]] = {}
    for slots, made in batchers.items():
        for _ in range(slots):
            made.submit([5] * FILLED, context - FILLED)
        while not all(slot.is_running for slot in made.slots):
            made.step()
        made.step()
        calls[str(slots)] = made.step
    found = best_in_turn(calls, rounds=4, seconds=seconds)
    one, many = found["1"], found[str(SLOTS)] / SLOTS
    print(
        f"batch 1: {1 / one:.1f} tokens a second ({one * 1e3:.1f} ms), batch {SLOTS}: "
        f"{1 / many:.1f} ({many * 1e3:.1f} ms a token): {one / many:.2f} x; "
        f"bits alone and together {'equal' if same else 'DIFFER'}",
        flush=True,
    )
    return same and one / many >= LEAST


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks generate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--weights", choices=CONFIGS, default="float32")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each comparison")
    parser.add_argument("--only", choices=("token", "batch"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain = model_of(options.layers, options.context)
    model = plain
    if CONFIGS[options.weights] is not None:
        torch.manual_seed(0)
        model = model_of(options.layers, options.context)
        q.quantize_(model, CONFIGS[options.weights])
    good = True
    print(f"{options.layers} layers of 768, 50,257 words, weights {options.weights}", flush=True)
    if options.only in (None, "token"):
        token(model, plain, options.context, options.seconds)
    if options.only in (None, "batch"):
        good = batch(model, options.context, options.seconds)
    print("ok" if good else f"eight at once give less than {LEAST} x, or bits differ")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
