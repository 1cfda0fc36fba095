"""Blocks of sequences that are not attention: mixers, gates, norms, recurrences, state spaces."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.blocks.rows import block, images, rows, sequences


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(d))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


@block(sequences(8), random=True)
class LlamaFeedForward(nn.Module):
    def __init__(self, d=8, h=12):
        super().__init__()
        self.norm = RMSNorm(d)
        self.w1, self.w2, self.w3 = nn.Linear(d, h), nn.Linear(h, d), nn.Linear(d, h)

    def forward(self, x):
        y = self.norm(x)
        return x + F.dropout(self.w2(F.silu(self.w1(y)) * self.w3(y)), 0.1, self.training)


@block(sequences(8))
class GatedLinears(nn.Module):
    """GLU, GeGLU, ReGLU and bilinear, one after the other."""

    def __init__(self, d=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d, 2 * d) for _ in range(4))

    def forward(self, x):
        y = F.glu(self.layers[0](x), dim=-1)
        for act, layer in zip((F.gelu, F.relu, lambda g: g), self.layers[1:]):
            a, gate = layer(y).chunk(2, dim=-1)
            y = y + a * act(gate)
        return y


@block([(n, 6, 8) for n in (2, 1, 3, 4, 5, 7, 16)])
class MlpMixer(nn.Module):
    def __init__(self, d=8, n=6):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.tokens = nn.Sequential(nn.Linear(n, 10), nn.GELU(), nn.Linear(10, n))
        self.channels = nn.Sequential(nn.Linear(d, 10), nn.GELU(), nn.Linear(10, d))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


@block([(n, 5, 8) for n in (2, 1, 3, 4, 5, 7, 16)])
class GMLP(nn.Module):
    def __init__(self, d=8, n=5):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 12), nn.Linear(6, d)
        self.gate_norm = nn.LayerNorm(6)
        self.spatial = nn.Conv1d(n, n, kernel_size=1)
        nn.init.constant_(self.spatial.bias, 1.0)

    def forward(self, x):
        u, v = F.gelu(self.up(self.norm(x))).chunk(2, dim=-1)
        return x + self.down(u * self.spatial(self.gate_norm(v)))


@block(sequences(8))
class FNet(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm1, self.norm2, self.ff = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, x):
        x = self.norm1(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
        return self.norm2(x + F.gelu(self.ff(x)))


@block(sequences(6))
class HyenaLike(nn.Module):
    def __init__(self, d=6, longest=32):
        super().__init__()
        self.inner = nn.Linear(d, 3 * d)
        self.short = nn.Conv1d(3 * d, 3 * d, 3, padding=2, groups=3 * d)
        self.filter = nn.Parameter(torch.randn(d, longest) * 0.1)
        self.bias = nn.Parameter(torch.randn(d))

    def forward(self, x):
        n = x.shape[1]
        u = self.short(self.inner(x).transpose(1, 2))[..., :n]
        x1, x2, v = u.chunk(3, dim=1)
        v = v * x1
        size = 2 * n
        k = torch.fft.rfft(self.filter[:, :n], n=size) / size
        y = torch.fft.irfft(torch.fft.rfft(v, n=size) * k, n=size, norm="forward")[..., :n]
        return ((y + v * self.bias.unsqueeze(-1)) * x2).transpose(1, 2)


@block(images(4))
class SpectralConv(nn.Module):
    """A Fourier neural operator keeps its lowest frequencies."""

    def __init__(self, c=4, modes=3):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(c, c, modes, modes, 2) * 0.2)
        self.skip = nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        ft = torch.fft.rfft2(x)
        m1, m2 = min(self.modes, h), min(self.modes, w // 2 + 1)
        weight = torch.view_as_complex(self.weight)[:, :, :m1, :m2]
        out = torch.zeros(b, c, h, w // 2 + 1, dtype=torch.cfloat)
        out[:, :, :m1, :m2] = torch.einsum("bixy,ioxy->boxy", ft[:, :, :m1, :m2], weight)
        return F.gelu(torch.fft.irfft2(out, s=(h, w)) + self.skip(x))


@block(sequences(6))
class S4D(nn.Module):
    def __init__(self, d=6, states=4):
        super().__init__()
        self.log_dt = nn.Parameter(torch.rand(d) - 2)
        self.log_a = nn.Parameter(torch.log(0.5 * torch.ones(d, states)))
        self.imag = nn.Parameter(math.pi * torch.arange(states).repeat(d, 1).float())
        self.c = nn.Parameter(torch.randn(d, states, 2) * 0.5)
        self.skip = nn.Parameter(torch.randn(d))

    def forward(self, x):
        u = x.transpose(-1, -2)
        n = u.size(-1)
        dt = torch.exp(self.log_dt)
        c = torch.view_as_complex(self.c)
        a = -torch.exp(self.log_a) + 1j * self.imag
        dta = a * dt.unsqueeze(-1)
        k = dta.unsqueeze(-1) * torch.arange(n)
        c = c * (torch.exp(dta) - 1.0) / a
        k = 2 * torch.einsum("hn,hnl->hl", c, torch.exp(k)).real
        y = torch.fft.irfft(torch.fft.rfft(u, n=2 * n) * torch.fft.rfft(k, n=2 * n), n=2 * n)[
            ..., :n
        ]
        return F.gelu(y + u * self.skip.unsqueeze(-1)).transpose(-1, -2)


@block(sequences(6))
class SelectiveScan(nn.Module):
    """Mamba's recurrence, step by step as its reference code."""

    def __init__(self, d=6, states=3, rank=2):
        super().__init__()
        self.inner = nn.Linear(d, 2 * d)
        self.conv = nn.Conv1d(d, d, 3, groups=d, padding=2)
        self.x_proj, self.dt = nn.Linear(d, rank + 2 * states), nn.Linear(rank, d)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, states + 1).repeat(d, 1)))
        self.skip, self.out = nn.Parameter(torch.ones(d)), nn.Linear(d, d)
        self.states, self.rank = states, rank

    def forward(self, x):
        b, n, d = x.shape
        x, res = self.inner(x).split([d, d], dim=-1)
        x = F.silu(self.conv(x.transpose(1, 2))[:, :, :n].transpose(1, 2))
        delta, bb, cc = self.x_proj(x).split([self.rank, self.states, self.states], dim=-1)
        delta = F.softplus(self.dt(delta))
        a = torch.exp(torch.einsum("bld,dn->bldn", delta, -torch.exp(self.log_a)))
        bu = torch.einsum("bld,bln,bld->bldn", delta, bb, x)
        h = torch.zeros(b, d, self.states)
        ys = []
        for i in range(n):
            h = a[:, i] * h + bu[:, i]
            ys.append(torch.einsum("bdn,bn->bd", h, cc[:, i, :]))
        y = torch.stack(ys, dim=1) + x * self.skip
        return self.out(y * F.silu(res))


@block(sequences(6))
class RWKVMix(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.decay, self.first = nn.Parameter(torch.randn(d)), nn.Parameter(torch.randn(d))
        self.mix_k, self.mix_v = nn.Parameter(torch.rand(d)), nn.Parameter(torch.rand(d))
        self.key, self.value, self.receptance = (nn.Linear(d, d, bias=False) for _ in range(3))

    def forward(self, x):
        shifted = F.pad(x, (0, 0, 1, -1))
        k = self.key(x * self.mix_k + shifted * (1 - self.mix_k))
        v = self.value(x * self.mix_v + shifted * (1 - self.mix_v))
        r = torch.sigmoid(self.receptance(x))
        num, den = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        top = torch.full_like(num, -1e38)
        w, outs = -torch.exp(self.decay), []
        for t in range(x.shape[1]):
            kt, vt = k[:, t], v[:, t]
            best = torch.maximum(top, kt + self.first)
            e1, e2 = torch.exp(top - best), torch.exp(kt + self.first - best)
            outs.append((e1 * num + e2 * vt) / (e1 * den + e2))
            best = torch.maximum(top + w, kt)
            e1, e2 = torch.exp(top + w - best), torch.exp(kt - best)
            num, den, top = e1 * num + e2 * vt, e1 * den + e2, best
        return r * torch.stack(outs, 1)


@block(sequences(6))
class HandLSTM(nn.Module):
    def __init__(self, d=6, h=5):
        super().__init__()
        self.h = h
        self.w, self.u = nn.Linear(d, 4 * h), nn.Linear(h, 4 * h, bias=False)

    def forward(self, x):
        b, n, _ = x.size()
        h, c = torch.zeros(b, self.h), torch.zeros(b, self.h)
        out = []
        for t in range(n):
            i, f, g, o = (self.w(x[:, t, :]) + self.u(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(h.unsqueeze(0))
        return torch.cat(out, dim=0).transpose(0, 1).contiguous(), (h, c)


@block(sequences(6))
class HandGRU(nn.Module):
    def __init__(self, d=6, h=5):
        super().__init__()
        self.wi, self.wh = (
            nn.Parameter(torch.randn(3 * h, d) * 0.3),
            nn.Parameter(torch.randn(3 * h, h) * 0.3),
        )
        self.bi, self.bh = nn.Parameter(torch.randn(3 * h)), nn.Parameter(torch.randn(3 * h))

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.wh.size(1))
        outputs = x.new_empty(x.size(0), x.size(1), h.size(1))
        for t, xt in enumerate(x.unbind(1)):
            ir, iz, i_n = F.linear(xt, self.wi, self.bi).chunk(3, 1)
            hr, hz, hn = F.linear(h, self.wh, self.bh).chunk(3, 1)
            r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
            h = (1 - z) * torch.tanh(i_n + r * hn) + z * h
            outputs[:, t] = h
        return outputs, h


@block(sequences(6))
class LibraryLSTM(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.rnn = nn.LSTM(d, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x):
        out, (h, _) = self.rnn(x)
        return self.head(out), self.head(torch.cat((h[-2], h[-1]), 1))


@block(images(3))
class ConvLSTM(nn.Module):
    def __init__(self, c=3, h=4, steps=3):
        super().__init__()
        self.h, self.steps = h, steps
        self.conv = nn.Conv2d(c + h, 4 * h, 3, padding=1)

    def forward(self, x):
        b, _, height, width = x.shape
        h = c = torch.zeros(b, self.h, height, width)
        for k in range(self.steps):
            i, f, o, g = torch.split(self.conv(torch.cat([x * (k + 1), h], dim=1)), self.h, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


@block(images(3))
class ConvGRU(nn.Module):
    def __init__(self, c=3, h=4):
        super().__init__()
        self.h = h
        self.gates, self.candidate = (
            nn.Conv2d(c + h, 2 * h, 3, padding=1),
            nn.Conv2d(c + h, h, 3, padding=1),
        )

    def forward(self, x):
        h = torch.tanh(x.mean(1, keepdim=True)).repeat(1, self.h, 1, 1)
        for _ in range(2):
            z, r = self.gates(torch.cat([h, x], 1)).sigmoid().chunk(2, 1)
            h = (1 - z) * h + z * torch.tanh(self.candidate(torch.cat([r * h, x], dim=1)))
        return h


@block(sequences(8), random=True, of_batch=True)
class Conformer(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ff1, self.ff2 = (
            nn.Sequential(
                nn.LayerNorm(d), nn.Linear(d, 12), nn.SiLU(), nn.Dropout(0.1), nn.Linear(12, d)
            )
            for _ in range(2)
        )
        self.norm, self.attention = nn.LayerNorm(d), nn.MultiheadAttention(d, 2, batch_first=True)
        self.conv_norm, self.pw1, self.pw2 = (
            nn.LayerNorm(d),
            nn.Conv1d(d, 2 * d, 1),
            nn.Conv1d(d, d, 1),
        )
        self.depth = nn.Conv1d(d, d, 3, padding=1, groups=d, bias=False)
        self.bn = nn.BatchNorm1d(d)
        self.last = nn.LayerNorm(d)

    def conv(self, x):
        x = F.glu(self.pw1(self.conv_norm(x).transpose(1, 2)), dim=1)
        return self.pw2(F.silu(self.bn(self.depth(x)))).transpose(1, 2)

    def forward(self, x):
        x = x + 0.5 * self.ff1(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.conv(x)
        return self.last(x + 0.5 * self.ff2(x))


@block(sequences(8))
class Squeezeformer(nn.Module):
    """Half of the frames in the middle, all of them again at the end."""

    def __init__(self, d=8):
        super().__init__()
        self.reduce = nn.Conv1d(d, d, 3, stride=2, padding=1, groups=d)
        self.middle, self.recover = nn.Linear(d, d), nn.Linear(d, d)
        self.scale, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        n = x.size(1)
        y = self.reduce(x.transpose(1, 2)).transpose(1, 2)
        y = y + F.silu(self.middle(y * self.scale + self.bias))
        y = y.repeat_interleave(2, dim=1)[:, :n]
        return x + self.recover(y)


@block(rows(6), of_batch=True)
class Norms(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.a, self.b, self.c = nn.LayerNorm(d), nn.GroupNorm(2, d), RMSNorm(d)
        self.scale = nn.Parameter(1e-1 * torch.ones(d))

    def forward(self, x):
        y = self.a(x) + self.b(x) + self.c(x)
        return x + self.scale * y.sub(y.mean(0)) / (y.std(0, unbiased=False) + 1e-1)


@block(sequences(6))
class PowerNorm(nn.Module):
    """ScaleNorm, token shift, and a residual with a learned gate."""

    def __init__(self, d=6):
        super().__init__()
        self.g, self.alpha = nn.Parameter(torch.tensor(d**0.5)), nn.Parameter(torch.zeros(1) + 0.3)
        self.body = nn.Linear(d, d)

    def forward(self, x):
        y = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-5) * self.g
        left, right = y.chunk(2, dim=-1)
        y = torch.cat((torch.cat((torch.zeros_like(left[:, :1]), left[:, :-1]), 1), right), dim=-1)
        return x + self.alpha * F.relu(self.body(y)).square()


@block(sequences(6))
class Retention(nn.Module):
    def __init__(self, d=6, gamma=0.9):
        super().__init__()
        self.gamma, self.qkv, self.norm = gamma, nn.Linear(d, 3 * d), nn.GroupNorm(2, d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        at = torch.arange(n)
        distance = at[:, None] - at[None, :]
        decay = (self.gamma ** distance.float()).masked_fill(distance < 0, 0)
        decay = decay / decay.sum(dim=-1, keepdim=True).sqrt()
        y = (q @ k.mT * decay) @ v
        return self.norm(y.reshape(b * n, d)).view(b, n, d)
