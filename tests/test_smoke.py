"""One file that proves life: if this passes, the package imports, computes and differentiates."""

from __future__ import annotations

import subprocess
import sys

import lucerne as torch


def test_compute_and_differentiate() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    loss = (x @ x.T).relu().sum()
    loss.backward()
    assert x.grad.tolist() == [[8.0, 12.0], [8.0, 12.0]]


def test_views_alias_and_random_is_torchs_stream() -> None:
    x = torch.zeros(2, 3)
    x.t()[0] += 1
    assert x.tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    torch.manual_seed(0)
    assert torch.rand(1).item() == 0.49625658988952637


def test_a_small_network_learns() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 2)
    y = (x[:, 0] + x[:, 1] > 0).long()
    w1 = (torch.randn(2, 32) * 0.5).requires_grad_()
    w2 = (torch.randn(32, 2) * 0.5).requires_grad_()
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(torch.tanh(x @ w1) @ w2, y)
        loss.backward()
        with torch.no_grad():
            for w in (w1, w2):
                w -= 0.5 * w.grad
                w.grad = None
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_import_brings_nothing_heavy() -> None:
    code = (
        "import sys, lucerne; "
        "heavy = {'torch', 'jax', 'pandas', 'matplotlib', 'llvmlite', 'safetensors'}; "
        "found = heavy & set(sys.modules); sys.exit(f'imported {found}' if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
