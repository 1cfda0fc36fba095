"""A VAE whose prior, posterior and likelihood are distributions; a Gaussian mixture besides."""

import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Independent, MixtureSameFamily, Normal, kl_divergence


class VAE(nn.Module):
    def __init__(self, data=36, hidden=24, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(data, hidden), nn.ELU(), nn.Linear(hidden, hidden))
        self.mu = nn.Linear(hidden, latent)
        self.log_var = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.Softplus(), nn.Linear(hidden, data)
        )
        self.register_buffer("prior_loc", torch.zeros(latent))
        self.register_buffer("prior_scale", torch.ones(latent))

    @property
    def prior(self):
        return Normal(self.prior_loc, self.prior_scale)

    def encode(self, x):
        h = self.encoder(x.flatten(1))
        return Normal(self.mu(h), torch.exp(0.5 * self.log_var(h)))

    def decode(self, z):
        return Independent(D.Bernoulli(logits=self.decoder(z)), 1)

    def forward(self, x):
        q = self.encode(x)
        z = q.rsample()
        return self.decode(z), q

    def loss(self, x, beta=1.0):
        p, q = self(x)
        log_likelihood = p.log_prob(x.flatten(1))
        kl = kl_divergence(q, self.prior).sum(-1)
        return (beta * kl - log_likelihood).mean(), -log_likelihood.mean(), kl.mean()


torch.manual_seed(0)
x = (torch.rand(16, 1, 6, 6) > torch.linspace(0, 1, 6)).float()
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(5):
    optimizer.zero_grad()
    loss, nll, kl = model.loss(x, beta=min(1.0, (step + 1) / 4))
    loss.backward()
    optimizer.step()
    print(f"step {step}: elbo {-loss.item():.4f} nll {nll.item():.4f} kl {kl.item():.4f}")

with torch.no_grad():
    sample = model.decode(model.prior.sample((3,))).mean.view(3, 6, 6)
    print(sample.shape, bool((sample >= 0).all() and (sample <= 1).all()), model.prior)

q = model.encode(x)
closed = -0.5 * (1 + 2 * q.scale.log() - q.loc.pow(2) - q.scale.pow(2)).sum(1)
print(torch.allclose(closed, kl_divergence(q, model.prior).sum(1), atol=1e-5))
reconstruction = F.binary_cross_entropy_with_logits(
    model.decoder(q.mean), x.flatten(1), reduction="none"
)
print(reconstruction.sum(-1).shape, sorted(model.state_dict())[-2:])

# A mixture fitted by gradient descent on unconstrained parameters.
torch.manual_seed(1)
points = torch.cat([torch.randn(40) * 0.5 - 2, torch.randn(40) + 2])
logits = nn.Parameter(torch.zeros(2))
loc = nn.Parameter(torch.tensor([-1.0, 1.0]))
log_scale = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.Adam([logits, loc, log_scale], lr=0.1)
for step in range(4):
    mixture = MixtureSameFamily(D.Categorical(logits=logits), Normal(loc, log_scale.exp()))
    loss = -mixture.log_prob(points).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"mixture {step}: {loss.item():.4f}")
print(loc.data.round(decimals=3), log_scale.detach().exp().round(decimals=3))

full = D.MultivariateNormal(torch.zeros(2), torch.tensor([[2.0, 0.5], [0.5, 1.0]]))
print(full.log_prob(torch.ones(2)), full.entropy(), full.rsample((2,)).shape)
print(D.Beta(2.0, 3.0).mean, D.Gamma(2.0, 1.0).variance, D.Dirichlet(torch.ones(3)).sample().sum())
try:
    Normal(torch.zeros(2), torch.tensor([1.0, -1.0]))
except ValueError as error:
    print(type(error).__name__, str(error).splitlines()[0][:60])
