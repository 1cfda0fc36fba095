"""Spectral norm as a forward hook: the old form. New code uses `parametrizations.spectral_norm`."""

from __future__ import annotations

from typing import Any

from lucerne import linalg
from lucerne._src.tensor import api as lu
from lucerne.nn import functional as F
from lucerne.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from lucerne.nn.parameter import Parameter, UninitializedParameter
from lucerne.nn.utils import norms


class SpectralNorm:
    """Divides `<name>_orig` by its largest singular value before each forward."""

    _version = 1

    def __init__(
        self,
        name: str = "weight",
        n_power_iterations: int = 1,
        dim: int = 0,
        eps: float = 1e-12,
    ) -> None:
        self.name = name
        self.dim = dim
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Any) -> Any:
        """The weight with `dim` as rows and everything else as columns."""
        return norms.as_matrix(weight, self.dim)

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Any:
        """The weight over its largest singular value."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with lu.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(lu.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(lu.mv(matrix, v), dim=0, eps=self.eps))
            # Copies: the next forward writes over the vectors, and this backward needs them.
            u, v = u.clone(), v.clone()
        return weight / lu.dot(u, lu.mv(matrix, v))

    def remove(self, module: Any) -> None:
        """Make the weight a parameter again."""
        with lu.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        delattr(module, self.name + "_u")
        delattr(module, self.name + "_v")
        delattr(module, self.name + "_orig")
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        weight = self.compute_weight(module, do_power_iteration=module.training)
        setattr(module, self.name, weight)

    def _solve_v_and_rescale(self, weight_mat: Any, u: Any, target_sigma: Any) -> Any:
        """The right vector of checkpoints that kept only the left one."""
        inverse = linalg.pinv(weight_mat.t() @ weight_mat)
        v = (inverse @ weight_mat.t() @ u.unsqueeze(1)).squeeze(1)
        return v * (target_sigma / lu.dot(u, lu.mv(weight_mat, v)))

    @staticmethod
    def apply(module: Any, name: str, n_power_iterations: int, dim: int, eps: float) -> Any:
        """Replace the parameter by `<name>_orig` and two vectors, and hook the computation in."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two spectral_norm hooks on the same parameter {name}"
                )
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if isinstance(weight, UninitializedParameter):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make "
                "sure to run the dummy forward before applying spectral normalization"
            )
        with lu.no_grad():
            matrix = made.reshape_weight_to_matrix(weight)
            u = F.normalize(weight.new_empty(matrix.size(0)).normal_(0, 1), dim=0, eps=eps)
            v = F.normalize(weight.new_empty(matrix.size(1)).normal_(0, 1), dim=0, eps=eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(made)
        module._register_state_dict_hook(SpectralNormStateDictHook(made))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(made))
        return made


class SpectralNormLoadStateDictPreHook:
    """Reads checkpoints of the first form, which had no right vector."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        fn = self.fn
        version = local_metadata.get("spectral_norm", {}).get(fn.name + ".version", None)
        if version is not None and version >= 1:
            return
        key = prefix + fn.name
        complete = all(key + s in state_dict for s in ("_orig", "_u", "_v"))
        if version is None and complete and key not in state_dict:
            return
        missing = [key + s for s in ("_orig", "", "_u") if key + s not in state_dict]
        if missing:
            missing_keys.extend(missing if strict else [])
            return
        with lu.no_grad():
            original, weight = state_dict[key + "_orig"], state_dict.pop(key)
            sigma = (original / weight).mean()
            matrix = fn.reshape_weight_to_matrix(original)
            state_dict[key + "_v"] = fn._solve_v_and_rescale(matrix, state_dict[key + "_u"], sigma)


class SpectralNormStateDictHook:
    """Notes the form of a checkpoint in its metadata."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Any, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Keep the largest singular value of a weight at one, by a forward hook.

    >>> import lucerne as torch
    >>> m = torch.nn.utils.spectral_norm(torch.nn.Linear(2, 3))
    >>> list(m.state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if dim is None:
        dim = norms.out_dim(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Undo `spectral_norm`, keeping the weight's value."""

    def is_it(hook: Any) -> bool:
        return isinstance(hook, SpectralNorm) and hook.name == name

    mine = [k for k, hook in module._forward_pre_hooks.items() if is_it(hook)]
    if not mine:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    module._forward_pre_hooks.pop(mine[0]).remove(module)
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for k, hook in list(hooks.items()):
            inner = getattr(hook, "hook", hook)
            if is_it(getattr(inner, "fn", None)):
                del hooks[k]
    return module
