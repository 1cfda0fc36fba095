"""Classification, detection, segmentation, and learning without labels."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.programs.rows import program


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class SmallNet(nn.Module):
    def __init__(self, classes=4, c=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.layers = nn.Sequential(BasicBlock(c, c), BasicBlock(c, 2 * c, 2))
        self.fc = nn.Linear(2 * c, classes)

    def features(self, x):
        return F.adaptive_avg_pool2d(self.layers(F.relu(self.stem(x))), 1).flatten(1)

    def forward(self, x):
        return self.fc(self.features(x))


def pictures(n, classes=4, size=8, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, size, size, generator=g), torch.randint(0, classes, (n,), generator=g)


@program("vision")
def resnet(run):
    torch.manual_seed(0)
    net = SmallNet()
    model = run.model(net)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    criterion = nn.CrossEntropyLoss()
    x, y = pictures(8)

    @run.step
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        net.train()
        yield step(x, y)
        scheduler.step()


@program("vision")
def vision_transformer(run):
    torch.manual_seed(0)

    class ViT(nn.Module):
        def __init__(self, d=16, patch=4, classes=4):
            super().__init__()
            self.proj = nn.Conv2d(3, d, patch, patch)
            self.cls = nn.Parameter(torch.zeros(1, 1, d))
            self.pos = nn.Parameter(torch.randn(1, 5, d) * 0.02)
            layer = nn.TransformerEncoderLayer(
                d, 4, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(d, classes)

        def forward(self, x):
            x = self.proj(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], 1) + self.pos
            return self.head(self.encoder(x)[:, 0])

    net = ViT()
    model = run.model(net)
    decay = [p for p in net.parameters() if p.ndim > 1]
    other = [p for p in net.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": other, "weight_decay": 0.0}], lr=1e-3
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: min(1.0, (e + 1) / 4))
    x, y = pictures(8)

    @run.step
    def step(x, y):
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, y)
        schedule.step()


@program("vision")
def mobilenet_ema(run):
    torch.manual_seed(0)

    class Inverted(nn.Module):
        def __init__(self, c, t=2):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(c, c * t, 1), nn.BatchNorm2d(c * t), nn.Hardswish(),
                nn.Conv2d(c * t, c * t, 3, padding=1, groups=c * t), nn.BatchNorm2d(c * t), nn.Hardswish(),
            )  # fmt: skip
            self.se = nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(c * t, 4, 1),
                nn.ReLU(),
                nn.Conv2d(4, c * t, 1),
                nn.Hardsigmoid(),
            )
            self.out = nn.Conv2d(c * t, c, 1)

        def forward(self, x):
            y = self.body(x)
            return x + self.out(y * self.se(y))

    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1),
        Inverted(6),
        Inverted(6),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    )
    ema = copy.deepcopy(net)
    for p in ema.parameters():
        p.requires_grad_(False)
    model = run.model(net)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.9, momentum=0.9, eps=1e-3)
    x, y = pictures(6)

    def update():
        with torch.no_grad():
            for a, b in zip(ema.state_dict().values(), net.state_dict().values()):
                if a.dtype.is_floating_point:
                    a.mul_(0.9).add_(b.detach(), alpha=0.1)

    @run.step
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        loss = step(x, y)
        update()
        with torch.no_grad():
            ema.eval()
            yield loss, F.cross_entropy(ema(x), y)


@program("vision")
def unet_segmentation(run):
    torch.manual_seed(0)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.d1, self.d2 = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 12, 3, padding=1)
            self.mid = nn.Conv2d(12, 12, 3, padding=1)
            self.up = nn.ConvTranspose2d(12, 6, 2, 2)
            self.u1, self.out = nn.Conv2d(12, 6, 3, padding=1), nn.Conv2d(6, 1, 1)
            self.norm = nn.GroupNorm(3, 12)

        def forward(self, x):
            a = F.relu(self.d1(x))
            b = F.relu(self.norm(self.d2(F.max_pool2d(a, 2))))
            c = F.interpolate(
                F.relu(self.mid(F.max_pool2d(b, 2))),
                scale_factor=2,
                mode="bilinear",
                align_corners=True,
            )
            return self.out(F.relu(self.u1(torch.cat([self.up(b + c), a], 1))))

    def dice(logits, target):
        p = logits.sigmoid().flatten(1)
        t = target.flatten(1)
        return 1 - ((2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()

    net = UNet()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    x, _ = pictures(4)
    mask = (x.mean(1, keepdim=True) > 0).float()

    @run.step
    def step(x, mask):
        optimizer.zero_grad()
        logits = model(x)
        loss = F.binary_cross_entropy_with_logits(logits, mask) + dice(logits, mask)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, mask)


@program("detection")
def yolo(run):
    torch.manual_seed(0)

    class Yolo(nn.Module):
        def __init__(self, classes=3, anchors=2):
            super().__init__()
            self.na, self.no = anchors, 5 + classes
            self.body = nn.Sequential(
                nn.Conv2d(3, 8, 3, 2, 1),
                nn.BatchNorm2d(8),
                nn.SiLU(),
                nn.Conv2d(8, 8, 3, 2, 1),
                nn.SiLU(),
            )
            self.head = nn.Conv2d(8, self.na * self.no, 1)

        def forward(self, x):
            y = self.head(self.body(x))
            n, _, h, w = y.shape
            return y.view(n, self.na, self.no, h, w).permute(0, 1, 3, 4, 2).contiguous()

    net = Yolo()
    model = run.model(net)
    anchors = torch.tensor([[1.0, 1.5], [2.0, 1.0]])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, _ = pictures(2, size=16)
    # image, class, centre and size in cells
    targets = torch.tensor(
        [[0, 1, 1.3, 2.2, 1.1, 1.0], [0, 2, 3.1, 0.4, 2.2, 0.9], [1, 0, 2.6, 2.6, 0.8, 1.7]]
    )

    def box_iou(a, b):
        lt = torch.max(a[:, :2] - a[:, 2:] / 2, b[:, :2] - b[:, 2:] / 2)
        rb = torch.min(a[:, :2] + a[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2)
        inter = (rb - lt).clamp(min=0).prod(1)
        return inter / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - inter + 1e-7)

    def compute_loss(p):
        image, cls = targets[:, 0].long(), targets[:, 1].long()
        ratio = targets[:, None, 4:] / anchors[None]
        best = torch.max(ratio, 1 / ratio).amax(2).argmin(1)
        cell = targets[:, 2:4].long()
        pred = p[image, best, cell[:, 1], cell[:, 0]]
        xy = pred[:, :2].sigmoid() * 2 - 0.5
        wh = (pred[:, 2:4].sigmoid() * 2) ** 2 * anchors[best]
        iou = box_iou(
            torch.cat((xy, wh), 1), torch.cat((targets[:, 2:4] - cell, targets[:, 4:]), 1)
        )
        tobj = torch.zeros_like(p[..., 4])
        tobj[image, best, cell[:, 1], cell[:, 0]] = iou.detach().clamp(0)
        t = torch.full_like(pred[:, 5:], 0.0)
        t[range(len(cls)), cls] = 1.0
        bce = F.binary_cross_entropy_with_logits
        return (1 - iou).mean() + bce(p[..., 4], tobj) + bce(pred[:, 5:], t)

    @run.step
    def step(x):
        loss = compute_loss(model(x))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(run.steps):
        yield step(x)


@program("detection", strided=True)
def detr(run):
    torch.manual_seed(0)

    class DETR(nn.Module):
        def __init__(self, d=16, queries=4, classes=3):
            super().__init__()
            self.backbone = nn.Conv2d(3, d, 4, 4)
            self.transformer = nn.Transformer(d, 2, 1, 1, 32, dropout=0.0)
            self.query = nn.Parameter(torch.rand(queries, d))
            self.row, self.col = (
                nn.Parameter(torch.rand(8, d // 2)),
                nn.Parameter(torch.rand(8, d // 2)),
            )
            self.cls, self.box = nn.Linear(d, classes + 1), nn.Linear(d, 4)

        def forward(self, x):
            h = self.backbone(x)
            H, W = h.shape[-2:]
            pos = torch.cat([
                self.col[:W].unsqueeze(0).repeat(H, 1, 1), self.row[:H].unsqueeze(1).repeat(1, W, 1),
            ], dim=-1).flatten(0, 1).unsqueeze(1)  # fmt: skip
            h = self.transformer(
                pos + 0.1 * h.flatten(2).permute(2, 0, 1),
                self.query.unsqueeze(1).repeat(1, x.size(0), 1),
            )
            return self.cls(h).transpose(0, 1), self.box(h).sigmoid().transpose(0, 1)

    net = DETR()
    model = run.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, _ = pictures(2, size=16)
    boxes = torch.rand(2, 2, 4, generator=torch.Generator().manual_seed(3)) * 0.5 + 0.2
    labels = torch.tensor([[0, 1], [2, 0]])

    @torch.no_grad()
    def match(logits, pred):
        """The best assignment, by trying all."""
        found = []
        for b in range(logits.size(0)):
            cost = (
                5 * torch.cdist(pred[b], boxes[b], p=1) - logits[b].softmax(-1)[:, labels[b]]
            ).tolist()
            n = len(cost)
            pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
            found.append(min(pairs, key=lambda p: cost[p[0]][0] + cost[p[1]][1]))
        return torch.tensor(found)

    for _ in range(run.steps):
        logits, pred = model(x)
        index = match(logits, pred)
        batch = torch.arange(2)[:, None].expand_as(index)
        target = torch.full(logits.shape[:2], 3)
        target[batch, index] = labels
        weight = torch.tensor([1.0, 1.0, 1.0, 0.1])
        loss = F.cross_entropy(logits.transpose(1, 2), target, weight) + 5 * F.l1_loss(
            pred[batch, index], boxes
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        yield loss


@program("vision")
def distillation(run):
    torch.manual_seed(0)
    teacher, net = (
        SmallNet(c=8).eval(),
        nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4)),
    )
    teacher.requires_grad_(False)
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    x, y = pictures(8)

    @run.step
    def step(x, y):
        with torch.no_grad():
            t = teacher(x)
        s = model(x)
        T = 4.0
        soft = F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction="batchmean") * T * T
        loss = 0.5 * soft + 0.5 * F.cross_entropy(s, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, y)


@program("contrastive")
def siamese(run):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, 2),
        nn.PReLU(),
        nn.Flatten(),
        nn.Linear(36, 8),
        nn.PReLU(),
        nn.Linear(8, 2),
    )
    model = run.model(net)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.01)
    a, ya = pictures(6)
    b, yb = pictures(6, seed=2)
    same = (ya == yb).float()

    for _ in range(run.steps):
        d = F.pairwise_distance(model(a), model(b))
        loss = torch.mean(same * d.pow(2) + (1 - same) * torch.clamp(1.0 - d, min=0.0).pow(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@program("contrastive")
def simclr(run):
    torch.manual_seed(0)
    net = SmallNet()
    net.fc = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 6))
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8, eta_min=1e-4)
    x, _ = pictures(4)

    def info_nce(features):
        n = features.size(0) // 2
        labels = torch.cat([torch.arange(n) for _ in range(2)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        features = F.normalize(features, dim=1)
        similarity = torch.matmul(features, features.T)
        mask = torch.eye(labels.shape[0], dtype=torch.bool)
        labels = labels[~mask].view(labels.shape[0], -1)
        similarity = similarity[~mask].view(similarity.shape[0], -1)
        positives = similarity[labels.bool()].view(labels.shape[0], -1)
        negatives = similarity[~labels.bool()].view(similarity.shape[0], -1)
        logits = torch.cat([positives, negatives], dim=1) / 0.5
        return F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=torch.long))

    for k in range(run.steps):
        views = torch.cat([x.flip(-1), x + 0.1 * torch.randn(x.shape)], dim=0)
        loss = info_nce(model(views))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss


@program("contrastive")
def byol(run):
    torch.manual_seed(0)
    online, predictor = (
        SmallNet(classes=6),
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)),
    )
    target = copy.deepcopy(online)
    for p in target.parameters():
        p.requires_grad = False
    o, t, pr = run.model(online), run.model(target), run.model(predictor)
    params = list(online.parameters()) + list(predictor.parameters())
    optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9)
    x, _ = pictures(4)

    def loss_fn(a, b):
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        return (2 - 2 * (a * b).sum(dim=-1)).mean()

    @run.step
    def step(a, b):
        with torch.no_grad():
            ta, tb = t(a), t(b)
        loss = loss_fn(pr(o(a)), tb) + loss_fn(pr(o(b)), ta)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(online.parameters(), target.parameters()):
                q.data = q.data * 0.95 + p.data * 0.05
        return loss

    for _ in range(run.steps):
        yield step(x + 0.1 * torch.randn(x.shape), x.flip(3))


@program("contrastive")
def clip(run):
    torch.manual_seed(0)

    class CLIP(nn.Module):
        def __init__(self):
            super().__init__()
            self.visual, self.token = SmallNet(classes=8), nn.Embedding(20, 8)
            self.text = nn.GRU(8, 8, batch_first=True)
            self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

        def forward(self, image, text):
            i = self.visual(image)
            h, _ = self.text(self.token(text))
            t = h[torch.arange(h.shape[0]), text.argmax(dim=-1)]
            i, t = i / i.norm(dim=1, keepdim=True), t / t.norm(dim=1, keepdim=True)
            logits = self.logit_scale.exp() * i @ t.t()
            return logits, logits.t()

    net = CLIP()
    model = run.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
    x, _ = pictures(4)
    text = torch.randint(0, 20, (4, 5))
    labels = torch.arange(4)

    @run.step
    def step(x, text):
        a, b = model(x, text)
        loss = (F.cross_entropy(a, labels) + F.cross_entropy(b, labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            net.logit_scale.clamp_(0, math.log(100))
        return loss

    for _ in range(run.steps):
        yield step(x, text)


@program("vision")
def style_transfer(run):
    torch.manual_seed(0)
    cnn = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
    )
    cnn.requires_grad_(False)
    content, style = pictures(1)[0], pictures(1, seed=2)[0]

    def gram(x):
        a, b, c, d = x.size()
        f = x.view(a * b, c * d)
        return torch.mm(f, f.t()).div(a * b * c * d)

    class Features(nn.Module):
        def forward(self, x):
            found = []
            for layer in cnn:
                x = layer(x)
                if isinstance(layer, nn.Conv2d):
                    found.append(x)
            return found

    model = run.model(Features())
    with torch.no_grad():
        wanted = [gram(f) for f in Features()(style)], Features()(content)[1]
    image = content.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([image], lr=0.02)

    @run.step
    def step():
        with torch.no_grad():
            image.clamp_(-2, 2)
        optimizer.zero_grad()
        found = model(image)
        style_score = sum(F.mse_loss(gram(f), g) for f, g in zip(found, wanted[0]))
        loss = 1000 * style_score + F.mse_loss(found[1], wanted[1])
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step()


@program("vision")
def quantization_aware(run):
    torch.manual_seed(0)

    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            q = (x / scale).round()
            ctx.save_for_backward((q >= -8) & (q <= 7))
            return q.clamp(-8, 7) * scale

        @staticmethod
        def backward(ctx, g):
            (inside,) = ctx.saved_tensors
            return g * inside, None

    class QuantLinear(nn.Linear):
        def forward(self, x):
            scale = self.weight.detach().abs().max() / 7
            return F.linear(x, Round.apply(self.weight, scale), self.bias)

    net = nn.Sequential(QuantLinear(12, 16), nn.ReLU(), QuantLinear(16, 4))
    model = run.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))

    @run.step
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, y)


@program("vision")
def few_shot(run):
    """Prototypical networks: another number of shots in every episode."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 6))
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    centres = torch.randn(3, 12)

    @run.step
    def step(support, query, labels):
        prototypes = model(support.flatten(0, 1)).view(3, support.size(1), -1).mean(1)
        logits = -torch.cdist(model(query), prototypes).pow(2)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, (logits.argmax(1) == labels).float().mean()

    for k in range(run.steps):
        shots = k % 5 + 1
        support = centres[:, None] + torch.randn(3, shots, 12)
        labels = torch.arange(3).repeat(2)
        yield step(support, centres[labels] + torch.randn(6, 12), labels)
