"""MultiheadAttention and the transformer against torch: values, gradients, initial weights."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nn.agree import assert_agree, assert_equal, trained
from tests.support.both import show

pytestmark = pytest.mark.torch

BATCHED = [False, True]


# ---- MultiheadAttention -------------------------------------------------------------------------

ATTENTIONS: list[dict[str, Any]] = [
    {},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"kdim": 6, "vdim": 5},
    {"kdim": 6, "vdim": 5, "add_bias_kv": True, "add_zero_attn": True, "bias": False},
    {"dropout": 0.3},
    {"dropout": 0.3, "add_bias_kv": True},
]
FORWARDS: list[dict[str, Any]] = [
    {},
    {"need_weights": False},
    {"average_attn_weights": False},
]
MASKS = ["none", "padding", "pairs", "float pairs", "heads", "all"]


def masks_for(torch: Any, kind: str, batch: int | None) -> dict[str, Any]:
    """Masks over 4 queries and 5 keys, none of which hides a whole row."""
    first = () if batch is None else (batch,)
    padding = torch.zeros(*first, 5, dtype=torch.bool)
    padding[..., 4] = True
    pairs = torch.rand(4, 5) > 0.7
    pairs[:, 0] = False
    heads = (torch.rand((batch or 1) * 2, 4, 5) > 0.7).logical_and(torch.arange(5) > 0)
    numbers = torch.zeros(4, 5).masked_fill(pairs, -2.5)
    return {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "pairs": {"attn_mask": pairs},
        "float pairs": {"attn_mask": numbers},
        "heads": {"attn_mask": heads},
        "all": {"attn_mask": pairs, "key_padding_mask": padding},
    }[kind]


@pytest.mark.parametrize("settings", ATTENTIONS, ids=str)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("batched", BATCHED)
def test_attention(settings: dict[str, Any], kind: str, batched: bool) -> None:
    def case(torch: Any) -> Any:
        layer = torch.nn.MultiheadAttention(8, 2, **settings)
        batch = 3 if batched else None
        middle = (3,) if batched else ()
        q = torch.randn(4, *middle, 8, requires_grad=True)
        k = torch.randn(5, *middle, layer.kdim, requires_grad=True)
        v = torch.randn(5, *middle, layer.vdim, requires_grad=True)
        masks = masks_for(torch, kind, batch)
        found: list[Any] = [dict(layer.state_dict())]
        for forward in FORWARDS:
            torch.manual_seed(1)
            output, weights = layer(q, k, v, **masks, **forward)
            loss = (output * output.detach().cos()).sum()
            if weights is not None:
                loss = loss + weights.square().sum()
            layer.zero_grad()
            found += [output, weights, trained(layer, loss), q.grad, k.grad, v.grad]
        return found

    assert_agree(case, atol=5e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_with_batch_first(causal: bool) -> None:
    def case(torch: Any) -> Any:
        layer = torch.nn.MultiheadAttention(8, 4, batch_first=True)
        x = torch.randn(3, 5, 8, requires_grad=True)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(5)
        output, weights = layer(x, x, x, attn_mask=mask, is_causal=causal, need_weights=False)
        return output, weights, trained(layer, output.square().sum()), x.grad, output.stride()

    assert_agree(case)


# ---- layers -------------------------------------------------------------------------------------

LAYERS: list[dict[str, Any]] = [
    {},
    {"dropout": 0.0, "batch_first": True},
    {"norm_first": True, "activation": "gelu"},
    {"bias": False, "batch_first": True, "norm_first": True},
]


def options(torch: Any, settings: dict[str, Any], activation: str) -> dict[str, Any]:
    functions = {
        "": {},
        "tanh": {"activation": torch.tanh},
        "layer": {"activation": torch.nn.SiLU()},
    }
    return settings | functions[activation]


@pytest.mark.parametrize("settings", LAYERS, ids=str)
@pytest.mark.parametrize("activation", ["", "tanh", "layer"])
@pytest.mark.parametrize("batched", BATCHED)
def test_encoder_layer(settings: dict[str, Any], activation: str, batched: bool) -> None:
    def case(torch: Any) -> Any:
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, **options(torch, settings, activation))
        x = torch.randn(*((4, 4, 8) if batched else (4, 8)), requires_grad=True)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
        torch.manual_seed(1)
        output = layer(x, src_mask=mask)
        grads = trained(layer, (output * output.detach().cos()).sum())
        return repr(layer), dict(layer.state_dict()), output, grads, x.grad

    assert_agree(case, atol=5e-5)


@pytest.mark.parametrize("settings", LAYERS, ids=str)
@pytest.mark.parametrize("batched", BATCHED)
def test_decoder(settings: dict[str, Any], batched: bool) -> None:
    def case(torch: Any) -> Any:
        layer = torch.nn.TransformerDecoderLayer(8, 2, 16, **settings)
        decoder = torch.nn.TransformerDecoder(layer, 2, torch.nn.LayerNorm(8))
        first = settings.get("batch_first", False)
        shapes = [((3, n) if first else (n, 3)) if batched else (n,) for n in (4, 5)]
        x, memory = (torch.randn(*s, 8, requires_grad=True) for s in shapes)
        hidden = torch.zeros(*((3,) if batched else ()), 5, dtype=torch.bool)
        hidden[..., 4] = True
        mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
        torch.manual_seed(1)
        output = decoder(x, memory, tgt_mask=mask, memory_key_padding_mask=hidden)
        grads = trained(decoder, (output * output.detach().cos()).sum())
        return repr(decoder), dict(decoder.state_dict()), output, grads, x.grad, memory.grad

    assert_agree(case, atol=5e-5)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("kind", ["none", "last", "scattered", "numbers", "row", "with mask"])
@pytest.mark.parametrize("nested", [False, True])
def test_encoder(norm: bool, training: bool, recording: bool, kind: str, nested: bool) -> None:
    """Padded positions are zero exactly where torch's nested tensors make them so."""
    if kind == "row" and not nested:
        pytest.skip("torch's dense fast path gives nan for a sequence that is all padding")
    if kind == "numbers" and not nested and not training and not recording:
        pytest.skip("torch's dense fast path takes any number in a padding mask for True")

    def case(torch: Any) -> Any:
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        last = torch.nn.LayerNorm(8) if norm else None
        encoder = torch.nn.TransformerEncoder(layer, 2, last, enable_nested_tensor=nested)
        encoder.train(training)
        for p in encoder.parameters():
            p.data.add_(0.01)
        hidden = torch.zeros(3, 5, dtype=torch.bool)
        hidden[0, 3:] = True
        if kind == "scattered":
            hidden[2, 0] = True
        if kind == "row" and not (training or recording):
            hidden[1] = True
        given: dict[str, Any] = {} if kind == "none" else {"src_key_padding_mask": hidden}
        if kind == "numbers":
            given = {"src_key_padding_mask": torch.zeros(3, 5).masked_fill(hidden, -1.0)}
        if kind == "with mask":
            given["mask"] = torch.zeros(5, 5, dtype=torch.bool).logical_or(
                torch.arange(5) > torch.arange(5)[:, None]
            )
        x = torch.randn(3, 5, 8)
        torch.manual_seed(1)
        with torch.set_grad_enabled(recording):
            return encoder(x, **given)

    assert_agree(case, atol=5e-5)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_transformer(batch_first: bool, norm_first: bool, training: bool) -> None:
    def case(torch: Any) -> Any:
        model = torch.nn.Transformer(
            8, 2, 2, 2, 16, batch_first=batch_first, norm_first=norm_first, activation="gelu"
        ).train(training)
        src, tgt = (
            torch.randn(*((3, n) if batch_first else (n, 3)), 8, requires_grad=True) for n in (5, 4)
        )
        padding = torch.zeros(3, 5, dtype=torch.bool)
        padding[1, 3:] = True
        mask = model.generate_square_subsequent_mask(4)
        torch.manual_seed(1)
        output = model(
            src,
            tgt,
            tgt_mask=mask,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        grads = trained(model, (output * output.detach().cos()).sum())
        return dict(model.state_dict()), output, grads, src.grad, tgt.grad

    with_notice = not batch_first or norm_first
    if not with_notice:
        assert_agree(case, rtol=1e-3, atol=1e-4)
        return
    with pytest.warns(UserWarning, match="enable_nested_tensor is True, but"):
        assert_agree(case, rtol=1e-3, atol=1e-4)


def test_initial_weights_are_equal() -> None:
    def case(torch: Any) -> Any:
        nn = torch.nn
        layers = [
            nn.MultiheadAttention(8, 2),
            nn.MultiheadAttention(8, 2, kdim=5, vdim=3, add_bias_kv=True),
            nn.TransformerEncoderLayer(8, 2, 16),
            nn.TransformerDecoderLayer(8, 2, 16),
            nn.Transformer(8, 2, 1, 2, 16, batch_first=True),
        ]
        return [dict(layer.state_dict()) for layer in layers]

    assert_equal(case)


ERRORS = [
    "torch.nn.MultiheadAttention(8, 3)",
    "torch.nn.MultiheadAttention(8, 0)",
    "torch.nn.MultiheadAttention(8, 2)(torch.zeros(3, 2, 8), torch.zeros(3, 8), torch.zeros(3, 8))",
    "x = torch.zeros(3, 2, 7)\ntorch.nn.MultiheadAttention(8, 2)(x, x, x)",
    "x = torch.zeros(3, 2, 8)\ntorch.nn.MultiheadAttention(8, 2)(x, x, x, is_causal=True)",
    "x = torch.zeros(3, 8)\n"
    "torch.nn.MultiheadAttention(8, 2)(x, x, x, attn_mask=torch.zeros(3, 3, dtype=torch.int64))",
    "torch.nn.TransformerEncoderLayer(8, 2, activation='tanh')",
    "torch.nn.TransformerEncoderLayer(8, 2)(torch.zeros(3, 2, 8), is_causal=True)",
    "torch.nn.Transformer(8, 2, 1, 1, 16)(torch.zeros(3, 2, 8), torch.zeros(3, 3, 8))",
    "torch.nn.Transformer(8, 2, 1, 1, 16)(torch.zeros(3, 2, 7), torch.zeros(3, 2, 7))",
    "a = torch.nn.MultiheadAttention(8, 2)\n"
    "a.merge_masks(torch.ones(3, 3), torch.ones(2, 3), torch.zeros(2, 3, 8))",
    "torch.nn.MultiheadAttention(8, 2).merge_masks(None, torch.ones(2, 3), torch.zeros(2, 3, 8))",
]


@pytest.mark.parametrize("source", ERRORS)
def test_errors_and_text(source: str) -> None:
    torch, lucerne = pytest.importorskip("torch"), pytest.importorskip("lucerne")
    assert show(lucerne, source, errors=True) == show(torch, source, errors=True)
