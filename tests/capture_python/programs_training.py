"""Training steps with lines in between that no graph can hold."""

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F
from lucerne.utils.checkpoint import checkpoint
from tests.capture_python.table import program


def _model():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


@program
def step_that_prints():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        print(f"{loss.item():.4f}")
        loss.backward()
        optimizer.step()
        return loss.detach()

    return fn, lambda: (model, optimizer)


@program
def step_that_logs_afterwards():
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []

    def fn(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 3))
        return loss.detach()

    return fn, lambda: (model, losses)


@program
def step_with_a_scheduler():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    def fn(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return fn, lambda: (model, optimizer.param_groups[0]["lr"], schedule.last_epoch)


@program
def step_skips_bad_losses():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    skipped = []

    def fn(x):
        loss = (model(x) ** 2).mean()
        if not torch.isfinite(loss):
            skipped.append(1)
            return None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return fn, lambda: (model, skipped)


@program
def gradient_through_a_break():
    model = _model()

    def fn(x):
        model.zero_grad()
        h = model(x)
        print("between")
        loss = (h * h).sum()
        loss.backward()
        return loss.detach()

    return fn, model


@program
def backward_outside():
    model = _model()

    def fn(x):
        h = model(x)
        print("between")
        return (h.tanh() * 2).sum()

    def stepped(x):
        model.zero_grad()
        loss = fn(x)
        loss.backward()
        return loss.detach()

    return stepped, model


@program
def backward_twice():
    model = _model()

    def fn(x):
        loss = (model(x) ** 2).sum()
        loss.backward()
        loss.backward()
        return loss.detach()

    return fn, None


@program
def clip_by_value_of_the_norm():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        print("large" if norm > 0.5 else "small")
        optimizer.step()
        return norm

    return fn, model


@program
def accumulates_over_a_list():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        optimizer.zero_grad()
        total = 0.0
        for part in x.split(2):
            loss = (model(part) ** 2).mean()
            loss.backward()
            total += loss.item()
        optimizer.step()
        return round(total, 4)

    return fn, model


@program
def custom_function_with_a_break():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    w = torch.ones(3, requires_grad=True)

    def fn(x):
        y = Scale.apply(x * w, 3.0)
        print("scaled")
        return Scale.apply(y, 0.5).sum()

    def stepped(x):
        w.grad = None
        loss = fn(x)
        loss.backward()
        return loss.detach()

    return stepped, lambda: w.grad


@program
def checkpoint_with_a_break():
    model = _model()

    def fn(x):
        model.zero_grad()
        h = checkpoint(model, x, use_reentrant=False)
        print("checkpointed")
        loss = (h**2).sum()
        loss.backward()
        return loss.detach()

    return fn, model


@program
def autograd_grad_inside():
    def fn(x):
        z = x.detach().requires_grad_(True)
        y = (z * z * z).sum()
        (g,) = torch.autograd.grad(y, z, create_graph=True)
        print("first")
        return g.detach() + 1

    return fn, None


@program
def eval_and_train():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def fn(x):
        model.eval()
        with torch.no_grad():
            a = model(x).sum()
        model.train()
        b = model(x).sum()
        return a, b

    return fn, model


@program
def gan_like():
    generator, judge = nn.Linear(3, 3), nn.Linear(3, 1)
    first = torch.optim.SGD(generator.parameters(), lr=0.1)
    second = torch.optim.SGD(judge.parameters(), lr=0.1)

    def fn(x):
        made = generator(x)
        second.zero_grad()
        loss = F.softplus(judge(made.detach())).mean()
        loss.backward()
        second.step()
        print("judge")
        first.zero_grad()
        again = F.softplus(-judge(made)).mean()
        again.backward()
        first.step()
        return loss.detach(), again.detach()

    return fn, lambda: (generator, judge)


@program
def ema_of_parameters():
    model, shadow = _model(), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for name, p in model.named_parameters():
                old = shadow.get(name, p)
                shadow[name] = old * 0.9 + p * 0.1
        return loss.detach()

    return fn, lambda: (model, shadow)


@program
def early_stopping():
    model = _model()

    class Stop:
        best, bad = 1e9, 0

    def fn(x):
        loss = (model(x) ** 2).mean()
        value = loss.item()
        if value < Stop.best:
            Stop.best, Stop.bad = value, 0
        else:
            Stop.bad += 1
        return loss.detach() * 2, Stop.bad

    return fn, lambda: Stop.bad


@program
def grad_scaler():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        (loss * 8).backward()
        with torch.no_grad():
            for p in model.parameters():
                p.grad.div_(8)
        if all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()):
            optimizer.step()
        return loss.detach()

    return fn, model


@program
def keeps_the_hidden_state():
    cell = nn.RNNCell(3, 4)
    memory = {"h": None}

    def fn(x):
        h = memory["h"]
        if h is None or len(h) != len(x):
            h = torch.zeros(len(x), 4)
        h = cell(x, h)
        memory["h"] = h.detach()
        print("kept")
        return h.sum()

    return fn, memory


@program
def closure_for_the_optimizer():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        def closure():
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return fn, model


@program
def leaf_made_inside_and_a_break():
    def fn(x):
        leaf = x.detach().requires_grad_()
        y = leaf * 3
        print(end="")
        loss = (y * 2).sum()
        loss.backward()
        return loss, leaf.grad, leaf.requires_grad

    return fn, None


@program
def requires_grad_of_an_argument():
    def fn(x):
        x.requires_grad_()
        return (x * 2).sum()

    return fn, None
