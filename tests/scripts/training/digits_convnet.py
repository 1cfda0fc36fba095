"""A convnet on made-up digits: DataLoader, transforms, StepLR, a checkpoint that is loaded again."""

import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, image):
        return (image - self.mean) / self.std


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class FakeDigits(Dataset):
    """Each class lights up its own stripe of the picture."""

    def __init__(self, count, transform=None, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(0, 10, (count,), generator=generator)
        noise = torch.rand(count, 1, 28, 28, generator=generator)
        for i, label in enumerate(self.targets):
            noise[i, :, 2 * label : 2 * label + 3] += 1.0
        self.data = (noise * 127).to(torch.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, target = self.data[index].float() / 255, int(self.targets[index])
        if self.transform is not None:
            image = self.transform(image)
        return image, target


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout2d(0.1)
        self.fc1 = nn.Linear(2304, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout2(x)
        x = torch.flatten(x, 1)
        x = self.dropout1(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(
                "Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.5f}".format(
                    epoch, batch_idx * len(data), len(loader.dataset),
                    100.0 * batch_idx / len(loader), loss.item(),
                )
            )  # fmt: skip


def test(model, device, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    print(f"Average loss: {test_loss / len(loader.dataset):.4f}, {correct}/{len(loader.dataset)}")


def main():
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--batch-size", type=int, default=16, metavar="N")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=1)
    args = parser.parse_args([])
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = Compose([Normalize(0.1307, 0.3081)])
    train_loader = DataLoader(FakeDigits(48, transform), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(FakeDigits(20, transform, seed=1), batch_size=8)
    model = Net().to(device)
    print(model)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
        print("lr", [round(lr, 6) for lr in scheduler.get_last_lr()])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "digits.pt")
        torch.save(model.state_dict(), path)
        again = Net()
        print(again.load_state_dict(torch.load(path, weights_only=True), strict=True))
    test(again, device, test_loader)


if __name__ == "__main__":
    main()
