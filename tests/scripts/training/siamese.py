"""Siamese and triplet networks: CosineEmbeddingLoss, TripletMarginLoss, hard negatives, recall."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, WeightedRandomSampler


class Pairs(Dataset):
    def __init__(self, points, labels, seed=0):
        self.points, self.labels = points, labels
        self.rng = random.Random(seed)
        self.by_label = {int(c): torch.nonzero(labels == c).flatten().tolist() for c in labels}

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        same = self.rng.random() < 0.5
        label = int(self.labels[i])
        pool = label if same else self.rng.choice([c for c in self.by_label if c != label])
        j = self.rng.choice(self.by_label[pool])
        return {"a": self.points[i], "b": self.points[j], "y": 1.0 if same else -1.0, "id": f"{i}"}


class Balanced(Sampler):
    """`per` items of each class, over and over."""

    def __init__(self, labels, per):
        self.groups = [torch.nonzero(labels == c).flatten() for c in labels.unique()]
        self.per = per

    def __iter__(self):
        for _ in range(2):
            for group in self.groups:
                yield from group[torch.randperm(len(group))[: self.per]].tolist()

    def __len__(self):
        return 2 * self.per * len(self.groups)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 8, 5, padding="same"), nn.PReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten()
        )
        self.head = nn.Linear(64, 8)

    def forward(self, x):
        return F.normalize(self.head(self.features(x)), p=2, dim=-1)


def batch_hard(embedding, labels, margin=0.2):
    distance = torch.cdist(embedding, embedding)
    same = labels[:, None] == labels[None, :]
    eye = torch.eye(len(labels), dtype=torch.bool)
    positive = distance.masked_fill(~same | eye, float("-inf")).max(dim=1).values
    negative = distance.masked_fill(same, float("inf")).amin(dim=1)
    return F.relu(positive - negative + margin).mean()


torch.manual_seed(5)
labels = torch.arange(4).repeat(8)
points = F.one_hot(labels, 32).float()[:, None] + 0.3 * torch.randn(32, 1, 32)

model = Embedder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
criterion = nn.CosineEmbeddingLoss(margin=0.3)
for step, batch in enumerate(DataLoader(Pairs(points, labels), batch_size=8, shuffle=True)):
    optimizer.zero_grad()
    loss = criterion(model(batch["a"]), model(batch["b"]), batch["y"])
    loss.backward()
    optimizer.step()
    print(f"pairs {step} {loss:.4f} {batch['y'].dtype} {batch['id'][:3]}")

triplet = nn.TripletMarginLoss(margin=1.0, p=2)
for step in range(3):
    anchor, positive, negative = (
        points[labels == 0],
        points[labels == 0].flip(0),
        points[labels == 1],
    )
    loss = triplet(model(anchor), model(positive), model(negative))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("triplet %d %.4f" % (step, loss))

sampler = BatchSampler(Balanced(labels, 3), batch_size=12, drop_last=False)
for step, ids in enumerate(sampler):
    loss = batch_hard(model(points[ids]), labels[ids])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"hard {step} {ids} {loss.item():.4f}")

weights = 1.0 / labels.bincount()[labels].float()
picked = list(WeightedRandomSampler(weights, 6, replacement=True))
print(picked)
with torch.no_grad():
    embedding = model.eval()(points)
    similarity = embedding @ embedding.T
    similarity.fill_diagonal_(-2)
    nearest = similarity.argmax(1)
    print("recall@1", (labels[nearest] == labels).float().mean())
    print(
        F.cosine_similarity(embedding[:1], embedding[:4]).shape,
        F.pairwise_distance(embedding[:2], embedding[2:4]).shape,
    )
