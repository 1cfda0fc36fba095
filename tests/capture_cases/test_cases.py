"""A part of the table in each run, all of what was once found wrong, and that a difference is seen.
(`python -m tests.capture_cases` runs the whole table.)"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tests.capture_cases.__main__ import LEAST, MOST_DOCUMENTED
from tests.capture_cases.all_rows import CASES
from tests.capture_cases.runs import Verdict, difference, judged, snapshot
from tests.capture_cases.table import Case

EVERY = 12


def test_the_table_is_long_enough() -> None:
    assert len(CASES) >= LEAST
    assert len({(c.group, c.name) for c in CASES}) == len(CASES)
    assert sum("differs" in c.options for c in CASES) <= MOST_DOCUMENTED


@pytest.mark.parametrize("case", CASES[::EVERY], ids=str)
def test_compiled_is_as_eager(case: Case) -> None:
    verdict = judged(case)
    assert verdict.is_good, f"{verdict.kind}: {verdict.text}"


@pytest.mark.nightly
@pytest.mark.parametrize("case", [c for k, c in enumerate(CASES) if k % EVERY], ids=str)
def test_compiled_is_as_eager_in_all_cases(case: Case) -> None:
    verdict = judged(case)
    assert verdict.is_good, f"{verdict.kind}: {verdict.text}"


# ---- what was found, as it was found ------------------------------------------------------------

_SGD = """
m=nn.Linear(2,2)
def f(x):
 for p in m.parameters():
  if p.grad is not None: p.data-=.1*p.grad
 return x*1
"""
_STEP = "m=nn.Linear(2,2)\no=torch.optim.SGD(m.parameters(),lr=.1,momentum=.9)\nst=C(o.step)\n"
_SPARSE = """
m=nn.Embedding(5,3,sparse=True)
o=torch.optim.SparseAdam(m.parameters(),lr=.1)
x=torch.tensor([1,1,3])
def f(x):
 o.zero_grad(); l=m(x).pow(2).sum(); l.backward(); o.step(); return l.detach()
"""
FOUND = [
    ("F1", "t=torch.ones(2);u=torch.ones(2)\ndef f(q,k): return q*2 if k is q else q*3",
     [], "[f(t,t),f(t,u),f(u,u),f(u,t)]"),
    ("F1 global", "t=torch.ones(2)\ndef f(q): return q*2 if q is t else q*3",
     [], "[f(t),f(t*1),f(t)]"),
    ("F2", "m=nn.Linear(2,2)\ndef f(x): return x*2 if m.weight.grad is None else x*3",
     ["m(torch.ones(2)).sum().backward()", "m.zero_grad()"], "f(x)"),
    ("F2 by hand", _SGD, ["m(torch.ones(1,2)).sum().backward()", ""], "f(x)"),
    ("F2 step", _STEP + "def f(x): st(); return x*1",
     ["m(torch.ones(1,2)).sum().backward()", "m.weight.grad=None"], "f(x)"),
    ("F2 kept gradient", "m=nn.Linear(2,2)\ne={}\ndef f(x):\n g=m.weight.grad\n"
     " if g is not None: e['g']=g.detach()*.1\n return x*1",
     ["m(torch.ones(1,2)).sum().backward()", "m.weight.grad=torch.ones(2,2)*5"], "f(x)"),
    ("F7", "def f(x): return x.view(torch.int32)", ["x=x+1"], "f(x)"),
    ("F7 complex", "def f(x): return torch.view_as_complex(x)\nx=torch.ones(3,2)", [], "f(x)"),
    ("F8", "m=nn.Linear(2,2)\ndef f(x): return x*2 if m.weight.requires_grad else x*3",
     ["m.requires_grad_(False)", "m.requires_grad_(True)"], "f(x)"),
    ("F8 version", "t=torch.ones(2)\ndef f(x): return x*t._version", ["t.add_(1)"], "f(x)"),
    ("F9", "a=np.ones(3)\ndef f(x): return x*float(a[0])", ["a[0]=5", "a*=2"], "f(x)"),
    ("F9 given", "a=np.ones(3)\ndef f(x,a): return x*float(a.mean())", ["a[0]=5"], "f(x,a)"),
    ("F9 random", "def f(x): return x*torch.from_numpy(np.random.rand(3).astype('float32'))",
     ["np.random.seed(1)"], "f(x)"),
    ("F10", "l=[1]\ndef f(x): return l", [], "(f(x) is l, f(x).append(3), list(l))"),
    ("F10 argument", "l=[x]\ndef f(x,l): return x*2,l", [], "f(x,l)[1] is l"),
    ("F11", "def f(x): return torch.ones(2).device.type",
     ["torch.set_default_device('meta')", "torch.set_default_device(None)"], "f(x)"),
    ("F12 slots", "class S: __slots__=('n',)\ns=S();s.n=0\ndef f(x): s.n+=1; return x*s.n",
     [""], "f(x)"),
    ("F12 own attribute", "def f(x):\n g.n=getattr(g,'n',0)+1\n return x*g.n\ng=f", [""], "f(x)"),
    ("F12 hasattr", "class A: pass\na=A()\ndef f(x): return x*2 if hasattr(a,'z') else x",
     ["A.z=1", "del A.z"], "f(x)"),
    ("F12 tag", "def f(x): return x*2 if hasattr(x,'tag') else x", ["x.tag=1"], "f(x)"),
    ("F12 __dict__", "class M(nn.Module):\n n=1\n def forward(s,x): return x*s.n\nm=M();m.n=2\nf=m",
     ["m.__dict__['n']=3", "vars(m).update(n=4)", "object.__setattr__(m,'n',5)"], "f(x)"),
    ("F12 key", "d={}\ndef f(x):\n d[x]=1\n return x*len(d)", [""], "f(x)"),
    ("F12 weak", "import weakref\nclass A: pass\na=A();w=weakref.ref(a)\n"
     "def f(x): return x*2 if w() is not None else x", ["del a"], "f(x)"),
    ("F12 patched", "o=torch.Tensor.sin\ndef f(x): return x.sin()",
     ["torch.Tensor.sin=lambda s: s*7", "torch.Tensor.sin=o"], "f(x)"),
    ("F12 inference", "def f(x):\n with torch.inference_mode(): y=x*2\n return y,y.is_inference()",
     [], "(lambda r: (r[1], r[0].is_inference()))(f(x))"),
    ("F12 threads", "torch.set_num_threads(2)\ndef f(x): torch.set_num_threads(1); return x*2",
     ["torch.set_num_threads(2)"], "(f(x), torch.get_num_threads())"),
    ("F12 sparse", _SPARSE, ["x=torch.tensor([0,4])", ""], "f(x)"),
]  # fmt: skip


@pytest.mark.parametrize("row", FOUND, ids=lambda row: row[0])
def test_what_was_found(row: Any) -> None:
    name, setup, steps, call = row
    wrap = "=C(" not in setup
    verdict = judged(Case("found", name, setup, steps, call, {} if wrap else {"wrap": False}))
    assert verdict.is_good, f"{verdict.kind}: {verdict.text}"


def test_del_of_a_compiled_module_is_of_the_module() -> None:
    text = "class M(nn.Module):\n k=1.\n def forward(s,x): return x*s.k\nm=M();m.k=2.\nf=m"
    assert judged(Case("found", "del", text, ["del f.k", "M.k=8."])).is_good


# ---- a difference is seen -----------------------------------------------------------------------


def _doubled(fn: Any, **_: Any) -> Any:
    return lambda *a, **k: fn(*a, **k) * 2


def _forgetful(fn: Any, **_: Any) -> Any:
    kept: list[Any] = []

    def call(*args: Any) -> Any:
        if not kept:
            kept.append(fn(*args))
        return kept[0]

    return call


def _raising(fn: Any, **_: Any) -> Any:
    def call(*args: Any) -> Any:
        raise RuntimeError("planted")

    return call


COUNTS = "n=0\ndef f(x):\n global n\n n+=1\n return x*1"


@pytest.mark.parametrize(
    ("wrap", "setup", "kind"),
    [
        (_doubled, "def f(x): return x*3", "wrong"),
        (_forgetful, "def f(x): return x*k\nk=1", "wrong"),
        (_forgetful, COUNTS, "wrong"),
        (_forgetful, "def f(x): print('once'); return x*1", "wrong"),
        (_forgetful, "def f(x): warnings.warn('case: once'); return x*1", "wrong"),
        (_raising, "def f(x): return x*3", "raises"),
        (_raising, "def f(x): raise ValueError('eager')", "wrong"),
    ],
)
def test_a_difference_is_seen(wrap: Any, setup: str, kind: str) -> None:
    assert judged(Case("planted", "", setup, ["k=2"]), wrap=wrap).kind == kind


def test_a_documented_difference_needs_its_warning_and_its_difference() -> None:
    def told(fn: Any, **_: Any) -> Any:
        def call(x: Any) -> Any:
            warnings.warn("it is so", stacklevel=1)
            return fn(x) * 2

        return call

    case = Case("planted", "", "def f(x): return x*3", [], options={"differs": "it is so"})
    assert judged(case, wrap=told) == Verdict("documented", "it is so")
    assert judged(case, wrap=_doubled).kind == "unsaid"
    assert judged(case, wrap=lambda fn, **_: fn).kind == "stale"


@pytest.mark.parametrize(
    ("a", "b"), [([1], [2]), ({"a": 1}, {"b": 1}), (1, 1.0), (None, 0), ((1,), [1]), ("a", "b")]
)
def test_snapshots_of_different_values_differ(a: Any, b: Any) -> None:
    assert difference(snapshot(a), snapshot(b), 1e-5)
    assert difference(snapshot(a), snapshot(a), 1e-5) is None
