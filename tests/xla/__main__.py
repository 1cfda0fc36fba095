"""`python -m tests.xla`: the device `xla`, all of it.

python -m tests.xla                # tests, long ones too, then conformance T0 (strict)
python -m tests.xla --tier T1      # another tier of the conformance
python -m tests.xla --only tests
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m tests.xla")
    made.add_argument("--tier", action="append", choices=["T0", "T1", "T2"])
    made.add_argument("--only", choices=["tests", "conformance"])
    options = made.parse_args()
    status = 0
    if options.only != "conformance":
        folder = str(Path(__file__).parent)
        status |= subprocess.call([sys.executable, "-m", "pytest", "-q", folder])
    if options.only != "tests":
        command = [sys.executable, "-m", "lucerne", "conformance", "--device", "xla", "--strict"]
        for tier in options.tier or ["T0"]:
            command += ["--tier", tier]
        status |= subprocess.call(command)
    return status


if __name__ == "__main__":
    sys.exit(main())
