"""python -m tests.onnx modules|ops|import [NAME ...]: the tables of docs/guide/onnx.md."""

from __future__ import annotations

import argparse
import sys

from tests.onnx import modules, nodes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx")
    parser.add_argument("what", choices=("modules", "import"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--opset", type=int)
    chosen = parser.parse_args()
    if chosen.what == "import":
        return nodes.run(chosen.names)
    return int(modules.run(chosen.names, chosen.opset) > 0)


if __name__ == "__main__":
    sys.exit(main())
