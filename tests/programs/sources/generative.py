"""Autoencoders, diffusion, adversaries, flows, energies, and pictures made by networks."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.programs.rows import program


@program("generative")
def vae(run):
    torch.manual_seed(0)

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(16, 12), nn.Linear(12, 3), nn.Linear(12, 3)
            self.fc3, self.fc4 = nn.Linear(3, 12), nn.Linear(12, 16)

        def forward(self, x, eps):
            h = F.relu(self.fc1(x))
            mu, logvar = self.fc21(h), self.fc22(h)
            z = mu + eps * torch.exp(0.5 * logvar)
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

    net = VAE()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x = torch.rand(8, 16)

    @run.step
    def step(x, eps):
        optimizer.zero_grad()
        recon, mu, logvar = model(x, eps)
        bce = F.binary_cross_entropy(recon, x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + kld
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, torch.randn(8, 3))


@program("generative", random=True)
def vae_drawing_inside(run):
    torch.manual_seed(0)

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = nn.Linear(16, 6), nn.Linear(3, 16)
            self.drop = nn.Dropout(0.1)

        def forward(self, x):
            mu, logvar = self.enc(self.drop(x)).chunk(2, 1)
            std = torch.exp(0.5 * logvar)
            return self.dec(mu + torch.randn_like(std) * std), mu, logvar

    net = VAE()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x = torch.rand(32, 16)

    @run.step
    def step(x):
        recon, mu, logvar = model(x)
        loss = F.mse_loss(recon, x) - 0.05 * torch.mean(1 + logvar - mu.pow(2) - logvar.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x)


@program("generative")
def vq_vae(run):
    torch.manual_seed(0)

    class VQ(nn.Module):
        def __init__(self, d=4, codes=8):
            super().__init__()
            self.enc, self.dec = nn.Conv2d(1, d, 2, 2), nn.ConvTranspose2d(d, 1, 2, 2)
            self.register_buffer("codebook", torch.randn(codes, d))
            self.register_buffer("size", torch.ones(codes))
            self.register_buffer("sums", self.codebook.clone())

        def forward(self, x):
            z = self.enc(x).permute(0, 2, 3, 1)
            flat = z.reshape(-1, z.size(-1))
            index = torch.cdist(flat, self.codebook).argmin(1)
            q = self.codebook[index].view_as(z)
            if self.training:
                with torch.no_grad():
                    hot = F.one_hot(index, self.codebook.size(0)).float()
                    self.size.mul_(0.9).add_(hot.sum(0), alpha=0.1)
                    self.sums.mul_(0.9).add_(hot.t() @ flat, alpha=0.1)
                    self.codebook.copy_(self.sums / (self.size + 1e-5).unsqueeze(1))
            commit = F.mse_loss(z, q.detach())
            q = z + (q - z).detach()
            return self.dec(q.permute(0, 3, 1, 2)), commit

    net = VQ()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    x = torch.randn(4, 1, 8, 8)

    @run.step
    def step(x):
        recon, commit = model(x)
        loss = F.mse_loss(recon, x) + 0.25 * commit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x)


class Denoiser(nn.Module):
    def __init__(self, d=2, h=16):
        super().__init__()
        self.h = h
        self.inp, self.time = (
            nn.Linear(d, h),
            nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h)),
        )
        self.mid, self.out = (
            nn.Sequential(nn.LayerNorm(h), nn.Linear(h, h), nn.SiLU()),
            nn.Linear(h, d),
        )

    def forward(self, x, t):
        half = self.h // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
        args = t.float()[:, None] * freqs[None]
        emb = self.time(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))
        h = F.silu(self.inp(x) + emb)
        return self.out(h + self.mid(h))


@program("diffusion")
def ddpm(run):
    torch.manual_seed(0)
    net = Denoiser()
    ema = copy.deepcopy(net).requires_grad_(False)
    model = run.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    betas = torch.linspace(1e-4, 0.02, 50)
    bar = torch.cumprod(1 - betas, 0)
    data = torch.randn(32, 2) * 0.1 + torch.tensor([1.0, -1.0])

    @run.step
    def step(x, t, noise):
        a = bar.gather(0, t)[:, None]
        xt = a.sqrt() * x + (1 - a).sqrt() * noise
        loss = F.mse_loss(model(xt, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        t = torch.randint(0, 50, (32,))
        loss = step(data, t, torch.randn_like(data))
        with torch.no_grad():
            for p, q in zip(ema.parameters(), net.parameters()):
                p.lerp_(q, 0.1)
        yield loss
    with torch.no_grad():
        x = torch.randn(4, 2)
        for i in reversed(range(40, 50)):
            eps = ema(x, torch.full((4,), i))
            x = (x - betas[i] / (1 - bar[i]).sqrt() * eps) / (1 - betas[i]).sqrt()
            x = x + betas[i].sqrt() * torch.randn_like(x)
        yield x.pow(2).mean()


@program("diffusion")
def flow_matching(run):
    torch.manual_seed(0)
    net = Denoiser()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    data = torch.randn(32, 2) * 0.1 + 1

    @run.step
    def step(x1, x0, t):
        xt = torch.lerp(x0, x1, t[:, None])
        loss = (model(xt, t) - (x1 - x0)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(run.steps):
        yield step(data, torch.randn(32, 2), torch.rand(32))


@program("diffusion")
def score_matching(run):
    """Sliced score matching: a gradient of a gradient, inside of the step."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 2)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    data = torch.randn(16, 2) + 1

    @run.step
    def step(x, v):
        x = x.detach().requires_grad_(True)
        score = net(x)
        (grad,) = torch.autograd.grad((score * v).sum(), x, create_graph=True)
        loss = (0.5 * (score * v).sum(-1) ** 2 + (grad * v).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(data, torch.randn(16, 2))


@program("adversarial")
def dcgan(run):
    torch.manual_seed(0)
    netG = nn.Sequential(
        nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    netD = nn.Sequential(
        nn.Conv2d(1, 6, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(6, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0),
    )  # fmt: skip

    def weights_init(m):
        name = m.__class__.__name__
        if name.find("Conv") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.05)
        elif name.find("BatchNorm") != -1:
            nn.init.normal_(m.weight.data, 1.0, 0.02)
            nn.init.constant_(m.bias.data, 0)

    netG.apply(weights_init)
    netD.apply(weights_init)
    G, D = run.model(netG), run.model(netD)
    criterion = nn.BCELoss()
    optD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
    data = torch.randn(6, 1, 8, 8).tanh()

    @run.step
    def step(real, noise):
        netD.zero_grad()
        label = torch.full((real.size(0),), 1.0)
        err_real = criterion(D(real).view(-1), label)
        err_real.backward()
        fake = G(noise)
        label.fill_(0.0)
        err_fake = criterion(D(fake.detach()).view(-1), label)
        err_fake.backward()
        optD.step()
        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(D(fake).view(-1), label)
        errG.backward()
        optG.step()
        return err_real + err_fake, errG

    for _ in range(run.steps):
        yield step(data, torch.randn(6, 6, 1, 1))


@program("adversarial")
def wgan_gp(run):
    """The penalty is a gradient of a gradient; only whole steps can be compiled."""
    torch.manual_seed(0)
    G, D = (
        nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)),
        nn.Sequential(
            nn.Linear(2, 16),
            nn.LeakyReLU(0.2),
            nn.Linear(16, 16),
            nn.LeakyReLU(0.2),
            nn.Linear(16, 1),
        ),
    )
    model = run.model(G)
    optG = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
    optD = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.0, 0.9))
    data = torch.randn(16, 2) * 0.2 + 1

    def penalty(real, fake, alpha):
        x = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        out = D(x)
        (g,) = torch.autograd.grad(
            out, x, torch.ones_like(out), create_graph=True, retain_graph=True
        )
        return ((g.norm(2, dim=1) - 1) ** 2).mean() * 10

    @run.step
    def critic(real, z, alpha):
        optD.zero_grad()
        fake = model(z).detach()
        loss = D(fake).mean() - D(real).mean() + penalty(real, fake, alpha)
        loss.backward()
        optD.step()
        return loss

    @run.step
    def generator(z):
        optG.zero_grad()
        loss = -D(model(z)).mean()
        loss.backward()
        optG.step()
        return loss

    for k in range(run.steps):
        loss = critic(data, torch.randn(16, 4), torch.rand(16, 1))
        yield (loss, generator(torch.randn(16, 4))) if k % 2 else loss


@program("flows")
def real_nvp(run):
    torch.manual_seed(0)

    class Flow(nn.Module):
        def __init__(self, layers=4):
            super().__init__()
            self.register_buffer("masks", torch.tensor([[0.0, 1.0], [1.0, 0.0]] * (layers // 2)))
            self.s = nn.ModuleList(
                nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh())
                for _ in range(layers)
            )
            self.t = nn.ModuleList(
                nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2))
                for _ in range(layers)
            )

        def forward(self, x):
            log_det, z = x.new_zeros(x.shape[0]), x
            for i in reversed(range(len(self.t))):
                z_ = self.masks[i] * z
                s = self.s[i](z_) * (1 - self.masks[i])
                t = self.t[i](z_) * (1 - self.masks[i])
                z = (1 - self.masks[i]) * (z - t) * torch.exp(-s) + z_
                log_det -= s.sum(dim=1)
            return z, log_det

    net = Flow()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    angle = torch.rand(32) * math.pi
    data = torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(32, 2)

    for _ in range(run.steps):
        z, log_det = model(data)
        loss = -(prior.log_prob(z) + log_det).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        yield loss


@program("flows")
def glow(run):
    torch.manual_seed(0)

    class Step(nn.Module):
        def __init__(self, c=4):
            super().__init__()
            self.loc, self.scale = (
                nn.Parameter(torch.zeros(1, c, 1, 1)),
                nn.Parameter(torch.ones(1, c, 1, 1)),
            )
            self.weight = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0])
            self.net = nn.Sequential(
                nn.Conv2d(c // 2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, c, 3, padding=1)
            )
            self.net[-1].weight.data.zero_()

        def forward(self, x):
            _, _, h, w = x.shape
            x = self.scale * (x + self.loc)
            det = h * w * (self.scale.abs().log().sum() + torch.slogdet(self.weight)[1])
            a, b = F.conv2d(x, self.weight[:, :, None, None]).chunk(2, 1)
            log_s, t = self.net(a).chunk(2, 1)
            s = torch.sigmoid(log_s + 2)
            return torch.cat([a, (b + t) * s], 1), det + s.log().flatten(1).sum(1)

    class Glow(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = nn.ModuleList(Step() for _ in range(2))

        def forward(self, x):
            b, c, h, w = x.shape
            x = (
                x.view(b, c, h // 2, 2, w // 2, 2)
                .permute(0, 1, 3, 5, 2, 4)
                .reshape(b, c * 4, h // 2, w // 2)
            )
            total = 0
            for s in self.steps:
                x, d = s(x)
                total = total + d
            return x, total

    net = Glow()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x = torch.randn(4, 1, 8, 8)

    @run.step
    def step(x):
        z, logdet = model(x)
        logp = (-0.5 * (z**2 + math.log(2 * math.pi))).flatten(1).sum(1)
        loss = -(logp + logdet).mean() / (math.log(2) * 64)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x)


@program("generative")
def pixel_cnn(run):
    torch.manual_seed(0)

    class MaskedConv2d(nn.Conv2d):
        def __init__(self, kind, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.register_buffer("mask", self.weight.data.clone())
            _, _, kh, kw = self.weight.size()
            self.mask.fill_(1)
            self.mask[:, :, kh // 2, kw // 2 + (kind == "B") :] = 0
            self.mask[:, :, kh // 2 + 1 :] = 0

        def forward(self, x):
            self.weight.data *= self.mask
            return super().forward(x)

    net = nn.Sequential(
        MaskedConv2d("A", 1, 8, 3, padding=1),
        nn.ReLU(),
        MaskedConv2d("B", 8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 4, 1),
    )
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    target = torch.randint(0, 4, (4, 6, 6))
    x = target[:, None].float() / 3

    @run.step
    def step(x, target):
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, target)


@program("energy")
def energy_based(run):
    """Langevin steps on the inputs, then contrastive divergence."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 1))
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = torch.randn(16, 2) * 0.3 + 1

    def sample(x):
        for _ in range(3):
            x = x.detach().requires_grad_(True)
            (g,) = torch.autograd.grad(model(x).sum(), x)
            x = x - 0.1 * g + 0.01 * torch.randn_like(x)
        return x.detach()

    for _ in range(run.steps):
        fake = sample(torch.randn(16, 2))
        real_e, fake_e = model(data), model(fake)
        loss = real_e.mean() - fake_e.mean() + 0.1 * (real_e**2 + fake_e**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@program("energy")
def hopfield(run):
    """Modern Hopfield retrieval, its patterns learned."""
    torch.manual_seed(0)

    class Hopfield(nn.Module):
        def __init__(self, d=8, patterns=6):
            super().__init__()
            self.patterns = nn.Parameter(torch.randn(patterns, d))
            self.beta = nn.Parameter(torch.tensor(0.5))

        def forward(self, x):
            for _ in range(4):
                new = torch.softmax(self.beta * x @ self.patterns.t(), -1) @ self.patterns
                x = x + 0.7 * (new - x)
            return x

    net = Hopfield()
    model = run.model(net)
    optimizer = torch.optim.NAdam(net.parameters(), lr=1e-2)
    clean = torch.randn(10, 8)

    @run.step
    def step(noisy):
        loss = F.smooth_l1_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(clean + 0.1 * torch.randn(10, 8))


@program("rendering")
def nerf(run):
    torch.manual_seed(0)

    class NeRF(nn.Module):
        def __init__(self, levels=3, h=16):
            super().__init__()
            self.levels = levels
            self.pts = nn.ModuleList(
                [nn.Linear(3 + 6 * levels, h), nn.Linear(h + 3 + 6 * levels, h)]
            )
            self.alpha, self.rgb = nn.Linear(h, 1), nn.Linear(h, 3)

        def forward(self, pts):
            out = [pts]
            for f in 2.0 ** torch.linspace(0.0, self.levels - 1, self.levels):
                out += [torch.sin(pts * f), torch.cos(pts * f)]
            x = torch.cat(out, -1)
            h = F.relu(self.pts[0](x))
            h = F.relu(self.pts[1](torch.cat([x, h], -1)))
            return torch.cat([self.rgb(h), self.alpha(h)], -1)

    def raw2outputs(raw, z, rays_d):
        dists = z[..., 1:] - z[..., :-1]
        dists = torch.cat([dists, torch.Tensor([1e10]).expand(dists[..., :1].shape)], -1)
        dists = dists * torch.norm(rays_d[..., None, :], dim=-1)
        rgb = torch.sigmoid(raw[..., :3])
        alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dists)
        weights = (
            alpha
            * torch.cumprod(
                torch.cat([torch.ones((alpha.shape[0], 1)), 1.0 - alpha + 1e-10], -1), -1
            )[:, :-1]
        )
        return torch.sum(weights[..., None] * rgb, -2), torch.sum(weights * z, -1)

    net = NeRF()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    origins, directions = torch.randn(16, 3) * 0.1, torch.randn(16, 3)
    target = torch.rand(16, 3)

    @run.step
    def step(o, d, jitter):
        z = torch.linspace(0.5, 2.0, 8).expand(16, 8)
        mids = 0.5 * (z[..., 1:] + z[..., :-1])
        upper, lower = torch.cat([mids, z[..., -1:]], -1), torch.cat([z[..., :1], mids], -1)
        z = lower + (upper - lower) * jitter
        pts = o[..., None, :] + d[..., None, :] * z[..., :, None]
        rgb, _ = raw2outputs(model(pts), z, d)
        loss = torch.mean((rgb - target) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, -10.0 * torch.log(loss) / math.log(10.0)

    for k in range(run.steps):
        yield step(origins, directions, torch.rand(16, 8))
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * (0.1 ** (k / 16))


@program("rendering")
def siren(run):
    torch.manual_seed(0)

    class Sine(nn.Module):
        def __init__(self, a, b, first=False, w0=10.0):
            super().__init__()
            self.w0, self.linear = w0, nn.Linear(a, b)
            with torch.no_grad():
                bound = 1 / a if first else math.sqrt(6 / a) / w0
                self.linear.weight.uniform_(-bound, bound)

        def forward(self, x):
            return torch.sin(self.w0 * self.linear(x))

    net = nn.Sequential(Sine(2, 16, True), Sine(16, 16), nn.Linear(16, 1))
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    axis = torch.linspace(-1, 1, 6)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1).reshape(-1, 2)
    image = (grid**2).sum(-1, keepdim=True).sin()

    @run.step
    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(grid, image)
