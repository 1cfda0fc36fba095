"""Functions as state: their code, defaults, cells, attributes, caches, what they are bound to."""

from __future__ import annotations

from functools import partial

from tests.effects.kinds import kind

functions = partial(kind, "functions")
_TWO = "def S(v=1.0, *, w=0.5): return v + w\ndef other(v=2.0, *, w=0.25): return v * 3 - w\n"
_WAYS = {
    "": "S()",
    " by map": "sum(map(S, [1.0]))",
    " by reduce": "functools.reduce(lambda a, b: a + S(b), [1.0, 2.0])",
    " itself by reduce": "functools.reduce(S2, [1.0, 2.0, 3.0])",
    " by sorted": "sorted([1.0, -2.0, 3.0], key=S)[0]",
    " by max": "max([1.0, -2.0, 3.0], key=S)",
    " by partial": "functools.partial(S, 2.0)()",
    " by re.sub": "float(re.sub('a', lambda m: str(S()), 'a'))",
    " by filter": "float(len(list(filter(lambda v: S(v) > 4, [1.0, 2.0, 3.0]))))",
    " by accumulate": "list(itertools.accumulate([1.0, 2.0], S2))[1]",
    " by starmap": "list(itertools.starmap(S, [(2.0,)]))[0]",
    " by groupby": "float(len(list(itertools.groupby([1.0, 2.0, 3.0], S))))",
    " by takewhile": "float(len(list(itertools.takewhile(lambda v: S(v) < 4, [1.0, 2.0, 9.0]))))",
    " by dict.fromkeys": "sum(dict.fromkeys(map(S, [1.0]), 2.0))",
    " by np.vectorize": "float(np.vectorize(S)(np.ones(1))[0])",
    " by np.apply_along_axis": "float(np.apply_along_axis(lambda r: S(r[0]), 0, np.ones(2)))",
    " by np.fromiter": "float(np.fromiter(map(S, [1.0]), np.float64)[0])",
    " by np.frompyfunc": "float(np.frompyfunc(S, 1, 1)(1.0))",
    " by iter": "next(iter(lambda: S(2.0), None))",
    " by defaultdict": "collections.defaultdict(S)['a']",
    " by operator.call": "operator.call(S, 2.0)",
    " by heapq": "heapq.nlargest(1, [1.0, -2.0, 3.0], key=S)[0]",
    " by bisect": "float(bisect.bisect([1.0, 2.0, 3.0], 3.4, key=S))",
    " by cmp_to_key": "sorted([1.0, 3.0], key=functools.cmp_to_key(lambda a, b: S(a) - S(b)))[0]",
    " by ThreadPool": "__import__('concurrent.futures').futures.ThreadPoolExecutor(1).sub"
    "mit(S).result()",
    " by string.Formatter": "float(len('{0:>{1}}'.format('a', int(S() * 4))))",
    " by a thread": "[t := threading.Thread(target=lambda: OUT.__setitem__(0, S())), "
    "t.start(), t.join(), OUT[0]][-1]",
}
_EXTRA = "OUT = [0.0]\n"
for how, read in _WAYS.items():
    if "S2" in read:
        made = "def S2(a, b=1.0): return a + b\ndef other(a, b=2.0): return a * 3 - b\nS = S2\n"
        functions(
            f"code{how}",
            made,
            read.replace("S2", "S"),
            change="S.__code__, other.__code__ = other.__code__, S.__code__",
        )
        continue
    functions(
        f"code{how}",
        _TWO + _EXTRA,
        read,
        change="S.__code__, other.__code__ = other.__code__, S.__code__",
    )
    functions(
        f"defaults{how}",
        _TWO + _EXTRA,
        read,
        write="S.__kwdefaults__['w'] += 0.25",
        change="S.__defaults__ = (k,)\nS.__kwdefaults__ = {'w': k * 2}",
        state="S.__defaults__, S.__kwdefaults__",
    )
for how in (
    "",
    " by map",
    " by sorted",
    " by re.sub",
    " by np.vectorize",
    " by partial",
    " by max",
):
    functions(
        f"cell{how}",
        "def made():\n    c = 1.0\n    def g(v=1.0): return v * c\n"
        "    def put(n):\n"
        "        nonlocal c\n        c = n\n    return g, put\n"
        "S, put = made()\n" + _EXTRA,
        _WAYS[how],
        change="put(-k)",
        state="S()",
    )
    functions(
        f"cell contents{how}",
        "def made():\n    c = [1.0]\n    def g(v=1.0): return v * c[0]\n"
        "    return g, c\n"
        "S, c = made()\n" + _EXTRA,
        _WAYS[how],
        write="c[0] = -c[0] + 0.5",
        change="c[0] = -k",
        state="c",
    )
    functions(
        f"object it calls{how}",
        "class O:\n    k = 1.0\n"
        "    def __call__(self, v=1.0): return v * self.k\nS = O()\n" + _EXTRA,
        _WAYS[how],
        write="S.k = -S.k + 0.5",
        change="S.k = -k",
        state="S.k",
    )
    functions(
        f"method it calls{how}",
        "class O:\n    k = 1.0\n"
        "    def m(self, v=1.0): return v * self.k\no = O()\nS = o.m\n" + _EXTRA,
        _WAYS[how],
        write="o.k = -o.k + 0.5",
        change="o.k = -k",
        state="o.k",
    )
    functions(
        f"counting{how}",
        "C = [0.0]\ndef S(v=1.0):\n    C[0] += 1\n    return v * C[0]\n" + _EXTRA,
        _WAYS[how],
        change="C[0] = -k",
        state="C[0]",
    )
functions(
    "function attribute",
    "def S(): return S.a\nS.a = 1.0",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
functions(
    "function dict",
    "def S(): return 1.0\nS.a = 1.0",
    "S.__dict__['a']",
    write="S.__dict__['a'] += 0.5",
    change="S.__dict__ = {'a': k}",
)
functions(
    "mutable default",
    "def g(v=1.0, c=[1.0]):\n    c[0] += 1\n    return c[0]\nS = g",
    "S()",
    change="S.__defaults__[1][0] = k",
    state="S.__defaults__",
)
functions(
    "default that is a dict",
    "def g(c={'a': 1.0}): return c['a']\nS = g",
    "S()",
    write="S.__defaults__[0]['a'] += 0.5",
    change="S.__defaults__[0]['a'] = k",
)
functions(
    "lru_cache",
    "N = [1.0]\n@functools.lru_cache\ndef S(v): return v * N[0]",
    "S(2.0)",
    write="S.cache_clear()",
    change="N[0] = k",
    state="S.cache_info().currsize",
)
functions(
    "lru_cache info",
    "@functools.lru_cache\ndef S(v): return v",
    "float(S.cache_info().currsize + S(1.0))",
    write="S(S.cache_info().currsize + 5.0)",
    change="S.cache_clear()",
    state="S.cache_info().currsize",
)
functions(
    "cache of tensors",
    "@functools.cache\ndef S(v): return torch.ones(1) * v + len(L)\nL = []",
    "S(2.0)",
    write="S.cache_clear()",
    change="L.append(0); S.cache_clear()",
    state="S.cache_info().currsize",
)
functions(
    "partial",
    "def g(a, b=1.0): return a * b\nS = functools.partial(g, 2.0, b=1.0)",
    "S()",
    write="S.keywords['b'] += 0.5",
    change="S.keywords['b'] = k",
    state="S.keywords",
)
functions(
    "partial setstate",
    "def g(a, b=1.0): return a * b\nS = functools.partial(g, 2.0, b=1.0)",
    "S()",
    change="S.__setstate__((g, (k,), {}, {}))",
    state="S.args",
)
functions(
    "partial attribute",
    "def g(a): return a\nS = functools.partial(g, 2.0)\nS.a = 1.0",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
functions(
    "partial of a list",
    "def g(a, b): return a[0] * b\nL = [1.0]\nS = functools.partial(g, L)",
    "S(2.0)",
    write="L[0] += 0.5",
    change="L[0] = k",
    state="L",
)
functions(
    "partialmethod",
    "class O:\n    k = 1.0\n    def m(self, a): return a * self.k\n"
    "    n = functools.partialmethod(m, 2.0)\nS = O()",
    "S.n()",
    write="S.k += 0.5",
    change="O.n = functools.partialmethod(O.m, k)",
)
functions(
    "singledispatch",
    "@functools.singledispatch\ndef S(v): return 1.0\n@S.register\ndef _(v: int): return 2.0",
    "S(1) + S('a')",
    change="S.register(str, lambda v: k)",
)
functions(
    "total_ordering",
    "@functools.total_ordering\nclass O:\n    k = 1.0\n"
    "    def __lt__(self, o): return self.k < o\n"
    "    def __eq__(self, o): return False\nS = O()",
    "2.0 if S >= 2 else 3.0",
    write="S.k = 4 - S.k",
    change="S.k = k",
)
functions(
    "methodcaller",
    "class O:\n    k = 1.0\n    def m(self, v): return v * self.k\n"
    "S = O()\ncall = operator.methodcaller('m', 2.0)",
    "call(S)",
    write="S.k += 0.5",
    change="S.k = k",
)
functions(
    "methodcaller, method exchanged",
    "class O:\n    def m(self, v): return v\nS = O()\ncall = operator.methodcaller('m', 2.0)",
    "call(S)",
    change="O.m = lambda self, v: v * k",
)
functions(
    "attrgetter",
    "class O: pass\nS = O()\nS.a = O()\nS.a.b = 1.0\nget = operator.attrgetter('a.b')",
    "get(S)",
    write="S.a.b += 0.5",
    change="S.a.b = k",
)
functions(
    "attrgetter of a property",
    "class O:\n    k = 1.0\n    @property\n"
    "    def a(self): return self.k\nS = O()\n"
    "get = operator.attrgetter('a')",
    "get(S)",
    write="S.k += 0.5",
    change="S.k = k",
)
functions(
    "itemgetter",
    "S = {'a': 1.0}\nget = operator.itemgetter('a')",
    "get(S)",
    write="S['a'] += 0.5",
    change="S['a'] = k",
)
functions(
    "itemgetter of the user's",
    "class O:\n    k = 1.0\n"
    "    def __getitem__(self, i): return self.k * i\nS = O()\n"
    "get = operator.itemgetter(2)",
    "get(S)",
    write="S.k += 0.5",
    change="S.k = k",
)
functions(
    "wrapped",
    "def deco(g):\n    @functools.wraps(g)\n"
    "    def w(*a): return g(*a) * w.k\n    w.k = 1.0\n"
    "    return w\n@deco\ndef S(v=2.0): return v",
    "S()",
    write="S.k += 0.5",
    change="S.k = k",
    state="S.k",
)
functions(
    "bound method's self",
    "class O:\n    def __init__(self): self.k = 1.0\n"
    "    def m(self): return self.k\no = O()\nS = o.m",
    "S()",
    write="S.__self__.k += 0.5",
    change="o.k = k",
    state="o.k",
)
functions(
    "builtin method's self",
    "L = [1.0]\nS = L.__getitem__",
    "S(0)",
    write="L[0] += 0.5",
    change="L[0] = k",
    state="L",
)
functions(
    "builtin method of a dict",
    "L = {'a': 1.0}\nS = L.get",
    "S('a')",
    write="L['a'] += 0.5",
    change="L['a'] = k",
    state="L",
)
functions(
    "callable class attribute",
    "class S:\n    k = 1.0\n    def __new__(cls): return cls.k",
    "S()",
    write="S.k += 0.5",
    change="S.k = k",
    state="S.k",
)
functions(
    "class with __init__",
    "class S:\n    k = 1.0\n    def __init__(self): self.a = S0[0] * self.k\nS0 = [1.0]",
    "S().a",
    write="S0[0] += 0.5",
    change="S0[0] = k\nS.__init__ = lambda self: setattr(self, 'a', k)",
    state="S0",
)
functions(
    "recursive function",
    "N = [1.0]\ndef S(n=2): return N[0] if n == 0 else S(n - 1) + 1",
    "S()",
    write="N[0] += 0.5",
    change="N[0] = k",
    state="N",
)
functions(
    "generator function",
    "N = [1.0]\ndef S():\n    for i in range(2): yield N[0] + i",
    "sum(S())",
    write="N[0] += 0.5",
    change="N[0] = k",
    state="N",
)
functions(
    "function in a dict",
    "S = {'g': lambda: 1.0}",
    "S['g']()",
    write="S['g'] = lambda: 3.0",
    change="S['g'] = lambda: k",
    state="S['g']()",
)
functions(
    "function in a list, by map",
    "S = [lambda v: v]",
    "sum(map(S[0], [1.0]))",
    write="S[0] = lambda v: v * 3",
    change="S[0] = lambda v: v * k",
    state="S[0](1.0)",
)
functions(
    "sort by __lt__",
    "class O:\n    sign = 1\n    def __init__(self, v): self.v = v\n"
    "    def __lt__(self, o): return self.v * O.sign < o.v * O.sign\n"
    "S = [O(1.0), O(2.0)]",
    "sorted(S)[0].v",
    write="type(S[0]).sign *= -1",
    change="O.sign = 1 if k == 1.0 else -1",
    state="O.sign",
)
functions(
    "hash and eq in a dict",
    "class O:\n    h = 1\n    def __hash__(self): return self.h\n"
    "    def __eq__(self, o): return self.h == o.h\n"
    "a = O()\nS = O()\nD = {a: 2.0}",
    "D.get(S, 3.0)",
    write="S.h = 3 - S.h",
    change="S.h = int(k)",
    state="S.h",
)
functions(
    "__str__ in text",
    "class O:\n    k = 1.0\n    def __str__(self): return str(self.k)\nS = O()",
    "float('%s' % S)",
    write="S.k += 0.5",
    change="S.k = k",
    state="S.k",
)
functions(
    "__format__ in text",
    "class O:\n    k = 1.0\n    def __format__(self, s): return str(self.k)\nS = O()",
    "float(f'{S:>3}')",
    write="S.k += 0.5",
    change="S.k = k",
    state="S.k",
)
functions(
    "__float__",
    "class O:\n    k = 1.0\n    def __float__(self): return self.k\nS = O()",
    "float(S)",
    write="S.k += 0.5",
    change="S.k = k",
    state="S.k",
)
functions(
    "__index__",
    "class O:\n    k = 1\n    def __index__(self): return self.k\nS = O()",
    "[5.0, 6.0, 7.0, 8.0][S]",
    write="S.k = (S.k + 1) % 4",
    change="S.k = int(k)",
    state="S.k",
)
functions(
    "__len__ by sum of len",
    "class O:\n    k = 1\n    def __len__(self): return self.k\nS = O()",
    "float(sum(map(len, [S, S])))",
    write="S.k = (S.k + 1) % 4",
    change="S.k = int(k)",
    state="S.k",
)
functions(
    "context manager",
    "class O:\n    depth = 1.0\n    def __enter__(self):\n"
    "        self.depth += 1\n        return self.depth\n"
    "    def __exit__(self, *e): self.depth -= 0.5\nS = O()",
    "S.__enter__()",
    write="with S: pass",
    change="S.depth = k",
    state="S.depth",
)
functions(
    "copyreg deepcopy",
    "class O:\n    k = 1.0\n    def __deepcopy__(self, m): return self.k\nS = O()",
    "copy.deepcopy(S)",
    write="S.k += 0.5",
    change="S.k = k",
    state="S.k",
)
functions(
    "code of f itself",
    "S = [None]",
    "2.0",
    change="f.__code__ = f.__code__.replace(co_consts=tuple(k if c == 2.0 and "
    "type(c) is float "
    "or type(c) is float and c in (1.0, 3.0) else c for c in "
    "f.__code__.co_consts))",
    state="0",
    places=("global", "closure"),
)
