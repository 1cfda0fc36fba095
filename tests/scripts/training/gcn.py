"""Graph convolutions three ways: sparse matrix, dense matrix, index_add/scatter; all agree."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.spmm(adj, support) if adj.is_sparse else adj @ support
        return output if self.bias is None else output + self.bias

    def __repr__(self):
        return f"{self.__class__.__name__} ({self.in_features} -> {self.out_features})"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass, bias=False)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


class EdgeConv(nn.Module):
    """Message passing with edge_index: mean of the neighbours, and their maximum."""

    def __init__(self, nin, nout):
        super().__init__()
        self.own, self.other = nn.Linear(nin, nout), nn.Linear(2 * nin, nout, bias=False)

    def forward(self, x, edge_index):
        source, dest = edge_index
        degree = torch.zeros(x.size(0)).index_add_(0, dest, torch.ones(dest.numel()))
        mean = torch.zeros_like(x).index_add(0, dest, x[source]) / degree.clamp(min=1)[:, None]
        index = dest.unsqueeze(-1).expand(-1, x.size(1))
        most = torch.full_like(x, float("-inf")).scatter_reduce(0, index, x[source], "amax")
        most = most.masked_fill(torch.isinf(most), 0)
        return self.own(x) + self.other(torch.cat([mean, most], -1))


np.random.seed(42)
torch.manual_seed(42)
n = 20
pairs = np.random.randint(0, n, size=(40, 2))
edge_index = torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]).T.copy()).long()
values = torch.ones(edge_index.shape[1])
adj = torch.sparse_coo_tensor(edge_index, values, (n, n)).coalesce().to_dense().clamp(max=1)
adj = adj + torch.eye(n)
d_inv_sqrt = adj.sum(1).pow(-0.5)
d_inv_sqrt[torch.isinf(d_inv_sqrt)] = 0.0
adj = d_inv_sqrt[:, None] * adj * d_inv_sqrt[None, :]
sparse = adj.to_sparse()
print(sparse.is_sparse, sparse._nnz(), sparse.shape, sparse.indices()[:, :4])
features, labels = torch.randn(n, 8), torch.randint(0, 3, (n,))
labels[:3] = torch.arange(3)
idx_train, idx_val = torch.LongTensor(range(12)), torch.LongTensor(range(12, n))

for name, matrix in {"dense": adj, "sparse": sparse}.items():
    torch.manual_seed(7)
    model = GCN(8, 16, labels.max().item() + 1, dropout=0.5)
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(4):
        model.train()
        optimizer.zero_grad()
        output = model(features, matrix)
        loss = F.nll_loss(output[idx_train], labels[idx_train])
        loss.backward()
        optimizer.step()
        preds = output[idx_val].max(1)[1].type_as(labels)
        acc = preds.eq(labels[idx_val]).double().sum() / len(idx_val)
        print(f"{name} {epoch:04d} loss_train: {loss.item():.4f} acc: {acc.item():.4f}")
print(model)

net = nn.ModuleList([EdgeConv(8, 16), EdgeConv(16, 3)])
opt = optim.Adagrad(net.parameters(), lr=0.05)
for epoch in range(3):
    h = F.elu(net[0](features, edge_index))
    loss = F.cross_entropy(net[1](h, edge_index)[idx_train], labels[idx_train])
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"edges {epoch} {loss.item():.4f}")
