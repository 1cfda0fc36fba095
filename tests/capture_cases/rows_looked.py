"""What a function looks at without computing with it: attributes in every place and by every way to
read and to change them, tensors' gradients and flags, contents of arrays, patched code."""

from __future__ import annotations

from tests.capture_cases.table import body_of, case

# ---- attributes: where they are, how they are read, how they change -----------------------------

HOLDERS = {
    "object": "class A: pass\na=A()",
    "object with a class attribute": "class A: k=1.\na=A()",
    "object with a base": "class B: k=1.\nclass A(B): pass\na=A()",
    "slots": "class A: __slots__=('k','z')\na=A()",
    "module": "class A(nn.Module):\n def forward(s,x): return x\na=A()",
    "function": "def a(): pass",
    "namespace": "import types\na=types.SimpleNamespace()",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass A:\n k: float=1.\na=A()",
    "class": "class a: pass",
    "python module": "import types\na=types.ModuleType('holder')",
}
READINGS = {
    "dot": "a.k",
    "getattr": "getattr(a,'k')",
    "getattr with a default": "getattr(a,'k',5.)",
    "hasattr": "(2. if hasattr(a,'z') else 1.)",
    "try": "tried()",
    "vars": "vars(a)['k']",
    "__dict__": "a.__dict__['k']",
    "object.__getattribute__": "object.__getattribute__(a,'k')",
    "operator.attrgetter": "operator.attrgetter('k')(a)",
}
TRIED = "import operator\ndef tried():\n try: return a.z\n except AttributeError: return 7.\n"
CHANGES = [
    "a.k=2.", "setattr(a,'k',3.)", "a.z=4.", "del a.z", "a.k=torch.ones(3)", "a.k=3",
]  # fmt: skip
DIRECT = {
    "slots": [],
    "class": ["type.__setattr__(a,'k',6.)"],
}
BY_CLASS = {
    "object": ["A.z=8.", "del A.z", "del a.k; A.k=9."],
    "object with a class attribute": ["A.z=8.", "del A.z", "del a.k", "A.k=10."],
    "object with a base": ["B.z=8.", "del B.z", "del a.k", "B.k=11.", "A.k=12."],
    "module": ["A.z=8.", "del A.z", "del a.k; A.k=9."],
}
NO_DICT = ("slots",)

for holder, made in HOLDERS.items():
    for how, reading in READINGS.items():
        if how in ("vars", "__dict__") and holder in NO_DICT:
            continue
        if how == "object.__getattribute__" and holder == "class":
            continue
        direct = DIRECT.get(holder, ["a.__dict__['k']=13.", "object.__setattr__(a,'k',14.)"])
        if holder == "function":
            direct = ["a.__dict__['k']=13."]
        steps = [*CHANGES, *direct, *BY_CLASS.get(holder, [])]
        setup = f"{made}\na.k=1.\n{TRIED}def f(x): return x*{reading}"
        case("looked", f"{how} of a {holder}", setup, steps, text=False)

for holder in ("object", "slots", "module", "function", "namespace", "class", "dataclass"):
    made = HOLDERS[holder]
    for how, write in {
        "counts": "a.k=a.k+1",
        "counts by setattr": "setattr(a,'k',getattr(a,'k',0.)+1)",
        "counts from nothing": "a.z=getattr(a,'z',0)+1",
        "deletes": "a.z=a.k\ndel a.z\na.k+=1",
        "puts a tensor": "a.k=x.sum()",
    }.items():
        if how == "counts from nothing" and holder == "slots":
            continue
        setup = f"{made}\na.k=1.\ndef f(x):\n{body_of(write)}\n return x*a.k"
        case("looked", f"{how}: a {holder}", setup, ["a.k=5.", "", "x=x*2"])

# ---- tensors ------------------------------------------------------------------------------------

OWNERS = {
    "a global leaf": ("t=torch.ones(3,requires_grad=True)", "f(x)", "t"),
    "a parameter": ("m=nn.Linear(3,1)\nt=m.weight", "f(x)", "m.weight"),
    "an argument": ("t=torch.ones(3,requires_grad=True)", "f(x,t)", "q"),
    "one in a list": ("t=torch.ones(3,requires_grad=True)\nl=[t]", "f(x)", "l[0]"),
    "one in an argument's list": ("t=torch.ones(3,requires_grad=True)", "f(x,[t])", "q[0]"),
    "an attribute": (
        "class A: pass\na=A();a.w=torch.ones(3,requires_grad=True);t=a.w", "f(x)", "a.w",
    ),
}  # fmt: skip
ASKED = {
    "grad is None": "2. if T.grad is None else 3.",
    "grad is not None, used": "1. if T.grad is None else T.grad.sum()",
    "getattr grad": "2. if getattr(T,'grad',None) is None else 3.",
    "requires_grad": "2. if T.requires_grad else 3.",
    "is_leaf": "2. if T.is_leaf else 3.",
    "grad_fn": "2. if T.grad_fn is None else 3.",
    "a mark": "2. if hasattr(T,'mark') else 3.",
    "a mark's value": "getattr(T,'mark',1.)",
    "not a mark": "2. if not getattr(T,'mark',False) else 3.",
    "shape": "float(T.shape[-1])",
    "version": "float(T._version)",
    "dtype": "2. if T.dtype is torch.float32 else 3.",
    "stride": "float(T.stride(-1))",
    "type": "2. if type(T) is torch.Tensor else 3.",
    "retains_grad": "2. if T.retains_grad else 3.",
}
HAPPENS = [
    "(t*2).sum().backward()", "t.grad.mul_(3)", "t.grad=None", "t.mark=4.", "t.mark=5.",
    "del t.mark", "t.requires_grad_(False)", "t.requires_grad_(True)", "t.data=t.data*2",
    "t.data=torch.ones(1,6)[:,::2]", "t.data=torch.ones(1,4)",
]  # fmt: skip
for owner, (setup, call, named) in OWNERS.items():
    for asked, text in ASKED.items():
        body = f"{setup}\ndef f(x,q=None): return x*({text.replace('T', named, 2)})"
        if asked == "dtype":
            body = (
                f"{setup}\ndef f(x,q=None): return x*(2. if {named}.dtype is torch.float32 else 3.)"
            )
        if asked == "type":
            body = (
                f"{setup}\ndef f(x,q=None): return x*(2. if type({named}) is torch.Tensor else 3.)"
            )
        case("looked", f"{asked} of {owner}", body, HAPPENS, call)

STEPS_BY_HAND = {
    "sgd": "for p in m.parameters():\n if p.grad is not None: p.data-=.1*p.grad",
    "sgd under no_grad": (
        "with torch.no_grad():\n for p in m.parameters():\n  if p.grad is None: continue\n"
        "  p.sub_(p.grad,alpha=.1)"
    ),
    "zeroing by hand": "for p in m.parameters():\n if p.grad is not None: p.grad.zero_()",
    "forgetting by hand": "for p in m.parameters():\n if p.grad is not None: p.grad=None",
    "a norm": "t=[p.grad.norm() for p in m.parameters() if p.grad is not None]\nreturn sum(t)+x*0",
    "a filter": "t=[p for p in m.parameters() if p.requires_grad]\nreturn len(t)*x",
    "an average of gradients": (
        "for n,p in m.named_parameters():\n"
        " if p.grad is not None: e[n]=e.get(n,0.)*.9+p.grad.detach()*.1"
    ),
    "clipping": "return nn.utils.clip_grad_norm_(m.parameters(),.1)+x*0",
    "scaling": "for p in m.parameters():\n if p.grad is not None: p.grad.mul_(.5)",
    "zero_grad": "m.zero_grad()",
    "zero_grad to zeros": "m.zero_grad(set_to_none=False)",
    "weight decay by a mark": (
        "s=[p.pow(2).sum() for p in m.parameters() if not getattr(p,'skip',False)]\nreturn sum(s)"
    ),
}
GRADIENT = "F.mse_loss(m(torch.ones(2,3)),torch.zeros(2,2)).backward()"
for name, lines in STEPS_BY_HAND.items():
    setup = f"m=nn.Linear(3,2)\ne={{}}\ndef f(x):\n{body_of(lines)}\n return x*1"
    steps = [
        GRADIENT, GRADIENT, "m.weight.grad=None", "", "m.bias.requires_grad_(False)", GRADIENT,
        "m.bias.skip=True", "m.bias.requires_grad_(True)", "m.zero_grad()", GRADIENT,
    ]  # fmt: skip
    case("looked", f"by hand: {name}", setup, steps)
for optimizer in ("SGD(m.parameters(),lr=.1,momentum=.9)", "AdamW(m.parameters())", "Adagrad(m.parameters())", "RMSprop(m.parameters())"):  # fmt: skip
    setup = f"m=nn.Linear(3,2)\no=torch.optim.{optimizer}\nst=C(o.step)\ndef f(x): st(); return x*1"
    steps = [GRADIENT, "", "m.weight.grad=None", "", "o.zero_grad()", GRADIENT, "m.bias.grad=None"]
    case("looked", f"step before any gradient: {optimizer}", setup, steps, wrap=False)

# ---- which object it is -------------------------------------------------------------------------

PAIRS = ["p,q=k,u", "p,q=u,u", "p,q=u,k", "p,q=k,k", "p=u[:];q=u", "p=u.detach();q=u", "p=q=u*1"]
for text in (
    "a is b", "a is not b", "b is k", "any(t is a for t in [k,b])", "a in [b]", "[a]==[b]",
    "(a,1)==(b,1)", "len({id(a),id(b),id(k)})", "{a:1}.get(b)", "len({a,b})", "len({a,b,k})",
    "[b,a].index(a)", "a in (b,)", "{'v':a}=={'v':b}", "[t for t in (a,b) if t is not k]==[]",
    "(a if a is k else b) is b", "a is None", "a is b is k", "bool(a is b)",
):  # fmt: skip
    body = f"k=torch.ones(3);u=torch.ones(3)\np,q=k,k\ndef f(a,b): return a*2, {text}"
    case("identity", f"two arguments: {text}", body, PAIRS, "f(p,q)", text=False)
    body = f"k=torch.ones(3);u=torch.ones(3)\np,q=k,k\ndef f(l): a,b=l; return a*2, {text}"
    case("identity", f"in a list: {text}", body, PAIRS, "f([p,q])", text=False)
for text in (
    "a is b", "a is g", "a==b", "a in [g]", "a is l", "[] is a", "a is not None", "id(a)==id(b)",
):  # fmt: skip
    for kind in ("[1.]", "{'k':1.}", "{1.}", "O()"):
        same = f"class O: v=1.\ng={kind};l={kind}\np,q=g,g\ndef f(x,a,b): return x*2, {text}"
        steps = ["p,q=g,l", "p,q=l,l", f"p={kind}", "q=p", "g=p"]
        case("identity", f"containers {kind}: {text}", same, steps, "f(x,p,q)")

KEYS = {
    "d[x]": "d[x]=d.get(x,0)+1\nreturn d[x]*x",
    "x in d": "n=x in d\nd[x]=1\nreturn x*2 if n else x",
    "set": "n=x in s\ns.add(x)\nreturn x*2 if n else x*3",
    "setdefault": "d.setdefault(x,[]).append(1)\nreturn x*len(d[x])",
    "a new dict": "n={x:2.}\nreturn x*n[x]",
    "a new dict returned": "return {x:x*2}",
}
for name, lines in KEYS.items():
    setup = f"d={{}};s=set();y=x\ndef f(x):\n{body_of(lines)}"
    case("identity", f"a tensor as a key: {name}", setup, ["x=x*1", "", "x=y"])

# ---- returned containers ------------------------------------------------------------------------

WORLD = "l=[[1],[2]];d={'k':[3]};s={1};t=([5],)\nclass O: pass\no=O();o.l=[4];o.d={}\n"
for text in ("l", "d", "s", "t", "o", "o.l", "(l,x*2)", "{'a':l}", "[d,d]", "l[0]", "t[0]", "[o]"):
    call = "[(lambda r: [r is v for v in (l,d,s,t,o,o.l,l[0])])(f(x))]"
    steps = ["l.append([9])", "d['n']=1", "l=[[7],[8]]", "o.l=[6]"]
    case("identity", f"returned: {text}", f"{WORLD}def f(x): return {text}", steps, call)
    case(
        "identity",
        f"returned from an argument: {text}",
        f"{WORLD}def f(x,l,d,s,t,o): return {text}",
        steps,
        call.replace("f(x)", "f(x,l,d,s,t,o)"),
    )

# ---- arrays -------------------------------------------------------------------------------------

ARRAYS = {
    "numpy": "a=np.arange(1.,5.)",
    "numpy float32": "a=np.arange(1.,5.,dtype='float32')",
    "a numpy view": "b=np.arange(1.,9.)\na=b[::2]",
    "array": "import array\na=array.array('d',[1.,2.,3.,4.])",
    "memoryview": "b=bytearray(b'abcd')\na=memoryview(b)",
    "bytearray": "a=bytearray(b'abcd')",
    "list": "a=[1.,2.,3.,4.]",
}
LOOKS = {
    "an item": "float(a[0])", "its length": "len(a)", "a loop": "sum(float(v) for v in a)",
    "a slice": "float(a[:2][1])", "max": "float(max(a))", "list": "float(list(a)[1])",
    "in": "(2. if 5. in list(a) else 3.)", "np.sum": "float(np.sum(np.asarray(a)))",
    "a comparison": "(2. if a[0]>3 else 4.)",
}  # fmt: skip
for kind, made in ARRAYS.items():
    whole = kind in ("memoryview", "bytearray")
    steps = ["a[0]=5", "a[1]=7", "a[0]=5", "a[-1]=9" if whole else "a[-1]=2.5"]
    if kind.startswith("numpy"):
        steps += ["a+=1", "a.fill(2)", "a.sort()", "a=a*3", "a.resize(3,refcheck=False)"]
    for look, text in LOOKS.items():
        case("looked", f"{kind}: {look}", f"{made}\ndef f(x): return x*{text}", steps)
        if not kind.startswith("a numpy"):
            body = f"{made}\ndef f(x,a): return x*{text}"
            case("looked", f"{kind} given: {look}", body, steps[:4], "f(x,a)")
WRITES = {
    "an item": "a[0]=a[0]+1", "in place": "a+=1", "fill": "a.fill(float(a[0])+1)",
    "sort": "a[::-1].sort()", "out": "np.add(a,1,out=a)", "copyto": "np.copyto(a,a+1)",
    "a slice": "a[1:]=a[:-1].copy()", "a view": "v=a[1:]\nv*=2", "put": "np.put(a,[0],[a[1]+1])",
}  # fmt: skip
for name, lines in WRITES.items():
    setup = f"a=np.arange(1.,5.)\ndef f(x):\n{body_of(lines)}\n return x*float(a[0])+float(a.sum())"
    case("looked", f"an array is written: {name}", setup, ["a[0]=-3", "", "a=np.ones(3)"])

# ---- patched code, switches, references ---------------------------------------------------------

for name, text in {
    "abs": "abs(-2)", "divmod": "divmod(7,3)[1]", "ord": "ord('a')", "chr": "len(chr(97)*2)",
    "bin": "len(bin(9))", "ascii": "len(ascii('b'))",
}.items():  # fmt: skip
    setup = f"import builtins; o=builtins.{name}\ndef f(x): return x*{text}"
    other = "lambda *a: 'text'" if name in ("chr", "bin", "ascii") else "lambda *a: 7"
    other = "lambda *a: (1,5)" if name == "divmod" else other
    steps = [f"builtins.{name}={other}", f"builtins.{name}=o", ""]
    case("looked", f"builtin patched: {name}", setup, steps)
for method in ("sin", "sum", "reshape", "relu", "mean", "clone", "abs"):
    args = "(-1)" if method == "reshape" else "()"
    setup = f"o=torch.Tensor.{method}\ndef f(x): return x.{method}{args}"
    steps = [f"torch.Tensor.{method}=lambda s,*a: s*7", f"torch.Tensor.{method}=o", ""]
    case("looked", f"Tensor.{method} patched", setup, steps)
for name, setup, steps in (
    (
        "Module.__call__",
        "o=nn.Module.__call__\nm=nn.Linear(3,2)",
        ["nn.Module.__call__=lambda s,x: x*7", "nn.Module.__call__=o"],
    ),
    (
        "Linear.forward",
        "o=nn.Linear.forward\nm=nn.Linear(3,2)",
        ["nn.Linear.forward=lambda s,x: x*7", "nn.Linear.forward=o"],
    ),
    (
        "own __call__",
        "class M(nn.Module):\n def forward(s,x): return x*2\nm=M()",
        ["M.__call__=lambda s,x: x*7", "del M.__call__"],
    ),
    (
        "own forward",
        "class M(nn.Module):\n def forward(s,x): return x*2\nm=M()",
        ["M.forward=lambda s,x: x*7", "m.forward=lambda x: x*9", "del m.forward"],
    ),
):
    case("looked", f"patched: {name}", f"{setup}\ndef f(x): return m(x)", steps)
for name, text in {
    "alive": "2 if w() is not None else 3", "its attribute": "w().k if w() else 5.",
    "proxy": "2 if w() else 4", "count": "len(ws)",
}.items():  # fmt: skip
    setup = "import weakref\nclass A: k=2.\na=A();w=weakref.ref(a);ws=weakref.WeakSet([a])\n"
    case(
        "looked",
        f"weak reference: {name}",
        f"{setup}def f(x): return x*({text})",
        ["a.k=4.", "del a", "a=A();w=weakref.ref(a);ws.add(a)"],
    )
CACHED = "import functools\nz=1.\n@functools.lru_cache(maxsize=SIZE)\ndef h(a): return a+z\nk=1\n"
for size in ("None", "1", "8"):
    steps = ["z=2.", "h.cache_clear()", "z=3.", "k=2", "k=1", "h.cache_clear()", "z=1.", "h(5)"]
    case(
        "looked", f"cached, {size}", CACHED.replace("SIZE", size) + "def f(x): return x*h(k)", steps
    )
for name, text in {
    "ones": "torch.ones(2).device.type", "zeros": "torch.zeros(2).device.type",
    "rand": "torch.rand(2).device.type", "tensor": "torch.tensor([1.]).device.type",
    "default": "str(torch.get_default_device())", "of x": "x.device.type",
}.items():  # fmt: skip
    steps = [
        "torch.set_default_device('meta')",
        "torch.set_default_device(None)",
        "torch.set_default_device('cpu')",
    ]
    case("looked", f"default device: {name}", f"def f(x): return {text}", steps)
for name, text in {
    "threads": "torch.set_num_threads(1)", "deterministic": "torch.use_deterministic_algorithms(True)",
    "precision": "torch.set_float32_matmul_precision('high')",
}.items():  # fmt: skip
    setup = f"torch.set_num_threads(2)\ndef f(x):\n {text}\n return x*2"
    call = "(f(x), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision())"
    steps = [
        "torch.set_num_threads(2)",
        "torch.use_deterministic_algorithms(False)",
        "torch.set_float32_matmul_precision('highest')",
    ]
    case("looked", f"a switch is set: {name}", setup, steps, call)
for name, text in {
    "import": "import om\n return x*om.k", "from import": "from om import k\n return x*k",
    "import as": "import om as q\n return x*q.k", "import_module": "return x*importlib.import_module('om').k",
    "sys.modules": "return x*sys.modules['om'].k",
}.items():  # fmt: skip
    setup = f"import types,importlib\nom=types.ModuleType('om');om.k=1.\nsys.modules['om']=om\ndef f(x):\n {text}"
    steps = [
        "om.k=2.",
        "n=types.ModuleType('om');n.k=9.;sys.modules['om']=n",
        "n.k=3.",
        "sys.modules['om']=om",
        "del sys.modules['om']",
    ]
    case("looked", f"a module is replaced: {name}", setup, steps, text=False)
for view in (
    "a.view(torch.int32)",
    "a.view(torch.uint8)",
    "a.view(torch.int16)",
    "(a.view(torch.int32),a)",
    "a[1:].view(torch.int32)",
    "a.t().contiguous().view(torch.int32)",
    "torch.view_as_real(c)",
    "c.real",
    "c.imag",
    "torch.view_as_complex(p)",
    "a.view(torch.int32).t()",
    "a.view(torch.float64)",
):
    setup = f"def f(x,a,c,p): return {view}\na=x\nc=torch.tensor([1+2j,3-1j]);p=torch.ones(3,2)"
    for more in ("", "\na=torch.arange(8.).reshape(2,4)"):
        case(
            "values",
            f"a view with another dtype: {view}{' of four' if more else ''}",
            setup + more,
            ["c=c*2", "a=a+1", "p=p*3", "c.requires_grad_()"],
            "f(x,a,c,p)",
            text=False,
        )
