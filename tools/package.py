"""`python -m tools.package FOLDER`: what is uploaded at a release, built and checked.

The source distribution and the wheel made of it go to FOLDER; `twine check` reads what an index
would show of them, and the wheel may have at most 5 MB.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 5_000_000
"""Bytes of a wheel."""


def problems(folder: Path) -> list[str]:
    """What is wrong with the files themselves."""
    wheels, sources = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    found = []
    if len(wheels) != 1 or len(sources) != 1:
        found.append(f"{len(wheels)} wheels and {len(sources)} source distributions, not one each")
    for wheel in wheels:
        if (size := wheel.stat().st_size) > LIMIT:
            found.append(f"{wheel.name} has {size:,} bytes, and {LIMIT:,} are allowed")
    return found


def main() -> int:
    folder = Path(sys.argv[1])
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    files = sorted(map(str, folder.iterdir()))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    for file in files:
        print(f"{Path(file).name}: {Path(file).stat().st_size:,} bytes")
    found = problems(folder)
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
