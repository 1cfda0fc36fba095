"""`Library` and the functions that register something for an op by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from lucerne._src.ir.overload import known_namespace
from lucerne._src.ir.schema import parse
from lucerne.library.definition import DEFAULT, CustomOpDef, defined, forget

Function = Callable[..., Any]

_KINDS = ("DEF", "IMPL", "FRAGMENT")
_ALIASES = ("", "FROM_SCHEMA", "CONSERVATIVE")
"""All mean the same here: the schema says what is shared and what is written."""
_OURS = ("aten", "prims", "lucerne")
"""Namespaces that exist from the start."""
_DEVICES = {
    "CPU": "cpu",
    "CUDA": "cuda",
    "XPU": "xpu",
    "MPS": "mps",
    "PrivateUse1": "privateuseone",
}
_libraries: dict[str, Library] = {}
"""The library that defined each namespace."""


def fallthrough_kernel() -> NoReturn:
    """Given to `Library.impl` in the place of a function: at this key the call goes on below."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """A namespace of operators, or an addition to one.

    `kind`: "DEF" defines a new namespace, "FRAGMENT" adds ops to one, "IMPL" adds kernels.

    >>> import lucerne as torch
    >>> lib = torch.library.Library("docs2", "DEF")
    >>> lib.define("plus(Tensor x, float y=1.0) -> Tensor")
    'plus'
    >>> lib.impl("plus", lambda x, y=1.0: x + y, "CPU")
    >>> torch.ops.docs2.plus(torch.zeros(2))
    tensor([1., 1.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in _KINDS:
            raise ValueError(f"Unsupported kind: {kind}. Expected one of {_KINDS}")
        if ns == "prim":
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        if kind == "DEF" and (ns in _libraries or ns in _OURS):
            raise RuntimeError(
                f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please "
                "put all of your definitions in a single TORCH_LIBRARY block. If you were trying "
                'to specify implementations, consider using kind "IMPL" (which can be duplicated). '
                "If you really intended to define operators for a single namespace in a "
                'distributed way, you can use "FRAGMENT" to explicitly indicate this.'
            )
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._ops: list[CustomOpDef] = []
        self._filled: set[tuple[str, str]] = set()
        if kind == "DEF":
            _libraries[ns] = self

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator by its schema; kernels come with `impl`."""
        if alias_analysis not in _ALIASES:
            raise RuntimeError(
                f"Invalid alias_analysis type {alias_analysis}: expected one of {_ALIASES}"
            )
        if self.kind == "IMPL":
            raise RuntimeError(
                "define() may only be called on a library of the kind DEF or FRAGMENT: "
                f'Library("{self.ns}", "FRAGMENT")'
            )
        read = parse(schema)
        name = read.name.partition("::")[2] or read.name
        full = read.renamed(f"{self.ns}::{name}", read.overload_name)
        over = f".{read.overload_name}" if read.overload_name else ""
        known = known_namespace(self.ns)
        packet = known._packets.get(name) if known is not None else None
        if packet is not None and (read.overload_name or "default") in packet.overloads():
            raise RuntimeError(
                f"Tried to register an operator ({full}) with the same name and overload name "
                "multiple times. Each overload's schema should only be registered with a single "
                "call to def()."
            )
        self._ops.append(CustomOpDef(full, tags if isinstance(tags, (list, tuple)) else [tags]))
        return name + over

    def impl(
        self,
        op_name: Any,
        fn: Function,
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Give an operator a kernel for a key: a device ("CPU"), "CompositeExplicitAutograd" (any
        device), "CompositeImplicitAutograd" (made of differentiable ops), "Autograd", "Meta"."""
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        op = defined(self._qualified(op_name))
        if not allow_override and (op._qualname, key) in self._filled:
            raise RuntimeError(f"{op._qualname} has a kernel for {key} already")
        self._filled.add((op._qualname, key))
        if with_keyset:
            given = fn
            fn = lambda *args, **kwargs: given(None, *args, **kwargs)  # noqa: E731
        enter_kernel(op, key, fn)

    def _qualified(self, op: Any) -> Any:
        if not isinstance(op, str):
            return op
        return op if "::" in op else f"{self.ns}::{op}"

    def fallback(
        self, fn: Function, dispatch_key: str = "", *, with_keyset: bool = False
    ) -> NoReturn:
        """A kernel for all ops of a device at once: there are interpreters for that."""
        raise NotImplementedError(
            "Library.fallback: a function that sees every op is an interpreter here, see "
            "docs/extend/interpreters.md (lucerne._src.ir.dispatch.Interpreter, TorchDispatchMode)"
        )

    def _register_fake(self, op_name: str, fn: Function, _stacklevel: int = 1,
                       *, allow_override: bool = True) -> None:  # fmt: skip
        defined(self._qualified(op_name)).register_fake(fn)

    def _destroy(self) -> None:
        """Take all its operators out again."""
        for op in self._ops:
            forget(op)
        self._ops.clear()
        if _libraries.get(self.ns) is self:
            del _libraries[self.ns]


def enter_kernel(op: CustomOpDef, key: str, fn: Function) -> None:
    """Put a kernel where a dispatch key of torch's says."""
    falls_through = fn is fallthrough_kernel
    if key == "CompositeImplicitAutograd":
        op.composite = None if falls_through else fn
    elif key in ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", DEFAULT):
        _set(op.kernels, DEFAULT, fn, falls_through)
    elif key == "Meta":
        op.fake_function = None if falls_through else fn
    elif key.startswith("Autograd"):
        op.autograd_kernel = None if falls_through else fn
    elif key.startswith("Autocast") and key != "Autocast":
        _set(op.autocast_kernels, key.removeprefix("Autocast").lower(), fn, falls_through)
    elif key == "Autocast" or key in ("ADInplaceOrView", "Functionalize", "BackendSelect"):
        if not falls_through:
            raise NotImplementedError(
                f"Library.impl: kernels for {key} are not taken. For autocast there is "
                "register_autocast; the rest needs no kernel here."
            )
    else:
        _set(op.kernels, _DEVICES.get(key, key.lower()), fn, falls_through)


def _set(kernels: dict[str, Function], device: str, fn: Function, drop: bool) -> None:
    if drop:
        kernels.pop(device, None)
    else:
        kernels[device] = fn


@contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A library whose operators exist inside the block only."""
    lib = Library(*args, **kwargs)
    try:
        yield lib
    finally:
        lib._destroy()


# ---- by name ---------------------------------------------------------------------------------


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> None:
    """Define an operator: `define("mylib::f", "(Tensor x) -> Tensor")`."""
    space, mark, name = qualname.partition("::")
    if not mark:
        raise ValueError(
            f'define(qualname, schema): expected qualname like "mylib::f", got {qualname!r}'
        )
    if not schema.startswith("("):
        raise ValueError(
            'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> '
            f'Tensor" but got "{schema}"'
        )
    owner = lib or _fragments.setdefault(space, Library(space, "FRAGMENT"))
    owner.define(name + schema, tags=tags)


_fragments: dict[str, Library] = {}


def impl(
    qualname: str,
    types: str | Sequence[str],
    func: Function | None = None,
    *,
    lib: Library | None = None,
) -> Any:
    """Give an operator a kernel for device types ("cpu", "default") or dispatch keys ("CPU")."""

    def enter(function: Function) -> Function:
        for kind in [types] if isinstance(types, str) else types:
            enter_kernel(defined(qualname), kind, function)
        return function

    return enter if func is None else enter(func)


def register_kernel(
    op: Any, device_types: Any, func: Function | None = None, /, *, lib: Library | None = None
) -> Any:
    """See `CustomOpDef.register_kernel`."""
    return defined(op).register_kernel(device_types, func)


def register_fake(
    op: Any, func: Function | None = None, /, *, lib: Library | None = None, _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:  # fmt: skip
    """See `CustomOpDef.register_fake`."""
    found = defined(op)
    if not allow_override and found.fake_function is not None:
        raise RuntimeError(
            f"register_fake: {found._qualname} has a fake impl already; with allow_override=True "
            "it is replaced"
        )
    return found.register_fake if func is None else found.register_fake(func)


def impl_abstract(
    qualname: str, func: Function | None = None, *, lib: Library | None = None, _stacklevel: int = 1
) -> Any:
    """The old name of `register_fake`."""
    return register_fake(qualname, func, lib=lib)


def register_autograd(
    op: Any,
    backward: Function,
    /,
    *,
    setup_context: Function | None = None,
    lib: Library | None = None,
) -> None:
    """See `CustomOpDef.register_autograd`."""
    defined(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Function | None = None, /, *, lib: Library | None = None) -> Any:
    """See `CustomOpDef.register_vmap`."""
    return defined(op).register_vmap(func)


def register_autocast(
    op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None
) -> None:
    """See `CustomOpDef.register_autocast`."""
    defined(op).register_autocast(device_type, cast_inputs)


def register_torch_dispatch(
    op: Any,
    torch_dispatch_class: Any,
    func: Function | None = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """See `CustomOpDef.register_torch_dispatch`."""
    return defined(op).register_torch_dispatch(torch_dispatch_class, func)


class SafeKernelFunction:
    """One kernel of an operator, to be called by hand."""

    def __init__(self, op: CustomOpDef, key: str, function: Function) -> None:
        self._op, self._key, self._function = op, key, function

    def __repr__(self) -> str:
        return f"<SafeKernelFunction({self._op._qualname}, {self._key})>"

    def call_boxed(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    __call__ = call_boxed


def get_kernel(op: Any, dispatch_key: Any) -> SafeKernelFunction:
    """The kernel that an operator has for a dispatch key; an error if it has none."""
    found, key = defined(op), str(dispatch_key).rpartition(".")[2]
    function = {
        "CompositeImplicitAutograd": found.composite,
        "CompositeExplicitAutograd": found.kernels.get(DEFAULT),
        "Meta": found.fake_function,
    }.get(key, found.kernels.get(_DEVICES.get(key, key.lower())))
    function = function or (None if key == "Meta" else found.kernels.get(DEFAULT))
    if function is None:
        raise RuntimeError(f"no kernel for {key} is registered for {found._qualname}")
    return SafeKernelFunction(found, key, function)


def triton_op(
    name: str, fn: Function | None = None, /, *, mutates_args: Any, schema: str | None = None
) -> NoReturn:
    """Triton compiles for graphics cards, and is not part of Lucerne."""
    raise RuntimeError(
        "triton_op: Triton is not available here. Write the kernel with lucerne.tiles (it runs on "
        "the processor, see docs/extend/tile_kernels.md), and make it an operator with custom_op."
    )


def wrap_triton(triton_kernel: Function, /) -> NoReturn:
    """See `triton_op`."""
    raise RuntimeError(
        "wrap_triton: Triton is not available here. Write the kernel with lucerne.tiles, see "
        "docs/extend/tile_kernels.md."
    )
