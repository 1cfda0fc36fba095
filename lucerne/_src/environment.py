"""What to paste into an issue: versions, machine, devices, settings that are not the usual ones."""

from __future__ import annotations

import dataclasses
import os
import platform
from importlib import metadata

from lucerne import version
from lucerne._src import contract
from lucerne._src.base.config import Config, config
from lucerne._src.tensor import api as lu

_PACKAGES = ("numpy", "llvmlite", "safetensors", "torch", "transformers", "jax")
_CPU_FILE = "/proc/cpuinfo"


def version_line() -> str:
    """`lucerne --version`.

    >>> version_line().startswith("lucerne 0")
    True
    """
    python = platform.python_version()
    return f"lucerne {version.lucerne} (follows PyTorch {version.follows}), Python {python}"


def processor() -> str:
    """The model's name, where the system tells it."""
    try:
        with open(_CPU_FILE, encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line[:10] == "model name"]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def packages() -> dict[str, str]:
    """Versions of what Lucerne uses, and of what it is often used with; without those missing."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def changed_settings() -> dict[str, object]:
    """Settings that are not what they are by default, by the name in the environment."""
    usual, home = Config(), os.path.expanduser("~")
    found: dict[str, object] = {}
    for field in dataclasses.fields(Config):
        value = getattr(config, field.name)
        if value != getattr(usual, field.name):
            shown = value.replace(home, "~") if isinstance(value, str) else value
            found[f"LUCERNE_{field.name.upper()}"] = shown
    return found


def rows() -> list[tuple[str, str]]:
    """Everything, by headings."""
    settings = [f"{name}={value}" for name, value in changed_settings().items()]
    return [
        ("Lucerne", f"{version.lucerne}, follows PyTorch {version.follows}"),
        ("Python", f"{platform.python_version()} ({platform.python_implementation()})"),
        ("System", platform.platform()),
        ("Processor", f"{processor()}, {os.cpu_count()} logical cores"),
        ("Threads", str(lu.get_num_threads())),
        ("Packages", ", ".join(f"{name} {found}" for name, found in packages().items())),
        *(("Device", line) for line in contract.device_lines()),
        ("Settings", ", ".join(settings) or "as usual"),
    ]


def text() -> str:
    """`rows`, for a terminal."""
    return "\n".join(f"{name + ':':<11}{value}" for name, value in rows())


def show() -> str:
    """`torch.__config__.show()`: what it is made of."""
    built = [f"{name} {found}" for name, found in packages().items() if name in _PACKAGES[:3]]
    return "\n  - ".join([version_line(), *built, f"CPU: {processor()}"]) + "\n"


def parallel_info() -> str:
    """`torch.__config__.parallel_info()`: how many threads kernels use."""
    count = lu.get_num_threads()
    return f"Lucerne\n\tget_num_threads() : {count}\n\tos.cpu_count() : {os.cpu_count()}\n"
