"""Data without libraries: numpy in and out, normalising, augmenting, one-hot, printing, logging."""

import numpy as np
import torch
import torch.nn.functional as F

torch.manual_seed(0)
rng = np.random.default_rng(0)

raw = rng.integers(0, 256, size=(6, 8, 8, 3), dtype=np.uint8)
images = torch.from_numpy(raw).permute(0, 3, 1, 2).contiguous().float().div(255)
mean = images.mean(dim=(0, 2, 3))
std = images.std(dim=(0, 2, 3))
normalised = (images - mean[None, :, None, None]) / std[None, :, None, None]
print(images.shape, images.dtype, mean, std)
print(f"{normalised.abs().mean():.4f} {normalised.std().item():.4f} {normalised.min():.2f}")
mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
print(torch.stack([(i - mean) / 0.22 for i in images])[0, :, 0, :2])


def random_crop_flip(batch, padding=2):
    n, _, h, w = batch.shape
    padded = F.pad(batch, (padding,) * 4, mode="reflect")
    out = torch.empty_like(batch)
    for i in range(n):
        top, left = torch.randint(0, 2 * padding + 1, (2,)).tolist()
        crop = padded[i, :, top : top + h, left : left + w]
        out[i] = crop.flip(-1) if torch.rand(1).item() < 0.5 else crop
    return out


def mixup(x, y, alpha, classes):
    lam = np.random.default_rng(1).beta(alpha, alpha)
    index = torch.randperm(x.size(0))
    onehot = F.one_hot(y, num_classes=classes).float()
    return lam * x + (1 - lam) * x[index], lam * onehot + (1 - lam) * onehot[index]


labels = torch.as_tensor(rng.integers(0, 4, 6))
x, y = mixup(random_crop_flip(normalised), labels, 0.4, 4)
print(x.shape, y.sum(1), labels.dtype)
small = F.interpolate(images, size=(4, 4), mode="bilinear", align_corners=False)
gray = (small * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]).view(1, 1, 3, 3)
print(gray.shape, F.conv2d(gray, sobel, padding=1)[0, 0])
theta = torch.tensor([[[1.0, 0, 0.2], [0, 1, -0.1]]]).expand(6, -1, -1)
warped = F.grid_sample(
    images, F.affine_grid(theta, images.shape, align_corners=False), align_corners=False
)
print(warped[0, 0, :2])
print(F.unfold(images, 4, stride=4).shape, (gray * 255).round().byte().squeeze(1).numpy().dtype)

table = np.array([[5.1, np.nan, 1.4], [4.9, 3.0, np.nan], [6.2, 2.8, 4.8]], dtype=np.float32)
features = torch.tensor(table)
column = torch.nanmean(features, dim=0)
features = torch.where(torch.isnan(features), column, features)
print(features, torch.nan_to_num(torch.tensor([float("nan"), float("inf")]), posinf=9.0))
names = ["cat", "dog", "cat", "bird"]
vocabulary = {name: i for i, name in enumerate(sorted(set(names)))}
codes = torch.tensor([vocabulary[n] for n in names])
onehot = torch.zeros(len(names), len(vocabulary)).scatter_(1, codes.unsqueeze(1), 1)
print(onehot, torch.equal(onehot.long(), F.one_hot(codes)), codes.unique(return_counts=True))
values, counts = torch.unique(codes, return_counts=True)
print({int(v): c.item() for v, c in zip(values, counts)}, torch.histc(features, 4), codes.tolist())
scaled = (features - features.min(0, keepdim=True)[0]) / (features.max(0).values - features.amin(0))
print(scaled, torch.corrcoef(features.T).shape, torch.quantile(features, 0.5, dim=0))

torch.set_printoptions(precision=2, sci_mode=False, linewidth=100, threshold=20, edgeitems=2)
print(torch.linspace(0, 1, 40).view(4, 10), torch.tensor([1e-8, 1.0, 1e4]))
torch.set_printoptions(profile="default")
print(
    torch.tensor([1e-8, 1.0, 1e4]), torch.tensor([True, False]), torch.tensor(3), torch.empty(0, 3)
)
print(torch.arange(1500), torch.tensor([[1 + 2j, 3.5j]]), torch.tensor([0.1, -2], dtype=torch.half))
loss = torch.tensor(0.123456, requires_grad=True)
print("loss=%.3f" % loss, f"{loss:.5f}", f"{loss.item():8.4f}|", "{:.2e}".format(loss.item()), loss)
history = {"loss": [], "acc": []}
for step in range(3):
    history["loss"].append(float(loss) / (step + 1))
    history["acc"].append((codes == step).float().mean().item())
print(
    {k: np.round(v, 4).tolist() for k, v in history.items()},
    np.asarray(features).shape,
    len(features),
)
back = features.numpy()
back[0, 0] = 100.0
print(
    features[0, 0], np.shares_memory(back, features.numpy()), float(np.sum(features.numpy()[1])) > 0
)
print(
    torch.tensor(np.float64(1.5)).dtype,
    torch.tensor([np.int32(2)]).dtype,
    torch.from_numpy(np.arange(3)) + 0.5,
)
