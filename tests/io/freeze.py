"""Writes tests/io/data with torch, for runs without it: `python -m tests.io.freeze`."""

from __future__ import annotations

from pathlib import Path

from tests.io.corpus import CASES

DATA = Path(__file__).parent / "data"
KEPT = (
    "every_dtype", "shapes", "views", "tied", "parameters", "buffers", "state_dict",
    "optimizer_state", "small_values", "python_values", "more_python", "numpy_values", "generator",
    "meta_tensors",
)  # fmt: skip
LEGACY = ("every_dtype", "tied", "state_dict", "views")


def main() -> None:
    import torch

    DATA.mkdir(exist_ok=True)
    for name in KEPT:
        torch.save(CASES[name](torch), DATA / f"{name}.pt")
    for name in LEGACY:
        path = DATA / f"{name}.legacy.pt"
        torch.save(CASES[name](torch), path, _use_new_zipfile_serialization=False)
    print(sum(path.stat().st_size for path in DATA.iterdir()), "bytes")


if __name__ == "__main__":
    main()
