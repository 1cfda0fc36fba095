"""The rates of a full run as the Markdown table that README shows.

python -m tests.conformance full --json full.json
python -m tests.conformance.summary full.json
"""

import json
import sys
from pathlib import Path
from typing import Any

# metric, what it is called, and whether entries or samples are counted (as the goals do)
ROWS = (
    ("M1", "forward", "entries"),
    ("M2", "gradient", "entries"),
    ("M3", "reference and non-contiguous inputs", "samples"),
    ("M4", "dtype matrix (op, dtype) pairs", "entries"),
    ("M5i", "in-place", "entries"),
    ("M5o", "`out=`", "entries"),
    ("M6", "errors: raised, with torch's type", "samples"),
    ("M6t", "errors: torch's text", "samples"),
    ("M7", "strides of results", "samples"),
    ("M8", "double backward", "entries"),
)
TIERS = ("T0", "T1", "T2")


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


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())["rates"]))
