"""What detectors do between layers: anchors, IoU, matching, losses on masks, NMS by hand."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def box_area(boxes):
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1, boxes2):
    area1, area2 = box_area(boxes1), box_area(boxes2)
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (area1[:, None] + area2 - inter)


def cxcywh_to_xyxy(x):
    x_c, y_c, w, h = x.unbind(-1)
    b = [(x_c - 0.5 * w), (y_c - 0.5 * h), (x_c + 0.5 * w), (y_c + 0.5 * h)]
    return torch.stack(b, dim=-1)


def nms(boxes, scores, iou_threshold):
    order = scores.sort(0, descending=True)[1]
    keep = []
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        if order.numel() == 1:
            break
        iou = box_iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0)
        order = order[1:][(iou <= iou_threshold).nonzero(as_tuple=True)[0]]
    return torch.as_tensor(keep, dtype=torch.int64, device=boxes.device)


def anchors_for(size, stride, scales=(8.0, 14.0)):
    shifts = (torch.arange(0, size, dtype=torch.float32) + 0.5) * stride
    shift_y, shift_x = torch.meshgrid(shifts, shifts, indexing="ij")
    centres = torch.stack((shift_x.reshape(-1), shift_y.reshape(-1)), dim=1)
    wh = torch.tensor([[s * math.sqrt(r), s / math.sqrt(r)] for s in scales for r in (0.5, 1, 2)])
    every = torch.cat(
        [centres[:, None].expand(-1, len(wh), -1), wh[None].expand(len(centres), -1, -1)], dim=-1
    )
    return every.reshape(-1, 4)


def encode(reference, proposals):
    return torch.cat(
        [(reference[:, :2] - proposals[:, :2]) / proposals[:, 2:],
         torch.log(reference[:, 2:] / proposals[:, 2:])], dim=1
    )  # fmt: skip


def decode(deltas, anchors):
    return torch.cat(
        [anchors[..., :2] + deltas[..., :2] * anchors[..., 2:],
         anchors[..., 2:] * deltas[..., 2:].clamp(max=math.log(1000.0 / 16)).exp()], dim=-1
    )  # fmt: skip


class Head(nn.Module):
    def __init__(self, channels, per_cell, classes):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, channels, 3, 4, 1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 2, 1),
            nn.ReLU(),
        )
        self.cls = nn.Conv2d(channels, per_cell * classes, 1)
        self.reg = nn.Conv2d(channels, per_cell * 4, 1)
        nn.init.constant_(self.cls.bias, -math.log((1 - 0.1) / 0.1))
        self.classes = classes

    def forward(self, x):
        h = self.trunk(x)
        n = h.shape[0]
        logits = self.cls(h).permute(0, 2, 3, 1).reshape(n, -1, self.classes)
        return logits, self.reg(h).permute(0, 2, 3, 1).reshape(n, -1, 4)


def focal_loss(logits, targets, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return ((alpha * targets + (1 - alpha) * (1 - targets)) * ce * ((1 - p_t) ** gamma)).sum()


anchors = anchors_for(4, 8)
anchors_xyxy = cxcywh_to_xyxy(anchors)
print(anchors.shape, anchors_xyxy[:2])
images = torch.rand(2, 3, 32, 32)
gts = [torch.tensor([[8.0, 8, 10, 8], [22, 20, 12, 14]]), torch.tensor([[16.0, 12, 8, 12]])]
gt_labels = [torch.tensor([0, 2]), torch.tensor([1])]
model = Head(16, 6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(4):
    logits, deltas = model(images)
    losses, positives = [], 0
    for i, (boxes, labels) in enumerate(zip(gts, gt_labels)):
        iou = box_iou(cxcywh_to_xyxy(boxes), anchors_xyxy)
        best, matched = iou.max(dim=0)
        matched = torch.where(best >= 0.4, matched, torch.full_like(matched, -1))
        matched[(best < 0.4) & (best >= 0.3)] = -2
        forced = iou.argmax(dim=1)
        matched[forced] = torch.arange(len(boxes))
        fg = matched >= 0
        target = torch.zeros_like(logits[i])
        target[fg, labels[matched[fg]]] = 1.0
        valid = matched != -2
        cls_loss = focal_loss(logits[i][valid], target[valid])
        reg_loss = F.smooth_l1_loss(
            deltas[i][fg], encode(boxes[matched[fg]], anchors[fg]), reduction="sum", beta=0.1
        )
        losses.append(cls_loss + reg_loss)
        positives += int(fg.sum())
    loss = sum(losses) / max(1, positives)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f} positives {positives}")

with torch.no_grad():
    logits, deltas = model(images)
    scores, idx = logits[0].sigmoid().flatten().topk(12)
    anchor_idx, labels = torch.div(idx, 3, rounding_mode="floor"), idx % 3
    boxes = cxcywh_to_xyxy(decode(deltas[0][anchor_idx], anchors[anchor_idx]))
    boxes[:, 0::2].clamp_(0, 32)
    boxes[:, 1::2].clamp_(0, 32)
    offsets = labels.to(boxes) * (boxes.max() + 1)
    keep = nms(boxes + offsets[:, None], scores, 0.5)
    print(keep.dtype, len(keep) <= 12, boxes.shape)

x = torch.arange(24.0).reshape(2, 3, 4)
index = torch.tensor([[[0], [2], [1]], [[3], [3], [0]]])
print(x.gather(2, index).squeeze(-1), torch.take_along_dim(x, index, 2).shape)
print(x[:, [0, 2]][..., -1], x[torch.tensor([0, 1]), :, torch.tensor([1, 2])], x[x > 20])
fixed = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30], [21, 21, 29, 31]])
print(nms(fixed, torch.tensor([0.9, 0.8, 0.3, 0.7]), 0.5), box_iou(fixed, fixed[:2]))
print(
    torch.isin(torch.arange(5), torch.tensor([1, 3])),
    torch.searchsorted(torch.tensor([1.0, 2, 4]), torch.tensor([3.0, 4])),
)
