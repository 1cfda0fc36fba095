"""Custom autograd functions with gradcheck, hooks of tensors and modules, buffers."""

import torch
from torch import nn
from torch.autograd import Function, Variable, grad, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable


class Swish(Function):
    @staticmethod
    def forward(ctx, i):
        result = i * i.sigmoid()
        ctx.save_for_backward(result, i)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        result, i = ctx.saved_tensors
        sigmoid_x = i.sigmoid()
        return grad_output * (result + sigmoid_x * (1 - result))


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.mark_non_differentiable(hits := (x.abs() > 1))
        ctx.mask = ~hits
        return (x * levels).round() / levels, hits

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        return grad * ctx.mask, None


class GradientReversal(Function):
    @staticmethod
    def forward(ctx, x, lambda_):
        ctx.lambda_ = lambda_
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grads):
        if not ctx.needs_input_grad[0]:
            return None, None
        return -ctx.lambda_ * grads.clone(), None


class LinearFunction(Function):
    @staticmethod
    def forward(input, weight, bias):
        return input.mm(weight.t()) + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        input, weight, _ = inputs
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        return grad_output.mm(weight), grad_output.t().mm(input), grad_output.sum(0)


class RunningScale(nn.Module):
    def __init__(self, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.scale.mul_(1 - self.momentum).add_(self.momentum * x.abs().max())
        return x / self.scale

    def extra_repr(self):
        return f"momentum={self.momentum}"


torch.manual_seed(0)
swish = Swish.apply
x = torch.randn(4, 3, dtype=torch.double, requires_grad=True)
w = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
b = torch.randn(2, dtype=torch.double, requires_grad=True)
print(
    gradcheck(swish, (x,)), gradgradcheck(swish, (x,)), gradcheck(LinearFunction.apply, (x, w, b))
)
y, hits = StraightThrough.apply(x, 4)
y.sum().backward()
print(torch.equal(x.grad == 1, ~hits), hits.requires_grad, y.grad_fn.name())
(g,) = grad(GradientReversal.apply(x, 0.5).sum(), x)
print(g[0])

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(3, 4), RunningScale(), nn.Tanh(), nn.Linear(4, 1)).double()
print(model)
activations, order = {}, []
handles = [
    m.register_forward_hook(lambda m, i, o, n=n: activations.__setitem__(n, o.detach().mean()))
    for n, m in model.named_children()
]
handles.append(
    model[0].register_full_backward_hook(lambda m, gi, go: order.append(("linear", go[0].shape)))
)
handles.append(model[3].register_forward_pre_hook(lambda m, args: (args[0] * 2,)))
model[0].weight.register_hook(lambda g: g.clamp(-0.1, 0.1))
out = model(x)
out.register_hook(lambda g: order.append(("output", round(g.mean().item(), 6))))
out.retain_grad()
out.pow(2).mean().backward()
print({k: round(v.item(), 4) for k, v in activations.items()}, order)
print(model[0].weight.grad.abs().max().item() <= 0.1, out.grad.shape)
for handle in handles:
    handle.remove()
print(list(model.state_dict()), dict(model.named_buffers()).keys(), len(model._forward_hooks))
v = Variable(torch.ones(2), requires_grad=True)
hessian = torch.autograd.functional.hessian(lambda t: (t**3).sum(), v)
jacobian = torch.autograd.functional.jacobian(lambda t: t.outer(t), v)
print(hessian, jacobian.shape)
with torch.autograd.set_grad_enabled(False), torch.autograd.detect_anomaly(check_nan=False):
    print((v * 2).requires_grad, torch.is_grad_enabled())
penalty = grad(model(x).sum(), x, create_graph=True)[0].norm(2, dim=1).sub(1).pow(2).mean()
penalty.backward()
print(f"{penalty.item():.4f}", model[0].weight.grad.shape)
