"""Every class of torch's module_db: exported, saved, loaded and run, against the module itself.

python -m tests.export.modules [NAME ...] [--cases 1] [--backend cpu]

Compared are results and the gradients of all parameters and inputs.
"""

from __future__ import annotations

import argparse
import copy
import io
import sys
import time
import warnings
from typing import Any

import lucerne
from lucerne.export import ExportError, load, save
from lucerne.export.door import export_callable
from tests.conformance import tree
from tests.conformance.bridge import Memo, lucerne_bridge
from tests.conformance.modules import samples


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--backend", help="run through the pipeline on this backend, forward only")
    chosen = parser.parse_args()
    good, bad, refused = 0, [], []
    for name in chosen.names or samples.load():
        began = time.perf_counter()
        try:
            problem = check(name, chosen.cases, chosen.backend)
        except ExportError as error:
            refused.append(name)
            problem = f"refused: {str(error)[:150]}"
        except Exception as error:
            problem = f"{type(error).__name__}: {str(error)[:200]}"
        if problem:
            bad.append(name)
            print(f"{name}: {problem} ({time.perf_counter() - began:.1f} s)", flush=True)
        else:
            good += 1
    print(f"{good} of {good + len(bad)} classes; {len(refused)} refused", flush=True)
    return 1 if bad else 0


def check(name: str, limit: int, backend: str | None = None) -> str:
    """What is wrong with the exported programs of a class; nothing: an empty text."""
    bridge = lucerne_bridge()
    for case in samples.cases(name, limit=limit):
        bridge.seed(0)
        module = case.make(bridge)
        args = tuple(bridge.carry(case.args, Memo()))
        kwargs = bridge.carry(case.kwargs, Memo())
        if case.lazy:  # its parameters come by a first call
            with lucerne.no_grad():
                module(*args, **kwargs)
        else:
            module = module.to(bridge.convert(case.dtype))
        module.train(case.training)
        problem = _check(module, args, kwargs, backend)
        if problem:
            return f"{case.label}: {problem}"
    return ""


def _check(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], backend: str | None) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = export_callable(module, module.forward, args, kwargs)
        file = io.BytesIO()
        save(program, file)
        other = load(io.BytesIO(file.getvalue())).module()
        mine = copy.deepcopy(module)
        if backend is not None:
            other.compiled(backend, mode="bitwise")
        with lucerne.set_grad_enabled(backend is None):
            wants, gots = _run(mine, args, kwargs), _run(other, args, kwargs)
    for k, (want, got) in enumerate(zip(wants, gots, strict=True)):
        if (want is None) != (got is None):
            return f"value {k} is {got} instead of {want}"
        if want is not None and not lucerne.allclose(got, want, 1e-4, 1e-5, equal_nan=True):
            return f"value {k} differs by {(got - want).abs().max().item():.3g}"
    return ""


def _run(module: Any, args: Any, kwargs: Any) -> list[Any]:
    given = [x.detach().clone() if isinstance(x, lucerne.Tensor) else x for x in args]
    for x in given:
        if isinstance(x, lucerne.Tensor) and x.is_floating_point():
            x.requires_grad_()
    lucerne.manual_seed(1)
    result = module(*given, **kwargs)
    outs = [x for x in tree.leaves(result) if isinstance(x, lucerne.Tensor)]
    floats = [x for x in outs if x.requires_grad]
    ends = [x for x in [*given, *(p for _, p in sorted(module.named_parameters()))]
            if isinstance(x, lucerne.Tensor) and x.requires_grad]  # fmt: skip
    grads: list[Any] = [None] * len(ends)
    if floats:
        total = sum((x * x.detach().cos()).sum() for x in floats)
        grads = list(lucerne.autograd.grad(total, ends, allow_unused=True))
    state = [t for _, t in sorted(module.state_dict().items())]
    return [*outs, *grads, *state]


if __name__ == "__main__":
    sys.exit(main())
