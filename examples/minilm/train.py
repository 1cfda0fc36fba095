"""Fine-tune a pretrained MiniLM: sentences that mean the same move together, others apart.

python examples/minilm/train.py --steps 20
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import bert
import common

PAIRS = [
    ("A cat sits on the window sill.", "The kitten rests by the window."),
    ("Interest rates rose again.", "The central bank has raised its rates."),
    ("How do I bake a sourdough bread?", "A recipe for bread with natural yeast."),
    ("The train to Lucerne is late.", "There is a delay on the line to Lucerne."),
    ("She plays the cello in an orchestra.", "The cellist is part of an ensemble."),
    ("It rained all night.", "The rain did not stop until the morning."),
    ("He repaired the old bicycle.", "The bike works again, thanks to him."),
    ("The experiment failed twice.", "Two attempts gave no result."),
]

args = common.options("fine-tune a sentence encoder", steps=20, rate=0.05, temperature=0.3)
torch = common.framework(args)
F = torch.nn.functional
folder = bert.model_folder()
model = bert.encoder(torch, folder)
model.word.requires_grad_(False)  # the words keep their vectors; the layers learn
tokenizer = bert.WordPiece(folder / "vocab.txt")
left = bert.batch(torch, tokenizer, [a for a, _ in PAIRS])
right = bert.batch(torch, tokenizer, [b for _, b in PAIRS])
learning = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(learning, lr=args.rate)
partner = torch.arange(len(PAIRS))
run = common.Run(args)
run.initial(model)
for _ in run:
    scores = model(*left) @ model(*right).T / args.temperature  # (pairs, pairs)
    loss = F.cross_entropy(scores, partner)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.loss(loss)
run.finish()
