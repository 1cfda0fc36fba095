"""What is sorted: records made of an unsigned key and the position an element came from.

Keys compare as the elements do: nan (all of them equal) above everything, the two zeros equal. When
the key has at most 32 bits a record is one word, key above position, so equal elements keep their
order however records are compared. Else it is a pair of words.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import I8, I32, I64, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.types import I16, Type
from lucerne._src.base import dtype as dt

_RAW: dict[int, Type] = {1: I8, 2: I16, 4: I32, 8: I64}
_EXPONENT = {
    dt.float16: 0x7C00,
    dt.bfloat16: 0x7F80,
    dt.float32: 0x7F800000,
    dt.float64: 0x7FF0000000000000,
}
POSITION_BITS = 32


def sortable(dtype: dt.dtype) -> bool:
    return dtype in _EXPONENT or dtype.category in (dt.INTEGER, dt.BOOL)


@dataclass(frozen=True)
class Records:
    """How elements of a dtype become records, in ascending or descending order."""

    dtype: str
    descending: bool

    @property
    def kind(self) -> dt.dtype:
        return dt.by_name(self.dtype)

    @property
    def raw(self) -> Type:
        """The integer type an element is loaded as."""
        return _RAW[self.kind.itemsize]

    @property
    def paired(self) -> bool:
        return self.raw is I64

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return 16 if self.paired else 8

    @property
    def type(self) -> Type:
        return I64.vector(2) if self.paired else I64

    @property
    def first_bit(self) -> int:
        """Where the key begins in the word that holds it."""
        return 0 if self.paired else POSITION_BITS

    @property
    def bits(self) -> int:
        return self.raw.bits

    def key(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        """Raw bits (any number of lanes) as an unsigned number that orders them."""
        dtype, width = self.kind, self.bits
        top = 1 << (width - 1)
        if dtype in _EXPONENT:
            size = v & (top - 1)
            zero = f.constant(0, v.type)
            signed = f.select(f.compare("eq", size, 0), zero, v)
            key = signed ^ ((signed >> (width - 1)) | f.constant(_signed(top, width), v.type))
            nan = f.compare("ugt", size, _EXPONENT[dtype])
            key = f.select(nan, f.constant(-1, v.type), key)
        else:
            key = v ^ f.constant(_signed(top, width), v.type) if dtype.is_signed else v
        return ~key if self.descending else key

    def record(self, f: LLVMFunction, key: LLVMValue, position: LLVMValue) -> LLVMValue:
        """One record of a scalar key."""
        if self.paired:
            pair = f.insert(f.undefined(self.type), key, 0)
            return f.insert(pair, position, 1)
        return (f.convert("zext", key, I64) << POSITION_BITS) | position

    def word(self, f: LLVMFunction, place: LLVMValue) -> LLVMValue:
        """The word of a stored record that holds its key."""
        return f.load(I64, place)

    def position(self, f: LLVMFunction, place: LLVMValue) -> LLVMValue:
        if self.paired:
            return f.load(I64, f.at(place, 8))
        return f.load(I64, place) & ((1 << POSITION_BITS) - 1)

    def place(self, f: LLVMFunction, base: LLVMValue, k: LLVMValue) -> LLVMValue:
        return f.at(base, k * self.size)

    def load(self, f: LLVMFunction, place: LLVMValue) -> LLVMValue:
        return f.load(self.type, place, 8)

    def store(self, f: LLVMFunction, v: LLVMValue, place: LLVMValue) -> None:
        f.store(v, place, 8)

    def key_word(self, f: LLVMFunction, record: LLVMValue) -> LLVMValue:
        """The word of a record in registers that is compared."""
        return f.extract(record, 0) if self.paired else record

    def encode(
        self,
        f: LLVMFunction,
        source: LLVMValue,
        step: LLVMValue,
        unit: bool,
        start: LLVMValue,
        stop: LLVMValue,
        target: LLVMValue,
    ) -> LLVMValue:
        """Elements [start, stop) of a row as records at their own numbers in `target`.

        Gives a word with the bits in which some key differs from the row's first.
        """
        size = self.raw.size
        stride = f.constant(size) if unit else step
        head = self._key_word_of(f, self.key(f, f.load(self.raw, source)))
        lanes = 8
        differing = f.constant(0)
        if unit and not self.paired:
            whole = start + ((stop - start) & -lanes)
            wide, words = self.raw.vector(lanes), I64.vector(lanes)
            same = f.splat(head, lanes)
            with f.loop(start, whole, lanes, carry=[f.zero(words)]) as loop:
                key = self.key(f, f.load(wide, f.at(source, loop.index * size)))
                high = f.convert("zext", key, I64) << POSITION_BITS
                position = f.splat(loop.index, lanes) + f.lanes(words)
                f.store(high | position, f.at(target, loop.index * 8))
                loop.next(loop.carried[0] | (high ^ same))
            differing = f.fold("or", loop.results[0])
            start = whole
        with f.loop(start, stop, carry=[differing]) as rest:
            key = self.key(f, f.load(self.raw, f.at(source, rest.index * stride)))
            self.store(f, self.record(f, key, rest.index), self.place(f, target, rest.index))
            rest.next(rest.carried[0] | (self._key_word_of(f, key) ^ head))
        return rest.results[0]

    def _key_word_of(self, f: LLVMFunction, key: LLVMValue) -> LLVMValue:
        return key if self.paired else f.convert("zext", key, I64) << POSITION_BITS

    def decode(
        self,
        f: LLVMFunction,
        records: LLVMValue,
        source: LLVMValue,
        steps: tuple[LLVMValue, LLVMValue, LLVMValue],
        start: LLVMValue,
        stop: LLVMValue,
        outputs: tuple[LLVMValue, LLVMValue],
    ) -> None:
        """Write the elements and positions of sorted records [start, stop).

        `steps` are the byte strides of the source, the values and the positions.
        """
        with f.loop(start, stop) as loop:
            j = loop.index
            at = self.position(f, self.place(f, records, j))
            f.store(f.load(self.raw, f.at(source, at * steps[0])), f.at(outputs[0], j * steps[1]))
            f.store(at, f.at(outputs[1], j * steps[2]))


def _signed(value: int, bits: int) -> int:
    """The same bits as a signed number."""
    return value - (1 << bits) if value >> (bits - 1) else value
