"""lucerne.nn.attention: choosing kernels, causal biases, flex attention, packed sequences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne.nn import attention
from lucerne.nn.attention import bias, flex_attention
from lucerne.nn.utils import rnn
from tests.nn.agree import assert_agree, flat
from tests.support.both import show

F = lucerne.nn.functional
Tensor = Any


def qkv(torch: Any, heads: int = 4, shared: int = 4, grad: bool = False) -> list[Any]:
    shapes = [(2, heads, 5, 8), (2, shared, 7, 8), (2, shared, 7, 6)]
    return [torch.randn(*s, requires_grad=grad) for s in shapes]


# ---- who computes -------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("name", ["ERROR", "MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"])
@pytest.mark.parametrize("masked", [False, True])
def test_one_kernel(name: str, masked: bool) -> None:
    def case(torch: Any) -> Any:
        kinds = torch.nn.attention
        q = torch.randn(1, 2, 3, 4, requires_grad=True)
        mask = torch.randn(3, 3) if masked else None
        with kinds.sdpa_kernel(getattr(kinds.SDPBackend, name)):
            try:
                found = torch.nn.functional.scaled_dot_product_attention(q, q, q, mask)
            except RuntimeError as error:
                return str(error)
        found.sum().backward()
        return found, q.grad

    assert_agree(case)


def test_choice_reaches_remembered_calls() -> None:
    q, k, v = qkv(lucerne)
    for _ in range(4):
        usual = F.scaled_dot_product_attention(q, k, v)
    with (
        attention.sdpa_kernel(attention.SDPBackend.CUDNN_ATTENTION),
        pytest.raises(RuntimeError, match="No viable backend"),
    ):
        F.scaled_dot_product_attention(q, k, v)
    assert lucerne.equal(F.scaled_dot_product_attention(q, k, v), usual)


def test_flash_alone_refuses_dropout() -> None:
    q, k, v = qkv(lucerne)
    with (
        attention.sdpa_kernel([attention.SDPBackend.FLASH_ATTENTION]),
        pytest.warns(UserWarning, match="do not support non-zero dropout"),
        pytest.raises(RuntimeError, match="No available kernel"),
    ):
        F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)


def test_backends_are_restored() -> None:
    before = attention._cur_sdpa_kernel_backends()
    kinds = [attention.SDPBackend.MATH, attention.SDPBackend.FLASH_ATTENTION]

    @attention.sdpa_kernel(kinds, set_priority=True)
    def fail() -> None:
        assert attention._cur_sdpa_kernel_backends(True) == kinds
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert attention._cur_sdpa_kernel_backends() == before


@pytest.mark.torch
@pytest.mark.parametrize(
    "source",
    [
        "list(torch.nn.attention.SDPBackend.__members__.values())",
        "torch.nn.attention.SDPBackend(1), int(torch.nn.attention.SDPBackend.MATH)",
        "torch.nn.attention.SDPBackend.MATH == 0",
        "with torch.nn.attention.sdpa_kernel('x'):\n    pass",
        "torch.nn.attention.current_flash_attention_impl()",
        "torch.nn.attention._cur_sdpa_kernel_backends()",
        "torch.nn.attention.WARN_FOR_UNFUSED_KERNELS",
    ],
)
def test_text(source: str) -> None:
    torch = pytest.importorskip("torch")
    assert show(lucerne, source, errors=True) == show(torch, source, errors=True)


def test_registered_kernel() -> None:
    removed = []

    class Kernel:
        """Answers calls without a mask, leaves others alone."""

        def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, *rest: Any) -> Any:
            return v[..., : q.shape[-2], :] * 2 if mask is None else NotImplemented

        def remove(self) -> None:
            removed.append(self)

    q, k, v = qkv(lucerne)
    usual = [F.scaled_dot_product_attention(q, k, v) for _ in range(3)].pop()
    attention.register_flash_attention_impl("twice", register_fn=Kernel)
    assert "twice" in attention.list_flash_attention_impls()
    attention.activate_flash_attention_impl("twice")
    try:
        assert attention.current_flash_attention_impl() == "twice"
        for _ in range(3):
            assert lucerne.equal(F.scaled_dot_product_attention(q, k, v), v[..., :5, :] * 2)
        seen = lucerne.ones(5, 7, dtype=lucerne.bool)
        lucerne.testing.assert_close(F.scaled_dot_product_attention(q, k, v, seen), usual)
        with attention.sdpa_kernel(attention.SDPBackend.MATH):
            lucerne.testing.assert_close(F.scaled_dot_product_attention(q, k, v), usual)
    finally:
        attention.restore_flash_attention_impl()
    assert len(removed) == 1
    assert lucerne.equal(F.scaled_dot_product_attention(q, k, v), usual)
    with pytest.raises(ValueError, match="Unknown flash attention impl 'thrice'"):
        attention.activate_flash_attention_impl("thrice")
    with pytest.warns(UserWarning, match="no custom impl was activated"):
        attention.restore_flash_attention_impl()


# ---- causal biases ------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (5, 5), (1, 6)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_causal_bias(name: str, queries: int, keys: int, dropout: float) -> None:
    def case(torch: Any) -> Any:
        made = getattr(__import__(f"{torch.__name__}.nn.attention.bias").nn.attention.bias, name)
        mask = made(queries, keys)
        q = torch.randn(2, 2, queries, 4, requires_grad=True)
        k = torch.randn(2, 2, keys, 4, requires_grad=True)
        torch.manual_seed(1)
        found = torch.nn.functional.scaled_dot_product_attention(q, k, k, mask, dropout)
        found.square().sum().backward()
        return repr(mask), mask.variant, mask.seq_len_kv, found, q.grad, k.grad

    assert_agree(case)


def test_causal_bias_is_a_mask_for_others() -> None:
    mask = bias.causal_lower_right(2, 3)
    assert mask.shape == (2, 3)
    assert mask.sum() == 5
    assert (mask + 1).tolist() == [[2, 2, 1], [2, 2, 2]]
    x = lucerne.ones(1, 1, 2, 4)
    with pytest.raises(ValueError, match="should not be used with causal=True"):
        F.scaled_dot_product_attention(x, x, x, bias.causal_upper_left(2, 2), is_causal=True)
    with pytest.raises(AssertionError, match="only supports 2D"):
        bias.causal_upper_left(2)
    with pytest.warns(UserWarning, match="will produce NaNs"):
        bias.causal_lower_right(3, 2)


# ---- flex attention -----------------------------------------------------------------------------

Make = Callable[[Any], Callable[..., Any]]
SCORES: dict[str, Make] = {
    "none": lambda torch: lambda s, b, h, q, k: s,
    "relative": lambda torch: lambda s, b, h, q, k: s + (q - k),
    "alibi": lambda torch: (lambda slopes: lambda s, b, h, q, k: s + slopes[h] * (k - q))(
        torch.arange(1, 5) / 8
    ),
    "soft cap": lambda torch: lambda s, b, h, q, k: torch.tanh(s / 2) * 2,
    "where": lambda torch: lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
    "table": lambda torch: (lambda t: lambda s, b, h, q, k: s * t[b, h, q] + t[b, h, k % 5])(
        torch.arange(40.0).reshape(2, 4, 5) / 40
    ),
}
MASKS: dict[str, Make] = {
    "causal": lambda torch: lambda b, h, q, k: q >= k,
    "window": lambda torch: lambda b, h, q, k: (q - k).abs() <= 1 + b + h,
    "documents": lambda torch: (lambda d: lambda b, h, q, k: d[q] == d[k])(
        torch.tensor([0, 0, 1, 1, 1, 2, 2])
    ),
    "blind": lambda torch: lambda b, h, q, k: q > k,
}


def flex(torch: Any) -> Any:
    return __import__(f"{torch.__name__}.nn.attention.flex_attention").nn.attention.flex_attention


@pytest.mark.torch
@pytest.mark.parametrize(("name", "shared"), [*((name, 4) for name in SCORES), ("alibi", 2)])
def test_score_mod(name: str, shared: int) -> None:
    def case(torch: Any) -> Any:
        q, k, v = qkv(torch, shared=shared)
        made = SCORES[name](torch)
        given: dict[str, Any] = {"enable_gqa": shared != 4, "scale": 0.3}
        request = flex(torch).AuxRequest(lse=True)
        out, aux = flex(torch).flex_attention(q, k, v, made, return_aux=request, **given)
        return flex(torch).flex_attention(q, k, v, made, **given), out, aux.lse

    assert_agree(case)


@pytest.mark.torch
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("size", "score"), [(128, None), (2, "relative"), ((2, 3), None)])
def test_block_mask(name: str, size: Any, score: str | None) -> None:
    def case(torch: Any) -> Any:
        q, k, v = qkv(torch)
        module = flex(torch)
        mask = module.create_block_mask(
            MASKS[name](torch), 2, 4, 5, 7, device="cpu", BLOCK_SIZE=size
        )
        made = None if score is None else SCORES[score](torch)
        out = module.flex_attention(q, k, v, made, mask)
        tensors = [t for t in mask.as_tuple() if hasattr(t, "dtype")]
        return out, tensors, mask.to_dense(), str(mask), repr(mask), mask.sparsity(), mask.shape

    assert_agree(case)


def by_hand(q: Tensor, k: Tensor, v: Tensor, mod: Any, mask: Any) -> Tensor:
    """Attention one pair at a time, as the mods are meant."""
    rows = []
    for b, h, i in itertools.product(*map(range, q.shape[:3])):
        scores = []
        for j in range(k.shape[2]):
            at = [lucerne.tensor(n, dtype=lucerne.int32) for n in (b, h, i, j)]
            score = mod((q[b, h, i] * k[b, h, j]).sum() / math.sqrt(q.shape[-1]), *at)
            scores.append(score if bool(mask(*at)) else score.new_tensor(-math.inf))
        weights = lucerne.stack(scores).softmax(0)
        rows.append((weights.unsqueeze(1) * v[b, h]).sum(0))
    return lucerne.stack(rows).reshape(*q.shape[:3], -1)


@pytest.mark.parametrize("name", SCORES)
def test_gradients_are_those_of_the_formula(name: str) -> None:
    """torch has no backward pass for flex attention on a CPU, so the formula is the oracle."""
    lucerne.manual_seed(0)
    inputs = qkv(lucerne, grad=True)
    mod, mask_mod = SCORES[name](lucerne), MASKS["causal"](lucerne)
    mask = flex_attention.create_block_mask(mask_mod, None, None, 5, 7, BLOCK_SIZE=2)
    found = flex_attention.flex_attention(*inputs, mod, mask)
    wanted = by_hand(*inputs, mod, mask_mod)
    lucerne.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    ours = lucerne.autograd.grad(found.square().sum(), inputs)
    theirs = lucerne.autograd.grad(wanted.square().sum(), inputs)
    for a, b in zip(ours, theirs, strict=True):
        lucerne.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_captured_tensors_get_gradients_and_blind_queries_none() -> None:
    q, k, v = qkv(lucerne, grad=True)
    table = lucerne.zeros(4, requires_grad=True)
    mask = flex_attention.create_block_mask(lambda b, h, i, j: i > j, None, None, 5, 7)
    out, aux = flex_attention.flex_attention(
        q,
        k,
        v,
        lambda s, b, h, i, j: s + table[h] * (i - j),
        mask,
        return_aux=flex_attention.AuxRequest(lse=True, max_scores=True),
    )
    assert not out[:, :, 0].any()
    assert aux.lse[0, 0, 0] == -math.inf
    assert aux.max_scores.shape == aux.lse.shape == (2, 4, 5)
    out.square().sum().backward()
    for t in (q, k, v, table):
        assert t.grad.isfinite().all()
    assert table.grad.any()


def test_blocks_hide_without_a_mask_mod() -> None:
    """Empty blocks are left out, full ones are not asked about."""
    q, k, v = qkv(lucerne)
    i32: dict[str, Any] = {"dtype": lucerne.int32}
    count, order = lucerne.tensor([[[1, 2]]], **i32), lucerne.tensor([[[[0, 1], [0, 1]]]], **i32)
    made = flex_attention.BlockMask.from_kv_blocks(count, order, BLOCK_SIZE=4, seq_lengths=(5, 7))
    visible = lucerne.ones(5, 7, dtype=lucerne.bool)
    visible[:4, 4:] = False
    wanted = F.scaled_dot_product_attention(q, k, v, visible)
    lucerne.testing.assert_close(flex_attention.flex_attention(q, k, v, block_mask=made), wanted)


MODS = st.sampled_from(sorted(set(MASKS) - {"documents"}))


@settings(max_examples=20)
@given(MODS, st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5), st.data())
def test_a_block_mask_says_what_its_mask_mod_says(
    name: str, queries: int, keys: int, rows: int, columns: int, data: Any
) -> None:
    mod = MASKS[name](lucerne)
    mask = flex_attention.create_block_mask(mod, 2, 2, queries, keys, BLOCK_SIZE=(rows, columns))
    dense = flex_attention.create_mask(mod, 2, 2, queries, keys)
    assert lucerne.equal(mask.visible(), dense)
    b, h = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    assert lucerne.equal(mask[b, h].to_dense(), mask.to_dense()[b : b + 1, h : h + 1])
    both = flex_attention.and_masks(mod, flex_attention.noop_mask)
    assert lucerne.equal(flex_attention.create_mask(both, 2, 2, queries, keys), dense)
    either = flex_attention.or_masks(mod, flex_attention.noop_mask)
    assert flex_attention.create_mask(either, 2, 2, queries, keys).all()


ERRORS = [
    "flex_attention(q[0], k[0], v[0])",
    "flex_attention(q, k[..., :4], v)",
    "flex_attention(q, k[:, :2], v[:, :2])",
    "flex_attention(q, k[:, :3], v[:, :3], enable_gqa=True)",
    "flex_attention(q, k[:1], v[:1])",
    "flex_attention(q, k, v, return_lse=True, return_aux=AuxRequest(lse=True))",
    "flex_attention(q[:, :, :3], k, v, block_mask=mask)",
    "flex_attention(torch.cat([q, q], 2), k, v, block_mask=mask)",
    "and_masks(3)",
    "create_mask(lambda a: a, 1, 1, 2, 2, device='cpu')",
    "create_block_mask(3, 1, 1, 2, 2, device='cpu')",
    "BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices, mask.kv_num_blocks)",
]


@pytest.mark.torch
@pytest.mark.parametrize("source", ERRORS)
def test_errors(source: str) -> None:
    def case(torch: Any) -> Any:
        q, k, v = qkv(torch)
        scope = vars(flex(torch)) | {"q": q, "k": k, "v": v, "torch": torch}
        scope["mask"] = scope["create_block_mask"](lambda b, h, i, j: i >= j, 1, 1, 5, 7, "cpu")
        with pytest.raises(Exception) as caught:  # noqa: PT011 - compared below
            eval(source, scope)
        return type(caught.value).__name__, str(caught.value)

    assert_agree(case)


def test_nested_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="compares their numbers"):
        flex_attention.create_nested_block_mask(None, 1, 1, None)


# ---- packed sequences ---------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@settings(max_examples=40)
@given(LENGTHS, st.booleans())
def test_packing_is_undone_by_padding(lengths: list[int], batch_first: bool) -> None:
    rows = [lucerne.arange(n * 2.0).reshape(n, 2) + i for i, n in enumerate(lengths)]
    padded = rnn.pad_sequence(rows, batch_first, -1.0)
    packed = rnn.pack_padded_sequence(padded, lengths, batch_first, enforce_sorted=False)
    assert packed.data.shape[0] == sum(lengths)
    again, found = rnn.pad_packed_sequence(packed, batch_first, -1.0)
    assert found.tolist() == lengths
    assert lucerne.equal(again, padded)
    for a, b in zip(rnn.unpack_sequence(packed), rows, strict=True):
        assert lucerne.equal(a, b)
    order = packed.sorted_indices
    assert rnn.invert_permutation(order).tolist() == packed.unsorted_indices.tolist()


PACKING = [
    "r.pack_padded_sequence(x, [4, 3, 1])",
    "r.pack_padded_sequence(x, [1, 3, 2], enforce_sorted=False)",
    "r.pack_padded_sequence(x, [1, 3, 2])",
    "r.pack_padded_sequence(x, [3, 0, 0])",
    "r.pack_padded_sequence(x, [3, 2])",
    "r.pack_padded_sequence(x, torch.tensor([[3, 2, 1]]))",
    "r.pack_padded_sequence(x[:, :0], [])",
    "r.pack_padded_sequence(x.transpose(0, 1), [4, 3, 1], batch_first=True)",
    "r.pad_packed_sequence(r.pack_padded_sequence(x, [4, 3, 1]), True, -1.0, 6)",
    "r.pad_packed_sequence(r.pack_padded_sequence(x, [4, 3, 1]), total_length=3)",
    "r.pad_sequence([torch.ones(2), torch.ones(3)], True, 5.0, 'left')",
    "r.pad_sequence([torch.ones(2), torch.ones(3)], True, 5.0, 'up')",
    "r.pad_sequence([torch.ones(2, dtype=torch.int64), torch.ones(3)])",
    "r.pad_sequence([])",
    "r.pad_sequence(3)",
    "r.pad_sequence(torch.ones(2, 3))",
    "r.unpad_sequence(torch.ones(3, 2), torch.tensor([1, 2]))",
    "r.pack_sequence([torch.ones(1), torch.ones(3)], enforce_sorted=False).double()",
    "r.PackedSequence(x)",
    "r.PackedSequence(x[:, 0], torch.tensor([2, 1, 1]), torch.tensor([1, 0]))",
    "torch._pack_padded_sequence(x, torch.tensor([4, 3, 1]), False)",
    "torch._pad_packed_sequence(x[0], torch.tensor([2, 1], dtype=torch.int32), True, 0.0, 5)",
    "pickle.loads(pickle.dumps(r.pack_sequence([torch.ones(3), torch.ones(1)])))",
    "r.invert_permutation(torch.tensor([2, 0, 1])), r.invert_permutation(None)",
]


@pytest.mark.torch
@pytest.mark.parametrize("source", PACKING)
def test_packing_as_torch(source: str) -> None:
    torch = pytest.importorskip("torch")
    lines = f"r = torch.nn.utils.rnn\nx = torch.arange(24.0).view(4, 3, 2)\n{source}"
    assert show(lucerne, lines, errors=True) == show(torch, lines, errors=True)


@pytest.mark.torch
def test_packing_gradients() -> None:
    def case(torch: Any) -> Any:
        r = torch.nn.utils.rnn
        x = torch.randn(4, 3, 2, requires_grad=True)
        packed = r.pack_padded_sequence(x, [2, 4, 1], enforce_sorted=False)
        padded, _ = r.pad_packed_sequence(packed, padding_value=3.0)
        y = torch.randn(3, requires_grad=True)
        joined = r.pad_sequence([y, y[:1] * 3, y[:2]], padding_value=2.0)
        (padded.square().sum() + joined.square().sum()).backward()
        return flat([x.grad, y.grad, padded, joined])

    assert_agree(case)
