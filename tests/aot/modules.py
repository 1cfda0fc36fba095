"""Every class of torch's module_db as a built program, against the module itself.

python -m tests.aot.modules [NAME ...]

Modules are in `eval` mode, one case each. Agrees, or is refused with a reason: nothing else counts.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
import warnings
from typing import Any

import lucerne
from lucerne.export import ExportError, build
from lucerne.export.door import export_callable
from tests.conformance.bridge import Memo, lucerne_bridge
from tests.conformance.modules import samples


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    counts: collections.Counter[str] = collections.Counter()
    for name in parser.parse_args().names or samples.load():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                word, told = checked(name)
        except Exception as error:
            word, told = "wrong", f"{type(error).__name__}: {str(error)[-300:]}"
        counts[word] += 1
        print(f"{name}: {word} {told}", flush=True)
    print(", ".join(f"{n} {word}" for word, n in counts.items()))
    return int(bool(counts["wrong"]))


def checked(name: str) -> tuple[str, str]:
    """ "agrees" or "refused", and what was said."""
    bridge = lucerne_bridge()
    case = next(iter(samples.cases(name, limit=1)))
    bridge.seed(0)
    module: Any = case.make(bridge)
    args = tuple(bridge.carry(case.args, Memo()))
    kwargs = bridge.carry(case.kwargs, Memo())
    if case.lazy:
        with lucerne.no_grad():
            module(*args, **kwargs)
    else:
        module = module.to(bridge.convert(case.dtype))
    module.eval()
    with lucerne.no_grad(), tempfile.TemporaryDirectory() as folder:
        program = export_callable(module, module.forward, args, kwargs, check=False)
        try:
            made = build(program, folder)
        except ExportError as error:
            if " failed" in str(error):
                raise
            return "refused", str(error).replace("\n", " ")
        return "agrees", made.differences[0]


if __name__ == "__main__":
    raise SystemExit(main())
