"""Every causal language model of transformers, tiny and random: forward, backward, generate.

`python -m tests.ecosystem --causal` runs them behind the door, beside the numbers that torch gave
(causal.json; `--torch PYTHON` takes them anew). `python -m tests.ecosystem.causal KIND ...` runs
some in this process and prints a line of JSON for each.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

MARK = "RESULT "
REFERENCE = Path(__file__).with_name("causal.json")
WORDS, BATCH, LENGTH, NEW = 64, 2, 8, 4

SMALL = (  # what a key of a configuration is made, by its name; the first that fits
    (r"vocab_size|n_vocab|vocab_size_per_layer_input", WORDS),
    (r".*(max_position|n_positions|n_ctx|max_seq_len|max_sequence_length).*", 64),
    (r".*(experts_per_tok|num_experts_per_token|top_k_experts|moe_topk)", 2),
    (r"(n_group|topk_group|n_shared_experts)", 1),
    (r".*num.*experts|n_routed_experts|num_local_experts|moe_num_experts", 4),
    (r".*(num_key_value_heads|num_kv_heads|kv_heads)", 2),
    (r".*(attention_heads|num_heads|n_heads?|key_heads|value_heads)", 4),
    (r"(num_|n_|encoder_|decoder_)?(hidden_)?layers?|num_.*_layers", 2),
    (r"(hidden_size|d_model|n_embd|n_embed|dim|embedding_size|emb_dim|word_embed.*_dim)", 32),
    (r"(head_dim|.*_head_dim|attention_head_size|d_kv|d_head)", 8),
    (r"rotary_dim|.*rope.*dim", 4),
    (r".*lora_rank|.*_rank", 8),
    (r"intermediate_size|.*ffn_dim|d_ff|n_inner|d_inner|.*intermediate.*|ffn_hidden_size", 64),
    (r"sliding_window|.*window.*", 16),
)


def tiny(kind: type, **more: Any) -> Any:
    """A configuration of a class, with small numbers in place of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual = kind()
    given: dict[str, Any] = {}
    inside = getattr(kind, "sub_configs", {})
    for key, value in vars(usual).items():
        if key in inside:
            given[key] = tiny(type(value)).to_dict() if value is not None else None
        elif isinstance(value, int) and not isinstance(value, bool):
            found = next((n for way, n in SMALL if re.fullmatch(way, key)), None)
            if found is not None and value > found:
                given[key] = found
    if getattr(usual, "kv_lora_rank", None):  # each head has keys of its own there
        given["num_key_value_heads"] = 4
    if getattr(usual, "layer_types", None) and "layer_types" in vars(usual):
        types = list(dict.fromkeys(usual.layer_types))
        given["layer_types"] = types
        given["num_hidden_layers"] = len(types)
    return kind(**{**given, **_tokens(usual), **more})


def _tokens(usual: Any) -> dict[str, int]:
    """Ids of special tokens that the small vocabulary has."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    return {name: k for k, name in enumerate(names) if isinstance(getattr(usual, name, None), int)}


NEAR = {"loss": 1e-5, "gradients": 1e-4, "text": None}
"""How near to torch's; gradients are summed up by size, text is the same."""

OVER: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "dots1": {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1,
    },
    "ernie4_5_moe": {"moe_k": 2},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8},
    "nemotron_h": {"n_groups": 2, "mamba_num_heads": 8, "mamba_head_dim": 8},
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 32},
    "reformer": {
        "is_decoder": True, "axial_pos_shape": [2, 4], "axial_pos_embds_dim": [16, 16],
        "max_position_embeddings": 8,
    },
    "xmod": {"default_language": "en_XX"},
}  # fmt: skip
"""What a kind needs beyond that."""


TRAINED = ("reformer", "rwkv")
"""What cannot be differentiated in eval mode."""


def kinds() -> list[str]:
    """The kinds of model that transformers knows as causal, one of each class."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    seen: dict[str, str] = {}
    for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        if name not in seen.values():
            seen[kind] = name
    return list(seen)


def one(kind: str, torch: Any) -> dict[str, Any]:
    """Loss, gradients and text of a model, and how far it came."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: F401
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    told: dict[str, Any] = {"kind": kind, "at": "config"}
    try:
        config = tiny(CONFIG_MAPPING[kind], **OVER.get(kind, {}))
        config.use_cache = True
        told["at"] = "build"
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).float().train(kind in TRAINED)
        for name, p in model.named_parameters():
            if re.search("gate|router", name) and not p.detach().any():
                torch.nn.init.normal_(p, std=0.02)  # all alike: which is chosen is nobody's promise
        told["class"] = type(model).__name__
        ids = torch.randint(5, WORDS, (BATCH, LENGTH))
        told["at"] = "forward"
        out = model(input_ids=ids, labels=ids)
        told["loss"] = float(out.loss.detach())
        told["at"] = "backward"
        out.loss.backward()
        grads = [p.grad.detach().double() for p in model.parameters() if p.grad is not None]
        told["gradients"] = [len(grads), float(sum(g.abs().sum() for g in grads))]
        told["at"] = "generate"
        model.eval()
        with torch.no_grad():
            text = model.generate(
                ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0
            )
        told["text"] = text.tolist()
        told["at"] = "end"
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {str(error).strip()[:160]}"
    return told


def wrong(got: dict[str, Any], want: dict[str, Any]) -> str:
    """What is not as torch has it; nothing if all is."""
    if "error" in got:
        return f"{got['at']}: {got['error']}"
    for part, near in NEAR.items():
        count, expected = (x[part] if isinstance(x[part], list) else [x[part]] for x in (got, want))
        if len(count) != len(expected):
            return f"{part}: {len(count)} of {len(expected)}"
        for a, b in zip(count, expected, strict=True):
            if (a != b) if near is None else abs(a - b) > near * max(abs(b), 1e-3):
                return f"{part}: {a} for {b}"
    return ""


def recorded() -> dict[str, Any]:
    """What torch told of each kind, and the release of transformers it was."""
    known: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    return known


def record(told: dict[str, Any], version: str) -> None:
    """Let what torch told be the reference of a kind."""
    known = recorded()
    known[told["kind"]] = {k: v for k, v in told.items() if k != "kind"} | {"version": version}
    rows = [f"{json.dumps(k)}: {json.dumps(known[k])}" for k in sorted(known)]
    REFERENCE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main(names: list[str]) -> int:
    import torch

    from tests.ecosystem import real_torch

    kept = real_torch.complete(torch)  # noqa: F841
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for kind in names:
        start = time.process_time()
        told = one(kind, torch)
        told["seconds"] = round(time.process_time() - start, 2)
        print(MARK + json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
