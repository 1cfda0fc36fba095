"""Language models, taggers, translation, speech."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.programs.rows import program


def tokens(n, length, vocab=32, seed=1):
    return torch.randint(0, vocab, (n, length), generator=torch.Generator().manual_seed(seed))


class CausalSelfAttention(nn.Module):
    def __init__(self, d, heads, block=16):
        super().__init__()
        self.c_attn, self.c_proj, self.n_head = nn.Linear(d, 3 * d), nn.Linear(d, d), heads
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k, q, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (k, q, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class GPT(nn.Module):
    def __init__(self, vocab=32, d=16, layers=2, heads=2, block=16):
        super().__init__()
        self.block = block
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(block, d)
        self.ln1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.ln2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.attn = nn.ModuleList(CausalSelfAttention(d, heads, block) for _ in range(layers))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
            for _ in range(layers)
        )
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, mean=0.0, std=0.02)
            if isinstance(m, nn.Linear) and m.bias is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        assert t <= self.block, (
            f"Cannot forward sequence of length {t}, block size is only {self.block}"
        )
        x = self.wte(idx) + self.wpe(torch.arange(0, t, dtype=torch.long))
        for ln1, attn, ln2, mlp in zip(self.ln1, self.attn, self.ln2, self.mlp):
            x = x + attn(ln1(x))
            x = x + mlp(ln2(x))
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )


@program("language")
def gpt(run):
    torch.manual_seed(0)
    net = GPT()
    model = run.model(net)
    params = {n: p for n, p in net.named_parameters() if p.requires_grad}
    groups = [
        {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    data = tokens(1, 200)[0]

    @run.step
    def step(x, y):
        _, loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for k in range(run.steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1, (k + 1) / 5)
        ix = torch.randint(len(data) - 17, (4,))
        x = torch.stack([data[i : i + 16] for i in ix])
        y = torch.stack([data[i + 1 : i + 17] for i in ix])
        yield step(x, y)


@program("language")
def gpt_growing(run):
    """Another length of the sequence in every step, then tokens one by one."""
    torch.manual_seed(0)
    net = GPT()
    model = run.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = tokens(3, 17)
    for k in range(run.steps):
        n = 3 + 5 * k % 13
        _, loss = model(data[:, :n].contiguous(), data[:, 1 : n + 1].contiguous())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss
    net.eval()
    idx = data[:1, :2]
    with torch.no_grad():
        for _ in range(6):
            logits, _ = model(idx)
            logits = logits[:, -1, :] / 0.8
            v, _ = torch.topk(logits, 5)
            logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, logits.argmax(-1, keepdim=True)), dim=1)
            yield logits.softmax(-1).max()


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(d))

    def forward(self, x):
        return (
            x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        ).type_as(x) * self.weight


class LlamaLayer(nn.Module):
    def __init__(self, d, heads, kv):
        super().__init__()
        self.h, self.kv, self.hd = heads, kv, d // heads
        self.wq, self.wk = nn.Linear(d, d, bias=False), nn.Linear(d, kv * self.hd, bias=False)
        self.wv, self.wo = nn.Linear(d, kv * self.hd, bias=False), nn.Linear(d, d, bias=False)
        self.w1, self.w2, self.w3 = (
            nn.Linear(d, 40, bias=False),
            nn.Linear(40, d, bias=False),
            nn.Linear(d, 40, bias=False),
        )
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    def forward(self, x, cos, sin):
        b, n, _ = x.shape
        h = self.n1(x)
        q = self.rotate(self.wq(h).view(b, n, self.h, self.hd).transpose(1, 2), cos, sin)
        k = self.rotate(self.wk(h).view(b, n, self.kv, self.hd).transpose(1, 2), cos, sin)
        v = self.wv(h).view(b, n, self.kv, self.hd).transpose(1, 2)
        k, v = k.repeat_interleave(self.h // self.kv, 1), v.repeat_interleave(self.h // self.kv, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(b, n, -1))
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, vocab=32, d=16, layers=2):
        super().__init__()
        self.emb, self.out = nn.Embedding(vocab, d), nn.Linear(d, vocab, bias=False)
        self.layers, self.norm = (
            nn.ModuleList(LlamaLayer(d, 4, 2) for _ in range(layers)),
            RMSNorm(d),
        )
        inv = 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4))
        emb = torch.outer(torch.arange(32).float(), inv).repeat(1, 2)
        self.register_buffer("cos", emb.cos(), persistent=False)
        self.register_buffer("sin", emb.sin(), persistent=False)

    def forward(self, x):
        n = x.size(1)
        h = self.emb(x)
        for layer in self.layers:
            h = layer(h, self.cos[:n], self.sin[:n])
        return self.out(self.norm(h)).float()


@program("language")
def llama_accumulating(run):
    torch.manual_seed(0)
    net = Llama()
    model = run.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 4),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12),
        ],
        [4],
    )
    for k in range(run.steps):
        total = 0.0
        for micro in range(3):
            data = tokens(2, 9, seed=3 * k + micro)
            loss = F.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten()) / 3
            loss.backward()
            total += loss.item()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        yield total, norm


@program("language")
def bert(run):
    torch.manual_seed(0)

    class Bert(nn.Module):
        def __init__(self, vocab=32, d=16):
            super().__init__()
            self.word, self.pos, self.kind = (
                nn.Embedding(vocab, d, padding_idx=0),
                nn.Embedding(16, d),
                nn.Embedding(2, d),
            )
            self.norm = nn.LayerNorm(d, eps=1e-12)
            layer = nn.TransformerEncoderLayer(d, 4, 32, 0.0, "gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.transform = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))
            self.bias, self.nsp = nn.Parameter(torch.zeros(vocab)), nn.Linear(d, 2)

        def forward(self, ids, kinds):
            x = self.word(ids) + self.pos(torch.arange(ids.size(1))) + self.kind(kinds)
            h = self.encoder(self.norm(x), src_key_padding_mask=ids == 0)
            return F.linear(self.transform(h), self.word.weight, self.bias), self.nsp(
                torch.tanh(h[:, 0])
            )

    net = Bert()
    model = run.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-6)
    ids = tokens(4, 12).clamp(min=3)
    ids[1, 9:] = 0
    kinds = (torch.arange(12) > 5).long().expand(4, 12)
    nsp = torch.tensor([0, 1, 1, 0])

    @run.step
    def step(ids, labels):
        scores, pooled = model(ids, kinds)
        loss = F.cross_entropy(
            scores.view(-1, 32), labels.view(-1), ignore_index=-100
        ) + F.cross_entropy(pooled, nsp)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        chosen = (torch.rand(ids.shape) < 0.3) & (ids != 0)
        chosen[0, 1] = True
        yield step(ids.masked_fill(chosen, 1), ids.masked_fill(~chosen, -100))


@program("language")
def t5(run):
    torch.manual_seed(0)

    class T5(nn.Module):
        def __init__(self, vocab=32, d=16):
            super().__init__()
            self.shared = nn.Embedding(vocab, d)
            self.bias = nn.Embedding(8, 2)
            self.q, self.k, self.v, self.o = (
                nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(3)) for _ in range(4)
            )
            self.wi, self.wo = nn.Linear(d, 24, bias=False), nn.Linear(24, d, bias=False)
            self.norms = nn.ModuleList(RMSNorm(d) for _ in range(4))

        def attend(self, i, x, memory, causal):
            b, n, d = x.shape
            m = memory.size(1)
            q, k, v = (
                f[i](t).view(b, -1, 2, d // 2).transpose(1, 2)
                for f, t in ((self.q, x), (self.k, memory), (self.v, memory))
            )
            at = (torch.arange(m)[None, :] - torch.arange(n)[:, None]).clamp(-4, 3) + 4
            scores = q @ k.transpose(2, 3) + self.bias(at).permute(2, 0, 1)
            if causal:
                scores = scores + torch.full((n, m), -1e9).triu(1)
            return self.o[i]((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))

        def forward(self, source, target):
            x = self.shared(source)
            x = x + self.attend(0, self.norms[0](x), self.norms[0](x), False)
            x = x + self.wo(F.relu(self.wi(self.norms[1](x))))
            y = self.shared(target)
            y = y + self.attend(1, self.norms[2](y), self.norms[2](y), True)
            y = y + self.attend(2, self.norms[3](y), x, False)
            return F.linear(y * y.size(-1) ** -0.5, self.shared.weight)

    net = T5()
    model = run.model(net)
    optimizer = (
        torch.optim.Adafactor(net.parameters(), lr=1e-2)
        if hasattr(torch.optim, "Adafactor")
        else torch.optim.Adam(net.parameters(), lr=1e-3)
    )
    source, target = tokens(3, 7), tokens(3, 6, seed=2)

    @run.step
    def step(source, target):
        shifted = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1)
        loss = F.cross_entropy(model(source, shifted).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(source, target)


@program("language", random=True)
def rnn_language_model(run):
    """Truncated back-propagation, dropout, a clipped norm, SGD by hand."""
    torch.manual_seed(0)

    class RNNModel(nn.Module):
        def __init__(self, vocab=32, d=12):
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(vocab, d)
            self.rnn, self.decoder = nn.LSTM(d, d, 2, dropout=0.2), nn.Linear(d, vocab)
            self.decoder.weight = self.encoder.weight
            nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

        def forward(self, x, hidden):
            out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
            return F.log_softmax(self.decoder(self.drop(out)).view(-1, 32), dim=1), hidden

    net = RNNModel()
    model = run.model(net)
    data = tokens(1, 400)[0].view(4, -1).t().contiguous()
    hidden = (torch.zeros(2, 4, 12), torch.zeros(2, 4, 12))
    for k in range(run.steps):
        i = 6 * (k % 16)
        n = min(6, len(data) - 1 - i)
        x, y = data[i : i + n], data[i + 1 : i + 1 + n].reshape(-1)
        net.zero_grad()
        hidden = tuple(h.detach() for h in hidden)
        out, hidden = model(x, hidden)
        loss = F.nll_loss(out, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        for p in net.parameters():
            p.data.add_(p.grad, alpha=-2.0)
        yield loss


@program("language")
def seq2seq(run):
    torch.manual_seed(0)

    class Encoder(nn.Module):
        def __init__(self, vocab=20, d=12):
            super().__init__()
            self.emb, self.rnn = nn.Embedding(vocab, d), nn.GRU(d, d, batch_first=True)

        def forward(self, x):
            return self.rnn(self.emb(x))

    class AttnDecoder(nn.Module):
        def __init__(self, vocab=20, d=12):
            super().__init__()
            self.emb, self.rnn, self.out = (
                nn.Embedding(vocab, d),
                nn.GRU(2 * d, d, batch_first=True),
                nn.Linear(d, vocab),
            )
            self.Wa, self.Ua, self.Va = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 1)

        def forward(self, memory, hidden, target, teacher):
            token, outs = torch.zeros(memory.size(0), 1, dtype=torch.long), []
            for i in range(target.size(1)):
                query = hidden.permute(1, 0, 2)
                scores = (
                    self.Va(torch.tanh(self.Wa(query) + self.Ua(memory))).squeeze(2).unsqueeze(1)
                )
                context = torch.bmm(F.softmax(scores, dim=-1), memory)
                y, hidden = self.rnn(torch.cat((self.emb(token), context), dim=2), hidden)
                logits = self.out(y)
                outs.append(logits)
                if teacher:
                    token = target[:, i].unsqueeze(1)
                else:
                    token = logits.topk(1)[1].squeeze(-1).detach()
            return F.log_softmax(torch.cat(outs, dim=1), dim=-1)

    enc, dec = Encoder(), AttnDecoder()
    encoder, decoder = run.model(enc), run.model(dec)
    oe, od = (
        torch.optim.Adam(enc.parameters(), lr=5e-3),
        torch.optim.Adam(dec.parameters(), lr=5e-3),
    )
    x, y = tokens(4, 5, 20), tokens(4, 6, 20, seed=2)

    @run.step
    def step(x, y, teacher):
        oe.zero_grad()
        od.zero_grad()
        memory, hidden = encoder(x)
        out = decoder(memory, hidden, y, teacher)
        loss = F.nll_loss(out.view(-1, out.size(-1)), y.view(-1))
        loss.backward()
        oe.step()
        od.step()
        return loss

    for k in range(run.steps):
        yield step(x, y, k % 3 != 2)


@program("language")
def pointer_network(run):
    torch.manual_seed(0)

    class Pointer(nn.Module):
        def __init__(self, h=12):
            super().__init__()
            self.enc, self.cell = nn.LSTM(1, h, batch_first=True), nn.LSTMCell(1, h)
            self.w1, self.w2, self.v = (
                nn.Linear(h, h, bias=False),
                nn.Linear(h, h, bias=False),
                nn.Linear(h, 1, bias=False),
            )

        def forward(self, x, target):
            memory, (h, c) = self.enc(x)
            h, c = h[0], c[0]
            inp, mask, logps = (
                torch.zeros(x.size(0), 1),
                torch.zeros(x.shape[:2], dtype=torch.bool),
                [],
            )
            for t in range(x.size(1)):
                h, c = self.cell(inp, (h, c))
                scores = self.v(torch.tanh(self.w1(memory) + self.w2(h).unsqueeze(1))).squeeze(-1)
                logps.append(scores.masked_fill(mask, -1e9).log_softmax(-1))
                index = target[:, t]
                mask = mask.scatter(1, index[:, None], True)
                inp = x[torch.arange(x.size(0)), index]
            return torch.stack(logps, 1)

    net = Pointer()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)

    for k in range(run.steps):
        x = torch.rand(4, 4 + k % 3, 1)
        target = x.squeeze(-1).argsort(1)
        loss = F.nll_loss(model(x, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        optimizer.step()
        yield loss


@program("language")
def crf_tagger(run):
    """BiLSTM-CRF of the tutorial: one sentence at a time, lengths differ."""
    torch.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self, vocab=20, tags=5, h=8):
            super().__init__()
            self.emb, self.lstm = nn.Embedding(vocab, 6), nn.LSTM(6, h // 2, bidirectional=True)
            self.hidden2tag = nn.Linear(h, tags)
            self.transitions = nn.Parameter(torch.randn(tags, tags))
            self.transitions.data[3, :] = -10000
            self.transitions.data[:, 4] = -10000

        def forward(self, sentence, tags):
            out, _ = self.lstm(self.emb(sentence).view(len(sentence), 1, -1))
            feats = self.hidden2tag(out.view(len(sentence), -1))
            forward_var = torch.full((1, 5), -10000.0)
            forward_var[0][3] = 0.0
            for feat in feats:
                scores = forward_var + self.transitions + feat.view(-1, 1)
                forward_var = torch.logsumexp(scores, 1).view(1, -1)
            partition = torch.logsumexp(forward_var + self.transitions[4], 1)[0]
            score = torch.zeros(1)
            tags = torch.cat([torch.tensor([3]), tags])
            for i, feat in enumerate(feats):
                score = score + self.transitions[tags[i + 1], tags[i]] + feat[tags[i + 1]]
            return partition - (score + self.transitions[4, tags[-1]])[0]

    net = Tagger()
    model = run.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, weight_decay=1e-4)
    for k in range(run.steps):
        n = 3 + k % 4
        sentence, tags = tokens(1, n, 20, seed=k)[0], tokens(1, n, 3, seed=50 + k)[0]
        net.zero_grad()
        loss = model(sentence, tags)
        loss.backward()
        optimizer.step()
        yield loss


@program("language")
def lora(run):
    torch.manual_seed(0)

    class LoRALinear(nn.Module):
        def __init__(self, base, r=2, alpha=4):
            super().__init__()
            self.base, self.scaling = base, alpha / r
            self.lora_A = nn.Parameter(torch.randn(r, base.in_features) * 0.1)
            self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))

        def forward(self, x):
            return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling

    net = Llama()
    net.requires_grad_(False)
    for layer in net.layers:
        layer.wq, layer.wv = LoRALinear(layer.wq), LoRALinear(layer.wv)
    trainable = [p for p in net.parameters() if p.requires_grad]
    model = run.model(net)
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    data = tokens(4, 9)

    @run.step
    def step(x, y):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(run.steps):
        yield step(data[:, :-1], data[:, 1:])
    with torch.no_grad():
        for layer in net.layers:
            w = layer.wq
            w.base.weight += w.scaling * w.lora_B @ w.lora_A
            layer.wq = w.base
        yield F.cross_entropy(net(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())


@program("language")
def mixture_of_experts(run):
    """Switch routing by `nonzero`: each expert gets its own tokens."""
    torch.manual_seed(0)

    class MoE(nn.Module):
        def __init__(self, d=12, experts=3):
            super().__init__()
            self.gate = nn.Linear(d, experts, bias=False)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(d, 16), nn.GELU(), nn.Linear(16, d)) for _ in range(experts)
            )

        def forward(self, x):
            flat = x.view(-1, x.size(-1))
            weights, selected = torch.topk(self.gate(flat).softmax(-1), 2)
            weights = weights / weights.sum(-1, keepdim=True)
            out = torch.zeros_like(flat)
            for i, expert in enumerate(self.experts):
                at, nth = torch.where(selected == i)
                out[at] += weights[at, nth, None] * expert(flat[at])
            return out.view_as(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.moe, self.norm, self.head = (
                nn.Embedding(32, 12),
                MoE(),
                nn.LayerNorm(12),
                nn.Linear(12, 32),
            )

        def forward(self, x):
            h = self.emb(x)
            return self.head(self.norm(h + self.moe(h)))

    net = Net()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    data = tokens(4, 7)
    for _ in range(run.steps):
        loss = F.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@program("language")
def text_classifier(run):
    """An EmbeddingBag with offsets, lengths that differ."""
    torch.manual_seed(0)

    class TextClassifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.fc = nn.EmbeddingBag(50, 8, mode="mean"), nn.Linear(8, 3)

        def forward(self, text, offsets):
            return self.fc(self.embedding(text, offsets))

    net = TextClassifier()
    model = run.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
    for k in range(run.steps):
        lengths = [1 + (k + i) % 4 for i in range(5)]
        text = tokens(1, sum(lengths), 50, seed=k)[0]
        offsets = torch.tensor([0] + lengths[:-1]).cumsum(0)
        labels = text[offsets] % 3
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text, offsets), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        scheduler.step()
        yield loss


@program("language")
def word2vec(run):
    torch.manual_seed(0)
    u, v = nn.Embedding(30, 8), nn.Embedding(30, 8)
    nn.init.uniform_(u.weight, -0.1, 0.1)
    nn.init.constant_(v.weight, 0.05)
    optimizer = torch.optim.Adagrad([*u.parameters(), *v.parameters()], lr=0.1)

    @run.step
    def step(centre, context, negative):
        eu, ev, en = u(centre), v(context), v(negative)
        score = F.logsigmoid((eu * ev).sum(1).clamp(-10, 10))
        other = F.logsigmoid(-torch.bmm(en, eu.unsqueeze(2)).squeeze(2).clamp(-10, 10)).sum(1)
        loss = -(score + other).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(run.steps):
        yield step(
            tokens(1, 12, 30, seed=k)[0],
            tokens(1, 12, 30, seed=99 + k)[0],
            torch.randint(0, 30, (12, 4)),
        )


@program("speech", strided=True)
def ctc_speech(run):
    torch.manual_seed(0)

    class DeepSpeech(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv1d(8, 10, 3, 2, 1), nn.BatchNorm1d(10)
            self.rnn, self.out = (
                nn.GRU(10, 8, batch_first=True, bidirectional=True),
                nn.Linear(16, 6),
            )

        def forward(self, x):
            h = F.hardtanh(self.bn(self.conv(x)), 0, 20).transpose(1, 2)
            return self.out(self.rnn(h)[0]).log_softmax(-1)

    net = DeepSpeech()
    model = run.model(net)
    optimizer = torch.optim.Adamax(net.parameters(), lr=2e-3)
    x, labels = torch.randn(3, 8, 24), torch.randint(1, 6, (3, 4))
    lengths, label_lengths = torch.tensor([12, 10, 8]), torch.tensor([4, 3, 2])
    for _ in range(run.steps):
        logp = model(x)
        loss = F.ctc_loss(logp.transpose(0, 1), labels, lengths, label_lengths, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        yield loss


@program("speech", strided=True)
def conformer(run):
    torch.manual_seed(0)

    class Conformer(nn.Module):
        def __init__(self, d=8):
            super().__init__()
            self.inp = nn.Conv2d(1, 4, 3, 2, 1)
            self.proj = nn.Linear(16, d)
            self.ff1, self.ff2 = (
                nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 16), nn.SiLU(), nn.Linear(16, d))
                for _ in range(2)
            )
            self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
            self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
            self.pw1, self.dw, self.pw2, self.bn = (
                nn.Conv1d(d, 2 * d, 1),
                nn.Conv1d(d, d, 3, padding=1, groups=d),
                nn.Conv1d(d, d, 1),
                nn.BatchNorm1d(d),
            )
            self.head = nn.Linear(d, 6)

        def forward(self, x, mask):
            h = F.relu(self.inp(x.unsqueeze(1)))
            h = self.proj(h.permute(0, 2, 1, 3).flatten(2))
            h = h + 0.5 * self.ff1(h)
            y = self.n1(h)
            h = h + self.attn(y, y, y, key_padding_mask=mask, need_weights=False)[0]
            c = F.glu(self.pw1(self.n2(h).transpose(1, 2)), 1)
            h = h + self.pw2(F.silu(self.bn(self.dw(c)))).transpose(1, 2)
            return self.head(self.n3(h + 0.5 * self.ff2(h)))

    net = Conformer()
    model = run.model(net)
    optimizer = torch.optim.RAdam(net.parameters(), lr=2e-3)
    x = torch.randn(2, 12, 8)
    mask = torch.arange(6)[None, :] >= torch.tensor([6, 4])[:, None]
    labels = torch.randint(0, 6, (2, 6)).masked_fill(mask, -100)

    @run.step
    def step(x, labels):
        loss = F.cross_entropy(model(x, mask).transpose(1, 2), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, labels)


@program("speech")
def text_to_speech(run):
    """FastSpeech: durations, a length regulator that indexes, spectrograms."""
    torch.manual_seed(0)

    class FastSpeech(nn.Module):
        def __init__(self, d=12, mels=6):
            super().__init__()
            self.emb, self.enc = nn.Embedding(20, d), nn.Conv1d(d, d, 3, padding=1)
            self.duration, self.pitch = nn.Linear(d, 1), nn.Linear(d, 1)
            self.pitch_in, self.dec, self.out = (
                nn.Linear(1, d),
                nn.GRU(d, d, batch_first=True),
                nn.Linear(d, mels),
            )

        def forward(self, text, durations):
            h = F.relu(self.enc(self.emb(text).transpose(1, 2))).transpose(1, 2)
            pitch = self.pitch(h)
            frames = torch.stack(
                [
                    torch.repeat_interleave(x, d, dim=0)
                    for x, d in zip(h + self.pitch_in(pitch), durations)
                ]
            )
            mel = self.out(self.dec(frames)[0])
            return mel, self.duration(h).squeeze(-1), pitch.squeeze(-1)

    net = FastSpeech()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-9)
    text = tokens(2, 5, 20)
    durations = torch.tensor([[2, 1, 3, 1, 2], [1, 1, 4, 2, 1]])
    mel, pitch = torch.randn(2, 9, 6), torch.randn(2, 5)
    for _ in range(run.steps):
        m, d, p = model(text, durations)
        loss = (
            F.l1_loss(m, mel)
            + F.mse_loss(d, torch.log(durations.float() + 1))
            + 0.1 * F.mse_loss(p, pitch)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@program("speech")
def wavenet(run):
    torch.manual_seed(0)

    class WaveNet(nn.Module):
        def __init__(self, c=6, layers=3):
            super().__init__()
            self.first = nn.Conv1d(1, c, 1)
            self.filters = nn.ModuleList(
                nn.Conv1d(c, 2 * c, 2, dilation=2**i) for i in range(layers)
            )
            self.res, self.skip = (
                nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers)),
                nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers)),
            )
            self.out = nn.Conv1d(c, 16, 1)

        def forward(self, x):
            x, skips = self.first(x), []
            for f, r, s in zip(self.filters, self.res, self.skip):
                a, b = f(x).chunk(2, 1)
                z = a.tanh() * b.sigmoid()
                skips.append(s(z))
                x = r(z) + x[..., -z.size(-1) :]
            n = skips[-1].size(-1)
            return self.out(F.relu(sum(s[..., -n:] for s in skips)))

    net = WaveNet()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    wave = torch.sin(torch.arange(24.0) * 0.7) * 0.8
    mu = torch.sign(wave) * torch.log1p(15 * wave.abs()) / math.log1p(15)
    codes = ((mu + 1) / 2 * 15 + 0.5).long()

    @run.step
    def step(x, y):
        logits = model(x)
        loss = F.cross_entropy(logits, y[:, -logits.size(-1) :])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(mu[None, None, :-1], codes[None, 1:])
