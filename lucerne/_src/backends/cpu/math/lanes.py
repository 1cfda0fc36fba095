"""Lanes of numbers: from memory, to memory, from Python numbers given at run time."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import I32, I64, PTR, VOID, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.number import NotTaken, Num, cast, constant
from lucerne._src.backends.cpu.math.storage import STORED, deinterleave, interleave, pack, unpack
from lucerne._src.base import dtype as dt


class Lanes:
    """Vectors of `lanes` lanes (1: scalars) inside the function `f` that is being written."""

    def __init__(self, f: LLVMFunction, lanes: int = 1) -> None:
        self.f, self.lanes = f, lanes
        self.failed: LLVMValue | None = None
        """An i1 once an instruction may have failed: whether it did, in a lane that counts."""
        self.active: LLVMValue | None = None
        """The mask of lanes that count, where some don't (set it before the body runs)."""

    def to(self, x: Any, dtype: dt.dtype) -> Num:
        """A value or Python number as a compute dtype."""
        if isinstance(x, Num):
            return cast(self.f, x, dtype)
        return constant(self.f, x, dtype, self.lanes)

    # ---- memory --------------------------------------------------------------------------------

    def load(self, dtype: dt.dtype, pointer: LLVMValue, mask: LLVMValue | None = None) -> Num:
        """Consecutive elements of a stored dtype, in its compute form. Lanes off read as zero."""
        element = _stored(dtype)
        if dtype.category != dt.COMPLEX:
            type = element.vector(self.lanes)
            if mask is None:
                return self.from_storage(dtype, self.f.load(type, pointer))
            return self.from_storage(dtype, self.f.masked_load(type, pointer, mask))
        type = element.vector(2 * self.lanes)
        if mask is None:
            return self.from_storage(dtype, self.f.load(type, pointer))
        return self.from_storage(dtype, self.f.masked_load(type, pointer, self._twice(mask)))

    def store(
        self,
        x: Any,
        dtype: dt.dtype,
        pointer: LLVMValue,
        mask: LLVMValue | None = None,
        *,
        stream: bool = False,
    ) -> None:
        """Write lanes as a stored dtype, converting from whatever dtype they have."""
        v = self.to_storage(dtype, x)
        if mask is None:
            align = v.type.nbytes if stream else None
            self.f.store(v, pointer, align, stream=stream)
        else:
            self.f.masked_store(v, pointer, self._twice(mask) if _is_complex(dtype) else mask)

    def load_strided(
        self, dtype: dt.dtype, pointer: LLVMValue, stride: Any, mask: LLVMValue | None = None
    ) -> Num:
        """Elements `stride` bytes apart. With a mask, lanes that are off read nothing."""
        f = self.f
        if self.lanes == 1:
            return self.load(dtype, pointer)
        element = _stored(dtype)
        parts = 2 if _is_complex(dtype) else 1
        found = []
        for part in range(parts):
            start = f.at(pointer, part * element.size)
            if mask is not None:
                found.append(self._gather(element, start, stride, mask))
                continue
            v = f.undefined(element.vector(self.lanes))
            for k in range(self.lanes):
                place = f.at(start, f.constant(stride) * k)
                v = f.insert(v, f.load(element, place), k)
            found.append(v)
        made = [unpack(f, dtype, v) for v in found]
        return Num(dtype.compute, *made)

    def store_strided(
        self,
        x: Any,
        dtype: dt.dtype,
        pointer: LLVMValue,
        stride: Any,
        mask: LLVMValue | None = None,
    ) -> None:
        """Write elements `stride` bytes apart."""
        f = self.f
        if self.lanes == 1:
            self.store(x, dtype, pointer)
            return
        num = self.to(x, dtype.compute)
        for part, v in enumerate(p for p in (num.re, num.im) if p is not None):
            packed = pack(f, dtype, v)
            start = f.at(pointer, part * packed.type.size)
            if mask is not None:
                self._scatter(packed, start, stride, mask)
                continue
            for k in range(self.lanes):
                f.store(f.extract(packed, k), f.at(start, f.constant(stride) * k))

    def load_splat(self, dtype: dt.dtype, pointer: LLVMValue) -> Num:
        """One element in every lane."""
        one = Lanes(self.f, 1).load(dtype, pointer)
        return self.splat(one)

    def splat(self, x: Num) -> Num:
        """A scalar number in every lane."""
        im = None if x.im is None else self.f.splat(x.im, self.lanes)
        return Num(x.dtype, self.f.splat(x.re, self.lanes), im, weak=x.weak, uniform=True)

    def from_storage(self, dtype: dt.dtype, v: LLVMValue) -> Num:
        """Stored lanes (complex: interleaved) in the compute form."""
        if not _is_complex(dtype):
            return Num(dtype.compute, unpack(self.f, dtype, v))
        re, im = deinterleave(self.f, v)
        return Num(dtype.compute, unpack(self.f, dtype, re), unpack(self.f, dtype, im))

    def to_storage(self, dtype: dt.dtype, x: Any) -> LLVMValue:
        """Lanes as they are stored, rounded to `dtype`."""
        _stored(dtype)
        num = self.to(x, dtype.compute)
        re = pack(self.f, dtype, num.re)
        return re if num.im is None else interleave(self.f, re, pack(self.f, dtype, num.im))

    def _twice(self, mask: LLVMValue) -> LLVMValue:
        """A mask of complex elements as one of their parts."""
        if self.lanes == 1:
            return self.f.splat(mask, 2)
        return self.f.shuffle(mask, None, [k // 2 for k in range(2 * self.lanes)])

    def _places(self, pointer: LLVMValue, stride: Any) -> LLVMValue:
        f = self.f
        wide = I64.vector(self.lanes)
        offsets = f.lanes(wide) * f.splat(f.constant(stride), self.lanes)
        return f.value(
            PTR.vector(self.lanes),
            f"getelementptr i8, ptr {pointer.text}, {offsets.type.text} {offsets.text}",
        )

    def _gather(self, element: Any, pointer: LLVMValue, stride: Any, mask: LLVMValue) -> LLVMValue:
        type = element.vector(self.lanes)
        args = [self._places(pointer, stride), self.f.constant(element.size, I32), mask]
        name = f"llvm.masked.gather.{type.suffix}.v{self.lanes}p0"
        return self.f.call(name, type, [*args, self.f.zero(type)])

    def _scatter(self, v: LLVMValue, pointer: LLVMValue, stride: Any, mask: LLVMValue) -> None:
        places = self._places(pointer, stride)
        name = f"llvm.masked.scatter.{v.type.suffix}.v{self.lanes}p0"
        self.f.call(name, VOID, [v, places, self.f.constant(v.type.size, I32), mask])

    # ---- numbers given at run time ---------------------------------------------------------------

    def number(self, letter: str, words: Any, dtype: dt.dtype) -> Num:
        """A Python number from the block ("i": an i64, "f": a double, "c": two doubles), brought
        to the compute form of `dtype`, in every lane."""
        one = Lanes(self.f, 1)
        return self.splat(one.to(_python_number(letter, words), dtype.compute))

    def weak_number(self, letter: str, words: Any) -> Num:
        """A Python number from the block that promotes as Python numbers do."""
        num = _python_number(letter, words)
        num.weak = True
        return self.splat(num)

    def rounded(self, x: Num, dtype: dt.dtype) -> Num:
        """A value as the stored `dtype` would hold it, still in the compute form."""
        num = self.to(x, dtype.compute)
        parts = [
            unpack(self.f, dtype, pack(self.f, dtype, v)) for v in (num.re, num.im) if v is not None
        ]
        return Num(dtype.compute, *parts, uniform=x.uniform)


def _is_complex(dtype: dt.dtype) -> bool:
    return dtype.category == dt.COMPLEX


def _stored(dtype: dt.dtype) -> Any:
    if dtype not in STORED:
        raise NotTaken(f"the CPU engine does not compute with {dtype}")
    return STORED[dtype]


def _python_number(letter: str, words: Any) -> Num:
    words = words if isinstance(words, (tuple, list)) else (words,)
    if letter == "i":
        return Num(dt.int64, words[0])
    return Num(dt.float64, words[0]) if letter == "f" else Num(dt.complex128, words[0], words[1])
