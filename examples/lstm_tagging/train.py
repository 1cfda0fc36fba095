"""A bidirectional LSTM that names the part of speech of every word.

python examples/lstm_tagging/train.py --steps 200
"""

import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import common

args = common.options(
    "part-of-speech tagging of sentences from a small grammar",
    steps=200, batch=32, width=32, hidden=48, layers=1, rate=5e-3, show=3,
)  # fmt: skip
torch = common.framework(args)
nn, F, rnn = torch.nn, torch.nn.functional, torch.nn.utils.rnn

# Many words belong to several lists: only their neighbours tell which one is meant.
GRAMMAR = {
    "sentence": ["noun_phrase verb_phrase", "noun_phrase verb_phrase and sentence"],
    "noun_phrase": ["DET NOUN", "DET ADJ NOUN", "PRON", "DET NOUN PREP noun_phrase"],
    "verb_phrase": ["VERB", "VERB noun_phrase", "AUX VERB noun_phrase", "VERB ADV"],
    "and": ["CONJ"],
}
WORDS = {
    "DET": "the a this that every",
    "NOUN": "light can watch duck saw fish play will dog park house man",
    "ADJ": "light fast warm round old happy that",
    "PRON": "she he they it that this",
    "VERB": "light can watch duck saw fish play see park house like round",
    "AUX": "can will may must",
    "ADV": "fast well today round",
    "PREP": "in by like round with",
    "CONJ": "and but",
}
TAGS = list(WORDS)
VOCABULARY = sorted({word for words in WORDS.values() for word in words.split()})
LONGEST = 16


def sentence(draw, symbol="sentence"):
    """A random derivation: pairs of a word and its tag."""
    if symbol in WORDS:
        return [(draw.choice(WORDS[symbol].split()), symbol)]
    rule = draw.choice(GRAMMAR[symbol])
    return [pair for part in rule.split() for pair in sentence(draw, part)]


def sentences(draw, count):
    found = []
    while len(found) < count:
        made = sentence(draw)
        found += [made] * (len(made) <= LONGEST)
    return found


def tensors(pairs):
    """Words, tags (-1 beyond the end) and lengths of a batch of sentences."""
    words = [torch.tensor([VOCABULARY.index(w) for w, _ in s]) for s in pairs]
    tags = [torch.tensor([TAGS.index(t) for _, t in s]) for s in pairs]
    lengths = [len(s) for s in pairs]
    return rnn.pad_sequence(words, True), rnn.pad_sequence(tags, True, -1), lengths


class Tagger(nn.Module):
    """Words as vectors, read in both directions, then a guess for each."""

    def __init__(self, width, hidden, layers):
        super().__init__()
        self.word = nn.Embedding(len(VOCABULARY), width)
        self.read = nn.LSTM(width, hidden, layers, batch_first=True, bidirectional=True)
        self.guess = nn.Linear(2 * hidden, len(TAGS))

    def forward(self, words, lengths):
        packed = rnn.pack_padded_sequence(self.word(words), lengths, True, enforce_sorted=False)
        seen, _ = rnn.pad_packed_sequence(self.read(packed)[0], batch_first=True)
        return self.guess(seen)


def accuracy(scores, tags):
    right = (scores.argmax(-1) == tags)[tags >= 0]
    return right.float().mean().item()


draw = random.Random(args.seed)
model = Tagger(args.width, args.hidden, args.layers)
optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)

run = common.Run(args)
run.initial(model)
run.initial(model)
for _ in run:
    words, tags, lengths = tensors(sentences(draw, args.batch))
    loss = F.cross_entropy(model(words, lengths).flatten(0, 1), tags.flatten(), ignore_index=-1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.loss(loss)

with torch.no_grad():
    unseen = sentences(random.Random(args.seed + 1), 200)
    words, tags, lengths = tensors(unseen)
    scores = model.eval()(words, lengths)
run.note(accuracy=round(accuracy(scores, tags), 4))
run.finish()
for made, guessed in list(zip(unseen, scores.argmax(-1).tolist(), strict=True))[: args.show]:
    print(" ".join(f"{word}/{TAGS[tag]}" for (word, _), tag in zip(made, guessed, strict=False)))
