"""Transforms of functions, subclasses, modes."""

# fmt: off
from tests.capture_cases.table import case

def t4(name, setup, steps=("x=x*2", ""), call="f(x)", **k): case("transforms", name, setup, steps, call, **k)
for n, e in {"vmap": "torch.vmap(lambda r: r*2+r.sum())(x)", "vmap in_dims": "torch.vmap(lambda r: r*2+r.sum(),in_dims=1,out_dims=1)(x)", "vmap two": "torch.vmap(lambda a,b: a@b)(x,x*2)", "vmap None": "torch.vmap(lambda a,b: a@b,in_dims=(0,None))(x,x[0])", "vmap nested": "torch.vmap(torch.vmap(lambda a: a*a+1))(x)", "vmap chunk": "torch.vmap(lambda a: a.sum(),chunk_size=1)(x)", "grad": "torch.func.grad(lambda z:(z**3).sum())(x)", "grad has_aux": "torch.func.grad(lambda z:((z**3).sum(),z*2),has_aux=True)(x)", "grad argnums": "torch.func.grad(lambda a,b:(a*b*b).sum(),argnums=(0,1))(x,x)", "grad grad": "torch.func.grad(lambda z: torch.func.grad(lambda q:(q**4).sum())(z).sum())(x)", "value_and_grad": "torch.func.grad_and_value(lambda z:(z**3).sum())(x)", "vmap grad": "torch.vmap(torch.func.grad(lambda z:(z**3).sum()))(x)", "jvp": "torch.func.jvp(lambda z:z.sin()*z,(x,),(x*2,))", "vjp": "torch.func.vjp(lambda z:z.sin()*z,x)[1](x)", "jacrev": "torch.func.jacrev(lambda z:z.sin()*z.sum())(x[0])", "jacfwd": "torch.func.jacfwd(lambda z:z.sin()*z.sum())(x[0])", "hessian": "torch.func.hessian(lambda z:(z**3).sum()*z[0])(x[0])", "jacrev vmap": "torch.vmap(torch.func.jacrev(lambda z:z.sin()*z.sum()))(x)", "linearize": "torch.func.linearize(lambda z:z.sin(),x)[1](x)", "functionalize": "torch.func.functionalize(lambda z: z.clone().add_(1))(x)", "autograd.functional.jacobian": "torch.autograd.functional.jacobian(lambda z:z.sin()*z.sum(),x[0])", "autograd.functional.hessian": "torch.autograd.functional.hessian(lambda z:(z**3).sum(),x[0])", "forward ad": "fa(x)", "per sample grads": "psg(x)", "vmap over global": "torch.vmap(lambda r: r*k)(x)", "grad over global": "torch.func.grad(lambda z:(z*k).sum())(x)", "vmap where": "torch.vmap(lambda r: torch.where(r>2,r,-r))(x)", "vmap index": "torch.vmap(lambda r,i: r[i])(x,torch.tensor([0,2]))", "vmap softmax mm": "torch.vmap(lambda r: (r.outer(r)).softmax(-1)@r)(x)", "vmap inplace": "torch.vmap(lambda r: r.clone().add_(1).mul_(2))(x)", "vmap bn-like": "torch.vmap(lambda r:(r-r.mean())/(r.std()+1e-5))(x)", "vmap v-v[0]": "torch.vmap(lambda r: torch.cat([r[1:],r[:1]]))(x)", "jvp in grad": "torch.func.grad(lambda z: torch.func.jvp(lambda q:q.sin(),(z,),(z,))[1].sum())(x)"}.items():
    for where in ("outside", "inside"):
        pre = "k=2.\nimport lucerne.autograd.forward_ad as fwad\ndef fa(x):\n with fwad.dual_level():\n  d=fwad.make_dual(x,x*2); y=INNER(d); return fwad.unpack_dual(y).tangent\nl=nn.Linear(3,2)\ndef psg(x):\n p=dict(l.named_parameters())\n def lo(p,s): return torch.func.functional_call(l,p,(s,)).pow(2).sum()\n return torch.vmap(torch.func.grad(lo),in_dims=(None,0))(p,x)\n".replace("INNER", "torch.sin")
        if where == "outside": t4(f"{n}, compile outside", pre + f"def f(x): return {e}", ["x=x*2", "k=3.", "x=torch.ones(4,3)"])
        else:
            import re as _re
            # the first lambda is compiled inside of the transform
            mm = _re.search(r"lambda ([\w,]+): ?(.*)", e)
            if mm and not e.startswith("torch.func.linearize") and e.count("lambda") == 1:
                j = e.index("lambda"); depth = 0; end = j
                while end < len(e):
                    ch = e[end]
                    if ch in "([{": depth += 1
                    if ch in ")]}":
                        if depth == 0: break
                        depth -= 1
                    if ch == "," and depth == 0 and ":" in e[j:end]: break
                    end += 1
                t4(f"{n}, compile inside", pre + f"inner=C({e[j:end]})\ndef f(x): return {e[:j]}inner{e[end:]}", ["x=x*2", "k=3.", "x=torch.ones(4,3)"], wrap=False)
t4("functional_call compiled", "m=nn.Linear(3,2)\ng=C(lambda p,x: torch.func.functional_call(m,p,(x,)))\np=dict(m.named_parameters())\ndef f(x): return g(p,x)", ["p={k:v*2 for k,v in p.items()}", "p={k:v.detach() for k,v in p.items()}"], wrap=False)
t4("ensemble", "ms=[nn.Linear(3,2) for _ in range(3)]\nps,bs=torch.func.stack_module_state(ms)\nimport copy\nb=copy.deepcopy(ms[0]).to('meta')\ndef f(x): return torch.vmap(lambda p: torch.func.functional_call(b,p,(x,)))(ps)", ["ps['weight'].data.mul_(2)"])
t4("nested compile", "g=C(lambda x: x*k)\nk=2.\ndef f(x): return g(x)+k", ["k=3.", "g=C(lambda x:x-1)"])
t4("nested compile disable", "g=torch.compiler.disable(lambda x: x*k)\nk=2.\ndef f(x): return g(x)+k", ["k=3."])
t4("compile of compile", "k=2.\ndef h(x): return x*k\nf=C(C(h))", ["k=3."], wrap=False)
t4("compile twice same function", "k=2.\ndef h(x): return x*k\na=C(h);b=C(h)\ndef f(x): return a(x)+b(x)", ["k=3.", "x=x.double()"], wrap=False)
t4("same code two closures", "def mk(k):\n def h(x): return x*k\n return C(h)\na=mk(2.);b=mk(3.);c=mk(torch.ones(3)*4)\ndef f(x): return a(x),b(x),c(x)", ["a=mk(7)"], wrap=False)
t4("same lambda loop", "__fs=[C(lambda x,i=i: x*i) for i in range(4)]\ndef f(x): return [h(x) for h in __fs]", wrap=False)
t4("vmap dropout same", "def f(x): return torch.vmap(lambda r: F.dropout(r,.5),randomness='same')(x)", ["torch.manual_seed(1)", "torch.manual_seed(1)"], bitwise=True)
t4("vmap dropout different", "def f(x): return torch.vmap(lambda r: F.dropout(r,.5),randomness='different')(x)", ["torch.manual_seed(1)", "torch.manual_seed(1)"], bitwise=True)
t4("vmap dropout error", "def f(x): return torch.vmap(lambda r: F.dropout(r,.5))(x)", [])
SUB = "class S(torch.Tensor):\n log=[]\n @classmethod\n def __torch_function__(c,func,types,args=(),kwargs=None):\n  S.log.append(func.__name__)\n  return super().__torch_function__(func,types,args,kwargs or {})\nx=torch.ones(2,3).as_subclass(S)\n"
t4("subclass logs", SUB + "def f(x): return x*2+1", ["", "x=torch.ones(2,3)"], call="(f(x), list(S.log))")
t4("subclass type kept", SUB + "def f(x): return x*2+1, type(x*2).__name__, isinstance(x,S)", ["x=torch.ones(2,3)", "x=torch.ones(2,3).as_subclass(S)"])
t4("subclass changes op", "class S(torch.Tensor):\n k=10\n @classmethod\n def __torch_function__(c,func,types,args=(),kwargs=None):\n  r=super().__torch_function__(func,types,args,kwargs or {})\n  return r*c.k if func is torch.Tensor.add or func.__name__=='add' else r\nx=torch.ones(2,3).as_subclass(S)\ndef f(x): return x.add(1)", ["S.k=20", "x=torch.ones(2,3)"])
t4("duck type torch_function", "class D:\n def __init__(s,t): s.t=t\n @classmethod\n def __torch_function__(c,func,types,args=(),kwargs=None):\n  return func(*[a.t if isinstance(a,D) else a for a in args])*10\nd=D(torch.ones(3))\ndef f(x): return torch.add(d,x)", ["d.t=d.t*2"])
t4("TorchFunctionMode around", "import lucerne.overrides as ov\nclass M2(ov.TorchFunctionMode):\n def __torch_function__(s,func,types,args=(),kwargs=None):\n  r=func(*args,**(kwargs or {}))\n  return r*10 if func is torch.sin else r\ndef f(x): return torch.sin(x)", [], call="(f(x), (lambda m: (m.__enter__(), f(x), m.__exit__(None,None,None))[1])(M2()), f(x))")
t4("TorchFunctionMode inside", "import lucerne.overrides as ov\nclass M2(ov.TorchFunctionMode):\n def __torch_function__(s,func,types,args=(),kwargs=None):\n  r=func(*args,**(kwargs or {}))\n  return r*10 if func is torch.sin else r\ndef f(x):\n with M2(): y=torch.sin(x)\n return y+torch.sin(x)", [])
t4("TorchDispatchMode around", "from lucerne.utils._python_dispatch import TorchDispatchMode\nseen=[]\nclass M2(TorchDispatchMode):\n def __torch_dispatch__(s,func,types,args=(),kwargs=None):\n  seen.append(str(func)); return func(*args,**(kwargs or {}))\ndef f(x): return torch.sin(x)+1", [], call="(f(x), (lambda m: (m.__enter__(), f(x), m.__exit__(None,None,None))[1])(M2()), len(seen)>0)")
t4("default dtype inside", "def f(x):\n o=torch.get_default_dtype()\n torch.set_default_dtype(torch.float64)\n y=torch.ones(2)\n torch.set_default_dtype(o)\n return y, torch.ones(2)", ["torch.set_default_dtype(torch.bfloat16)", "torch.set_default_dtype(torch.float32)"])
t4("device ctx inside", "def f(x):\n with torch.device('meta'): y=torch.ones(2)\n return y.device.type, torch.ones(2).device.type")
t4("parametrize cached", "m=nn.Linear(3,3)\nclass P(nn.Module):\n def forward(s,w): return w*2\nnn.utils.parametrize.register_parametrization(m,'weight',P())\ndef f(x):\n with nn.utils.parametrize.cached(): return m(x)+m(x)", ["m.parametrizations.weight.original.data.mul_(2)"])
t4("cond", "def f(x): return torch.cond(x.sum()>20,lambda x:x*2,lambda x:x-1,(x,))", ["x=-x", "x=x*3"])
t4("while_loop", "from lucerne._higher_order_ops import while_loop\ndef f(x): return while_loop(lambda i,x:i<3,lambda i,x:(i+1,x*2),(torch.tensor(0),x))", ["x=x*2"])
t4("scan/assoc", "def f(x):\n h=torch.zeros(3)\n o=[]\n for t in x: h=h*.5+t; o.append(h)\n return torch.stack(o)", ["x=torch.ones(4,3)", "x=torch.ones(5,3)"])
t4("custom op", "@torch.library.custom_op('ca%d::twice' % random.randrange(10**12,10**13) if False else 'ca'+str(id(globals()))+'::twice',mutates_args=())\ndef tw(x: torch.Tensor) -> torch.Tensor: return x*k\n@tw.register_fake\ndef _(x): return torch.empty_like(x)\nk=2.\ndef f(x): return tw(x)+1", ["k=3."])
t4("custom op mutating", "@torch.library.custom_op('cm'+str(id(globals()))+'::inc',mutates_args=('x',))\ndef inc(x: torch.Tensor) -> None: x.add_(k)\nk=1.\ndef f(x): inc(x); return x*2", ["k=3."])
t4("flex/sdpa mask fn", "def f(x):\n q=x.view(1,1,2,3)\n return F.scaled_dot_product_attention(q,q,q,is_causal=c)\nc=True", ["c=False", "c=True"])
t4("hooks in functional_call", "m=nn.Linear(3,2)\np={k:v.detach()*2 for k,v in m.named_parameters()}\ndef f(x): return torch.func.functional_call(m,p,(x,)), m(x)", ["h=m.register_forward_hook(lambda m,i,o:o*2)", "h.remove()"])
