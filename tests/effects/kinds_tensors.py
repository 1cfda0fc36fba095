"""Tensors, modules, and the modes of the library."""

from __future__ import annotations

from functools import partial

from tests.effects.kinds import kind

tensors = partial(kind, "tensors")
_ONE = "S = torch.ones(1)"

tensors("tensor written in place", _ONE, "S", write="S.add_(0.5)", change="S.fill_(k)")
tensors("tensor by item", "S = torch.ones(2)", "S[0]", write="S[0] = S[0] + 0.5", change="S[0] = k")
tensors(
    "tensor by a view",
    "S = torch.ones(2)",
    "S[:1]",
    write="S.view(2)[:1].mul_(1.25)",
    change="S.view(2)[0] = k",
)
tensors(
    "tensor by .data", _ONE, "S", write="S.data = S.data + 0.5", change="S.data = torch.ones(1) * k"
)
tensors("tensor by .data in place", _ONE, "S", write="S.data.add_(0.5)", change="S.data.fill_(k)")
tensors("tensor by set_", _ONE, "S", write="S.set_(S + 0.5)", change="S.set_(torch.ones(1) * k)")
tensors(
    "tensor by out", _ONE, "S", write="torch.add(S, 0.5, out=S)", change="torch.mul(S, k, out=S)"
)
tensors("tensor by copy_", _ONE, "S", write="S.copy_(S + 0.5)", change="S.copy_(torch.ones(1) * k)")
tensors("tensor by numpy", _ONE, "S", write="S.numpy()[0] += 0.5", change="S.numpy()[0] = k")
tensors("tensor's number", _ONE, "S.item()", write="S.add_(0.5)", change="S.fill_(k)")
tensors(
    "tensor in a list, in place",
    "S = [torch.ones(1)]",
    "S[0]",
    write="S[0].add_(0.5)",
    change="S[0].fill_(k)",
)
tensors(
    "tensor in a set",
    "T = torch.ones(1)\nS = {T}",
    "next(iter(S))",
    write="T.add_(0.5)",
    change="T.fill_(k)",
)
tensors(
    "alias of two",
    "T = torch.ones(2)\nS = (T, T[:1])",
    "S[1] + S[0][0]",
    write="S[1].add_(0.5)",
    change="T.fill_(k)",
)
tensors(
    "alias that ends",
    "T = torch.ones(1)\nS = [T, T]",
    "S[0] + S[1]",
    write="S[0].add_(0.5)",
    change="S[1] = S[0] if k == 1.0 else S[0].clone()",
)
tensors(
    "overlap",
    "T = torch.ones(4)\nS = [T[:3], T[1:]]",
    "S[1][0] + S[0][0]",
    write="S[0].mul_(1.25)",
    change="S[1] = T[1:] if k == 1.0 else torch.ones(3) * k",
)
tensors(
    "identity of two",
    "T = torch.ones(1)\nS = [T, T]",
    "2.0 if S[0] is S[1] else 3.0",
    write="S[0] = S[0].clone() if S[0] is S[1] else S[1]",
    change="S[1] = S[0] if k == 1.0 else S[0].clone()",
)
tensors(
    "requires_grad",
    _ONE,
    "S * (2.0 if S.requires_grad else 3.0)",
    write="S.requires_grad_(not S.requires_grad)",
    change="S.requires_grad_(k == 2.0)",
    state="S.requires_grad",
)
tensors(
    "gradient kept",
    "S = torch.ones(1).requires_grad_()",
    "(S * 2) + (0.0 if S.grad is None else S.grad)",
    write="S.grad = torch.ones(1) if S.grad is None else None",
    change="S.grad = None if k == 1.0 else torch.ones(1) * k",
    state="told(S.grad)",
)
tensors(
    "dtype",
    _ONE,
    "(S * 3).float() + S.itemsize",
    write="S = S.double() if S.dtype == torch.float32 else S.float()",
    change="S = torch.ones(1, dtype=torch.float64 if k == 2.0 else torch.float32)",
    rebinds=True,
)
tensors(
    "strides",
    "S = torch.arange(4.0).reshape(2, 2)",
    "S.reshape(-1)[1] + S.stride(0)",
    write="S = S.t()",
    change="S = S.t().contiguous()",
    rebinds=True,
)
tensors(
    "size",
    "S = torch.ones(3)",
    "S.sum() + S.shape[0]",
    write="S = torch.ones(S.shape[0] % 5 + 1)",
    change="S = torch.ones(int(k))",
    rebinds=True,
)
tensors(
    "resized",
    "S = torch.ones(3)",
    "S.sum() * S.numel()",
    write="S.resize_(S.numel() % 5 + 1).fill_(1.0)",
    change="S.resize_(int(k)).fill_(1.0)",
    state="S.tolist()",
)
tensors(
    "transposed in place",
    "S = torch.arange(6.0).reshape(2, 3)",
    "S.reshape(-1)[1] + S.shape[0]",
    write="S.t_()",
    change="S.t_()",
)
tensors("version", _ONE, "float(S._version)", write="S.add_(0.5)", change="S.fill_(k)")
tensors(
    "conjugate",
    "S = torch.ones(1, dtype=torch.complex64) * 1j",
    "torch.view_as_real(S.resolve_conj())[..., 1]",
    write="S = S.conj()",
    change="S = torch.ones(1, dtype=torch.complex64) * 1j * k",
    rebinds=True,
)
tensors(
    "hook on a tensor",
    "S = torch.ones(1).requires_grad_()",
    "S * 2",
    change="S.register_hook(lambda g: g * k)",
    state="told(S.grad)",
)
tensors(
    "detached memory",
    "T = torch.ones(1)\nS = T.detach()",
    "S",
    write="T.add_(0.5)",
    change="T.fill_(k)",
)
tensors(
    "tensor subclass",
    "class T(torch.Tensor): pass\nS = torch.ones(1).as_subclass(T)",
    "S.sum()",
    write="S.add_(0.5)",
    change="S.fill_(k)",
)
tensors("attribute of a tensor", "S = torch.ones(1)\nS.k = 1.0", "S.k", change="S.k = k")
tensors(
    "storage",
    _ONE,
    "S",
    write="S.untyped_storage().copy_((S + 0.5).untyped_storage())",
    change="S.untyped_storage().copy_((torch.ones(1) * k).untyped_storage())",
)
tensors(
    "leaf or not",
    "S = torch.ones(1).requires_grad_()",
    "S * (2.0 if S.is_leaf else 3.0)",
    write="S = S * 1 if S.is_leaf else S.detach().requires_grad_()",
    change="S = (torch.ones(1) * k).requires_grad_()",
    rebinds=True,
    state="S.is_leaf",
)

modules = partial(kind, "modules")
_LIN = "S = nn.Linear(1, 1)\nnn.init.ones_(S.weight); nn.init.zeros_(S.bias)\n"
modules(
    "parameter in place",
    _LIN,
    "S.weight[0]",
    write="with torch.no_grad(): S.weight.add_(0.5)",
    change="with torch.no_grad(): S.weight.fill_(k)",
    state="told(S.weight)",
)
modules(
    "parameter by data",
    _LIN,
    "S(torch.ones(1))",
    write="S.weight.data = S.weight.data + 0.5",
    change="S.weight.data = torch.ones(1, 1) * k",
    state="told(S.weight)",
)
modules(
    "parameter exchanged",
    _LIN,
    "S(torch.ones(1))",
    write="S.weight = nn.Parameter(S.weight.detach() + 0.5)",
    change="S.weight = nn.Parameter(torch.ones(1, 1) * k)",
    state="told(S.weight)",
)
modules(
    "parameter for a buffer",
    "S = nn.Module()\nS.register_buffer('w', torch.ones(1))",
    "S.w * 2",
    change="v = torch.ones(1) * k\nif hasattr(S, 'w'): del S.w\n"
    "if k == 2.0: S.w = nn.Parameter(v)\n"
    "else: S.register_buffer('w', v)",
    state="type(S.w).__name__, told(S.w)",
)
modules(
    "parameter gone",
    "S = nn.Linear(1, 1)\nnn.init.ones_(S.weight); nn.init.ones_(S.bias)",
    "S(torch.ones(1))",
    write="S.bias = None",
    change="S.bias = nn.Parameter(torch.ones(1) * k)",
    state="S.bias is None",
)
modules(
    "parameter in _parameters",
    _LIN,
    "S(torch.ones(1))",
    write="S._parameters['weight'] = nn.Parameter(S.weight.detach() + 0.5)",
    change="S._parameters['weight'] = nn.Parameter(torch.ones(1, 1) * k)",
    state="told(S.weight)",
)
modules(
    "buffer",
    "S = nn.Module()\nS.register_buffer('b', torch.ones(1))",
    "S.b",
    write="S.b = S.b + 0.5",
    change="S.b = torch.ones(1) * k",
)
modules(
    "buffer in place",
    "S = nn.Module()\nS.register_buffer('b', torch.ones(1))",
    "S.b",
    write="S.b.add_(0.5)",
    change="S.b.fill_(k)",
)
modules(
    "buffer in _buffers",
    "S = nn.Module()\nS.register_buffer('b', torch.ones(1))",
    "S.b",
    write="S._buffers['b'] = S.b + 0.5",
    change="S._buffers['b'] = torch.ones(1) * k",
)
modules(
    "number of a module", "S = nn.Module()\nS.k = 1.0", "S.k", write="S.k += 0.5", change="S.k = k"
)
modules(
    "list of a module",
    "S = nn.Module()\nS.k = [1.0]",
    "S.k[0] + len(S.k)",
    write="S.k.append(1.0)",
    change="S.k = [k]",
)
modules(
    "part exchanged",
    "S = nn.Sequential(nn.Identity(), nn.Identity())",
    "S(torch.ones(1))",
    write="S[0] = nn.Softplus()",
    change="S[0] = nn.Threshold(9.0, k)",
    state="type(S[0]).__name__",
)
modules(
    "part added",
    "S = nn.Sequential(nn.Identity())",
    "S(torch.ones(1))",
    write="S.append(nn.Tanh())",
    change="S.append(nn.Threshold(9.0, k))",
    state="len(S)",
)
modules(
    "option of a layer",
    "S = nn.LeakyReLU(0.5)",
    "S(-torch.ones(1))",
    write="S.negative_slope += 0.5",
    change="S.negative_slope = k",
    state="S.negative_slope",
)
modules(
    "training",
    "S = nn.Dropout(1.0)",
    "S(torch.ones(1)) + 1",
    write="S.train(not S.training)",
    change="S.train(k == 1.0)",
    state="S.training",
)
modules(
    "training read",
    "S = nn.Module()",
    "2.0 if S.training else 3.0",
    write="S.train(not S.training)",
    change="S.training = k == 1.0",
    state="S.training",
)
modules(
    "batch norm",
    "S = nn.BatchNorm1d(1)",
    "S(torch.tensor([[1.0], [3.0]]))[0]",
    write="S.momentum = 0.5 - S.momentum",
    change="S.train(k == 1.0)",
    state="told(S.running_mean), S.num_batches_tracked.item(), S.momentum",
)
modules(
    "forward hook",
    _LIN,
    "S(torch.ones(1))",
    change="S.register_forward_hook(lambda m, i, o: o * k)",
    state="len(S._forward_hooks)",
)
modules(
    "forward hook that counts",
    "S = nn.Identity()\nC = [0]\n@S.register_forward_hook\n"
    "def _(m, i, o):\n    C[0] += 1\n    return o + C[0]",
    "S(torch.ones(1))",
    change="C[0] = int(k)",
    state="C[0]",
)
modules(
    "forward pre-hook",
    _LIN,
    "S(torch.ones(1))",
    change="S.register_forward_pre_hook(lambda m, i: (i[0] * k,))",
    state="len(S._forward_pre_hooks)",
)
modules(
    "backward hook",
    _LIN,
    "S(torch.ones(1))",
    change="S.register_full_backward_hook(lambda m, i, o: (i[0], ))",
    state="told(S.weight.grad)",
)
modules(
    "hook for all modules",
    "S = nn.Identity()\nheld = []",
    "S(torch.ones(1))",
    change="[h.remove() for h in held]\nheld.clear()\n"
    "if k == 2.0: held.append(nn.modules.module.register_module_forward"
    "_hook(lambda m, i, o: o * 3))",
    state="len(held)",
    undo="[h.remove() for h in held]",
)
modules(
    "hook taken away",
    "S = nn.Identity()\nh = S.register_forward_hook(lambda m, i, o: o * 2)",
    "S(torch.ones(1))",
    write="h.remove()",
    change="h.remove()",
    state="len(S._forward_hooks)",
)
modules(
    "forward on the instance",
    "S = nn.Identity()",
    "S(torch.ones(1))",
    write="S.forward = lambda x: x * 3",
    change="S.forward = lambda x: x * k",
    state="'forward' in S.__dict__",
)
modules(
    "forward on the class",
    "class M(nn.Module):\n    def forward(self, x): return x\nS = M()",
    "S(torch.ones(1))",
    change="M.forward = lambda self, x: x * k",
    state="0",
)
modules(
    "forward that counts",
    "class M(nn.Module):\n    n = 0\n    def forward(self, x):\n"
    "        self.n += 1\n        return x * self.n\nS = M()",
    "S(torch.ones(1))",
    change="S.n = int(k)",
    state="S.n",
)
modules(
    "forward that keeps",
    "class M(nn.Module):\n    h = None\n    def forward(self, x):\n"
    "        self.h = x if self.h is None else self.h + x\n"
    "        return self.h\nS = M()",
    "S(torch.ones(1)).detach()",
    change="S.h = None",
    state="told(S.h)",
)
modules(
    "__call__ patched",
    "class M(nn.Module):\n    def forward(self, x): return x\nS = M()",
    "S(torch.ones(1))",
    change="M.__call__ = lambda self, x: x * k",
    state="0",
)
modules(
    "parametrization",
    _LIN + "class P(nn.Module):\n    k = 1.0\n"
    "    def forward(self, w): return w * self.k\np = P()\n"
    "nn.utils.parametrize.register_parametrization(S, 'weight', p)",
    "S(torch.ones(1))",
    write="p.k += 0.5",
    change="p.k = k",
    state="p.k",
)
modules(
    "state loaded",
    _LIN,
    "S(torch.ones(1))",
    write="S.load_state_dict({'weight': S.weight.detach() + 0.5, 'bias': S.bias.detach()})",
    change="S.load_state_dict({'weight': torch.ones(1, 1) * k, 'bias': torch.zeros(1)})",
    state="told(S.weight)",
)
modules(
    "dtype of a module",
    _LIN,
    "S(torch.ones(1, dtype=S.weight.dtype)).float() + S.weight.itemsize",
    write="S.to(torch.float64 if S.weight.dtype == torch.float32 else torch.float32)",
    change="S.double() if k == 2.0 else S.float()",
    state="str(S.weight.dtype)",
)
modules(
    "requires_grad of a module",
    _LIN,
    "S(torch.ones(1)) * (2.0 if S.weight.requires_grad else 3.0)",
    write="S.requires_grad_(not S.weight.requires_grad)",
    change="S.requires_grad_(k == 1.0)",
    state="S.weight.requires_grad",
)
modules(
    "optimizer rate",
    "P = torch.ones(1).requires_grad_()\nS = torch.optim.SGD([P], lr=1.0)",
    "S.param_groups[0]['lr']",
    write="S.param_groups[0]['lr'] += 0.5",
    change="S.param_groups[0]['lr'] = k",
)
modules(
    "optimizer step",
    "P = torch.ones(1).requires_grad_()\nP.grad = torch.ones(1)\n"
    "S = torch.optim.SGD([P], lr=0.5, momentum=0.9)",
    "P.detach() * 1",
    write="S.step()",
    change="S.param_groups[0]['lr'] = k",
    state="told(P), len(S.state)",
    places=("global", "closure"),
)
modules(
    "ParameterList",
    "S = nn.ParameterList([nn.Parameter(torch.ones(1))])",
    "sum(S)",
    write="S.append(nn.Parameter(torch.ones(1)))",
    change="S[0] = nn.Parameter(torch.ones(1) * k)",
    state="len(S)",
)
modules(
    "ModuleDict",
    "S = nn.ModuleDict({'a': nn.Identity()})",
    "sum(m(torch.ones(1)) for m in S.values())",
    write="S['b'] = nn.Tanh()",
    change="S['a'] = nn.Threshold(9.0, k)",
    state="list(S)",
)

modes = partial(kind, "modes")
modes(
    "grad mode",
    "S = None",
    "2.0 if torch.is_grad_enabled() else 3.0",
    write="torch.set_grad_enabled(not torch.is_grad_enabled())",
    change="torch.set_grad_enabled(k != 2.0)",
    undo="torch.set_grad_enabled(True)",
)
modes(
    "grad mode of results",
    "S = torch.ones(1).requires_grad_()",
    "(S * 2)",
    write="torch.set_grad_enabled(not torch.is_grad_enabled())",
    change="torch.set_grad_enabled(k != 2.0)",
    state="told(S.grad)",
    undo="torch.set_grad_enabled(True)",
)
modes(
    "inference mode",
    "S = contextlib.ExitStack()",
    "2.0 if torch.is_inference_mode_enabled() else 3.0",
    change="S.close()\nif k == 2.0: S.enter_context(torch.inference_mode())",
    undo="S.close()",
)
modes(
    "default dtype",
    "S = None",
    "torch.ones(1).float() + torch.ones(1).itemsize",
    write="torch.set_default_dtype(torch.float64 if "
    "torch.get_default_dtype() == torch.float32 else torch.float32)",
    change="torch.set_default_dtype(torch.float64 if k == 2.0 else torch.float32)",
    undo="torch.set_default_dtype(torch.float32)",
)
modes(
    "autocast",
    "S = contextlib.ExitStack()",
    "(torch.ones(1, 1) @ torch.ones(1, 1)).itemsize + 0.5",
    change="S.close()\nif k == 2.0: S.enter_context(torch.autocast('cpu', dtype=torch.bfloat16))",
    undo="S.close()",
)
modes(
    "autocast asked",
    "S = contextlib.ExitStack()",
    "2.0 if torch.is_autocast_enabled('cpu') else 3.0",
    change="S.close()\nif k == 2.0: S.enter_context(torch.autocast('cpu', dtype=torch.bfloat16))",
    undo="S.close()",
)
modes(
    "deterministic mode",
    "S = None",
    "2.0 if torch.are_deterministic_algorithms_enabled() else 3.0",
    write="torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled())",
    change="torch.use_deterministic_algorithms(k == 2.0)",
    undo="torch.use_deterministic_algorithms(False)",
)
modes(
    "threads",
    "S = torch.set_num_threads(1)",
    "float(torch.get_num_threads())",
    change="torch.set_num_threads(int(k))",
    undo="torch.set_num_threads(1)",
)
modes(
    "default device",
    "S = None",
    "float(len(str(torch.get_default_device())))",
    change="torch.set_default_device('meta' if False else 'cpu')",
    undo="torch.set_default_device(None)",
)
modes(
    "matmul precision",
    "S = None",
    "float(len(torch.get_float32_matmul_precision()))",
    write="torch.set_float32_matmul_precision('high')",
    change="torch.set_float32_matmul_precision('highest' if k == 1.0 else 'medium')",
    undo="torch.set_float32_matmul_precision('highest')",
)
modes(
    "print options of tensors",
    "S = torch.ones(1) / 3",
    "float(len(repr(S)))",
    change="torch.set_printoptions(precision=int(k) + 3)",
    undo="torch.set_printoptions(profile='default')",
)
modes(
    "anomaly mode",
    "S = None",
    "2.0 if torch.is_anomaly_enabled() else 3.0",
    change="torch.autograd.set_detect_anomaly(k == 2.0)",
    undo="torch.autograd.set_detect_anomaly(False)",
)
modes(
    "saved tensor hooks",
    "S = contextlib.ExitStack()\nC = [0]\ndef pack(t):\n    C[0] += 1\n    return t",
    "1.0",
    change="S.close()\n"
    "if k == 2.0: S.enter_context(torch.autograd.graph.saved_tensors_ho"
    "oks(pack, lambda t: t))",
    state="0",
    undo="S.close()",
)
modes(
    "function mode",
    "S = contextlib.ExitStack()\n"
    "class Mode(torch.overrides.TorchFunctionMode):\n"
    "    def __torch_function__(self, f, t, a=(), k=None):\n"
    "        r = f(*a, **(k or {}))\n"
    "        return r * 2 if f is torch.sin else r",
    "torch.sin(torch.ones(1))",
    change="S.close()\nif k == 2.0: S.enter_context(Mode())",
    undo="S.close()",
)
