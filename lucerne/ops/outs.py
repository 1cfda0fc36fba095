"""What `out=` must be where torch is strict about it."""

from __future__ import annotations

from typing import Any

from lucerne.base import dtype as dt

_C_NAMES = {
    dt.float32: "float", dt.float64: "double", dt.float16: "c10::Half", dt.bfloat16: "c10::BFloat16",
    dt.int64: "long int", dt.int32: "int", dt.int16: "short int", dt.int8: "signed char",
    dt.uint8: "unsigned char", dt.bool_: "bool", dt.complex64: "c10::complex<float>",
    dt.complex128: "c10::complex<double>", dt.complex32: "c10::complex<c10::Half>",
}  # fmt: skip


def require_dtypes(out: Any, *dtypes: dt.dtype) -> None:
    """Refuse `out=` tensors (one, or one per result) of another dtype than the results have."""
    if out is None:
        return
    outs = out if isinstance(out, (tuple, list)) else (out,)
    for o, wanted in zip(outs, dtypes, strict=False):
        if o.dtype is not wanted:
            raise RuntimeError(
                f"Expected out tensor to have dtype {_C_NAMES.get(wanted, wanted.name)}, but got "
                f"{_C_NAMES.get(o.dtype, o.dtype.name)} instead"
            )
