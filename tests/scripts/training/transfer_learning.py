"""Transfer learning: frozen layers, param groups, a new head, partial loading, module surgery."""

import copy
from collections import OrderedDict

import torch
import torch.nn as nn
from torch.optim import lr_scheduler

torch.manual_seed(0)


def conv3x3(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    expansion: int = 1

    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inplanes, planes, stride), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3x3(planes, planes), nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers, num_classes=1000, width=8):
        super().__init__()
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self._make_layer(width, layers[0])
        self.layer2 = self._make_layer(width * 2, layers[1], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width * 2, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.ones_(m.weight)
                nn.init.zeros_(m.bias)

    def _make_layer(self, planes, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inplanes != planes:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )
        layers = [BasicBlock(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes
        layers += [BasicBlock(planes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(x, 1))


pretrained = ResNet([1, 1], num_classes=100).state_dict()
wrapped = OrderedDict(("module." + k, v) for k, v in pretrained.items())
model = ResNet([1, 1], num_classes=100)
cleaned = {k.replace("module.", ""): v for k, v in wrapped.items() if not k.startswith("module.fc")}
result = model.load_state_dict(cleaned, strict=False)
print(result.missing_keys, result.unexpected_keys)
try:
    ResNet([1, 1], num_classes=10).load_state_dict(pretrained)
except RuntimeError as error:
    print(error)

for param in model.parameters():
    param.requires_grad = False
num_ftrs = model.fc.in_features
model.fc = nn.Sequential(OrderedDict([("drop", nn.Dropout(0.2)), ("out", nn.Linear(num_ftrs, 2))]))
for param in model.layer2.parameters():
    param.requires_grad = True
print([name for name, p in model.named_parameters() if p.requires_grad])

optimizer = torch.optim.SGD(
    [
        {"params": model.layer2.parameters(), "lr": 1e-3},
        {"params": filter(lambda p: p.requires_grad, model.fc.parameters()), "weight_decay": 1e-4},
    ],
    lr=1e-2,
    momentum=0.9,
)
scheduler = lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.1)
criterion = nn.CrossEntropyLoss()
images, labels = torch.randn(6, 3, 12, 12), torch.tensor([0, 1, 0, 1, 1, 0])
best, best_loss = copy.deepcopy(model.state_dict()), float("inf")
frozen = model.conv1.weight.clone()
for epoch in range(3):
    for phase in ["train", "val"]:
        model.train(phase == "train")
        optimizer.zero_grad()
        with torch.set_grad_enabled(phase == "train"):
            outputs = model(images)
            _, preds = torch.max(outputs, 1)
            loss = criterion(outputs, labels)
            if phase == "train":
                loss.backward()
                optimizer.step()
        print(
            f"{phase} Loss: {loss.item():.4f} Acc: {torch.sum(preds == labels.data).double() / 6:.4f}"
        )
        if phase == "val" and loss < best_loss:
            best_loss, best = loss.item(), copy.deepcopy(model.state_dict())
    scheduler.step()
    print([group["lr"] for group in optimizer.param_groups])
model.load_state_dict(best)
print(torch.equal(frozen, model.conv1.weight), model.conv1.weight.grad)


# Surgery: every batch norm becomes a group norm, the stem sees one channel, a layer is cut out.
def convert(module):
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(4, child.num_features))
        else:
            convert(child)


convert(model)
stem = nn.Conv2d(1, 8, 3, 1, 1, bias=False)
stem.weight.data = model.conv1.weight.data.sum(dim=1, keepdim=True)
model.conv1 = stem
backbone = nn.Sequential(*list(model.children())[:-1], nn.Flatten())
del model.fc.drop
print(model.fc, backbone(torch.randn(2, 1, 12, 12)).shape, model.get_submodule("layer2.0.conv1"))
print(
    sum(isinstance(m, nn.GroupNorm) for m in model.modules()),
    model.get_parameter("fc.out.bias").shape,
)
