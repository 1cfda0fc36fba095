"""What stands around compiled functions and changes between their calls: flags, parameters, hooks,
containers, objects, views.

A recipe gets the package, `nn`, `nn.functional` and what compiles a function (or leaves it as it
is), and returns whatever it has to show. It runs on torch as well.
"""

# fmt: off
import collections
import contextlib
import copy
import enum
import functools
import heapq
import importlib
import itertools

RECIPES = []


def c(f):
    RECIPES.append(f)
    return f


@c
def scheduler_groups(torch, nn, F, C):
    m = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    o = torch.optim.Adam([{"params": m[0].parameters(), "lr": 0.01}, {"params": m[2].parameters(), "weight_decay": 0.1}], lr=0.02)
    s = torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10)
    @C
    def step(x):
        o.zero_grad()
        l = m(x).square().mean()
        l.backward()
        o.step()
        return l
    r = []
    extra = nn.Parameter(torch.ones(2))
    for k in range(8):
        r.append(step(torch.randn(4, 3)))
        s.step()
        if k == 2: o.param_groups[1]["weight_decay"] = 0.0
        if k == 3: o.param_groups[0]["betas"] = (0.5, 0.9)
        if k == 4: m[0].weight.requires_grad_(False)
        if k == 5: o.param_groups[0]["eps"] = 1e-3; m[0].weight.requires_grad_(True)
        if k == 6: o.state.clear()
        r.append([g["lr"] for g in o.param_groups])
    return r, list(m.parameters()), [o.state[p].get("step") for p in m.parameters()]


@c
def load_between(torch, nn, F, C):
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    f = C(m)
    def step(x):
        o.zero_grad(); l = f(x).square().mean(); l.backward(); o.step(); return l.item()
    sd = copy.deepcopy(m.state_dict()); od = copy.deepcopy(o.state_dict())
    r = []
    x = torch.randn(5, 3)
    for k in range(4): r.append(step(x))
    m.load_state_dict(sd); o.load_state_dict(od)
    for k in range(4): r.append(step(x))
    m.load_state_dict({k: v + 1 for k, v in sd.items()}, assign=True)
    r.append(f(x))
    m.eval(); r.append(f(x)); m[1].train(); r.append(f(x)); m[1].momentum = 0.5; r.append(f(x)); r.append(m[1].running_var)
    return r


@c
def freeze_replace(torch, nn, F, C):
    class M(nn.Module):
        def __init__(s):
            super().__init__(); s.a = nn.Linear(2, 2); s.b = nn.Linear(2, 2); s.register_buffer("k", torch.ones(2)); s.flag = False
        def forward(s, x):
            y = s.a(x) * s.k
            return s.b(y) if not s.flag else y
    m = M(); f = C(m); r = []; x = torch.ones(3, 2, requires_grad=True)
    def go():
        m.zero_grad(); x.grad = None
        y = f(x); y.sum().backward()
        r.append((y, x.grad, [p.grad for p in m.parameters()]))
    go(); m.a.requires_grad_(False); go()
    m.a.weight = nn.Parameter(torch.full((2, 2), 0.5)); go()
    m.k = torch.zeros(2); go()
    m.register_buffer("k", torch.full((2,), 3.0)); go()
    del m.k; m.k = 2.0; go()
    m.flag = True; go()
    m.b = nn.Identity(); m.flag = False; go()
    m.a = nn.Sequential(nn.Linear(2, 2), nn.ReLU()); go()
    m.b.register_forward_hook(lambda mod, i, o: o * 2); go()
    h = m.register_forward_pre_hook(lambda mod, a: (a[0] + 1,)); go(); h.remove(); go()
    h = m.a.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 3,)); go(); h.remove(); go()
    nn.utils.parametrizations.weight_norm(m.a[0]); go()
    nn.utils.parametrize.remove_parametrizations(m.a[0], "weight"); go()
    m.double(); x = x.detach().double().requires_grad_(); go()
    return r


@c
def mutate_args(torch, nn, F, C):
    D = collections.namedtuple("D", "a b")
    @C
    def f(lst, d, dd, cnt, dq, od, h):
        lst.append(d["x"] * 2); lst[0] = lst[0] + 1
        d["y"] = d.pop("x") + 1
        dd["n"].append(lst[0].sum()); dd["m"]
        cnt.update(["a", "b", "a"]); cnt["c"] -= 1
        dq.appendleft(lst[0]); dq.rotate(1); dq.append(cnt.most_common(1)[0][1])
        od["z"] = 1; od.move_to_end("a"); od.popitem(last=False)
        heapq.heappush(h, 3); x = heapq.heapreplace(h, 7)
        return D(lst[0] * x, sum(cnt.values()))
    r = []
    lst = [torch.zeros(2)]; dd = collections.defaultdict(list); cnt = collections.Counter(); dq = collections.deque(maxlen=4); h = [5, 9]
    for k in range(4):
        d = {"x": torch.ones(2) * k}; od = collections.OrderedDict(a=1, b=2, c=torch.ones(1))
        heapq.heapify(h)
        r.append((f(lst, d, dd, cnt, dq, od, h), d, od, list(h), dict(cnt), list(dq), len(lst)))
    return r, lst, dd


@c
def generators_ctx(torch, nn, F, C):
    log = []
    @contextlib.contextmanager
    def scope(name, x):
        log.append(("in", name))
        try: yield x * 2
        except ValueError as e: log.append(("caught", str(e)))
        finally: log.append(("out", name))
    def g(x):
        t = 0
        while True:
            v = yield x * t
            if v is None: return "done"
            t = t + v
    class Tm:
        def __enter__(s): log.append("e"); return s
        def __exit__(s, t, v, tb): log.append(t.__name__ if t else None); return t is KeyError
    @C
    def f(x, bad):
        with scope("a", x) as y, scope("b", y) as z:
            w = z + 1
            if bad == 1: raise ValueError(f"bad {x.shape[0]}")
        with Tm():
            if bad == 2: {}["k"]
            w2 = y * 3
        it = g(x); next(it)
        a = it.send(1); print("break", bad); b = it.send(2)
        try: it.send(None)
        except StopIteration as e: log.append(e.value)
        with contextlib.suppress(IndexError): log.append([1][bad])
        with contextlib.ExitStack() as st:
            for k in range(2): st.enter_context(scope(str(k), x))
            st.callback(log.append, "cb")
        return w if bad != 1 else y, a + b
    r = [f(torch.ones(2) * k, k % 3) for k in range(6)]
    return r, log


@c
def exceptions_breaks(torch, nn, F, C):
    class My(Exception):
        def __init__(s, t): super().__init__("my"); s.t = t
    log = []
    def inner(x, k):
        try:
            y = x.sum()
            if k == 0: raise My(y * 2)
            if y.item() > 3: raise RuntimeError(f"big {y.item():.1f}")
            return y
        finally:
            log.append(("fin", k))
            x.add_(1)
    @C
    def f(x, k):
        try:
            return inner(x, k), "ok"
        except My as e:
            z = e.t + 1
            try: raise KeyError("a") from e
            except KeyError as e2:
                return z, type(e2.__cause__).__name__
        except RuntimeError as e:
            log.append(str(e)); return x * 2, "rt"
        else: log.append("else")
        finally: log.append("outer")
    r = []
    for k in (0, 1, 2, 0, 3):
        x = torch.ones(2) * k
        r.append((f(x, k), x))
    @C
    def g(x):
        x.mul_(2)
        l = []
        for k in range(3):
            try:
                if k == 1: continue
                if k == 2: break
                l.append(x * k)
            finally: l.append(k)
        else: l.append("no")
        if x.sum() > 100: raise My(x)
        return l
    x = torch.ones(3)
    for _ in range(7):
        try: r.append(g(x))
        except My as e: r.append(e.t)
    return r, log, x


@c
def descriptors(torch, nn, F, C):
    class Lazy:
        def __init__(s, f): s.f = f
        def __set_name__(s, o, n): s.n = n
        def __get__(s, i, o):
            if i is None: return s
            v = s.f(i); i.__dict__[s.n] = v; return v
    class Pos:
        def __set_name__(s, o, n): s.n = "_" + n
        def __get__(s, i, o): return getattr(i, s.n, 0)
        def __set__(s, i, v): setattr(i, s.n, max(v, 0))
    class A:
        p = Pos()
        cnt = 0
        def __init__(s, x): s.x = x; A.cnt += 1
        @Lazy
        def big(s): return s.x * 10
        @functools.cached_property
        def sq(s): return s.x ** 2
        @property
        def y(s): return s.x + s.p
        @y.setter
        def y(s, v): s.x = v - s.p
        @classmethod
        def make(cls, v): return cls(v * 2)
        @staticmethod
        def h(v): return v + 1
        def __getattr__(s, n):
            if n.startswith("dyn_"): return s.x * int(n[4:])
            raise AttributeError(n)
        def __len__(s): return 3
        def __getitem__(s, i): return s.x[i]
        def __iter__(s): return iter([s.x, s.y])
        def __call__(s, v): return s.x + v
        def __add__(s, o): return A(s.x + (o.x if isinstance(o, A) else o))
        __radd__ = __add__
        def __contains__(s, v): return v == s.p
        def __bool__(s): return s.p > 0
        def __eq__(s, o): return s.p == o.p
        __hash__ = None
        def __matmul__(s, o): return s.x @ o.x
    @C
    def f(a, k):
        a.p = k - 2
        r = [a.y, a.big, a.sq, a.dyn_5, a(1), a[0], *a, len(a), A.make(a.x).x, A.h(a.x), (a + a).x, (1 + a).x, a @ a, k - 2 in a, bool(a)]
        a.y = torch.zeros(2) + k
        try: a.nope
        except AttributeError as e: r.append(str(e))
        r.append(sum([a, a], A(torch.zeros(2))).x)
        return r
    a = A(torch.ones(2)); r = []
    for k in range(5):
        r.append(f(a, k)); r.append(a.x); r.append(sorted(a.__dict__))
    return r, A.cnt


@c
def itertools_all(torch, nn, F, C):
    @C
    def f(x, n):
        it = itertools
        xs = list(x)
        return (list(it.accumulate(xs)), [a * b for a, b in it.product(xs[:2], repeat=2)], [a + b for a, b in it.combinations(xs, 2)], [a - b for a, b in it.permutations(xs[:3], 2)],
            [sum(g) for k, g in it.groupby(range(n), lambda v: v // 2)], list(it.chain.from_iterable([xs[:1], xs[1:2]])), list(it.islice(it.cycle(xs), n)), [a * b for a, b in it.zip_longest(xs, range(n), fillvalue=1)],
            list(it.takewhile(lambda v: v < 2, range(n))), [p[0] + p[1] for p in it.pairwise(xs)], list(it.starmap(torch.add, zip(xs, xs))), list(it.compress(xs, [1, 0, 1])), list(it.dropwhile(lambda v: v < 2, range(n))), list(zip(*[(1, 2), (3, 4)])), [next(c) for c in [it.count(n, 2)] for _ in range(3)], [list(t) for t in it.tee(range(n), 2)], list(it.filterfalse(lambda v: v % 2, range(n))), list(map(lambda a, b: a * b, xs, reversed(xs))), dict(enumerate(xs)), list(it.repeat(n, 2)))
    return [f(torch.arange(float(k)), k) for k in (3, 4, 5, 3)]


@c
def match_walrus(torch, nn, F, C):
    class P:
        __match_args__ = ("a", "b")
        def __init__(s, a, b): s.a, s.b = a, b
    @C
    def f(cmd, x):
        match cmd:
            case ("scale", k) if k > 1: y = x * k
            case ("scale", k): y = x / 2
            case {"op": "add", "v": v, **rest}: y = x + v + len(rest)
            case [first, *mid, last]: y = x * first - last + sum(mid)
            case P(a=0, b=b): y = x - b
            case P(a, b): y = x + a * b
            case int() | float() as n: y = x ** n
            case str(s) if (m := len(s)) > 2: y = x + m
            case None: y = x.sum()
            case _: y = -x
        a, *b, d = y.reshape(-1)
        (e, g), *_ = [(1, 2), (3, 4)]
        if (t := y.sum()).dim() == 0 and (u := e + g): y = y + t * u
        return y, a, len(b), d, [w for v in range(3) if (w := v * e) > 0], f"{y.shape} {e!r:>4} {tuple(y.shape)}"
    x = torch.arange(3.0)
    return [f(k, x) for k in (("scale", 3), ("scale", 1), {"op": "add", "v": 2, "z": 1}, [1, 2, 3], [5, 1], P(0, 2), P(3, 2), 2, 0.5, "abc", "a", 2.0, ("scale", 4))]


@c
def view_inplace_mix(torch, nn, F, C):
    @C
    def f(x, i, v):
        a = x[:, 1:]
        b = a.t()
        b[0] += v
        a[i] = a[i] * 2
        x.diagonal().fill_(3)
        w = x.unfold(1, 2, 1)
        w[0, 0].mul_(5)
        x[x > 50] = 0
        x[:, 0], x[:, 1] = x[:, 1].clone(), x[:, 0].clone()
        y = x.flatten()
        y[::3] -= 1
        z = x.expand(2, *x.shape).sum(0)
        x.index_add_(0, torch.tensor([0, 0]), torch.ones(2, x.shape[1]))
        x.scatter_(1, torch.zeros(x.shape[0], 1, dtype=torch.long), -7.0)
        torch.add(x, 1, out=x)
        x.swapaxes_(0, 1)
        return z, b, y, x.sum(0), x.stride()
    r = []
    for n in (3, 4, 3, 5):
        x = torch.arange(float(n * n)).reshape(n, n)
        r.append((f(x, n - 2, 100.0), x))
    return r


@c
def grad_through_inplace(torch, nn, F, C):
    @C
    def f(x, w):
        y = x * w
        y[0].mul_(2)
        v = y[:, 1]
        v.add_(w[1] ** 2)
        y.relu_()
        z = torch.zeros(3, 2)
        z[:, 0] = y.sum(1)
        z[1:, 1].copy_(y[1:, 0])
        z.masked_fill_(z > 20, 1.0)
        u = z.clone(); u.t()[0, 0] = w[0]
        return (u * z).sum()
    r = []
    for k in range(3):
        x = torch.randn(3, 2, requires_grad=True); w = torch.randn(2, requires_grad=True)
        l = f(x, w); l.backward(); r.append((l, x.grad, w.grad))
    return r


@c
def hooks_everywhere(torch, nn, F, C):
    m = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)); log = []
    @C
    def f(x, k):
        y = m[0](x)
        if k % 2: y.register_hook(lambda g: g * 2)
        z = m[2](m[1](y))
        return z.sum()
    r = []; hs = []
    for k in range(6):
        x = torch.ones(2, 2, requires_grad=True); m.zero_grad()
        if k == 2: hs.append(m[0].weight.register_hook(lambda g: log.append(g.sum()) or g + 1))
        if k == 3: hs.append(m[2].weight.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone())))
        if k == 4: hs.append(m[1].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 0.5,)))
        if k == 5: [h.remove() for h in hs]
        f(x, k).backward(); r.append((x.grad, m[0].weight.grad.clone(), m[2].weight.grad.clone()))
    return r, log


@c
def grad_alias(torch, nn, F, C):
    x = torch.ones(3, requires_grad=True); y = torch.ones(3, requires_grad=True); r = []
    @C
    def f(k): (x * k).sum().backward()
    @C
    def g(): y.grad = x.grad; return x.grad is y.grad
    @C
    def h(): x.grad.mul_(2); return y.grad * 1
    @C
    def z(): x.grad = None; y.grad.zero_()
    for k in range(3):
        f(k + 1.0); keep = x.grad; f(2.0); r.append((keep is x.grad, keep.clone(), g(), h(), y.grad.clone())); z(); r.append((keep, x.grad, y.grad.clone()))
    @C
    def cl(): x.grad = x.grad.clone() if x.grad is not None else torch.zeros(3); return x.grad
    r.append(cl()); f(3.0); r.append(cl()); r.append(x.grad)
    return r


@c
def data_swap(torch, nn, F, C):
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    f = C(lambda x: a(x) - b(x)); r = []; x = torch.ones(1, 2)
    r.append(f(x))
    a.weight.data, b.weight.data = b.weight.data, a.weight.data; r.append(f(x))
    a.bias = b.bias; r.append(f(x)); b.bias.data.add_(1); r.append(f(x))
    @C
    def swap():
        with torch.no_grad():
            t = a.weight.clone(); a.weight.copy_(b.weight); b.weight.copy_(t)
    swap(); r.append(f(x)); swap(); r.append(f(x))
    b.weight = a.weight; r.append(f(x)); f(x).sum().backward(); r.append(a.weight.grad)
    a.weight.data.zero_(); r.append(f(x)); r.append(len(list(nn.ModuleList([a, b]).parameters())))
    return r


@c
def grad_modes(torch, nn, F, C):
    w = nn.Parameter(torch.ones(2))
    @C
    def f(x, flag):
        with torch.set_grad_enabled(flag): a = x * w
        with torch.enable_grad(): b = x * w
        with torch.inference_mode(): d = (x * w).sum()
        prev = torch.is_grad_enabled()
        torch.set_grad_enabled(not prev); e = x * w; torch.set_grad_enabled(prev)
        return a, b, e, prev, a.requires_grad, b.requires_grad, e.requires_grad, d.is_inference(), float(d)
    r = []
    for k in range(4):
        with torch.set_grad_enabled(k % 2 == 0): r.append(f(torch.ones(2) * k, k > 1))
    with torch.inference_mode(): o = f(torch.ones(2), True); r.append((o[0] * 1, o[4:8]))
    return r


@c
def args_alias_views(torch, nn, F, C):
    @C
    def f(a, b): a.add_(1); b.mul_(2); return a + b, a is b
    r = []
    for mk in (lambda x: (x, x), lambda x: (x, x[0]), lambda x: (x[0], x), lambda x: (x.t(), x), lambda x: (x[:, :1], x[:, 1:]), lambda x: (x, x.clone()), lambda x: (x[::2], x[1::2] if x.shape[0] % 2 == 0 else x[:1]), lambda x: (x.flip(0), x), lambda x: (x.unsqueeze(0), x), lambda x: (x.view(-1)[:3], x[0, :3]), lambda x: (x.diagonal(), x[:, 0]), lambda x: (x.detach(), x), lambda x: (x.data, x[0]), lambda x: (x.expand(2, *x.shape)[0], x[1])):
        for n in (4, 6):
            x = torch.arange(float(n * n)).reshape(n, n)
            try: o = f(*mk(x))
            except RuntimeError as e: o = "RT"
            r.append((o, x))
    return r


@c
def caller_changes_containers(torch, nn, F, C):
    lst = [torch.ones(2), torch.zeros(2)]; d = {"a": torch.ones(2), "cfg": {"k": 2}}; tup = (torch.ones(2), [1.0, 2.0])
    @C
    def f(x): return sum(l * x for l in lst) + d["a"] * d["cfg"]["k"] + tup[0] * tup[1][-1]
    r = []; x = torch.ones(2); r.append(f(x))
    lst[0] = torch.full((2,), 5.0); r.append(f(x)); lst.append(torch.ones(2)); r.append(f(x)); lst[0].add_(1); r.append(f(x)); lst.pop(0); r.append(f(x))
    d["a"] = torch.ones(2, dtype=torch.float64); r.append(f(x)); d["cfg"]["k"] = 3.5; r.append(f(x)); d["cfg"] = {"k": torch.tensor(2)}; r.append(f(x)); tup[1].append(9.0); r.append(f(x)); tup[0].zero_(); r.append(f(x))
    lst[:] = [torch.ones(2) * 7]; r.append(f(x)); d["a"] = torch.ones(2, 1); r.append(f(x)); lst[0].resize_(1); r.append(f(x))
    return r


@c
def modules_dynamic(torch, nn, F, C):
    class Stage(nn.Module):
        def __init__(s):
            super().__init__(); s.blocks = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)}); s.ps = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(2)]); s.pd = nn.ParameterDict({"k": nn.Parameter(torch.ones(1))}); s.order = ["a", "b"]; s.drop = 0.0; s.act = F.relu
            s._cache = None
        @property
        def depth(s): return len(s.order)
        def forward(s, x, *, route=None, **kw):
            for i, n in enumerate(route or s.order):
                x = s.act(s.blocks[n](x)) + s.ps[i % len(s.ps)] * s.pd["k"]
                if s.drop and s.training: x = F.dropout(x, s.drop)
            if s._cache is None or s._cache.shape != x.shape: s._cache = torch.zeros_like(x)
            s._cache = s._cache * 0.5 + x.detach()
            return x * s.depth + kw.get("bias", 0), s._cache
    m = Stage(); f = C(m); r = []; x = torch.ones(2, 2)
    r.append(f(x)); m.order.reverse(); r.append(f(x)); r.append(f(x, route=("a",))); m.order = ["a"]; r.append(f(x)); r.append(f(x, bias=2)); r.append(f(x, bias=torch.ones(2))); m.act = torch.sigmoid; r.append(f(x)); m.ps.append(nn.Parameter(torch.zeros(2))); r.append(f(x)); m.blocks["c"] = nn.Identity(); m.order.append("c"); r.append(f(x)); m.pd["k"].data.fill_(3); r.append(f(x)); del m.blocks["a"]; m.order = ["b", "c"]; r.append(f(x)); r.append(f(torch.ones(3, 2))); m._cache = None; r.append(f(x)); m.blocks["b"] = nn.Linear(2, 2, bias=False); r.append(f(x)); m.half().float(); r.append(f(x)); m.apply(lambda q: q.weight.data.fill_(0.5) if isinstance(q, nn.Linear) else None); r.append(f(x)); m.requires_grad_(False); r.append(f(x)[0].requires_grad); m.to(torch.float64); r.append(f(x.double()))
    return r


@c
def state_machines(torch, nn, F, C):
    class Env:
        def __init__(s): s.pos = torch.zeros(2); s.t = 0; s.trace = collections.deque(maxlen=3); s.rew = collections.defaultdict(float); s.best = None
        def step(s, a):
            s.t += 1; s.pos = s.pos + torch.tensor([[1.0, 0], [0, 1.0], [-1, 0]])[a]; s.trace.append(s.pos); s.rew[a] += float(s.pos.sum())
            if s.best is None or s.pos.norm() > s.best[0].norm(): s.best = (s.pos, s.t)
            return s.pos, s.t >= 4
    e = Env()
    @C
    def roll(env, acts):
        tot = 0
        for a in acts:
            p, done = env.step(a); tot = tot + p.sum()
            if done: env.__init__(); break
        return tot, env.t
    r = []
    for acts in ([0, 1], [1, 1, 2], [0], [2, 2, 1], [0, 0, 0]): r.append((roll(e, acts), e.pos, e.t, list(e.trace), dict(e.rew), e.best))
    class Welford:
        __slots__ = ("n", "mean", "m2")
        def __init__(s): s.n, s.mean, s.m2 = 0, 0.0, 0.0
        def push(s, v): s.n += 1; d = v - s.mean; s.mean += d / s.n; s.m2 += d * (v - s.mean)
    w = Welford()
    @C
    def g(x): w.push(x); return (x - w.mean) / ((w.m2 / max(w.n - 1, 1)) + 1e-5) ** 0.5
    for k in range(4): r.append(g(torch.tensor([k * 1.0, k * 2.0])))
    heap = []
    @C
    def h(x):
        heapq.heappush(heap, (-float(x.sum()), len(heap)))
        return heapq.nlargest(2, heap), x * len(heap)
    for k in range(4): r.append(h(torch.ones(2) * (k % 3)))
    return r, (w.n, w.mean, w.m2), heap


@c
def try_data_errors(torch, nn, F, C):
    log = []; buf = torch.zeros(2)
    @C
    def f(A):
        buf.add_(1)
        try: L = torch.linalg.cholesky(A); log.append("ok")
        except RuntimeError: log.append("bad"); L = torch.eye(2)
        return L * buf[0]
    @C
    def g(t, i):
        t += 1
        try: return t[i] * 2
        except IndexError: return None
        finally: log.append("fin")
    @C
    def h(a, b):
        a.mul_(2)
        try: return a // b
        except (RuntimeError, ZeroDivisionError) as e: return type(e).__name__
    r = []
    for A in (torch.eye(2), -torch.eye(2), torch.eye(2) * 4): r.append(f(A))
    for i in (0, 5, 1): t = torch.arange(3); r.append((g(t, torch.tensor([i])), t))
    for b in (1, 0, 2): a = torch.tensor([4]); r.append((h(a, torch.tensor([b])), a))
    return r, log, buf


@c
def second_order_parts(torch, nn, F, C):
    d = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    @C
    def f(x):
        y = d(x)
        print("shape", tuple(y.shape))
        g, = torch.autograd.grad(y.sum(), x, create_graph=True)
        return (g ** 2).sum()
    r = []
    for k in range(2):
        x = torch.randn(3, 2, requires_grad=True); l = f(x); l.backward(); r += [l, x.grad, d[0].weight.grad.clone()]
    return r


@c
def accumulate_list_state(torch, nn, F, C):
    class Buf:
        def __init__(s, cap): s.cap = cap; s.data = []; s.i = 0
        def add(s, *t):
            if len(s.data) < s.cap: s.data.append(t)
            else: s.data[s.i] = t
            s.i = (s.i + 1) % s.cap
        def __len__(s): return len(s.data)
        def cat(s): return [torch.stack(list(v)) for v in zip(*s.data)]
    b = Buf(3); r = []
    @C
    def f(x): b.add(x * 2, x.sum()); return b.cat()[0].mean() if len(b) > 1 else x.mean()
    for k in range(7): r.append(f(torch.ones(2) * k))
    return r, b.data, b.i


@c
def freeze_schedule(torch, nn, F, C):
    m = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)]); o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=0.01)
    @C
    def f(x, depth):
        for k, l in enumerate(m):
            for p in l.parameters(): p.requires_grad_(k >= depth)
            x = l(x).tanh()
        return x.sum()
    r = []
    for k in range(6):
        o.zero_grad(set_to_none=k % 2 == 0); l = f(torch.ones(1, 2), k % 3); l.backward(); o.step(); r.append((l, [None if p.grad is None else p.grad.clone() for p in m.parameters()], [p.requires_grad for p in m.parameters()]))
    return r, list(m.parameters())


@c
def manual_update_variants(torch, nn, F, C):
    r = []
    for v in range(5):
        w = torch.ones(2, requires_grad=True); b = torch.zeros(1, requires_grad=True)
        @C
        def step(x, y):
            nonlocal w, b
            l = ((x @ w + b - y) ** 2).mean(); l.backward()
            if v == 0:
                with torch.no_grad(): w -= 0.1 * w.grad; b -= 0.1 * b.grad; w.grad = None; b.grad = None
            elif v == 1: w.data -= 0.1 * w.grad.data; b.data = b.data - 0.1 * b.grad; w.grad.zero_(); b.grad.zero_()
            elif v == 2:
                w = (w - 0.1 * w.grad).detach().requires_grad_(True); b = (b - 0.1 * b.grad).detach().requires_grad_()
            elif v == 3:
                for p in (w, b): p.data.sub_(p.grad, alpha=0.1); p.grad.detach_(); p.grad.zero_()
            else:
                g = [p.grad.clone() for p in (w, b)]; w.grad = b.grad = None
                with torch.no_grad():
                    for p, q in zip((w, b), g): p.add_(q, alpha=-0.1)
            return l
        for k in range(4): r.append(step(torch.ones(3, 2) * (k + 1) / 4, torch.ones(3)))
        r.append((w, b, w.grad, b.grad))
    return r


@c
def index_writes(torch, nn, F, C):
    @C
    def f(x, i, m):
        a = x.clone(); a[i] += 1; a[m] *= 2; a[:, -1] = a[:, 0]; a[..., 0:1] -= 3; a[i, 1] = torch.arange(float(len(i))); a[[0, -1]] = a[[-1, 0]]; a[None, 0] = 7
        b = a.index_put((i,), torch.ones(len(i), a.shape[1]), accumulate=True); d = a.masked_scatter(m, torch.arange(100.0)); e = a.scatter_reduce(0, i[:, None].expand(-1, a.shape[1]), torch.full((len(i), a.shape[1]), 5.0), "amax", include_self=False)
        a.index_fill_(0, i[:1], -1); a.index_copy_(1, torch.tensor([0]), torch.zeros(a.shape[0], 1)); del_ = a[a > 3]; a[a > 3] = del_ * 0 + 9; g = torch.take_along_dim(a, a.argsort(1), 1); a.put_(torch.tensor([0, 1]), torch.tensor([4.0, 5.0])); h = a.take(torch.tensor([0, -1])); k = torch.tril(a).nonzero(); a.fill_diagonal_(2); a[1:, 1:][0] = 8; a.T[0, 1:] = 6
        return a, b, d, e, g, h, k, torch.where(m)[0], a.unique(return_counts=True), torch.bincount(i, minlength=4), a.select_scatter(torch.zeros(a.shape[1]), 0, 0), a.slice_scatter(torch.ones(1, a.shape[1]), 0, 1, 2), torch.diagonal_scatter(a, torch.zeros(min(a.shape)))
    r = []
    for n in (3, 4, 5):
        x = torch.arange(float(n * 3)).reshape(n, 3) - 4; r.append(f(x, torch.tensor([0, n - 1, 1]), x % 2 == 0))
    return r


@c
def shapes_decide(torch, nn, F, C):
    @C
    def f(x):
        b, n = x.shape; out = []
        if n % 2: x = F.pad(x, (0, 1))
        for c2 in x.chunk(max(1, n // 3), 1): out.append(c2.mean(1))
        w = x.unfold(1, 2, 2) if x.shape[1] >= 2 else x[:, :, None]
        p = x.reshape(b, -1, 2).sum(-1) if x.shape[1] % 2 == 0 else x
        k = min(3, x.shape[1]); t = x.topk(k, 1).values
        g = x.view(b, 2, -1).transpose(1, 2) if x.shape[1] % 2 == 0 and b > 1 else x
        return torch.stack(out, 1), w.sum(-1), p, t, g, x.numel() // b, [s for s in x.stride()], torch.arange(n).float() / max(n - 1, 1), x[:, n // 2:], x[: b // 2 + 1], f"{b}x{n}", torch.zeros(b, n).shape == x.shape, len(x), x.size(0) * 2.5, int(n ** 0.5), x.split([1, x.shape[1] - 1], 1)[1].sum()
    return [f(torch.arange(float(b * n)).reshape(b, n)) for b, n in ((2, 4), (2, 5), (3, 5), (1, 7), (4, 8), (3, 9), (2, 2), (1, 3), (5, 6), (2, 12))]


@c
def hooks_of_optimizers(torch, nn, F, C):
    every = importlib.import_module(f"{torch.__name__}.optim.optimizer").register_optimizer_step_pre_hook
    w = nn.Parameter(torch.ones(2)); o = torch.optim.SGD([w], lr=0.1); log = []; h = [None]
    @C
    def step(x):
        o.zero_grad(); (w * x).sum().backward(); o.step()
    changes = {1: lambda: o.register_step_post_hook(lambda *a: log.append("after")), 3: lambda: h[0].remove(), 5: lambda: every(lambda *a: log.append("every")),
               7: lambda: h[0].remove(), 9: lambda: o.register_step_pre_hook(lambda *a: log.append(w.grad.mul_(2).sum().item())), 10: lambda: h[0].remove()}
    r = []
    for k in range(12):
        if k in changes: h[0] = changes[k]()
        step(torch.ones(2) * (k + 1)); r.append((w.detach().clone(), len(log)))
    return r, log


@c
def a_partial_is_an_argument(torch, nn, F, C):
    table, r = [1.0], []
    def scaled(a, b=1.0): return a[0] * b
    class Mine(functools.partial): pass
    def f(x, s):
        r.append(str(s())); return x * x.sum().item()
    for kind in (functools.partial, Mine):
        s = kind(scaled, table, b=1.0); g = C(f)
        for k in range(6):
            if k == 2: s.keywords["b"] = 4.0
            if k == 3: table[0] = 7.0
            if k == 4: s.__setstate__((scaled, ([k],), {"b": 2.0}, {}))
            if k == 5: s.__setstate__((lambda: -1.0, (), {}, {}))
            r.append(g(torch.ones(2) + k, s))
        table[0] = 1.0
    return r


@c
def the_value_of_an_enum_is_set(torch, nn, F, C):
    class E(enum.Enum): A = 1.0
    r = []
    @C
    def f(x):
        r.append(str((E.A.value, E.A.name))); return x * x.sum().item()
    for k in range(4): f(torch.ones(2)); E.A._value_ = k + 5.0; E.A._name_ = str(k)
    return r
