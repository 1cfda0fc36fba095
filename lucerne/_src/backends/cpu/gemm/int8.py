"""Products of int8 matrices with int32 results, for quantised layers."""

from __future__ import annotations

from lucerne._src.backends.cpu.gemm.amx.products import amx_driver, amx_plan, amx_takes
from lucerne._src.backends.cpu.gemm.choose import duration, product_kernel
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue
from lucerne._src.backends.cpu.gemm.kinds import INT8_TO_INT32
from lucerne._src.backends.cpu.gemm.shape import describe
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.meta import TensorMeta


def int8_product(
    a: TensorMeta, b: TensorMeta, c: TensorMeta, epilogue: Epilogue = PLAIN
) -> NativeKernel | None:
    """The kernel int8 @ int8 -> int32: tiles where the processor has them, else widened blocks."""
    p = describe(a, b, c)
    if p is None or c.numel == 0:
        return None
    if not amx_takes(p):
        return product_kernel(INT8_TO_INT32, p, epilogue)
    planned = amx_plan(INT8_TO_INT32, p, epilogue)
    return NativeKernel(
        amx_driver(INT8_TO_INT32)["product"], 1, 2, extra=planned.words,
        workspace=planned.workspace, work=duration(INT8_TO_INT32, p),
    )  # fmt: skip
