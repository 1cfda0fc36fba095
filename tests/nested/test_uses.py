"""Nested tensors where programs use them: compiled blocks, masks, files, loaders."""

import io
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne import nn
from lucerne._src.io.errors import CorruptFileError
from tests.nested.test_programs import same

F = nn.functional


def batch(lengths: tuple[int, ...], grad: bool = False) -> Any:
    lucerne.manual_seed(sum(lengths))
    made = [lucerne.randn(n, 8) for n in lengths]
    return lucerne.nested.nested_tensor(made, layout=lucerne.jagged, requires_grad=grad)


class Block(nn.Module):
    """Attention, a residual and a norm over a ragged batch."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Any) -> Any:
        parts = self.project(x).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (2, 4)).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.norm(x + self.drop(y.transpose(1, 2).flatten(2, 3)))


def gradients(module: Any, run: Any, x: Any) -> list[Any]:
    module.zero_grad()
    run(x).sum(1).pow(2).sum().backward()
    found = [x.grad.values().clone(), *(p.grad.clone() for p in module.parameters())]
    x.grad = None
    return found


def test_a_compiled_block_is_one_graph() -> None:
    lucerne.manual_seed(1)
    block = Block()
    compiled = lucerne.compile(lambda x: block(x), fullgraph=True)
    for lengths, versions in (((3, 2), 1), ((3, 2), 1), ((4, 1), 2), ((3, 2), 2)):
        x = batch(lengths, grad=True)
        made = compiled(x)
        np.testing.assert_allclose(
            made.values().detach().numpy(), block(x).values().detach().numpy(), atol=1e-5
        )
        assert made.size(1) == x.size(1)
        assert (made + x).offsets() is x.offsets()
        for a, b in zip(gradients(block, compiled, x), gradients(block, block, x), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4)
        assert len(compiled.entries) == versions


ROWS = {
    "elements": lambda x: (x * 2 + 1).relu(),
    "two": lambda x: x * x.exp(),
    "fold of the ragged dimension": lambda x: x.sum(1),
    "mean": lambda x: x.mean(1),
    "largest": lambda x: x.amax(1),
    "softmax over the ragged dimension": lambda x: x.softmax(1),
    "softmax": lambda x: x.softmax(-1),
    "norm": lambda x: F.layer_norm(x, (8,)),
    "padded": lambda x: x.to_padded_tensor(0.0),
    "entries": lambda x: [t * 2 for t in x.unbind()],
}


@pytest.mark.parametrize("name", ROWS)
def test_compiled_as_eager(name: str) -> None:
    fn = ROWS[name]
    compiled = lucerne.compile(fn, fullgraph=True)
    for _ in range(2):
        x = batch((3, 0, 2))
        found, wanted = compiled(x), fn(x)
        assert type(found) is type(wanted)
        pairs = zip(*(list(t) if name == "entries" else [t] for t in (found, wanted)), strict=True)
        for a, b in pairs:
            a, b = (t.values() if t.is_nested else t for t in (a, b))
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert compiled.entries[0].calls == 2


def test_two_ragged_arguments_share_their_offsets() -> None:
    compiled = lucerne.compile(lambda a, b: a + b, fullgraph=True)
    x = batch((3, 2))
    for y in (x * 2, x * 3):
        assert lucerne.equal(compiled(x, y).values(), (x + y).values())
    assert len(compiled.entries) == 1
    with pytest.raises(RuntimeError, match="same offsets"):
        compiled(x, batch((3, 2)))


def test_plain_and_nested_are_told_apart() -> None:
    compiled = lucerne.compile(lambda x: x * 2)
    dense = lucerne.ones(5, 8)
    for _ in range(2):
        assert type(compiled(dense)) is lucerne.Tensor
        assert compiled(batch((3, 2))).is_nested


# ---- masks --------------------------------------------------------------------------------------

MASKS = {
    "rows and columns": lambda n: lucerne.rand(n, n) > 0.4,
    "added": lambda n: lucerne.randn(n, n),
    "heads": lambda n: lucerne.randn(2, n, n),
    "batch": lambda n: lucerne.randn(3, 1, n, n),
    "batch and heads": lambda n: lucerne.randn(3, 2, n, n),
}


@pytest.mark.parametrize("layout", ["jagged", "strided"])
@pytest.mark.parametrize("name", MASKS)
def test_masks_as_a_loop_over_entries(name: str, layout: str) -> None:
    lucerne.manual_seed(0)
    lengths = (3, 4, 3)
    mask = MASKS[name](4)
    if mask.dtype is lucerne.bool:
        mask = mask | lucerne.eye(4, dtype=lucerne.bool)
    parts = [[lucerne.randn(n, 2, 4, requires_grad=True) for n in lengths] for _ in range(3)]
    made = [
        lucerne.nested.as_nested_tensor(p, layout=getattr(lucerne, layout)).transpose(1, 2)
        for p in parts
    ]
    found = F.scaled_dot_product_attention(*made, attn_mask=mask).unbind()
    sum(t.square().sum() for t in found).backward()
    grads = [t.grad.clone() for p in parts for t in p]
    for p in parts:
        for t in p:
            t.grad = None
    for i, n in enumerate(lengths):
        own = mask[i : i + 1] if mask.ndim == 4 else mask
        q, k, v = (p[i].transpose(0, 1).unsqueeze(0) for p in parts)
        wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=own[..., :n, :n])
        wanted.square().sum().backward()
        np.testing.assert_allclose(
            found[i].detach().numpy(), wanted[0].detach().numpy(), rtol=1e-4, atol=1e-5
        )
    for a, t in zip(grads, (t for p in parts for t in p), strict=True):
        np.testing.assert_allclose(a.numpy(), t.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_a_mask_that_is_too_small_says_so() -> None:
    x = batch((3, 2)).unflatten(-1, (2, 4)).transpose(1, 2)
    with pytest.raises(RuntimeError, match=r"does not cover an entry with 3 queries"):
        F.scaled_dot_product_attention(x, x, x, attn_mask=lucerne.ones(2, 2))


# ---- files --------------------------------------------------------------------------------------


def entries() -> list[Any]:
    return [lucerne.arange(6.0).reshape(3, 2), lucerne.ones(1, 2)]


@pytest.mark.parametrize("layout", ["jagged", "strided"])
@pytest.mark.parametrize("grad", [False, True])
def test_saved_and_loaded(layout: str, grad: bool) -> None:
    x = lucerne.nested.nested_tensor(
        entries(), layout=getattr(lucerne, layout), requires_grad=grad and layout == "jagged"
    )
    file = io.BytesIO()
    lucerne.save({"x": x, "again": [x]}, file)
    file.seek(0)
    found = lucerne.load(file)
    assert found["x"] is found["again"][0]
    assert type(found["x"]) is type(x)
    assert found["x"].requires_grad == x.requires_grad
    same(found["x"], entries())


def test_a_narrowed_one_is_saved_with_its_lengths() -> None:
    wide = lucerne.arange(12.0).reshape(3, 4)
    x = lucerne.nested.narrow(wide, 1, 0, lucerne.tensor([2, 4, 1]), layout=lucerne.jagged)
    file = io.BytesIO()
    lucerne.save(x, file)
    file.seek(0)
    assert [t.tolist() for t in lucerne.load(file).unbind()] == [t.tolist() for t in x.unbind()]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "layout", [pytest.param("jagged", marks=pytest.mark.nightly), "strided"]
)  # (to load a jagged one, torch imports its compiler: some seconds)
def test_files_go_both_ways(layout: str) -> None:
    torch = pytest.importorskip("torch")
    ours = lucerne.nested.nested_tensor(entries(), layout=getattr(lucerne, layout))
    file = io.BytesIO()
    lucerne.save(ours, file)
    file.seek(0)
    found = torch.load(file, weights_only=True)
    assert [t.tolist() for t in found.unbind()] == [t.tolist() for t in ours.unbind()]
    theirs = torch.nested.nested_tensor(
        [torch.tensor(t.tolist()) for t in entries()], layout=getattr(torch, layout)
    )
    file = io.BytesIO()
    torch.save({"x": theirs}, file)
    file.seek(0)
    same(lucerne.load(file)["x"], entries())


DAMAGED = {
    "offsets past the end": {"offsets": lucerne.tensor([0, 3, 9])},
    "offsets that fall": {"offsets": lucerne.tensor([0, 4, 3])},
    "negative": {"offsets": lucerne.tensor([-1, 3, 4])},
    "no integers": {"offsets": lucerne.tensor([0.0, 3.0, 4.0])},
    "too many dimensions": {"offsets": lucerne.tensor([[0, 3, 4]])},
    "other lengths": {"lengths": lucerne.tensor([9, 1])},
    "no values": {"values": None},
    "no such dimension": {"_ragged_idx": 7},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = lucerne._src.io.nested.jagged_parts
    monkeypatch.setattr(lucerne._src.io.nested, "jagged_parts", lambda t: parts(t) | DAMAGED[name])
    file = io.BytesIO()
    lucerne.save(lucerne.nested.nested_tensor(entries(), layout=lucerne.jagged), file)
    file.seek(0)
    with pytest.raises(CorruptFileError, match="nested tensor is damaged"):
        lucerne.load(file)


def test_a_damaged_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flat, sizes, strides, starts = lucerne._src.io.nested.listed_parts(
        lucerne.nested.nested_tensor(entries())
    )
    for wrong in ((flat[:4], sizes, strides, starts), (flat, sizes, strides, starts + 3),
                  (flat, sizes * 2, strides, starts), (flat, -sizes, strides, starts)):  # fmt: skip
        with pytest.raises(CorruptFileError, match="outside"):
            lucerne._src.io.nested.listed(wrong)


# ---- loaders ------------------------------------------------------------------------------------


class Sentences(lucerne.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, k: int) -> Any:
        return lucerne.full((k + 1, 2), float(k))


def ragged(found: list[Any]) -> Any:
    return lucerne.nested.nested_tensor(found, layout=lucerne.jagged)


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_a_loader(workers: int) -> None:
    loader = lucerne.utils.data.DataLoader(
        Sentences(), batch_size=2, collate_fn=ragged, num_workers=workers
    )
    found = list(loader)
    assert [b.offsets().tolist() for b in found] == [[0, 1, 3], [0, 3, 7]]
    same(found[1], [Sentences()[2], Sentences()[3]])


def test_the_default_collation_of_nested_tensors_says_what_to_do() -> None:
    x = ragged([lucerne.ones(2), lucerne.ones(3)])
    with pytest.raises(RuntimeError, match="provide a custom collate_fn"):
        lucerne.utils.data.default_collate([x, x])
