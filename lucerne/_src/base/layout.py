"""Layouts and memory formats: named constants, compared by identity."""

from __future__ import annotations

from lucerne._src.base.named import Named


class layout(Named):
    """How the elements of a tensor are arranged: `lucerne.strided`, `lucerne.sparse_coo`, ..."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return layout_by_name, (self.name,)


class memory_format(Named):
    """The order of dimensions in memory: `lucerne.channels_last`, ..."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return memory_format_by_name, (self.name,)


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")
_LAYOUTS = {
    x.name: x for x in (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged)
}

contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
_FORMATS = {
    x.name: x for x in (contiguous_format, preserve_format, channels_last, channels_last_3d)
}


def layout_by_name(name: str) -> layout:
    return _LAYOUTS[name]


def memory_format_by_name(name: str) -> memory_format:
    return _FORMATS[name]
