"""Programs as people write them, each inside of one compiled function: models, optimizers and
schedulers are made there, state is kept in objects, numbers are printed, compared and stored.

A recipe gets the package, `nn` and `nn.functional`, and returns whatever it has to show.
"""

import math

RECIPES = []


def c(f):
    RECIPES.append(f)
    return f


@c
def train_loop(torch, nn, F):
    m = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 3)
    )
    o = torch.optim.AdamW(m.parameters(), lr=0.01)
    s = torch.optim.lr_scheduler.CosineAnnealingLR(o, 5)
    log = {"loss": []}
    for e in range(5):
        x = torch.ones(6, 4) * e
        y = torch.tensor([0, 1, 2, 0, 1, 2])
        m.train()
        o.zero_grad(set_to_none=True)
        l = F.cross_entropy(m(x), y)
        l.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
        s.step()
        log["loss"].append(l.item())
        m.eval()
        with torch.no_grad():
            log.setdefault("acc", []).append((m(x).argmax(1) == y).float().mean().item())
    return log, [p for p in m.parameters()], s.get_last_lr(), m[1].running_mean


@c
def gan(torch, nn, F):
    g, d = nn.Linear(2, 4), nn.Linear(4, 1)
    og, od = torch.optim.Adam(g.parameters(), 0.01), torch.optim.Adam(d.parameters(), 0.01)
    r = []
    for i in range(3):
        z = torch.ones(3, 2) * i
        real = torch.ones(3, 4)
        od.zero_grad()
        ld = F.binary_cross_entropy_with_logits(
            d(real), torch.ones(3, 1)
        ) + F.binary_cross_entropy_with_logits(d(g(z).detach()), torch.zeros(3, 1))
        ld.backward()
        od.step()
        og.zero_grad()
        lg = F.binary_cross_entropy_with_logits(d(g(z)), torch.ones(3, 1))
        lg.backward()
        og.step()
        r.append((ld.item(), lg.item()))
    return r, [p.grad for p in d.parameters()], [p for p in g.parameters()]


@c
def maml(torch, nn, F):
    m = nn.Linear(2, 1)
    o = torch.optim.SGD(m.parameters(), 0.1)
    tot = 0.0
    for t in range(2):
        x = torch.tensor([[1.0, t], [2.0, 1.0]])
        y = x.sum(1, keepdim=True)
        p = dict(m.named_parameters())
        for _ in range(2):
            l = F.mse_loss(torch.func.functional_call(m, p, (x,)), y)
            g = torch.autograd.grad(l, list(p.values()), create_graph=True)
            p = {k: v - 0.1 * gg for (k, v), gg in zip(p.items(), g)}
        tot = tot + F.mse_loss(torch.func.functional_call(m, p, (x,)), y)
    o.zero_grad()
    tot.backward()
    o.step()
    return tot, [p for p in m.parameters()], [p.grad for p in m.parameters()]


@c
def ema_copy(torch, nn, F):
    import copy

    m = nn.Linear(3, 3)
    e = copy.deepcopy(m).eval().requires_grad_(False)
    o = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(3):
        (m(torch.ones(2, 3)) ** 2).sum().backward()
        o.step()
        o.zero_grad()
        with torch.no_grad():
            for a, b in zip(e.parameters(), m.parameters()):
                a.mul_(0.9).add_(b, alpha=0.1)
    return list(e.state_dict().values()), [p.requires_grad for p in e.parameters()]


@c
def accumulate(torch, nn, F):
    m = nn.Linear(3, 2)
    o = torch.optim.RMSprop(m.parameters(), 0.01)
    n = 0
    for i, x in enumerate(torch.arange(24.0).reshape(4, 2, 3)):
        l = m(x).pow(2).mean() / 2
        l.backward()
        if (i + 1) % 2 == 0:
            o.step()
            o.zero_grad()
            n += 1
    return n, [p for p in m.parameters()], [p.grad for p in m.parameters()]


@c
def beam(torch, nn, F):
    W = torch.arange(25.0).reshape(5, 5).sin()
    beams = [([0], 0.0)]
    for _ in range(3):
        c2 = []
        for s, v in beams:
            lp = W[s[-1]].log_softmax(0)
            t = lp.topk(2)
            for k, i in zip(t.values.tolist(), t.indices.tolist()):
                c2.append((s + [i], v + k))
        beams = sorted(c2, key=lambda b: -b[1])[:2]
    return beams


@c
def rl(torch, nn, F):
    p = nn.Linear(2, 2)
    o = torch.optim.Adam(p.parameters(), 0.05)
    rs = []
    for ep in range(3):
        s = torch.tensor([1.0, float(ep)])
        lps = []
        R = 0.0
        for t in range(4):
            d = torch.distributions.Categorical(logits=p(s))
            a = torch.tensor(t % 2)
            lps.append(d.log_prob(a))
            R += 1.0 if a.item() == 1 else 0.0
            s = s * 0.5 + a
        l = -torch.stack(lps).sum() * R
        o.zero_grad()
        l.backward()
        o.step()
        rs.append((R, l.item(), d.entropy().item()))
    return rs, p.weight


@c
def class_state(torch, nn, F):
    class Meter:
        def __init__(s):
            s.v, s.n = 0.0, 0

        def update(s, x, k=1):
            s.v += x * k
            s.n += k
            return s

        @property
        def avg(s):
            return s.v / max(s.n, 1)

        def __repr__(s):
            return f"M({s.avg:.3f})"

    m = Meter()
    d = {}
    for i in range(4):
        x = torch.full((2,), float(i))
        m.update(x.mean().item(), 2)
        d[i % 2] = d.get(i % 2, 0) + x.sum()
    return repr(m), m.n, d


@c
def gen(torch, nn, F):
    def batches(n):
        for i in range(n):
            x = torch.full((2, 2), float(i))
            yield x, (x.sum() > 3).item()

    out = []
    for k, (x, f) in enumerate(batches(4)):
        if f:
            out.append(x.t() @ x)
        else:
            out.append(k)
    return out


@c
def tryexc(torch, nn, F):
    r = []
    for shape in ((2, 3), (3, 2)):
        try:
            y = torch.ones(2, 3) @ torch.ones(*shape)
            r.append(y)
        except RuntimeError as e:
            r.append("bad " + str(e)[:20])
        finally:
            r.append(len(r))
    return r


@c
def inplace_views(torch, nn, F):
    b = torch.zeros(4, 4)
    v = b[1:3]
    w = v[:, ::2]
    w += 1
    v[0] *= 2
    b.t()[0].fill_(7)
    n = float(b.sum())
    v -= n
    u = b.view(2, 8)
    u[0, :3] = -1
    return b, v, w, u


@c
def scan_state(torch, nn, F):
    h = torch.zeros(3)
    hist = []
    cell = nn.GRUCell(2, 3)
    for t in range(4):
        h = cell(torch.ones(2) * t, h)
        hist.append(h)
        if h.abs().max().item() > 0.9:
            h = h * 0
    s = torch.stack(hist)
    s.sum().backward()
    return s, cell.weight_ih.grad


@c
def hooks(torch, nn, F):
    m = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    acts = {}
    hs = [
        l.register_forward_hook(lambda mod, i, o, n=n: acts.__setitem__(n, o.detach()))
        for n, l in m.named_children()
    ]
    y = m(torch.ones(2, 2))
    [h.remove() for h in hs]
    y2 = m(torch.zeros(2, 2))
    gs = []
    h = m[0].weight.register_hook(lambda g: gs.append(g.clone()) or g * 2)
    (y.sum() + y2.sum()).backward()
    h.remove()
    return acts, gs, m[0].weight.grad, len(m[0]._forward_hooks)


@c
def dtypes(torch, nn, F):
    x = torch.arange(6.0)
    a = x.half()
    a += x.double()
    i = torch.arange(3)
    i += torch.tensor([1, 2, 3], dtype=torch.int32)
    m = i > 2
    m &= torch.tensor([True, True, False])
    z = float(a.sum())
    return a, i, m, x.to(torch.bfloat16) * z, i / z, str(a.dtype)[-7:]


@c
def closures(torch, nn, F):
    fs = []
    tot = torch.zeros(2)
    for i in range(3):

        def f(x, i=i):
            nonlocal tot
            tot = tot + x * i
            return tot

        fs.append(f)
    r = [f(torch.ones(2)) for f in fs]
    k = int(tot.sum())
    r += [f(torch.ones(2) * k) for f in reversed(fs)]
    return r, tot


@c
def ckpt(torch, nn, F):
    import io

    m = nn.Linear(2, 2)
    o = torch.optim.Adam(m.parameters())
    m(torch.ones(1, 2)).sum().backward()
    o.step()
    b = io.BytesIO()
    torch.save({"m": m.state_dict(), "o": o.state_dict(), "e": 3}, b)
    b.seek(0)
    d = torch.load(b)
    m2 = nn.Linear(2, 2)
    m2.load_state_dict(d["m"])
    o2 = torch.optim.Adam(m2.parameters())
    o2.load_state_dict(d["o"])
    m2(torch.ones(1, 2)).sum().backward()
    o2.step()
    return m2.weight, d["e"], o2.state_dict()["state"][0]["step"]


@c
def dynamic_modules(torch, nn, F):
    ms = nn.ModuleList()
    for i in range(3):
        ms.append(nn.Linear(2, 2, bias=bool(i % 2)))
    x = torch.ones(1, 2)
    for k, m in enumerate(ms):
        x = m(x)
        if k == 1:
            ms[2] = nn.Identity()
    ms.insert(0, nn.ReLU())
    return x, len(ms), [type(m).__name__ for m in ms], [n for n, _ in ms.named_parameters()]


@c
def amp_scaler(torch, nn, F):
    m = nn.Linear(2, 2)
    o = torch.optim.SGD(m.parameters(), 0.1)
    s = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=1)
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            l = m(torch.ones(3, 2)).float().pow(2).sum()
        s.scale(l).backward()
        s.unscale_(o)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        s.step(o)
        s.update()
        o.zero_grad()
    return s.get_scale(), m.weight


@c
def custom_fn(torch, nn, F):
    class STE(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.n = 3
            ctx.save_for_backward(x)
            return x.round()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.n * (x.abs() < 2)

    x = torch.linspace(-3, 3, 7).requires_grad_()
    y = STE.apply(x) * 2
    k = y.max().item()
    (y * k).sum().backward()
    return y, x.grad


@c
def sorting(torch, nn, F):
    d = [{"s": torch.tensor(float(i % 3)), "i": i} for i in range(5)]
    d.sort(key=lambda r: (r["s"].item(), -r["i"]))
    best = max(d, key=lambda r: r["s"].item() + r["i"])
    g = {}
    for r in d:
        g.setdefault(int(r["s"]), []).append(r["i"])
    return (
        [r["i"] for r in d],
        best["i"],
        g,
        {k: torch.tensor(v).float().mean() for k, v in g.items()},
    )


@c
def ragged(torch, nn, F):
    seqs = [torch.arange(float(n)) for n in (3, 1, 2)]
    p = nn.utils.rnn.pad_sequence(seqs, batch_first=True, padding_value=-1.0)
    m = p != -1
    lens = m.sum(1).tolist()
    out = [p[i, :n].mean() for i, n in enumerate(lens)]
    idx = m.nonzero()
    return p, lens, out, idx, p[m], [s.tolist() for s in p[m].split(lens)]


@c
def param_surgery(torch, nn, F):
    m = nn.Linear(3, 2)
    m.weight = nn.Parameter(m.weight[:, :2].clone())
    m.in_features = 2
    y = m(torch.ones(1, 2))
    m.bias = None
    y2 = m(torch.ones(1, 2))
    m.register_buffer("k", torch.ones(1))
    m.k += 2
    m.extra = torch.zeros(2)
    m.extra = m.extra + 1
    l = (y + y2).sum()
    l.backward()
    return y, y2, m.weight.grad, list(m.state_dict()), m.extra, m.k


@c
def while_conv(torch, nn, F):
    x = torch.tensor(2.0, requires_grad=True)
    n = 0
    y = x
    while abs(y.item() ** 2 - 2) > 1e-4 and n < 20:
        y = y - (y * y - 2) / (2 * y)
        n += 1
    y.backward()
    return y, n, x.grad


@c
def set_ops(torch, nn, F):
    a = torch.tensor([1, 2, 3, 4])
    s = set(a.tolist()) & {2, 4, 9}
    b = torch.tensor(sorted(s))
    t = dict(zip(a.tolist(), a.float().sqrt().tolist()))
    return (
        b,
        t,
        {k: v for k, v in t.items() if v > 1.5},
        a[torch.isin(a, b)],
        any(a > 3),
        all(x > 0 for x in a),
        sum(a),
        min(a),
        len(a),
        a.unbind()[1:3],
    )


@c
def kv_cache(torch, nn, F):
    q = nn.Linear(4, 4)
    cache = {"k": torch.zeros(0, 4), "n": 0}
    outs = []

    def step(x):
        cache["k"] = torch.cat([cache["k"], q(x)[None]])
        cache["n"] += 1
        return torch.softmax(cache["k"] @ x, 0) @ cache["k"]

    with torch.no_grad():
        x = torch.ones(4)
        for i in range(5):
            x = step(x)
            outs.append(x.sum().item())
    return outs, cache["n"], cache["k"].shape


@c
def default_dtype(torch, nn, F):
    torch.set_default_dtype(torch.float64)
    try:
        x = torch.ones(2) / 3
        k = x.sum().item()
        y = torch.zeros(1) + k
    finally:
        torch.set_default_dtype(torch.float32)
    return x, y, torch.ones(1).dtype == torch.float32


@c
def early(torch, nn, F):
    best, bad, hist = float("inf"), 0, []
    w = torch.tensor(5.0, requires_grad=True)
    o = torch.optim.SGD([w], 0.6, momentum=0.5)
    st = None
    for e in range(12):
        o.zero_grad()
        l = (w - 1) ** 2
        l.backward()
        o.step()
        hist.append(l.item())
        if l.item() < best - 1e-3:
            best, bad, st = l.item(), 0, {"w": w.detach().clone()}
        else:
            bad += 1
            if bad >= 2:
                break
    return best, bad, hist, st, w
