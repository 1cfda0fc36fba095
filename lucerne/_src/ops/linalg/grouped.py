"""Matrix products of many small groups, and of quantized matrices with their scales.

What a mixture of experts needs (`grouped_mm`) and what float8 training needs (`scaled_mm`).
"""

from __future__ import annotations

import enum
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.refusals import only
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.join import cat, stack


class ScalingType(enum.Enum):
    """How many elements of a quantized matrix share one scale."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.Enum):
    """In what order the scales of blocks are stored."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _check_groups(a: Tensor, b: Tensor, offs: Tensor | None) -> None:
    for name, x in (("mat_a", a), ("mat_b", b)):
        if x.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if (offs is None) != (a.ndim == 3 and b.ndim == 3):
        raise RuntimeError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if offs is not None and offs.dtype is not dt.int32:
        raise RuntimeError("Offsets have to be int32")


def _spans(offs: Tensor) -> list[slice]:
    ends = offs.tolist()
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _grouped(a: Tensor, b: Tensor, offs: Tensor | None) -> Tensor:
    """One product for each group; which dimension is cut into groups follows from the ranks."""
    if offs is None:
        return a.bmm(b)
    spans = _spans(offs)
    if a.ndim == b.ndim:  # the contracted dimension is cut: (groups, M, N)
        return stack([a[:, s] @ b[s] for s in spans])
    if a.ndim == 2:  # rows of `a`, each group with a matrix of `b`
        parts = [a[s] @ b[g] for g, s in enumerate(spans)]
        return _filled_up(parts, 0, a.shape[0])
    parts = [a[g] @ b[:, s] for g, s in enumerate(spans)]  # columns of `b`
    return _filled_up(parts, 1, b.shape[1])


def _filled_up(parts: list[Tensor], dim: int, length: int) -> Tensor:
    """The groups side by side, with zeros for what no group claimed."""
    whole = cat(parts, dim)
    missing = length - whole.shape[dim]
    if missing <= 0:
        return whole
    shape = list(whole.shape)
    shape[dim] = missing
    return cat([whole, whole.new_zeros(shape)], dim)


@front(namespace="nn.functional")
def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """A matrix product for each group of rows (a mixture of experts); `offs` holds their ends.

    >>> import lucerne as torch
    >>> rows, experts = torch.ones(3, 2), torch.stack([torch.eye(2), 2 * torch.eye(2)])
    >>> offs = torch.tensor([1, 3], dtype=torch.int32)
    >>> torch.nn.functional.grouped_mm(rows, experts, offs=offs)
    tensor([[1., 1.],
            [2., 2.],
            [2., 2.]])
    """
    _check_groups(mat_a, mat_b, offs)
    if mat_a.dtype not in (dt.float32, dt.bfloat16, dt.float16):
        raise RuntimeError(
            "Expected mat_a to be Float32, BFloat16 or Float16 matrix, got "
            f"{dt.cxx_name(mat_a.dtype)}"
        )
    if out_dtype is not None and out_dtype is not mat_a.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    return _grouped(mat_a, mat_b, offs)


# ---- matrices with scales ------------------------------------------------------------------------

_QUANTIZED = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def _only(given: Any) -> Any:
    """Scales and recipes come alone or as a list (of one: two levels are for other devices)."""
    return given[0] if isinstance(given, list | tuple) and len(given) == 1 else given


def _kind(a: Tensor, b: Tensor, scale_a: Any, scale_b: Any) -> ScalingType | None:
    """Which scaling the operands fit, if any."""
    scales = (scale_a, scale_b)
    if a.dtype.name not in _QUANTIZED or b.dtype.name not in _QUANTIZED:
        return None
    if any(getattr(s, "dtype", None) is not dt.float32 for s in scales):
        return None
    if all(s.numel() == 1 for s in scales):
        return ScalingType.TensorWise
    rows = tuple(scale_a.shape) == (a.shape[0], 1) and tuple(scale_b.shape) == (1, b.shape[1])
    return ScalingType.RowWise if rows and all(s.is_contiguous() for s in scales) else None


def _describe(name: str, mat: Tensor, scale: Tensor) -> list[str]:
    return [
        f"mat_{name}.dtype()={dt.cxx_name(mat.dtype)}",
        f"scale_{name}.dtype()={dt.cxx_name(scale.dtype)}",
        f"scale_{name}.size()={list(scale.shape)}",
        f"scale_{name}.stride()={list(scale.stride())}",
    ]


def _no_layouts(where: str, swizzle_a: Any, swizzle_b: Any, contraction_dim: Any) -> None:
    """Refuse scales that lie in a graphics card's order, and products along other dimensions."""
    for name, swizzle in (("swizzle_a", swizzle_a), ("swizzle_b", swizzle_b)):
        given = None if swizzle is None else _only(swizzle)
        if given is not None and given != SwizzleType.NO_SWIZZLE:
            raise NotImplementedError(
                f"{where}: {name}={given} is not supported: scales lie in rows here; undo the "
                "swizzle, or leave it out"
            )
    only(where, "contraction_dim", tuple(contraction_dim), (), "the inner dimensions are summed")


def _check_recipes(*recipes: Any) -> None:
    for recipe in recipes:
        if recipe not in (ScalingType.TensorWise, ScalingType.RowWise):
            raise NotImplementedError(
                f"scaled_mm: expected TensorWise or RowWise scales, got {recipe}; undo the scales "
                "and use mm for others"
            )


@front(namespace="nn.functional")
def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Tensor | None = None,
    output_dtype: Any = dt.bfloat16,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of two float8 matrices, each with one scale or one for each row (column of b)."""
    _no_layouts("scaled_mm", swizzle_a, swizzle_b, contraction_dim)
    _check_recipes(_only(scale_recipe_a), _only(scale_recipe_b))
    scale_a, scale_b = _only(scale_a), _only(scale_b)
    if _kind(mat_a, mat_b, scale_a, scale_b) is None:
        got = _describe("a", mat_a, scale_a) + _describe("b", mat_b, scale_b)
        raise ValueError(
            "Invalid scaling configuration.\n"
            "- For TensorWise scaling, a and b should be float8, scales should be float and "
            "singletons.\n"
            "- For RowWise scaling, a and b should be float8, scales should be float, scale_a "
            f"should be ({mat_a.shape[0]}, 1) and scale_b should be (1, {mat_b.shape[1]}), and "
            f"both should be contiguous.\nGot {', '.join(got[:-1])} and {got[-1]}"
        )
    product = mat_a.to(dt.float32) @ mat_b.to(dt.float32)
    product = product * scale_a * scale_b  # (M, N) * (M, 1) * (1, N), or single numbers
    if bias is not None:
        product = product + bias.to(dt.float32)
    return product.to(output_dtype or mat_a.dtype)


def _unquantized(mat: Tensor, scale: Tensor, groups: int, along: int) -> Tensor:
    """A matrix times its scales: one for each row (`along` -1) or each column (-2)."""
    values = mat.to(dt.float32)
    if mat.ndim == 3:
        scale = scale.reshape(groups, -1)
    return values * scale.unsqueeze(along)


@front(namespace="nn.functional")
def scaled_grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Tensor | None = None,
    offs: Tensor | None = None,
    output_dtype: Any = dt.bfloat16,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """`grouped_mm` of float8 matrices with a scale for each row of a and each column of b."""
    _no_layouts("scaled_grouped_mm", swizzle_a, swizzle_b, contraction_dim)
    scale_a, scale_b = _only(scale_a), _only(scale_b)
    recipes = (_only(scale_recipe_a), _only(scale_recipe_b))
    if recipes != (ScalingType.RowWise, ScalingType.RowWise):
        raise NotImplementedError(
            f"scaled_grouped_mm: expected RowWise scales for both operands, got {recipes}; "
            "undo the scales and use grouped_mm for others"
        )
    _check_groups(mat_a, mat_b, offs)
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if mat_a.ndim == 2 and mat_b.ndim == 2:  # scales differ by group, (groups * rows,)
        assert offs is not None
        n = offs.shape[0]
        a, b = mat_a.to(dt.float32), mat_b.to(dt.float32)
        product = _grouped(a, b, offs) * scale_a.reshape(n, -1, 1) * scale_b.reshape(n, 1, -1)
    else:
        n = mat_a.shape[0] if mat_a.ndim == 3 else mat_b.shape[0]
        a, b = _unquantized(mat_a, scale_a, n, -1), _unquantized(mat_b, scale_b, n, -2)
        product = _grouped(a, b, offs)
    return product.to(output_dtype or mat_a.dtype)
