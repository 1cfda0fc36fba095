"""One scenario in this process: `python -m tests.ecosystem.one NAME` prints a line of JSON.

`--other-kernels`: a real torch without oneDNN, on one thread: how far torch is from itself.
"""

import importlib.metadata
import json
import os
import sys
import time
import traceback

QUIET = {
    "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_TELEMETRY": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true",
    "WANDB_DISABLED": "true", "YOLO_OFFLINE": "1", "KERAS_BACKEND": "torch",
    "SCIPY_ARRAY_API": "1", "MPLBACKEND": "agg",
}  # fmt: skip
MARK = "RESULT "


def main(name: str, other: bool = False) -> int:
    os.environ.update(QUIET)
    if name.startswith("wandb"):
        del os.environ["WANDB_DISABLED"]
    import torch

    from tests.ecosystem import core, real_torch, ring, steps

    kept = real_torch.complete(torch)  # noqa: F841  (operators live as long as their library)
    torch.manual_seed(0)
    torch.set_num_threads(1 if other else 2)
    torch.backends.mkldnn.enabled = not other
    start = time.process_time()
    if name in core.SCENARIOS:
        library, scenario = core.SCENARIOS[name]
        run = steps.step("import", scenario)
        torch.manual_seed(0)
        if run is not None:
            _whole(run)
    else:
        library, scenario = ring.SCENARIOS[name]
        steps.step("all", scenario)
    told = {
        "name": name,
        "version": _version(library),
        "torch": str(torch.__version__),
        "seconds": round(time.process_time() - start, 2),
        "steps": steps.DONE,
    }
    print(MARK + json.dumps(told))
    return 0 if all(state == "ok" for _, state, _, _ in steps.DONE) else 1


def _whole(run):
    """Its steps are noted one by one; what fails between them fails the scenario."""
    from tests.ecosystem import steps

    try:
        run()
    except Exception as error:
        traceback.print_exc()
        steps.DONE.append(("between", f"{type(error).__name__}: {str(error)[:200]}", 0.0, []))


def _version(library: str) -> str:
    if not library:
        return "-"
    found = importlib.metadata.packages_distributions().get(library, [library])
    return importlib.metadata.version(found[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--other-kernels" in sys.argv))
