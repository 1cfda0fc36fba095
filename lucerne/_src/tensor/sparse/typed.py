"""The old typed names of tensors by coordinates: `sparse.FloatTensor` and its kin."""

from __future__ import annotations

from typing import Any

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.shape import Size
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop.legacy_attributes import TYPE_NAMES
from lucerne._src.tensor.sparse.create import sparse_coo_tensor
from lucerne._src.tensor.sparse.kinds import SparseTensor

_FORMS = "(indices, values), (indices, values, size) or sizes"


class sparse_tensortype(type):
    """Type of the typed constructors: calls make sparse tensors, isinstance asks the dtype."""

    _legacy_dtype: dt.dtype

    def __call__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if kwargs:
            args = (*args, *(kwargs.pop(n) for n in ("indices", "values", "size") if n in kwargs))
            if kwargs:
                raise TypeError(f"sparse.{cls.__name__}: unexpected keyword {next(iter(kwargs))!r}")
        if args and isinstance(args[0], TensorBase):
            if not (len(args) in (2, 3) and isinstance(args[1], TensorBase)):
                kinds = ", ".join(type(a).__name__ for a in args)
                raise TypeError(f"sparse.{cls.__name__}: got ({kinds}), expected {_FORMS}")
            return sparse_coo_tensor(*args, device=device)
        if len(args) == 1 and not isinstance(args[0], (int, Size)):
            raise TypeError(
                f"sparse.{cls.__name__}: got ({type(args[0]).__name__}), expected {_FORMS}"
            )
        sizes = args[0] if len(args) == 1 and isinstance(args[0], Size) else args or (0,)
        return sparse_coo_tensor(sizes, dtype=cls._legacy_dtype, device=device)

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, SparseTensor)
            and instance.layout is lo.sparse_coo
            and instance.dtype is cls._legacy_dtype
            and instance.device.type == backends.HOST
        )

    def __repr__(cls) -> str:
        return f"<class 'torch.sparse.{cls.__name__}'>"

    @property
    def dtype(cls) -> dt.dtype:
        return cls._legacy_dtype

    @property
    def layout(cls) -> lo.layout:
        return lo.sparse_coo

    @property
    def is_sparse(cls) -> bool:
        return True

    @property
    def is_cuda(cls) -> bool:
        return False


def _sparse_type(name: str, dtype: dt.dtype) -> sparse_tensortype:
    members = {"_legacy_dtype": dtype, "__module__": "lucerne.sparse"}
    made = sparse_tensortype(f"{name}Tensor", (), members)
    made.__doc__ = f"Legacy constructor of sparse {dtype} tensors: indices and values, or sizes."
    return made


_MADE = {
    name: _sparse_type(name, dtype)
    for dtype, name in TYPE_NAMES.items()
    if dtype.category != dt.COMPLEX and dtype is not dt.bool_
}
BFloat16Tensor, ByteTensor, CharTensor = _MADE["BFloat16"], _MADE["Byte"], _MADE["Char"]
DoubleTensor, FloatTensor, HalfTensor = _MADE["Double"], _MADE["Float"], _MADE["Half"]
IntTensor, LongTensor, ShortTensor = _MADE["Int"], _MADE["Long"], _MADE["Short"]
