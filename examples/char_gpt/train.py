"""A small GPT that learns to write verse, one character at a time.

python examples/char_gpt/train.py --steps 200
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import common

args = common.options(
    "a character-level GPT on Shakespeare's sonnets",
    steps=200, batch=16, context=64, width=96, heads=4, layers=3, rate=1e-3, sample=300,
)  # fmt: skip
torch = common.framework(args)
nn, F = torch.nn, torch.nn.functional

text = (Path(__file__).parent / "sonnets.txt").read_text()
letters = sorted(set(text))
data = torch.tensor([letters.index(c) for c in text])


class Block(nn.Module):
    """Look back, then think: attention and a small network, each added to its input."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (b, heads, t, c / heads)
        return self.out(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Characters and their places become vectors; blocks refine them; the last layer guesses."""

    def __init__(self, letters, context, width, heads, layers):
        super().__init__()
        self.context = context
        self.letter = nn.Embedding(letters, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.guess = nn.Linear(width, letters, bias=False)
        self.apply(self.start)

    def start(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, index):
        x = self.letter(index) + self.place(torch.arange(index.shape[1]))
        return self.guess(self.norm(self.blocks(x)))

    @torch.no_grad()
    def write(self, prompt, count, temperature=0.8):
        index = torch.tensor([[letters.index(c) for c in prompt]])
        for _ in range(count):
            scores = self(index[:, -self.context :])[:, -1] / temperature
            chosen = torch.multinomial(F.softmax(scores, -1), 1)
            index = torch.cat([index, chosen], 1)
        return "".join(letters[i] for i in index[0].tolist())


def batch():
    starts = torch.randint(len(data) - args.context, (args.batch,))
    rows = torch.stack([data[i : i + args.context + 1] for i in starts.tolist()])
    return rows[:, :-1], rows[:, 1:]


model = GPT(len(letters), args.context, args.width, args.heads, args.layers)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, betas=(0.9, 0.95))
count = sum(p.numel() for p in model.parameters())
print(f"{len(text):,} characters, {len(letters)} letters, {count:,} parameters")

run = common.Run(args)
run.initial(model)
run.initial(model)
for _ in run:
    inputs, targets = batch()
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    run.loss(loss)
run.finish()
if args.sample:
    print(model.eval().write("Shall I ", args.sample))
