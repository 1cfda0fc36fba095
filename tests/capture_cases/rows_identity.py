"""Which object it is: of tensors, containers, results."""

# fmt: off
from tests.capture_cases.table import case

def cb(name, setup, steps=("", "x=x*2", ""), call="f(x)", **k): case("identity", name, setup, steps, call, **k)
for e in ("a is b", "a is not b", "b is a", "any(a is t for t in [b])", "[a is t for t in (a,b)]", "id(a)==id(b)", "a is k", "k is b", "len({id(a),id(b),id(k)})", "[t is u for t in (a,b,k) for u in (a,b,k)]", "next((i for i,t in enumerate([k,b]) if t is a),-1)"):
    cb(f"identity {e}", f"k=torch.ones(3);u=torch.ones(3)\np,q=k,k\ndef f(a,b): return a*2, {e}", ["p,q=k,u", "p,q=u,u", "p,q=u,k", "p,q=k,k", "p=u[:];q=u"], call="f(p,q)")
cb("identity q is k is v", "class A(nn.Module):\n def __init__(s): super().__init__(); s.w=nn.Linear(3,3)\n def forward(s,q,k,v):\n  if q is k and k is v: return s.w(q)*2\n  if k is v: return s.w(q)*3+k\n  return s.w(q)*5\na=A();f=a;u=torch.ones(2,3)", ["call_=1", "", ""], call="[f(x,x,x),f(x,u,u),f(x,u,x)]")
cb("identity list arg", "u=torch.ones(3)\ndef f(l): return l[0]*2 if l[0] is l[-1] else l[0]*3", [], call="[f([u]),f([u,u]),f([u,u*1]),f((u,u)),f([u,u])]")
cb("identity dict arg", "u=torch.ones(3)\ndef f(d): return d['a']*2 if d['a'] is d.get('b') else d['a']*3", [], call="[f(dict(a=u,b=u)),f(dict(a=u,b=u*1)),f(dict(a=u)),f(dict(a=u,b=u))]")
cb("identity of list args", "u=[1.]\ndef f(x,a,b): return x*2 if a is b else x*3", [], call="[f(x,u,u),f(x,u,[1.]),f(x,u,u)]")
cb("identity of module args", "u=nn.Linear(3,3);w=nn.Linear(3,3)\ndef f(x,a,b): return a(x)*2 if a is b else a(x)*3+b(x)", [], call="[f(x,u,u),f(x,u,w),f(x,u,u)]")
cb("identity attr tensor", "class A: pass\na=A();a.t=x\ndef f(x): return x*2 if x is a.t else x*3", ["a.t=x.clone()", "x=a.t"])
cb("identity cache by last input", "class A: last=None;out=None\na=A()\ndef f(x):\n if x is a.last: return a.out\n a.last=x; a.out=x*2; return a.out", ["x=x.clone()", "", "x.mul_(3)"])
cb("identity param vs arg", "m=nn.Linear(3,3)\ndef f(w): return w*2 if w is m.weight else w*3", [], call="[f(m.weight),f(m.weight.detach()),f(m.weight)]")
for e in ("l", "d", "(l,x)", "d['k']", "[l,l]", "o.l", "o", "o.d", "l[0]", "{'z':l}", "l[1:]", "tuple(l)", "d.values()", "sorted(l,key=len)", "l or d", "x if False else l"):
    cb(f"returned container {e}", f"l=[[1],[2]];d={{'k':[3]}}\nclass O: pass\no=O();o.l=[4];o.d={{}}\ndef f(x): return {e}", ["l.append([9])"], call="[(lambda r: [r is v for v in (l,d,d['k'],o.l,o,o.d,l[0])]+([[s is v for v in (l,d,d['k'],x)] for s in r] if isinstance(r,(list,tuple)) else []))(f(x))]")
for e in ("q", "(x*2,q)", "{'a':q}", "q[0]", "[q,q]"):
    cb(f"returned argument {e}", f"w=[[1],x]\ndef f(x,q): return {e}", [], call="(lambda r: (r is w, (r[1] is w, r[0] is w) if isinstance(r,(list,tuple)) and len(r)==2 else None, r['a'] is w if isinstance(r,dict) else None))(f(x,w))")
