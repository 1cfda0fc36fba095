"""Code that was written for machines with GPUs, on one without: every guard and setting of it."""

import time

import torch
import torch.backends.cudnn as cudnn
import torch.multiprocessing
import torch.nn as nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset

if torch.cuda.is_available():
    cudnn.enabled = True
cudnn.benchmark = True
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = False
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.set_float32_matmul_precision("high")
print(torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark, cudnn.deterministic)
print(torch.cuda.is_available(), torch.cuda.device_count(), torch.backends.mps.is_available())
print(
    torch.backends.cudnn.is_available(), torch.backends.cudnn.version(), torch.cuda.is_initialized()
)

device = (
    "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
)
print("device", torch.device(device), torch.device("cuda", 1), torch.device("cuda:0").index)


class Net(nn.Module):
    def __init__(self, memory_saving=False):
        super().__init__()
        self.blocks = nn.Sequential(
            *[nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(4)]
        )
        self.head = nn.Linear(16, 3)
        self.memory_saving = memory_saving

    def forward(self, x):
        if self.memory_saving and self.training:
            x = checkpoint(self.blocks[0], x, use_reentrant=False)
            x = checkpoint_sequential(self.blocks[1:], 2, x, use_reentrant=False)
        else:
            x = self.blocks(x)
        return self.head(x)


def unwrap(model):
    return model.module if hasattr(model, "module") else model


def main():
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)
    dataset = TensorDataset(torch.randn(24, 16), torch.randint(0, 3, (24,)))
    kwargs = {"num_workers": 0, "pin_memory": device == "cuda"}
    loader = DataLoader(dataset, batch_size=8, shuffle=True, **kwargs)
    losses = {}
    for saving in (False, True):
        torch.manual_seed(1)
        model = Net(saving)
        model = nn.DataParallel(model)
        if torch.cuda.device_count() > 1:
            print("Let's use", torch.cuda.device_count(), "GPUs!")
        model.to(device)
        criterion = nn.CrossEntropyLoss().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=device == "cuda")
        use_amp = device == "cuda"
        scaler = torch.cuda.amp.GradScaler(enabled=use_amp)
        start, losses[saving] = time.perf_counter(), []
        for inputs, labels in loader:
            inputs = inputs.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            with torch.cuda.amp.autocast(enabled=use_amp):
                loss = criterion(model(inputs), labels)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses[saving].append(round(loss.item(), 4))
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            print(torch.cuda.max_memory_allocated() / 1024**2)
        print(losses[saving], time.perf_counter() - start < 60)
    print(losses[True] == losses[False], list(model.state_dict())[0], type(unwrap(model)).__name__)
    print(next(model.parameters()).device, next(model.parameters()).is_cuda, inputs.get_device())
    torch.cuda.empty_cache()
    try:
        torch.zeros(2).cuda()
    except (AssertionError, RuntimeError) as error:
        print("no cuda:", isinstance(error, AssertionError), str(error)[:36])
    try:
        torch.zeros(2, device="cuda")
    except (AssertionError, RuntimeError) as error:
        print("no cuda:", isinstance(error, AssertionError), str(error)[:36])
    print(torch.cuda.memory_allocated(), torch.distributed.is_available() in (True, False))
    print(isinstance(torch.__version__, str), torch.version.cuda, torch.get_num_threads() >= 1)
    print(torch.get_default_dtype(), torch.backends.mkldnn.is_available() in (True, False))
    q = k = v = torch.randn(1, 2, 4, 8)
    torch.backends.cuda.enable_flash_sdp(False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        print(torch.nn.functional.scaled_dot_product_attention(q, k, v).shape)
    print(torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled())
    torch.backends.cuda.enable_flash_sdp(True)
    torch.set_float32_matmul_precision("highest")


@torch.compiler.disable
def logged(x):
    return x + 1


@torch.jit.ignore
def helper(x):
    return x


if __name__ == "__main__":
    main()
    print(logged(torch.ones(1)), helper(2), torch.compiler.is_compiling(), torch.jit.is_scripting())
