"""Sampling, rendering, points, sets, graphs, boxes."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.blocks.rows import block, images, rows, sequences


@block(images(2))
class SpatialTransformer(nn.Module):
    def __init__(self, c=2):
        super().__init__()
        self.localization = nn.Sequential(
            nn.Conv2d(c, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2)
        )
        self.fc = nn.Linear(16, 6)
        self.fc.weight.data.mul_(0.1)
        self.fc.bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

    def forward(self, x):
        theta = self.fc(self.localization(x).view(x.size(0), -1)).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.size()), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


@block(images(3))
class Deformable(nn.Module):
    """Offsets for each of nine taps, sampled bilinearly, then a 1 x 1 product."""

    def __init__(self, c=3, out=4):
        super().__init__()
        self.offset = nn.Conv2d(c, 18, 3, padding=1)
        self.mask = nn.Conv2d(c, 9, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(out, c, 9) * 0.2)

    def forward(self, x):
        b, c, h, w = x.shape
        offset = torch.tanh(self.offset(x)).view(b, 9, 2, h, w)
        mask = torch.sigmoid(self.mask(x))
        ys, xs = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
        columns = []
        for k in range(9):
            py = ys + k // 3 - 1 + offset[:, k, 0]
            px = xs + k % 3 - 1 + offset[:, k, 1]
            grid = torch.stack((2 * px / max(w - 1, 1) - 1, 2 * py / max(h - 1, 1) - 1), dim=-1)
            sample = F.grid_sample(x, grid, padding_mode="border", align_corners=True)
            columns.append(sample * mask[:, k : k + 1])
        return torch.einsum("bckhw,ock->bohw", torch.stack(columns, 2), self.weight)


@block(images(2))
class Warp(nn.Module):
    """Optical flow: warping, a cost volume by shifts, a smoothness term."""

    def __init__(self):
        super().__init__()
        self.flow = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x):
        b, c, h, w = x.size()
        xx = torch.arange(0, w).view(1, -1).repeat(h, 1).view(1, 1, h, w).repeat(b, 1, 1, 1)
        yy = torch.arange(0, h).view(-1, 1).repeat(1, w).view(1, 1, h, w).repeat(b, 1, 1, 1)
        flow = self.flow(x)
        grid = torch.cat((xx, yy), 1).float() + flow
        gx = 2.0 * grid[:, 0] / max(w - 1, 1) - 1.0
        gy = 2.0 * grid[:, 1] / max(h - 1, 1) - 1.0
        warped = F.grid_sample(x, torch.stack((gx, gy), dim=3), align_corners=True)
        padded = F.pad(warped, (1, 1, 1, 1))
        cost = torch.stack(
            [(x * padded[:, :, i : i + h, j : j + w]).mean(1) for i in range(3) for j in range(3)],
            1,
        )
        smooth = (flow[:, :, 1:] - flow[:, :, :-1]).abs().sum() + (
            flow[..., 1:] - flow[..., :-1]
        ).abs().sum()
        return F.leaky_relu(cost, 0.1), smooth


@block(rows(3))
class FourierFeatures(nn.Module):
    def __init__(self, d=3, m=6):
        super().__init__()
        self.register_buffer("b", torch.randn(d, m))
        self.net = nn.Sequential(nn.Linear(2 * m, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        p = (2.0 * math.pi * x) @ self.b
        return self.net(torch.cat([torch.sin(p), torch.cos(p)], dim=-1))


@block(rows(3))
class SIREN(nn.Module):
    def __init__(self, d=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(d, 8), nn.Linear(8, 8), nn.Linear(8, 1)])
        with torch.no_grad():
            for k, layer in enumerate(self.layers):
                n = layer.weight.size(1)
                bound = 1 / n if k == 0 else math.sqrt(6 / n) / 5
                layer.weight.uniform_(-bound, bound)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.sin(5 * layer(x))
        return self.layers[-1](x)


@block(sequences(3))
class NeRF(nn.Module):
    """Positional encoding and volume rendering; the input are samples along rays."""

    def __init__(self, levels=3):
        super().__init__()
        self.levels = levels
        self.net = nn.Sequential(nn.Linear(3 + 6 * levels, 8), nn.ReLU(), nn.Linear(8, 4))

    def encode(self, x):
        out = [x]
        for k in range(self.levels):
            out += [torch.sin(2.0**k * x), torch.cos(2.0**k * x)]
        return torch.cat(out, -1)

    def forward(self, points):
        raw = self.net(self.encode(points))
        z = points.detach().abs().sum(-1).cumsum(-1)
        dists = torch.cat([z[..., 1:] - z[..., :-1], torch.full_like(z[..., :1], 1e10)], -1)
        alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dists)
        ones = torch.ones((alpha.shape[0], 1))
        through = torch.cumprod(torch.cat([ones, 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * through
        rgb = torch.sum(weights[..., None] * torch.sigmoid(raw[..., :3]), -2)
        depth = torch.sum(weights * z, -1)
        return rgb + (1.0 - weights.sum(-1)[..., None]), depth


@block(sequences(3))
class Triplane(nn.Module):
    def __init__(self, c=4, r=5):
        super().__init__()
        self.planes = nn.Parameter(torch.randn(3, c, r, r))
        self.decoder = nn.Linear(c, 2)

    def forward(self, x):
        p = torch.tanh(x)
        pairs = torch.stack((p[..., [0, 1]], p[..., [0, 2]], p[..., [2, 1]])).flatten(1, 2)
        sampled = F.grid_sample(
            self.planes, pairs.unsqueeze(1), mode="bilinear", align_corners=False
        )
        features = sampled.squeeze(2).sum(0).t().view(*x.shape[:-1], -1)
        return self.decoder(features)


@block(sequences(3))
class HashGrid(nn.Module):
    """Instant-NGP: hashed corners, interpolated trilinearly."""

    def __init__(self, size=32, features=2):
        super().__init__()
        self.size = size
        self.table = nn.Embedding(size, features)
        self.register_buffer(
            "corners", torch.tensor([[[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)]])
        )

    def forward(self, x):
        x = torch.sigmoid(x).reshape(-1, 3) * 7
        low = torch.floor(x).long()
        w = x - low
        at = low.unsqueeze(1) + self.corners
        h = at[..., 0] ^ (at[..., 1] * 2654435761) ^ (at[..., 2] * 805459861)
        e = self.table(h & (self.size - 1))
        c = e[:, :4] * (1 - w[:, 0])[:, None, None] + e[:, 4:] * w[:, 0][:, None, None]
        c = c[:, :2] * (1 - w[:, 1])[:, None, None] + c[:, 2:] * w[:, 1][:, None, None]
        return c[:, 0] * (1 - w[:, 2])[:, None] + c[:, 1] * w[:, 2][:, None]


@block(sequences(3))
class PointNet(nn.Module):
    """A transformation of the points, then the largest features."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(3, 6, 1), nn.Conv1d(3, 6, 1)
        self.norm = nn.GroupNorm(2, 6)
        self.fc = nn.Linear(6, 9)

    def forward(self, x):
        x = x.transpose(2, 1)
        b = x.size(0)
        t = torch.max(F.relu(self.conv1(x)), 2, keepdim=True)[0].view(-1, 6)
        iden = torch.eye(3).flatten().view(1, 9).repeat(b, 1)
        t = (self.fc(t) + iden).view(-1, 3, 3)
        x = torch.bmm(x.transpose(2, 1), t).transpose(2, 1)
        out = torch.max(self.norm(self.conv2(x)), 2)[0]
        regular = torch.mean(torch.norm(torch.bmm(t, t.transpose(2, 1)) - torch.eye(3), dim=(1, 2)))
        return out, regular


@block(sequences(3))
class EdgeConv(nn.Module):
    """DGCNN: nearest neighbours, gathered edges."""

    def __init__(self, k=3):
        super().__init__()
        self.k, self.conv = k, nn.Conv2d(6, 5, 1)

    def forward(self, x):
        b, n, c = x.shape
        k = min(self.k, n)
        inner = -2 * torch.matmul(x, x.transpose(2, 1))
        xx = torch.sum(x**2, dim=2, keepdim=True)
        index = (-xx - inner - xx.transpose(2, 1)).topk(k=k, dim=-1)[1]
        index = (index + torch.arange(0, b).view(-1, 1, 1) * n).view(-1)
        feature = x.reshape(b * n, -1)[index, :].view(b, n, k, c)
        center = (
            x.view(b, n, 1, c).repeat(1, 1, k, 1)
            if x.is_contiguous()
            else (x.reshape(b, n, 1, c).repeat(1, 1, k, 1))
        )
        edges = torch.cat((feature - center, center), dim=3).permute(0, 3, 1, 2).contiguous()
        return F.leaky_relu(self.conv(edges), 0.2).max(dim=-1, keepdim=False)[0]


@block(sequences(6))
class DeepSets(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.gamma, self.lamb, self.rho = (
            nn.Linear(d, d),
            nn.Linear(d, d, bias=False),
            nn.Linear(d, 3),
        )

    def forward(self, x):
        xm = x.max(1, keepdim=True)[0]
        x = F.elu(self.gamma(x) - self.lamb(xm))
        return self.rho(x.mean(1)), x - x[:, :1]


def graph(torch, shape):
    n, d = shape
    edges = torch.randint(0, n, (2, 3 * n))
    return torch.randn(n, d), edges


@block(rows(6), inputs=graph)
class GCN(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.lin, self.bias = nn.Linear(d, 4, bias=False), nn.Parameter(torch.zeros(4))

    def forward(self, x, edges):
        n = x.size(0)
        loops = torch.arange(n)
        row, col = torch.cat([edges[0], loops]), torch.cat([edges[1], loops])
        degree = torch.zeros(n).scatter_add_(0, col, torch.ones(col.size(0)))
        inv = degree.pow(-0.5)
        inv.masked_fill_(inv == float("inf"), 0)
        norm = inv[row] * inv[col]
        x = self.lin(x)
        out = torch.zeros_like(x).index_add_(0, col, norm.view(-1, 1) * x[row])
        return out + self.bias


@block(rows(6), inputs=graph, random=True)
class GAT(nn.Module):
    def __init__(self, d=6, heads=2, out=3):
        super().__init__()
        self.heads, self.out, self.lin = heads, out, nn.Linear(d, heads * out, bias=False)
        self.src, self.dst = (
            nn.Parameter(torch.randn(1, heads, out)),
            nn.Parameter(torch.randn(1, heads, out)),
        )

    def forward(self, x, edges):
        n = x.size(0)
        row, col = edges
        h = self.lin(x).view(-1, self.heads, self.out)
        a = (h * self.src).sum(-1)[row] + (h * self.dst).sum(-1)[col]
        a = F.leaky_relu(a, 0.2)
        index = col[:, None].expand_as(a)
        top = torch.full((n, self.heads), float("-inf")).scatter_reduce(0, index, a, "amax")
        e = (a - top[col].detach()).exp()
        total = torch.zeros(n, self.heads).scatter_add(0, index, e)
        weights = F.dropout(e / (total[col] + 1e-16), 0.2, self.training)
        out = torch.zeros(n, self.heads, self.out)
        out.index_add_(0, col, h[row] * weights.unsqueeze(-1))
        return out.flatten(1), weights


@block(rows(6), inputs=graph)
class GIN(nn.Module):
    """Messages, then a readout over graphs that `batch` numbers."""

    def __init__(self, d=6):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, d))

    def forward(self, x, edges):
        row, col = edges
        out = torch.zeros_like(x)
        out.scatter_add_(0, col.unsqueeze(-1).expand(-1, x.size(1)), x[row])
        h = self.mlp((1 + self.eps) * x + out)
        batch = torch.arange(x.size(0)) // 2
        graphs = int(batch.max()) + 1
        mean = torch.zeros(graphs, x.size(1)).index_add_(0, batch, h)
        count = torch.bincount(batch, minlength=graphs).clamp(min=1)
        return mean / count.unsqueeze(-1)


@block(rows(6), inputs=graph)
class MessagePassing(nn.Module):
    """An interaction network: edges and nodes, gated updates."""

    def __init__(self, d=6):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * d + 1, 8), nn.SiLU(), nn.Linear(8, d))
        self.node = nn.GRUCell(d, d)

    def forward(self, x, edges):
        row, col = edges
        distance = (x[row] - x[col]).pow(2).sum(-1, keepdim=True)
        m = self.edge(torch.cat((x[row], x[col], distance), dim=-1))
        out = x.new_zeros(x.shape).index_add(0, col, m)
        return self.node(out, x), m.mean(0)


@block(images(4))
class NetVLAD(nn.Module):
    def __init__(self, c=4, clusters=3):
        super().__init__()
        self.conv = nn.Conv2d(c, clusters, 1)
        self.centroids = nn.Parameter(torch.rand(clusters, c))

    def forward(self, x):
        n, c = x.shape[:2]
        x = F.normalize(x, p=2, dim=1)
        assign = F.softmax(self.conv(x).view(n, self.centroids.size(0), -1), dim=1)
        flat = x.reshape(n, c, -1)
        residual = flat.expand(self.centroids.size(0), -1, -1, -1).permute(1, 0, 2, 3)
        residual = residual - self.centroids.expand(flat.size(-1), -1, -1).permute(
            1, 2, 0
        ).unsqueeze(0)
        residual = residual * assign.unsqueeze(2)
        vlad = F.normalize(residual.sum(dim=-1), p=2, dim=2).view(n, -1)
        return F.normalize(vlad, p=2, dim=1)


@block(sequences(4))
class Capsules(nn.Module):
    """Dynamic routing by agreement."""

    def __init__(self, d=4, out=3, size=5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, d, size) * 0.5)

    def squash(self, s):
        norm = (s**2).sum(-1, keepdim=True)
        return norm / (1 + norm) * s / (norm.sqrt() + 1e-8)

    def forward(self, x):
        u = torch.einsum("bnd,ode->bnoe", x, self.weight)
        fixed = u.detach()
        b = torch.zeros(*u.shape[:3], 1)
        for k in range(3):
            c = F.softmax(b, dim=2)
            if k == 2:
                s = (c * u).sum(dim=1, keepdim=True)
                v = self.squash(s)
            else:
                v = self.squash((c * fixed).sum(dim=1, keepdim=True))
                b = b + (fixed * v).sum(dim=-1, keepdim=True)
        return v.squeeze(1), v.squeeze(1).norm(dim=-1)


def boxes(torch, shape):
    n, m = shape[0], 3
    a, b = torch.rand(n, 4), torch.rand(m, 4)
    a[:, 2:] += a[:, :2] + 0.1
    b[:, 2:] += b[:, :2] + 0.1
    return a, b


@block(rows(4), inputs=boxes, no_modes=True)
def generalized_iou(a, b):
    area1 = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area2 = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    union = area1[:, None] + area2 - inter
    iou = inter / union
    wh = (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])).clamp(min=0)
    area = wh[:, :, 0] * wh[:, :, 1]
    return iou - (area - union) / area, iou


@block(rows(4), inputs=boxes, no_modes=True)
def matching_cost(a, b):
    """DETR: class cost, L1 cost, best target for each prediction."""
    prob = torch.cat([a, -a], 1).softmax(-1)
    cost_class = -prob[:, torch.tensor([0, 5, 2])]
    cost = 5 * torch.cdist(a, b, p=1) + cost_class
    best, index = cost.min(1)
    return cost, best.sum(), index, b[index] - a


@block(images(2))
class Anchors(nn.Module):
    """Boxes for each pixel by the sizes of the map; decoded by predicted deltas."""

    def __init__(self, stride=4):
        super().__init__()
        self.stride = stride
        self.head = nn.Conv2d(2, 3 * 5, 1)

    def forward(self, x):
        n, _, h, w = x.shape
        scales = torch.tensor([4.0, 8.0, 16.0])
        base = torch.stack([-scales / 2, -scales / 2, scales / 2, scales / 2], dim=1)
        sy = (torch.arange(h, dtype=torch.float32) + 0.5) * self.stride
        sx = (torch.arange(w, dtype=torch.float32) + 0.5) * self.stride
        yy, xx = torch.meshgrid(sy, sx, indexing="ij")
        shifts = torch.stack((xx, yy, xx, yy), dim=-1).reshape(-1, 4)
        anchors = (shifts[:, None, :] + base[None]).reshape(-1, 4)
        out = self.head(x).view(n, 3, 5, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, 5)
        wh = anchors[:, 2:] - anchors[:, :2]
        centre = anchors[:, :2] + 0.5 * wh + out[..., :2] * wh
        size = wh * torch.exp(out[..., 2:4].clamp(max=4.0))
        boxes = torch.cat((centre - size / 2, centre + size / 2), -1)
        limit = torch.tensor([w, h, w, h]) * self.stride
        boxes = torch.minimum(boxes.clamp(min=0), limit.float())
        return boxes, out[..., 4].sigmoid()


@block(sequences(4))
class Quaternions(nn.Module):
    """Rotations from four numbers, a chain of transformations."""

    def __init__(self):
        super().__init__()
        self.rest = nn.Parameter(torch.randn(3))

    def forward(self, q):
        r, i, j, k = torch.unbind(q, -1)
        two = 2.0 / ((q * q).sum(-1) + 1e-3)
        m = torch.stack(
            (
                1 - two * (j * j + k * k), two * (i * j - k * r), two * (i * k + j * r),
                two * (i * j + k * r), 1 - two * (i * i + k * k), two * (j * k - i * r),
                two * (i * k - j * r), two * (j * k + i * r), 1 - two * (i * i + j * j),
            ),
            -1,
        ).reshape(q.shape[:-1] + (3, 3))  # fmt: skip
        chain = [m[:, 0]]
        for t in range(1, m.size(1)):
            chain.append(chain[-1] @ m[:, t])
        return torch.stack(chain, 1) @ self.rest


@block(sequences(6))
class Kalman(nn.Module):
    """Predict and update along a sequence."""

    def __init__(self, d=6, s=2):
        super().__init__()
        self.f = nn.Parameter(torch.eye(s) + 0.1 * torch.randn(s, s))
        self.h = nn.Linear(d, s)
        self.q, self.r = nn.Parameter(torch.zeros(s)), nn.Parameter(torch.zeros(s))

    def forward(self, x):
        b, n, _ = x.shape
        s = self.f.size(0)
        mean, cov = torch.zeros(b, s, 1), torch.eye(s).expand(b, s, s)
        eye, out = torch.eye(s), []
        for z in self.h(x).unbind(1):
            mean = self.f @ mean
            cov = self.f @ cov @ self.f.T + torch.diag(self.q.exp())
            gain = cov @ torch.linalg.inv(cov + torch.diag_embed(self.r.exp()))
            mean = mean + gain @ (z.unsqueeze(-1) - mean)
            cov = (eye - gain) @ cov
            out.append(mean.squeeze(-1))
        return torch.stack(out, 1), cov
