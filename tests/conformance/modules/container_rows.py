"""Rows for containers, base classes, parameters and whole transformers."""

import re
from collections import OrderedDict
from typing import Any

from tests.conformance.modules.rows import BOTH, EVAL, Row, given, numbers


def _stack(t: Any, module: Any, x: Any) -> Any:
    for layer in module:
        x = layer(x)
    return x


def _network(t: Any) -> Any:
    nn = t.nn
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5))


def _edited_sequential(t: Any) -> Any:
    nn = t.nn
    net = nn.Sequential(nn.Linear(3, 4))
    net.append(nn.Tanh())
    net.insert(1, nn.Linear(4, 4))
    net.extend([nn.Linear(4, 2), nn.Sigmoid()])
    net[1] = nn.Identity()
    del net[2]
    return net[:-1] + nn.Sequential(nn.Linear(2, 2))


def _named_sequential(t: Any) -> Any:
    nn = t.nn
    return nn.Sequential(OrderedDict(first=nn.Linear(3, 4), act=nn.GELU(), last=nn.Linear(4, 1)))


def _edited_list(t: Any) -> Any:
    nn = t.nn
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
    layers.append(nn.ReLU())
    layers.insert(0, nn.Tanh())
    layers[1] = nn.Identity()
    del layers[2]
    layers.pop(-1)
    layers.extend(nn.ModuleList([nn.Linear(3, 2)]))
    return layers + nn.ModuleList([nn.ReLU()])


def _list_facts(t: Any, module: Any) -> Any:
    return [
        len(module),
        [str(x) for x in module[1:3]],
        str(module[-1]),
        module[0] in module,
        dir(module)[:3],
    ]


def _dict_facts(t: Any, module: Any, x: Any) -> Any:
    module["new"] = t.nn.Identity()
    popped = module.pop("act")
    module.update({"again": popped})
    keys = [list(module), list(module.keys()), len(module), "fc" in module, "act" in module]
    return keys, module["fc"](x), [name for name, _ in module.items()]


def _parameter_list(t: Any, module: Any) -> Any:
    module.append(t.ones(2))
    module.extend([t.nn.Parameter(t.zeros(3), requires_grad=False), "text"])
    kinds = [type(p).__name__ for p in module]
    return kinds, len(module), module[0] * 2, repr(module), list(module.state_dict())


def _parameter_dict(t: Any, module: Any) -> Any:
    module["late"] = t.ones(2)
    copied = module | {"more": t.nn.Parameter(t.zeros(1))}
    module.setdefault("left", t.ones(1))
    taken = module.pop("left")
    facts = [list(module.keys()), "late" in module, len(copied), repr(copied)]
    return facts, taken, module["left2"] * 3, module.get("none", 7), list(module.state_dict())


def _parameter(t: Any, module: Any) -> Any:
    p = module.weight
    q = t.nn.Parameter(t.tensor([1, 2]), requires_grad=False)
    facts = [
        isinstance(p, t.nn.Parameter),
        isinstance(p, t.Tensor),
        p.is_leaf,
        repr(q),
        p.requires_grad,
    ]
    return facts, p * 2, isinstance(p + 1, t.nn.Parameter), isinstance(q.data, t.nn.Parameter)


def _with(t: Any, **members: Any) -> Any:
    module = t.nn.Module()
    for name, value in members.items():
        setattr(module, name, value)
    return module


def _buffer(t: Any, module: Any) -> Any:
    names = [name for name, _ in module.named_buffers()]
    b = module.kept
    facts = [isinstance(b, t.nn.Buffer), isinstance(b, t.Tensor), b.requires_grad]
    return names, list(module.state_dict()), facts, b + 1


def _uninitialized(kind: str) -> Any:
    def use(t: Any, module: Any) -> Any:
        p = getattr(t.nn, kind)()
        facts = [
            repr(p),
            isinstance(p, t.Tensor),
            isinstance(p, getattr(t.nn, kind)),
            p.requires_grad,
        ]
        refusals = [_refused(lambda: p.shape), _refused(lambda: p + 1), _refused(lambda: p.view(1))]
        p.materialize((2, 3))
        facts += [type(p).__name__, tuple(p.shape), str(p.dtype), p.requires_grad]
        return facts, refusals

    return use


def _refused(call: Any) -> list[str]:
    try:
        call()
    except Exception as error:
        return [type(error).__name__, re.sub(r"in <.*>", "in ...", str(error))]
    return ["nothing"]


def _options(t: Any, module: Any) -> Any:
    options = t.nn.LinearCrossEntropyOptions()
    return [repr(options), options == t.nn.LinearCrossEntropyOptions()]


def _own_module(t: Any) -> Any:
    """What people write: parameters, buffers, children, and an extra line in repr."""
    nn = t.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(t.ones(3))
            self.register_parameter("nothing", None)
            self.register_buffer("mean", t.zeros(3))
            self.register_buffer("hidden", t.zeros(1), persistent=False)
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
            self.again = self.inner[0]
            self.kept = 7

        def forward(self, x: Any) -> Any:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return self.inner(x) * self.scale + self.again(x)

        def extra_repr(self) -> str:
            return f"kept={self.kept}"

    return Block()


def _module_facts(t: Any, module: Any, x: Any) -> Any:
    seen: list[Any] = []
    handles = [
        module.register_forward_pre_hook(lambda m, args: seen.append(len(args))),
        module.register_forward_hook(lambda m, args, out: out * 2),
        module.register_full_backward_hook(lambda m, gi, go: seen.append((len(gi), len(go)))),
    ]
    y = module(x)
    for handle in handles:
        handle.remove()
    names = [[n for n, _ in module.named_parameters()], [n for n, _ in module.named_buffers()]]
    names.append([n for n, _ in module.named_parameters(remove_duplicate=False)])
    names.append([n for n, _ in module.named_modules(remove_duplicate=False)])
    names.append([n for n, _ in module.named_children()])
    refusals = [
        _refused(lambda: module.get_submodule("inner.9")),
        _refused(lambda: module.absent),
        _refused(lambda: module.register_buffer("mean", t.zeros(1))),
        _refused(lambda: module.register_parameter("a.b", None)),
        _refused(lambda: module.load_state_dict({"scale": t.ones(2), "odd": t.ones(1)})),
        _refused(lambda: setattr(module, "scale", t.ones(3))),
    ]
    return y, names, refusals, seen, str(module.get_submodule("inner.0")), y * module.scale


def _packed(t: Any, module: Any, x: Any) -> Any:
    pack = t.nn.utils.rnn.pack_padded_sequence(x, [4, 2], batch_first=True)
    out, state = module(pack)
    return t.nn.utils.rnn.pad_packed_sequence(out, batch_first=True), state


def _hidden_check(t: Any, module: Any) -> Any:
    facts = [module.mode, module.hidden_size, module.bidirectional, module.all_weights.__len__()]
    return facts, _refused(lambda: module.check_input(t.ones(2, 3, 9), None))


def _cell_facts(t: Any, module: Any) -> Any:
    return [tuple(p.shape) for p in module.parameters()]


def _decoder(t: Any, **more: Any) -> Any:
    layer = t.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, **more)
    return t.nn.TransformerDecoder(layer, 2, norm=t.nn.LayerNorm(8))


def _masked_decoder(t: Any, module: Any, x: Any, memory: Any) -> Any:
    mask = t.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
    return module(x, memory, tgt_mask=mask, tgt_is_causal=True)


CONTAINERS: dict[str, list[Row]] = {
    "Module": [
        Row(lambda t: t.nn.Module(), given((2,))),
        Row(_own_module, given((4, 3)), BOTH),
        Row(_own_module, given((4, 3)), use=_module_facts),
    ],
    "Sequential": [
        Row(_network, given((5, 3)), BOTH),
        Row(_edited_sequential, given((5, 3))),
        Row(_named_sequential, given((5, 3))),
        Row(lambda t: t.nn.Sequential(), given((2,))),
        Row(lambda t: t.nn.Sequential(t.nn.ReLU(), 3)),
    ],
    "ModuleList": [
        Row(
            lambda t: t.nn.ModuleList([t.nn.Linear(3, 3) for _ in range(3)]),
            given((2, 3)),
            use=_stack,
        ),
        Row(_edited_list, use=_list_facts),
        Row(_edited_list, given((2, 3)), use=_stack),
        Row(lambda t: t.nn.ModuleList([t.nn.Linear(3, 3), t.nn.ReLU()])[5], use=None),
        Row(lambda t: t.nn.ModuleList(), given((2, 3))),
    ],
    "ModuleDict": [
        Row(
            lambda t: t.nn.ModuleDict({"fc": t.nn.Linear(3, 2), "act": t.nn.ReLU()}),
            given((2, 3)),
            use=_dict_facts,
        ),
        Row(lambda t: t.nn.ModuleDict([["a", t.nn.Linear(2, 2)], ["b", t.nn.Tanh()]]), use=None),
        Row(lambda t: t.nn.ModuleDict({"a.b": t.nn.ReLU()}), use=None),
    ],
    "ParameterList": [
        Row(
            lambda t: t.nn.ParameterList([t.nn.Parameter(t.ones(2, 2)), t.zeros(3)]),
            use=_parameter_list,
        ),
        Row(lambda t: t.nn.ParameterList(t.ones(1) for _ in range(3)), use=None),
    ],
    "ParameterDict": [
        Row(
            lambda t: t.nn.ParameterDict({"left2": t.nn.Parameter(t.ones(2)), "right": t.zeros(3)}),
            use=_parameter_dict,
        ),
        Row(lambda t: t.nn.ParameterDict([("a", t.ones(1))]), use=None),
    ],
    "Container": [Row(lambda t: t.nn.Container(fc=t.nn.Linear(2, 3)), use=None)],
    "DataParallel": [
        Row(lambda t: t.nn.DataParallel(t.nn.Linear(3, 2)), given((4, 3)), BOTH),
        Row(lambda t: t.nn.DataParallel(_network(t)), given((4, 3)), EVAL),
    ],
    "RNNBase": [
        Row(
            lambda t: t.nn.RNNBase("LSTM", 3, 4, num_layers=2, bidirectional=True),
            use=_hidden_check,
        ),
        Row(lambda t: t.nn.RNNBase("GRU", 3, 4, bias=False, dropout=0.5, num_layers=2), use=None),
        Row(lambda t: t.nn.RNNBase("LSTM", 3, 4, proj_size=2), use=None),
        Row(lambda t: t.nn.RNNBase("QRNN", 3, 4), use=None),
        Row(lambda t: t.nn.RNNBase("LSTM", 3, 0), use=None),
        # batched and packed sequences, which module_db leaves out
        Row(lambda t: t.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), given((2, 4, 3))),
        Row(lambda t: t.nn.LSTM(3, 4, batch_first=True), given((2, 4, 3)), use=_packed),
        Row(lambda t: t.nn.GRU(3, 4, 2, batch_first=True), given((2, 4, 3)), use=_packed),
        Row(lambda t: t.nn.RNN(3, 4, nonlinearity="relu"), given((5, 2, 3), (1, 2, 4))),
        Row(lambda t: t.nn.LSTM(3, 4, 2, dropout=0.5), given((5, 2, 3)), BOTH),
        Row(lambda t: t.nn.LSTM(3, 4, proj_size=2), given((5, 2, 3))),
    ],
    "RNNCellBase": [Row(lambda t: t.nn.RNNCellBase(3, 4, True, num_chunks=2), use=_cell_facts)],
    "TransformerDecoder": [
        Row(_decoder, given((2, 3, 8), (2, 5, 8)), BOTH),
        Row(
            lambda t: _decoder(t, norm_first=True, activation="gelu"),
            given((2, 3, 8), (2, 5, 8)),
            BOTH,
        ),
        Row(lambda t: _decoder(t, dropout=0.0), given((2, 3, 8), (2, 5, 8)), use=_masked_decoder),
        # batched attention and a whole transformer in training, which module_db leaves out
        Row(
            lambda t: t.nn.MultiheadAttention(8, 2, 0.1, batch_first=True),
            lambda: [numbers(2, 3, 8)] * 3,
            BOTH,
        ),
        Row(
            lambda t: t.nn.MultiheadAttention(8, 2, kdim=4, vdim=6),
            given((3, 2, 8), (5, 2, 4), (5, 2, 6)),
        ),
        Row(lambda t: t.nn.Transformer(8, 2, 1, 2, 16), given((3, 2, 8), (4, 2, 8)), BOTH),
    ],
}

OTHERS: dict[str, list[Row]] = {
    "Parameter": [Row(lambda t: _with(t, weight=t.nn.Parameter(t.ones(2, 3))), use=_parameter)],
    "Buffer": [
        Row(
            lambda t: _with(
                t, kept=t.nn.Buffer(t.ones(2)), lost=t.nn.Buffer(t.ones(1), persistent=False)
            ),
            use=_buffer,
        )
    ],
    "UninitializedParameter": [
        Row(lambda t: t.nn.Module(), use=_uninitialized("UninitializedParameter"))
    ],
    "UninitializedBuffer": [
        Row(lambda t: t.nn.Module(), use=_uninitialized("UninitializedBuffer"))
    ],
    "LinearCrossEntropyOptions": [Row(lambda t: t.nn.Module(), use=_options)],
}
