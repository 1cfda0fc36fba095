"""Faster kernels on top of the backend: products of matrices in tiles, groups of ops as one."""

from __future__ import annotations

import itertools

import numpy as np

from lucerne.backends import formulas
from lucerne.backends.api import dtype as dt
from lucerne_opencl.backend import OpenCL

ROWS, COLUMNS = 4, 16
PRODUCT = """
typedef struct { long v[16]; } Numbers;
enum { ITEMS, BATCH, N, M, K, WIDE, A, A_N, A_K, B, B_K, B_M, OUT, A_BATCH, B_BATCH };

// The second operand as rows of vectors, zeros behind the last column.
kernel void pack(const Numbers p, global const float *b, global float *packed) {
    const long i = get_global_id(0);
    if (i >= p.v[BATCH] * p.v[K] * p.v[WIDE]) return;
    const long j = i % p.v[WIDE], k = i / p.v[WIDE] % p.v[K], batch = i / p.v[WIDE] / p.v[K];
    packed[i] = j < p.v[M] ? b[p.v[B] + batch * p.v[B_BATCH] + k * p.v[B_K] + j * p.v[B_M]] : 0;
}

// Four rows and sixteen columns of a product for each item.
kernel void run(const Numbers p, global const float *a, global const float *packed,
                global float *out) {
    const long item = get_global_id(0);
    if (item >= p.v[ITEMS]) return;
    const long across = p.v[WIDE] / 16, down = (p.v[N] + 3) / 4, last = p.v[N] - 1;
    const long j = item % across * 16, i = item / across % down * 4;
    const long batch = item / across / down;
    global const float *x = a + p.v[A] + batch * p.v[A_BATCH];
    global const float *y = packed + batch * p.v[K] * p.v[WIDE] + j;
    const long step = p.v[A_N];
    global const float *x0 = x + i * step, *x1 = x + min(i + 1, last) * step;
    global const float *x2 = x + min(i + 2, last) * step, *x3 = x + min(i + 3, last) * step;
    float16 s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (long k = 0; k < p.v[K]; k++) {
        const float16 row = vload16(0, y + k * p.v[WIDE]);
        const long at = k * p.v[A_K];
        s0 += x0[at] * row; s1 += x1[at] * row; s2 += x2[at] * row; s3 += x3[at] * row;
    }
    float16 sums[4] = {s0, s1, s2, s3};
    global float *to = out + p.v[OUT] + (batch * p.v[N] + i) * p.v[M] + j;
    for (long r = 0; r < 4 && i + r <= last; r++) {
        if (j + 16 <= p.v[M]) vstore16(sums[r], 0, to + r * p.v[M]);
        else for (long c = 0; j + c < p.v[M]; c++) to[r * p.v[M] + c] = ((float *)&sums[r])[c];
    }
}
"""


class FastOpenCL(formulas.Groups, OpenCL):
    """The backend with rules of its own for what models spend their time in."""

    def compile(self, graph):
        node = graph.nodes[0]
        if node.op.qualified == "batch_matmul" and len(graph.nodes) == 1:
            made = product(graph, self.queue)
            if made is not None:
                return made
        return super().compile(graph)


def one_step(shape, strides, batch):
    """The step from matrix to matrix, if one number says it (0 for a matrix that is shared)."""
    sizes, steps = shape[:-2], strides[:-2]
    kept = [(n, s) for n, s in zip(sizes, steps, strict=True) if n != 1]
    if not kept:
        return 0
    for (_, outer), (n, inner) in itertools.pairwise(kept):
        if outer != n * inner:
            return None
    return kept[-1][1] if np.prod([n for n, _ in kept]) == batch else None


def product(graph, queue):
    """The executable of a product of float32 matrices; None: the formula does it."""
    a, b = (v.meta for v in graph.nodes[0].args)
    out = graph.outputs[0].meta
    batch = int(np.prod(out.shape[:-2], dtype=int))
    steps = [one_step(m.shape, m.strides, batch) for m in (a, b)]
    if out.dtype is not dt.float32 or None in steps or not out.contiguous or not out.numel:
        return None
    n, m, k = out.shape[-2], out.shape[-1], a.shape[-1]
    wide = -(-m // COLUMNS) * COLUMNS
    items = batch * -(-n // ROWS) * (wide // COLUMNS)
    pack, run = queue.kernel(PRODUCT, "pack"), queue.kernel(PRODUCT)
    packed = queue.buffer(max(batch * k * wide, 1) * 4)

    def execute(inputs, outputs):
        (x, y), (z,) = inputs, outputs
        numbers = np.array(
            [items, batch, n, m, k, wide, x._offset, *a.strides[-2:], y._offset, *b.strides[-2:],
             z._offset, *steps, 0], np.int64,
        )  # fmt: skip
        held = [t._storage.buffer for t in (x, y, z)]
        queue.launch(pack, batch * k * wide, [numbers, held[1], packed])
        queue.launch(run, items, [numbers, held[0], packed, held[2]])

    return execute
