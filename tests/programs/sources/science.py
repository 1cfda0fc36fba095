"""Graphs, agents, learning to learn, equations, tables and series, and training itself."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.programs.rows import program


def edges(n=10, m=24):
    g = torch.Generator().manual_seed(5)
    return torch.randint(0, n, (2, m), generator=g)


@program("graphs")
def gcn(run):
    torch.manual_seed(0)

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.w2 = nn.Linear(6, 8), nn.Linear(8, 3)

        def propagate(self, x, edge_index):
            row, col = edge_index
            deg = torch.zeros(x.size(0)).index_add_(0, col, torch.ones(col.size(0))) + 1
            norm = deg.pow(-0.5)
            out = torch.zeros_like(x)
            out.index_add_(0, col, x[row] * (norm[row] * norm[col]).unsqueeze(-1))
            return out + x / deg.unsqueeze(-1)

        def forward(self, x, edge_index):
            x = F.relu(self.propagate(self.w1(x), edge_index))
            return F.log_softmax(self.propagate(self.w2(x), edge_index), dim=1)

    net = GCN()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    x, y, e = torch.randn(10, 6), torch.randint(0, 3, (10,)), edges()
    mask = torch.arange(10) < 6

    for _ in range(run.steps):
        optimizer.zero_grad()
        out = model(x, e)
        loss = F.nll_loss(out[mask], y[mask])
        loss.backward()
        optimizer.step()
        yield loss, (out.argmax(1)[~mask] == y[~mask]).float().mean()


@program("graphs")
def gat(run):
    torch.manual_seed(0)

    class GAT(nn.Module):
        def __init__(self, d=6, heads=2, out=4):
            super().__init__()
            self.heads, self.out, self.lin = heads, out, nn.Linear(d, heads * out, bias=False)
            self.src, self.dst = (
                nn.Parameter(torch.randn(1, heads, out)),
                nn.Parameter(torch.randn(1, heads, out)),
            )
            self.head = nn.Linear(heads * out, 3)

        def forward(self, x, edge_index):
            row, col = edge_index
            n = x.size(0)
            h = self.lin(x).view(n, self.heads, self.out)
            a = F.leaky_relu((h * self.src).sum(-1)[row] + (h * self.dst).sum(-1)[col], 0.2)
            e = (a - a.max()).exp()
            total = torch.zeros(n, self.heads).index_add(0, col, e)
            a = e / (total[col] + 1e-16)
            out = torch.zeros(n, self.heads, self.out).index_add(0, col, h[row] * a.unsqueeze(-1))
            return self.head(F.elu(out.flatten(1)))

    net = GAT()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    x, y, e = torch.randn(10, 6), torch.randint(0, 3, (10,)), edges()

    @run.step
    def step(x, e, y):
        loss = F.cross_entropy(model(x, e), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, e, y)


@program("graphs")
def graph_classification(run):
    """The number of graphs is read from the batch: `int(batch.max()) + 1`."""
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp1 = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
            self.mlp2 = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
            self.eps, self.head = nn.Parameter(torch.zeros(2)), nn.Linear(8, 2)

        def forward(self, x, edge_index, batch):
            row, col = edge_index
            for k, mlp in enumerate((self.mlp1, self.mlp2)):
                agg = torch.zeros_like(x).index_add_(0, col, x[row])
                x = F.relu(mlp((1 + self.eps[k]) * x + agg))
            size = int(batch.max()) + 1
            pooled = torch.zeros(size, x.size(1)).index_add_(0, batch, x)
            count = torch.bincount(batch, minlength=size).unsqueeze(-1)
            return self.head(pooled / count)

    net = Net()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for k in range(run.steps):
        graphs = 2 + k % 3
        batch = torch.arange(graphs).repeat_interleave(4)
        n = batch.numel()
        x, y = torch.randn(n, 4), torch.arange(graphs) % 2
        loss = F.cross_entropy(model(x, edges(n, 3 * n), batch), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@program("graphs")
def message_passing(run):
    """Forces are gradients of an energy: a gradient of a gradient in each step."""
    torch.manual_seed(0)

    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(3, 8)
            self.filter, self.out = (
                nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 8)),
                nn.Linear(8, 1),
            )
            self.register_buffer("centres", torch.linspace(0, 3, 6))

        def forward(self, z, pos, row, col):
            d = (pos[row] - pos[col]).pow(2).sum(-1).add(1e-6).sqrt()
            rbf = torch.exp(-4 * (d[:, None] - self.centres) ** 2)
            h = self.emb(z)
            h = h + torch.zeros_like(h).index_add(0, col, h[row] * self.filter(rbf))
            return self.out(torch.tanh(h)).sum()

    net = Energy()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    z, pos = torch.randint(0, 3, (6,)), torch.randn(6, 3)
    row, col = torch.where(~torch.eye(6, dtype=torch.bool))
    energy, force = torch.randn(()), torch.randn(6, 3) * 0.1

    @run.step
    def step(pos):
        pos = pos.detach().requires_grad_(True)
        e = net(z, pos, row, col)
        f = -torch.autograd.grad(e, pos, create_graph=True)[0]
        loss = (e - energy) ** 2 + 10 * F.mse_loss(f, force)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(pos)


class Cart:
    """A pole that falls, in a few lines."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.reset()

    def reset(self):
        self.s = torch.rand(4, generator=self.g) * 0.1 - 0.05
        return self.s

    def step(self, action):
        x, v, a, w = self.s.tolist()
        force = 10.0 if action == 1 else -10.0
        acc = 9.8 * a - 0.9 * force / 10
        self.s = torch.tensor([x + 0.02 * v, v + 0.02 * force / 10, a + 0.02 * w, w + 0.02 * acc])
        done = abs(self.s[2].item()) > 0.2
        return self.s, 1.0, done


@program("reinforcement")
def reinforce(run):
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(dim=-1))
    model = run.model(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    env = Cart(0)
    for _ in range(run.steps):
        state, logps, rewards = env.reset(), [], []
        for _ in range(8):
            m = torch.distributions.Categorical(model(state.unsqueeze(0)))
            action = m.sample()
            logps.append(m.log_prob(action))
            state, reward, done = env.step(action.item())
            rewards.append(reward)
            if done:
                break
        R, returns = 0, []
        for r in rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-3)
        loss = torch.cat([-lp * R for lp, R in zip(logps, returns)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine, self.action, self.value = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, x):
        h = torch.tanh(self.affine(x))
        return self.action(h), self.value(h).squeeze(-1)


@program("reinforcement")
def a2c(run):
    torch.manual_seed(0)
    net = ActorCritic()
    model = run.model(net)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=3e-3, eps=1e-3)
    envs = [Cart(k) for k in range(4)]
    states = torch.stack([e.s for e in envs])
    for _ in range(run.steps):
        logps, values, rewards, masks, entropy = [], [], [], [], 0
        for _ in range(4):
            logits, value = model(states)
            dist = torch.distributions.Categorical(logits=logits)
            actions = dist.sample()
            found = [e.step(a) for e, a in zip(envs, actions.tolist())]
            states = torch.stack([e.reset() if d else s for e, (s, _, d) in zip(envs, found)])
            logps.append(dist.log_prob(actions))
            entropy = entropy + dist.entropy().mean()
            values.append(value)
            rewards.append(torch.tensor([r for _, r, _ in found]))
            masks.append(torch.tensor([1.0 - d for *_, d in found]))
        with torch.no_grad():
            R = model(states)[1]
        returns = []
        for r, m in zip(reversed(rewards), reversed(masks)):
            R = r + 0.99 * R * m
            returns.insert(0, R)
        advantage = torch.stack(returns) - torch.stack(values)
        loss = (
            -(torch.stack(logps) * advantage.detach()).mean()
            + 0.5 * advantage.pow(2).mean()
            - 0.01 * entropy
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        yield loss


@program("reinforcement")
def ppo(run):
    torch.manual_seed(0)
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, eps=1e-5)
    model = run.model(net)

    @run.step
    def update(states, actions, old, returns, advantage):
        logits, value = model(states)
        dist = torch.distributions.Categorical(logits=logits)
        ratio = (dist.log_prob(actions) - old).exp()
        s1, s2 = ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage
        loss = (
            -torch.min(s1, s2).mean()
            + 0.5 * (returns - value).pow(2).mean()
            - 0.01 * dist.entropy().mean()
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss, ((ratio - 1).abs() > 0.2).float().mean()

    for k in range(run.steps):
        if k % 4 == 0:
            states = torch.randn(16, 4)
            with torch.no_grad():
                logits, values = model(states)
                dist = torch.distributions.Categorical(logits=logits)
                actions = dist.sample()
                old = dist.log_prob(actions)
                rewards = (actions == (states[:, 2] > 0).long()).float()
                gae, advantages = torch.zeros(()), []
                for t in reversed(range(16)):
                    after = values[t + 1] if t < 15 else torch.zeros(())
                    gae = rewards[t] + 0.9 * after - values[t] + 0.9 * 0.95 * gae
                    advantages.insert(0, gae)
                advantage = torch.stack(advantages)
                returns = advantage + values
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        index = torch.randperm(16)[:8]
        yield update(states[index], actions[index], old[index], returns[index], advantage[index])


@program("reinforcement")
def dqn(run):
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    target = copy.deepcopy(policy)
    model, frozen = run.model(policy), run.model(target)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    memory = [(torch.randn(4), k % 2, torch.randn(4), float(k % 3), k % 7 == 0) for k in range(40)]

    @run.step
    def optimize(state, action, after, reward, going):
        q = model(state).gather(1, action)
        with torch.no_grad():
            best = torch.zeros(len(state))
            best[going] = frozen(after).max(1).values
        loss = F.smooth_l1_loss(q, (best * 0.9 + reward).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        return loss

    for k in range(run.steps):
        chosen = [memory[i] for i in torch.randint(0, 40, (8,)).tolist()]
        state, action, after, reward, done = zip(*chosen)
        going = torch.tensor([not d for d in done])
        later = torch.stack([s for s, d in zip(after, done) if not d])
        yield optimize(
            torch.stack(state), torch.tensor(action)[:, None], later, torch.tensor(reward), going
        )
        state_dict, new = target.state_dict(), policy.state_dict()
        for key in new:
            state_dict[key] = new[key] * 0.1 + state_dict[key] * 0.9
        target.load_state_dict(state_dict)


@program("reinforcement")
def sac(run):
    torch.manual_seed(0)

    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (
                nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2)
            )

        def forward(self, s, a):
            x = torch.cat([s, a], 1)
            return self.a(x), self.b(x)

    class Actor(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.mean, self.log_std = (
                nn.Linear(4, 16),
                nn.Linear(16, 1),
                nn.Linear(16, 1),
            )

        def forward(self, s, noise):
            h = F.relu(self.body(s))
            mean, log_std = self.mean(h), torch.clamp(self.log_std(h), -5, 2)
            x = mean + log_std.exp() * noise
            logp = -0.5 * noise.pow(2) - log_std - 0.9189385
            y = torch.tanh(x)
            return y, (logp - torch.log(1 - y.pow(2) + 1e-6)).sum(1, keepdim=True)

    critic, actor = Critic(), Actor()
    target = copy.deepcopy(critic).requires_grad_(False)
    q, pi = run.model(critic), run.model(actor)
    log_alpha = torch.zeros(1, requires_grad=True)
    oc, oa = torch.optim.Adam(critic.parameters(), 3e-3), torch.optim.Adam(actor.parameters(), 3e-3)
    ol = torch.optim.Adam([log_alpha], 3e-3)
    s, a, r, s2 = (
        torch.randn(16, 4),
        torch.rand(16, 1) * 2 - 1,
        torch.randn(16, 1),
        torch.randn(16, 4),
    )

    @run.step
    def step(noise1, noise2):
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            a2, lp2 = pi(s2, noise1)
            goal = r + 0.99 * (torch.min(*target(s2, a2)) - alpha * lp2)
        q1, q2 = q(s, a)
        critic_loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
        oc.zero_grad()
        critic_loss.backward()
        oc.step()
        new, logp = pi(s, noise2)
        actor_loss = (alpha * logp - torch.min(*q(s, new))).mean()
        oa.zero_grad()
        actor_loss.backward()
        oa.step()
        alpha_loss = -(log_alpha * (logp + -1.0).detach()).mean()
        ol.zero_grad()
        alpha_loss.backward()
        ol.step()
        with torch.no_grad():
            for p, t in zip(critic.parameters(), target.parameters()):
                t.copy_(0.05 * p + 0.95 * t)
        return critic_loss, actor_loss, alpha_loss

    for _ in range(run.steps):
        yield step(torch.randn(16, 1), torch.randn(16, 1))


@program("meta-learning")
def maml(run):
    """An inner step by hand with `create_graph`, the outer one through it."""
    torch.manual_seed(0)

    def net(x, w):
        h = torch.relu(F.linear(x, w[0], w[1]))
        return F.linear(h, w[2], w[3])

    weights = [torch.randn(16, 1) * 0.5, torch.zeros(16), torch.randn(1, 16) * 0.2, torch.zeros(1)]
    for w in weights:
        w.requires_grad_(True)
    optimizer = torch.optim.Adam(weights, lr=1e-2)

    @run.step
    def step(xs, ys, xq, yq):
        total = 0.0
        for k in range(2):
            fast = list(weights)
            for _ in range(2):
                loss = F.mse_loss(net(xs[k], fast), ys[k])
                grads = torch.autograd.grad(loss, fast, create_graph=True)
                fast = [w - 0.05 * g for w, g in zip(fast, grads)]
            total = total + F.mse_loss(net(xq[k], fast), yq[k])
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total

    for _ in range(run.steps):
        amplitude, phase = torch.rand(2, 1, 1) * 2 + 0.5, torch.rand(2, 1, 1) * 3
        x = torch.rand(2, 10, 1) * 4 - 2
        y = amplitude * torch.sin(x + phase)
        yield step(x[:, :5], y[:, :5], x[:, 5:], y[:, 5:])


@program("meta-learning")
def reptile(run):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    model = run.model(net)

    def train(x, y):
        net.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        for p in net.parameters():
            p.data -= 0.02 * p.grad.data
        return loss

    for k in range(run.steps):
        before = copy.deepcopy(net.state_dict())
        x = torch.linspace(-2, 2, 10)[:, None]
        y = torch.sin(x + torch.rand(1))
        for _ in range(3):
            loss = train(x, y)
        after = net.state_dict()
        scale = 0.1 * (1 - k / 16)
        net.load_state_dict({n: before[n] + (after[n] - before[n]) * scale for n in before})
        yield loss


@program("equations")
def neural_ode(run):
    torch.manual_seed(0)

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t, y):
            return self.net(y**3)

    net = Field()
    f = run.model(net)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    times = torch.linspace(0, 1, 6)
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    with torch.no_grad():
        y, truth = torch.tensor([[2.0, 0.0]]), []
        for _ in times:
            truth.append(y)
            y = y + 0.2 * (y**3 @ matrix).clamp(-2, 2)
        truth = torch.stack(truth)

    def odeint(y, t):
        out = [y]
        for t0, t1 in zip(t[:-1], t[1:]):
            h = t1 - t0
            k1 = f(t0, y)
            k2 = f(t0 + h / 2, y + h * k1 / 2)
            k3 = f(t0 + h / 2, y + h * k2 / 2)
            k4 = f(t1, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            out.append(y)
        return torch.stack(out)

    @run.step
    def step(y0, t):
        optimizer.zero_grad()
        loss = torch.mean(torch.abs(odeint(y0, t) - truth))
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(truth[0], times)


@program("equations")
def pinn(run):
    """Burgers: second derivatives by the inputs, inside of the step."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    @run.step
    def step(x, t, x0):
        x, t = x.requires_grad_(True), t.requires_grad_(True)
        u = net(torch.cat([x, t], 1))
        ones = torch.ones_like(u)
        u_t = torch.autograd.grad(u, t, ones, create_graph=True)[0]
        u_x = torch.autograd.grad(u, x, ones, create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, ones, create_graph=True)[0]
        residual = u_t + u * u_x - 0.01 / 3.14159 * u_xx
        start = net(torch.cat([x0, torch.zeros_like(x0)], 1)) + torch.sin(3.14159 * x0)
        loss = residual.pow(2).mean() + start.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(torch.rand(16, 1) * 2 - 1, torch.rand(16, 1), torch.rand(8, 1) * 2 - 1)


@program("equations")
def lbfgs_fit(run):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    model = run.model(net)
    optimizer = torch.optim.LBFGS(
        net.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe"
    )
    x = torch.linspace(-1, 1, 20, dtype=torch.double)[:, None]
    y = torch.sin(3 * x)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(run.steps):
        yield optimizer.step(closure)


@program("training")
def sharpness_aware(run):
    torch.manual_seed(0)

    class SAM(torch.optim.Optimizer):
        def __init__(self, params, base, rho=0.05, **kwargs):
            super().__init__(params, dict(rho=rho, **kwargs))
            self.base = base(self.param_groups, **kwargs)
            self.param_groups = self.base.param_groups

        @torch.no_grad()
        def first_step(self):
            norm = torch.norm(
                torch.stack([p.grad.norm(p=2) for g in self.param_groups for p in g["params"]]), p=2
            )
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["old"] = p.data.clone()
                    p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
            self.zero_grad()

        @torch.no_grad()
        def second_step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data = self.state[p]["old"]
            self.base.step()
            self.zero_grad()

    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    model = run.model(net)
    optimizer = SAM(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))
    for _ in range(run.steps):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.first_step()
        F.cross_entropy(model(x), y).backward()
        optimizer.second_step()
        yield loss


@program("training", limit=3e-2, why="bfloat16")
def autocast_bf16(run):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    model = run.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    x, y = torch.randn(16, 16), torch.randint(0, 4, (16,))

    @run.step
    def step(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, y)


@program("training", limit=3e-2, why="float16 products")
def grad_scaler(run):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    model = run.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
    x, y = torch.randn(16, 16), torch.randn(16, 1)
    for k in range(run.steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        loss = F.mse_loss(out.float(), y)
        if k == 7:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield 0.0 if k == 7 else loss, scaler.get_scale() / 1024


@program("training")
def by_hand(run):
    """SGD with momentum, weight decay and an average of the weights, without an optimizer."""
    torch.manual_seed(0)
    w1, b1 = (torch.randn(8, 16) * 0.3).requires_grad_(), torch.zeros(16, requires_grad=True)
    w2, b2 = (torch.randn(16, 3) * 0.3).requires_grad_(), torch.zeros(3, requires_grad=True)
    params = [w1, b1, w2, b2]
    velocity = [torch.zeros_like(p) for p in params]
    average = [p.detach().clone() for p in params]
    x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))

    @run.step
    def step(x, y):
        loss = F.cross_entropy((x @ w1 + b1).relu() @ w2 + b2, y)
        loss.backward()
        with torch.no_grad():
            for p, v, a in zip(params, velocity, average):
                v.mul_(0.9).add_(p.grad + 1e-3 * p)
                p -= 0.05 * v
                a.lerp_(p, 0.1)
                p.grad = None
        return loss

    for _ in range(run.steps):
        loss = step(x, y)
        yield loss, sum(a.pow(2).sum() for a in average)


@program("training")
def accumulation(run):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    swa = torch.optim.swa_utils.AveragedModel(net)
    data = torch.randn(64, 8)
    labels = (data[:, 0] > 0).long() + (data[:, 1] > 0).long()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(data, labels), batch_size=6, shuffle=True
    )
    done = 0
    while done < run.steps:
        for k, (x, y) in enumerate(loader):
            if done == run.steps:
                break
            loss = F.cross_entropy(model(x), y) / 2
            loss.backward()
            if (k + 1) % 2 == 0:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                swa.update_parameters(net)
                plateau.step(loss.item())
            done += 1
            yield loss, optimizer.param_groups[0]["lr"]


@program("recommendation")
def matrix_factorization(run):
    torch.manual_seed(0)

    class MF(nn.Module):
        def __init__(self, users=12, items=10, d=6):
            super().__init__()
            self.user, self.item = nn.Embedding(users, d), nn.Embedding(items, d)
            self.ub, self.ib, self.mean = (
                nn.Embedding(users, 1),
                nn.Embedding(items, 1),
                nn.Parameter(torch.tensor(3.0)),
            )

        def forward(self, u, i):
            dot = (self.user(u) * self.item(i)).sum(1)
            return dot + self.ub(u).squeeze(1) + self.ib(i).squeeze(1) + self.mean

    net = MF()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-5)
    u, i, r = torch.randint(0, 12, (40,)), torch.randint(0, 10, (40,)), torch.rand(40) * 4 + 1

    @run.step
    def step(u, i, r):
        loss = F.mse_loss(model(u, i), r)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.sqrt()

    for k in range(run.steps):
        n = 8 + k % 2 * 4
        at = torch.randperm(40)[:n]
        yield step(u[at], i[at], r[at])


@program("recommendation")
def dlrm(run):
    torch.manual_seed(0)

    class DLRM(nn.Module):
        def __init__(self, d=6):
            super().__init__()
            self.bags = nn.ModuleList(nn.EmbeddingBag(20, d, mode="sum") for _ in range(3))
            self.bottom = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, d), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(d + 6, 8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, dense, offsets, sparse):
            x = self.bottom(dense)
            ly = [bag(s, offsets) for bag, s in zip(self.bags, sparse)]
            T = torch.cat([x] + ly, dim=1).view((x.size(0), -1, x.size(1)))
            Z = torch.bmm(T, torch.transpose(T, 1, 2))
            ni, nj = Z.shape[1], Z.shape[2]
            li = torch.tensor([i for i in range(ni) for j in range(i)])
            lj = torch.tensor([j for i in range(nj) for j in range(i)])
            return self.top(torch.cat([x, Z[:, li, lj]], dim=1)).squeeze(1)

    net = DLRM()
    model = run.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    dense, sparse = torch.rand(8, 4), torch.randint(0, 20, (3, 16))
    offsets, y = torch.arange(0, 16, 2), (torch.rand(8) > 0.5).float()

    @run.step
    def step(dense, offsets, sparse, y):
        loss = F.binary_cross_entropy_with_logits(model(dense, offsets, sparse), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(dense, offsets, sparse, y)


@program("tables")
def tabular(run):
    torch.manual_seed(0)

    class Tabular(nn.Module):
        def __init__(self):
            super().__init__()
            self.cats = nn.ModuleList(nn.Embedding(n, 3) for n in (5, 7, 4))
            self.bn = nn.BatchNorm1d(4)
            self.net = nn.Sequential(
                nn.Linear(13, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 1)
            )

        def forward(self, cat, cont):
            x = torch.cat([e(cat[:, i]) for i, e in enumerate(self.cats)], 1)
            return self.net(torch.cat([x, self.bn(cont)], 1))

    net = Tabular()
    model = run.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=max(20, run.steps))
    cat = torch.stack([torch.randint(0, n, (24,)) for n in (5, 7, 4)], 1)
    cont = torch.randn(24, 4)
    y = cont.sum(1, keepdim=True).sin()

    @run.step
    def step(cat, cont, y):
        loss = F.huber_loss(model(cat, cont), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(run.steps):
        net.train()
        loss = step(cat, cont, y)
        schedule.step()
        if k % 4 == 3:
            net.eval()
            with torch.no_grad():
                yield loss, F.mse_loss(model(cat, cont), y)
        else:
            yield loss


@program("series")
def n_beats(run):
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, back=12, fore=4, kind="trend"):
            super().__init__()
            self.kind = kind
            self.fc, self.theta = (
                nn.Sequential(nn.Linear(back, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU()),
                nn.Linear(16, 6),
            )
            t = torch.linspace(0, 1, back + fore)
            rows = (
                [t**i for i in range(3)]
                if kind == "trend"
                else [torch.cos(6.28 * t), torch.sin(6.28 * t), torch.sin(12.56 * t)]
            )
            self.register_buffer("basis", torch.stack(rows))
            self.back = back

        def forward(self, x):
            a, b = self.theta(self.fc(x)).chunk(2, 1)
            return a @ self.basis[:, : self.back], b @ self.basis[:, self.back :]

    class NBeats(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(
                [Block(kind="trend"), Block(kind="season"), Block(kind="trend")]
            )

        def forward(self, x):
            forecast = 0
            for block in self.blocks:
                back, fore = block(x)
                x = x - back
                forecast = forecast + fore
            return forecast

    net = NBeats()
    model = run.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    series = (
        torch.sin(torch.arange(16.0) * 0.5)[None] * torch.rand(8, 1) + torch.randn(8, 16) * 0.05
    )

    @run.step
    def step(x, y):
        p = model(x)
        loss = (2 * (p - y).abs() / (p.abs() + y.abs() + 1e-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(series[:, :12], series[:, 12:])


@program("series")
def tcn(run):
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, a, b, d):
            super().__init__()
            self.pad = 2 * d
            self.conv = nn.utils.parametrizations.weight_norm(
                nn.Conv1d(a, b, 3, padding=2 * d, dilation=d)
            )
            self.down = nn.Conv1d(a, b, 1) if a != b else None

        def forward(self, x):
            y = F.relu(self.conv(x)[:, :, : -self.pad])
            return F.relu(y + (x if self.down is None else self.down(x)))

    net = nn.Sequential(Block(1, 6, 1), Block(6, 6, 2), Block(6, 6, 4))
    head = nn.Linear(6, 1)
    model = run.model(net)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=4e-3)
    x = torch.rand(4, 1, 12)
    y = x[:, 0, :2].sum(1, keepdim=True)

    @run.step
    def step(x, y):
        loss = F.mse_loss(head(model(x)[:, :, -1]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(x, y)


@program("series")
def hyper_network(run):
    """A network that writes the weights of another, called by `functional_call`."""
    torch.manual_seed(0)
    target = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    shapes = {n: p.shape for n, p in target.named_parameters()}
    total = sum(s.numel() for s in shapes.values())
    hyper = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, total))
    model = run.model(hyper)
    optimizer = torch.optim.Adam(hyper.parameters(), lr=5e-3)
    tasks, x = torch.eye(3), torch.randn(10, 2)

    @run.step
    def step(task, y):
        flat, at, weights = model(task), 0, {}
        for name, shape in shapes.items():
            weights[name] = flat[at : at + shape.numel()].view(shape)
            at += shape.numel()
        loss = F.mse_loss(torch.func.functional_call(target, weights, (x,)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(run.steps):
        yield step(tasks[k % 3], (x * (k % 3 - 1)).sum(1, keepdim=True))
