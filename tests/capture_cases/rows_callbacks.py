"""User code that the library calls back."""

# fmt: off
from tests.capture_cases.table import case

def cb(name, setup, steps=("", "x=x*2", ""), call="f(x)", **k): case("callbacks", name, setup, steps, call, **k)
MM = "m=nn.Sequential(nn.Linear(3,3),nn.ReLU(),nn.Linear(3,2))\nn=[];d={'n':0}\n"
TS = "def tr(x):\n m.zero_grad(); l=m(x).sum(); l.backward(); return l.detach()\n"
for nm, body in {"append int": "n.append(1)", "count dict": "d['n']+=1", "append tensor": "n.append(go[0].norm())", "append item": "n.append(go[0].norm().item())", "print": "print('hook',go[0].shape)", "print value": "print(round(go[0].sum().item(),3))", "attr": "m.seen=getattr(m,'seen',0)+1", "store": "d['g']=go[0]", "global": "\n global q\n q=q+1"}.items():
    cb(f"full backward hook {nm}, model compiled", MM + f"q=0\ndef hk(mod,gi,go): {body}\nm[2].register_full_backward_hook(hk)\nM=C(m)\ndef f(x):\n m.zero_grad(); l=M(x).sum(); l.backward(); return l.detach()", wrap=False)
    cb(f"full backward hook {nm}, step compiled", MM + f"q=0\ndef hk(mod,gi,go): {body}\nm[2].register_full_backward_hook(hk)\ndef f(x):\n m.zero_grad(); l=m(x).sum(); l.backward(); return l.detach()")
    b2 = body.replace("go[0]", "g")
    cb(f"tensor hook {nm}, model compiled", MM + f"q=0\ndef hk(g): {b2}\nm[2].weight.register_hook(hk)\nM=C(m)\ndef f(x):\n m.zero_grad(); l=M(x).sum(); l.backward(); return l.detach()", wrap=False)
    cb(f"tensor hook {nm}, step compiled", MM + f"q=0\ndef hk(g): {b2}\nm[2].weight.register_hook(hk)\ndef f(x):\n m.zero_grad(); l=m(x).sum(); l.backward(); return l.detach()")
    cb(f"intermediate hook {nm}, model compiled", MM + f"q=0\ndef hk(g): {b2}\ndef h(x):\n y=m[0](x)\n y.register_hook(hk)\n return m[2](y).sum()\nM=C(h)\ndef f(x):\n m.zero_grad(); l=M(x); l.backward(); return l.detach()", wrap=False)
    b3 = body.replace("go[0]", "p.grad")
    cb(f"post accumulate hook {nm}, model compiled", MM + f"q=0\ndef hk(p): {b3}\nm[2].weight.register_post_accumulate_grad_hook(hk)\nM=C(m)\ndef f(x):\n m.zero_grad(); l=M(x).sum(); l.backward(); return l.detach()", wrap=False)
    cb(f"post accumulate hook {nm}, step compiled", MM + f"q=0\ndef hk(p): {b3}\nm[2].weight.register_post_accumulate_grad_hook(hk)\ndef f(x):\n m.zero_grad(); l=m(x).sum(); l.backward(); return l.detach()")
    b4 = body.replace("go[0]", "o")
    cb(f"forward hook {nm}, model compiled", MM + f"q=0\ndef hk(mod,i,o): {b4}\nm[2].register_forward_hook(hk)\nf=m")
    b5 = body.replace("go[0]", "g")
    cb(f"Function forward {nm}", MM + f"q=0\nclass A(torch.autograd.Function):\n @staticmethod\n def forward(ctx,g):\n  {b5.replace(chr(10)+' ', chr(10)+'  ')}\n  return g*2\n @staticmethod\n def backward(ctx,g): return g*3\ndef h(x): return A.apply(m(x)).sum()\nM=C(h)\ndef f(x):\n m.zero_grad(); l=M(x); l.backward(); return l.detach()".replace("\n  \n  global q\n  q=q+1", "\n  global q\n  q=q+1"), wrap=False)
    cb(f"Function backward {nm}", MM + f"q=0\nclass A(torch.autograd.Function):\n @staticmethod\n def forward(ctx,a): return a*2\n @staticmethod\n def backward(ctx,g):\n  {b5.replace(chr(10)+' ', chr(10)+'  ')}\n  return g*3\ndef h(x): return A.apply(m(x)).sum()\nM=C(h)\ndef f(x):\n m.zero_grad(); l=M(x); l.backward(); return l.detach()".replace("\n  \n  global q\n  q=q+1", "\n  global q\n  q=q+1"), wrap=False)
    b6 = body.replace("go[0]", "m[0].weight")
    for kind in ("pre", "post"):
        OP = MM + f"q=0\no=torch.optim.SGD(m.parameters(),lr=.1,momentum=.9)\ndef hk(o_,a,k): {b6}\no.register_step_{kind}_hook(hk)\n"
        cb(f"optimizer {kind} hook {nm}, whole step", OP + "def f(x):\n o.zero_grad(); l=m(x).sum(); l.backward(); o.step(); return l.detach()")
        cb(f"optimizer {kind} hook {nm}, o.step compiled", OP + "st=C(o.step)\ndef f(x):\n o.zero_grad(); l=m(x).sum(); l.backward(); st(); return l.detach()", wrap=False)
    b7 = body.replace("go[0]", "z")
    cb(f"vmap body {nm}", MM + f"q=0\ndef h(z):\n {b7 if chr(10) not in b7 else b7.strip()}\n return z*2\ndef f(x): return torch.vmap(h)(x)".replace("value", "value")) if not any(w in nm for w in ("item", "value", "tensor", "store")) else None
    cb(f"checkpoint body {nm}", MM + f"q=0\nimport lucerne.utils.checkpoint as ck\ndef h(z):\n {b7 if chr(10) not in b7 else b7.strip()}\n return m(z)\ndef f(x):\n m.zero_grad(); l=ck.checkpoint(h,x,use_reentrant=False).sum(); l.backward(); return l.detach()")
    cb(f"func.grad body {nm}", MM + f"q=0\ndef h(z):\n {b7 if chr(10) not in b7 else b7.strip()}\n return z.pow(2).sum()\ndef f(x): return torch.func.grad(h)(x)") if not any(w in nm for w in ("item", "value", "tensor", "store")) else None
    cb(f"lambda lr {nm}", MM + f"q=0\no=torch.optim.SGD(m.parameters(),lr=.1)\ndef lam(e):\n {b6 if chr(10) not in b6 else b6.strip()}\n return 1/(e+1)\ns=torch.optim.lr_scheduler.LambdaLR(o,lam)\ndef f(x):\n o.zero_grad(); l=m(x).sum(); l.backward(); o.step(); s.step(); return l.detach(), o.param_groups[0]['lr']")
    cb(f"custom optimizer {nm}", MM + f"q=0\nclass Op(torch.optim.Optimizer):\n def __init__(s,p): super().__init__(p,dict(lr=.1))\n @torch.no_grad()\n def step(s):\n  for g_ in s.param_groups:\n   for p in g_['params']:\n    if p.grad is None: continue\n    z=p.grad\n    st=s.state[p]\n    st['t']=st.get('t',0)+1\n    {b7 if chr(10) not in b7 else 'globals().__setitem__(chr(113),q+1)'}\n    p.add_(z,alpha=-g_['lr']/st['t'])\no=Op(m.parameters())\ndef f(x):\n o.zero_grad(); l=m(x).sum(); l.backward(); o.step(); return l.detach()")
    cb(f"sort key {nm}", MM + f"q=0\ndef ky(z):\n {b7 if chr(10) not in b7 else b7.strip()}\n return z.shape[0]\ndef f(x): return sorted([x,x[:1]],key=ky)")
    cb(f"__torch_function__ {nm}", MM + f"q=0\nclass S(torch.Tensor):\n @classmethod\n def __torch_function__(c,fn,ty,a=(),k=None):\n  n.append(fn.__name__) if {nm == 'append int'} else None\n  return super().__torch_function__(fn,ty,a,k or {{}})\ndef f(x): return x.as_subclass(S)*2") if nm == "append int" else None
case("callbacks", "saved_tensors_hooks leak", "n=[]\ndef f(x):\n with torch.autograd.graph.saved_tensors_hooks(lambda t: n.append(1) or t, lambda t: t): return x*x\ndef g():\n f(x.clone().requires_grad_()); k=len(n); a=torch.ones(2,requires_grad=True); (a*a).sum().backward(); n.clear(); return k>0, len(n)-k if False else 0\ndef outside():\n f(x.clone().requires_grad_()); n.clear(); a=torch.ones(2,requires_grad=True); (a*a).sum().backward(); k=len(n); n.clear(); return k", [""], call="outside()")
