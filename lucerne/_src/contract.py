"""The contract a backend implements, as a table: what `lucerne primitives` prints."""

from __future__ import annotations

import inspect

from lucerne._src import backends
from lucerne._src.backends.contract.backend import Backend
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.scalar.protocol import REQUIRED, Scalar
from lucerne._src.tensor import bootstrap as bootstrap

_PRIMITIVE_KINDS = (op_.STRUCTURAL, op_.RANDOM, op_.REDUCTION)


def primitives() -> list[op_.Op]:
    """Ops that need a rule per backend, by kind and name."""
    found = [op for op in op_.table().values() if op.kind in _PRIMITIVE_KINDS]
    return sorted(found, key=lambda op: (_PRIMITIVE_KINDS.index(op.kind), op.qualified))


def optional_instructions() -> list[str]:
    """Scalar instructions with a default, which a backend may override."""
    return sorted(
        name
        for name, value in inspect.getmembers(Scalar, inspect.isfunction)
        if not name.startswith("_") and name not in REQUIRED
    )


def missing(device: str) -> list[str]:
    """Primitives that the backend of `device` has no rule for."""
    backend = backends.get(device)
    return [op.qualified for op in primitives() if not backend.supports(op)]


def abilities(device: str) -> tuple[list[str], list[str]]:
    """Of the contract's optional abilities: those the backend of `device` has, and the others."""
    has = backends.get(device).abilities
    return list(has), [name for name in Backend.OPTIONAL if name not in has]


def device_lines() -> list[str]:
    """What `lucerne devices` prints: every device with its platform, memory and dtypes."""
    found: list[str] = []
    for name in backends.names():
        try:
            backend = backends.get(name)
        except (RuntimeError, ImportError) as error:
            found.append(f"{name}: can't be used here: {error}")
            continue
        about = backend.about()
        memory = about.get("memory")
        room = "the host's" if not backend.own_memory else "its own"
        if memory:
            room += f", {memory / 1e9:.1f} GB"
        lacks = [d.name for d in dt.all_dtypes() if not backend.takes(d)]
        told = [str(about[key]) for key in ("platform", "engine") if about.get(key)]
        told += [f"memory {room}", f"dtypes: all but {', '.join(lacks)}" if lacks else "all dtypes"]
        if "take" in backend.abilities:
            told.append("captured graphs run whole")
        found.append(f"{name} ({len(backend.devices())}): {'; '.join(told)}")
    return found


def as_markdown() -> str:
    """The contract as it stands in docs/extend/primitives.md."""
    lines = [
        "# The contract of a backend",
        "",
        "Printed by `lucerne primitives --markdown`; a test keeps this file equal to that output.",
        "",
        f"## Scalar instructions a backend must have ({len(REQUIRED)})",
        "",
        "Bodies of pointwise ops are written in these.",
        "",
        ", ".join(f"`{name}`" for name in REQUIRED),
        "",
        f"## Scalar instructions with a default ({len(optional_instructions())})",
        "",
        "Override one when the machine has something better, "
        "or where the default says it needs help.",
        "",
        ", ".join(f"`{name}`" for name in optional_instructions()),
    ]
    for kind in _PRIMITIVE_KINDS:
        chosen = [op for op in primitives() if op.kind == kind]
        lines += [
            "",
            f"## {kind.capitalize()} primitives ({len(chosen)})",
            "",
            "| op | meaning |",
            "|---|---|",
        ]
        lines += [f"| `{signature(op)}` | {first_line(op)} |" for op in chosen]
    return "\n".join(lines) + "\n"


def signature(op: op_.Op) -> str:
    return f"{op.qualified}({', '.join(op.args)})"


def first_line(op: op_.Op) -> str:
    return op.doc.split("\n", 1)[0].replace("|", "\\|")
