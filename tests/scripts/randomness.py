"""Random numbers: seeds, generators, states and the distributions that come with tensors."""

import torch

print("-- one seed, one stream")
torch.manual_seed(42)
first = torch.rand(3)
second = torch.rand(3)
torch.manual_seed(42)
print(first, torch.equal(first, torch.rand(3)), torch.equal(second, torch.rand(3)))
print(torch.initial_seed())

print("-- many shapes of randomness")
torch.manual_seed(0)
print(torch.rand(2, 2), torch.randn(2, 2), torch.randint(10, (4,)), torch.randperm(6))
print(torch.normal(2.0, 0.5, size=(3,)), torch.normal(torch.zeros(2), torch.tensor([1.0, 10.0])))
print(torch.bernoulli(torch.full((5,), 0.5)), torch.rand(2, dtype=torch.double))
print(torch.empty(3).uniform_(-1, 1), torch.empty(3).normal_(0, 2), torch.empty(2).exponential_())
print(torch.empty(4).random_(0, 5), torch.rand_like(torch.ones(2)), torch.randn_like(torch.ones(2)))
print(
    torch.randint_like(torch.ones(3), 4), torch.randn(20).mean(), torch.randn(3, dtype=torch.cfloat)
)
print(torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), 5, replacement=True))
print(torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), 2), torch.poisson(torch.tensor([1.0, 9.0])))

print("-- generators of one's own")
g = torch.Generator()
g.manual_seed(7)
h = torch.Generator().manual_seed(7)
print(torch.rand(2, generator=g), torch.rand(2, generator=h), g.initial_seed())
before = torch.get_rng_state()
torch.rand(100, generator=g)
print(torch.equal(before, torch.get_rng_state()))

print("-- saving and restoring")
state = torch.get_rng_state()
a = torch.randn(3)
torch.set_rng_state(state)
print(torch.equal(a, torch.randn(3)), state.dtype, state.shape)
with torch.random.fork_rng(devices=[]):
    torch.manual_seed(123)
    inside = torch.rand(1)
after = torch.rand(1)
torch.set_rng_state(state)
torch.randn(3)
print(inside, torch.equal(after, torch.rand(1)))

print("-- dropout and initial weights")
torch.manual_seed(3)
print(torch.nn.functional.dropout(torch.ones(8), 0.5))
weight = torch.empty(3, 2)
bound = (6 / 5) ** 0.5
print(weight.uniform_(-bound, bound))
order = torch.randperm(5)
data = torch.arange(5) * 10
print(data[order], order.argsort())
print(torch.randn(4, 4).clamp(-1, 1).abs().sum())
