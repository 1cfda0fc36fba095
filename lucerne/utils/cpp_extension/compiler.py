"""From sources to a shared library: the compiler, its command, what it says."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lucerne._src.base import config

_SECONDS = 1800
_C_SUFFIXES = (".c",)
_CPP_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++")
OBJECT_SUFFIXES = (".o", ".a")
_FLAGS = ("-O3", "-fPIC", "-fvisibility=hidden")
_STANDARD = "-std=c++17"


class CompileError(RuntimeError):
    """A compiler refused: its text is the message."""


@dataclass(frozen=True)
class Flags:
    """What a user gave to the compiler and the linker."""

    compile: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    include: tuple[str, ...] = ()


def get_cxx_compiler() -> str:
    """The C++ compiler: of the variable CXX, or `c++`."""
    return config.cxx_compiler() or "c++"


def find(kind: str) -> list[str]:
    """The command that compiles C ("cc") or C++ ("c++")."""
    asked = get_cxx_compiler() if kind == "c++" else "cc"
    names = (asked, *(("g++", "clang++") if kind == "c++" else ("gcc", "clang")))
    words = asked.split()
    if words and shutil.which(words[0]) is not None:
        return [str(shutil.which(words[0])), *words[1:]]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", kind]
    raise CompileError(
        f"there is no compiler here: none of {', '.join(names)} is on the PATH. Install one, name "
        "it in the variable CXX, or take the one that comes as a package: pip install ziglang"
    )


def identity(command: Sequence[str]) -> str:
    """What tells a compiler from others without running it: its file, or the version of zig."""
    if "ziglang" in command:
        spec = importlib.util.find_spec("ziglang")
        assert spec is not None
        file = Path(spec.origin or "")
    else:
        file = Path(os.path.realpath(command[0]))
    facts = file.stat()
    return f"{' '.join(command)} {file} {facts.st_size} {facts.st_mtime_ns}"


def processor(flags: Flags) -> str | None:
    """What flags such as -march=native depend on besides their text; None: nobody can say."""
    if not any("native" in flag for flag in flags.compile):
        return platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return None
    told = ("model name", "flags", "Features", "CPU part", "isa")
    return "\n".join(line for line in lines if line.startswith(told))


@dataclass
class Built:
    """A library, and the headers of the user's that it was made from."""

    library: Path
    headers: list[str]


def build(
    name: str,
    sources: Sequence[Path],
    folder: Path,
    flags: Flags,
    system: Sequence[str],
    verbose: bool = False,
) -> Built:
    """Compile sources in a folder; `system` are folders of headers that nobody edits."""
    objects: list[str] = []
    headers: dict[str, None] = {}
    includes = [w for p in system for w in ("-isystem", p)] + [f"-I{p}" for p in flags.include]
    for number, source in enumerate(sources):
        if source.suffix in OBJECT_SUFFIXES:
            objects.append(str(source))
            continue
        made, listed = folder / f"{number}.o", folder / f"{number}.d"
        is_c = source.suffix in _C_SUFFIXES
        command = [*find("cc" if is_c else "c++"), *_FLAGS, *(() if is_c else (_STANDARD,))]
        command += ["-MMD", "-MF", str(listed), *includes, *flags.compile]
        _run([*command, "-c", str(source), "-o", str(made)], source.parent, name, verbose)
        objects.append(str(made))
        headers |= dict.fromkeys(_listed(listed, source))
    library = folder / f"{name}.so"
    unbound = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    words = [*find("c++"), "-shared", *unbound, "-o", str(library), *objects, *flags.link]
    _run(words, folder, name, verbose)
    return Built(library, list(headers))


def check_kind(source: Path) -> None:
    """Raise for a source that is compiled by nobody here."""
    if source.suffix not in (*_C_SUFFIXES, *_CPP_SUFFIXES, *OBJECT_SUFFIXES):
        raise NotImplementedError(
            f"{source}: C ({', '.join(_C_SUFFIXES)}), C++ ({', '.join(_CPP_SUFFIXES)}) and objects "
            f"({', '.join(OBJECT_SUFFIXES)}) are compiled here; code for other devices is not"
        )
    if not source.is_file():
        raise FileNotFoundError(f"there is no source {source}")


def _run(words: list[str], folder: Path, name: str, verbose: bool) -> None:
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    said = (done.stdout + done.stderr).strip()
    if done.returncode:
        raise CompileError(
            f"Error building extension {name!r}: the compiler refused it "
            f"({done.returncode}).\n{said}\n\nThe command was: {' '.join(words)}"
        )
    if verbose:
        print(" ".join(words))
        if said:
            print(said)


def _listed(file: Path, source: Path) -> list[str]:
    """The headers in a list that the compiler wrote for make."""
    text = file.read_text().partition(":")[2].replace("\\\n", " ").replace("\\ ", "\0")
    found = [w.replace("\0", " ") for w in text.split()]
    paths = [os.path.normpath(os.path.join(source.parent, w)) for w in found]
    return [p for p in paths if p != os.path.normpath(source)]
