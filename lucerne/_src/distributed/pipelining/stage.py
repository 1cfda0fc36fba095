"""`PipelineStage`: a part of a model on its own devices, and what it keeps of micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.contract.placement import MeshLayout, Replicate
from lucerne._src.base.refusals import only
from lucerne._src.distributed.mesh.device_mesh import DeviceMesh, mesh_of
from lucerne._src.distributed.mesh.dtensor import layout_of
from lucerne._src.ops.copy.place import placed
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.api import backward

Tensor = lu.Tensor
_SEEN = "shapes are seen when micro-batches come"
_PLACES = "a stage runs where its parameters lie: place them on its part of a mesh"


class PipelineStage:
    """A part of a model: `submodule` takes what the part before it gives. Its parameters say on
    which devices it runs (`fully_shard`, `parallelize_module`, `distribute_module` on a mesh of the
    stage's own); on no mesh all stages run on one device."""

    def __init__(
        self,
        submodule: Any,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        output_grads: Any = None,
        input_grads: Any = None,
        group: Any = None,
        dw_builder: Any = None,
        get_mesh: Any = None,
    ) -> None:
        given = {"input_args": input_args, "output_args": output_args}
        given |= {"output_grads": output_grads, "input_grads": input_grads}
        for name, value in given.items():
            only("PipelineStage", name, value, None, _SEEN)
        only("PipelineStage", "group", group, None, _PLACES)
        only("PipelineStage", "get_mesh", get_mesh, None, _PLACES)
        only("PipelineStage", "dw_builder", dw_builder, None, "a backward pass is one action")
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod, self.device = submodule, lu.device(device)
        self.stage_index, self.num_stages = stage_index, num_stages
        self._inputs: dict[int, list[Any]] = {}
        self._outputs: dict[int, tuple[Any, ...]] = {}

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    def mesh(self) -> DeviceMesh | None:
        """What its parameters lie on; None: no mesh."""
        layouts = (layout_of(p) for p in self.submod.parameters())
        found = next((layout for layout in layouts if layout is not None), None)
        return None if found is None else mesh_of(self.device.type, found)

    def moved(self, x: Any) -> Any:
        """A value on this stage's devices, cut as it was where it comes from if its mesh has the
        same shape."""
        if not isinstance(x, Tensor):
            return x
        mesh, x = self.mesh(), x.detach().to(self.device)
        if mesh is None:
            return x
        old, whole = layout_of(x), mesh.layout([Replicate()] * mesh.ndim, x.ndim)
        if old is None or old.is_partial or old.mesh.sizes != mesh.shape:
            return placed(x, whole)
        return placed(x, MeshLayout(whole.mesh, old.placements))

    # ---- one micro-batch -------------------------------------------------------------------------

    def forward_one(
        self, k: int, args: Sequence[Any], kwargs: dict[str, Any], kept: bool
    ) -> tuple[Any, ...]:
        """What a micro-batch gives; with `kept` all that its backward pass needs stays."""
        given = [self.moved(x) for x in args]
        if kept and not self.is_first:
            given = [x.requires_grad_() if _is_real(x) else x for x in given]
        made = self.submod(*given, **{name: self.moved(x) for name, x in kwargs.items()})
        outputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if kept:
            self._inputs[k], self._outputs[k] = given, outputs
        return outputs

    def backward_one(self, k: int, loss: Any, grads: Sequence[Any], share: float) -> list[Any]:
        """Gradients of a micro-batch's inputs; those of parameters are added up where they are."""
        inputs, outputs = self._inputs.pop(k), self._outputs.pop(k)
        if loss is not None:
            backward(loss, lu.full_like(loss, share))
        else:
            pairs = [
                (y, self.moved(g))
                for y, g in zip(outputs, grads, strict=True)
                if g is not None and y.requires_grad
            ]
            backward([y for y, _ in pairs], [g for _, g in pairs])
        return [getattr(x, "grad", None) for x in inputs]

    def forget(self) -> None:
        """Nothing of micro-batches that were broken off."""
        self._inputs.clear()
        self._outputs.clear()


def _is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
