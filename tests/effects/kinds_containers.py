"""Containers of Python's, and classes of the user's that extend them."""

from __future__ import annotations

from functools import partial

from tests.effects.kinds import kind

boxes = partial(kind, "containers")

boxes("list item", "S = [1.0, 2.0]", "S[0]", write="S[0] += 0.5", change="S[0] = k")
boxes(
    "list that grows",
    "S = [1.0]",
    "float(len(S))",
    write="S.append(1.0)",
    change="S[:] = [1.0] * int(k)",
)
boxes("list summed", "S = [1.0, 2.0]", "sum(S)", write="S.append(0.5)", change="S[:] = [k, 1.0]")
boxes("list popped", "S = [1.0, 2.0, 3.0] * 40", "S[-1]", write="S.pop()", change="S.append(k)")
boxes(
    "list by slice",
    "S = [1.0, 2.0, 3.0]",
    "S[1:][0]",
    write="S[1:2] = [S[1] + 0.5]",
    change="S[1:] = [k]",
)
boxes("list reversed", "S = [1.0, 2.0, 3.0]", "S[0]", write="S.reverse()", change="S[0] = k")
boxes(
    "list sorted in place",
    "S = [3.0, 1.0, 2.0]",
    "S[0]",
    write="S.sort(key=lambda v: -v)",
    change="S[:] = [k, 4.0, 1.0]",
)
boxes(
    "list by operator",
    "S = [1.0]",
    "float(len(S))",
    write="operator.iadd(S, [1.0])",
    change="S[:] = [1.0] * int(k)",
)
boxes(
    "list in place",
    "S = [1.0]",
    "float(len(S))",
    write="S += [1.0]",
    change="S[:] = [1.0] * int(k)",
    rebinds=True,
)
boxes(
    "list by setitem",
    "S = [1.0]",
    "S[0]",
    write="operator.setitem(S, 0, S[0] + 0.5)",
    change="S[0] = k",
)
boxes(
    "list by list's method",
    "S = [1.0]",
    "float(list.__len__(S))",
    write="list.append(S, 1.0)",
    change="S[:] = [1.0] * int(k)",
)
boxes(
    "list by its bound method",
    "S = [1.0]\nadd = S.append",
    "float(len(S))",
    write="add(1.0)",
    change="S[:] = [1.0] * int(k)",
    places=("global", "closure"),
)
boxes("list of lists", "S = [[1.0], [2.0]]", "S[0][0]", write="S[0][0] += 0.5", change="S[0] = [k]")
boxes(
    "list of tensors",
    "S = [torch.ones(1)]",
    "S[0]",
    write="S[0] = S[0] + 0.5",
    change="S[0] = torch.ones(1) * k",
)
boxes(
    "list of tensors that grows",
    "S = [torch.ones(1)]",
    "S[-1]",
    write="S.append(S[-1] + 0.5)",
    change="S[:] = [torch.ones(1) * k]",
)
boxes(
    "list holding itself",
    "S = [1.0]\nS.append(S)",
    "S[1][1][0]",
    write="S[1][0] += 0.5",
    change="S[0] = k",
)
boxes("list shuffled", "S = [1.0, 2.0, 3.0]", "S[0]", write="random.shuffle(S)", change="S[0] = k")
boxes(
    "heap",
    "S = [1.0, 2.0, 3.0]",
    "S[0]",
    write="heapq.heapreplace(S, S[0] + 1.25)",
    change="S[:] = [k, 5.0, 6.0]",
)
boxes(
    "bisect",
    "S = [1.0, 2.0, 3.0]",
    "S[1]",
    write="bisect.insort(S, 1.5)",
    change="S[:] = [k, 5.0, 6.0]",
)
boxes("tuple of a list", "S = ([1.0], 2)", "S[0][0]", write="S[0][0] += 0.5", change="S[0][0] = k")
boxes(
    "tuple bound anew",
    "S = (1.0, 2.0)",
    "S[0]",
    write="S = (S[0] + 0.5, 2.0)",
    change="S = (k, 2.0)",
    rebinds=True,
)
boxes("dict item", "S = {'a': 1.0}", "S['a']", write="S['a'] += 0.5", change="S['a'] = k")
boxes(
    "dict get",
    "S = {'a': 1.0}",
    "S.get('b', 1.0)",
    write="S['b'] = S.get('b', 1.0) + 0.5",
    change="S['b'] = k\nif k == 1.0: del S['b']",
)
boxes(
    "dict setdefault",
    "S = {'a': 1.0}",
    "S.setdefault('b', 2.0)",
    write="S['b'] = 3.0",
    change="S.pop('b', None)\nS['a'] = k",
    state="sorted(S.items())",
)
boxes(
    "dict key asked",
    "S = {'a': 1.0}",
    "2.0 if 'b' in S else 3.0",
    write="S.pop('b') if 'b' in S else S.update(b=1)",
    change="S.clear()\nif k == 2.0: S['b'] = 0",
)
boxes(
    "dict order",
    "S = {'a': 1.0, 'b': 2.0}",
    "next(iter(S.values()))",
    write="S['a'] = S.pop('a')",
    change="v = S.pop('b', 2.0)\nS['b'] = v + k",
)
boxes(
    "dict of numbers by key", "S = {1: 1.0, 2: 2.0}", "S[1]", write="S[1] += 0.5", change="S[1] = k"
)
boxes(
    "dict merged",
    "S = {'a': 1.0}",
    "{**S, 'c': 1.0}['a']",
    write="S |= {'a': S['a'] + 0.5}",
    change="S = {'a': k}",
    rebinds=True,
)
boxes(
    "dict popped",
    "S = {i: 1.0 * i for i in range(60)}",
    "float(len(S))",
    write="S.popitem()",
    change="S[0] = k",
)
boxes("dict view", "D = {'a': 1.0}\nS = D.values()", "sum(S)", change="D['a'] = k")
boxes(
    "dict keys view",
    "D = {'a': 1.0}\nS = D.keys()",
    "float(len(S))",
    write="D[len(D)] = 1",
    change="D[k] = k",
)
boxes(
    "dict with a tensor",
    "S = {'a': torch.ones(1)}",
    "S['a']",
    write="S['a'] = S['a'] + 0.5",
    change="S['a'] = torch.ones(1) * k",
)
boxes(
    "dict nested",
    "S = {'a': {'b': 1.0}}",
    "S['a']['b']",
    write="S['a']['b'] += 0.5",
    change="S['a'] = {'b': k}",
)
boxes(
    "mapping proxy",
    "D = {'a': 1.0}\nS = types.MappingProxyType(D)",
    "S['a']",
    write="D['a'] += 0.5",
    change="D['a'] = k",
)
boxes(
    "memo of results",
    "S = {}",
    "S.setdefault('n', len(S) + 1.0)",
    write="S[len(S)] = 1.0",
    change="S.clear()\nS[0] = k",
    state="sorted(map(str, S.items()))",
)
boxes(
    "set",
    "S = {1}",
    "float(len(S))",
    write="S.add(len(S) + 1)",
    change="S.clear()\nS.update(range(int(k)))",
)
boxes(
    "set asked",
    "S = {1}",
    "2.0 if 2 in S else 3.0",
    write="S.symmetric_difference_update({2})",
    change="S.clear()\nif k == 2.0: S.add(2)",
)
boxes(
    "set in place",
    "S = {1}",
    "float(len(S))",
    write="S ^= {len(S) + 1}",
    change="S = set(range(int(k)))",
    rebinds=True,
)
boxes(
    "frozenset",
    "S = frozenset({1})",
    "float(len(S))",
    write="S = S ^ {len(S) + 1}",
    change="S = frozenset(range(int(k)))",
    rebinds=True,
)
boxes(
    "deque",
    "S = collections.deque([1.0, 2.0], maxlen=4)",
    "S[0]",
    write="S.append(S[-1] + 0.5)",
    change="S[0] = k",
)
boxes(
    "deque length",
    "S = collections.deque([1.0])",
    "float(len(S))",
    write="S.appendleft(1.0)",
    change="S.clear()\nS.extend([1.0] * int(k))",
)
boxes(
    "deque rotated",
    "S = collections.deque([1.0, 2.0, 3.0])",
    "S[0]",
    write="S.rotate(1)",
    change="S[0] = k",
)
boxes(
    "deque popped",
    "S = collections.deque([1.0, 2.0, 3.0] * 40)",
    "S[0]",
    write="S.popleft()",
    change="S.appendleft(k)",
)
boxes(
    "deque item set",
    "S = collections.deque([1.0, 2.0, 3.0])",
    "S[1]",
    write="S[1] += 0.5",
    change="S[1] = k",
)
boxes(
    "deque of tensors",
    "S = collections.deque([torch.ones(1)], maxlen=3)",
    "S[0]",
    write="S.append(S[-1] + 0.5)",
    change="S[0] = torch.ones(1) * k",
)
boxes(
    "deque insert and remove",
    "S = collections.deque([1.0, 2.0])",
    "S[0]",
    write="S.insert(0, 3.0 - S[0])\nS.remove(S[1])",
    change="S[0] = k",
)
boxes(
    "deque summed",
    "S = collections.deque([1.0, 2.0])",
    "sum(S)",
    write="S.extend([0.5])",
    change="S.clear()\nS.append(k)",
)
boxes(
    "OrderedDict",
    "S = collections.OrderedDict(a=1.0, b=2.0)",
    "next(iter(S.values()))",
    write="S.move_to_end('a')",
    change="S['a'] = k\nS.move_to_end('a', False)",
)
boxes(
    "OrderedDict item",
    "S = collections.OrderedDict(a=1.0, b=2.0)",
    "S['a']",
    write="S['a'] += 0.5",
    change="S['a'] = k",
)
boxes(
    "OrderedDict popped",
    "S = collections.OrderedDict((i, 1.0 * i) for i in range(60))",
    "float(len(S))",
    write="S.popitem(last=False)",
    change="S[k] = k",
)
boxes(
    "defaultdict",
    "S = collections.defaultdict(float)",
    "S['a'] + len(S)",
    write="S['a'] += 0.5",
    change="S['a'] = k\nif k == 1.0: del S['a']",
    state="sorted(S.items())",
)
boxes(
    "defaultdict of lists",
    "S = collections.defaultdict(list)",
    "float(len(S['a']))",
    write="S['a'].append(1)",
    change="S.clear()\nS['a'] = [0] * int(k)",
    state="sorted(S.items())",
)
boxes(
    "defaultdict factory",
    "S = collections.defaultdict(lambda: 1.0)",
    "S['a']",
    change="S.clear()\nS.default_factory = lambda: k",
    state="sorted(S.items())",
)
boxes(
    "defaultdict that counts",
    "n = itertools.count()\nS = collections.defaultdict(n.__next__)",
    "float(S['a'] + 1)",
    write="S[len(S)]",
    change="S.pop('a', None)",
    state="sorted(map(str, S.items()))",
)
boxes(
    "Counter",
    "S = collections.Counter('aab')",
    "float(S['a'])",
    write="S.update('a')",
    change="S['a'] = int(k)",
)
boxes(
    "Counter item",
    "S = collections.Counter('aab')",
    "float(S['a'] + S['zz'])",
    write="S['a'] += 1",
    change="S.clear()\nS['a'] = int(k)",
)
boxes(
    "Counter most common",
    "S = collections.Counter('aab')",
    "float(S.most_common(1)[0][1])",
    write="S.subtract({'b': -1})",
    change="S['b'] = int(k) + 4",
)
boxes(
    "ChainMap",
    "A, B = {}, {'a': 1.0}\nS = collections.ChainMap(A, B)",
    "S['a']",
    write="S['a'] = S['a'] + 0.5",
    change="A.clear()\nB['a'] = k",
)
boxes(
    "UserDict",
    "S = collections.UserDict(a=1.0)",
    "S['a']",
    write="S['a'] = S['a'] + 0.5",
    change="S['a'] = k",
)
boxes(
    "UserList",
    "S = collections.UserList([1.0])",
    "S[0] + len(S)",
    write="S.append(1.0)",
    change="S[0] = k",
)
boxes(
    "subclass of list",
    "class L(list): pass\nS = L([1.0])\nS.a = 1.0",
    "S[0] + S.a + len(S)",
    write="S.append(1.0)\nS.a += 0.5",
    change="S[0] = k\nS.a = k",
)
boxes(
    "subclass of list with append",
    "class L(list):\n    n = 0\n    def append(self, v):\n"
    "        self.n += 1\n        super().append(v * 2)\n"
    "S = L([1.0])",
    "float(sum(S) + S.n)",
    write="S.append(1.0)",
    change="S[:] = [k]",
)
boxes(
    "subclass of list with getitem",
    "class L(list):\n    def __getitem__(self, i):\n"
    "        self.last = i\n"
    "        return super().__getitem__(i) * 2\nS = L([1.0])\n"
    "S.last = -1",
    "S[0]",
    write="S[0] = S[0] % 5 + 0.5",
    change="list.__setitem__(S, 0, k)",
    state="list(S), S.last",
)
boxes(
    "subclass of dict",
    "class D(dict): pass\nS = D(a=1.0)\nS.a = 1.0",
    "S['a'] + S.a",
    write="S['a'] += 0.5\nS.a += 0.25",
    change="S['a'] = k\nS.a = k",
)
boxes(
    "subclass of dict with missing",
    "class D(dict):\n    k = 1.0\n    def __missing__(self, n):\n        return self.k\nS = D()",
    "S['a']",
    write="S.k += 0.5",
    change="S.k = k",
)
boxes(
    "subclass of dict with missing that keeps",
    "class D(dict):\n    def __missing__(self, n):\n"
    "        self[n] = v = len(self) + 1.0\n"
    "        return v\nS = D()",
    "S['a']",
    write="S[len(S) + 7]",
    change="S.pop('a', None)",
    state="list(S.items())",
)
boxes(
    "subclass of dict with setitem",
    "class D(dict):\n    n = 0\n    def __setitem__(self, k, v):\n"
    "        self.n += 1\n        super().__setitem__(k, v)\n"
    "S = D(a=1.0)",
    "S['a'] + S.n",
    write="S['a'] = S['a'] + 0.5",
    change="dict.__setitem__(S, 'a', k)",
)
boxes(
    "subclass of set",
    "class T(set): pass\nS = T({1})\nS.a = 1.0",
    "len(S) + S.a",
    write="S.add(len(S) + 1)\nS.a += 0.5",
    change="S.clear()\nS.a = k",
)
boxes(
    "subclass of deque",
    "class Q(collections.deque): pass\nS = Q([1.0], 5)\nS.a = 1.0",
    "S[0] + S.a + len(S)",
    write="S.append(1.0)\nS.a += 0.5",
    change="S[0] = k\nS.a = k",
)
boxes(
    "subclass of OrderedDict",
    "class O(collections.OrderedDict): pass\nS = O(a=1.0)\nS.b = 1.0",
    "S['a'] + S.b",
    write="S['a'] += 0.5\nS.b += 0.25",
    change="S['a'] = k\nS.b = k",
)
boxes(
    "subclass of defaultdict",
    "class F(collections.defaultdict): pass\nS = F(float)\nS.b = 1.0",
    "S['a'] + S.b",
    write="S['a'] += 0.5\nS.b += 0.25",
    change="S['a'] = k\nS.b = k",
    state="sorted(S.items()), S.b",
)
boxes(
    "subclass of Counter",
    "class C(collections.Counter): pass\nS = C('aab')\nS.b = 1.0",
    "S['a'] + S.b",
    write="S['a'] += 1\nS.b += 0.25",
    change="S['a'] = int(k)\nS.b = k",
)
boxes(
    "subclass of tuple",
    "class T(tuple): pass\nS = T((1.0,))\nS.a = 1.0",
    "S[0] + S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
boxes(
    "subclass of float",
    "class F(float): pass\nS = F(1.0)\nS.a = 1.0",
    "S + S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
boxes(
    "subclass of int with add",
    "class I(int):\n    def __add__(self, o): return int(self) + o + self.a\nS = I(1)\nS.a = 1.0",
    "(S + 1)",
    write="S.a += 0.5",
    change="S.a = k",
)
boxes(
    "subclass of str",
    "class T(str): pass\nS = T('ab')\nS.a = 1.0",
    "len(S) + S.a",
    write="S.a += 0.5",
    change="S.a = k",
)
boxes(
    "object with __getitem__",
    "class B:\n    def __init__(self): self.v = [1.0, 2.0]\n"
    "    def __getitem__(self, i): return self.v[i]\n"
    "    def __setitem__(self, i, v): self.v[i] = v\n"
    "S = B()",
    "S[0]",
    write="S[0] += 0.5",
    change="S.v = [k, 2.0]",
)
boxes(
    "object with __iter__",
    "class B:\n    def __init__(self): self.v = [1.0, 2.0]\n"
    "    def __iter__(self): return iter(self.v)\nS = B()",
    "sum(S)",
    write="S.v[0] += 0.5",
    change="S.v = [k, 2.0]",
)
boxes(
    "object with __contains__",
    "class B:\n    n = 0\n    def __contains__(self, v):\n"
    "        self.n += 1\n        return self.n % 2 == 0\nS = B()",
    "2.0 if 1 in S else 3.0",
    change="S.n = int(k)",
    state="S.n",
)
boxes(
    "queue",
    "S = queue.Queue()\nfor i in range(60): S.put(1.0 + i % 3)",
    "float(S.qsize() % 5)",
    write="S.get_nowait()",
    change="S.put(k)",
)
