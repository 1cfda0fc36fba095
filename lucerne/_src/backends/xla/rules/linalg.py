"""Matrix factorisations: those of jax.lax.linalg."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lucerne._src.backends.xla.rules.table import out_type, rule
from lucerne._src.ir.graph import Node


def _flipped(x: Any) -> Any:
    return jnp.swapaxes(x, -1, -2)


@rule("tri_solve")
def tri_solve(node: Node, A: Any, B: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    batch = jnp.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    A = jnp.broadcast_to(A, (*batch, *A.shape[-2:]))
    B = jnp.broadcast_to(B, (*batch, *B.shape[-2:]))
    return lax.linalg.triangular_solve(
        A, B, left_side=left, lower=not upper, unit_diagonal=unitriangular
    )


@rule("cholesky_factor")
def cholesky_factor(node: Node, x: Any, upper: bool) -> Any:
    a = jnp.conj(_flipped(x)) if upper else x
    full = jnp.tril(a) + jnp.conj(_flipped(jnp.tril(a, -1)))
    made = jnp.tril(lax.linalg.cholesky(full, symmetrize_input=False))
    bad = jnp.isnan(made).any((-1, -2)) if made.size else jnp.zeros(made.shape[:-2], bool)
    return (jnp.conj(_flipped(made)) if upper else made), _first_bad_minor(full, bad)


def _first_bad_minor(full: Any, bad: Any) -> Any:
    """The order of the first minor that is not positive, of matrices that have one, else 0."""
    none = jnp.zeros(bad.shape, np.int32)
    if not full.size:
        return none

    def eliminate(j: Any, now: Any) -> Any:
        a, found = now
        column = lax.dynamic_index_in_dim(a, j, a.ndim - 1, keepdims=False)
        pivot = jnp.real(lax.dynamic_index_in_dim(column, j, column.ndim - 1, keepdims=False))
        found = jnp.where((found == 0) & ~(pivot > 0), (j + 1).astype(np.int32), found)
        part = column / pivot[..., None].astype(a.dtype)
        return a - part[..., None] * jnp.conj(column)[..., None, :], found

    def search(a: Any) -> Any:
        return lax.fori_loop(0, a.shape[-1], eliminate, (a, none))[1]

    return jnp.where(bad, lax.cond(jnp.any(bad), search, lambda a: none, full), none)


@rule("lu_packed")
def lu_packed(node: Node, x: Any) -> Any:
    lu, pivots, _ = lax.linalg.lu(x)
    zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    if not zero.shape[-1]:
        return lu, pivots + 1, jnp.zeros(x.shape[:-2], np.int32)
    first = jnp.where(zero.any(-1), jnp.argmax(zero, -1) + 1, 0)
    return lu, pivots + 1, first.astype(np.int32)


@rule("pivots_to_permutation")
def pivots_to_permutation(node: Node, pivots: Any, n: int) -> Any:
    rows = (pivots - 1).astype(np.int32)
    return lax.linalg.lu_pivots_to_permutation(rows, n).astype(out_type(node))


@rule("qr_factors")
def qr_factors(node: Node, x: Any, complete: bool) -> Any:
    q, r = jnp.linalg.qr(x, "complete" if complete else "reduced")
    return q, r


@rule("eigh_factors")
def eigh_factors(node: Node, x: Any, upper: bool, vectors: bool) -> Any:
    part = jnp.triu(x, 1) if upper else jnp.tril(x, -1)
    diagonal = jnp.real(jnp.diagonal(x, axis1=-2, axis2=-1)).astype(x.dtype)
    full = part + jnp.conj(_flipped(part)) + diagonal[..., None] * jnp.eye(x.shape[-1], dtype=bool)
    if vectors:
        values, found = jnp.linalg.eigh(full, symmetrize_input=False)
        return values, found
    values = jnp.linalg.eigvalsh(full, symmetrize_input=False)
    return values, jnp.zeros((*x.shape[:-2], 0, 0), x.dtype)


@rule("eig_factors")
def eig_factors(node: Node, x: Any, vectors: bool) -> Any:
    if vectors:
        return tuple(jnp.linalg.eig(x))
    values = jnp.linalg.eigvals(x)
    return values, jnp.zeros((*x.shape[:-2], 0, 0), values.dtype)


@rule("svd_factors")
def svd_factors(node: Node, x: Any, full: bool, vectors: bool) -> Any:
    if vectors:
        return tuple(jnp.linalg.svd(x, full_matrices=full))
    none = jnp.zeros((*x.shape[:-2], 0, 0), x.dtype)
    return none, jnp.linalg.svd(x, compute_uv=False), none
