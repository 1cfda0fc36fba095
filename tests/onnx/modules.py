"""Every class of torch's module_db as an ONNX model, run by onnxruntime beside the module."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence

import lucerne
from lucerne.export import ExportError
from tests.conformance.bridge import Memo, lucerne_bridge
from tests.conformance.modules import samples


def check(name: str, opset: int | None = None) -> float:
    """The largest difference of the first case of a class, in evaluation."""
    bridge = lucerne_bridge()
    case = next(iter(samples.cases(name, limit=1)))
    bridge.seed(0)
    module = case.make(bridge)
    args = tuple(bridge.carry(case.args, Memo()))
    kwargs = bridge.carry(case.kwargs, Memo())
    if case.lazy:
        with lucerne.no_grad():
            module(*args, **kwargs)
    else:
        module = module.to(bridge.convert(case.dtype))
    module.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = lucerne.onnx.export(module, args, kwargs=kwargs, opset_version=opset)
    return max(c.largest for c in made.comparisons)


def run(names: Sequence[str], opset: int | None = None) -> int:
    """Print what differs or is refused, and how many agree."""
    began, bad, worst = time.perf_counter(), 0, 0.0
    listed = list(names) or list(samples.load())
    for name in listed:
        try:
            worst = max(worst, check(name, opset))
        except ExportError as error:
            bad += 1
            print(f"{name}: {str(error)[:600]}", flush=True)
        except Exception as error:
            bad += 1
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    seconds = time.perf_counter() - began
    print(
        f"{len(listed) - bad} of {len(listed)} module classes agree with onnxruntime, largest "
        f"difference {worst:.3g}, {seconds:.0f} s"
    )
    return bad
