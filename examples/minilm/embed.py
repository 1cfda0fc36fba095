"""How alike are these sentences? Embeddings of a pretrained MiniLM, and the same from PyTorch.

python examples/minilm/embed.py "a first sentence" "a second one"
"""

import argparse
import importlib
import importlib.util
import time

import bert

SENTENCES = [
    "A cat sits on the window sill.",
    "The kitten is resting by the window.",
    "Interest rates rose again this quarter.",
    "The central bank has raised its rates.",
    "How do I bake a sourdough bread?",
]


def embed(name, sentences):
    """Vectors of one framework as an array, and how long it took."""
    torch = importlib.import_module(name)
    folder = bert.model_folder()
    model = bert.encoder(torch, folder)
    tokens, mask = bert.batch(torch, bert.WordPiece(folder / "vocab.txt"), sentences)
    with torch.no_grad():
        start = time.perf_counter()
        vectors = model(tokens, mask)
        return vectors.numpy(), time.perf_counter() - start


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("sentences", nargs="*", default=SENTENCES)
parser.add_argument("--framework", choices=["lucerne", "torch"], default="lucerne")
args = parser.parse_args()
vectors, seconds = embed(args.framework, args.sentences)
for sentence, row in zip(args.sentences, vectors @ vectors.T, strict=True):
    print("  ".join(f"{x:5.2f}" for x in row), " ", sentence)
print(f"{args.framework}: {len(vectors)} sentences in {seconds * 1000:.0f} ms (first call)")
if args.framework == "lucerne" and importlib.util.find_spec("torch"):
    theirs, _ = embed("torch", args.sentences)
    print(f"largest difference from PyTorch's embeddings: {abs(vectors - theirs).max():.1e}")
