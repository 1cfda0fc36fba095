"""DQN with replay and a target net, PPO with advantages, a squashed Gaussian policy as in SAC."""

import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, TanhTransform, TransformedDistribution
from torch.distributions.kl import kl_divergence

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations=3, n_actions=2):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 16)
        self.value, self.advantage = nn.Linear(16, 1), nn.Linear(16, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=1, keepdim=True)


policy_net, target_net = DQN(), DQN()
target_net.load_state_dict(policy_net.state_dict())
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory, state = ReplayMemory(100), torch.zeros(1, 3)
for step in range(24):
    if random.random() > 0.5:
        with torch.no_grad():
            action = policy_net(state).max(1).indices.view(1, 1)
    else:
        action = torch.tensor([[random.randrange(2)]], dtype=torch.long)
    observation = np.random.randn(3).astype(np.float32)
    next_state = None if step % 7 == 6 else torch.tensor(observation).unsqueeze(0)
    memory.push(state, action, next_state, torch.tensor([float(action.item())]))
    state = torch.zeros(1, 3) if next_state is None else next_state
    if len(memory) < 12 or step % 4:
        continue
    batch = Transition(*zip(*memory.sample(8)))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], dtype=torch.bool)
    non_final = torch.cat([s for s in batch.next_state if s is not None])
    values = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    next_values = torch.zeros(8)
    with torch.no_grad():
        next_values[non_final_mask] = target_net(non_final).max(1).values
    expected = (next_values * 0.99) + torch.cat(batch.reward)
    loss = nn.SmoothL1Loss()(values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    target = target_net.state_dict()
    for key, value in policy_net.state_dict().items():
        target[key] = value * 0.1 + target[key] * 0.9
    target_net.load_state_dict(target)
    print(f"dqn {step}: {loss.item():.5f}")


class Agent(nn.Module):
    def __init__(self, obs=4, act=2):
        super().__init__()
        self.critic = nn.Sequential(self.layer(obs, 16), nn.Tanh(), self.layer(16, 1, std=1.0))
        self.actor_mean = nn.Sequential(self.layer(obs, 16), nn.Tanh(), self.layer(16, act, 0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, act))

    @staticmethod
    def layer(n_in, n_out, std=2**0.5, bias_const=0.0):
        layer = nn.Linear(n_in, n_out)
        torch.nn.init.orthogonal_(layer.weight, std)
        torch.nn.init.constant_(layer.bias, bias_const)
        return layer

    def act(self, x, action=None):
        mean = self.actor_mean(x)
        probs = Normal(mean, torch.exp(self.actor_logstd.expand_as(mean)))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


agent, steps = Agent(), 16
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
obs = torch.randn(steps, 4)
rewards, dones = torch.randn(steps), (torch.rand(steps) < 0.2).float()
with torch.no_grad():
    actions, logprobs, _, values = agent.act(obs)
    values, advantages, last = values.flatten(), torch.zeros_like(rewards), 0
    for t in reversed(range(steps)):
        following = values[t + 1] if t + 1 < steps else 0.0
        delta = rewards[t] + 0.99 * following * (1.0 - dones[t]) - values[t]
        advantages[t] = last = delta + 0.99 * 0.95 * (1.0 - dones[t]) * last
    returns = advantages + values
for epoch in range(2):
    indices = np.arange(steps)
    np.random.shuffle(indices)
    for start in range(0, steps, 8):
        mb = indices[start : start + 8]
        _, newlogprob, entropy, newvalue = agent.act(obs[mb], actions[mb])
        ratio = (newlogprob - logprobs[mb]).exp()
        adv = advantages[mb]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
        v_loss = 0.5 * ((newvalue.view(-1) - returns[mb]) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        clipped = ((ratio - 1.0).abs() > 0.2).float().mean().item()
        print(f"ppo {epoch} {start}: {loss.item():.5f} clipped {clipped:.3f}")

mean, log_std = nn.Linear(4, 2), nn.Linear(4, 2)
base = Normal(mean(obs), log_std(obs).clamp(-5, 2).exp())
squashed = TransformedDistribution(base, [TanhTransform(cache_size=1)])
sample = squashed.rsample()
logp = squashed.log_prob(sample).sum(-1)
alpha = torch.zeros(1, requires_grad=True)
(alpha.exp().detach() * logp - sample.sum(-1)).mean().backward()
print(
    f"sac {logp.mean().item():.4f} {mean.weight.grad.abs().sum().item():.4f}",
    sample.abs().max() <= 1,
)
print(f"kl {kl_divergence(base, Normal(0.0, 1.0)).mean().item():.4f}", squashed.event_shape)
