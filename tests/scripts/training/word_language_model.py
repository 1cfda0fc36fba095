"""A word-level language model: LSTM or GRU, tied weights, carried hidden state, clipped gradients."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1111)

TEXT = (
    "the boat left the harbour at dawn and the gulls followed the boat until the island\n"
    "nobody on the island had seen the boat before and nobody had seen the gulls leave\n"
    "at dawn the harbour was empty and the gulls were gone\n"
) * 3


class Dictionary:
    def __init__(self):
        self.word2idx = {}
        self.idx2word = []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


def tokenize(text, dictionary):
    idss = []
    for line in text.splitlines():
        ids = [dictionary.add_word(word) for word in line.split() + ["<eos>"]]
        idss.append(torch.tensor(ids).type(torch.int64))
    return torch.cat(idss)


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.2, tie_weights=False):
        super().__init__()
        self.ntoken, self.nhid, self.nlayers, self.rnn_type = ntoken, nhid, nlayers, rnn_type
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            if nhid != ninp:
                raise ValueError("When using the tied flag, nhid must be equal to emsize")
            self.decoder.weight = self.encoder.weight
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return F.log_softmax(decoded.view(-1, self.ntoken), dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        if self.rnn_type == "LSTM":
            return (
                weight.new_zeros(self.nlayers, bsz, self.nhid),
                weight.new_zeros(self.nlayers, bsz, self.nhid),
            )
        return weight.new_zeros(self.nlayers, bsz, self.nhid)


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt=7):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


corpus = Dictionary()
train_data = batchify(tokenize(TEXT, corpus), 4)
print(train_data.shape, len(corpus))

for kind in ["LSTM", "GRU"]:
    model = RNNModel(kind, len(corpus), 16, 16, 2, tie_weights=True)
    criterion = nn.NLLLoss()
    print(sum(p.numel() for p in model.parameters()), model.decoder.weight is model.encoder.weight)
    lr = 2.0
    for epoch in range(2):
        model.train()
        hidden = model.init_hidden(4)
        for batch, i in enumerate(range(0, train_data.size(0) - 1, 7)):
            data, targets = get_batch(train_data, i)
            model.zero_grad()
            hidden = repackage_hidden(hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
            cur, ppl = loss.item(), math.exp(loss.item())
            print(f"{kind} {epoch} {batch} | loss {cur:5.4f} | ppl {ppl:8.2f} | norm {norm:.4f}")
        lr /= 4.0

model.eval()
torch.manual_seed(3)
hidden, words = model.init_hidden(1), []
token = torch.randint(len(corpus), (1, 1), dtype=torch.long)
with torch.no_grad():
    for _ in range(8):
        output, hidden = model(token, hidden)
        token.fill_(torch.multinomial(output.squeeze().div(1.0).exp().cpu(), 1)[0])
        words.append(corpus.idx2word[token])
print(" ".join(words))
