"""The rates of a full run as the Markdown table that README shows.

python -m tests.conformance full --json full.json
python -m tests.conformance.summary full.json

Several files are put together: a full run may be done metric by metric.
"""

import json
import sys
from pathlib import Path
from typing import Any

# metric, what it is called, and whether entries or samples are counted (as the goals do)
ROWS = (
    ("M1", "forward", "entries"),
    ("M2", "gradient", "entries"),
    ("M2c", "gradient of complex inputs", "entries"),
    ("M3", "reference and non-contiguous inputs", "samples"),
    ("M4", "dtype matrix (op, dtype) pairs", "entries"),
    ("M5i", "in-place", "entries"),
    ("M5o", "`out=`", "entries"),
    ("M6", "errors: raised, with torch's type", "samples"),
    ("M6t", "errors: torch's text", "samples"),
    ("M7", "strides of results", "samples"),
    ("M8", "double backward", "entries"),
    ("M8c", "double backward of complex inputs", "entries"),
)
TIERS = ("T0", "T1", "T2")

# the same for classes, which have no tiers
CLASS_ROWS = (
    ("M9", "modules of module_db"),
    ("M9n", "the same, non-contiguous inputs"),
    ("M9d", "the same, float64"),
    ("M9o", "modules that module_db lacks"),
    ("M9e", "modules, errors: raised, with torch's type"),
    ("M9t", "modules, errors: torch's text"),
    ("M10", "optimizers of optim_db"),
    ("M10e", "optimizers, errors: raised, with torch's type"),
    ("M10t", "optimizers, errors: torch's text"),
    ("M10s", "schedulers"),
    ("foreach", "ops over lists of tensors"),
)


def cell(rate: dict[str, int] | None, unit: str) -> str:
    """`213/213 (100.0 %)`, or a dash where nothing was run."""
    if not rate or not rate[unit]:
        return "-"
    passed, total = rate[f"{unit}_passed"], rate[unit]
    return f"{passed}/{total} ({100 * passed / total:.1f} %)"


def table(rates: dict[str, Any]) -> str:
    """One row a metric, one column a tier."""
    lines = ["| what | counted by | T0 | T1 | T2 |", "|---|---|---|---|---|"]
    for metric, name, unit in ROWS:
        if metric in rates:
            cells = " | ".join(cell(rates[metric].get(tier), unit) for tier in TIERS)
            lines.append(f"| {name} ({metric}) | {unit} | {cells} |")
    return "\n".join(lines)


def class_table(rates: dict[str, Any]) -> str:
    """Classes and their samples, one row a metric."""
    lines = ["| what | classes | samples |", "|---|---|---|"]
    for metric, name in CLASS_ROWS:
        if metric in rates:
            found = rates[metric]["all"]
            entries, samples = cell(found, "entries"), cell(found, "samples")
            lines.append(f"| {name} ({metric}) | {entries} | {samples} |")
    return "\n".join(lines)


if __name__ == "__main__":
    found = {}
    for path in sys.argv[1:]:
        found.update(json.loads(Path(path).read_text())["rates"])
    print(table(found))
    print()
    print(class_table(found))
