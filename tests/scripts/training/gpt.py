"""A decoder with rotary embeddings: cosine schedule by hand, KV cache, sampling, LoRA, experts."""

import inspect
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 32
    n_layer: int = 2
    n_head: int = 4
    n_kv_head: int = 2
    n_embd: int = 32
    bias: bool = False


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        norm = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return norm.type_as(x) * self.weight


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    freqs = torch.outer(torch.arange(end), freqs)
    return torch.polar(torch.ones_like(freqs), freqs)


def apply_rotary_emb(x, freqs_cis):
    x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    freqs = freqs_cis.view(1, x_.shape[1], 1, x_.shape[-1])
    return torch.view_as_real(x_ * freqs).flatten(3).type_as(x)


class CausalSelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        assert c.n_embd % c.n_head == 0
        self.head_dim = c.n_embd // c.n_head
        self.n_head, self.n_kv_head = c.n_head, c.n_kv_head
        self.wqkv = nn.Linear(c.n_embd, (c.n_head + 2 * c.n_kv_head) * self.head_dim, bias=c.bias)
        self.proj = nn.Linear(c.n_embd, c.n_embd, bias=c.bias)
        mask = torch.tril(torch.ones(c.block_size, c.block_size, dtype=torch.bool))
        self.register_buffer("mask", mask.view(1, 1, *mask.shape), persistent=False)
        self.cache = None

    def forward(self, x, freqs, use_cache=False):
        B, T, C = x.size()
        sizes = [self.n_head * self.head_dim] + [self.n_kv_head * self.head_dim] * 2
        q, k, v = self.wqkv(x).split(sizes, dim=-1)
        q = apply_rotary_emb(q.view(B, T, self.n_head, -1), freqs).transpose(1, 2)
        k = apply_rotary_emb(k.view(B, T, self.n_kv_head, -1), freqs).transpose(1, 2)
        v = v.view(B, T, self.n_kv_head, -1).transpose(1, 2)
        if use_cache:
            if self.cache is not None:
                k = torch.cat([self.cache[0], k], dim=2)
                v = torch.cat([self.cache[1], v], dim=2)
            self.cache = (k, v)
        k, v = (t.repeat_interleave(self.n_head // self.n_kv_head, dim=1) for t in (k, v))
        if self.training:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            S = k.size(2)
            att = att.masked_fill(~self.mask[:, :, S - T : S, :S], float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Experts(nn.Module):
    def __init__(self, dim, count=3, top=2):
        super().__init__()
        self.gate, self.top = nn.Linear(dim, count, bias=False), top
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
            for _ in range(count)
        )

    def forward(self, x):
        flat = x.view(-1, x.shape[-1])
        weights, chosen = self.gate(flat).softmax(-1).topk(self.top, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, place = torch.where(chosen == i)
            if token.numel():
                out.index_add_(0, token, expert(flat[token]) * weights[token, place, None])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.attn = RMSNorm(c.n_embd), CausalSelfAttention(c)
        self.ln_2, self.mlp = RMSNorm(c.n_embd), Experts(c.n_embd)

    def forward(self, x, freqs, use_cache=False):
        x = x + self.attn(self.ln_1(x), freqs, use_cache)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(c.vocab_size, c.n_embd),
                "h": nn.ModuleList([Block(c) for _ in range(c.n_layer)]),
                "ln_f": RMSNorm(c.n_embd),
            }
        )
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        freqs = precompute_freqs_cis(c.n_embd // c.n_head, c.block_size)
        self.register_buffer("freqs", freqs, persistent=False)
        self.apply(self._init_weights)
        for pn, p in self.named_parameters():
            if pn.endswith("proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * c.n_layer))

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None, start=0, use_cache=False):
        x = self.transformer.wte(idx)
        freqs = self.freqs[start : start + idx.size(1)]
        for block in self.transformer.h:
            x = block(x, freqs, use_cache)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        flat = logits.view(-1, logits.size(-1))
        return logits, F.cross_entropy(flat, targets.reshape(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, count, temperature=1.0, top_k=None, top_p=None, cached=False):
        for block in self.transformer.h:
            block.attn.cache = None
        for i in range(count):
            fresh = idx[:, -1:] if cached and i else idx
            logits, _ = self(fresh, start=idx.size(1) - fresh.size(1), use_cache=cached)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            if top_p is not None:
                ordered, places = torch.sort(logits, descending=True)
                total = ordered.softmax(-1).cumsum(-1)
                out = total - ordered.softmax(-1) > top_p
                logits = logits.masked_fill(out.scatter(1, places, out), -float("inf"))
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), 1)
        return idx


class LoRA(nn.Module):
    def __init__(self, base, rank=2, alpha=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.a.T @ self.b.T) * self.scale


def get_lr(it, warmup=2, total=6, high=1e-2, low=1e-3):
    if it < warmup:
        return high * (it + 1) / (warmup + 1)
    coeff = 0.5 * (1.0 + math.cos(math.pi * (it - warmup) / (total - warmup)))
    return low + coeff * (high - low)


torch.manual_seed(1337)
model = GPT(GPTConfig())
print(sum(p.numel() for p in model.parameters()), len(list(model.state_dict())))
decay = [p for p in model.parameters() if p.requires_grad and p.dim() >= 2]
nodecay = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
fused = "fused" in inspect.signature(torch.optim.AdamW).parameters and torch.cuda.is_available()
groups = [{"params": decay, "weight_decay": 0.1}, {"params": nodecay, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), fused=fused)
data = (torch.arange(200) * 7 + torch.arange(200) // 5) % 32
for it in range(5):
    for g in optimizer.param_groups:
        g["lr"] = get_lr(it)
    ix = torch.randint(len(data) - 16, (4,))
    x = torch.stack([data[i : i + 16] for i in ix])
    y = torch.stack([data[i + 1 : i + 17] for i in ix])
    _, loss = model(x, y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {it}: loss {loss.item():.4f}, norm {norm:.3f}, lr {g['lr']:.5f}")

model.eval()
start = torch.tensor([[1, 8, 15]])
plain = model.generate(start, 6, temperature=0.01)
cached = model.generate(start, 6, temperature=0.01, cached=True)
print(torch.equal(plain, cached), model.generate(start, 5, top_k=3, top_p=0.9).shape)
for block in model.transformer.h:
    block.attn.proj = LoRA(block.attn.proj)
for name, p in model.named_parameters():
    p.requires_grad = name.endswith((".a", ".b"))
print([n for n, p in model.named_parameters() if p.requires_grad])
tuner = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)
for it in range(2):
    _, loss = model.train()(x, y)
    tuner.zero_grad()
    loss.backward()
    tuner.step()
    print(f"lora {it}: {loss.item():.4f}")
