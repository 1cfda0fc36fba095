"""The reference: pages in Markdown from the docstrings of public names, which are Markdown too."""

from __future__ import annotations

import inspect
import re
import types
from pathlib import Path
from typing import Any

import lucerne
from tools.site.names import NAMESPACES, exported, namespace, of_the_top, top_names

FENCE = "`" * 6
ENTRY = re.compile(r"^`{5,6}\{py:", re.MULTILINE)
PAGE_LINK = re.compile(r"`?docs/((?:guide|inside|extend|proofs|results)/(\w+)\.md)`?")
ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>")


def signature(value: Any, bound: bool = False) -> str:
    """Arguments and their defaults. Types are left out: most of them would say `Any`."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = inspect.Parameter.empty
    bare = [p.replace(annotation=plain) for p in found.parameters.values()]
    if bound and bare and bare[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        bare = bare[1:]
    shown = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<class '([^']+)'>", r"\1", ADDRESS.sub("...", shown)).replace("\n", " ")


def text(value: Any) -> str:
    """A docstring as Markdown: examples are fenced, pages linked, headings none."""
    found: list[str] = []
    inside = False
    for line in (inspect.getdoc(value) or "").splitlines():
        begins = line.lstrip().startswith(">>>")
        if begins and not inside:
            found += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            found.append("```")
            inside = False
        if inside:
            found.append("" if line.strip() == "<BLANKLINE>" else line)
        else:
            found.append(PAGE_LINK.sub(r"[\2](../\1)", re.sub(r"^(\s*)#", r"\1\\#", line)))
    return "\n".join([*found, "```"] if inside else found).strip("\n")


def entry(kind: str, name: str, value: Any, body: str) -> str:
    shown = (
        ""
        if kind in ("property", "data")
        else signature(value, bound=kind in ("method", "classmethod"))
    )
    return f"{FENCE}{{py:{kind}}} {name}{shown}\n\n{body}\n{FENCE}\n"


def methods(owner: type, name: str) -> str:
    """Entries of what a class itself defines and describes."""
    found = []
    for key, value in sorted(vars(owner).items()):
        called = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if key.startswith("_") or key == "forward" or not inspect.getdoc(called):
            continue
        if isinstance(value, property):
            found.append(inner(entry("property", f"{name}.{key}", value, text(value))))
        elif isinstance(called, types.FunctionType):
            kind = {staticmethod: "staticmethod", classmethod: "classmethod"}.get(
                type(value), "method"
            )
            found.append(inner(entry(kind, f"{name}.{key}", called, text(called))))
    return "\n".join(found)


def inner(block: str) -> str:
    """An entry inside of another: its fence is shorter."""
    return block.replace(FENCE, FENCE[:-1])


def described(name: str, value: Any) -> str:
    if not inspect.isclass(value):
        return entry("function", name, value, text(value))
    body = text(value) if value.__doc__ else ""
    return entry("class", name, value, f"{body}\n\n{methods(value, name)}")


def page(title: str, module: str, names: dict[str, Any]) -> str:
    about = f"# {title}\n\n"
    return about + "\n".join(described(f"{module}.{name}", names[name]) for name in names)


def tensor_page() -> str:
    """Methods of tensors. One that is a function as well is told in a sentence, and linked."""
    functions = exported(lucerne)
    found = ["# Tensor", "", text(lucerne.Tensor), ""]
    letter = ""
    for name in sorted((n for n in dir(lucerne.Tensor) if not n.startswith("_")), key=str.lower):
        value = inspect.getattr_static(lucerne.Tensor, name)
        body = text(value)
        twin = functions.get(name)
        if twin is not None and body and inspect.getdoc(twin) == inspect.getdoc(value):
            link = f"See {{py:func}}`lucerne.{name}`."
            body = f"{body.partition(chr(10) + chr(10))[0]}\n\n{link}"
        if name[0].upper() != letter:
            letter = name[0].upper()
            found += [f"## {letter}", ""]
        kind = "method" if callable(value) else "property"
        found.append(entry(kind, f"lucerne.Tensor.{name}", value, body))
    return "\n".join(found)


def dtypes_page() -> str:
    """Element types, layouts and constants."""
    kinds = (lucerne.dtype, lucerne.layout, lucerne.memory_format, float)
    found = ["# Element types, layouts, constants", ""]
    for name, value in sorted(vars(lucerne).items()):
        if isinstance(value, kinds) and not name.startswith("_"):
            body = f"`{value!r}`"
            if isinstance(value, lucerne.dtype):
                body += f", {value.itemsize} bytes" if value.itemsize > 1 else ", 1 byte"
            found.append(entry("data", f"lucerne.{name}", value, body))
    return "\n".join(found)


def pages() -> dict[str, str]:
    """File names (without ending) and texts of all pages, in the order of the index."""
    found = {"tensor": tensor_page(), "dtypes": dtypes_page()}
    for name, (title, names) in of_the_top(top_names(lucerne)).items():
        found[name] = page(f"lucerne: {title}", "lucerne", names)
    for row in NAMESPACES:
        title = f"lucerne.{row.name}: {row.title}"
        found[row.name] = page(title, f"lucerne.{row.name}", namespace(row))
    return found


def index(found: dict[str, str]) -> str:
    rows = [
        f"| [{titled(body)}]({name}.md) | {len(ENTRY.findall(body))} |"
        for name, body in found.items()
    ]
    table = "\n".join(["| page | entries |", "|---|---|", *rows])
    tree = "\n".join(["```{toctree}", ":hidden:", "", *found, "```"])
    about = (
        "Public names with their docstrings, examples included: a test runs them all. Names are "
        "PyTorch's; where the package is imported by `import lucerne as torch`, read `torch` for "
        "`lucerne`."
    )
    return f"# Reference\n\n{about}\n\n{table}\n\n{tree}\n"


def titled(body: str) -> str:
    return body.partition("\n")[0].removeprefix("# ")


def write(folder: Path) -> int:
    """Write all pages; how many entries they have."""
    folder.mkdir(parents=True, exist_ok=True)
    found = pages()
    for name, body in found.items():
        (folder / f"{name}.md").write_text(body, encoding="utf-8")
    (folder / "index.md").write_text(index(found), encoding="utf-8")
    return sum(len(ENTRY.findall(body)) for body in found.values())
