"""Hooks on tensors, on nodes of the graph and on what backward saves."""

from typing import Any

from tests.conformance.own_cases.tools import Rows, numbers, raises


def tensor_hook(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    seen: list[Any] = []
    handle = x.register_hook(lambda g: seen.append(g.clone()))
    x.register_hook(lambda g: g * 2)
    (x**2).sum().backward()
    handle.remove()
    (x * 3).sum().backward()
    return seen, x.grad


def hook_inside_graph(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + 1)
    (y**2).sum().backward()
    return x.grad


def hook_order_with_retain(t: Any) -> Any:
    x = numbers(t, 2, grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 5)
    y.sum().backward()
    return y.grad, x.grad


def hook_after_inplace(t: Any) -> Any:
    x = numbers(t, 2, grad=True)
    y = x * 1
    y.register_hook(lambda g: g * 3)
    y.mul_(2)
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    return x.grad


def accumulate_hook(t: Any) -> Any:
    x = numbers(t, 2, grad=True)
    seen: list[Any] = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    return seen


def node_hook(t: Any) -> Any:
    x = numbers(t, 2, grad=True)
    y = x.exp()
    seen: list[Any] = []
    y.grad_fn.register_hook(lambda ins, outs: seen.append((len(ins), len(outs))))
    y.grad_fn.register_prehook(lambda outs: tuple(g * 2 for g in outs))
    y.sum().backward()
    return seen, x.grad


def saved_hooks(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    packed: list[Any] = []

    def pack(saved: Any) -> int:
        packed.append(saved.detach().clone())
        return len(packed) - 1

    with t.autograd.graph.saved_tensors_hooks(pack, lambda i: packed[i] * 2):
        y = (x * x).sum()
    y.backward()
    return x.grad, len(packed)


def save_on_cpu(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    with t.autograd.graph.save_on_cpu():
        y = x.exp().sum()
    y.backward()
    return x.grad


def module_hooks(t: Any) -> Any:
    t.manual_seed(0)
    layer = t.nn.Linear(2, 2)
    seen: list[Any] = []
    layer.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    layer.register_forward_hook(lambda m, args, out: out + 1)
    layer.register_full_backward_hook(lambda m, gin, gout: seen.append(gout[0].clone()))
    x = numbers(t, 3, 2, grad=True)
    out = layer(x)
    out.sum().backward()
    return out, seen, x.grad


def graph_edges(t: Any) -> Any:
    x = numbers(t, 2, grad=True)
    y = x * 2
    edge = t.autograd.graph.get_gradient_edge(y)
    return edge.output_nr, edge.node is y.grad_fn


def multi_grad_hook(t: Any) -> Any:
    a, b = numbers(t, 2, grad=True), numbers(t, 2, seed=1, grad=True)
    seen: list[Any] = []
    handle = t.autograd.graph.register_multi_grad_hook((a, b), seen.append)
    (a * b).sum().backward()
    handle.remove()
    return len(seen), len(seen[0])


ROWS: Rows = {
    "tensor hook": tensor_hook,
    "hook inside the graph": hook_inside_graph,
    "hook and retain_grad": hook_order_with_retain,
    "hook and in-place": hook_after_inplace,
    "post-accumulate hook": accumulate_hook,
    "node hooks": node_hook,
    "saved tensors hooks": saved_hooks,
    "save on cpu": save_on_cpu,
    "module hooks": module_hooks,
    "gradient edge": graph_edges,
    "multi-grad hook": multi_grad_hook,
    "hook needs grad": lambda t: raises(
        lambda: t.ones(1).register_hook(lambda g: g), "doesn't require gradient"
    ),
}
