"""How codes of a quantized tensor become numbers: named constants, compared by identity."""

from __future__ import annotations

from lucerne._src.base.named import Named


class qscheme(Named):
    """A scheme: one scale for all elements, or one for each place of a dimension."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return scheme_by_name, (self.name,)


per_tensor_affine = qscheme("per_tensor_affine")
per_channel_affine = qscheme("per_channel_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
SCHEMES = {
    x.name: x
    for x in (
        per_tensor_affine, per_channel_affine, per_tensor_symmetric, per_channel_symmetric,
        per_channel_affine_float_qparams,
    )
}  # fmt: skip


def scheme_by_name(name: str) -> qscheme:
    return SCHEMES[name]
