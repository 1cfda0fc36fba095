"""The page of names: every module and name behind the door, and what each is."""

from __future__ import annotations

from lucerne._src.as_torch import names
from lucerne._src.as_torch.kinds import NameTable

HEAD = """# Names behind `import torch`

What `lucerne.as_torch` answers to. The list is closed: what is not here, and not a public name of
Lucerne, raises as in a torch without it. Written by `lucerne torch names`.

Kinds: *same*, an object of Lucerne under torch's name; *class*, for annotations and `isinstance`;
*answers*, a function with one answer; *passes*, a decorator without effect; *value*; *refuses*, a
function that says why it cannot do it here.
"""


def as_markdown() -> str:
    """The page, as docs/extend/torch_names.md has it."""
    lines = [HEAD, "## Lucerne's own modules", ""]
    lines += [", ".join(f"`{name}`" for name in sorted(names.OWN)), ""]
    lines += ["## Names on top", ""]
    spaces = [(f"torch.{rest}" if rest else "torch", names.SPACES[rest]) for rest in names.SPACES]
    for title, found in sorted([*spaces, *names.BESIDE.items()], key=lambda row: row[0]):
        lines += [f"### `{title}`", "", found.why, ""]
        if found.rows:
            lines += ["| name | kind | what it is |", "|---|---|---|"]
            lines += _rows(found)
            lines.append("")
    return "\n".join(lines)


def _rows(found: NameTable) -> list[str]:
    """One line for all names of a kind that say the same."""
    together: dict[tuple[str, str], list[str]] = {}
    for name, entry in found.rows.items():
        together.setdefault((entry.kind, entry.says), []).append(f"`{name}`")
    return [f"| {', '.join(which)} | {kind} | {says} |" for (kind, says), which in together.items()]
