"""python -m tests.onnx modules|ops|import [NAME ...]: the tables of docs/guide/onnx.md."""

from __future__ import annotations

import argparse
import sys

from tests.onnx import modules, nodes, ops


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx")
    parser.add_argument("what", choices=("modules", "ops", "import"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--opset", type=int)
    parser.add_argument("--every", type=int, default=1, help="of the node tests, one of so many")
    parser.add_argument("--first", type=int, default=0, help="the first of these")
    chosen = parser.parse_args()
    if chosen.what == "import":
        return nodes.run(chosen.names, chosen.every, chosen.first)
    if chosen.what == "ops":
        return ops.run(chosen.names)
    return int(modules.run(chosen.names, chosen.opset) > 0)


if __name__ == "__main__":
    sys.exit(main())
