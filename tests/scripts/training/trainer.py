"""A Trainer class that stops, is built anew, resumes from its checkpoint and ends up the same."""

import logging
import random
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("trainer")
log.setLevel(logging.INFO)
log.propagate = False
handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
log.handlers = [handler]


@dataclass
class Config:
    lr: float = 1e-2
    batch_size: int = 8
    epochs: int = 3
    max_norm: Optional[float] = 1.0
    seed: int = 0


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, val: Tensor, n: int = 1):
        self.sum += float(val) * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def seed_everything(seed: int):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


class Trainer:
    model: nn.Module
    optimizer: Optimizer

    def __init__(self, config: Config, folder: Path):
        self.config, self.folder = config, folder
        seed_everything(config.seed)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 1))
        self.model.to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr, amsgrad=True)
        x = torch.randn(32, 5)
        data = TensorDataset(x, x.sum(1, keepdim=True))
        self.loader = DataLoader(data, config.batch_size, shuffle=True)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=0.1, epochs=config.epochs, steps_per_epoch=len(self.loader)
        )
        self.epoch, self.best = 0, float("inf")

    def save(self, name: str):
        torch.save(
            {
                "epoch": self.epoch,
                "best": self.best,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "rng": torch.get_rng_state(),
                "config": asdict(self.config),
            },
            self.folder / name,
        )

    def resume(self, name: str):
        checkpoint = torch.load(self.folder / name, map_location=self.device, weights_only=False)
        self.epoch, self.best = checkpoint["epoch"], checkpoint["best"]
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.scheduler.load_state_dict(checkpoint["scheduler"])
        torch.set_rng_state(checkpoint["rng"])
        log.info("resumed at epoch %d (%s)", self.epoch, checkpoint["config"])

    def train_one_epoch(self) -> float:
        meter = AverageMeter()
        self.model.train()
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = nn.functional.huber_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            if self.config.max_norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)
            self.optimizer.step()
            self.scheduler.step()
            meter.update(loss.detach(), x.shape[0])
        return meter.avg

    def fit(self, until: int):
        while self.epoch < until:
            loss = self.train_one_epoch()
            self.epoch += 1
            self.best = min(self.best, loss)
            log.info(
                "epoch %d loss %.4f lr %.6f", self.epoch, loss, self.scheduler.get_last_lr()[0]
            )
            self.save("last.pt")


with tempfile.TemporaryDirectory() as folder:
    whole = Trainer(Config(), Path(folder))
    whole.fit(3)
    first = Trainer(Config(), Path(folder))
    first.fit(1)
    second = Trainer(Config(), Path(folder))
    second.resume("last.pt")
    second.fit(3)
    same = [torch.equal(a, b) for a, b in zip(whole.model.parameters(), second.model.parameters())]
    log.info("same parameters: %s", same)
    print(second.optimizer.state_dict()["param_groups"][0].keys())
    print(sorted(second.optimizer.state_dict()["state"][0]))
