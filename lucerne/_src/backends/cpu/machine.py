"""The scalar protocol in LLVM: an instruction emits code for one vector of lanes.

    machine = LlvmScalar(f, lanes=16)
    x = machine.load(dt.bfloat16, pointer, mask)           # a Num of the compute dtype, float32
    y = op.body(Operand(machine, x)).raw                   # bodies see ir.scalar.protocol.Value
    machine.store(y, dt.bfloat16, pointer, mask)

The machine belongs to one function being written. Values are `Num`s; Python numbers may stand for
constants and promote as NumPy's do. Integer division by zero does not trap: it sets `failed`.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.backends.cpu.emit.builder import I32, LLVMValue
from lucerne._src.backends.cpu.emit.types import int_of
from lucerne._src.backends.cpu.math import complexes, integer
from lucerne._src.backends.cpu.math.lanes import Lanes
from lucerne._src.backends.cpu.math.number import NotTaken, Num, common_dtype
from lucerne._src.backends.cpu.math.powers import complex_power_by_number, power_by_number
from lucerne._src.backends.cpu.math.storage import COMPUTED, STORED
from lucerne._src.backends.cpu.math.table import is_written, real_function
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar import special
from lucerne._src.ir.scalar.protocol import FORMULAS, OPTIONAL, Scalar
from lucerne._src.ir.scalar.protocol import ScalarValue as Operand


def _function(name: str) -> Any:
    """The instruction that computes a function of one floating number."""

    def instruction(self: LlvmScalar, x: Any) -> Num:
        return self._real(name, x)

    instruction.__name__ = name
    return instruction


def _fused(name: str) -> Any:
    """An instruction that is a formula of others, unless there is code for it."""

    def instruction(self: LlvmScalar, *operands: Any) -> Num:
        nums = self._floats(*operands)
        if nums[0].im is None and is_written(name, nums[0].re.type.element):
            return self._real(name, *nums)
        return self._composed(name, *nums)

    instruction.__name__ = name
    return instruction


class LlvmScalar(Lanes, Scalar):
    """Instructions on vectors of `lanes` lanes (1: scalars) inside the function `f`."""

    # ---- types -----------------------------------------------------------------------------------

    def cast(self, x: Any, dtype: dt.dtype) -> Num:
        return self.to(x, dtype.compute)

    def dtype_of(self, x: Any) -> dt.dtype:
        return common_dtype(x)

    def _together(self, *operands: Any) -> list[Num]:
        """Operands brought to their common dtype."""
        common = common_dtype(*operands)
        return [self.to(x, common) for x in operands]

    def _integers(self, *operands: Any) -> list[Num]:
        """Operands as their common integer dtype (bools as int8, as in NumPy)."""
        common = common_dtype(*operands)
        if common.category > dt.INTEGER:
            raise NotTaken("an integer instruction on floating numbers")
        return [self.to(x, dt.int8 if common is dt.bool_ else common) for x in operands]

    def _floats(self, *operands: Any) -> list[Num]:
        """Operands as their common floating (or complex) dtype."""
        common = common_dtype(*operands)
        if common.category < dt.FLOAT:
            common = dt.float64
        return [self.to(x, common) for x in operands]

    # ---- arithmetic ------------------------------------------------------------------------------

    def add(self, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        if a.dtype is dt.bool_:
            return Num(a.dtype, a.re | b.re)
        return _by_parts(a, b, a.re + b.re, lambda x, y: x + y)

    def sub(self, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        if a.dtype is dt.bool_:
            raise TypeError("bools can't be subtracted")
        return _by_parts(a, b, a.re - b.re, lambda x, y: x - y)

    def mul(self, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        if a.dtype is dt.bool_:
            return Num(a.dtype, a.re & b.re)
        if a.im is not None:
            return Num(a.dtype, *complexes.multiply(self.f, _pair(a), _pair(b)))
        return Num(a.dtype, a.re * b.re)

    def mul_add(self, a: Any, b: Any, c: Any) -> Num:
        a, b, c = self._together(a, b, c)
        if a.dtype.category != dt.FLOAT:
            return self.add(self.mul(a, b), c)
        return Num(a.dtype, self.f.fma(a.re, b.re, c.re))

    def ndtr(self, x: Any) -> Num:
        (x,) = self._together(x)
        if is_written("normal_cdf", x.re.type.element):
            return Num(x.dtype, real_function(self.f, "normal_cdf", x.re))
        found: Num = self._formula("ndtr", x)
        return found

    def erfinv(self, x: Any) -> Num:
        (x,) = self._floats(x)
        found: Num
        if x.dtype is dt.float32:
            found = special.erfinv_short(Operand(self, x)).raw
        else:
            found = self._formula("erfinv", x)
        return found

    def div(self, a: Any, b: Any) -> Num:
        a, b = self._floats(a, b)
        if a.im is not None:
            return Num(a.dtype, *complexes.divide(self.f, _pair(a), _pair(b)))
        return Num(a.dtype, a.re / b.re)

    def neg(self, x: Any) -> Num:
        (x,) = self._together(x)
        if x.dtype is dt.bool_:
            raise TypeError("bools can't be negated")
        return Num(x.dtype, -x.re, None if x.im is None else -x.im, uniform=x.uniform)

    def abs(self, x: Any) -> Num:
        (x,) = self._together(x)
        if x.im is not None:
            return Num(x.dtype.to_real(), real_function(self.f, "hypot", x.re, x.im))
        if x.dtype.category == dt.FLOAT:
            return Num(x.dtype, self.f.intrinsic("llvm.fabs", x.re.type, [x.re]))
        if x.dtype is dt.bool_:
            return x
        return Num(x.dtype, integer.absolute(self.f, x.re, x.dtype.is_signed))

    def minimum(self, a: Any, b: Any) -> Num:
        return self._extreme("lt", a, b)

    def maximum(self, a: Any, b: Any) -> Num:
        return self._extreme("gt", a, b)

    def _extreme(self, how: str, a: Any, b: Any) -> Num:
        """The operand that wins the comparison; nan wins always."""
        f, plain_a, plain_b = self.f, _never_nan(a), _never_nan(b)
        a, b = self._together(a, b)
        if a.im is not None:
            raise NotTaken("complex numbers have no order")
        if a.dtype is dt.bool_:
            return Num(a.dtype, a.re & b.re if how == "lt" else a.re | b.re)
        if a.dtype.category == dt.INTEGER:
            return Num(a.dtype, f.select(self._compare(how, a, b), a.re, b.re))
        if plain_a and not plain_b:
            a, b = b, a
            plain_b = True
        # One instruction: `b` only if it wins, so a nan in `a` stays.
        found = f.select(f.compare("gt" if how == "lt" else "lt", a.re, b.re), b.re, a.re)
        if not plain_b:
            found = f.select(f.compare("uno", b.re, b.re), b.re, found)
        return Num(a.dtype, found)

    def fmod(self, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        if a.dtype.category == dt.INTEGER:
            self._refuse_zero(b.re)
            return Num(a.dtype, integer.remainder(self.f, a.re, b.re, a.dtype.is_signed))
        a, b = self._floats(a, b)
        return Num(a.dtype, real_function(self.f, "fmod", a.re, b.re))

    def floor_div_int(self, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        if a.dtype.category != dt.INTEGER:
            raise NotTaken("floor_div_int is for integers")
        self._refuse_zero(b.re)
        return Num(a.dtype, integer.floor_divide(self.f, a.re, b.re, a.dtype.is_signed))

    def _refuse_zero(self, divisor: LLVMValue) -> None:
        f = self.f
        bad = f.compare("eq", divisor, f.zero(divisor.type))
        self.fail_where(bad if self.active is None else bad & self.active)

    def fail_where(self, bad: LLVMValue) -> None:
        """Note a failure in the lanes where `bad` holds."""
        found = integer.any_lane(self.f, bad)
        self.failed = found if self.failed is None else self.failed | found

    def pow(self, a: Any, b: Any) -> Num:
        f = self.f
        a, b = self._together(a, b)
        if a.dtype.category < dt.FLOAT:
            a, b = self._integers(a, b)
            return Num(a.dtype, integer.power(f, a.re, b.re, a.dtype.is_signed))
        if a.im is not None:
            base, power = _pair(a), _pair(b)
            if b.uniform:
                found = complex_power_by_number(
                    f, base, power, lambda: complexes.power(f, base, power)
                )
                return Num(a.dtype, *found)
            return Num(a.dtype, *complexes.power(f, base, power))
        if b.uniform:
            real = power_by_number(f, a.re, b.re, lambda: real_function(f, "pow", a.re, b.re))
            return Num(a.dtype, real)
        return Num(a.dtype, real_function(f, "pow", a.re, b.re))

    def gcd(self, a: Any, b: Any) -> Num:
        a, b = self._integers(a, b)
        return Num(a.dtype, integer.gcd(self.f, a.re, b.re, a.dtype.is_signed))

    def lcm(self, a: Any, b: Any) -> Num:
        a, b = self._integers(a, b)
        return Num(a.dtype, integer.lcm(self.f, a.re, b.re, a.dtype.is_signed))

    # ---- rounding and signs ----------------------------------------------------------------------

    def floor(self, x: Any) -> Num:
        return self._rounding("floor", x)

    def ceil(self, x: Any) -> Num:
        return self._rounding("ceil", x)

    def trunc(self, x: Any) -> Num:
        return self._rounding("trunc", x)

    def round(self, x: Any) -> Num:
        return self._rounding("round", x)

    def _rounding(self, name: str, x: Any) -> Num:
        (x,) = self._together(x)
        if x.dtype.category < dt.FLOAT:
            return x
        return self._real(name, x)

    def signbit(self, x: Any) -> Num:
        (x,) = self._together(x)
        if x.dtype.category != dt.FLOAT:
            return self.lt(x, 0)
        bits = self.f.bitcast(x.re, int_of(x.re.type))
        return Num(dt.bool_, bits < self.f.zero(bits.type))

    def copysign(self, a: Any, b: Any) -> Num:
        a, b = self._floats(a, b)
        return Num(a.dtype, self.f.intrinsic("llvm.copysign", a.re.type, [a.re, b.re]))

    def nextafter(self, a: Any, b: Any) -> Num:
        """One step of the bits: numbers of one sign are ordered as their bits are."""
        f = self.f
        a, b = self._floats(a, b)
        kind = int_of(a.re.type)
        bits = f.bitcast(a.re, kind)
        away = f.compare("lt", a.re, b.re) ^ (bits < f.zero(kind))
        step = f.select(away, f.constant(1, kind), -1)
        moved = f.bitcast(bits + step, a.re.type)
        least = f.bitcast(f.constant(1, kind), a.re.type)
        least = f.intrinsic("llvm.copysign", a.re.type, [least, b.re])
        moved = f.select(f.compare("eq", a.re, 0.0), least, moved)
        moved = f.select(f.compare("eq", a.re, b.re), b.re, moved)
        return Num(a.dtype, f.select(f.compare("uno", a.re, b.re), a.re + b.re, moved))

    def frexp_mantissa(self, x: Any) -> Num:
        return self._frexp(x)[0]

    def frexp_exponent(self, x: Any) -> Num:
        return self._frexp(x)[1]

    def _frexp(self, x: Any) -> tuple[Num, Num]:
        """Mantissa in [0.5, 1) and exponent; of zero, infinity and nan themselves and 0."""
        f = self.f
        (x,) = self._floats(x)
        type, kind = x.re.type, int_of(x.re.type)
        digits, top = (23, 255) if kind.bits == 32 else (52, 2047)
        size = f.intrinsic("llvm.fabs", type, [x.re])
        tiny = f.compare("lt", size, 2.0 ** (2 - (top + 1) // 2))
        bits = f.bitcast(f.select(tiny, x.re * 2.0**64, x.re), kind)
        exponent = (f.bits("lshr", bits, digits) & top) - (top // 2 - 1)
        exponent = f.select(tiny, exponent - 64, exponent)
        kept = (bits & ~(top << digits)) | ((top // 2 - 1) << digits)
        special = f.compare("ueq", size, math.inf) | f.compare("eq", size, 0.0)
        mantissa = f.select(special, x.re, f.bitcast(kept, type))
        exponent = f.select(special, f.zero(kind), exponent)
        return Num(x.dtype, mantissa), Num(
            dt.int32, f.convert("trunc", exponent, I32) if kind.bits > 32 else exponent
        )

    # ---- comparison and bits ---------------------------------------------------------------------

    def lt(self, a: Any, b: Any) -> Num:
        return self._ordered("lt", a, b)

    def le(self, a: Any, b: Any) -> Num:
        return self._ordered("le", a, b)

    def gt(self, a: Any, b: Any) -> Num:
        return self._ordered("gt", a, b)

    def ge(self, a: Any, b: Any) -> Num:
        return self._ordered("ge", a, b)

    def _ordered(self, how: str, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        if a.im is not None:
            raise NotTaken("complex numbers have no order")
        return Num(dt.bool_, self._compare(how, a, b))

    def _compare(self, how: str, a: Num, b: Num) -> LLVMValue:
        if (
            not a.dtype.is_signed
            and a.dtype.category <= dt.INTEGER
            and how in ("lt", "le", "gt", "ge")
        ):
            how = "u" + how
        return self.f.compare(how, a.re, b.re)

    def eq(self, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        found = self.f.compare("eq", a.re, b.re)
        if a.im is not None:
            found = found & self.f.compare("eq", a.im, b.im)
        return Num(dt.bool_, found)

    def ne(self, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        found = self.f.compare("ne", a.re, b.re)
        if a.im is not None:
            found = found | self.f.compare("ne", a.im, b.im)
        return Num(dt.bool_, found)

    def is_nan(self, x: Any) -> Num:
        (x,) = self._together(x)
        if x.dtype.category < dt.FLOAT:
            return self.to(False, dt.bool_)
        return Num(dt.bool_, self.f.compare("uno", x.re, x.re if x.im is None else x.im))

    def is_inf(self, x: Any) -> Num:
        (x,) = self._together(x)
        if x.dtype.category < dt.FLOAT:
            return self.to(False, dt.bool_)
        either = None
        for v in (x.re, x.im):
            if v is not None:
                size = self.f.intrinsic("llvm.fabs", v.type, [v])
                infinite = self.f.compare("eq", size, math.inf)
                either = infinite if either is None else either | infinite
        assert either is not None
        return Num(dt.bool_, either)

    def bit_and(self, a: Any, b: Any) -> Num:
        return self._bits("and", a, b)

    def bit_or(self, a: Any, b: Any) -> Num:
        return self._bits("or", a, b)

    def bit_xor(self, a: Any, b: Any) -> Num:
        return self._bits("xor", a, b)

    def _bits(self, op: str, a: Any, b: Any) -> Num:
        a, b = self._together(a, b)
        if a.dtype.category > dt.INTEGER:
            raise NotTaken("bits of floating numbers")
        return Num(a.dtype, self.f.bits(op, a.re, b.re))

    def bit_not(self, x: Any) -> Num:
        (x,) = self._together(x)
        if x.dtype is dt.bool_:
            return Num(x.dtype, self.f.bits("xor", x.re, True))
        return Num(x.dtype, ~x.re)

    def shift_left(self, a: Any, b: Any) -> Num:
        a, b = self._integers(a, b)
        return Num(a.dtype, integer.shift(self.f, "shl", a.re, b.re))

    def shift_right(self, a: Any, b: Any) -> Num:
        a, b = self._integers(a, b)
        return Num(
            a.dtype, integer.shift(self.f, "ashr" if a.dtype.is_signed else "lshr", a.re, b.re)
        )

    def where(self, condition: Any, a: Any, b: Any) -> Num:
        chosen = self.to(condition, dt.bool_).re
        a, b = self._together(a, b)
        im = None if a.im is None else self.f.select(chosen, a.im, b.im)
        return Num(a.dtype, self.f.select(chosen, a.re, b.re), im)

    # ---- complex ---------------------------------------------------------------------------------

    def complex(self, re: Any, im: Any) -> Num:
        re, im = self._floats(re, im)
        return Num(re.dtype.to_complex(), re.re, im.re)

    def real(self, x: Any) -> Num:
        (x,) = self._together(x)
        return x if x.im is None else Num(x.dtype.to_real(), x.re)

    def imag(self, x: Any) -> Num:
        (x,) = self._together(x)
        return self.to(0, x.dtype) if x.im is None else Num(x.dtype.to_real(), x.im)

    def conj(self, x: Any) -> Num:
        (x,) = self._together(x)
        return x if x.im is None else Num(x.dtype, x.re, -x.im)

    # ---- functions -------------------------------------------------------------------------------

    def _real(self, name: str, *operands: Any) -> Num:
        """A function of floating numbers; complex ones by the C library, if it has it."""
        nums = self._floats(*operands)
        dtype = nums[0].dtype
        if dtype.category == dt.FLOAT:
            return Num(dtype, real_function(self.f, name, *[x.re for x in nums]))
        if name not in complexes.LIBRARY and name not in complexes.COMPOSED:
            return self._composed(name, *nums)
        return Num(dtype, *complexes.library(self.f, name, _pair(nums[0])))

    sqrt, exp, exp2, expm1 = map(_function, ("sqrt", "exp", "exp2", "expm1"))
    log, log1p, log2, log10 = map(_function, ("log", "log1p", "log2", "log10"))
    sin, cos, tan = map(_function, ("sin", "cos", "tan"))
    asin, acos, atan = map(_function, ("asin", "acos", "atan"))
    sinh, cosh, tanh = map(_function, ("sinh", "cosh", "tanh"))
    asinh, acosh, atanh = map(_function, ("asinh", "acosh", "atanh"))
    erf, erfc, lgamma = map(_function, ("erf", "erfc", "lgamma"))

    def _composed(self, name: str, *nums: Num) -> Num:
        """The protocol's own formula."""
        default = getattr(Scalar, name, None)
        if default is None:
            raise NotTaken(f"{name} of {nums[0].dtype}")
        return default(self, *nums)

    def atan2(self, a: Any, b: Any) -> Num:
        return self._real("atan2", a, b)

    def hypot(self, a: Any, b: Any) -> Num:
        return self._real("hypot", a, b)

    sin_pi, logaddexp, logaddexp2 = map(_fused, ("sin_pi", "logaddexp", "logaddexp2"))
    sigmoid, silu, logit = map(_fused, ("sigmoid", "silu", "logit"))
    gelu, gelu_tanh = map(_fused, ("gelu", "gelu_tanh"))

    def _formula(self, name: str, *operands: Any) -> Num:
        """Special functions are computed in float64, whatever they are stored in."""
        nums = self._floats(*operands)
        if nums[0].im is not None:
            raise NotTaken(f"{name} of complex numbers")
        found = super()._formula(name, *[self.to(x, dt.float64) for x in nums])
        return self.to(found, nums[0].dtype)

    def repeat(self, step: Any, state: list[Any]) -> list[Num]:
        """A loop over all lanes until none goes on; those that have come to rest are kept."""
        f, nums = self.f, [self._floats(x)[0] for x in state]
        every = self.to(True, dt.bool_).re
        first = [*[x.re for x in nums], every if self.active is None else self.active]
        with f.while_(first) as loop:
            *values, going = loop.carried
            kept = [Num(x.dtype, v) for x, v in zip(nums, values, strict=True)]
            again, *made = step(*[Operand(self, x) for x in kept])
            news = [self.to(x.raw, old.dtype).re for x, old in zip(made, kept, strict=True)]
            news = [f.select(going, new, v) for new, v in zip(news, values, strict=True)]
            going = going & self.to(again.raw, dt.bool_).re
            loop.again(integer.any_lane(f, going), *news, going)
        return [Num(x.dtype, v) for x, v in zip(nums, loop.results, strict=False)]

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONAL and name not in FORMULAS:
            raise NotTaken(f"the CPU engine has no function {name!r}")
        return super().__getattr__(name)


def _never_nan(x: Any) -> bool:
    return not isinstance(x, Num) and x == x


def _pair(x: Num) -> tuple[LLVMValue, LLVMValue]:
    assert x.im is not None
    return x.re, x.im


def _by_parts(a: Num, b: Num, re: LLVMValue, op: Any) -> Num:
    return Num(a.dtype, re, None if a.im is None else op(a.im, b.im))


__all__ = ["COMPUTED", "STORED", "LlvmScalar", "NotTaken", "Num"]
