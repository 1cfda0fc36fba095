"""Whether the processor has the instructions that a program was written with, asked where it runs.

Without the question a program for a larger processor would end at its first unknown instruction.
(One for x86 that another machine writes does not ask.)
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import I1, I32, I64, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import Target, detect

LACKS = "lacks_instructions"
_EAX, _EBX, _ECX, _EDX = range(4)
# name: leaf and part of the question, register and bit of the answer
_X86_BITS = {
    "sse4_2": (1, 0, _ECX, 20), "fma": (1, 0, _ECX, 12), "avx": (1, 0, _ECX, 28),
    "f16c": (1, 0, _ECX, 29), "bmi1": (7, 0, _EBX, 3), "avx2": (7, 0, _EBX, 5),
    "bmi2": (7, 0, _EBX, 8), "avx512f": (7, 0, _EBX, 16), "avx512dq": (7, 0, _EBX, 17),
    "avx512cd": (7, 0, _EBX, 28), "avx512bw": (7, 0, _EBX, 30), "avx512vl": (7, 0, _EBX, 31),
    "avx512_vnni": (7, 0, _ECX, 11), "amx_bf16": (7, 0, _EDX, 22), "avx512_fp16": (7, 0, _EDX, 23),
    "amx_tile": (7, 0, _EDX, 24), "amx_int8": (7, 0, _EDX, 25), "avx512_bf16": (7, 1, _EAX, 5),
}  # fmt: skip
_OSXSAVE = (1, 0, _ECX, 27)
_SAVED_AVX, _SAVED_AVX512 = 0x6, 0xE6
"""What the system must save of a thread: XCR0."""
_HWCAP, _RISCV_V = 16, 1 << 21


def write_lacks(m: Module, target: Target) -> None:
    """`lacks_instructions()`: true if the program can't run here."""
    with m.function(LACKS, [], I1, internal=True) as f:
        if target.is_x86 and detect().is_x86:  # LLVM assembles for the machine it runs on alone
            _ask_x86(f, target)
        elif target.machine == "riscv64":
            has = f.bits("and", f.call("getauxval", I64, [_HWCAP]), _RISCV_V)
            f.ret(f.compare("eq", has, 0))
        else:
            f.ret(f.constant(False, I1))


def _ask_x86(f: LLVMFunction, target: Target) -> None:
    wanted = [_X86_BITS[name] for name in sorted(target.features & _X86_BITS.keys())]
    if target.has("avx"):
        wanted.append(_OSXSAVE)
    most = f.compare("lt", _cpuid(f, 0, 0)[_EAX], max((w[0] for w in wanted), default=0))
    _refuse(f, most)
    for leaf, part in sorted({w[:2] for w in wanted}):
        answer = _cpuid(f, leaf, part)
        for register in range(4):
            mask = sum(1 << w[3] for w in wanted if w[:3] == (leaf, part, register))
            if mask:
                mask = mask - (1 << 32) if mask >> 31 else mask
                has = f.bits("and", answer[register], f.constant(mask, I32))
                _refuse(f, f.compare("ne", has, mask))
    if target.has("avx"):
        saved = _SAVED_AVX512 if target.has_avx512 else _SAVED_AVX
        pair = _asm(f, "{ i32, i32 }", "xgetbv", "={ax},={dx},{cx}", [0])
        low = f.value(I32, f"extractvalue {{ i32, i32 }} {pair}, 0")
        _refuse(f, f.compare("ne", f.bits("and", low, saved), saved))
    f.ret(f.constant(False, I1))


def _refuse(f: LLVMFunction, condition: LLVMValue) -> None:
    with f.if_(condition):
        f.ret(f.constant(True, I1))


def _cpuid(f: LLVMFunction, leaf: int, part: int) -> list[LLVMValue]:
    four = "{ i32, i32, i32, i32 }"
    made = _asm(f, four, "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}", [leaf, part])
    return [f.value(I32, f"extractvalue {four} {made}, {k}") for k in range(4)]


def _asm(f: LLVMFunction, returns: str, text: str, constraints: str, given: list[int]) -> str:
    name = f"%{f.fresh()}"
    listed = ", ".join(f"i32 {x}" for x in given)
    f.emit(f'{name} = call {returns} asm sideeffect "{text}", "{constraints}"({listed})')
    return name
