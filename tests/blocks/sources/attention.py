"""Attention in its many forms, with positions, caches and windows."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.blocks.rows import block, images, sequences


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


@block(sequences(8))
class RoPEAttention(nn.Module):
    def __init__(self, d=8, heads=2):
        super().__init__()
        self.heads, self.hd = heads, d // heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.register_buffer(
            "inv", 1.0 / (10000 ** (torch.arange(0, self.hd, 2).float() / self.hd))
        )

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, self.hd).permute(2, 0, 3, 1, 4)
        freqs = torch.outer(torch.arange(n, dtype=self.inv.dtype), self.inv)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos()[None, None], emb.sin()[None, None]
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, d))


@block(sequences(8))
class ComplexRoPE(nn.Module):
    """As Llama's first code: pairs of numbers as complex ones."""

    def __init__(self, d=8):
        super().__init__()
        self.wq = nn.Linear(d, d, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        freqs = 1.0 / (10000.0 ** (torch.arange(0, d, 2)[: d // 2].float() / d))
        freqs = torch.outer(torch.arange(n).float(), freqs)
        cis = torch.polar(torch.ones_like(freqs), freqs)
        q = torch.view_as_complex(self.wq(x).float().reshape(b, n, -1, 2))
        return torch.view_as_real(q * cis[None]).flatten(2).type_as(x)


@block(sequences(8))
class ALiBi(nn.Module):
    def __init__(self, d=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.register_buffer(
            "slopes", torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)])
        )

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (
            t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)
        )
        position = torch.arange(n)
        bias = -(position[:, None] - position[None, :]).abs() * self.slopes[:, None, None]
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        a = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1)) + bias
        a = a.masked_fill(mask, float("-inf")).softmax(-1)
        return (a @ v).transpose(1, 2).contiguous().view(b, n, d)


@block(sequences(8))
class T5Bias(nn.Module):
    def __init__(self, d=8, heads=2, buckets=8, farthest=16):
        super().__init__()
        self.heads, self.buckets, self.farthest = heads, buckets, farthest
        self.q, self.k, self.v = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.bias = nn.Embedding(buckets, heads)

    def bucket(self, relative):
        n = self.buckets // 2
        found = (relative > 0).to(torch.long) * n
        relative = torch.abs(relative)
        exact = n // 2
        large = exact + (
            torch.log(relative.float().clamp(min=1) / exact)
            / math.log(self.farthest / exact)
            * (n - exact)
        ).to(torch.long)
        large = torch.min(large, torch.full_like(large, n - 1))
        return found + torch.where(relative < exact, relative, large)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (
            f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        at = torch.arange(n)
        bias = self.bias(self.bucket(at[None, :] - at[:, None])).permute(2, 0, 1).unsqueeze(0)
        scores = torch.matmul(q, k.transpose(3, 2)) + bias
        a = F.softmax(scores.float(), dim=-1).type_as(scores)
        return torch.matmul(a, v).transpose(1, 2).contiguous().view(b, n, d)


@block(images(4, of=2))
class SwinWindows(nn.Module):
    def __init__(self, c=4, window=2, shift=1, heads=2):
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.2)
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij"))
        flat = torch.flatten(at, 1)
        relative = (flat[:, :, None] - flat[:, None, :]).permute(1, 2, 0).contiguous()
        relative[:, :, 0] += window - 1
        relative[:, :, 1] += window - 1
        relative[:, :, 0] *= 2 * window - 1
        self.register_buffer("index", relative.sum(-1))

    def regions(self, h, w):
        img = torch.zeros((1, h, w, 1))
        count = 0
        parts = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for hs in parts:
            for ws in parts:
                img[:, hs, ws, :] = count
                count += 1
        return self.split(img).view(-1, self.window * self.window)

    def split(self, x):
        b, h, w, c = x.shape
        k = self.window
        x = x.view(b, h // k, k, w // k, k, c)
        return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, k, k, c)

    def forward(self, x):
        b, c, h, w = x.shape
        k = self.window
        x = x.permute(0, 2, 3, 1)
        shifted = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        windows = self.split(shifted.contiguous()).view(-1, k * k, c)
        regions = self.regions(h, w)
        mask = regions.unsqueeze(1) - regions.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
        n = windows.shape[0]
        q, key, v = (
            self.qkv(windows).reshape(n, k * k, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        a = (q * q.size(-1) ** -0.5) @ key.transpose(-2, -1)
        a = a + self.table[self.index.view(-1)].view(k * k, k * k, -1).permute(2, 0, 1).unsqueeze(0)
        count = mask.shape[0]
        a = a.view(n // count, count, self.heads, k * k, k * k) + mask.unsqueeze(1).unsqueeze(0)
        a = a.view(-1, self.heads, k * k, k * k).softmax(-1)
        y = self.proj((a @ v).transpose(1, 2).reshape(n, k * k, c)).view(-1, k, k, c)
        y = (
            y.view(b, h // k, w // k, k, k, -1)
            .permute(0, 1, 3, 2, 4, 5)
            .contiguous()
            .view(b, h, w, -1)
        )
        y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        return (x + y).permute(0, 3, 1, 2)


@block(images(3, of=4), random=True)
class PatchEmbed(nn.Module):
    """ViT: patches, a class token, interpolated positions."""

    def __init__(self, c=3, p=4, d=8, grid=2):
        super().__init__()
        self.proj = nn.Conv2d(c, d, p, stride=p)
        self.cls = nn.Parameter(torch.randn(1, 1, d) * 0.02)
        self.pos = nn.Parameter(torch.randn(1, 1 + grid * grid, d) * 0.02)
        self.grid, self.drop, self.norm = grid, nn.Dropout(0.1), nn.LayerNorm(d)

    def forward(self, x):
        x = self.proj(x)
        b, d, h, w = x.shape
        tokens = torch.cat((self.cls.expand(b, -1, -1), x.flatten(2).transpose(1, 2)), dim=1)
        if h != self.grid or w != self.grid:
            patch = self.pos[:, 1:].reshape(1, self.grid, self.grid, d).permute(0, 3, 1, 2)
            patch = F.interpolate(patch, size=(h, w), mode="bilinear", align_corners=False)
            pos = torch.cat((self.pos[:, :1], patch.permute(0, 2, 3, 1).view(1, -1, d)), dim=1)
        else:
            pos = self.pos
        y = self.norm(self.drop(tokens + pos))
        return y[:, 0], y[:, 1:] - y[:, :1]


@block(sequences(8))
class LinearAttention(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("bnd,bne->bde", k, v)
        z = 1 / (torch.einsum("bnd,bd->bn", q, k.sum(dim=1)) + 1e-6)
        return torch.einsum("bnd,bde,bn->bne", q, kv, z)


@block(sequences(8))
class CausalLinearAttention(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, -1)).unbind(-2)
        q, k = F.softplus(q), F.softplus(k)
        kv = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=1)
        z = torch.cumsum(k, dim=1)
        return (q.unsqueeze(-2) @ kv).squeeze(-2) / ((q * z).sum(-1, keepdim=True) + 1e-6)


@block(sequences(8))
class Performer(nn.Module):
    def __init__(self, d=8, features=6):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.register_buffer("projection", torch.randn(features, d))

    def kernel(self, x):
        x = x * x.shape[-1] ** -0.25
        ratio = self.projection.shape[0] ** -0.5
        dash = torch.einsum("bnd,md->bnm", x, self.projection)
        diagonal = (x**2).sum(-1, keepdim=True) / 2
        return ratio * (
            torch.exp(dash - diagonal - dash.amax(dim=-1, keepdim=True).detach()) + 1e-4
        )

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = self.kernel(q), self.kernel(k)
        d = 1.0 / torch.einsum("bnm,bm->bn", q, k.sum(dim=-2))
        return torch.einsum("bme,bnm,bn->bne", torch.einsum("bnm,bne->bme", k, v), q, d)


@block(sequences(8))
class MultiQueryCache(nn.Module):
    """A prompt, then one token after the other through a cache."""

    def __init__(self, d=8, heads=4, kv_heads=2):
        super().__init__()
        self.heads, self.kv, self.hd = heads, kv_heads, d // heads
        self.wq = nn.Linear(d, d, bias=False)
        self.wkv = nn.Linear(d, 2 * kv_heads * self.hd, bias=False)

    def attend(self, x, cache):
        b, n, _ = x.shape
        q = self.wq(x).view(b, n, self.heads, self.hd).transpose(1, 2)
        k, v = self.wkv(x).view(b, n, 2, self.kv, self.hd).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        cache = (k, v)
        k = k[:, :, None].expand(b, self.kv, self.heads // self.kv, -1, self.hd).flatten(1, 2)
        v = v.repeat_interleave(self.heads // self.kv, dim=1)
        mask = torch.ones(n, k.size(2), dtype=torch.bool).tril(k.size(2) - n)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return y.transpose(1, 2).reshape(b, n, -1), cache

    def forward(self, x):
        y, cache = self.attend(x, None)
        outs = [y]
        for _ in range(2):
            y, cache = self.attend(outs[-1][:, -1:], cache)
            outs.append(y)
        return torch.cat(outs, 1), cache[0]


def with_context(torch, shape):
    return torch.randn(shape), torch.randn(shape[0], 5, shape[2])


@block(sequences(8), inputs=with_context, random=True)
class CrossAttention(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.attention = nn.MultiheadAttention(d, 2, dropout=0.1, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, d))

    def forward(self, x, context):
        y, weights = self.attention(self.norm(x), context, context)
        x = x + y
        return x + self.ff(x), weights


@block(sequences(8))
class Perceiver(nn.Module):
    def __init__(self, d=8, latents=3):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, d))
        self.q, self.kv = nn.Linear(d, d), nn.Linear(d, 2 * d)

    def forward(self, x):
        latents = self.latents.unsqueeze(0).repeat(x.shape[0], 1, 1)
        k, v = self.kv(torch.cat((x, latents), dim=1)).chunk(2, dim=-1)
        sim = torch.einsum("bid,bjd->bij", self.q(latents), k) * k.shape[-1] ** -0.5
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        return torch.einsum("bij,bjd->bid", sim.softmax(dim=-1), v) + latents


@block(sequences(8))
class InducedSet(nn.Module):
    """ISAB and pooling by attention of the set transformer."""

    def __init__(self, d=8, m=3):
        super().__init__()
        self.points = nn.Parameter(torch.randn(1, m, d))
        self.seed = nn.Parameter(torch.randn(1, 1, d))
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def mab(self, x, y):
        q, k, v = self.q(x), self.k(y), self.v(y)
        split = q.size(-1) // 2
        q_, k_, v_ = (torch.cat(t.split(split, 2), 0) for t in (q, k, v))
        a = torch.softmax(q_.bmm(k_.transpose(1, 2)) / math.sqrt(q.size(-1)), 2)
        o = torch.cat((q_ + a.bmm(v_)).split(x.size(0), 0), 2)
        return o + F.relu(self.o(o))

    def forward(self, x):
        h = self.mab(self.points.repeat(x.size(0), 1, 1), x)
        x = self.mab(x, h)
        return self.mab(self.seed.repeat(x.size(0), 1, 1), x).squeeze(1), x


@block(sequences(8))
class AttentionPool(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.a, self.b, self.w = nn.Linear(d, 6), nn.Linear(d, 6), nn.Linear(6, 1)

    def forward(self, x):
        scores = self.w(torch.tanh(self.a(x)) * torch.sigmoid(self.b(x)))
        weights = torch.softmax(scores.transpose(1, 2), dim=-1)
        return torch.bmm(weights, x).squeeze(1), weights


@block(sequences(8))
class LocalAttention(nn.Module):
    """Blocks of four with their neighbours, the sequence padded to a multiple."""

    def __init__(self, d=8, w=4):
        super().__init__()
        self.w = w
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x):
        b, n, d = x.shape
        pad = (self.w - n % self.w) % self.w
        q, k, v = self.qkv(F.pad(x, (0, 0, 0, pad))).chunk(3, -1)
        q = q.view(b, -1, self.w, d)
        k, v = (F.pad(t.reshape(b, -1, self.w, d), (0, 0, 0, 0, 1, 0)) for t in (k, v))
        k, v = torch.cat((k[:, :-1], k[:, 1:]), 2), torch.cat((v[:, :-1], v[:, 1:]), 2)
        a = torch.einsum("bwid,bwjd->bwij", q, k) / d**0.5
        return torch.einsum("bwij,bwjd->bwid", a.softmax(-1), v).reshape(b, -1, d)[:, :n]


@block(sequences(8))
class CosFormer(nn.Module):
    """Positions by the length: floats of a size."""

    def __init__(self, d=8):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.relu(q), F.relu(k)
        index = math.pi / 2 * torch.arange(1, n + 1).reshape(1, -1, 1) / max(n, 2)
        q_ = torch.cat([q * torch.sin(index), q * torch.cos(index)], dim=-1)
        k_ = torch.cat([k * torch.sin(index), k * torch.cos(index)], dim=-1)
        z = 1 / torch.clamp_min(torch.einsum("nld,nd->nl", q_, k_.sum(dim=1)), 1e-2)
        return torch.einsum("nld,ndm,nl->nlm", q_, torch.einsum("nld,nlm->ndm", k_, v), z)


@block(sequences(8))
class RelativeShift(nn.Module):
    """Transformer-XL: relative positions by padding and reshaping."""

    def __init__(self, d=8):
        super().__init__()
        self.q, self.k, self.r = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.u, self.v = nn.Parameter(torch.randn(d) * 0.1), nn.Parameter(torch.randn(d) * 0.1)

    def forward(self, x):
        b, n, d = x.shape
        position = torch.arange(n - 1, -1, -1.0)
        inv = 1 / (10000 ** (torch.arange(0.0, d, 2.0) / d))
        angles = torch.outer(position, inv)
        r = self.r(torch.cat([angles.sin(), angles.cos()], dim=-1))
        q, k = self.q(x), self.k(x)
        ac = torch.einsum("bid,bjd->bij", q + self.u, k)
        bd = torch.einsum("bid,jd->bij", q + self.v, r)
        zero = torch.zeros(b, n, 1)
        bd = torch.cat([zero, bd], dim=2).view(b, n + 1, n)[:, 1:].view_as(bd)
        a = ((ac + bd) * d**-0.5).masked_fill(torch.ones(n, n).triu(1).bool()[None], -1e9)
        return a.softmax(-1) @ x


@block(images(4))
class AxialAttention(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.row, self.column = nn.Linear(c, 3 * c), nn.Linear(c, 3 * c)

    def attend(self, x, layer):
        q, k, v = layer(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v)

    def forward(self, x):
        n, c, h, w = x.shape
        r = self.attend(x.permute(0, 2, 3, 1).reshape(n * h, w, c), self.row)
        r = r.view(n, h, w, c).permute(0, 3, 1, 2)
        k = self.attend(x.permute(0, 3, 2, 1).reshape(n * w, h, c), self.column)
        return r + k.view(n, w, h, c).permute(0, 3, 2, 1)


@block(images(4))
class ChannelTransposedAttention(nn.Module):
    """Restormer: attention between channels with a learned temperature."""

    def __init__(self, c=4):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(1, 1, 1) * 0.7)
        self.qkv = nn.Conv2d(c, 3 * c, 1, bias=False)
        self.depth = nn.Conv2d(3 * c, 3 * c, 3, padding=1, groups=3 * c, bias=False)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (t.reshape(b, c, h * w) for t in self.depth(self.qkv(x)).chunk(3, dim=1))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        a = (q @ k.transpose(-2, -1)) * self.temperature
        return (a.softmax(dim=-1) @ v).view(b, c, h, w)
