"""`python -m benchmarks NAME ...`: one door to all benchmarks; without a name, a list of them.

python -m benchmarks                              what there is
python -m benchmarks suite --section attention    one of them, with its own arguments
python -m benchmarks compiled --help
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
INNER = {"__main__", "compare", "worker"}
"""Programs that others start."""


def available(folder: Path = HERE) -> dict[str, str]:
    """Names of the benchmarks, each with the first line of what its file says of itself."""
    files = [*folder.glob("*.py"), *folder.glob("*/__main__.py")]
    found = {}
    for file in files:
        name = (
            file.parent.name if file.name == "__main__.py" and file.parent != folder else file.stem
        )
        source = file.read_text(encoding="utf-8")
        if name not in INNER and 'if __name__ == "__main__":' in source:
            found[name] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return dict(sorted(found.items()))


def main(arguments: list[str]) -> int:
    known = available()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{__doc__}\n" + "\n".join(f"{name:<12} {line}" for name, line in known.items()))
        return 0
    name, *rest = arguments
    if name not in known:
        print(f"no benchmark {name!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", f"benchmarks.{name}", *rest]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
