"""Positions: iterators, generators, files, random states, clocks, what a context holds."""

from __future__ import annotations

from functools import partial

from tests.effects.kinds import kind

at = partial(kind, "iterators")

_GEN = (
    "def steps():\n    n = 0.0\n    while True:\n        n += 1\n        got = yield n\n"
    "        n += got or 0\nS = steps()"
)
at(
    "iterator of a list",
    "S = iter([1.0 + i % 5 for i in range(900)])",
    "next(S)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator of a list, reversed",
    "S = reversed([1.0 + i % 5 for i in range(900)])",
    "next(S)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator of a range",
    "S = iter(range(900))",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator of a dict",
    "S = iter({i: 1 for i in range(900)})",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator of a tuple",
    "S = iter(tuple(range(900)))",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator of a string",
    "S = iter('abc' * 300)",
    "float(ord(next(S)) % 7)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator of a set",
    "S = iter(frozenset(range(900)))",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator of a deque",
    "S = iter(collections.deque(range(900)))",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator asked for its rest",
    "S = iter([1.0 + i % 5 for i in range(900)])",
    "float(S.__length_hint__() % 7)",
    write="next(S)",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator that ends",
    "S = iter([2.0, 3.0])",
    "next(S, 1.0)",
    change="next(S, 0)",
    state="S.__length_hint__()",
)
at(
    "iterator that is setstate",
    "S = iter([1.0, 2.0, 3.0])",
    "next(S, 5.0)",
    write="S.__setstate__(0)",
    change="S.__setstate__(int(k) - 1)",
    state="S.__length_hint__()",
)
at(
    "iterator by a loop",
    "S = iter([1.0 + i % 5 for i in range(900)])",
    "sum(v for v, _ in zip(S, range(2)))",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator by sum",
    "L = [1.0, 2.0]\nS = iter(L)",
    "sum(S)",
    change="S.__setstate__(0)" if False else "L.append(k)",
    state="S.__length_hint__()",
)
at(
    "iterator by unpacking",
    "S = iter([1.0 + i % 5 for i in range(900)])",
    "[*itertools.islice(S, 2)][1]",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "iterator by in",
    "S = iter([1.0, 2.0, 3.0] * 200)",
    "2.0 if 2.0 in S else 3.0",
    change="next(S)",
    state="S.__length_hint__()",
)
at(
    "itertools.count",
    "S = itertools.count(1)",
    "float(next(S))",
    write="next(S)",
    change="next(S)",
    state="S",
)
at(
    "itertools.count by zip",
    "S = itertools.count(1)",
    "float([i for i, _ in zip(S, 'ab')][0])",
    change="next(S)",
    state="S",
)
at(
    "itertools.cycle",
    "S = itertools.cycle([1.0, 2.0, 3.0])",
    "next(S)",
    write="next(S)",
    change="next(S)",
    state="S.__reduce__()[1] and 0",
)
at(
    "itertools.repeat",
    "S = itertools.repeat(2.0, 900)",
    "next(S)",
    write="next(S)",
    change="next(S)",
    state="S",
)
at(
    "itertools.chain",
    "A = iter(range(900))\nS = itertools.chain(A)",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(S)",
    state="A.__length_hint__()",
)
at(
    "itertools.accumulate",
    "A = iter(range(900))\nS = itertools.accumulate(A)",
    "float(next(S) % 7)",
    change="next(S)",
    state="A.__length_hint__()",
)
at(
    "itertools.islice",
    "A = iter(range(900))\nS = itertools.islice(A, 0, None, 2)",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(A)",
    state="A.__length_hint__()",
)
at(
    "itertools.groupby",
    "A = iter([1, 1, 2, 2] * 200)\nS = itertools.groupby(A)",
    "float(next(S)[0])",
    write="next(S)",
    change="next(S)",
    state="A.__length_hint__()",
)
at(
    "itertools.tee",
    "S = itertools.tee(range(900))[0]",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(S)",
    state="next(copy.copy(S))",
)
at(
    "itertools.takewhile",
    "A = iter(range(900))\nS = itertools.takewhile(lambda v: v >= 0, A)",
    "float(next(S) % 7)",
    write="next(S)",
    change="next(S)",
    state="A.__length_hint__()",
)
at(
    "itertools.product",
    "S = itertools.product(range(30), range(30))",
    "float(next(S)[1] % 7)",
    write="next(S)",
    change="next(S)",
    state="next(copy.copy(S))",
)
at(
    "enumerate",
    "A = iter(range(900))\nS = enumerate(A)",
    "float(next(S)[0] % 7)",
    write="next(S)",
    change="next(S)",
    state="A.__length_hint__()",
)
at(
    "zip",
    "A = iter(range(900))\nS = zip(A, A)",
    "float(next(S)[0] % 7)",
    write="next(S)",
    change="next(S)",
    state="A.__length_hint__()",
)
at(
    "map object",
    "A = iter(range(900))\nS = map(lambda v: v + 1.0, A)",
    "next(S) % 7",
    write="next(S)",
    change="next(S)",
    state="A.__length_hint__()",
)
at(
    "filter object",
    "A = iter(range(900))\nS = filter(None, A)",
    "next(S) % 7 + 0.5",
    write="next(S)",
    change="next(S)",
    state="A.__length_hint__()",
)
at(
    "iterator of a callable",
    "L = [0]\ndef tick():\n    L[0] += 1\n    return float(L[0])\nS = iter(tick, -1.0)",
    "next(S)",
    write="next(S)",
    change="L[0] = int(k)",
    state="L[0]",
)
at(
    "generator",
    _GEN,
    "next(S)",
    write="next(S)",
    change="next(S)",
    state="S.gi_frame.f_locals['n']",
)
at(
    "generator that is sent",
    _GEN + "\nnext(S)",
    "S.send(1)",
    write="S.send(2)",
    change="S.send(3)",
    state="S.gi_frame.f_locals['n']",
)
at(
    "generator by a loop",
    _GEN,
    "sum(v for v, _ in zip(S, range(2)))",
    change="next(S)",
    state="S.gi_frame.f_locals['n']",
)
at(
    "generator of tensors",
    "def steps():\n    n = torch.ones(1)\n    while True:\n"
    "        n = n + 1\n        yield n\nS = steps()",
    "next(S)",
    write="next(S)",
    change="next(S)",
    state="told(S.gi_frame.f_locals['n'])",
)
at(
    "generator closed",
    "def steps():\n    try:\n        while True: yield 1.0\n"
    "    finally: L.append(1)\nL = []\nS = steps()\nnext(S)",
    "next(S, 2.0)",
    write="S.close()",
    state="len(L)",
)
at(
    "generator yield from",
    "def steps():\n    yield from (1.0 + i % 5 for i in range(900))\nS = steps()",
    "next(S)",
    write="next(S)",
    change="next(S)",
    state="S.gi_frame is None",
)
at(
    "iterator of the user's",
    "class It:\n    n = 0.0\n    def __iter__(self): return self\n"
    "    def __next__(self):\n"
    "        self.n += 1\n        return self.n\nS = It()",
    "next(S)",
    write="next(S)",
    change="S.n = k",
    state="S.n",
)
at(
    "contextvar",
    "S = contextvars.ContextVar('a', default=1.0)",
    "S.get()",
    write="S.set(S.get() + 0.5)",
    change="S.set(k)",
)
at(
    "contextvar reset",
    "S = contextvars.ContextVar('a', default=1.0)",
    "S.get(2.0)",
    write="t = S.set(S.get() + 0.5)\nif S.get() > 4: S.reset(t)",
    change="S.set(k)",
)
at(
    "context run",
    "S = contextvars.copy_context()\nV = contextvars.ContextVar('a', default=1.0)",
    "S.run(V.get)",
    write="S.run(V.set, S.run(V.get) + 0.5)",
    change="S.run(V.set, k)",
)
at("thread local", "S = threading.local()\nS.a = 1.0", "S.a", write="S.a += 0.5", change="S.a = k")
at(
    "thread local of a class",
    "class L(threading.local):\n    a = 1.0\nS = L()",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
at(
    "random of Python",
    "S = None",
    "random.random()",
    write="random.random()",
    change="random.seed(k)",
    state="random.getstate()[1][-1]",
)
at(
    "random seeded inside",
    "S = None",
    "random.random()",
    write="random.seed(7)",
    change="random.seed(k)",
    state="random.getstate()[1][-1]",
)
at(
    "random generator of its own",
    "S = random.Random(3)",
    "S.random()",
    write="S.shuffle([1, 2, 3])",
    change="S.seed(k)",
    state="S.getstate()[1][-1]",
)
at(
    "random of numpy",
    "S = None",
    "float(np.random.rand())",
    write="np.random.rand()",
    change="np.random.seed(int(k))",
    state="np.random.get_state()[2]",
)
at(
    "random generator of numpy",
    "S = np.random.default_rng(3)",
    "float(S.random())",
    write="S.random()",
    change="S.random(3)",
    state="S.bit_generator.state['state']",
)
at(
    "random of lucerne",
    "S = None",
    "torch.rand(1)",
    write="torch.rand(1)",
    change="torch.manual_seed(int(k))",
    mode="bitwise",
    state="0",
)
at(
    "random of lucerne, seeded inside",
    "S = None",
    "torch.rand(1)",
    write="torch.manual_seed(5)",
    change="torch.manual_seed(int(k))",
    mode="bitwise",
    state="0",
)
at(
    "random generator of lucerne",
    "S = torch.Generator().manual_seed(3)",
    "torch.rand(1, generator=S)",
    write="torch.rand(1, generator=S)",
    change="S.manual_seed(int(k))",
    state="0",
)
at(
    "state of lucerne's generator",
    "S = torch.Generator().manual_seed(3)",
    "float(S.initial_seed())",
    write="S.manual_seed(5)",
    change="S.manual_seed(int(k))",
)
at(
    "clock",
    "S = [0]",
    "float(time.perf_counter_ns() != S[0]) + 1",
    write="S[0] = time.perf_counter_ns()",
    change="S[0] = 1",
    state="0",
)
at(
    "clock patched",
    "S = [1.0]\nkept = time.time\ntime.time = lambda: S[0]",
    "time.time()",
    write="S[0] += 0.5",
    change="S[0] = k\nif k == 3.0: time.time = kept; time.time = lambda: S[0]",
    places=("global", "closure"),
    undo="time.time = kept",
)
at(
    "environment",
    "os.environ['EFFECTS_CELL'] = '1.0'\nS = os.environ",
    "float(S['EFFECTS_CELL'])",
    write="S['EFFECTS_CELL'] = str(float(S['EFFECTS_CELL']) % 5 + 0.5)",
    change="os.environ['EFFECTS_CELL'] = str(k)",
    undo="os.environ.pop('EFFECTS_CELL')",
)
at(
    "environment by getenv",
    "os.environ.pop('EFFECTS_CELL', None)\nS = None",
    "float(os.getenv('EFFECTS_CELL', '1.0'))",
    write="os.environ['EFFECTS_CELL'] = '4.5'",
    change="os.environ['EFFECTS_CELL'] = str(k)\nif k == 1.0: del os.environ['EFFECTS_CELL']",
    undo="os.environ.pop('EFFECTS_CELL', None)",
)
at(
    "working folder",
    "S = tempfile.gettempdir()\nhome = os.getcwd()",
    "2.0 if os.getcwd() == S else 3.0",
    change="os.chdir(S if k == 2.0 else home)",
    undo="os.chdir(home)",
)
at(
    "file",
    "S = tempfile.TemporaryFile('w+')\nS.write('123456789' * 60)\nS.seek(0)",
    "float(S.read(1))",
    write="S.seek(3)",
    change="S.seek(int(k))",
    state="S.tell()",
)
at(
    "file position",
    "S = tempfile.TemporaryFile('w+b')",
    "float(S.tell())",
    write="S.write(b'1')",
    change="S.seek(int(k))",
    state="S.tell()",
)
at(
    "StringIO",
    "S = io.StringIO('123456789' * 60)",
    "float(S.read(1))",
    write="S.seek(3)",
    change="S.seek(int(k))",
    state="S.tell()",
)
at(
    "StringIO written",
    "S = io.StringIO()",
    "float(len(S.getvalue()))",
    write="S.write('a')",
    change="S.write('a' * int(k))",
    state="S.getvalue()",
)
at(
    "BytesIO",
    "S = io.BytesIO(bytes(range(1, 200)))",
    "float(S.read(1)[0])",
    write="S.seek(3)",
    change="S.seek(int(k))",
    state="S.tell()",
)
at(
    "lock",
    "S = threading.Lock()",
    "2.0 if S.locked() else 3.0",
    write="S.release() if S.locked() else S.acquire()",
    change="if k == 2.0 and not S.locked(): S.acquire()",
)
at(
    "event",
    "S = threading.Event()",
    "2.0 if S.is_set() else 3.0",
    write="S.clear() if S.is_set() else S.set()",
    change="S.set() if k == 2.0 else S.clear()",
)
at(
    "recursion limit",
    "S = None\nkept = sys.getrecursionlimit()",
    "float(sys.getrecursionlimit() - kept)",
    change="sys.setrecursionlimit(kept + int(k))",
    undo="sys.setrecursionlimit(kept)",
)
at("stack depth", "S = None", "float(sys._getframe().f_lineno > 0)")
at("name of the caller", "S = None", "float(len(sys._getframe().f_code.co_name))")
at(
    "gc state",
    "S = None",
    "2.0 if gc.isenabled() else 3.0",
    change="gc.disable() if k == 2.0 else gc.enable()",
    undo="gc.enable()",
)
at(
    "decimal context",
    "import decimal\nS = decimal.getcontext()\nS.prec = 5",
    "float(decimal.Decimal(1) / 3)",
    write="S.prec = S.prec % 5 + 1",
    change="S.prec = int(k) + 1",
    places=("global", "closure"),
    undo="S.prec = 28",
)
at(
    "numpy error state",
    "S = None\nkept = np.geterr()['over']",
    "float(len(np.geterr()['over']))",
    change="np.seterr(over='ignore' if k == 2.0 else kept)",
    undo="np.seterr(over=kept)",
)
at(
    "print options",
    "S = None",
    "float(len(np.array2string(np.array([1.23456789]))))",
    change="np.set_printoptions(precision=int(k) + 2)",
    undo="np.set_printoptions(precision=8)",
)
at(
    "warnings filter",
    "S = None",
    "float(len(warnings.filters) >= 0)" if False else "1.0 + float(sys.flags.optimize)",
)
