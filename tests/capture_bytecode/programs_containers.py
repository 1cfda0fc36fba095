"""Lists, dicts, sets, tuples: building, unpacking, indexing, changing."""

import collections
import copy
import itertools

import lucerne as torch
from tests.capture_bytecode.cases import case


@case(lambda: ([1, 2, 3, 4, 5],))
def list_methods(xs):
    xs.append(6)
    xs.extend([7, 8])
    xs.insert(0, 0)
    xs.remove(3)
    last = xs.pop()
    xs.reverse()
    xs.sort(key=lambda x: x % 3)
    return last, xs.index(4), xs.count(2), xs.copy()


@case(lambda: (list(range(10)),))
def slices(xs):
    a = xs[2:5], xs[:3], xs[::3], xs[::-1], xs[-2:]
    xs[2:4] = ["a", "b", "c"]
    xs[::5] = [None] * len(xs[::5])
    del xs[-1], xs[:1]
    xs[1] += 100 if isinstance(xs[1], int) else "!"
    return a


@case(lambda: (list(range(10)), 2, 5))
def slices_by_variables(xs, a, b):
    found = xs[a:b], xs[:b], xs[a:], xs[a:b:a]
    xs[a:b] = found[0][::-1]
    xs[:a] = [None] * b
    del xs[b:]
    return found


@case(lambda: ({"a": 1, "b": 2},))
def dict_methods(d):
    d["c"] = 3
    d.update({"d": 4}, e=5)
    d.setdefault("f", []).append(6)
    d["a"] += 10
    gone = d.pop("b"), d.pop("zzz", None), d.popitem()
    del d["c"]
    d |= {"z": 0}
    return gone, list(d.items()), "a" in d, "q" not in d, d.get("q", 7), {**d, "a": 0}, d | {"y": 1}


@case(lambda: ({1, 2, 3}, {2, 3, 4}))
def set_methods(a, b):
    c = a | b, a & b, a - b, a ^ b, a <= b, {1} < a
    a.add(9)
    a.discard(1)
    a |= {7}
    a -= {2}
    b.update([8], (9,))
    return c, {*a, *b}, frozenset(b)


@case(lambda: ((1, (2, 3), [4, 5, 6]),))
def unpacking(t):
    a, (b, c), [d, *e] = t
    *f, g = t
    h, *i, j = "hello"
    (k,) = [1]
    [m, n] = {"x": 1, "y": 2}
    return a, b, c, d, e, f, g, h, i, j, k, m, n


@case(lambda: ([1],), lambda: ([1, 2, 3],), lambda: (5,), lambda: (None,))
def unpack_errors(xs):
    a, b = xs
    return a, b


@case(lambda: ([1],), lambda: (7,))
def unpack_star_errors(xs):
    a, b, *c = xs
    return a, b, c


@case(lambda: (1, 2))
def swaps(a, b):
    a, b = b, a
    c = d = [a]
    d.append(b)
    x, y, z = a, b, a
    z, x, y = x, y, z
    return a, b, c, x, y, z


@case(lambda: ([1, 2], (3,), {"k": 4}))
def literal_unpacking(a, b, c):
    return [*a, *b, 9], (*a, *b), {*a, *b}, {**c, "m": 1, **{"k": 0}}, [*c], [*range(3), *"ab"]


@case(lambda: (5,))
def unpack_non_iterable(n):
    return [*n]


@case(lambda: (5,))
def unpack_non_mapping(n):
    return {**n}


@case(lambda: (["b", "a", "c", "a"],))
def counters(words):
    c = collections.Counter(words)
    d = collections.defaultdict(list)
    for k, w in enumerate(words):
        d[w].append(k)
    o = collections.OrderedDict(sorted(c.items()))
    o.move_to_end("a")
    return c.most_common(1), dict(d), list(o), c["zzz"], c + collections.Counter("ab")


@case(lambda: (collections.deque([1, 2, 3], maxlen=4),))
def deques(q):
    q.append(4)
    q.appendleft(0)
    q.rotate(1)
    q.extend([7])
    return q.pop(), q.popleft(), list(q)


@case(lambda: ([[1, 2], [3, 4]],))
def nested_changes(m):
    m[0][1] *= 10
    m.append(m[0])
    m[2].append("shared")
    n = copy.deepcopy(m)
    n[0][0] = "copied"
    return n, m[0] is m[2], n[0] is n[2]


@case(lambda: ([3, 1, 2],))
def aliases(xs):
    ys = xs
    ys += [4]
    zs = xs
    zs = zs + [5]
    ys *= 2
    return xs is ys, zs, len(xs)


@case(lambda: ({"a": {"b": {"c": 1}}},))
def deep_dict(d):
    d["a"]["b"]["c"] += 1
    d["a"]["new"] = d["a"]["b"]
    del d["a"]["b"]["c"]
    return d["a"]["new"]


@case(lambda: ({},), lambda: ([],), lambda: ("",))
def lookup_errors(x):
    try:
        return x["k"]
    except (KeyError, TypeError, IndexError) as error:
        return type(error).__name__, str(error)


@case(lambda: ([1, 2, 3],))
def item_out_of_range(xs):
    xs[7] = 1


@case(lambda: ((1, 2),))
def assign_to_tuple(t):
    t[0] = 5


@case(lambda: (["x", "y"], [1, 2]))
def zips_and_maps(a, b):
    pairs = list(zip(a, b))
    back = list(zip(*pairs))
    return (
        dict(pairs),
        back,
        list(map(lambda p, q: p * q, a, b)),
        list(filter(None, [0, 1, "", "a"])),
        list(enumerate(a, 1)),
        list(reversed(b)),
        [k for k, _ in itertools.groupby("aabbb")],
    )


@case(lambda: (range(10),))
def ranges(r):
    return r[2:8:3], 5 in r, len(r), list(r[::-2]), r.index(4), sum(r), r == range(0, 10)


@case(lambda: (bytearray(b"abc"),))
def bytes_and_arrays(b):
    b[0] = 120
    b += b"!"
    b.extend(b"yz")
    return bytes(b), b"%d" % 5, memoryview(b)[1:3].tolist()


@case(lambda: ({"x": 1},))
def iterate_while_changing(d):
    for key in d:
        d[key + "y"] = 1


@case(lambda: ([],))
def matrix_of_lists(out):
    n = 3
    m = [[0] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            m[i][j] = i * j
    out.extend(m)
    return [list(r) for r in zip(*m)], [sum(r) for r in m]


@case(lambda: ({"w": torch.ones(2), "b": torch.zeros(2)}, torch.arange(2.0)))
def tensors_in_dict(params, x):
    params["out"] = params["w"] * x + params["b"]
    params["w"] = params["w"] + 1
    return {k: v.sum() for k, v in params.items()}


@case(lambda: ([], torch.arange(3.0)))
def tensors_appended(out, x):
    for k in range(3):
        out.append(x + k)
    return torch.stack(out)


@case(lambda: ([torch.ones(2), torch.zeros(2)],))
def tensor_list_changed(xs):
    xs[0], xs[1] = xs[1] + 5, xs[0]
    xs.append(xs[0] * xs[1])
    first, *rest = xs
    return first, len(rest)


@case(lambda: (torch.arange(12.0).reshape(3, 4),))
def tensor_indexing(x):
    a, b = x[0], x[:, 1]
    c = x[1:, ::2]
    x[0, 0] = 50.0
    x[2] = x[1] * 2
    return a + x[-1], b, c, x[..., -1], x[[0, 2]], x[None].shape


@case(lambda: (torch.arange(6.0),))
def tensor_split_and_unpack(x):
    a, b, c = x.chunk(3)
    d, e = x.reshape(2, 3).unbind(0)
    n, m = x.reshape(3, 2).shape
    return a * b + c, d - e, n * m


@case(lambda: (torch.tensor([3.0, 1.0, 2.0]),))
def tensor_named_results(x):
    values, order = x.sort()
    top = x.topk(2)
    return values, order, top.values, top[1], torch.max(x, 0).indices
