"""Flows, codes, experts, structured prediction and losses."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.blocks.rows import block, images, rows, sequences


@block(rows(6))
class RealNVP(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.register_buffer("mask", (torch.arange(d) % 2).float())
        self.s = nn.Sequential(nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, d), nn.Tanh())
        self.t = nn.Sequential(nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, d))

    def forward(self, x):
        held = x * self.mask
        s, t = self.s(held) * (1 - self.mask), self.t(held) * (1 - self.mask)
        z = held + (1 - self.mask) * (x * torch.exp(s) + t)
        back = held + (1 - self.mask) * (z - t) * torch.exp(-s)
        return z, s.sum(-1), back - x.detach()


@block(images(4))
class Glow(nn.Module):
    """Actnorm, an invertible 1 x 1 convolution, a coupling; squeezed before."""

    def __init__(self, c=4):
        super().__init__()
        q = torch.linalg.qr(torch.randn(c, c))[0]
        self.weight = nn.Parameter(q)
        self.loc, self.scale = (
            nn.Parameter(torch.zeros(1, c, 1, 1)),
            nn.Parameter(torch.ones(1, c, 1, 1)),
        )
        self.net = nn.Sequential(nn.Conv2d(c // 2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, c, 1))

    def forward(self, x):
        _, _, h, w = x.shape
        logdet = h * w * torch.sum(torch.log(torch.abs(self.scale)))
        x = self.scale * (x + self.loc)
        x = F.conv2d(x, self.weight[:, :, None, None])
        logdet = logdet + h * w * torch.slogdet(self.weight.double())[1].float()
        a, b = x.chunk(2, 1)
        log_s, t = self.net(a).chunk(2, 1)
        s = torch.sigmoid(log_s + 2)
        out = torch.cat([a, (b + t) * s], 1)
        return out, logdet + torch.sum(torch.log(s).view(x.shape[0], -1), 1)


@block(rows(4))
class PlanarFlow(nn.Module):
    def __init__(self, d=4, layers=2):
        super().__init__()
        self.u, self.w = (
            nn.Parameter(torch.randn(layers, d) * 0.3),
            nn.Parameter(torch.randn(layers, d)),
        )
        self.b = nn.Parameter(torch.zeros(layers))

    def forward(self, z):
        total = 0.0
        for u, w, b in zip(self.u, self.w, self.b):
            wu = (w * u).sum()
            u = u + (-1 + F.softplus(wu) - wu) * w / (w * w).sum()
            h = torch.tanh(z @ w + b)
            psi = (1 - h**2).unsqueeze(-1) * w
            total = total + torch.log(torch.abs(1 + psi @ u) + 1e-6)
            z = z + u * h.unsqueeze(-1)
        return z, total


@block(rows(4))
class SplineFlow(nn.Module):
    """Piecewise linear, by searching the bin of each number."""

    def __init__(self, d=4, bins=5):
        super().__init__()
        self.heights = nn.Parameter(torch.randn(d, bins))

    def forward(self, x):
        x = torch.sigmoid(x)
        pdf = F.softmax(self.heights, -1)
        cdf = F.pad(torch.cumsum(pdf, -1), (1, 0))
        bins = pdf.size(-1)
        edges = torch.linspace(0, 1, bins + 1)
        index = (torch.searchsorted(edges, x.detach().contiguous()) - 1).clamp(0, bins - 1)
        at = torch.arange(x.size(1)).expand_as(index)
        slope = pdf[at, index] * bins
        return cdf[at, index] + (x - edges[index]) * slope, torch.log(slope).sum(-1)


@block(images(4))
class VectorQuantizer(nn.Module):
    """Codes by distance, straight-through, moving averages while training."""

    def __init__(self, d=4, codes=5, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codebook", torch.randn(codes, d))
        self.register_buffer("size", torch.ones(codes))
        self.register_buffer("average", self.codebook.clone())

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        flat = x.reshape(-1, x.size(-1))
        distance = (
            flat.pow(2).sum(1, keepdim=True)
            - 2 * flat @ self.codebook.t()
            + self.codebook.pow(2).sum(1)
        )
        index = distance.argmin(1)
        hot = F.one_hot(index, self.codebook.size(0)).type_as(flat)
        q = F.embedding(index, self.codebook).view(x.shape)
        if self.training:
            with torch.no_grad():
                self.size.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
                self.average.mul_(self.decay).add_(hot.t() @ flat, alpha=1 - self.decay)
                n = self.size.sum()
                size = (self.size + 1e-5) / (n + self.size.numel() * 1e-5) * n
                self.codebook.copy_(self.average / size.unsqueeze(1))
        loss = F.mse_loss(x, q.detach())
        q = x + (q - x).detach()
        use = hot.mean(0)
        perplexity = torch.exp(-torch.sum(use * torch.log(use + 1e-10)))
        return q.permute(0, 3, 1, 2), loss, index, perplexity


@block(rows(5), random=True, no_modes=True)
def gumbel_softmax(logits):
    soft = F.gumbel_softmax(logits, tau=0.7)
    hard = F.gumbel_softmax(logits, tau=0.7, hard=True)
    noise = -torch.empty_like(logits).exponential_().log()
    own = ((logits + noise) / 0.5).softmax(-1)
    index = own.max(-1, keepdim=True)[1]
    st = torch.zeros_like(logits).scatter_(-1, index, 1.0) - own.detach() + own
    return soft, hard, st


@block(rows(6), random=True)
class Reparametrized(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.mu, self.log_var, self.out = nn.Linear(d, 3), nn.Linear(d, 3), nn.Linear(3, d)

    def forward(self, x):
        mu, log_var = self.mu(x), self.log_var(x)
        std = torch.exp(0.5 * log_var)
        z = mu + std * torch.randn_like(std) if self.training else mu
        kl = -0.5 * torch.sum(1 + log_var - mu.pow(2) - log_var.exp())
        return self.out(z), kl / x.size(0)


@block(sequences(6))
class MixtureOfExperts(nn.Module):
    """Top-k routing with a dense dispatch and a load balancing loss."""

    def __init__(self, d=6, experts=4, k=2):
        super().__init__()
        self.k, self.gate = k, nn.Linear(d, experts, bias=False)
        self.w1, self.w2 = (
            nn.Parameter(torch.randn(experts, d, 8) * 0.3),
            nn.Parameter(torch.randn(experts, 8, d) * 0.3),
        )

    def forward(self, x):
        b, n, d = x.shape
        flat = x.reshape(-1, d)
        probabilities = self.gate(flat).softmax(-1)
        weights, chosen = probabilities.topk(self.k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        combine = torch.zeros_like(probabilities).scatter(1, chosen, weights)
        h = F.gelu(torch.einsum("td,edh->teh", flat, self.w1))
        y = torch.einsum("teh,ehd,te->td", h, self.w2, combine)
        share = F.one_hot(chosen, probabilities.size(-1)).float().sum(1).mean(0)
        balance = (share * probabilities.mean(0)).sum() * probabilities.size(-1)
        return y.view(b, n, d), balance


@block(sequences(6))
class SoftMoE(nn.Module):
    def __init__(self, d=6, experts=2, slots=2):
        super().__init__()
        self.phi = nn.Parameter(torch.randn(d, experts, slots))
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(experts))

    def forward(self, x):
        logits = torch.einsum("bnd,des->bnes", F.normalize(x, dim=-1), self.phi)
        dispatch = logits.softmax(1)
        combine = logits.flatten(2).softmax(-1).view_as(logits)
        slots = torch.einsum("bnd,bnes->besd", x, dispatch)
        out = torch.stack([e(slots[:, i]) for i, e in enumerate(self.experts)], 1)
        return torch.einsum("besd,bnes->bnd", out, combine)


@block(sequences(5))
class Sinkhorn(nn.Module):
    def __init__(self, d=5, m=3):
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(m, d))

    def forward(self, x):
        b, n, _ = x.shape
        cost = torch.cdist(x, self.prototypes.expand(b, -1, -1)) / 2
        m = cost.size(2)
        mu, nu = torch.full((b, n), 1.0 / n), torch.full((b, m), 1.0 / m)
        u, v = torch.zeros_like(mu), torch.zeros_like(nu)
        for _ in range(4):
            u = torch.log(mu) - torch.logsumexp(v.unsqueeze(1) - cost, dim=2)
            v = torch.log(nu) - torch.logsumexp(u.unsqueeze(2) - cost, dim=1)
        plan = torch.exp(u.unsqueeze(2) + v.unsqueeze(1) - cost)
        return plan, (plan * cost).sum((1, 2))


def tagged(torch, shape):
    tags = torch.randint(0, shape[2], shape[:2])
    lengths = torch.randint(1, shape[1] + 1, shape[:1])
    mask = torch.arange(shape[1])[None, :] < lengths[:, None]
    return torch.randn(shape), tags, mask


@block(sequences(4), inputs=tagged)
class CRF(nn.Module):
    """The forward algorithm, the score of the tags, and Viterbi's path."""

    def __init__(self, tags=4):
        super().__init__()
        self.start, self.end = (
            nn.Parameter(torch.randn(tags) * 0.1),
            nn.Parameter(torch.randn(tags) * 0.1),
        )
        self.move = nn.Parameter(torch.randn(tags, tags) * 0.3)

    def score(self, e, tags, mask):
        at = torch.arange(e.size(0))
        score = self.start[tags[:, 0]] + e[at, 0, tags[:, 0]]
        for t in range(1, e.size(1)):
            step = self.move[tags[:, t - 1], tags[:, t]] + e[at, t, tags[:, t]]
            score = score + step * mask[:, t]
        last = mask.long().sum(1) - 1
        return score + self.end[tags.gather(1, last[:, None]).squeeze(1)]

    def partition(self, e, mask):
        alpha = self.start + e[:, 0]
        for t in range(1, e.size(1)):
            new = torch.logsumexp(alpha.unsqueeze(2) + self.move + e[:, t].unsqueeze(1), dim=1)
            alpha = torch.where(mask[:, t].unsqueeze(1), new, alpha)
        return torch.logsumexp(alpha + self.end, dim=1)

    def viterbi(self, e):
        score, back = self.start + e[:, 0], []
        for t in range(1, e.size(1)):
            best, index = (score.unsqueeze(2) + self.move).max(1)
            score = best + e[:, t]
            back.append(index)
        tag = (score + self.end).argmax(1)
        path = [tag]
        for index in reversed(back):
            tag = index.gather(1, tag[:, None]).squeeze(1)
            path.insert(0, tag)
        return torch.stack(path, 1)

    def forward(self, e, tags, mask):
        loss = (self.partition(e, mask) - self.score(e, tags, mask)).mean()
        return loss, self.viterbi(e.detach())


def labelled(torch, shape):
    n, length, _ = shape
    return torch.randn(shape), torch.randint(1, shape[2], (n, max(1, length // 2)))


@block(sequences(5), inputs=labelled, no_modes=True)
def ctc_forward(logits, labels):
    """The forward variables of CTC by hand, beside the library's loss."""
    lp = logits.log_softmax(-1)
    b, t, _ = lp.shape
    n = labels.size(1)
    extended = torch.zeros(b, 2 * n + 1, dtype=torch.long)
    extended[:, 1::2] = labels
    low = torch.full((b, 2 * n + 1), -1e4)
    alpha = low.clone()
    alpha[:, 0] = lp[:, 0, 0]
    alpha[:, 1] = lp[:, 0].gather(1, extended[:, 1:2]).squeeze(1)
    skip = torch.zeros_like(low, dtype=torch.bool)
    skip[:, 2:] = (extended[:, 2:] != 0) & (extended[:, 2:] != extended[:, :-2])
    for k in range(1, t):
        one = F.pad(alpha, (1, 0), value=-1e4)[:, :-1]
        two = torch.where(skip, F.pad(alpha, (2, 0), value=-1e4)[:, :-2], low)
        alpha = torch.logsumexp(torch.stack((alpha, one, two)), 0) + lp[:, k].gather(1, extended)
    own = -torch.logaddexp(alpha[:, -1], alpha[:, -2])
    lengths = torch.full((b,), t), torch.full((b,), n)
    loss = F.ctc_loss(lp.transpose(0, 1), labels, *lengths, reduction="none", zero_infinity=True)
    return own * 1e-2, loss


@block(sequences(3), no_modes=True)
def soft_dtw(x):
    y = torch.tanh(x.flip(1))
    d = torch.cdist(x, y).pow(2)
    n, gamma = d.size(1), 0.5
    far = torch.full((d.size(0),), 1e5)
    row = [torch.zeros(d.size(0))] + [far] * n
    for i in range(n):
        new = [far]
        for j in range(n):
            near = torch.stack((row[j], row[j + 1], new[j]), 0) / -gamma
            new.append(d[:, i, j] - gamma * torch.logsumexp(near, 0))
        row = new
    return row[-1]


@block(rows(8), no_modes=True)
def simclr(x):
    """NT-Xent of a batch and a second view of it."""
    z = F.normalize(torch.cat([x, torch.tanh(x.roll(1, -1))]), dim=1)
    n = x.shape[0]
    similarity = z @ z.T / 0.5
    similarity.fill_diagonal_(float("-inf"))
    labels = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return F.cross_entropy(similarity, labels), similarity.detach().argmax(1) == labels


@block(rows(8))
class Clip(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.image, self.text = nn.Linear(d, 4, bias=False), nn.Linear(d, 4, bias=False)
        self.scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, x):
        a, b = self.image(x), self.text(x.flip(-1))
        a, b = a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True)
        logits = self.scale.exp() * a @ b.t()
        labels = torch.arange(logits.shape[0])
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2, logits


@block(rows(8), no_modes=True)
def barlow_vicreg(x):
    """Correlation between features, variance and covariance terms."""
    n, d = x.shape
    a, b = x, torch.sin(2 * x)
    an = (a - a.mean(0)) / (a.std(0, unbiased=False) + 1e-1)
    bn = (b - b.mean(0)) / (b.std(0, unbiased=False) + 1e-1)
    c = an.T @ bn / n
    on = torch.diagonal(c).add(-1).pow(2).sum()
    off = c.flatten()[:-1].view(d - 1, d + 1)[:, 1:].flatten().pow(2).sum()
    cov = (a - a.mean(0)).T @ (a - a.mean(0)) / max(n - 1, 1)
    std = torch.sqrt(a.var(dim=0, unbiased=False) + 1e-2)
    return (
        on + 0.01 * off,
        F.relu(1 - std).mean(),
        (cov - torch.diag(torch.diag(cov))).pow(2).sum() / d,
    )


def classified(torch, shape):
    return torch.randn(shape), torch.randint(0, 3, shape[:1])


@block(rows(6), inputs=classified)
class ArcFace(nn.Module):
    def __init__(self, d=6, classes=3, s=8.0, m=0.3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, d))
        self.s, self.m = s, m

    def forward(self, x, y):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(1e-4, 1))
        phi = cosine * math.cos(self.m) - sine * math.sin(self.m)
        phi = torch.where(
            cosine > math.cos(math.pi - self.m), phi, cosine - math.sin(math.pi - self.m) * self.m
        )
        hot = torch.zeros(cosine.size())
        hot.scatter_(1, y.view(-1, 1).long(), 1)
        return F.cross_entropy(self.s * (hot * phi + (1.0 - hot) * cosine), y)


@block(rows(6), inputs=classified)
class CenterLoss(nn.Module):
    def __init__(self, d=6, classes=3):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(classes, d))

    def forward(self, x, y):
        b, c = x.size(0), self.centers.size(0)
        dist = torch.pow(x, 2).sum(dim=1, keepdim=True).expand(b, c)
        dist = dist + torch.pow(self.centers, 2).sum(dim=1, keepdim=True).expand(c, b).t()
        dist = torch.addmm(dist, x, self.centers.t(), beta=1, alpha=-2)
        mask = y.unsqueeze(1).expand(b, c).eq(torch.arange(c).expand(b, c))
        return (dist * mask.float()).clamp(min=1e-12, max=1e12).sum() / b


@block(rows(6), inputs=classified, no_modes=True)
def batch_hard_triplet(x, y):
    n = x.size(0)
    dist = torch.pow(x, 2).sum(dim=1, keepdim=True).expand(n, n)
    dist = dist + dist.t()
    dist = dist.addmm(x, x.t(), beta=1, alpha=-2).clamp(min=1e-3).sqrt()
    same = y.expand(n, n).eq(y.expand(n, n).t())
    hardest = dist.masked_fill(~same, 0.0).max(1).values
    nearest = dist.masked_fill(same, 1e3).min(1).values
    return F.relu(hardest - nearest + 0.3).mean(), F.margin_ranking_loss(
        nearest, hardest, torch.ones_like(nearest), margin=0.3
    )


def masks(torch, shape):
    return torch.randn(shape), (torch.rand(shape) > 0.5).float()


@block(images(1), inputs=masks, no_modes=True)
def segmentation_losses(x, y):
    """Focal, dice, Tversky, and a boundary term."""
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    pt = p * y + (1 - p) * (1 - y)
    focal = ((0.25 * y + 0.75 * (1 - y)) * ce * (1 - pt) ** 2).mean()
    a, b = p.flatten(1), y.flatten(1)
    dice = 1 - (2 * (a * b).sum(1) + 1) / (a.sum(1) + b.sum(1) + 1)
    tp, fp, fn = (a * b).sum(1), (a * (1 - b)).sum(1), ((1 - a) * b).sum(1)
    tversky = (1 - (tp + 1) / (tp + 0.3 * fp + 0.7 * fn + 1)) ** 0.75
    edge = F.max_pool2d(y, 3, 1, 1) - (-F.max_pool2d(-y, 3, 1, 1))
    return focal + dice.mean(), tversky.mean(), (ce * (1 + edge)).sum() / (1 + edge).sum()


@block(
    images(3),
    inputs=lambda torch, shape: (torch.randn(shape), torch.randint(-1, 3, (shape[0], *shape[2:]))),
    no_modes=True,
    of_batch=True,
)
def lovasz_softmax(logits, labels):
    """Errors sorted for each class; labels of -1 are left out of the cross entropy."""
    p = F.softmax(logits, dim=1).permute(0, 2, 3, 1).reshape(-1, 3)
    flat = labels.reshape(-1)
    total = 0.0
    for c in range(3):
        fg = (flat == c).float()
        errors, perm = torch.sort((fg - p[:, c]).abs(), 0, descending=True)
        gt = fg[perm]
        inter, union = gt.sum() - gt.cumsum(0), gt.sum() + (1 - gt).cumsum(0)
        jaccard = 1.0 - inter / union
        jaccard[1:] = jaccard[1:] - jaccard[:-1].clone()
        total = total + torch.dot(errors, jaccard)
    ce = F.cross_entropy(logits, labels, ignore_index=-1, reduction="none").sum()
    return total / 3, ce / (labels >= 0).sum().clamp(min=1)


@block(rows(6), inputs=classified, random=True)
class Mixup(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.net = nn.Linear(d, 3)

    def forward(self, x, y):
        if not self.training:
            return F.cross_entropy(self.net(x), y, label_smoothing=0.1)
        index = torch.randperm(x.size(0))
        lam = torch.rand(x.size(0), 1)
        logits = self.net(lam * x + (1 - lam) * x[index])
        a = F.cross_entropy(logits, y, reduction="none")
        b = F.cross_entropy(logits, y[index], reduction="none")
        return (lam.squeeze(1) * a + (1 - lam.squeeze(1)) * b).mean()


@block(rows(6))
class EvidentialDistill(nn.Module):
    """Two heads teach each other: temperature, agreement, a detached target."""

    def __init__(self, d=6):
        super().__init__()
        self.teacher, self.student = nn.Linear(d, 4), nn.Linear(d, 4)

    def forward(self, x):
        t, s = self.teacher(x), self.student(x)
        soft = (
            F.kl_div(F.log_softmax(s / 3, 1), F.softmax(t.detach() / 3, 1), reduction="batchmean")
            * 9
        )
        agree = F.cosine_similarity(s, t, dim=1).mean()
        m = 0.5 * (F.softmax(s, 1) + F.softmax(t, 1))
        js = (F.softmax(t, 1) * (F.log_softmax(t, 1) - m.log())).sum(1)
        return soft, agree, js


@block(sequences(4))
class NBeats(nn.Module):
    """Backcast and forecast by bases that are made from sizes."""

    def __init__(self, d=4):
        super().__init__()
        self.fc = nn.Linear(d, 8)
        self.theta_b, self.theta_f = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        n = x.size(1)
        t = torch.linspace(0, 1, n)
        basis = torch.stack([t**i for i in range(3)])
        h = F.relu(self.fc(x.mean(1)))
        back = self.theta_b(h) @ basis
        forecast = self.theta_f(h) @ torch.cos(basis * (2 * math.pi / n))
        return x - back.unsqueeze(-1), forecast


@block(sequences(4))
class SeriesDecomposition(nn.Module):
    """Autoformer: moving averages with repeated ends, correlation by FFT."""

    def __init__(self, d=4, k=5):
        super().__init__()
        self.k, self.q, self.v = k, nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        n = x.size(1)
        front = x[:, 0:1, :].repeat(1, (self.k - 1) // 2, 1)
        end = x[:, -1:, :].repeat(1, (self.k - 1) // 2, 1)
        trend = F.avg_pool1d(
            torch.cat([front, x, end], dim=1).permute(0, 2, 1), self.k, stride=1
        ).permute(0, 2, 1)
        season = x - trend
        q, v = self.q(season).permute(0, 2, 1), self.v(season).permute(0, 2, 1)
        corr = torch.fft.irfft(
            torch.fft.rfft(q, dim=-1) * torch.conj(torch.fft.rfft(v, dim=-1)), n=n, dim=-1
        )
        top = max(1, int(math.log(n + 1)))
        weights, delay = torch.topk(corr.mean(1), top, dim=-1)
        weights = torch.softmax(weights, -1)
        index = (torch.arange(n)[None, None, :] + delay[:, :, None]) % n
        out = 0
        for k in range(top):
            pattern = torch.gather(v, 2, index[:, k : k + 1].expand(-1, v.size(1), -1))
            out = out + pattern * weights[:, k, None, None]
        return out.permute(0, 2, 1) + trend


@block(rows(6))
class FactorizationMachine(nn.Module):
    def __init__(self, d=6, k=3):
        super().__init__()
        self.v, self.linear = nn.Parameter(torch.randn(d, k) * 0.3), nn.Linear(d, 1)
        self.cross = nn.ParameterList(nn.Parameter(torch.randn(d) * 0.3) for _ in range(2))

    def forward(self, x):
        pairs = 0.5 * ((x @ self.v).pow(2) - x.pow(2) @ self.v.pow(2)).sum(1, keepdim=True)
        x0 = xl = x
        for w in self.cross:
            xl = x0 * (xl * w).sum(1, keepdim=True) + xl
        return self.linear(x) + pairs, xl


@block(rows(6), random=True)
class TabularGates(nn.Module):
    """TabNet: ghost batch norm, sparse-ish masks, prior scales."""

    def __init__(self, d=6):
        super().__init__()
        self.fc, self.attention = nn.Linear(d, 2 * d), nn.Linear(d, d)
        self.norm = nn.LayerNorm(2 * d)

    def sparsemax(self, z):
        z = z - z.max(dim=-1, keepdim=True)[0]
        s, _ = torch.sort(z, dim=-1, descending=True)
        rho = torch.arange(1, z.size(-1) + 1)
        cumulative = torch.cumsum(s, dim=-1) - 1
        support = (rho * s > cumulative).sum(dim=-1, keepdim=True)
        tau = cumulative.gather(-1, support - 1) / support.to(z.dtype)
        return torch.clamp(z - tau, min=0)

    def forward(self, x):
        prior, out, entropy = torch.ones_like(x), 0, 0
        for _ in range(2):
            mask = self.sparsemax(self.attention(x) * prior)
            prior = prior * (1.3 - mask)
            entropy = entropy + (mask * torch.log(mask + 1e-8)).sum(-1).mean()
            h = F.glu(self.norm(self.fc(F.dropout(mask * x, 0.1, self.training))))
            out = out + F.relu(h)
        return out, entropy
