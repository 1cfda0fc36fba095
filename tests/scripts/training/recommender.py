"""Sparse embeddings and streams: EmbeddingBag, SparseAdam, IterableDataset, samplers, saved state."""

import io
import itertools
import math
import os
import pickle
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)


class Interactions(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.users = torch.randint(0, 20, (count,), generator=g)
        self.items = torch.randint(0, 30, (count,), generator=g)
        self.ratings = ((self.users * 3 + self.items) % 5 + 1).float()

    def __len__(self):
        return len(self.users)

    def __getitem__(self, i):
        return {
            "user": self.users[i],
            "item": self.items[i],
            "rating": self.ratings[i],
            "meta": (i, f"r{i}"),
        }


class Stream(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        info = get_worker_info()
        first, step = (self.start, 1) if info is None else (self.start + info.id, info.num_workers)
        for n in range(first, self.end, step):
            yield [(n * k) % 17 for k in range(1, 1 + n % 3 + 1)], float(n % 2)


def collate_bags(batch):
    words, labels = zip(*batch)
    offsets = torch.tensor([0, *itertools.accumulate(len(w) for w in words[:-1])])
    return torch.tensor(list(itertools.chain(*words))), offsets, torch.tensor(labels)


class MatrixFactorization(nn.Module):
    def __init__(self, users, items, dim=8, sparse=True):
        super().__init__()
        self.user, self.item = (
            nn.Embedding(users, dim, sparse=sparse),
            nn.Embedding(items, dim, sparse=sparse),
        )
        self.user_bias, self.item_bias = (
            nn.Embedding(users, 1, sparse=sparse),
            nn.Embedding(items, 1, sparse=sparse),
        )
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.1)

    def forward(self, u, i):
        dot = (self.user(u) * self.item(i)).sum(-1)
        return dot + self.user_bias(u).squeeze(-1) + self.item_bias(i).squeeze(-1)


def seed_worker(worker_id):
    torch.manual_seed(worker_id)


torch.manual_seed(0)
data = ConcatDataset([Interactions(40, 0), Interactions(24, 1)])
train, valid = random_split(data, [0.75, 0.25], generator=torch.Generator().manual_seed(2))
loader = DataLoader(
    train,
    batch_size=12,
    shuffle=True,
    drop_last=True,
    worker_init_fn=seed_worker,
    generator=torch.Generator().manual_seed(3),
)
print(len(data), len(train), len(valid), len(loader))
model = MatrixFactorization(20, 30)
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.05)
for epoch in range(2):
    for batch in loader:
        loss = F.mse_loss(model(batch["user"], batch["item"]), batch["rating"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(
        f"epoch {epoch}: {loss.item():.4f}", batch["meta"][1][:2], model.user.weight.grad.is_sparse
    )
with torch.no_grad():
    errors = [
        (model(b["user"], b["item"]) - b["rating"]).pow(2) for b in DataLoader(valid, batch_size=8)
    ]
    print(f"rmse {torch.cat(errors).mean().sqrt():.4f}")
    scores = model.user.weight @ model.item.weight.T
    scores[0, train[0]["item"]] = -math.inf
    print(scores.topk(3).indices.shape, torch.argsort(scores[0], descending=True)[:3].dtype)

bags = nn.Sequential(nn.EmbeddingBag(17, 6, mode="mean"), nn.Linear(6, 1))
opt = torch.optim.Adagrad(bags.parameters(), lr=0.1)
for words, offsets, labels in DataLoader(Stream(0, 24), batch_size=8, collate_fn=collate_bags):
    loss = F.binary_cross_entropy_with_logits(bags[1](bags[0](words, offsets)).squeeze(1), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"bags {loss.item():.4f} {offsets.tolist()}")
tower = nn.ModuleDict(
    {
        "words": nn.EmbeddingBag(10, 4, mode="sum", padding_idx=0),
        "ids": nn.Embedding(5, 4, max_norm=1.0),
    }
)
print(
    tower["words"](torch.tensor([[1, 2, 0], [3, 0, 0]]), per_sample_weights=torch.ones(2, 3)).shape,
    "ids" in tower,
    list(tower.keys()),
)

subset = Subset(data, range(0, 64, 7))
order = list(SubsetRandomSampler([4, 2, 9], generator=torch.Generator().manual_seed(0)))
print(len(subset), subset[1]["meta"], order, default_collate([1, 2.5]), default_collate(["a", "b"]))
print(
    [b[0].tolist() for b in DataLoader(list(zip(range(6), "abcdef")), batch_sampler=[[0, 3], [5]])]
)

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "bags.pt")
    torch.save(bags.state_dict(), path)
    again = nn.Sequential(nn.EmbeddingBag(17, 6, mode="mean"), nn.Linear(6, 1))
    print(again.load_state_dict(torch.load(path)))
    words, offsets, _ = collate_bags(itertools.islice(Stream(0, 4), 4))
    print(torch.equal(again[0](words, offsets), bags[0](words, offsets)))
    try:
        torch.load(os.path.join(folder, "none.pt"))
    except FileNotFoundError as error:
        print("missing:", type(error).__name__)
buffer = io.BytesIO()
torch.save(
    {"m": model.state_dict(), "o": optimizer.state_dict(), "note": "x", "n": [1, (2, 3.0)]}, buffer
)
buffer.seek(0)
loaded = torch.load(buffer, map_location="cpu")
other = MatrixFactorization(20, 30)
other.load_state_dict(loaded["m"])
fresh = torch.optim.SparseAdam(list(other.parameters()), lr=0.5)
fresh.load_state_dict(loaded["o"])
print(
    loaded["note"], loaded["n"], fresh.param_groups[0]["lr"], sorted(fresh.state[other.user.weight])
)
print(
    pickle.loads(pickle.dumps(bags)),
    torch.equal(pickle.loads(pickle.dumps(torch.arange(3))), torch.arange(3)),
)
