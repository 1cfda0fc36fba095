"""Sequence to sequence: packed bidirectional encoder, additive attention, teacher forcing, search."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

PAD, SOS, EOS = 0, 1, 2


class Encoder(nn.Module):
    def __init__(self, vocab, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hid, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * hid, hid)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(
            self.embedding(src), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, hidden = self.rnn(packed)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)
        return outputs, torch.tanh(self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1)))


class Attention(nn.Module):
    def __init__(self, hid):
        super().__init__()
        self.W = nn.Linear(3 * hid, hid)
        self.v = nn.Parameter(torch.rand(hid))

    def forward(self, hidden, outputs, mask):
        hidden = hidden.unsqueeze(1).repeat(1, outputs.shape[1], 1)
        energy = torch.tanh(self.W(torch.cat((hidden, outputs), dim=2)))
        scores = torch.einsum("bth,h->bt", energy, self.v).masked_fill(mask == 0, -1e10)
        return F.softmax(scores, dim=1)


class Decoder(nn.Module):
    def __init__(self, vocab, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.attention = Attention(hid)
        self.rnn = nn.GRUCell(emb + 2 * hid, hid)
        self.out = nn.Linear(emb + 3 * hid, vocab)

    def forward(self, token, hidden, outputs, mask):
        embedded = self.embedding(token)
        a = self.attention(hidden, outputs, mask)
        context = torch.bmm(a.unsqueeze(1), outputs).squeeze(1)
        hidden = self.rnn(torch.cat((embedded, context), dim=1), hidden)
        return self.out(torch.cat((hidden, context, embedded), dim=1)), hidden, a


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, src, lengths, trg, teacher_forcing_ratio=0.5):
        batch, steps = trg.shape
        outputs = torch.zeros(batch, steps, self.decoder.out.out_features, device=src.device)
        encoded, hidden = self.encoder(src, lengths)
        mask = (src != PAD).long()
        token = trg[:, 0]
        for t in range(1, steps):
            output, hidden, _ = self.decoder(token, hidden, encoded, mask)
            outputs[:, t] = output
            teacher = random.random() < teacher_forcing_ratio
            token = trg[:, t] if teacher else output.argmax(1)
        return outputs


def collate(pairs):
    src, trg = zip(*pairs)
    lengths = torch.tensor([len(s) for s in src])
    return (
        pad_sequence(src, batch_first=True, padding_value=PAD),
        lengths,
        pad_sequence(trg, True, PAD),
    )


random.seed(0)
torch.manual_seed(0)
data = []
for _ in range(16):
    words = torch.randint(3, 12, (random.randint(2, 6),))
    src = torch.cat([words, torch.tensor([EOS])])
    data.append((src, torch.cat([torch.tensor([SOS]), words.flip(0), torch.tensor([EOS])])))
loader = DataLoader(data, batch_size=8, collate_fn=collate, shuffle=False)

model = Seq2Seq(Encoder(12, 8, 16), Decoder(12, 8, 16))
for name, param in model.named_parameters():
    if "weight" in name and param.dim() > 1:
        nn.init.xavier_uniform_(param.data)
optimizer = optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
for epoch in range(3):
    model.train()
    for src, lengths, trg in loader:
        optimizer.zero_grad()
        output = model(src, lengths, trg)
        loss = criterion(output[:, 1:].reshape(-1, output.shape[-1]), trg[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} {tuple(src.shape)}")
print(model.encoder.embedding.weight.grad[PAD].abs().sum())

model.eval()
with torch.no_grad():
    src, lengths, _ = collate(data[:3])
    encoded, hidden = model.encoder(src, lengths)
    token = torch.full((3,), SOS)
    done = torch.zeros(3, dtype=torch.bool)
    weights = []
    for _ in range(6):
        logits, hidden, a = model.decoder(token, hidden, encoded, src != PAD)
        token = logits.argmax(-1).masked_fill(done, PAD)
        done |= token == EOS
        weights.append(a)
        if done.all():
            break
    weights = torch.stack(weights, 1)
    print(weights.shape, weights.sum(-1).allclose(torch.ones(1)), weights[0, 0, lengths[0] :])
