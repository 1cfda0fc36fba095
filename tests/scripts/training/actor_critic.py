"""REINFORCE and actor-critic on a hand-made corridor, with distributions.Categorical."""

from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class Corridor:
    """Walk right to the goal; the observation is the place and the last move."""

    def __init__(self, length=6, limit=20):
        self.length, self.limit = length, limit

    def reset(self):
        self.place, self.moved, self.steps = 0, 0.0, 0
        return [self.place / self.length, self.moved]

    def step(self, action):
        self.moved = 1.0 if action == 1 else -1.0
        self.place = max(0, self.place + int(self.moved))
        self.steps += 1
        done = self.place >= self.length or self.steps >= self.limit
        reward = 1.0 if self.place >= self.length else -0.05
        return [self.place / self.length, self.moved], reward, done, {}


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(2, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


eps = torch.finfo(torch.float32).eps.item() if False else torch.finfo(torch.float32).eps


def discounted(rewards, gamma=0.99):
    returns, R = deque(), 0.0
    for r in rewards[::-1]:
        R = r + gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    return (returns - returns.mean()) / (returns.std() + eps)


def select_action(model, state):
    probs, state_value = model(torch.tensor(state).float())
    m = Categorical(probs)
    action = m.sample()
    model.saved_actions.append(SavedAction(m.log_prob(action), state_value))
    return action.item(), m.entropy()


def finish_episode(model, optimizer, use_critic):
    policy_losses, value_losses = [], []
    returns = discounted(model.rewards)
    for (log_prob, value), R in zip(model.saved_actions, returns):
        if use_critic:
            policy_losses.append(-log_prob * (R - value.item()))
            value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
        else:
            policy_losses.append(-log_prob * R)
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum()
    if use_critic:
        loss = loss + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


for use_critic in (False, True):
    torch.manual_seed(543)
    env, model = Corridor(), Policy()
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    running_reward = 0
    for i_episode in range(4):
        state, ep_reward, entropies = env.reset(), 0, []
        for t in range(1, 100):
            action, entropy = select_action(model, state)
            state, reward, done, _ = env.step(action)
            model.rewards.append(reward)
            entropies.append(entropy)
            ep_reward += reward
            if done:
                break
        running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
        loss = finish_episode(model, optimizer, use_critic)
        mean_entropy = torch.stack(entropies).mean()
        print(
            f"Episode {i_episode}\tsteps {t}\treward: {ep_reward:.2f}\tAverage {running_reward:.2f}"
            f"\tloss {loss:.4f}\tentropy {mean_entropy:.4f}"
        )

m = Categorical(logits=torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]))
print(m, m.probs, m.sample((2,)).shape, m.mode, m.logits.exp().sum(-1))
