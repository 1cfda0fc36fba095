"""U-Net with transposed convolutions, skips by `cat`, a Dice loss and per-class IoU."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        if not mid_channels:
            mid_channels = out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(4, out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Sequential):
    def __init__(self, in_channels, out_channels):
        super().__init__(nn.MaxPool2d(2), DoubleConv(in_channels, out_channels))


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear=False):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels + in_channels // 2, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, bilinear=False):
        super().__init__()
        self.inc = DoubleConv(n_channels, 8)
        self.down1 = Down(8, 16)
        self.down2 = Down(16, 32)
        self.up1 = Up(32, 16, bilinear)
        self.up2 = Up(16, 8, bilinear)
        self.outc = nn.Conv2d(8, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        return self.outc(self.up2(self.up1(x3, x2), x1))


def dice_coeff(input, target, epsilon=1e-6):
    inter = 2 * (input * target).sum(dim=(-1, -2))
    sets_sum = input.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    return ((inter + epsilon) / (sets_sum + epsilon)).mean()


def mask_iou(pred, target, classes):
    confusion = torch.bincount(target.flatten() * classes + pred.flatten(), minlength=classes**2)
    confusion = confusion.reshape(classes, classes).float()
    inter = confusion.diag()
    return inter / (confusion.sum(0) + confusion.sum(1) - inter).clamp(min=1)


torch.manual_seed(0)
yy, xx = torch.meshgrid(torch.arange(18), torch.arange(18), indexing="ij")
centres = torch.randint(5, 13, (12, 2))
distance = ((yy - centres[:, 0, None, None]) ** 2 + (xx - centres[:, 1, None, None]) ** 2).sqrt()
masks = (distance < 5).long() + (distance < 2.5).long()
images = masks[:, None].float() * 0.5 + 0.2 * torch.randn(12, 3, 18, 18)
train_set, val_set = random_split(
    TensorDataset(images, masks), [8, 4], generator=torch.Generator().manual_seed(0)
)
train_loader = DataLoader(train_set, shuffle=True, batch_size=4, drop_last=True)
for bilinear in (False, True):
    model = UNet(3, 3, bilinear).to(memory_format=torch.channels_last)
    optimizer = torch.optim.RMSprop(
        model.parameters(), lr=1e-4, weight_decay=1e-8, momentum=0.9, foreach=True
    )
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=0)
    for epoch in range(2):
        model.train()
        for image, true_mask in train_loader:
            image = image.to(memory_format=torch.channels_last)
            pred = model(image)
            onehot = F.one_hot(true_mask, 3).permute(0, 3, 1, 2).float()
            loss = F.cross_entropy(pred, true_mask)
            loss = loss + 1 - dice_coeff(F.softmax(pred, dim=1), onehot)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            x, y = next(iter(DataLoader(val_set, batch_size=4)))
            logits = model(x)
            iou = mask_iou(logits.argmax(1), y, 3)
        scheduler.step(iou.mean())
        print(bilinear, epoch, f"loss {loss.item():.4f}", logits.shape, iou.shape,
              optimizer.param_groups[0]["lr"])  # fmt: skip
