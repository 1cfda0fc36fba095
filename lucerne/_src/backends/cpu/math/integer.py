"""Integer instructions that the hardware lacks, or that would trap."""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import F64, LLVMFunction, LLVMValue


def any_lane(f: LLVMFunction, mask: LLVMValue) -> LLVMValue:
    """Whether any lane is on."""
    return f.fold("or", mask) if mask.type.lanes else mask


def safe_divisor(f: LLVMFunction, a: LLVMValue, b: LLVMValue, signed: bool) -> LLVMValue:
    """The divisor, or 1 where dividing would trap: by zero, and the least integer by -1."""
    trap = f.compare("eq", b, f.zero(b.type))
    if signed:
        least = f.compare("eq", a, -(1 << (a.type.bits - 1)))
        trap = trap | (least & f.compare("eq", b, -1))
    return f.select(trap, f.constant(1, b.type), b)


def divide(f: LLVMFunction, a: LLVMValue, b: LLVMValue, signed: bool) -> LLVMValue:
    """Quotient towards zero by a divisor that is safe. Up to 32 bits in doubles, which is exact."""
    if a.type.lanes and a.type.bits <= 32:
        up, down = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        quotient = f.convert(up, a, F64) / f.convert(up, b, F64)
        return f.convert(down, quotient, a.type)
    return a / b if signed else f.unsigned("div", a, b)


def remainder(f: LLVMFunction, a: LLVMValue, b: LLVMValue, signed: bool) -> LLVMValue:
    """C's remainder: 0 where the divisor is -1 and the quotient would not fit."""
    divisor = safe_divisor(f, a, b, signed)
    return a - divide(f, a, divisor, signed) * divisor


def floor_divide(f: LLVMFunction, a: LLVMValue, b: LLVMValue, signed: bool) -> LLVMValue:
    """Quotient rounded down; the least integer divided by -1 is itself."""
    divisor = safe_divisor(f, a, b, signed)
    quotient = divide(f, a, divisor, signed)
    if not signed:
        return quotient
    rest = a - quotient * divisor
    zero = f.zero(a.type)
    down = f.compare("ne", rest, zero) & ((rest ^ divisor) < zero)
    return quotient - f.convert("zext", down, a.type)


def power(f: LLVMFunction, a: LLVMValue, b: LLVMValue, signed: bool) -> LLVMValue:
    """`a ** b` modulo 2 ** bits; of a negative power only the bases 1 and -1 leave anything."""
    name = f"int_power_{a.type.suffix}_{'s' if signed else 'u'}"
    if not f.module.has(name):
        params = [("a", a.type), ("b", b.type)]
        with f.module.function(name, params, a.type, internal=True) as g:
            base, exponent = g.args
            g.ret(_power_loop(g, base, exponent, signed))
    return f.call(name, a.type, [a, b])


def _power_loop(f: LLVMFunction, a: LLVMValue, b: LLVMValue, signed: bool) -> LLVMValue:
    zero, one = f.zero(a.type), f.constant(1, a.type)
    left = f.select(f.compare("lt", b, zero), zero, b) if signed else b
    with f.while_([one, a, left]) as loop:
        product, base, exponent = loop.carried
        odd = f.compare("ne", exponent & 1, zero)
        product = f.select(odd, product * base, product)
        exponent = f.bits("lshr", exponent, 1)
        more = any_lane(f, f.compare("ne", exponent, zero))
        loop.again(more, product, base * base, exponent)
    found = loop.results[0]
    if not signed:
        return found
    parity = f.select(f.compare("ne", b & 1, zero), f.constant(-1, a.type), one)
    unit = f.select(f.compare("eq", a, -1), parity, zero)
    unit = f.select(f.compare("eq", a, 1), one, unit)
    return f.select(f.compare("lt", b, zero), unit, found)


def gcd(f: LLVMFunction, a: LLVMValue, b: LLVMValue, signed: bool) -> LLVMValue:
    """The greatest common divisor, by Euclid."""
    name = f"int_gcd_{a.type.suffix}_{'s' if signed else 'u'}"
    if not f.module.has(name):
        params = [("a", a.type), ("b", b.type)]
        with f.module.function(name, params, a.type, internal=True) as g:
            x, y = (absolute(g, v, signed) for v in g.args)
            zero = g.zero(a.type)
            with g.while_([x, y]) as loop:
                x, y = loop.carried
                rest = remainder(g, x, y, signed)
                on = g.compare("ne", y, zero)
                x, y = g.select(on, y, x), g.select(on, rest, y)
                loop.again(any_lane(g, g.compare("ne", y, zero)), x, y)
            g.ret(absolute(g, loop.results[0], signed))
    return f.call(name, a.type, [a, b])


def lcm(f: LLVMFunction, a: LLVMValue, b: LLVMValue, signed: bool) -> LLVMValue:
    """The least common multiple; 0 when either is 0."""
    shared = gcd(f, a, b, signed)
    a, b = absolute(f, a, signed), absolute(f, b, signed)
    return divide(f, a, safe_divisor(f, a, shared, signed), signed) * b


def absolute(f: LLVMFunction, v: LLVMValue, signed: bool) -> LLVMValue:
    """The size; the least integer stays as it is."""
    return f.select(v < f.zero(v.type), -v, v) if signed else v


def shift(f: LLVMFunction, op: str, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """shl, ashr or lshr; moving by all the bits or more leaves 0, or the sign."""
    bits = a.type.bits
    inside = f.compare("ult", b, bits)
    moved = f.bits(op, a, f.select(inside, b, f.zero(b.type)))
    rest = f.bits("ashr", a, bits - 1) if op == "ashr" else f.zero(a.type)
    return f.select(inside, moved, rest)
