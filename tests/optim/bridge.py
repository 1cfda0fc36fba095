"""Tensors and optimizers in both frameworks, side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import lucerne as lu


def to_lucerne(x: Any) -> Any:
    """A torch value as lucerne's: tensors copied, containers walked."""
    if isinstance(x, torch.Tensor):
        if x.layout is not torch.strided:
            x = x.coalesce()
            parts = to_lucerne(x.indices()), to_lucerne(x.values())
            return lu.sparse_coo_tensor(*parts, tuple(x.shape)).requires_grad_(x.requires_grad)
        made = lu.tensor(_array(x), dtype=getattr(lu, str(x.dtype).removeprefix("torch.")))
        return made.requires_grad_(x.requires_grad)
    if isinstance(x, torch.dtype):
        return getattr(lu, str(x).removeprefix("torch."))
    if isinstance(x, dict):
        return {k: to_lucerne(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(to_lucerne(v) for v in x)
    return x


def to_torch(x: Any) -> Any:
    """A lucerne value as torch's."""
    if isinstance(x, lu.Tensor):
        kind = getattr(torch, str(x.dtype).removeprefix("torch."))
        return torch.tensor(_array(x), dtype=kind)
    if isinstance(x, dict):
        return {k: to_torch(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(to_torch(v) for v in x)
    return x


def _array(x: Any) -> Any:
    """The values as a NumPy array, 16-bit floats widened."""
    x = x.detach()
    return (x.float() if str(x.dtype) in ("torch.bfloat16", "torch.float16") else x).numpy()


def assert_close(
    mine: Any, theirs: Any, rtol: float = 1e-5, atol: float = 1e-5, at: str = ""
) -> None:
    """Values, dtypes, shapes and structure of a lucerne and a torch value."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(mine, lu.Tensor), f"{at}: {type(mine)}"
        assert str(mine.dtype) == str(theirs.dtype), f"{at}: {mine.dtype} is not {theirs.dtype}"
        assert tuple(mine.shape) == tuple(theirs.shape), f"{at}: {mine.shape}"
        a, b = _array(mine), _array(theirs)
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=at)
    elif isinstance(theirs, dict):
        assert list(mine) == list(theirs), f"{at}: {list(mine)} is not {list(theirs)}"
        for key in theirs:
            assert_close(mine[key], theirs[key], rtol, atol, f"{at}.{key}")
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs), at
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert_close(a, b, rtol, atol, f"{at}[{i}]")
    elif isinstance(theirs, float):
        assert type(mine) is float, f"{at}: {mine!r}"
        np.testing.assert_allclose(mine, theirs, rtol, atol, err_msg=at)
    else:
        assert mine == theirs, f"{at}: {mine!r} is not {theirs!r}"
