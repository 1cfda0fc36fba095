"""Programs with sizes that depend on the data, written for torch or for lucerne.

A row is called with the module and gives a function, the modules it uses, and what makes the
arguments of its k-th call.
"""

from typing import Any

Row = tuple[Any, list[Any], Any]


def moe_nonzero(torch: Any) -> Row:
    nn, F = torch.nn, torch.nn.functional
    gate, experts = nn.Linear(8, 4), nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def f(x: Any) -> Any:
        chosen, out = gate(x).argmax(-1), torch.zeros_like(x)
        for k, expert in enumerate(experts):
            rows = (chosen == k).nonzero().squeeze(-1)
            out.index_add_(0, rows, F.gelu(expert(x[rows])))
        return out

    return f, [gate, experts], lambda k: [torch.randn(6, 8)]


def moe_boolean_index(torch: Any) -> Row:
    nn, F = torch.nn, torch.nn.functional
    gate, experts = nn.Linear(8, 4), nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def f(x: Any) -> Any:
        p = F.softmax(gate(x), -1)
        chosen, out = p.argmax(-1), torch.zeros_like(x)
        for k, expert in enumerate(experts):
            mask = chosen == k
            out[mask] = expert(x[mask]) * p[mask, k].unsqueeze(-1)
        return out

    return f, [gate, experts], lambda k: [torch.randn(6, 8)]


def moe_topk(torch: Any) -> Row:
    nn, F = torch.nn, torch.nn.functional
    gate = nn.Linear(8, 4)
    experts = nn.ModuleList(
        [nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4)]
    )

    def f(x: Any) -> Any:
        weight, chosen = F.softmax(gate(x), -1).topk(2, -1)
        out = torch.zeros_like(x)
        for k, expert in enumerate(experts):
            rows, slot = (chosen == k).nonzero(as_tuple=True)
            out.index_add_(0, rows, expert(x[rows]) * weight[rows, slot].unsqueeze(-1))
        return out

    return f, [gate, experts], lambda k: [torch.randn(5, 8)]


def moe_that_skips_experts(torch: Any) -> Row:
    """A decision by the size."""
    nn = torch.nn
    gate, experts = nn.Linear(8, 2), nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])

    def f(x: Any) -> Any:
        chosen, out = gate(x).argmax(-1), torch.zeros_like(x)
        for k in range(2):
            rows = (chosen == k).nonzero().squeeze(-1)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, experts[k](x[rows]))
        return out

    return f, [gate, experts], lambda k: [torch.randn(4, 8)]


def gcn_with_pooling(torch: Any) -> Row:
    nn, F = torch.nn, torch.nn.functional
    first, last = nn.Linear(8, 8), nn.Linear(8, 3)

    def f(x: Any, edges: Any, batch: Any) -> Any:
        source, target = edges[0], edges[1]
        degree = torch.zeros(x.shape[0]).index_add_(0, target, torch.ones(target.shape[0]))
        mean = torch.zeros_like(x).index_add_(0, target, x[source]) / degree.clamp(min=1)[:, None]
        h = F.relu(first(mean))
        return last(torch.zeros(int(batch.max()) + 1, 8).index_add_(0, batch, h))

    return (
        f,
        [first, last],
        lambda k: [
            torch.randn(12, 8),
            torch.randint(0, 12, (2, 30)),
            torch.randint(0, 1 + k % 6, (12,)),
        ],
    )


def gat(torch: Any) -> Row:
    nn, F = torch.nn, torch.nn.functional
    weight, attention = nn.Linear(8, 8), nn.Linear(16, 1)

    def f(x: Any, edges: Any) -> Any:
        h, source, target = weight(x), edges[0], edges[1]
        both = torch.cat([h[source], h[target]], -1)
        e = F.leaky_relu(attention(both)).squeeze(-1).exp()
        n = target.max().item() + 1
        alpha = e / torch.zeros(n).index_add_(0, target, e)[target]
        out = torch.zeros(n, 8).index_add_(0, target, alpha[:, None] * h[source])
        return out.mean(0), out

    return (
        f,
        [weight, attention],
        lambda k: [torch.randn(12, 8), torch.randint(0, 1 + k % 10, (2, 30))],
    )


def masked_select_loss(torch: Any) -> Row:
    F, layer = torch.nn.functional, torch.nn.Linear(8, 8)

    def f(x: Any, y: Any) -> Any:
        found = layer(x).masked_select(y > 0.5)
        return F.mse_loss(found, y.masked_select(y > 0.5), reduction="sum")

    return f, [layer], lambda k: [torch.randn(5, 8), torch.randn(5, 8) * (k % 4 != 3)]


def loss_of_labelled_rows(torch: Any) -> Row:
    F, layer = torch.nn.functional, torch.nn.Linear(8, 4)

    def f(x: Any, target: Any) -> Any:
        kept = target != -100
        return F.cross_entropy(layer(x)[kept], target[kept])

    def arguments(k: int) -> list[Any]:
        target = torch.randint(0, 4, (6,))
        return [torch.randn(6, 8), target.masked_fill(torch.rand(6) < [0.2, 0.9, 1][k % 3], -100)]

    return f, [layer], arguments


def unique_and_bincount(torch: Any) -> Row:
    def f(x: Any, i: Any) -> Any:
        values, inverse = torch.unique(i, return_inverse=True)
        count = torch.bincount(inverse)
        total = torch.zeros(values.shape[0], 8).index_add_(0, inverse, x)
        return total / count[:, None], values, count

    return f, [], lambda k: [torch.randn(7, 8), torch.randint(0, 1 + k % 5, (7,))]


def mask_assignment(torch: Any) -> Row:
    def f(x: Any, y: Any) -> Any:
        z = x.clone()
        z[y > 0] = 0.5
        z[y < -1] = y[y < -1] * 2
        return z * 2

    return f, [], lambda k: [torch.randn(5, 8), torch.randn(5, 8) - 3 * (k % 2)]


def argument_written_to(torch: Any) -> Row:
    def f(x: Any, y: Any) -> Any:
        rows = (y > 0).nonzero().squeeze(-1)
        with torch.no_grad():
            x.index_add_(0, rows, torch.ones(rows.shape[0], 8))
        return x.detach().sum() + rows.numel(), rows

    return f, [], lambda k: [torch.randn(5, 8), torch.randn(5) - (k % 3)]


def sizes_returned(torch: Any) -> Row:
    def f(x: Any) -> Any:
        rows = (x[:, 0] > 0).nonzero()
        return rows.shape[0], len(rows) * 2, tuple(rows.shape), x * rows.shape[0]

    return f, [], lambda k: [torch.randn(5, 8)]


def decision(torch: Any) -> Row:
    def f(x: Any) -> Any:
        rows = (x[:, 0] > 0).nonzero().squeeze(1)
        return x[rows].sum(0) if rows.shape[0] > 2 else x.mean(0)

    return f, [], lambda k: [torch.randn(5, 8)]


def mask_changed_in_between(torch: Any) -> Row:
    """Two masks, though they are one tensor."""

    def f(x: Any, given: Any) -> Any:
        mask = given > 0
        before = x.detach()[mask]
        mask[0] = ~mask[0]
        after = x.detach()[mask]
        return before.sum(0), after.sum(0), before.shape[0], after.shape[0]

    return f, [], lambda k: [torch.randn(5, 8), torch.randn(5)]


def alias_of_the_mask_changed(torch: Any) -> Row:
    def f(x: Any, given: Any) -> Any:
        mask = given > 0
        part = mask[1:]
        before = x.detach()[mask]
        part.logical_not_()
        return before * 2, x.detach()[mask] * 3

    return f, [], lambda k: [torch.randn(5, 8), torch.randn(5)]


def squeezed(torch: Any) -> Row:
    """Sizes of 1 are another program."""

    def f(x: Any) -> Any:
        found = x[(x[:, 0] > 0.5).nonzero()]
        return found.squeeze(), found.sum()

    return f, [], lambda k: [torch.randn(4, 8)]


def two_masks_of_equal_size(torch: Any) -> Row:
    def f(x: Any, given: Any) -> Any:
        return x[given > 0] + x[given.flip(0) > 0]

    return f, [], lambda k: [torch.randn(6, 8), torch.randn(6)]


def mask_of_what_a_mask_found(torch: Any) -> Row:
    F, layer = torch.nn.functional, torch.nn.Linear(8, 8)

    def f(x: Any) -> Any:
        found = F.relu(layer(x[x[:, 0] > 0]))
        return found[found[:, 1] > 0].sum(0), found.mean() if found.shape[0] else x.mean()

    return f, [layer], lambda k: [torch.randn(6, 8)]


def slice_up_to_a_number(torch: Any) -> Row:
    def f(x: Any, n: Any) -> Any:
        k = int(n.max())
        return x[:, :k] * 2, x[:, :k].sum()

    return f, [], lambda k: [torch.randn(4, 8), torch.randint(0, 9, (3,))]


def padding_mask(torch: Any) -> Row:
    def f(lengths: Any) -> Any:
        return torch.arange(int(lengths.max()))[None, :] < lengths[:, None]

    return f, [], lambda k: [torch.randint(0, 6, (4,))]


def detached(torch: Any) -> Row:
    layer = torch.nn.Linear(8, 8)

    def f(x: Any) -> Any:
        mask = x[:, 0] > 0
        with torch.no_grad():
            target = layer(x[mask])
        return ((layer(x[mask]) - target * 0.5) ** 2).sum() + layer(x[mask]).detach().sum()

    return f, [layer], lambda k: [torch.randn(6, 8)]


def inside_modules(torch: Any) -> Row:
    nn = torch.nn

    class Pool(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Any, batch: Any) -> Any:
            return torch.zeros(int(batch.max()) + 1, 8).index_add_(0, batch, self.layer(x))

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.pools, self.norm = nn.ModuleList([Pool(), Pool()]), nn.LayerNorm(8)

        def forward(self, x: Any, batch: Any) -> Any:
            return sum(self.norm(p(x, batch)).tanh().sum() for p in self.pools)

    net = Net()
    return net, [net], lambda k: [torch.randn(6, 8), torch.randint(0, 1 + k % 5, (6,))]


def number_of_either_sign(torch: Any) -> Row:
    def f(x: Any, i: Any) -> Any:
        return x * int(i.min())

    return f, [], lambda k: [torch.randn(4, 8), torch.randint(-3, 4, (4,))]


def frames_of_durations(torch: Any) -> Row:
    """Text to speech: each symbol as often as it lasts."""
    layer = torch.nn.Linear(8, 8)

    def f(x: Any, durations: Any) -> Any:
        return torch.repeat_interleave(layer(x), durations, dim=0).relu().cumsum(0)

    return f, [layer], lambda k: [torch.randn(4, 8), torch.randint(1 - k % 2, 4, (4,))]


def frames_of_batches(torch: Any) -> Row:
    """As many in all for each of the batch."""

    def f(x: Any, durations: Any) -> Any:
        rows = [torch.repeat_interleave(a, d, dim=0) for a, d in zip(x, durations, strict=True)]
        return torch.stack(rows).tanh()

    def given(k: int) -> list[Any]:
        return [torch.randn(2, 3, 8), torch.tensor([[1, 2, 1 + k], [2, 2, k]])]

    return f, [], given


def frames_of_known_number(torch: Any) -> Row:
    def f(x: Any, durations: Any) -> Any:
        return torch.repeat_interleave(x, durations, dim=0, output_size=6) * 2

    return f, [], lambda k: [torch.randn(3, 8), torch.tensor([k % 3, 2, 4 - k % 3])]


ROWS = [
    frames_of_durations, frames_of_batches, frames_of_known_number,
    moe_nonzero, moe_boolean_index, moe_topk, moe_that_skips_experts, gcn_with_pooling, gat,
    masked_select_loss, loss_of_labelled_rows, unique_and_bincount, mask_assignment,
    argument_written_to, sizes_returned, decision, mask_changed_in_between,
    alias_of_the_mask_changed, squeezed, two_masks_of_equal_size, mask_of_what_a_mask_found,
    slice_up_to_a_number, padding_mask, detached, inside_modules, number_of_either_sign,
]  # fmt: skip
