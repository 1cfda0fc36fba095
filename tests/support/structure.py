"""The structural rules of the package, as functions over its parsed source.

A check takes a `Package` (see `load`) and returns one line for each violation, `path:line: what`.
Tests run the checks on the real package, and on small ones with a planted violation.
"""

import ast
import functools
import graphlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Imports point to the same or a lower rank. What is not listed is public surface, just below the
# root package, which re-exports everything.
RANKS = {
    "base": 0,
    "ir": 1,
    "ops": 2,
    "backends": 3,
    "loops": 4,
    "transforms": 5,
    "pipeline": 6,
    "tensor": 7,
    "capture": 8,
}
SHARED_BY_BACKENDS = ("contract", "formulas")
"""Folders among the backends that are none."""
SURFACE_RANK = 9
ROOT_RANK = 10

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 100
MAX_FOLDER_FILES = 20
TORCH_FOLDERS = ("", "distributions", "nn/modules")
MAX_WINDOW_LINES = 15
HIDDEN_IMPORT_FILES = (
    "__init__.py",
    "autograd/__init__.py",
    "backends/__init__.py",
    "nn/parallel/__init__.py",
    "ops.py",
    "_src/backends/__init__.py",
    "_src/as_torch/finder.py",
    "_src/as_torch/kinds.py",
    "_src/ops/families.py",
    "_src/backends/cpu/rules/table.py",
    "_src/backends/contract/registry.py",
    "_src/base/process/forks.py",
    "_src/capture/__init__.py",
    "_src/capture/compiled.py",
    "_src/cli.py",
    "utils/__init__.py",
)
ENVIRONMENT_FILES = ("_src/base/config.py",)
OPTIONAL_DEPENDENCIES = {
    "jax", "jaxlib", "jinja2", "onnx", "onnxruntime", "scipy", "tokenizers", "tvm_ffi", "uvicorn",
}  # fmt: skip

COMPUTED = "<computed>"  # target of an import whose name is known only at run time
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOSE_TODO = re.compile(r"\b(TODO|FIXME)\b(?!\(#\d+\))")


@dataclass(frozen=True)
class Place:
    """A node of the syntax tree and what stands around it."""

    node: ast.AST
    hidden: bool  # inside a function
    owner: ast.ClassDef | None  # the class whose body holds it


@dataclass(frozen=True)
class Import:
    """A module names another: by statement, or by a call of importlib."""

    target: str
    line: int
    hidden: bool
    by_call: bool


@dataclass(frozen=True)
class Module:
    name: str  # dotted
    file: str  # relative to the package's folder
    path: str  # the same with the package's name, for messages
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.file.endswith("__init__.py")

    @functools.cached_property
    def places(self) -> list[Place]:
        return list(_walk(self.tree))

    @functools.cached_property
    def bound(self) -> set[str]:
        """Top-level names that are not merely submodules made visible."""
        names: set[str] = set()
        for node in self.tree.body:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.ImportFrom) and _origin(self, node) != self.name:
                names.update(alias.asname or alias.name for alias in node.names)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(target.id for target in targets if isinstance(target, ast.Name))
        return names

    def problem(self, line: int, what: str) -> str:
        return f"{self.path}:{line}: {what}"


@dataclass(frozen=True)
class Package:
    name: str
    modules: dict[str, Module]

    @functools.cached_property
    def imports(self) -> dict[str, list[Import]]:
        return {name: _imports(self, module) for name, module in self.modules.items()}

    def has(self, target: str) -> bool:
        """Whether an import target lies inside this package."""
        return target.split(".")[0] == self.name


Check = Callable[[Package], list[str]]


@functools.cache
def load(root: Path, having: str = "") -> Package:
    """Parse every module under the package folder `root`, each once per process.

    `having`: only those whose text has it, for a check that looks at few (parsing all takes long).
    """
    modules = {}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if having not in text:
            continue
        file = path.relative_to(root)
        parts = file.with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        shown = (root.name / file).as_posix()
        name = ".".join((root.name, *parts))
        modules[name] = Module(name, file.as_posix(), shown, text, ast.parse(text, shown))
    if not modules:
        what = f" with {having!r}" if having else ""
        raise FileNotFoundError(f"no Python module{what} under {root}: nothing would be checked")
    return Package(root.name, modules)


# Imports


def upward_imports(package: Package) -> list[str]:
    """Imports that point to a higher layer, wherever they stand; type-only ones count too."""
    problems = []
    for module, found in _inner_imports(package):
        mine, theirs = _rank(module.name), _rank(found.target)
        if theirs > mine:
            what = f"{module.name} (rank {mine}) may not import {found.target} (rank {theirs})"
            problems.append(module.problem(found.line, what))
    return problems


def concrete_backend_imports(package: Package) -> list[str]:
    """Imports of a backend's folder from outside it, be it from above or from another backend."""
    problems = []
    for module, found in _inner_imports(package):
        theirs = _backend(package, found.target)
        if theirs and theirs != _backend(package, module.name):
            what = f"{module.name} may not import backend {theirs!r}: get it from the registry"
            problems.append(module.problem(found.line, what))
    return problems


def import_cycles(package: Package) -> list[str]:
    """Cycles among modules; hidden and type-only imports count.

    Importing a module also runs its parent packages. Those edges are left out: the root
    re-exports everything, so with them every import would close a cycle.
    """
    lines: dict[str, dict[str, int]] = {name: {} for name in package.modules}
    for module, found in _inner_imports(package):
        if found.target in package.modules:
            lines[module.name].setdefault(found.target, found.line)
    problems = []
    while cycle := _find_cycle(lines):
        chain = " -> ".join(cycle)
        first, second = cycle[:2]
        problems.append(package.modules[first].problem(lines[first][second], f"cycle {chain}"))
        del lines[first][second]  # so that the next round finds another one
    return problems


def hidden_imports(package: Package) -> list[str]:
    """Imports inside functions, or by a computed name, outside the few files that may."""
    problems = []
    for module in package.modules.values():
        if module.file in HIDDEN_IMPORT_FILES:
            continue
        for found in package.imports[module.name]:
            if found.target == COMPUTED:
                problems.append(module.problem(found.line, "import by a computed name"))
            elif found.hidden and found.target.split(".")[0] not in OPTIONAL_DEPENDENCIES:
                what = f"import of {found.target} inside a function: move it to the top"
                problems.append(module.problem(found.line, what))
    return problems


def torch_imports(package: Package) -> list[str]:
    """Imports of PyTorch, which is the tests' oracle and never a dependency."""
    return [
        module.problem(found.line, f"import of {found.target}")
        for module in package.modules.values()
        for found in package.imports[module.name]
        if found.target.split(".")[0] == "torch"
    ]


# Size


def long_files(package: Package) -> list[str]:
    problems = []
    for module in package.modules.values():
        count = len(module.text.splitlines())
        if count > MAX_FILE_LINES:
            what = f"{count} lines, at most {MAX_FILE_LINES} allowed"
            problems.append(module.problem(count, what))
    return problems


def long_functions(package: Package) -> list[str]:
    problems = []
    for module, place in _places(package):
        if isinstance(place.node, FUNCTIONS):
            count = _body_lines(place.node)
            if count > MAX_FUNCTION_LINES:
                what = f"{place.node.name} has {count} lines, at most {MAX_FUNCTION_LINES} allowed"
                problems.append(module.problem(place.node.lineno, what))
    return problems


def crowded_folders(package: Package) -> list[str]:
    """Folders with more modules than one takes in at once; torch's own are as torch has them."""
    found = Counter(module.path.rpartition("/")[0] for module in package.modules.values())
    return [
        f"{folder}: {count} modules, at most {MAX_FOLDER_FILES} in a room"
        for folder, count in found.items()
        if count > MAX_FOLDER_FILES and folder.partition("/")[2] not in TORCH_FOLDERS
    ]


def long_windows(package: Package) -> list[str]:
    """Definitions at the top of the package that are more than a window on what is inside."""
    problems = []
    for module in package.modules.values():
        if "/" in module.file:
            continue
        for node in module.tree.body:
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and lines > MAX_WINDOW_LINES:
                what = f"{node.name} has {lines} lines: it belongs into _src"
                problems.append(module.problem(node.lineno, what))
    return problems


def repeated_classes(package: Package) -> list[str]:
    """Class names of the inside that two modules define: a reader would have to ask which is
    meant. Those with an underscore are known in their own file alone."""
    first: dict[str, Module] = {}
    problems = []
    for module in package.modules.values():
        inner = module.file.startswith("_src/")
        for node in module.tree.body if inner else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                other = first.setdefault(node.name, module)
                if other is not module:
                    what = f"class {node.name} is defined in {other.path} too"
                    problems.append(module.problem(node.lineno, what))
    return problems


# Habits


def environment_readers(package: Package) -> list[str]:
    """Uses of the process environment outside the configuration."""
    names = {"environ", "environb", "getenv", "getenvb"}
    problems = []
    for module, place in _places(package):
        if module.file in ENVIRONMENT_FILES:
            continue
        match place.node:
            case ast.Attribute(attr=attr, lineno=line) if attr in names:
                problems.append(module.problem(line, f"{attr}: only _src/base/config.py reads it"))
            case ast.ImportFrom(module="os", names=aliases, lineno=line):
                for attr in sorted(names & {alias.name for alias in aliases}):
                    problems.append(
                        module.problem(line, f"{attr}: only _src/base/config.py reads it")
                    )
    return problems


def ability_probes(package: Package) -> list[str]:
    """Questions whether an object has an ability of the contract: the class has a default for each,
    so that nobody needs to ask. The adapter alone meets objects that are none of it."""
    backend = package.modules.get("lucerne._src.backends.contract.backend")
    names = {
        member.name if isinstance(member, FUNCTIONS) else ast.unparse(member.target)
        for node in (backend.tree.body if backend else ())
        if isinstance(node, ast.ClassDef) and node.name in ("Backend", "Runner")
        for member in node.body
        if isinstance(member, (*FUNCTIONS, ast.AnnAssign))
    } - {"address", "kept", "memory", "write"}  # (words that other objects have too)
    problems = []
    for module, place in _places(package):
        match place.node:
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"),
                args=[_, ast.Constant(value=str(name)), *_],
                lineno=line,
            ) if name in names and not module.file.startswith("_src/backends/contract/"):
                what = f"{name} is an ability of the contract: call it, it has a default"
                problems.append(module.problem(line, what))
    return problems


def loose_todos(package: Package) -> list[str]:
    """Promises without an issue number."""
    return [
        module.problem(line, f"{match[1]} needs an issue number: {match[1]}(#123)")
        for module in package.modules.values()
        for line, text in enumerate(module.text.splitlines(), start=1)
        if (match := LOOSE_TODO.search(text))
    ]


def empty_bodies(package: Package) -> list[str]:
    """Functions of `pass` alone, or of `...` where no body is owed to anyone."""
    problems = []
    for module, place in _places(package):
        if not isinstance(place.node, FUNCTIONS):
            continue
        body = _body(place.node)
        only_pass = bool(body) and all(isinstance(node, ast.Pass) for node in body)
        only_dots = bool(body) and all(_is_dots(node) for node in body)
        if only_pass or (only_dots and not _is_declaration(place)):
            what = f"{place.node.name} has no body: write one, or say in a docstring why not"
            problems.append(module.problem(place.node.lineno, what))
    return problems


def unsafe_calls(package: Package) -> list[str]:
    """`eval`, and loading pickles: both run whatever the data says."""
    problems = []
    for module in package.modules.values():
        pickles = set(_pickle_names(module))
        for place in module.places:
            match place.node:
                case ast.Name(id="eval", ctx=ast.Load(), lineno=line):
                    problems.append(module.problem(line, "eval runs any code"))
                case ast.Attribute(value=ast.Name(id="builtins"), attr="eval", lineno=line):
                    problems.append(module.problem(line, "eval runs any code"))
                case ast.Attribute(value=ast.Name(id=name), attr="load" | "loads", lineno=line):
                    if name in pickles:
                        problems.append(module.problem(line, "loading a pickle runs any code"))
                case ast.ImportFrom(module="pickle" | "_pickle", names=aliases, lineno=line):
                    if {"load", "loads"} & {alias.name for alias in aliases}:
                        problems.append(module.problem(line, "loading a pickle runs any code"))
    return problems


# Helpers


def _walk(tree: ast.AST) -> Iterator[Place]:
    stack: list[Place] = [Place(tree, hidden=False, owner=None)]
    while stack:
        place = stack.pop()
        yield place
        hidden, owner = place.hidden, place.owner
        if isinstance(place.node, (*FUNCTIONS, ast.Lambda)):
            hidden, owner = True, None
        elif isinstance(place.node, ast.ClassDef):
            owner = place.node
        children = list(ast.iter_child_nodes(place.node))
        stack.extend(Place(child, hidden, owner) for child in reversed(children))


def _places(package: Package) -> Iterator[tuple[Module, Place]]:
    for module in package.modules.values():
        for place in module.places:
            yield module, place


def _inner_imports(package: Package) -> Iterator[tuple[Module, Import]]:
    """Imports between modules of the package, without what the backend registry loads by name."""
    for module in package.modules.values():
        is_registry = module.file == "_src/backends/__init__.py"
        for found in package.imports[module.name]:
            if package.has(found.target) and not (is_registry and found.by_call):
                yield module, found


def _imports(package: Package, module: Module) -> list[Import]:
    found: list[Import] = []
    for place in module.places:
        match place.node:
            case ast.Import(names=aliases):
                targets: Iterable[str] = [alias.name for alias in aliases]
            case ast.ImportFrom():
                targets = _from_targets(package, module, place.node)
            case ast.Call(func=ast.Name(id="import_module" | "__import__")):
                targets = [_called_target(module, place.node)]
            case ast.Call(func=ast.Attribute(attr="import_module")):
                targets = [_called_target(module, place.node)]
            case _:
                continue
        by_call = isinstance(place.node, ast.Call)
        line = place.node.lineno
        found.extend(Import(target, line, place.hidden, by_call) for target in targets)
    return found


def _from_targets(package: Package, module: Module, node: ast.ImportFrom) -> list[str]:
    """`from a import b` needs `a.b` if that is a module, and `a` if `a` itself makes the name."""
    origin = _origin(module, node)
    targets: dict[str, None] = {}  # ordered, without repeats
    for alias in node.names:
        inner = f"{origin}.{alias.name}"
        if inner in package.modules:
            targets[inner] = None
            if origin not in package.modules or alias.name not in package.modules[origin].bound:
                continue
        targets[origin] = None
    return list(targets)


def _origin(module: Module, node: ast.ImportFrom) -> str:
    """The module a `from` statement names, with leading dots resolved."""
    return _absolute(module, "." * node.level + (node.module or ""))


def _absolute(module: Module, name: str) -> str:
    level = len(name) - len(name.lstrip("."))
    if level == 0:
        return name
    parts = module.name.split(".")
    parts = parts[: len(parts) - level + module.is_package]
    return ".".join([*parts, *filter(None, name.split("."))])


def _called_target(module: Module, node: ast.Call) -> str:
    match node.args:
        case [ast.Constant(value=str(name)), *_]:
            return _absolute(module, name)
    return COMPUTED


def _rank(name: str) -> int:
    match name.split("."):
        case [_]:
            return ROOT_RANK
        case [_, "_src", layer, *_]:
            return RANKS.get(layer, SURFACE_RANK)
    return SURFACE_RANK


def _backend(package: Package, name: str) -> str | None:
    """The backend whose folder holds the module, if any."""
    parts = name.split(".")
    folder = package.modules.get(".".join(parts[:4]))
    inside = parts[1:3] == ["_src", "backends"] and len(parts) > 3
    if inside and parts[3] not in SHARED_BY_BACKENDS and folder and folder.is_package:
        return parts[3]
    return None


def _find_cycle(graph: dict[str, dict[str, int]]) -> list[str] | None:
    """One cycle, each module importing the next and the last being the first again."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle[::-1]
    return None


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """The statements after the docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, blank lines and comments between statements included."""
    body = _body(node)
    if not body:
        return 0
    first = body[0]
    decorators = first.decorator_list if isinstance(first, (*FUNCTIONS, ast.ClassDef)) else []
    start = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    return (node.end_lineno or start) - start + 1


def _is_dots(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and (
        isinstance(node.value, ast.Constant) and node.value.value is Ellipsis
    )


def _is_declaration(place: Place) -> bool:
    """A method of a protocol, an overload, or an abstract method."""
    assert isinstance(place.node, FUNCTIONS)
    bases = place.owner.bases if place.owner else []
    names = {_last_name(base) for base in [*bases, *place.node.decorator_list]}
    return bool(names & {"Protocol", "overload", "abstractmethod"})


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last_name(value)
    return ""


def _pickle_names(module: Module) -> Iterator[str]:
    for place in module.places:
        if isinstance(place.node, ast.Import):
            for alias in place.node.names:
                if alias.name in {"pickle", "_pickle", "cloudpickle", "dill"}:
                    yield alias.asname or alias.name


# For the tests of the checks themselves


def plant(folder: Path, files: dict[str, str]) -> Package:
    """Write a small package called `lucerne`, given by file, and load it."""
    root = folder / "lucerne"
    for file, text in files.items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for inner in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        (inner / "__init__.py").touch()
    return load(root)


def assert_none(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(sorted(problems))
