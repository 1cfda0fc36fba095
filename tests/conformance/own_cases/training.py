"""What training scripts call that no database of torch's has: utilities of nn, optim and data."""

import copy
import importlib
import itertools
from typing import Any

from tests.conformance.own_cases.tools import Rows, counted, numbers, raises

_FRESH = itertools.count()


def inplace_activations(t: Any) -> Any:
    F = t.nn.functional
    made = []
    for change in (F.elu_, F.hardtanh_, F.leaky_relu_):
        x = numbers(t, 3, 4)
        made.append((change(x) is x, x))
    return made


def pools(t: Any) -> Any:
    F = t.nn.functional
    x = numbers(t, 1, 2, 6, 6)
    cube = numbers(t, 1, 2, 4, 4, 4)
    corners = numbers(t, 1, 2, 2).sigmoid()
    deep = numbers(t, 1, 2, 3).sigmoid()
    return (
        F.lp_pool1d(numbers(t, 2, 3, 8).abs(), 2.0, 3, stride=2),
        F.lp_pool2d(x.abs(), 2.0, (2, 3)),
        F.lp_pool3d(cube.abs(), 3.0, 2, ceil_mode=True),
        F.max_pool2d_with_indices(x, 3, 2, 1),
        F.max_pool3d_with_indices(cube, 2),
        F.fractional_max_pool2d_with_indices(x, 2, output_size=3, _random_samples=corners),
        F.fractional_max_pool3d_with_indices(cube, 2, output_size=2, _random_samples=deep),
    )


def older_names(t: Any) -> Any:
    """Deprecated functions that still work."""
    init = t.nn.init
    t.manual_seed(3)
    made = [
        init.kaiming_normal(t.empty(3, 4)),
        init.kaiming_uniform(t.empty(3, 4), a=1.0),
        init.xavier_normal(t.empty(3, 4)),
        init.xavier_uniform(t.empty(3, 4), gain=2.0),
    ]
    return made, t.nn.functional.upsample(counted(t, 1, 1, 2, 2), scale_factor=2)


def sequences(t: Any) -> Any:
    rnn = t.nn.utils.rnn
    parts = [counted(t, 3, 2), counted(t, 2, 2), counted(t, 1, 2)]
    pack = rnn.pack_sequence(parts)
    padded, lengths = rnn.pad_packed_sequence(pack, batch_first=True)
    return (
        tuple(pack),
        isinstance(pack, rnn.PackedSequence),
        pack.is_cuda,
        rnn.unpad_sequence(padded, lengths, batch_first=True),
        raises(lambda: rnn.pack_sequence(parts[::-1]), "must be sorted in decreasing order"),
        tuple(pack.to(t.float64)),
    )


def fused_weights(t: Any) -> Any:
    utils = t.nn.utils
    mean, scale = numbers(t, 3, seed=1), numbers(t, 3, seed=2).abs()
    shift, factor = numbers(t, 3, seed=3), numbers(t, 3, seed=4)
    conv = utils.fuse_conv_bn_weights(
        numbers(t, 3, 2, 1, 1), None, mean, scale, 1e-5, factor, shift
    )
    linear = utils.fuse_linear_bn_weights(
        numbers(t, 3, 2), numbers(t, 3), mean, scale, 1e-5, factor, shift
    )
    return tuple(conv), tuple(linear)


def pruning(t: Any) -> Any:
    prune = importlib.import_module(f"{t.__name__}.nn.utils.prune")
    t.manual_seed(0)
    layer = t.nn.Linear(6, 4)
    prune.RandomUnstructured.apply(layer, "weight", 0.5)
    prune.RandomStructured.apply(layer, "weight", 1, dim=0)
    [hook] = layer._forward_pre_hooks.values()
    kinds = [type(method).__name__ for method in hook]
    together = isinstance(hook, prune.PruningContainer)
    return layer.weight_mask, layer.weight, kinds, together, len(hook)


def averaging(t: Any) -> Any:
    utils = t.optim.swa_utils
    average = utils.get_swa_multi_avg_fn()
    kept, new = [t.ones(2), t.zeros(3)], [t.zeros(2), t.ones(3)]
    average(kept, new, t.tensor(3))
    return kept


def classes(t: Any) -> Any:
    """Classes and constants that are only ever looked at."""
    parameter = t.nn.parameter
    constraints = t.distributions.constraints
    attention = t.nn.attention
    flex = importlib.import_module(f"{t.__name__}.nn.attention.flex_attention")
    mixin = parameter.UninitializedTensorMixin
    return (
        sorted(t.nn.functional.SwizzleType.__members__),
        issubclass(parameter.UninitializedParameter, mixin),
        isinstance(constraints.positive, constraints.Constraint),
        issubclass(constraints.MixtureSameFamilyConstraint, constraints.Constraint),
        issubclass(constraints.dependent_property, property),
        isinstance(attention.WARN_FOR_UNFUSED_KERNELS, bool),
        flex.AuxOutput._fields,
        sorted(flex.FlexKernelOptions.__annotations__),
    )


def load_settings(t: Any) -> Any:
    io = t.serialization
    kept = io.get_safe_globals()
    io.clear_safe_globals()
    io.add_safe_globals([complex])
    added = len(io.get_safe_globals())
    io.clear_safe_globals()
    none = len(io.get_safe_globals())
    io.add_safe_globals(kept)
    return added, none, str(io.get_default_load_endianness())


def data_pipes(t: Any) -> Any:
    data = t.utils.data

    name = f"doubled_{next(_FRESH)}"  # a name can be taken once in a process

    @data.functional_datapipe(name)
    class Doubler(data.IterDataPipe):  # type: ignore[misc, name-defined]
        def __init__(self, source: Any) -> None:
            self.source = source

        def __iter__(self) -> Any:
            return (2 * x for x in self.source)

    class Squares(data.MapDataPipe):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: int) -> int:
            return index * index

        def __len__(self) -> int:
            return 4

    chunk = data.DataChunk([3, 1, 2])
    pipe = getattr(Doubler([1, 2]), name)()
    return (
        list(pipe),
        [Squares()[i] for i in range(len(Squares()))],
        [list(chunk), list(chunk.raw_iterator()), chunk.as_str("- ")],
        issubclass(data.DFIterDataPipe, data.IterDataPipe),
    )


def data_validation(t: Any) -> Any:
    data = t.utils.data

    class Typed(data.IterDataPipe):  # type: ignore[misc, name-defined]
        @data.argument_validation
        def __init__(self, source: list) -> None:  # type: ignore[type-arg]
            self.source = source

        @data.runtime_validation
        def __iter__(self) -> Any:
            yield from self.source

    with data.runtime_validation_disabled():
        unchecked = list(Typed([1, "two"]))
    return unchecked  # checked iteration needs a type that torch sets on older Pythons only


def swapped(t: Any) -> Any:
    p, q = t.ones(2).requires_grad_(), t.zeros(2).requires_grad_()
    optimizer = t.optim.SGD([p], lr=0.5, momentum=0.9)
    p.grad, q.grad = t.ones(2), t.ones(2)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    with t.optim.swap_in_optimizer_params_and_state(optimizer, {"w": q}, state):
        optimizer.step()
    held = optimizer.param_groups[0]["params"][0] is p
    return p, q, held, optimizer.state_dict()["state"], state["state"]


ROWS: Rows = {
    "in-place activations": inplace_activations,
    "pools": pools,
    "dropout1d": lambda t: t.nn.functional.dropout1d(t.ones(2, 3, 4), 0.4),
    "older names": older_names,
    "sequences": sequences,
    "fused weights": fused_weights,
    "pruning": pruning,
    "averaging": averaging,
    "classes": classes,
    "load settings": load_settings,
    "data pipes": data_pipes,
    "data validation": data_validation,
    "swapped parameters": swapped,
}
