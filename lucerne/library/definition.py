"""CustomOpDef: one custom op with everything that was registered for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src import backends
from lucerne._src.base.process.profiler_hook import FRONT, Watch
from lucerne._src.ir import dispatch
from lucerne._src.ir.overload import OpOverload, namespace
from lucerne._src.ir.schema import MISSING, Schema, parse
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.eager import autocast
from lucerne._src.tensor.subclasses import torch_dispatch, torch_function
from lucerne.library import derivative
from lucerne.library.batching import enter_rule
from lucerne.library.binding import bind, split, tensors_of
from lucerne.library.entry import Entry, rebuilt
from lucerne.library.fake import NoFakeError
from lucerne.library.infer import infer_schema

Function = Callable[..., Any]
DEFAULT = "default"
"""The kernel for devices without one of their own."""
_state = dispatch.state


class _Inside(threading.local):
    """Ops whose `Autograd` kernel is running: they go on below it."""

    def __init__(self) -> None:
        self.ops: list[Any] = []


_inside = _Inside()


class CustomOpDef:
    """A custom op: call it, or call it as `torch.ops.namespace.name`.

    >>> import lucerne as torch
    >>> @torch.library.custom_op("docs::twice", mutates_args=())
    ... def twice(x: torch.Tensor) -> torch.Tensor:
    ...     return torch.from_numpy(x.numpy() * 2)
    >>> twice(torch.ones(2)), torch.ops.docs.twice.default._schema.name
    (tensor([2., 2.]), 'docs::twice')
    """

    def __init__(self, schema: Schema, tags: Sequence[Any] = ()) -> None:
        self.schema = schema
        self.tags = list(tags)
        space, _, self._name = schema.name.partition("::")
        self._namespace = space
        self.overload_name = schema.overload_name or "default"
        self.kernels: dict[str, Function] = {}
        self.disabled: frozenset[str] = frozenset()
        self.fake_function: Function | None = None
        self.backward: Function | None = None
        self.setup_context: Function | None = None
        self.vmap_function: Function | None = None
        self.casts: dict[str, Any] = {}
        self.autocast_kernels: dict[str, Function] = {}
        """By device type: what runs instead under autocast; it calls the op again below."""
        self.torch_dispatch: dict[type, Function] = {}
        self.composite: Function | None = None
        """A kernel that is differentiated through (`CompositeImplicitAutograd`)."""
        self.autograd_kernel: Function | None = None
        # Made now, not at the first call: a captured function must not change what it looks at.
        self._recorded = derivative.make_function(self)
        self.entry = Entry(self, schema)
        self.overload: OpOverload = (
            namespace(space).packet(self._name).enter(schema.overload_name, schema, self, None)
        )
        self.overload.op = self.entry.op
        self.overload.tags = self.tags
        _DEFINED[self._qualname] = self

    @property
    def _qualname(self) -> str:
        over = f".{self.schema.overload_name}" if self.schema.overload_name else ""
        return f"{self._namespace}::{self._name}{over}"

    @property
    def _opoverload(self) -> OpOverload:
        return self.overload

    @property
    def spelling(self) -> str:
        """`mylib.f.default`."""
        return str(self.overload)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def _world_parts(self) -> list[tuple[str, Any]]:
        """What decides what a program does that calls it: a stored one is used again only if none
        of it has changed."""
        return [
            ("name", self._qualname),
            ("schema", str(self.schema)),
            ("kernels", sorted(self.kernels.items(), key=lambda item: item[0])),
            ("disabled", sorted(self.disabled)),
            ("fake", self.fake_function),
            ("backward", self.backward),
            ("setup_context", self.setup_context),
            ("vmap", self.vmap_function),
            ("autocast", sorted(self.autocast_kernels.items(), key=lambda item: item[0])),
            ("casts", sorted(self.casts.items(), key=lambda item: item[0])),
            ("torch_dispatch", list(self.torch_dispatch.items())),
            ("composite", self.composite),
            ("autograd", self.autograd_kernel),
            ("tags", [str(t) for t in self.tags]),
        ]

    # ---- registration ------------------------------------------------------------------------

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: Function | None = None, /
    ) -> Any:
        """An implementation for a device type ("cpu"), several, or all others (None)."""

        def enter(function: Function) -> Function:
            for device in _listed(device_types):
                self.kernels[device or DEFAULT] = function
            return function

        return enter if fn is None else enter(fn)

    def register_fake(self, fn: Function, /) -> Function:
        """What the results look like, without computing them: needed by `compile` and `export`.

        The function gets tensors without values and returns such tensors (`torch.empty_like(x)`).
        """
        self.fake_function = fn
        return fn

    def register_autograd(
        self, backward: Function, /, *, setup_context: Function | None = None
    ) -> None:
        """The derivative: `backward(ctx, *grads)` gives a gradient (or None) for each input,
        `setup_context(ctx, inputs, output)` keeps what it needs."""
        if self.schema.is_mutable or any(r.alias for r in self.schema.returns):
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self!r} with "
                f"schema {self.schema}. Please create a functional operator and register an "
                "autograd formula for that."
            )
        self.backward, self.setup_context = backward, setup_context

    def register_vmap(self, func: Function | None = None) -> Any:
        """How it runs on batches: `func(info, in_dims, *args)` gives `(output, out_dims)`."""

        def enter(function: Function) -> Function:
            self.vmap_function = function
            enter_rule(self)
            return function

        return enter if func is None else enter(func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Under autocast, floating inputs are converted to `cast_inputs` before the op runs."""
        if not isinstance(device_type, str):
            raise ValueError(
                f"Passed device_type of type {type(device_type)} but expected a string such as "
                '"cpu"'
            )
        if device_type not in ("cpu", "cuda"):
            raise ValueError(f"Unknown device type: {device_type}")
        self.casts[device_type] = cast_inputs

    def register_torch_dispatch(
        self, torch_dispatch_class: Any, fn: Function | None = None, /
    ) -> Any:
        """What the op does on a subclass, or under a mode, with `__torch_dispatch__`."""

        def enter(function: Function) -> Function:
            self.torch_dispatch[torch_dispatch_class] = function
            return function

        return enter if fn is None else enter(fn)

    def register_effect(self, effect: Any) -> None:
        """Say that the op does more than its results show: compiled functions run it as Python."""
        self.tags.append(("effect", effect))

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Inside, the kernel of a device is used, or not (then the one for all devices is)."""
        if device_type not in self.kernels:
            raise ValueError(
                f"Attempted to set kernel for {device_type} but no kernel was registered for it "
                f"({self!r} has: {', '.join(self.kernels) or 'none'})"
            )
        before, named = self.disabled, {device_type}
        self.disabled = before - named if enabled else before | named
        try:
            yield
        finally:
            self.disabled = before

    # ---- calls -------------------------------------------------------------------------------

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        watcher = Watch.current
        span = None if watcher is None else watcher.begin(self.schema.name, FRONT, args)
        try:
            values = bind(self.schema, args, kwargs)
            given, named = split(self.schema, values)
            named = {k: v for k, v in named.items() if k in kwargs}
            return dispatch.entry.front(self.overload, self._unseen, tuple(given), named)
        finally:
            if watcher is not None and span is not None:
                watcher.end(span)

    def _unseen(self, *args: Any, **kwargs: Any) -> Any:
        """The call after subclasses and function modes had their say: autocast, then autograd."""
        return self.above(bind(self.schema, args, kwargs))

    def above(self, values: tuple[Any, ...]) -> Any:
        """Autocast, autograd, then what is below."""
        if self.autocast_kernels and _state.cast is not None and self not in _inside.ops:
            kernel = self._autocast_kernel(values)
            if kernel is not None:
                return self._inside_of(kernel, values)
        if self.casts and _state.cast is not None:
            return self._cast_call(values)
        if self.composite is not None and not self.kernels:
            given, named = split(self.schema, values)
            return self.composite(*given, **named)
        if self.autograd_kernel is not None and self not in _inside.ops:
            return self._autograd_call(values)
        tensors = tensors_of(values)
        recorded = _state.grad_enabled and any(t._needs_grad for t in tensors)
        if not recorded:
            return self.below(values)
        if self.schema.is_mutable or not self.schema.returns:
            with no_grad():
                return self.below(values)
        found = derivative.apply(self._recorded, values)
        listed = len(self.schema.returns) == 1 and self.schema.returns[0].type.is_list
        return list(found) if listed else found

    def _autocast_kernel(self, values: tuple[Any, ...]) -> Function | None:
        """The kernel for a device that a tensor is on and whose autocast is enabled."""
        kinds = {t._meta.device.type for t in tensors_of(values)}
        return next(
            (
                kernel
                for kind, kernel in self.autocast_kernels.items()
                if kind in kinds and autocast.is_autocast_enabled(kind)
            ),
            None,
        )

    def _inside_of(self, kernel: Function, values: tuple[Any, ...]) -> Any:
        """Call a kernel that may call the op again: then it goes on below."""
        given, named = split(self.schema, values)
        _inside.ops.append(self)
        try:
            return kernel(*given, **named)
        finally:
            _inside.ops.remove(self)

    def _cast_call(self, values: tuple[Any, ...]) -> Any:
        kinds = {t._meta.device.type for t in tensors_of(values)}
        kind = next((k for k in self.casts if k in kinds and autocast.is_autocast_enabled(k)), None)
        cast = _state.cast
        if kind is not None:
            values = tuple(_cast(v, self.casts[kind]) for v in values)
        _state.set_cast(None)
        try:
            return self.above(values)
        finally:
            _state.set_cast(cast)

    def _autograd_call(self, values: tuple[Any, ...]) -> Any:
        given, named = split(self.schema, values)
        assert self.autograd_kernel is not None
        _inside.ops.append(self)
        try:
            return dispatch.call_back(self.autograd_kernel, *given, **named)
        finally:
            _inside.ops.pop()

    def below(self, values: tuple[Any, ...]) -> Any:
        """Below autograd: interpreters that watch see the entry of the table."""
        watched = _state.kernel_level or _state.call_level
        if not watched and not (torch_function.dispatching and torch_dispatch.wanted(values)):
            return self.compute(values)
        if any(not r.type.is_tensor for r in self.schema.returns) or self._has_effect:
            return self._outside(values)
        if not self.schema.returns and not self.schema.is_mutable:
            return self._outside(values)
        found = dispatch.entry.run(self.entry.op, values)
        return rebuilt(self.schema, found if isinstance(found, tuple) else (found,), values)

    @property
    def _has_effect(self) -> bool:
        return any(isinstance(t, tuple) and t[0] == "effect" and t[1] for t in self.tags)

    def _outside(self, values: tuple[Any, ...]) -> Any:
        """A call that no graph can hold, because more happens than tensors show."""
        if dispatch.capturing():
            raise NoFakeError(
                f"{self.schema.name} returns a number or nothing at all, which a graph can't hold. "
                "Compiled functions run this call as Python, between two graphs."
            )
        return self.compute(values)

    def compute(self, values: tuple[Any, ...]) -> Any:
        """Run the kernel of the device, and hold it to what the schema says."""
        tensors = tensors_of(values)
        kinds = [t._meta.device.type for t in tensors]
        device = next((k for k in kinds if k != backends.HOST), kinds[0] if kinds else None)
        if device == backends.META:
            return self.fake(values)
        kernel = self._kernel(device)
        given, named = split(self.schema, values)
        before = [t._storage.version for t in self._targets(values)]
        result = kernel(*given, **named)
        for t, version in zip(self._targets(values), before, strict=True):
            if t._storage.version == version:  # written without an op, through NumPy for example
                t._storage.note_write()
        self._check_aliasing(result, tensors)
        return result

    def _targets(self, values: tuple[Any, ...]) -> list[Any]:
        return tensors_of(tuple(values[i] for i in self.schema.written))

    def _kernel(self, device: str | None) -> Function:
        if device is not None and device in self.kernels and device not in self.disabled:
            return self.kernels[device]
        if DEFAULT in self.kernels:
            return self.kernels[DEFAULT]
        if device is None and len(self.kernels) == 1:
            return next(iter(self.kernels.values()))
        if self.composite is not None:
            return self.composite
        have = ", ".join(k for k in self.kernels if k not in self.disabled) or "no device at all"
        raise NotImplementedError(
            f"Could not run '{self.schema.name}' with arguments from the "
            f"'{(device or '?').upper()}' backend. It has kernels for: {have}. Add one with "
            f"register_kernel({device!r}), or register_kernel(None) for all devices."
        )

    def _check_aliasing(self, result: Any, inputs: list[Any]) -> None:
        """A result is memory of its own, so that nobody needs to look for shared writes."""
        if any(r.alias for r in self.schema.returns):
            return
        outs = tensors_of(result if isinstance(result, tuple) else (result,))
        seen = {id(t._storage.buffer) for t in inputs if t._storage.nbytes}
        for o in outs:
            if o._storage.nbytes and id(o._storage.buffer) in seen:
                raise RuntimeError(
                    f"{self._name} (with implementation in {self.schema.name}): The output of this "
                    "custom operator (1) must not also be an input to this custom operator and (2) "
                    "may not alias any inputs to this custom operator or other returns. The most "
                    "common way to trigger this error is if we have y = custom_op(x) and y and x "
                    "are the same Tensor. Please instead return a clone of the offending output "
                    "tensor(s) (e.g. return x.clone()) or refactor the custom operator to not "
                    "return y."
                )
            seen.add(id(o._storage.buffer))

    def fake(self, values: tuple[Any, ...]) -> Any:
        """The results for tensors without numbers."""
        given, named = split(self.schema, values)
        if self.fake_function is not None:
            return self.fake_function(*given, **named)
        if self.composite is not None:
            return self.composite(*given, **named)
        if not self.schema.returns:
            return None
        raise NoFakeError(
            f"There was no fake impl registered for {self!r}. This is necessary for "
            "torch.compile/export/fx tracing to work. Please use "
            f"`{self._name}.register_fake` to add an fake impl."
        )


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_cast(v, dtype) for v in value)
    meta = getattr(value, "_meta", None)
    if meta is None or not meta.dtype.is_floating_point or meta.dtype.itemsize == 8:
        return value
    return value.to(dtype)


_DEFINED: dict[str, CustomOpDef] = {}
"""All custom ops, by qualified name."""


def _listed(device_types: str | Sequence[str] | None) -> list[str | None]:
    if device_types is None or isinstance(device_types, str):
        return [device_types]
    return list(device_types)


def defined(op: Any) -> CustomOpDef:
    """The custom op that a name, an overload, a packet or a CustomOpDef stands for."""
    if isinstance(op, CustomOpDef):
        return op
    if isinstance(op, OpOverload):
        op = op.name()
    elif not isinstance(op, str):
        op = f"{op.namespace}::{op.__name__}"
    name = op.removesuffix(".default")
    if name not in _DEFINED:
        raise RuntimeError(
            f"operator {name} does not exist: define it first, with "
            f'lucerne.library.custom_op("{name}") or Library.define'
        )
    return _DEFINED[name]


def known_op(name: str) -> CustomOpDef | None:
    """The custom op of a name, if there is one."""
    return _DEFINED.get(name)


def forget(op: CustomOpDef) -> None:
    """Take an op out of its namespace."""
    _DEFINED.pop(op._qualname, None)
    namespace(op._namespace).drop(op._name, op.schema.overload_name)


def custom_op(
    name: str,
    fn: Function | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make a function an operator: opaque to `compile`, known to autograd, vmap and the profiler.

    `name` is "namespace::name". The schema is read off the annotations unless it is given.
    `mutates_args` names the arguments it writes to. `device_types`: what it runs on (all, if None).

    >>> import lucerne as torch
    >>> @torch.library.custom_op("docs::sine", mutates_args=())
    ... def sine(x: torch.Tensor) -> torch.Tensor:
    ...     return torch.sin(x)
    >>> torch.ops.docs.sine(torch.zeros(2))
    tensor([0., 0.])
    """

    def make(function: Function) -> CustomOpDef:
        space, mark, own = name.partition("::")
        if not mark or not space or not own:
            raise ValueError(
                f'custom_op(): expected a name like "mylib::my_op" (a namespace, two colons, a '
                f"name), got {name!r}"
            )
        text = schema
        if text is None:
            text = infer_schema(function, mutates_args=mutates_args)
        read = parse(text, name=name)
        plain, _, overload = own.partition(".")
        read = read.renamed(f"{space}::{plain}", overload)
        _check(read, function, mutates_args if schema is not None else None)
        made = CustomOpDef(read, tags if isinstance(tags, (list, tuple)) else ())
        made.register_kernel(device_types, function)
        return made

    return make if fn is None else make(fn)


def _check(schema: Schema, function: Function, mutates_args: Any) -> None:
    if any(r.alias for r in schema.returns):
        raise ValueError(
            f"custom_op with schema {schema}: results that share memory with arguments are not "
            "supported. Return nothing, or a copy."
        )
    if mutates_args is None or mutates_args == "unknown":
        return
    said, found = set(mutates_args), {schema.arguments[i].name for i in schema.written}
    if said != found:
        raise ValueError(
            f"Attempted to create a custom op with `mutates_args={mutates_args}` and "
            f"`schema={schema}`. The schema suggests that the op mutates {sorted(found)} which is "
            "different from what was provided to us in `mutates_args`. Please make these "
            "consistent."
        )


__all__ = ["MISSING", "CustomOpDef", "custom_op", "defined", "forget", "known_op"]
