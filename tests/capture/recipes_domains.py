"""Training and inference of many kinds of models, with the steps compiled and the loop not.

A recipe gets the package, `nn`, `nn.functional` and what compiles a function (or leaves it as it
is), and returns whatever it has to show. It runs on torch as well.
"""

# fmt: off
import collections
import copy
import random

RECIPES = []


def c(f):
    RECIPES.append(f)
    return f


@c
def hand_sgd_grad_data(torch, nn, F, C):
    m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    vel = [torch.zeros_like(p) for p in m.parameters()]
    @C
    def norm():
        t = 0.0
        for p in m.parameters():
            t = t + p.grad.data.norm(2) ** 2
        return t ** 0.5
    @C
    def step(lr, clip):
        n = norm()
        for p, v in zip(m.parameters(), vel):
            g = p.grad.data
            if n > clip: g = g * (clip / n)
            v.mul_(0.9).add_(g)
            p.data.add_(v, alpha=-lr)
            p.grad.data.zero_()
        return n
    r = []
    for k in range(6):
        m(torch.randn(4, 3)).square().mean().backward()
        r.append(norm()); r.append(step(0.1 / (k + 1), 0.3))
    return r, list(m.parameters()), vel


@c
def pcgrad(torch, nn, F, C):
    w = nn.Parameter(torch.randn(4))
    @C
    def grads(losses):
        gs = []
        for l in losses:
            w.grad = None
            l.backward(retain_graph=True)
            gs.append(w.grad)
        w.grad = None
        return gs
    @C
    def project(gs):
        out = []
        for i, g in enumerate(gs):
            g = g.clone()
            for j, h in enumerate(gs):
                if i != j:
                    d = torch.dot(g, h)
                    if d < 0: g -= d / h.norm() ** 2 * h
            out.append(g)
        return torch.stack(out).sum(0)
    r = []
    for k in range(4):
        x = torch.randn(3, 4)
        ls = [(x[0] @ w).tanh(), (x[1] @ w) ** 2, -(x[2] @ w).sin()]
        gs = grads(ls)
        g = project(gs)
        with torch.no_grad(): w -= 0.1 * g
        r.append((gs, g, w.detach().clone(), w.grad))
    return r


@c
def sam(torch, nn, F, C):
    m = nn.Linear(3, 2)
    o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    state = {}
    @C
    def step(x, y):
        F.cross_entropy(m(x), y).backward()
        with torch.no_grad():
            n = torch.stack([p.grad.norm() for p in m.parameters()]).norm()
            for p in m.parameters():
                e = p.grad * (0.05 / (n + 1e-12))
                p.add_(e)
                state[p] = e
        o.zero_grad()
        l = F.cross_entropy(m(x), y)
        l.backward()
        with torch.no_grad():
            for p in m.parameters(): p.sub_(state[p])
        o.step(); o.zero_grad()
        return l
    return [step(torch.randn(5, 3), torch.randint(0, 2, (5,))) for _ in range(4)], list(m.parameters())


@c
def kv_sampling(torch, nn, F, C):
    class Att(nn.Module):
        def __init__(s):
            super().__init__(); s.qkv = nn.Linear(8, 24); s.o = nn.Linear(8, 8); s.cache = None
        def forward(s, x):
            q, k, v = s.qkv(x).split(8, -1)
            if s.cache is not None:
                k = torch.cat([s.cache[0], k], 1); v = torch.cat([s.cache[1], v], 1)
            s.cache = (k, v)
            q, k, v = [t.view(t.shape[0], -1, 2, 4).transpose(1, 2) for t in (q, k, v)]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
            return s.o(y.transpose(1, 2).flatten(2))
    emb = nn.Embedding(11, 8); att = Att(); head = nn.Linear(8, 11)
    @C
    def logits(ids): return head(att(emb(ids)))[:, -1]
    @C
    def pick(l, temp, k, p):
        l = l / temp
        v, _ = l.topk(k)
        l = l.masked_fill(l < v[:, -1:], float("-inf"))
        s, i = l.softmax(-1).sort(-1, descending=True)
        cut = s.cumsum(-1) - s > p
        s = s.masked_fill(cut, 0.0); s = s / s.sum(-1, keepdim=True)
        return i.gather(-1, torch.multinomial(s, 1))
    r = []
    for run in range(2):
        att.cache = None
        ids = torch.tensor([[1, 2, 3], [4, 5, 6]]); out = ids
        with torch.no_grad():
            for k in range(6):
                ids = pick(logits(ids), 0.8, 5, 0.9) if k % 2 else logits(ids).argmax(-1, keepdim=True)
                if k % 2: r.append(ids.shape)
                else: r.append(ids)
                ids = ids * 0 + k
                out = torch.cat([out, ids], 1)
        r.append((out, att.cache[0].shape, att.cache[1].sum()))
    return r


@c
def beam_search(torch, nn, F, C):
    W = torch.arange(49.0).reshape(7, 7).sin()
    @C
    def step(seqs, scores, done):
        lp = (W[seqs[:, -1]]).log_softmax(-1)
        lp = torch.where(done[:, None], torch.full_like(lp, -1e9).scatter(1, torch.zeros(lp.shape[0], 1, dtype=torch.long), 0.0), lp)
        tot = (scores[:, None] + lp).flatten()
        v, i = tot.topk(3)
        b, t = i // 7, i % 7
        seqs = torch.cat([seqs[b], t[:, None]], 1)
        done = done[b] | (t == 0)
        return seqs, v, done
    s, v, d = torch.ones(1, 1, dtype=torch.long), torch.zeros(1), torch.zeros(1, dtype=torch.bool)
    r = []
    for k in range(7):
        s, v, d = step(s, v, d); r.append((s, v, d))
        if d.all(): break
    return r


@c
def crf(torch, nn, F, C):
    tr = nn.Parameter(torch.randn(4, 4) * 0.3); lin = nn.Linear(5, 4)
    o = torch.optim.Adam([tr, *lin.parameters()], 0.05)
    def score(e, tags, mask):
        s = e[torch.arange(e.shape[0]), 0, tags[:, 0]]
        for t in range(1, e.shape[1]):
            s = s + (e[torch.arange(e.shape[0]), t, tags[:, t]] + tr[tags[:, t - 1], tags[:, t]]) * mask[:, t]
        return s
    def part(e, mask):
        a = e[:, 0]
        for t in range(1, e.shape[1]):
            n = torch.logsumexp(a[:, :, None] + tr + e[:, t, None], 1)
            a = torch.where(mask[:, t, None].bool(), n, a)
        return a.logsumexp(1)
    @C
    def nll(x, tags, mask):
        e = lin(x); return (part(e, mask) - score(e, tags, mask)).mean()
    @C
    def viterbi(x):
        e = lin(x); d = e[0]; back = []
        for t in range(1, e.shape[0]):
            b, i = (d[:, None] + tr).max(0); d = b + e[t]; back.append(i)
        best = [int(d.argmax())]
        for i in reversed(back): best.append(int(i[best[-1]]))
        return best[::-1], d.max()
    r = []
    for k in range(5):
        L = 3 + k % 3
        x = torch.randn(2, L, 5); tags = torch.randint(0, 4, (2, L)); mask = (torch.arange(L)[None] < torch.tensor([L, 2])[:, None]).float()
        o.zero_grad(); l = nll(x, tags, mask); l.backward(); o.step(); r.append(l); r.append(viterbi(x[0].detach()))
    return r, tr


@c
def dqn(torch, nn, F, C):
    q, tq = nn.Linear(3, 2), nn.Linear(3, 2)
    tq.load_state_dict(q.state_dict())
    o = torch.optim.RMSprop(q.parameters(), 0.01)
    buf = collections.deque(maxlen=10); rnd = random.Random(3)
    @C
    def act(s, eps):
        if rnd.random() < eps: return rnd.randrange(2)
        with torch.no_grad(): return q(s).argmax().item()
    @C
    def learn():
        if len(buf) < 4: return None
        s, a, rr, n, d = zip(*rnd.sample(list(buf), 4))
        s, n = torch.stack(s), torch.stack(n)
        a = torch.tensor(a)[:, None]; rr = torch.tensor(rr); d = torch.tensor(d, dtype=torch.float32)
        with torch.no_grad(): t = rr + 0.9 * (1 - d) * tq(n).max(1).values
        l = F.smooth_l1_loss(q(s).gather(1, a).squeeze(1), t)
        o.zero_grad(); l.backward()
        for p in q.parameters(): p.grad.data.clamp_(-1, 1)
        o.step()
        return l.item()
    r = []; s = torch.zeros(3)
    for k in range(14):
        a = act(s, 0.5); n = s * 0.5 + torch.tensor([a, 1.0, k / 10]); buf.append((s, a, float(n.sum()), n, k % 5 == 4)); s = n
        r.append(learn())
        if k % 4 == 3: tq.load_state_dict(q.state_dict())
    return r, list(q.parameters()), list(tq.parameters())


@c
def ppo(torch, nn, F, C):
    class AC(nn.Module):
        def __init__(s): super().__init__(); s.b = nn.Linear(3, 8); s.p = nn.Linear(8, 2); s.v = nn.Linear(8, 1)
        def forward(s, x): h = s.b(x).tanh(); return torch.distributions.Categorical(logits=s.p(h)), s.v(h).squeeze(-1)
    m = AC(); o = torch.optim.Adam(m.parameters(), 0.01, eps=1e-5)
    obs = torch.randn(12, 3); acts = torch.randint(0, 2, (12,)); rew = torch.randn(12); done = torch.zeros(12); done[5] = 1
    @C
    def gae(v, rew, done):
        adv = torch.zeros_like(rew); last = 0.0
        for t in reversed(range(len(rew))):
            nv = v[t + 1] if t + 1 < len(rew) else 0.0
            d = rew[t] + 0.99 * nv * (1 - done[t]) - v[t]
            last = d + 0.99 * 0.95 * (1 - done[t]) * last
            adv[t] = last
        return adv, adv + v
    @C
    def update(ob, ac, old, adv, ret, clip):
        d, v = m(ob)
        lp = d.log_prob(ac); ratio = (lp - old).exp()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        l = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean() + 0.5 * (v - ret).pow(2).mean() - 0.01 * d.entropy().mean()
        o.zero_grad(); l.backward(); nn.utils.clip_grad_norm_(m.parameters(), 0.5); o.step()
        return l, ((ratio - 1).abs() > clip).float().mean()
    with torch.no_grad(): d, v = m(obs); old = d.log_prob(acts)
    adv, ret = gae(v, rew, done); r = [adv, ret]
    for ep in range(3):
        for i in range(0, 12, 5): j = slice(i, i + 5); r.append(update(obs[j], acts[j], old[j], adv[j], ret[j], 0.2 - ep * 0.05))
    return r


@c
def gnn(torch, nn, F, C):
    l1, l2 = nn.Linear(4, 6), nn.Linear(6, 3); att = nn.Parameter(torch.randn(6))
    o = torch.optim.Adam([*l1.parameters(), *l2.parameters(), att], 0.01)
    @C
    def f(x, ei):
        src, dst = ei; n = x.shape[0]
        h = l1(x)
        deg = torch.zeros(n).index_add_(0, dst, torch.ones(len(dst))).clamp(min=1)
        e = F.leaky_relu((h[src] * att).sum(1) + (h[dst] * att).sum(1))
        mx = torch.full((n,), -1e9).scatter_reduce(0, dst, e, "amax")
        w = (e - mx[dst]).exp(); z = torch.zeros(n).scatter_add(0, dst, w)
        w = w / z[dst].clamp(min=1e-6)
        y = torch.zeros_like(h).index_add(0, dst, h[src] * w[:, None]) / deg[:, None]
        return l2(y.relu())
    r = []
    for k in range(4):
        n, m = 5 + k, 9 + 2 * k
        ei = torch.randint(0, n, (2, m)); y = f(torch.randn(n, 4), ei)
        l = F.cross_entropy(y, torch.arange(n) % 3); o.zero_grad(); l.backward(); o.step(); r += [l, att.grad.clone()]
    return r


@c
def moe(torch, nn, F, C):
    gate = nn.Linear(4, 3); ex = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    load = torch.zeros(3)
    @C
    def f(x):
        p = gate(x).softmax(-1); w, i = p.topk(2)
        out = torch.zeros_like(x)
        for e, m in enumerate(ex):
            t, s = (i == e).nonzero(as_tuple=True)
            load[e] += t.numel()
            if t.numel() == 0: continue
            out.index_add_(0, t, m(x[t]) * w[t, s, None])
        aux = (p.mean(0) * F.one_hot(i[:, 0], 3).float().mean(0)).sum() * 3
        return out, aux
    r = []
    for k in range(4):
        x = torch.randn(2 + 3 * k, 4, requires_grad=True); y, a = f(x); (y.square().sum() + a).backward(); r += [y, a, x.grad]
    return r, load, [p.grad for p in ex.parameters()]


@c
def moco(torch, nn, F, C):
    q, k = nn.Linear(4, 3), nn.Linear(4, 3); k.load_state_dict(q.state_dict())
    for p in k.parameters(): p.requires_grad = False
    class Q(nn.Module):
        def __init__(s): super().__init__(); s.register_buffer("queue", F.normalize(torch.randn(3, 8), dim=0)); s.register_buffer("ptr", torch.zeros(1, dtype=torch.long))
        @torch.no_grad()
        def push(s, keys):
            p = int(s.ptr); b = keys.shape[0]
            s.queue[:, p:p + b] = keys.T
            s.ptr[0] = (p + b) % 8
        def forward(s, x1, x2):
            a = F.normalize(q(x1), dim=1)
            with torch.no_grad():
                for pk, pq in zip(k.parameters(), q.parameters()): pk.data = pk.data * 0.9 + pq.data * 0.1
                b = F.normalize(k(x2), dim=1)
            l = torch.cat([(a * b).sum(1, keepdim=True), a @ s.queue.clone().detach()], 1) / 0.1
            s.push(b)
            return F.cross_entropy(l, torch.zeros(len(l), dtype=torch.long))
    m = Q(); f = C(m); o = torch.optim.SGD(q.parameters(), 0.1); r = []
    for _ in range(5):
        l = f(torch.randn(2, 4), torch.randn(2, 4)); o.zero_grad(); l.backward(); o.step(); r += [l, m.queue.clone(), m.ptr.clone()]
    return r, list(k.parameters())


@c
def swa_ema(torch, nn, F, C):
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    ema = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    swa = torch.optim.swa_utils.AveragedModel(m)
    o = torch.optim.SGD(m.parameters(), 0.1); s = torch.optim.swa_utils.SWALR(o, 0.02, anneal_epochs=3)
    f = C(m); g = C(ema); r = []
    data = [torch.randn(6, 3) for _ in range(3)]
    for k in range(6):
        l = f(data[k % 3]).square().mean(); o.zero_grad(); l.backward(); o.step(); ema.update_parameters(m)
        if k > 2: swa.update_parameters(m); s.step()
        r += [l, o.param_groups[0]["lr"], g(data[0])]
    torch.optim.swa_utils.update_bn(data, swa)
    return r, swa.n_averaged, C(swa)(data[0])


@c
def lora(torch, nn, F, C):
    class LoRA(nn.Module):
        def __init__(s, base, r): super().__init__(); s.base = base.requires_grad_(False); s.a = nn.Parameter(torch.randn(r, base.in_features) * 0.1); s.b = nn.Parameter(torch.zeros(base.out_features, r)); s.merged = False; s.scale = 2.0
        def forward(s, x): return s.base(x) if s.merged else s.base(x) + (x @ s.a.T @ s.b.T) * s.scale
        @torch.no_grad()
        def merge(s):
            if not s.merged: s.base.weight += s.scale * s.b @ s.a; s.merged = True
        @torch.no_grad()
        def unmerge(s):
            if s.merged: s.base.weight -= s.scale * s.b @ s.a; s.merged = False
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    for n, l in list(m.named_children()):
        if isinstance(l, nn.Linear): setattr(m, n, LoRA(l, 2))
    f = C(m); o = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 0.1); x = torch.randn(5, 3); r = []
    for k in range(4): o.zero_grad(); l = f(x).square().mean(); l.backward(); o.step(); r.append(l)
    m[0].merge(); m[2].merge(); r.append(f(x)); m[0].unmerge(); r.append(f(x)); m[0].scale = 0.5; r.append(f(x))
    return r


@c
def qat(torch, nn, F, C):
    class FQ(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, s, lo, hi): ctx.save_for_backward(x, s); ctx.r = lo, hi; return (x / s).round().clamp(lo, hi) * s
        @staticmethod
        def backward(ctx, g):
            x, s = ctx.saved_tensors; lo, hi = ctx.r; q = x / s; m = (q >= lo) & (q <= hi)
            return g * m, (g * torch.where(m, q.round() - q, q.clamp(lo, hi))).sum().reshape(s.shape), None, None
    class QL(nn.Linear):
        def __init__(s, i, o): super().__init__(i, o); s.s = nn.Parameter(torch.tensor(0.1)); s.register_buffer("mx", torch.tensor(0.0)); s.on = False
        def forward(s, x):
            if s.training: s.mx = torch.maximum(s.mx * 0.9, x.detach().abs().max())
            if s.on: x = FQ.apply(x, s.mx / 7, -8, 7)
            return F.linear(x, FQ.apply(s.weight, s.s, -8, 7), s.bias)
    m = nn.Sequential(QL(3, 4), nn.ReLU(), QL(4, 2)); f = C(m); o = torch.optim.SGD(m.parameters(), 0.05); r = []
    for k in range(6):
        if k == 2: m[0].on = True
        if k == 3: m[2].on = True
        if k == 5: f.eval()
        l = f(torch.randn(4, 3)).square().mean(); o.zero_grad(); l.backward(); o.step(); r += [l, m[0].mx, m[2].s.grad]
    return r


@c
def accumulate_clip_ckpt(torch, nn, F, C):
    from_ = torch.utils.checkpoint.checkpoint
    b = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 4)); h = nn.Linear(4, 2)
    o = torch.optim.AdamW([*b.parameters(), *h.parameters()], 0.01); r = []
    @C
    def f(x): return h(from_(b, x, use_reentrant=False))
    for k in range(6):
        l = f(torch.randn(3, 4)).square().mean() / 2; l.backward()
        if k % 2: r.append(nn.utils.clip_grad_norm_(b.parameters(), 0.1)); r.append(nn.utils.clip_grad_value_(h.parameters(), 0.01)); o.step(); o.zero_grad(set_to_none=bool(k % 4 == 1))
        r.append(l)
    return r


@c
def scaler_amp(torch, nn, F, C):
    m = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)); o = torch.optim.Adam(m.parameters(), 0.01)
    s = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, backoff_factor=0.5)
    @C
    def f(x):
        with torch.autocast("cpu", torch.bfloat16): return m(x).float().square().mean()
    r = []
    for k in range(6):
        l = f(torch.randn(4, 3)); s.scale(l).backward()
        if k == 3: m[0].weight.grad[0, 0] = float("inf")
        s.unscale_(o); r.append(nn.utils.clip_grad_norm_(m.parameters(), 1.0) if k != 3 else 0); s.step(o); s.update(); o.zero_grad(); r += [s.get_scale()]
    return r


@c
def packed_rnn(torch, nn, F, C):
    g = nn.GRU(3, 4, 2, batch_first=True, bidirectional=True); lin = nn.Linear(8, 2)
    P, U = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
    @C
    def f(x, l):
        o, h = g(P(x, l, batch_first=True, enforce_sorted=False)); y, n = U(o, batch_first=True, padding_value=-1.0)
        return lin(y).sum(1), h[-1], n
    r = []
    for L in (4, 5, 4):
        x = torch.randn(3, L, 3, requires_grad=True); y, h, n = f(x, torch.tensor([L, 2, L - 1])); (y.sum() + h.sum()).backward(); r += [y, h, n, x.grad]
    return r


@c
def ctc_seg_det(torch, nn, F, C):
    lin = nn.Linear(4, 6)
    @C
    def ctc(x, t, il, tl): return F.ctc_loss(lin(x).log_softmax(-1), t, il, tl, zero_infinity=True)
    @C
    def dice(l, y, eps=1.0):
        p = l.softmax(1); o = F.one_hot(y, l.shape[1]).movedim(-1, 1).float(); i = (p * o).sum((2, 3)); return 1 - ((2 * i + eps) / (p.sum((2, 3)) + o.sum((2, 3)) + eps)).mean() + F.cross_entropy(l, y, ignore_index=0, label_smoothing=0.1)
    @C
    def nms(b, s, th):
        x1, y1, x2, y2 = b.unbind(1); ar = (x2 - x1) * (y2 - y1); o = s.argsort(descending=True); keep = []
        while o.numel() > 0:
            i = o[0]; keep.append(int(i))
            if o.numel() == 1: break
            j = o[1:]
            w = (torch.minimum(x2[i], x2[j]) - torch.maximum(x1[i], x1[j])).clamp(min=0); h = (torch.minimum(y2[i], y2[j]) - torch.maximum(y1[i], y1[j])).clamp(min=0)
            o = j[w * h / (ar[i] + ar[j] - w * h) <= th]
        return keep
    @C
    def focal(x, y, a=0.25, g=2.0): p = x.sigmoid(); ce = F.binary_cross_entropy_with_logits(x, y, reduction="none"); pt = p * y + (1 - p) * (1 - y); return ((a * y + (1 - a) * (1 - y)) * (1 - pt) ** g * ce).sum()
    @C
    def giou(a, b):
        lt = torch.max(a[:, None, :2], b[:, :2]); rb = torch.min(a[:, None, 2:], b[:, 2:]); i = (rb - lt).clamp(min=0).prod(-1)
        A = (a[:, 2:] - a[:, :2]).prod(-1); B = (b[:, 2:] - b[:, :2]).prod(-1); u = A[:, None] + B - i
        c = (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])).prod(-1)
        return i / u - (c - u) / c
    r = []
    for k in range(3):
        x = torch.randn(7 + k, 2, 4, requires_grad=True); l = ctc(x, torch.randint(1, 6, (2, 3)), torch.tensor([7, 6]), torch.tensor([3, 2])); l.backward(); r += [l, x.grad]
        z = torch.randn(2, 3, 4, 4 + k, requires_grad=True); l = dice(z, torch.randint(0, 3, (2, 4, 4 + k))); l.backward(); r += [l, z.grad]
        b = torch.rand(6 + k, 4) * 5; b[:, 2:] += b[:, :2]; r += [nms(b, torch.rand(6 + k), 0.2), giou(b, b[:3])]
        z = torch.randn(5, requires_grad=True); l = focal(z, (torch.rand(5) > 0.5).float()); l.backward(); r += [l, z.grad]
    return r


@c
def ode_pinn(torch, nn, F, C):
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)); A = torch.tensor([[0.0, 1], [-1, 0]])
    @C
    def rk4(y, t0, t1, n):
        h = (t1 - t0) / n
        for _ in range(n):
            k1 = net(y); k2 = net(y + h / 2 * k1); k3 = net(y + h / 2 * k2); k4 = net(y + h * k3); y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y
    u = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)); o = torch.optim.Adam(u.parameters(), 0.01)
    @C
    def pde(xt):
        xt = xt.requires_grad_(True); v = u(xt)
        g, = torch.autograd.grad(v.sum(), xt, create_graph=True)
        gx, gt = g[:, :1], g[:, 1:]
        gxx = torch.autograd.grad(gx.sum(), xt, create_graph=True)[0][:, :1]
        return ((gt + v * gx - 0.01 * gxx) ** 2).mean()
    r = []
    for k in range(3):
        y = torch.randn(3, 2, requires_grad=True); z = rk4(y, 0.0, 1.0 + k, 3 + k); z.square().sum().backward(); r += [z, y.grad]
        o.zero_grad(); l = pde(torch.rand(6, 2)); l.backward(); o.step(); r += [l]
    return r, list(u.parameters())


@c
def gp(torch, nn, F, C):
    ls, no = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(-2.0))
    o = torch.optim.Adam([ls, no], 0.05); jit = []
    def chol(K):
        j = 0.0
        while True:
            try: L = torch.linalg.cholesky(K + j * torch.eye(len(K))); jit.append(j); return L
            except torch.linalg.LinAlgError:
                j = max(j * 10, 1e-6)
    @C
    def nll(x, y):
        K = torch.exp(-0.5 * torch.cdist(x, x) ** 2 / ls.exp() ** 2)
        L = chol(K + no.exp() * torch.eye(len(x))); a = torch.cholesky_solve(y[:, None], L)
        return 0.5 * (y @ a.squeeze(1)) + L.diagonal().log().sum()
    @C
    def bad(K): return chol(K)
    r = []
    for k in range(4):
        x = torch.randn(5 + k, 2); y = x[:, 0].sin(); o.zero_grad(); l = nll(x, y); l.backward(); o.step(); r += [l, ls.grad.clone()]
    r.append(bad(torch.eye(3))); r.append(bad(torch.ones(3, 3) - 1e-3 * torch.eye(3))); r.append(bad(torch.eye(3) * 2))
    return r, jit


@c
def sinkhorn_kalman(torch, nn, F, C):
    @C
    def sink(M, a, b, eps, it):
        K = -M / eps; f = torch.zeros_like(a); g = torch.zeros_like(b)
        for _ in range(it):
            f = eps * (a.log() - torch.logsumexp(K + g / eps, 1)); g = eps * (b.log() - torch.logsumexp(K.T + f / eps, 1))
        P = (K + (f[:, None] + g) / eps).exp(); return (P * M).sum(), P
    @C
    def kalman(ys, Fm, H, Q, R):
        x = torch.zeros(2); P = torch.eye(2); out = []; ll = 0.0
        for y in ys:
            x = Fm @ x; P = Fm @ P @ Fm.T + Q; S = H @ P @ H.T + R; K = torch.linalg.solve(S, H @ P).T
            e = y - H @ x; x = x + K @ e; P = (torch.eye(2) - K @ H) @ P; ll = ll - 0.5 * (e @ torch.linalg.solve(S, e) + torch.logdet(S)); out.append(x)
        return torch.stack(out), P, ll
    r = []
    for k in range(3):
        x = torch.randn(4 + k, 2, requires_grad=True); M = torch.cdist(x, torch.randn(3, 2)) ** 2
        l, P = sink(M, torch.full((4 + k,), 1 / (4 + k)), torch.full((3,), 1 / 3), 0.5, 5); l.backward(); r += [l, P, x.grad]
        q = torch.tensor(0.1, requires_grad=True); o = kalman(torch.randn(5 + k, 1), torch.tensor([[1.0, 1], [0, 1]]), torch.tensor([[1.0, 0]]), q * torch.eye(2), torch.eye(1)); o[2].backward(); r += [o, q.grad]
    return r


@c
def fno_deq_hyper(torch, nn, F, C):
    w = nn.Parameter(torch.randn(2, 2, 4, dtype=torch.cfloat) * 0.3)
    @C
    def fno(x):
        X = torch.fft.rfft(x); o = torch.zeros(x.shape[0], 2, X.shape[-1], dtype=torch.cfloat); o[:, :, :4] = torch.einsum("bim,iom->bom", X[:, :, :4], w); return torch.fft.irfft(o, n=x.shape[-1]) + x
    W = nn.Parameter(torch.randn(3, 3) * 0.2)
    class DEQ(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, W):
            z = torch.zeros_like(x)
            for _ in range(50): z = torch.tanh(z @ W + x)
            ctx.save_for_backward(z, x, W); return z
        @staticmethod
        def backward(ctx, g):
            z, x, W = ctx.saved_tensors; d = 1 - z * z; v = g
            for _ in range(50): v = g + (v * d) @ W.T
            return v * d, z.T @ (v * d)
    @C
    def deq(x): return DEQ.apply(x, W)
    hy = nn.Linear(2, 3 * 4 + 4)
    @C
    def hyper(x, e):
        p = hy(e); ws, bs = p[:, :12].view(-1, 4, 3), p[:, 12:]; return torch.einsum("boi,bi->bo", ws, x) + bs
    r = []
    for k in range(3):
        x = torch.randn(2, 2, 8 + 2 * k, requires_grad=True); y = fno(x); y.square().sum().backward(); r += [y, x.grad, w.grad.clone()]
        x = torch.randn(4, 3, requires_grad=True); y = deq(x); y.sum().backward(); r += [y, x.grad, W.grad.clone()]
        y = hyper(torch.randn(2 + k, 3), torch.randn(2 + k, 2)); y.sum().backward(); r += [y, hy.weight.grad.clone()]
    return r


@c
def maml_seq2seq(torch, nn, F, C):
    m = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)); o = torch.optim.Adam(m.parameters(), 0.01)
    def inner(p, x, y):
        l = F.mse_loss(torch.func.functional_call(m, p, (x,)), y); g = torch.autograd.grad(l, tuple(p.values()), create_graph=True)
        return {k: v - 0.1 * a for (k, v), a in zip(p.items(), g)}
    @C
    def outer(xs, ys):
        t = 0.0
        for x, y in zip(xs, ys):
            p = inner(dict(m.named_parameters()), x[:3], y[:3]); t = t + F.mse_loss(torch.func.functional_call(m, p, (x[3:],)), y[3:])
        return t / len(xs)
    enc, dec, emb, out = nn.GRU(4, 5), nn.GRUCell(4, 5), nn.Embedding(7, 4), nn.Linear(5, 7)
    @C
    def s2s(src, tgt, mask, tf):
        H, h = enc(emb(src)); h = h[0]; x = tgt[0]; tot = 0.0
        for t in range(1, tgt.shape[0]):
            h = dec(emb(x), h); a = (H * h).sum(-1).masked_fill(~mask, float("-inf")).softmax(0); l = out(h + (a[..., None] * H).sum(0)); tot = tot + F.cross_entropy(l, tgt[t], ignore_index=0); x = tgt[t] if t < tf else l.argmax(-1)
        return tot
    r = []
    for k in range(3):
        xs = torch.randn(2, 6, 1); o.zero_grad(); l = outer(xs, xs.sin()); l.backward(); o.step(); r.append(l)
        src = torch.randint(1, 7, (4 + k, 2)); l = s2s(src, torch.randint(1, 7, (5, 2)), torch.arange(4 + k)[:, None] < torch.tensor([4, 3]), 3 - k); l.backward(); r += [l, emb.weight.grad.clone()]
    return r


@c
def double_back_more(torch, nn, F, C):
    d = nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1)); o = torch.optim.Adam(d.parameters(), 0.01)
    @C
    def gp(real, fake):
        a = torch.rand(real.shape[0], 1); x = (a * real + (1 - a) * fake).requires_grad_(True)
        g, = torch.autograd.grad(d(x).sum(), x, create_graph=True)
        return ((g.norm(2, 1) - 1) ** 2).mean() + d(fake).mean() - d(real).mean()
    @C
    def hvp(x, v):
        l = (d(x) ** 2).sum(); g = torch.autograd.grad(l, list(d.parameters()), create_graph=True)
        return torch.autograd.grad(sum((a * b).sum() for a, b in zip(g, v)), list(d.parameters()))
    @C
    def jac(x): return torch.autograd.functional.jacobian(lambda t: d(t).sin(), x), torch.autograd.functional.hessian(lambda t: d(t).sum() ** 2, x)
    f = C(lambda x: (d(x) ** 3).sum()); r = []
    for k in range(3):
        o.zero_grad(); l = gp(torch.randn(3, 2), torch.randn(3, 2)); l.backward(); o.step(); r.append(l)
        r.append(hvp(torch.randn(3, 2), [torch.ones_like(p) for p in d.parameters()])); r.append(jac(torch.randn(2)))
        x = torch.randn(2, 2, requires_grad=True); g, = torch.autograd.grad(f(x), x, create_graph=True); h, = torch.autograd.grad(g.sum(), x, create_graph=True); t = torch.autograd.grad(h.sum(), x, allow_unused=True)[0]; r += [g, h, t]
    return r


@c
def func_more(torch, nn, F, C):
    T = torch.func; m = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)); p = dict(m.named_parameters()); r = []
    def u(x): return T.functional_call(m, p, (x,)).squeeze(-1)
    lap = C(T.vmap(lambda x: torch.diagonal(T.hessian(lambda y: u(y))(x)).sum()))
    r.append(lap(torch.randn(4, 2))); r.append(lap(torch.randn(5, 2)))
    ms = [nn.Linear(2, 2) for _ in range(3)]; ps, bs = T.stack_module_state(ms); base = copy.deepcopy(ms[0]).to("meta")
    ens = C(lambda x: T.vmap(lambda a, b, y: T.functional_call(base, (a, b), (y,)), (0, 0, None))(ps, bs, x)); r.append(ens(torch.ones(3, 2))); ms[0].weight.data.add_(1); r.append(ens(torch.ones(3, 2)))
    jv = C(lambda x, v: T.jvp(lambda y: (y ** 2).sum() * y, (x,), (v,))); r.append(jv(torch.randn(3), torch.ones(3)))
    r.append(C(T.jacfwd(lambda x: x.sin() * x.sum()))(torch.randn(3))); r.append(C(T.grad_and_value(lambda x: (x ** 2).sum()))(torch.randn(3)))
    r.append(C(T.vmap(lambda a, b: a @ b, in_dims=(0, None), out_dims=1))(torch.randn(3, 2), torch.randn(2, 2))); r.append(C(T.vmap(lambda a: torch.where(a > 0, a, -a).cumsum(0), chunk_size=2))(torch.randn(5, 3)))
    r.append(C(T.vmap(lambda x: x + torch.rand(1), randomness="same"))(torch.zeros(3)).unique().numel()); r.append(C(T.linearize(torch.sin, torch.ones(2))[1])(torch.ones(2)))
    pg = C(lambda x, y: T.vmap(T.grad(lambda q, a, b: ((T.functional_call(m, q, (a,)) - b) ** 2).sum()), (None, 0, 0))({k: v.detach() for k, v in p.items()}, x, y)); r.append(pg(torch.randn(4, 2), torch.randn(4, 1)))
    g = torch.vmap(C(lambda x, k: x * k + x.sum())); r.append(g(torch.randn(3, 2), torch.arange(3.0)))
    return r
