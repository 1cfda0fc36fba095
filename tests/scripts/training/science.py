"""Derivatives as the model: a PINN, a Gaussian process, RealNVP, style transfer, k-means, PCA."""

import math

import numpy as np
import torch
from torch import nn
from torch.autograd import grad

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)

# A network that obeys u'' + u = 0, u(0) = 0, u'(0) = 1.
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(4):
    t = torch.linspace(0, 2, 20).view(-1, 1).requires_grad_(True)
    u = net(t)
    du = grad(u, t, torch.ones_like(u), create_graph=True)[0]
    ddu = grad(du, t, torch.ones_like(du), create_graph=True)[0]
    loss = (ddu + u).pow(2).mean() + u[0].pow(2).squeeze() + (du[0] - 1).pow(2).squeeze()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"pinn {step}: {loss.item():.6f}")

# A Gaussian process: marginal likelihood by Cholesky, hyperparameters by gradient.
x = torch.rand(15, 1) * 4
y = torch.sin(2 * x).squeeze() + 0.1 * torch.randn(15)
log_len, log_scale, log_noise = (torch.zeros(1, requires_grad=True) for _ in range(3))


def kernel(a, b):
    return log_scale.exp() * torch.exp(-0.5 * torch.cdist(a, b).pow(2) / log_len.exp() ** 2)


opt = torch.optim.Adam([log_len, log_scale, log_noise], lr=0.1)
for step in range(4):
    K = kernel(x + 1e-9 * torch.arange(15.0)[:, None], x) + log_noise.exp() * torch.eye(15)
    L = torch.linalg.cholesky((K + K.T) / 2)
    alpha = torch.cholesky_solve(y.unsqueeze(1), L)
    nll = 0.5 * y @ alpha.squeeze(1) + L.diagonal().log().sum() + 7.5 * math.log(2 * math.pi)
    opt.zero_grad()
    nll.backward()
    opt.step()
    print(f"gp {step}: {nll.item():.6f}")
with torch.no_grad():
    Ks = kernel(torch.tensor([[1.0], [2.0]]), x)
    mean = Ks @ alpha.squeeze(1)
    v = torch.linalg.solve_triangular(L, Ks.T, upper=False)
    print(mean.shape, (log_scale.exp() - v.pow(2).sum(0) > 0).all())


# A flow of coupling layers.
class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, z):
        a, b = z.flip(-1).unbind(-1) if self.flip else z.unbind(-1)
        s, t = self.net(a[:, None]).chunk(2, -1)
        s = torch.tanh(s).squeeze(-1)
        out = torch.stack([a, b * s.exp() + t.squeeze(-1)], -1)
        return (out.flip(-1) if self.flip else out), s

    def inverse(self, z):
        a, b = z.flip(-1).unbind(-1) if self.flip else z.unbind(-1)
        s, t = self.net(a[:, None]).chunk(2, -1)
        out = torch.stack([a, (b - t.squeeze(-1)) * (-torch.tanh(s).squeeze(-1)).exp()], -1)
        return out.flip(-1) if self.flip else out


flow = nn.ModuleList(Coupling(bool(i % 2)) for i in range(4))
prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
points = torch.randn(32, 2) @ torch.tensor([[1.0, 0.5], [0.0, 0.3]])
opt = torch.optim.Adam(flow.parameters(), lr=1e-2)
for step in range(3):
    z, logdet = points, 0
    for layer in flow:
        z, s = layer(z)
        logdet = logdet + s
    loss = -(prior.log_prob(z) + logdet).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"flow {step}: {loss.item():.6f}")
with torch.no_grad():
    back = points
    for layer in flow:
        back, _ = layer(back)
    for layer in reversed(flow):
        back = layer.inverse(back)
    print(torch.allclose(back, points))

# Style transfer: the picture is what is optimised.
features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval()


def gram(x):
    a, b, c, d = x.size()
    f = x.view(a * b, c * d)
    return torch.mm(f, f.t()).div(a * b * c * d)


with torch.no_grad():
    content, style = features(torch.rand(1, 3, 8, 8)), gram(features(torch.rand(1, 3, 8, 8)))
picture = torch.rand(1, 3, 8, 8).requires_grad_()
opt, run = torch.optim.LBFGS([picture], max_iter=3), [0]
while run[0] < 6:

    def closure():
        with torch.no_grad():
            picture.clamp_(0, 1)
        opt.zero_grad()
        f = features(picture)
        loss = 1e3 * (gram(f) - style).pow(2).sum() + (f - content).pow(2).mean()
        loss.backward()
        run[0] += 1
        print(f"style {run[0]}: {loss.item():.6f}")
        return loss

    opt.step(closure)

# Clusters, components, least squares, a spectrum.
centres = points[torch.randperm(32)[:3]].clone()
for _ in range(5):
    nearest = torch.cdist(points, centres).argmin(1)
    for k in range(3):
        if (nearest == k).any():
            centres[k] = points[nearest == k].mean(0)
print(nearest.bincount(minlength=3), centres.shape)
U, S, Vh = torch.linalg.svd(points - points.mean(0), full_matrices=False)
explained = S**2 / (S**2).sum()
print(f"{explained[0].item():.6f}", torch.allclose(U * S @ Vh, points - points.mean(0)))
print(torch.linalg.lstsq(points, points @ torch.tensor([2.0, -1.0])[:, None]).solution.squeeze())
wave = torch.sin(torch.arange(64) * 2 * math.pi * 5 / 64)
print(torch.fft.rfft(wave).abs().argmax(), torch.fft.rfftfreq(64, 1 / 64)[5])
stft = torch.stft(wave, 16, 4, window=torch.hann_window(16), return_complex=True)
print(
    stft.shape,
    f"{stft.abs().sum().item():.6f}",
    np.allclose(np.fft.fft(wave.numpy()), torch.fft.fft(wave).numpy()),
)
torch.set_default_dtype(torch.float32)
