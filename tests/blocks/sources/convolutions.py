"""Convolutional blocks of classification, segmentation and restoration networks."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.blocks.rows import block, images, signals


def drop_path(x, p, training):
    if p == 0.0 or not training:
        return x
    keep = 1 - p
    mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
    return x * mask.div_(keep)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


@block(images(4), random=True)
class ConvNeXt(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.dwconv = nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.norm = nn.LayerNorm(c, eps=1e-6)
        self.pw1, self.pw2 = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.gamma = nn.Parameter(0.5 * torch.ones(c))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.pw2(F.gelu(self.pw1(self.norm(y))))
        return x + drop_path((self.gamma * y).permute(0, 3, 1, 2), 0.3, self.training)


@block(images(4))
class ConvNeXtV2(nn.Module):
    """Global response normalisation."""

    def __init__(self, c=4):
        super().__init__()
        self.norm = LayerNorm2d(c)
        self.up, self.down = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(2 * c, c, 1)
        self.gamma = nn.Parameter(torch.ones(1, 2 * c, 1, 1) * 0.3)
        self.beta = nn.Parameter(torch.zeros(1, 2 * c, 1, 1))

    def forward(self, x):
        y = F.gelu(self.up(self.norm(x)))
        gx = torch.norm(y, p=2, dim=(2, 3), keepdim=True)
        y = self.gamma * (y * gx / (gx.mean(dim=1, keepdim=True) + 1e-6)) + self.beta + y
        return x + self.down(y)


@block(images(4), of_batch=True)
class MBConv(nn.Module):
    def __init__(self, c=4, t=3):
        super().__init__()
        m = c * t
        self.expand = nn.Sequential(nn.Conv2d(c, m, 1, bias=False), nn.BatchNorm2d(m), nn.SiLU())
        self.depth = nn.Sequential(
            nn.Conv2d(m, m, 3, padding=1, groups=m, bias=False), nn.BatchNorm2d(m), nn.SiLU()
        )
        self.se = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(m, 2, 1), nn.SiLU(), nn.Conv2d(2, m, 1), nn.Sigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(m, c, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        y = self.depth(self.expand(x))
        return x + self.project(y * self.se(y))


@block(images(4))
class GhostModule(nn.Module):
    def __init__(self, c=4, out=7):
        super().__init__()
        self.out = out
        self.primary = nn.Sequential(nn.Conv2d(c, 4, 1), nn.ReLU(inplace=True))
        self.cheap = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU(inplace=True))

    def forward(self, x):
        x1 = self.primary(x)
        x2 = self.cheap(x1)
        return torch.cat([x1, x2], dim=1)[:, : self.out, :, :]


@block(images(8))
class ShuffleUnit(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        h = c // 2
        self.branch = nn.Sequential(
            nn.Conv2d(h, h, 1),
            nn.ReLU(),
            nn.Conv2d(h, h, 3, padding=1, groups=h),
            nn.Conv2d(h, h, 1),
            nn.ReLU(),
        )

    def forward(self, x):
        x1, x2 = x.chunk(2, dim=1)
        out = torch.cat((x1, self.branch(x2)), dim=1)
        b, c, h, w = out.size()
        return out.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, -1, h, w)


@block(images(4), of_batch=True)
class RepVGG(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.conv3 = nn.Sequential(nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))
        self.conv1 = nn.Sequential(nn.Conv2d(c, c, 1, bias=False), nn.BatchNorm2d(c))
        self.identity = nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(self.conv3(x) + self.conv1(x) + self.identity(x))


@block(images(8), of_batch=True)
class ResNeXt(nn.Module):
    def __init__(self, c=8, width=4, groups=2):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, c, 1, bias=False), nn.BatchNorm2d(c)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(c, c, 1, stride=2, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += self.downsample(x)
        return self.relu(out)


@block(images(4), random=True)
class DenseBlock(nn.Module):
    def __init__(self, c=4, growth=3, layers=3):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(1, c + i * growth) for i in range(layers))
        self.convs = nn.ModuleList(
            nn.Conv2d(c + i * growth, growth, 3, padding=1) for i in range(layers)
        )

    def forward(self, x):
        features = [x]
        for norm, conv in zip(self.norms, self.convs):
            y = conv(F.relu(norm(torch.cat(features, 1))))
            features.append(F.dropout(y, 0.2, self.training))
        return torch.cat(features, 1)


@block(images(4))
class UNet(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.enc1, self.enc2 = nn.Conv2d(c, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.dec = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x):
        e1 = F.relu(self.enc1(x))
        pooled = F.max_pool2d(e1, 2, ceil_mode=True)
        e2 = F.relu(self.enc2(pooled))
        d = self.up(e2)
        dy, dx = e1.size(2) - d.size(2), e1.size(3) - d.size(3)
        d = F.pad(d, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.dec(torch.cat([e1, d], dim=1))


@block(images(4))
class PixelShuffleUp(nn.Module):
    def __init__(self, c=4, r=2):
        super().__init__()
        self.conv = nn.Conv2d(c, 3 * r * r, 3, padding=1)
        self.shuffle, self.back = nn.PixelShuffle(r), nn.PixelUnshuffle(r)
        self.out = nn.Conv2d(3 * r * r, c, 1)

    def forward(self, x):
        up = F.leaky_relu(self.shuffle(self.conv(x)), 0.1)
        return up, x + self.out(self.back(up))


@block(images(3))
class MaskedConv(nn.Module):
    """PixelCNN: the weight is masked in place at every call."""

    def __init__(self, c=3):
        super().__init__()
        self.conv = nn.Conv2d(c, 6, 5, padding=2)
        mask = torch.ones_like(self.conv.weight)
        mask[:, :, 2, 2:] = 0
        mask[:, :, 3:] = 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        self.conv.weight.data *= self.mask
        a, b = self.conv(x).chunk(2, 1)
        return torch.tanh(a) * torch.sigmoid(b)


@block(images(4))
class ResidualDense(nn.Module):
    """As in super-resolution: dense connections, a scaled residual."""

    def __init__(self, c=4, g=2):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(c + i * g, g if i < 2 else c, 3, padding=1) for i in range(3)
        )

    def forward(self, x):
        y = x
        for i, conv in enumerate(self.convs):
            z = conv(y)
            if i < 2:
                y = torch.cat((y, F.leaky_relu(z, 0.2, inplace=True)), 1)
        return z * 0.2 + x


@block(images(4))
class BlurPool(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        a = torch.tensor([1.0, 2.0, 1.0])
        k = a[:, None] * a[None, :]
        self.register_buffer("kernel", (k / k.sum())[None, None].repeat(c, 1, 1, 1))

    def forward(self, x):
        x = F.pad(x, (1, 1, 1, 1), mode="replicate")
        return F.conv2d(x, self.kernel, stride=2, groups=x.shape[1])


@block(images(6))
class InceptionBlock(nn.Module):
    def __init__(self, c=6):
        super().__init__()
        self.b1 = nn.Conv2d(c, 2, 1)
        self.b2 = nn.Sequential(
            nn.Conv2d(c, 2, 1), nn.ReLU(), nn.Conv2d(2, 3, (1, 3), padding=(0, 1))
        )
        self.b3 = nn.Sequential(
            nn.Conv2d(c, 2, 1), nn.ReLU(), nn.Conv2d(2, 3, (3, 1), padding=(1, 0))
        )
        self.b4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(c, 2, 1))

    def forward(self, x):
        return F.relu(torch.cat([self.b1(x), self.b2(x), self.b3(x), self.b4(x)], 1))


@block(images(4))
class CSPBlock(nn.Module):
    """Of YOLO: split, bottlenecks, everything joined."""

    def __init__(self, c=4):
        super().__init__()
        self.cv1, self.cv2 = nn.Conv2d(c, 4, 1), nn.Conv2d(8, c, 1)
        self.m = nn.ModuleList(nn.Conv2d(2, 2, 3, padding=1) for _ in range(2))

    def forward(self, x):
        y = list(F.silu(self.cv1(x)).split((2, 2), 1))
        y.extend(y[-1] + F.silu(m(y[-1])) for m in self.m)
        return F.silu(self.cv2(torch.cat(y, 1)))


@block(images(4))
class SPPF(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.cv1, self.cv2 = nn.Conv2d(c, 2, 1), nn.Conv2d(8, c, 1)
        self.pool = nn.MaxPool2d(5, stride=1, padding=2)

    def forward(self, x):
        x = self.cv1(x)
        y1 = self.pool(x)
        y2 = self.pool(y1)
        return self.cv2(torch.cat((x, y1, y2, self.pool(y2)), 1))


@block(images(4))
class WeightStandardized(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.conv = nn.Conv2d(c, 6, 3, padding=1)
        self.norm = nn.GroupNorm(3, 6)

    def forward(self, x):
        w = self.conv.weight
        mean = w.mean(dim=(1, 2, 3), keepdim=True)
        var = w.var(dim=(1, 2, 3), unbiased=False, keepdim=True)
        w = (w - mean) * torch.rsqrt(var + 1e-5)
        return F.silu(self.norm(F.conv2d(x, w, self.conv.bias, padding=1)))


@block(images(4))
class StyleConv(nn.Module):
    """StyleGAN2: a weight modulated and demodulated for each sample."""

    def __init__(self, c=4, out=3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, out, c, 3, 3))
        self.style = nn.Linear(c, c)

    def forward(self, x):
        b, c, h, w = x.shape
        s = self.style(x.mean((2, 3))).view(b, 1, c, 1, 1) + 1
        weight = self.weight * s * (c * 9) ** -0.5
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8).view(b, -1, 1, 1, 1)
        y = F.conv2d(x.reshape(1, b * c, h, w), weight.view(-1, c, 3, 3), padding=1, groups=b)
        return y.view(b, -1, h, w)


@block(images(4))
class AdaIN(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.project = nn.Linear(c, 2 * c)

    def forward(self, x):
        style = self.project(x.amax((2, 3)))
        scale, shift = style[:, :, None, None].chunk(2, 1)
        mean = x.mean((2, 3), keepdim=True)
        std = x.var((2, 3), keepdim=True, unbiased=False).add(1e-3).sqrt()
        return (x - mean) / std * scale + shift


@block(signals(4), random=True)
class TemporalBlock(nn.Module):
    def __init__(self, c=4, dilation=2, k=3):
        super().__init__()
        pad = (k - 1) * dilation
        self.conv1 = torch.nn.utils.parametrizations.weight_norm(
            nn.Conv1d(c, 6, k, padding=pad, dilation=dilation)
        )
        self.conv2 = nn.Conv1d(6, c, k, padding=pad, dilation=dilation)
        self.pad = pad
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        y = self.dropout(F.relu(self.conv1(x)[:, :, : -self.pad].contiguous()))
        y = F.relu(self.conv2(y)[:, :, : -self.pad])
        return F.relu(y + x)


@block(signals(4))
class WaveNet(nn.Module):
    def __init__(self, c=4, layers=3):
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv1d(c, 2 * c, 2, dilation=2**i) for i in range(layers))
        self.skips = nn.ModuleList(nn.Conv1d(c, 3, 1) for _ in range(layers))
        self.residuals = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers))

    def forward(self, x):
        skip = 0
        for i, (f, s, r) in enumerate(zip(self.filters, self.skips, self.residuals)):
            a, b = f(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            z = torch.tanh(a) * torch.sigmoid(b)
            skip = skip + s(z)
            x = (x + r(z)) * 0.5**0.5
        return F.relu(skip), x


@block(images(6), random=True)
class DropBlock(nn.Module):
    def forward(self, x):
        if not self.training:
            return x
        gamma = 0.2 / 3**2
        mask = (torch.rand(x.shape[0], *x.shape[2:]) < gamma).float()
        out = F.max_pool2d(mask[:, None], (3, 3), stride=(1, 1), padding=1)
        keep = 1 - out
        return x * keep * (keep.numel() / keep.sum().clamp(min=1))
