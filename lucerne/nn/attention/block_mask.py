"""Masks of attention stored by blocks: which blocks of queries see which blocks of keys.

A block is empty (nothing is visible), full (everything is) or partial (`mask_mod` decides for each
pair). For each row of blocks, `kv_num_blocks` counts the partial ones and `kv_indices` lists their
columns first; `full_kv_...` does so for full ones, and `q_...` hold the same by columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lucerne._src.tensor import api as lu

MaskMod = Callable[[lu.Tensor, lu.Tensor, lu.Tensor, lu.Tensor], lu.Tensor]
ScoreMod = Callable[[lu.Tensor, lu.Tensor, lu.Tensor, lu.Tensor, lu.Tensor], lu.Tensor]

DEFAULT_BLOCK_SIZE = 128

_TENSORS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
    "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices",
    "dq_write_order", "dq_write_order_full", "dq_kv_order",
)  # fmt: skip


def noop_mask(
    batch: lu.Tensor, head: lu.Tensor, token_q: lu.Tensor, token_kv: lu.Tensor
) -> lu.Tensor:
    """A mask_mod that hides nothing."""
    every: lu.Tensor = batch.new_ones((), dtype=lu.bool)
    return every


def indices(shape: tuple[int, int, int, int], device: Any) -> list[lu.Tensor]:
    """Batch, head, query and key index, each along its own dimension of four."""
    found = []
    for d, n in enumerate(shape):
        view = [1, 1, 1, 1]
        view[d] = n
        found.append(lu.arange(n, dtype=lu.int32, device=device).view(view))
    return found


def spread(found: Any, shape: tuple[int, ...], what: str) -> lu.Tensor:
    """What a mod returned, as a tensor of the whole shape."""
    if not isinstance(found, lu.Tensor):
        raise TypeError(f"{what} must return a tensor, but it returned a {type(found).__name__}")
    whole: lu.Tensor = found.expand(shape)
    return whole


def _positional(mod: Any) -> int:
    """How many arguments a mod takes."""
    if not callable(mod):
        raise TypeError(f"{mod!r} is not a callable object")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(mod).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return 4
    return sum(p.default is inspect.Parameter.empty and p.kind in kinds for p in parameters)


def create_mask(
    mod_fn: ScoreMod | MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> lu.Tensor:
    """The bool mask (B, H, Q_LEN, KV_LEN) that a mask_mod or score_mod describes.

    >>> from lucerne.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, kv: q >= kv, 1, 1, 2, 3)
    tensor([[[[ True, False, False],
              [ True,  True, False]]]])
    """
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    count = _positional(mod_fn)
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    at: list[Any] = indices(shape, device)
    mod: Any = mod_fn
    if count == 4:
        return spread(mod(*at), shape, "mask_mod").to(lu.bool).contiguous()
    scores = spread(mod(lu.zeros(shape, device=device), *at), shape, "score_mod")
    shown: lu.Tensor = ~scores.isneginf()
    return shown


def _ordered(dense: lu.Tensor) -> tuple[lu.Tensor, lu.Tensor]:
    """Counts and indices of a dense bool map of blocks, by rows."""
    dense = dense.to(lu.int32)
    order = dense.argsort(dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(lu.int32), order.to(lu.int32)


def _dense(count: lu.Tensor, order: lu.Tensor, columns: int) -> lu.Tensor:
    """The dense bool map that counts and indices describe."""
    listed = lu.arange(order.shape[-1], device=order.device) < count.unsqueeze(-1)
    seen = lu.zeros((*order.shape[:-1], columns + 1), dtype=lu.int32, device=order.device)
    # What lies beyond the count goes to a column that is cut off.
    places = lu.where(listed, order.to(lu.int64), columns)
    found: lu.Tensor = seen.scatter(-1, places, 1)[..., :columns].to(lu.bool)
    return found


def _block_pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


class BlockMask:
    """A mask of attention by blocks; make it with `create_block_mask`.

    Indexing picks batches, heads and rows of blocks: `mask[0, 1]`.
    """

    seq_lengths: tuple[int, int]
    kv_num_blocks: lu.Tensor
    kv_indices: lu.Tensor
    full_kv_num_blocks: lu.Tensor | None
    full_kv_indices: lu.Tensor | None
    q_num_blocks: lu.Tensor | None
    q_indices: lu.Tensor | None
    full_q_num_blocks: lu.Tensor | None
    full_q_indices: lu.Tensor | None
    dq_write_order: lu.Tensor | None
    dq_write_order_full: lu.Tensor | None
    dq_kv_order: lu.Tensor | None
    dq_kv_order_spt: bool | None
    BLOCK_SIZE: tuple[int, int]
    mask_mod: MaskMod

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: lu.Tensor,
        kv_indices: lu.Tensor,
        full_kv_num_blocks: lu.Tensor | None,
        full_kv_indices: lu.Tensor | None,
        q_num_blocks: lu.Tensor | None,
        q_indices: lu.Tensor | None,
        full_q_num_blocks: lu.Tensor | None,
        full_q_indices: lu.Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (DEFAULT_BLOCK_SIZE, DEFAULT_BLOCK_SIZE),
        mask_mod: MaskMod = noop_mask,
        *,
        dq_write_order: lu.Tensor | None = None,
        dq_write_order_full: lu.Tensor | None = None,
        dq_kv_order: lu.Tensor | None = None,
        dq_kv_order_spt: bool | None = None,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        _check_pairs(locals())
        self.seq_lengths = (seq_lengths[0], seq_lengths[1])
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.dq_write_order, self.dq_write_order_full = dq_write_order, dq_write_order_full
        self.dq_kv_order, self.dq_kv_order_spt = dq_kv_order, dq_kv_order_spt
        self.BLOCK_SIZE, self.mask_mod = BLOCK_SIZE, mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: lu.Tensor,
        kv_indices: lu.Tensor,
        full_kv_num_blocks: lu.Tensor | None = None,
        full_kv_indices: lu.Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """From the rows alone; what belongs to columns is derived."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        _check_pairs(locals())
        pair = _block_pair(BLOCK_SIZE)
        rows, columns = kv_indices.shape[-2:]
        lengths = seq_lengths or (rows * pair[0], columns * pair[1])
        partial: Any = (None, None)
        full: Any = (None, None)
        if compute_q_blocks:
            partial = _ordered(_dense(kv_num_blocks, kv_indices, columns).mT)
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                full = _ordered(_dense(full_kv_num_blocks, full_kv_indices, columns).mT)
        return cls(
            lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
            partial[0], partial[1], full[0], full[1], pair, mask_mod or noop_mask,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, heads, queries, keys)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many pairs of query and key there are."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    def sparsity(self) -> float:
        """Percentage of the pairs that lie in empty blocks."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def partial_blocks(self) -> lu.Tensor:
        """True where `mask_mod` decides inside the block."""
        return _dense(self.kv_num_blocks, self.kv_indices, self.kv_indices.shape[-1])

    def full_blocks(self) -> lu.Tensor | None:
        """True where the whole block is visible; None if full blocks are not set apart."""
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return None
        return _dense(self.full_kv_num_blocks, self.full_kv_indices, self.kv_indices.shape[-1])

    def to_dense(self) -> lu.Tensor:
        """1 for each block that is not empty."""
        full = self.full_blocks()
        partial = self.partial_blocks()
        found: lu.Tensor = (partial if full is None else partial | full).to(lu.int32)
        return found

    def visible(self, device: Any = None) -> lu.Tensor:
        """The bool mask for each pair of query and key."""
        batch, heads = self.kv_indices.shape[:2]
        mask = create_mask(self.mask_mod, batch, heads, *self.seq_lengths, device)
        mask = mask & self._by_pair(self.partial_blocks())
        full = self.full_blocks()
        return mask if full is None else mask | self._by_pair(full)

    def _by_pair(self, blocks: lu.Tensor) -> lu.Tensor:
        wide = blocks.repeat_interleave(self.BLOCK_SIZE[0], -2)
        wide = wide.repeat_interleave(self.BLOCK_SIZE[1], -1)
        cut: lu.Tensor = wide[..., : self.seq_lengths[0], : self.seq_lengths[1]]
        return cut

    def __getitem__(self, index: Any) -> BlockMask:
        at = index if isinstance(index, tuple) else (index,)
        # A number picks, but keeps its dimension: a mask has four.
        at = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in at)
        full = self.full_kv_num_blocks, self.full_kv_indices
        return type(self).from_kv_blocks(
            self.kv_num_blocks[at],
            self.kv_indices[at],
            None if full[0] is None else full[0][at],
            None if full[1] is None else full[1][at],
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=self.mask_mod,
            seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Cropped to the upper left corner: right only if `mask_mod` does not care."""
        rows, columns = (
            -(-n // b) for n, b in zip((new_q_len, new_kv_len), self.BLOCK_SIZE, strict=True)
        )
        full = self.full_blocks()
        kept: Any = (None, None) if full is None else _ordered(full[..., :rows, :columns])
        count, order = _ordered(self.partial_blocks()[..., :rows, :columns])
        lengths = new_q_len, new_kv_len
        return type(self).from_kv_blocks(
            count, order, kept[0], kept[1], self.BLOCK_SIZE, self.mask_mod, lengths
        )

    def to(self, device: Any) -> BlockMask:
        """On another device; what `mask_mod` holds stays where it is."""
        moved: dict[str, Any]
        moved = {n: None if t is None else t.to(device) for n, t in self._tensors()}
        return type(self)(
            self.seq_lengths,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=self.mask_mod,
            dq_kv_order_spt=self.dq_kv_order_spt,
            **moved,
        )

    def _tensors(self) -> list[tuple[str, Any]]:
        return [(n, getattr(self, n)) for n in _TENSORS]

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """All fields; with `flatten`, pairs of numbers one by one."""
        tensors = [t for _, t in self._tensors()]
        lengths = self.seq_lengths if flatten else (self.seq_lengths,)
        sizes = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        return (*lengths, *tensors, self.dq_kv_order_spt, *sizes, self.mask_mod)

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture for each batch and head; grid_size -1 shows every block."""
        dense = self.to_dense()
        dense = dense.reshape(-1, *dense.shape[-2:]) if dense.ndim > 2 else dense.unsqueeze(0)
        heads = self.kv_indices.shape[-3] if self.kv_indices.ndim > 2 else 1
        shown = []
        for i, blocks in enumerate(dense[:limit]):
            shown.append(f"({i // heads}, {i % heads})\n" + _picture(blocks.tolist(), grid_size))
        text = "\n".join(shown)
        if dense.shape[0] > limit:
            text += (
                "\n...\nTo print out more, set BlockMask.to_string(limit=N)\n"
                "You can also index (BlockMask[batch, head]) to choose a specific batch or head\n"
            )
        return text

    def __str__(self) -> str:
        return (
            f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n"
            f"{self.to_string().strip()}\n)"
        )

    def __repr__(self) -> str:
        lines = [
            f"    {n}={None if t is None else t.shape},"
            for n, t in self._tensors()
            if not n.startswith("dq_")
        ]
        name = getattr(self.mask_mod, "__name__", str(self.mask_mod))
        lines += [
            f"    BLOCK_SIZE={self.BLOCK_SIZE},",
            f"    shape={self.shape},",
            f"    sparsity={self.sparsity():.2f}%,",
            f"    mask_mod={name}",
        ]
        return "BlockMask(\n" + "\n".join(lines) + "\n)"


def _check_pairs(given: dict[str, Any]) -> None:
    for kind in ("full_kv", "q", "full_q"):
        count, order = f"{kind}_num_blocks", f"{kind}_indices"
        if (given.get(count) is None) != (given.get(order) is None):
            raise AssertionError(f"{count} and {order} must be both provided or omitted")


def _picture(blocks: list[list[int]], grid_size: int | tuple[int, int]) -> str:
    """Two characters a cell: filled, half filled or empty."""
    rows, columns = len(blocks), len(blocks[0]) if blocks else 0
    grid = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
    steps = [
        max(1, -(-n // (n if g == -1 else g))) for n, g in zip((rows, columns), grid, strict=True)
    ]
    lines = []
    for r in range(0, rows, steps[0]):
        line = ""
        for c in range(0, columns, steps[1]):
            cell = [b for row in blocks[r : r + steps[0]] for b in row[c : c + steps[1]]]
            line += "██" if all(cell) else "░░" if any(cell) else "  "
        lines.append(line + "\n")
    return "".join(lines)


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """The block mask of a `mask_mod(batch, head, query, key)` that says which pairs are visible.

    `B` or `H` may be None (or 1) when the mask is the same for all.

    >>> from lucerne.nn.attention.flex_attention import create_block_mask
    >>> print(create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 6, 6, BLOCK_SIZE=2))
    BlockMask(shape=(1, 1, 6, 6), sparsity=33.33%,
    (0, 0)
    ██
    ████
    ██████
    )
    """
    if compute_dq_write_order or not dq_kv_order:
        raise NotImplementedError(
            "create_block_mask: compute_dq_write_order orders writes of a CUDA kernel; there is "
            "none here. Leave it False."
        )
    if _positional(mask_mod) != 4:
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    size = _block_pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
    padding = (0, columns * size[1] - KV_LEN, 0, rows * size[0] - Q_LEN)
    mask = lu.constant_pad_nd(mask, padding, False)
    cells = mask.unflatten(-2, (rows, size[0])).unflatten(-1, (columns, size[1]))
    count = cells.sum((-3, -1))
    full = count == size[0] * size[1]
    apart: Any = _ordered(full) if separate_full_blocks else (None, None)
    partial = (count > 0) & ~full if separate_full_blocks else count > 0
    some, order = _ordered(partial)
    lengths = Q_LEN, KV_LEN
    return BlockMask.from_kv_blocks(some, order, apart[0], apart[1], size, mask_mod, lengths)


def create_nested_block_mask(*args: Any, **kwargs: Any) -> BlockMask:
    """Refused: there are no nested tensors here."""
    raise NotImplementedError(
        "create_nested_block_mask needs nested tensors, which Lucerne does not have. Put the "
        "sequences one after the other in one tensor and give create_block_mask a mask_mod that "
        "compares their numbers: lambda b, h, q, kv: sequence[q] == sequence[kv]."
    )


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask_mod that is True where all of these are."""
    _check_mods(mask_mods)

    def both(b: lu.Tensor, h: lu.Tensor, q_idx: lu.Tensor, kv_idx: lu.Tensor) -> lu.Tensor:
        result = b.new_ones((), dtype=lu.bool)
        for mod in mask_mods:
            result = result & mod(b, h, q_idx, kv_idx)
        return result

    return both


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask_mod that is True where one of these is."""
    _check_mods(mask_mods)

    def either(b: lu.Tensor, h: lu.Tensor, q_idx: lu.Tensor, kv_idx: lu.Tensor) -> lu.Tensor:
        result = b.new_zeros((), dtype=lu.bool)
        for mod in mask_mods:
            result = result | mod(b, h, q_idx, kv_idx)
        return result

    return either


def _check_mods(mods: tuple[Any, ...]) -> None:
    if not all(callable(m) for m in mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mods}")
