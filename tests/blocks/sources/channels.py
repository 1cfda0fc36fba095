"""Attention over channels and pixels, pyramids, dynamic kernels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.blocks.rows import block, images, rows


@block(images(8))
class SqueezeExcite(nn.Module):
    def __init__(self, c=8, r=2):
        super().__init__()
        self.fc1 = nn.Conv2d(c, c // r, 1)
        self.fc2 = nn.Conv2d(c // r, c, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        s = F.relu(self.fc1(s), inplace=True)
        return x * F.hardsigmoid(self.fc2(s))


@block(images(8))
class SqueezeExciteLinear(nn.Module):
    def __init__(self, c=8, r=4):
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(c, c // r, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(c // r, c, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        b, c, _, _ = x.size()
        y = self.avg_pool(x).view(b, c)
        y = self.fc(y).view(b, c, 1, 1)
        return x * y.expand_as(x)


@block(images(8), of_batch=True)
class CBAM(nn.Module):
    def __init__(self, c=8, r=4):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Flatten(), nn.Linear(c, c // r), nn.ReLU(), nn.Linear(c // r, c)
        )
        self.conv = nn.Conv2d(2, 1, 7, padding=3, bias=False)
        self.bn = nn.BatchNorm2d(1)

    def forward(self, x):
        total = 0
        for pool in ("avg", "max"):
            if pool == "avg":
                p = F.avg_pool2d(x, (x.size(2), x.size(3)), stride=(x.size(2), x.size(3)))
            else:
                p = F.max_pool2d(x, (x.size(2), x.size(3)), stride=(x.size(2), x.size(3)))
            total = total + self.mlp(p)
        x = x * torch.sigmoid(total).unsqueeze(2).unsqueeze(3).expand_as(x)
        both = torch.cat((torch.max(x, 1)[0].unsqueeze(1), torch.mean(x, 1).unsqueeze(1)), dim=1)
        return x * torch.sigmoid(self.bn(self.conv(both)))


@block(images(8))
class ECA(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, k, padding=(k - 1) // 2, bias=False)

    def forward(self, x):
        y = x.mean((2, 3), keepdim=True)
        y = self.conv(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        return x * y.sigmoid().expand_as(x)


@block(images(8), of_batch=True)
class CoordinateAttention(nn.Module):
    def __init__(self, c=8, mid=4):
        super().__init__()
        self.conv1 = nn.Conv2d(c, mid, 1)
        self.bn = nn.BatchNorm2d(mid)
        self.conv_h = nn.Conv2d(mid, c, 1)
        self.conv_w = nn.Conv2d(mid, c, 1)

    def forward(self, x):
        n, c, h, w = x.size()
        x_h = F.adaptive_avg_pool2d(x, (None, 1))
        x_w = F.adaptive_avg_pool2d(x, (1, None)).permute(0, 1, 3, 2)
        y = F.hardswish(self.bn(self.conv1(torch.cat([x_h, x_w], dim=2))))
        x_h, x_w = torch.split(y, [h, w], dim=2)
        a_h = self.conv_h(x_h).sigmoid()
        a_w = self.conv_w(x_w.permute(0, 1, 3, 2)).sigmoid()
        return x * a_w * a_h


@block(images(8))
class GlobalContext(nn.Module):
    def __init__(self, c=8, r=2):
        super().__init__()
        self.mask = nn.Conv2d(c, 1, 1)
        self.add = nn.Sequential(
            nn.Conv2d(c, c // r, 1),
            nn.LayerNorm([c // r, 1, 1]),
            nn.ReLU(),
            nn.Conv2d(c // r, c, 1),
        )

    def forward(self, x):
        b, c, h, w = x.shape
        k = self.mask(x).view(b, 1, h * w).softmax(2).unsqueeze(3)
        context = (
            torch.matmul(x.view(b, c, h * w).unsqueeze(1), k)
            if x.is_contiguous()
            else (torch.matmul(x.reshape(b, c, h * w).unsqueeze(1), k))
        )
        return x + self.add(context.view(b, c, 1, 1))


@block(images(8))
class NonLocal(nn.Module):
    def __init__(self, c=8, mid=4):
        super().__init__()
        self.theta, self.phi, self.g = (nn.Conv2d(c, mid, 1) for _ in range(3))
        self.out = nn.Conv2d(mid, c, 1)

    def forward(self, x):
        n, _, h, w = x.shape
        q = self.theta(x).flatten(2).transpose(1, 2)
        k = self.phi(x).flatten(2)
        v = self.g(x).flatten(2).transpose(1, 2)
        a = torch.bmm(q, k) * q.size(-1) ** -0.5
        y = torch.bmm(a.softmax(-1), v).transpose(1, 2).reshape(n, -1, h, w)
        return x + self.out(y)


@block(images(6))
class ASPP(nn.Module):
    def __init__(self, c=6, out=4, rates=(1, 2, 3)):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(c, out, 1, bias=False), nn.GroupNorm(2, out), nn.ReLU())]
            + [
                nn.Sequential(
                    nn.Conv2d(c, out, 3, padding=r, dilation=r, bias=False),
                    nn.GroupNorm(2, out),
                    nn.ReLU(),
                )
                for r in rates
            ]
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, out, 1), nn.ReLU())
        self.project = nn.Sequential(nn.Conv2d(out * (2 + len(rates)), out, 1), nn.ReLU())

    def forward(self, x):
        res = [conv(x) for conv in self.convs]
        size = x.shape[-2:]
        res.append(F.interpolate(self.pool(x), size=size, mode="bilinear", align_corners=False))
        return self.project(torch.cat(res, dim=1))


@block(images(6))
class PyramidPooling(nn.Module):
    def __init__(self, c=6, bins=(1, 2, 3)):
        super().__init__()
        self.features = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool2d(b), nn.Conv2d(c, c // len(bins), 1, bias=False), nn.ReLU()
            )
            for b in bins
        )

    def forward(self, x):
        h, w = x.size(2), x.size(3)
        out = [x]
        for f in self.features:
            out.append(F.interpolate(f(x), (h, w), mode="bilinear", align_corners=True))
        return torch.cat(out, 1)


@block(images(4))
class FPN(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(c, c, 3, stride=2, padding=1) for _ in range(2))
        self.inner = nn.ModuleList(nn.Conv2d(c, c, 1) for _ in range(3))
        self.layer = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in range(3))

    def forward(self, x):
        levels = [x]
        for d in self.down:
            levels.append(F.relu(d(levels[-1])))
        last = self.inner[-1](levels[-1])
        results = {"p2": self.layer[-1](last)}
        for k in range(len(levels) - 2, -1, -1):
            lateral = self.inner[k](levels[k])
            last = lateral + F.interpolate(last, size=lateral.shape[-2:], mode="nearest")
            results[f"p{k}"] = self.layer[k](last)
        return results


@block(images(4))
class DynamicConv(nn.Module):
    """Attention over kernels, one grouped convolution for the whole batch."""

    def __init__(self, c=4, out=6, k=3, experts=4):
        super().__init__()
        self.c, self.out, self.k = c, out, k
        self.attention = nn.Sequential(nn.Conv2d(c, 2, 1), nn.ReLU(), nn.Conv2d(2, experts, 1))
        self.weight = nn.Parameter(torch.randn(experts, out, c, k, k) * 0.1)
        self.bias = nn.Parameter(torch.zeros(experts, out))

    def forward(self, x):
        b, c, h, w = x.size()
        a = (self.attention(F.adaptive_avg_pool2d(x, 1)).view(b, -1) / 4.0).softmax(1)
        weight = torch.mm(a, self.weight.view(a.size(1), -1)).view(-1, c, self.k, self.k)
        bias = torch.mm(a, self.bias).view(-1)
        y = F.conv2d(x.reshape(1, -1, h, w), weight, bias, padding=self.k // 2, groups=b)
        return y.view(b, self.out, y.size(-2), y.size(-1))


@block(images(4))
class CondConv(nn.Module):
    def __init__(self, c=4, experts=3):
        super().__init__()
        self.route = nn.Linear(c, experts)
        self.experts = nn.Parameter(torch.randn(experts, c * c * 9) * 0.1)

    def forward(self, x):
        b, c, h, w = x.shape
        routes = torch.sigmoid(self.route(F.adaptive_avg_pool2d(x, 1).flatten(1)))
        weight = (routes @ self.experts).view(b * c, c, 3, 3)
        return F.conv2d(x.contiguous().view(1, b * c, h, w), weight, padding=1, groups=b).view(
            b, c, h, w
        )


@block(images(4))
class InvolutionLike(nn.Module):
    def __init__(self, c=4, k=3, groups=2):
        super().__init__()
        self.k, self.groups = k, groups
        self.reduce = nn.Conv2d(c, 2, 1)
        self.span = nn.Conv2d(2, k * k * groups, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        kernel = self.span(F.relu(self.reduce(x))).view(b, self.groups, 1, self.k**2, h, w)
        patches = F.unfold(x, self.k, padding=1).view(
            b, self.groups, c // self.groups, self.k**2, h, w
        )
        return (kernel * patches).sum(3).view(b, c, h, w)


@block(images(4))
class SKConv(nn.Module):
    """Selective kernels."""

    def __init__(self, c=4, m=2):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(c, c, 3, padding=1 + i, dilation=1 + i, groups=2) for i in range(m)
        )
        self.fc = nn.Linear(c, 4)
        self.fcs = nn.ModuleList(nn.Linear(4, c) for _ in range(m))

    def forward(self, x):
        feats = torch.stack([F.relu(conv(x)) for conv in self.convs], dim=1)
        z = self.fc(feats.sum(1).mean(-1).mean(-1))
        attention = torch.stack([fc(z) for fc in self.fcs], dim=1).softmax(dim=1)
        return (feats * attention[:, :, :, None, None]).sum(dim=1)


@block(images(8))
class BilinearPool(nn.Module):
    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, c, h * w)
        g = torch.bmm(x, x.transpose(1, 2)) / (h * w)
        g = g.view(b, c * c)
        g = torch.sign(g) * torch.sqrt(torch.abs(g) + 1e-5)
        return F.normalize(g)


@block(images(8))
class GeM(nn.Module):
    def __init__(self, p=3.0):
        super().__init__()
        self.p = nn.Parameter(torch.ones(1) * p)

    def forward(self, x):
        return F.avg_pool2d(x.clamp(min=1e-2).pow(self.p), (x.size(-2), x.size(-1))).pow(
            1.0 / self.p
        )


@block(rows(12))
class FiLM(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.project = nn.Linear(d, 2 * d)
        self.body = nn.Linear(d, d)

    def forward(self, x):
        scale, shift = self.project(F.silu(x)).chunk(2, dim=-1)
        return self.body(x) * (1 + scale) + shift
