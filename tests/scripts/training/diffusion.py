"""DDPM: noise schedule with gathers, a small U-Net with time embeddings, EMA, sampling; WGAN-GP."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import autograd
from torch.nn.utils import spectral_norm, weight_norm


class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half_dim = self.dim // 2
        embeddings = math.log(10000) / (half_dim - 1)
        embeddings = torch.exp(torch.arange(half_dim, device=time.device) * -embeddings)
        embeddings = time[:, None] * embeddings[None, :]
        return torch.cat((embeddings.sin(), embeddings.cos()), dim=-1)


class Block(nn.Module):
    def __init__(self, in_ch, out_ch, time_dim):
        super().__init__()
        self.time_mlp = nn.Linear(time_dim, out_ch * 2)
        self.conv1 = nn.Conv2d(in_ch, out_ch, 3, padding=1)
        self.conv2 = nn.Conv2d(out_ch, out_ch, 3, padding=1, groups=4)
        self.norm1, self.norm2 = nn.GroupNorm(4, out_ch), nn.InstanceNorm2d(out_ch)
        self.skip = nn.Conv2d(in_ch, out_ch, 1) if in_ch != out_ch else nn.Identity()
        self.act = nn.SiLU(inplace=True)

    def forward(self, x, t):
        h = self.act(self.norm1(self.conv1(x)))
        scale, shift = self.time_mlp(t)[..., None, None].chunk(2, dim=1)
        h = h * (scale + 1) + shift
        return self.act(self.norm2(self.conv2(h))) + self.skip(x)


class Denoiser(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.time_mlp = nn.Sequential(
            SinusoidalPositionEmbeddings(16), nn.Linear(16, 16), nn.GELU()
        )
        self.down = Block(1, ch, 16)
        self.shrink = nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(4 * ch, ch, 1))
        self.mid = Block(ch, ch, 16)
        self.grow = nn.Upsample(scale_factor=2, mode="nearest")
        self.up = Block(2 * ch, ch, 16)
        self.out = nn.Conv2d(ch, 1, 1)

    def forward(self, x, t):
        t = self.time_mlp(t)
        first = self.down(x, t)
        h = self.grow(self.mid(self.shrink(first), t))
        return self.out(self.up(torch.cat((h, first), dim=1), t))


T = 20
betas = torch.linspace(1e-4, 0.02, T)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, dim=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)


def extract(a, t, x_shape):
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


def q_sample(x_start, t, noise):
    mean = extract(alphas_cumprod.sqrt(), t, x_start.shape) * x_start
    return mean + extract((1.0 - alphas_cumprod).sqrt(), t, x_start.shape) * noise


@torch.no_grad()
def p_sample(model, x, t, t_index):
    betas_t = extract(betas, t, x.shape)
    spread = extract((1.0 - alphas_cumprod).sqrt(), t, x.shape)
    mean = extract((1.0 / alphas).sqrt(), t, x.shape) * (x - betas_t * model(x, t) / spread)
    if t_index == 0:
        return mean
    return mean + extract(posterior_variance, t, x.shape).sqrt() * torch.randn_like(x)


torch.manual_seed(0)
images = (torch.arange(64).view(1, 1, 8, 8) % torch.arange(2, 10).view(-1, 1, 1, 1) == 0).float()
model = Denoiser()
ema = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(4):
    t = torch.randint(0, T, (8,)).long()
    noise = torch.randn_like(images)
    loss = F.smooth_l1_loss(noise, model(q_sample(images * 2 - 1, t, noise), t))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for e, p in zip(ema.parameters(), model.parameters()):
            e.lerp_(p, 0.1)
    print(f"ddpm {step}: {loss.item():.4f}")
x = torch.randn(2, 1, 8, 8)
for i in reversed(range(T)):
    x = p_sample(ema, x, torch.full((2,), i, dtype=torch.long), i)
print(x.shape, bool(x.isfinite().all()), f"{posterior_variance.sum().item():.5f}")

# WGAN-GP: the penalty needs the gradient of a gradient; the critics are normalised in the old ways.
critic = nn.Sequential(
    spectral_norm(nn.Conv2d(1, 4, 3, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(),
    weight_norm(nn.Linear(64, 8)), nn.Softplus(), nn.Linear(8, 1),
)  # fmt: skip
opt = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
for step in range(3):
    fake = torch.rand(8, 1, 8, 8)
    eps = torch.rand(8, 1, 1, 1)
    mixed = (eps * images + (1 - eps) * fake).requires_grad_(True)
    score = critic(mixed)
    (gradients,) = autograd.grad(
        outputs=score, inputs=mixed, grad_outputs=torch.ones_like(score),
        create_graph=True, retain_graph=True, only_inputs=True,
    )  # fmt: skip
    penalty = ((gradients.view(8, -1).norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(images).mean() + 10 * penalty
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    print(f"critic {step}: {loss.item():.4f} penalty {penalty.item():.4f}")
print(sorted(k for k in critic.state_dict() if k.startswith(("0", "3"))))

# FGSM, and a Grad-CAM by hooks.
data = images[:2].clone().requires_grad_()
critic(data).sum().backward()
print(torch.clamp(data + 0.1 * data.grad.sign(), 0, 1).shape, data.grad.abs().sum() > 0)
kept = {}
hook = critic[0].register_forward_hook(lambda m, i, o: kept.update(act=o))
back = critic[0].register_full_backward_hook(lambda m, gi, go: kept.update(grad=go[0]))
critic(images[:1]).backward()
cam = F.relu((kept["grad"].mean((2, 3), keepdim=True) * kept["act"]).sum(1))
print(cam.shape, kept["grad"].shape)
hook.remove()
back.remove()
