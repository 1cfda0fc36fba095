"""Tensor parallelism in torch's spelling: a style is placements of a module's parameters, and of
the values at its borders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any

from lucerne._src.backends.contract.placement import Placement, Replicate, Shard
from lucerne._src.base.process import notices
from lucerne._src.base.refusals import only
from lucerne._src.distributed.mesh.device_mesh import DeviceMesh, current_mesh
from lucerne._src.distributed.mesh.dtensor import place_in_memory
from lucerne._src.distributed.mesh.modules import at_border, each, own_tensors
from lucerne.nn.modules.linear import Linear
from lucerne.nn.modules.sparse import Embedding

Layouts = Placement | Sequence[Placement | None] | None


class ParallelStyle(ABC):
    """How `parallelize_module` treats a module."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        """Place its parameters, and hook its borders."""


class _OneInOneOut(ParallelStyle):
    """A layer with one input and one output. `use_local_output` is torch's: there each process
    goes on with a tensor of its own; here a value is whole, wherever its parts are."""

    def __init__(
        self, input_layout: Placement | None, output_layout: Placement, use_local_output: bool
    ) -> None:
        self.input_layouts, self.output_layouts = (input_layout,), (output_layout,)
        self.use_local_output = use_local_output

    def _hooked(self, module: Any, mesh: DeviceMesh, wanted: Placement) -> Any:
        given, made = self.input_layouts[0], self.output_layouts[0]

        def before(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            first = at_border(inputs[0], mesh, given)
            return (first if given == wanted else at_border(first, mesh, wanted), *inputs[1:])

        module.register_forward_pre_hook(before)
        module.register_forward_hook(lambda m, inputs, output: at_border(output, mesh, made))
        return module


class ColwiseParallel(_OneInOneOut):
    """A linear layer (or an embedding) whose output features are cut over the mesh."""

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output
        )

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        placement = _by_kind("ColwiseParallel", module, Shard(0), Shard(1))
        for _, t in own_tensors(module):
            place_in_memory(t, device_mesh, [placement])
        return self._hooked(module, device_mesh, Replicate())


class RowwiseParallel(_OneInOneOut):
    """A linear layer whose input features (an embedding whose rows) are cut over the mesh."""

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(input_layouts, output_layouts or Replicate(), use_local_output)

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        placement = _by_kind("RowwiseParallel", module, Shard(1), Shard(0))
        for name, t in own_tensors(module):
            place_in_memory(t, device_mesh, [placement if name == "weight" else Replicate()])
        wanted = _by_kind("RowwiseParallel", module, Shard(-1), Replicate())
        self.input_layouts = (self.input_layouts[0] or wanted,)
        return self._hooked(module, device_mesh, wanted)


class SequenceParallel(_OneInOneOut):
    """A layer (a norm, dropout) whose parameters are whole, and whose values are cut along the
    sequence."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        super().__init__(Shard(sequence_dim), Shard(sequence_dim), use_local_output)

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        for _, t in own_tensors(module):
            place_in_memory(t, device_mesh, [Replicate()])
        return self._hooked(module, device_mesh, self.output_layouts[0])


def _by_kind(style: str, module: Any, linear: Placement, embedding: Placement) -> Placement:
    if isinstance(module, Linear):
        return linear
    if isinstance(module, Embedding):
        return embedding
    raise NotImplementedError(
        f"{style} currently only support nn.Linear and nn.Embedding, not {type(module).__name__}: "
        "place other parameters with distribute_module"
    )


# ---- borders alone -------------------------------------------------------------------------------


def _several(layouts: Layouts) -> tuple[Placement | None, ...] | None:
    if layouts is None:
        return None
    return (layouts,) if isinstance(layouts, Placement) else tuple(layouts)


def _pair(what: str, have: Layouts, wanted: Layouts) -> tuple[Any, Any]:
    first, second = _several(have), _several(wanted)
    if (first is None) != (second is None) or len(first or ()) != len(second or ()):
        raise AssertionError(f"{what}_layouts and desired_{what}_layouts should have same length!")
    return first, second


class PrepareModuleInput(ParallelStyle):
    """What comes into a module, with other placements."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        pair = _pair("input", input_layouts, desired_input_layouts)
        self.input_layouts, self.desired_input_layouts = pair
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise AssertionError(
                "input_kwarg_layouts and desired_input_kwarg_layouts should name the same arguments"
            )
        self.use_local_output = use_local_output

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            for layouts, named in (
                (self.input_layouts, self.input_kwarg_layouts),
                (self.desired_input_layouts, self.desired_input_kwarg_layouts),
            ):
                if layouts is not None:
                    args = each(args, device_mesh, layouts)
                changed = {
                    k: at_border(kwargs[k], device_mesh, p) for k, p in named.items() if k in kwargs
                }
                kwargs = {**kwargs, **changed}
            return args, kwargs

        module.register_forward_pre_hook(before, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """What goes out of a module, with other placements."""

    def __init__(
        self,
        *,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        pair = _pair("output", output_layouts, desired_output_layouts)
        self.output_layouts, self.desired_output_layouts = pair
        self.use_local_output = use_local_output

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def after(module: Any, inputs: Any, output: Any) -> Any:
            found = each(output, device_mesh, self.output_layouts)
            return each(found, device_mesh, self.desired_output_layouts)

        module.register_forward_hook(after)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """Both."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)


# ---- plans ---------------------------------------------------------------------------------------


def parallelize_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Any:
    """A module by a plan: a style, or styles by the names of parts (`"layers.*.up"`). The mesh has
    one dimension: a part of a larger one (`mesh["model"]`) leaves the others as they are."""
    if src_data_rank is not None:
        why = "one process has the data"
        only("parallelize_module", "src_data_rank", src_data_rank, 0, why)
    mesh = current_mesh(device_mesh)
    if mesh.ndim != 1:
        raise ValueError(
            f"Tensor Parallel only accepts a 1D DeviceMesh, but found {mesh.ndim}D! If you have a "
            '2-D or N-D device_mesh, consider passing in device_mesh["model"]'
        )
    if parallelize_plan is None:
        notices.warn("No parallelize_plan is provided, so the module is left as it is.")
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(
            "Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
            f"{type(parallelize_plan)} found!"
        )
    for path, style in parallelize_plan.items():
        parts = list(_parts(module, path.split(".") if path else []))
        if not parts:
            notices.warn(f"parallelize_module: no part of the module is called {path!r}")
        for part in parts:
            style._apply(part, mesh)
    return module


def _parts(module: Any, path: list[str]) -> Iterator[Any]:
    """The parts of a module under a path whose names may be patterns."""
    if not path:
        yield module
        return
    for name, child in module.named_children():
        if fnmatch(name, path[0]):
            yield from _parts(child, path[1:])


@contextmanager
def loss_parallel() -> Iterator[None]:
    """Torch's block in which a cross entropy takes logits that are cut along the classes. Every op
    does here, with or without it."""
    yield
