"""Classic mistakes: what is made, the arguments, the line that is wrong, and what an error must say.

`setup` makes what the line uses; `arguments` are the arguments of a function whose third line is
`line`. `module`: the path and description that the error must name, "" if no module is called.
`said`: shapes (or what else met), and what to try, that its text or its notes must show.
"""

# ruff: noqa: E501 (a table: one row is one line)
from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    name: str
    line: str
    arguments: dict[str, str]
    said: tuple[str, ...]
    module: str = ""
    setup: str = ""


def _floats(**shapes: tuple[int, ...]) -> dict[str, str]:
    return {name: f"torch.ones({shape})" for name, shape in shapes.items()}


def _longs(*values: int) -> str:
    return f"torch.tensor({list(values)})"


def _ops() -> list[Mistake]:
    a, b, c = (2, 3), (4, 5), (2, 3, 4)
    two = _floats(x=a, y=b)
    shown = ("[2, 3]", "[4, 5]")
    one, three = _floats(x=a), _floats(x=c)
    return [
        Mistake("add", "z = x + y", two, shown),
        Mistake("sub", "z = x - y", two, shown),
        Mistake("mul", "z = x * y", two, shown),
        Mistake("div", "z = x / y", two, shown),
        Mistake("pow", "z = x ** y", two, shown),
        Mistake("less", "z = x < y", two, shown),
        Mistake("maximum", "z = torch.maximum(x, y)", two, shown),
        Mistake("where", "z = torch.where(x > 0, x, y)", two, shown),
        Mistake("lerp", "z = torch.lerp(x, y, 0.5)", two, shown),
        Mistake("atan2", "z = torch.atan2(x, y)", two, shown),
        Mistake("add_method", "z = x.add(y, alpha=2)", two, shown),
        Mistake("matmul", "z = x @ y", two, shown),
        Mistake("mm", "z = torch.mm(x, y)", two, shown),
        Mistake("mm_dims", "z = torch.mm(x, y)", _floats(x=c, y=b), ("[2, 3, 4]", "[4, 5]")),
        Mistake("bmm", "z = torch.bmm(x, y)", _floats(x=c, y=c), ("[2, 3, 4]",)),
        Mistake("mv", "z = torch.mv(x, y)", _floats(x=a, y=(4,)), ("[2, 3]", "[4]")),
        Mistake("dot", "z = torch.dot(x, y)", _floats(x=(3,), y=(4,)), ("[3]", "[4]")),
        Mistake("addmm", "z = torch.addmm(x, x, y)", two, shown),
        Mistake("einsum", "z = torch.einsum('ij,jk->ik', x, y)", two, shown),
        Mistake("einsum_letters", "z = torch.einsum('ijk->i', x)", one, ("[2, 3]",)),
        Mistake("cat", "z = torch.cat([x, y])", two, shown),
        Mistake("cat_dim", "z = torch.cat([x, x], dim=2)", one, ("[2, 3]",)),
        Mistake("stack", "z = torch.stack([x, y])", two, shown),
        Mistake("view", "z = x.view(4, 2)", one, ("[2, 3]", "4, 2")),
        Mistake("reshape", "z = x.reshape(5, -1)", one, ("[2, 3]", "5, -1")),
        Mistake("view_strides", "z = x.t().view(-1)", one, ("[3, 2]",)),
        Mistake("permute", "z = x.permute(0, 2, 1)", one, ("[2, 3]", "0, 2, 1")),
        Mistake("transpose", "z = x.transpose(1, 2)", one, ("[2, 3]", "2")),
        Mistake("t", "z = x.t()", three, ("[2, 3, 4]",)),
        Mistake("unsqueeze", "z = x.unsqueeze(4)", one, ("[2, 3]", "4")),
        Mistake("expand", "z = x.expand(2, 5)", one, ("[2, 3]", "2, 5")),
        Mistake("split", "z = x.split([1, 1, 1])", one, ("[2, 3]", "1, 1, 1")),
        Mistake("select", "z = x.select(0, 7)", one, ("[2, 3]", "7")),
        Mistake("narrow", "z = x.narrow(1, 2, 3)", one, ("[2, 3]",)),
        Mistake("number", "z = x[5]", one, ("[2, 3]", "5")),
        Mistake("too_many", "z = x[0, 0, 0]", one, ("[2, 3]",)),
        Mistake("index", "z = x[y]", one | {"y": _longs(0, 9)}, ("[2, 3]", "9")),
        Mistake("mask", "z = x[y]", {**one, "y": "torch.ones(3, 3) > 0"}, ("[2, 3]", "[3, 3]")),
        Mistake("index_float", "z = x[y]", _floats(x=a, y=(2,)), ("[2, 3]", "float32[2]")),
        Mistake("index_select", "z = x.index_select(0, y)", one | {"y": _longs(4)}, ("[2, 3]",)),
        Mistake("gather", "z = x.gather(1, y)", one | {"y": "torch.tensor([[5]])"}, ("[2, 3]", "5")),
        Mistake("gather_dims", "z = x.gather(1, y)", one | {"y": _longs(1)}, ("[2, 3]", "int64[1]")),
        Mistake("take", "z = x.take(y)", one | {"y": _longs(9)}, ("[2, 3]", "int64[1]")),
        Mistake("sum_dim", "z = x.sum(dim=3)", one, ("[2, 3]", "3")),
        Mistake("mean_longs", "z = x.mean()", {"x": _longs(1, 2)}, ("int64[2]",)),
        Mistake("softmax_dim", "z = x.softmax(2)", one, ("[2, 3]", "2")),
        Mistake("argmax_dim", "z = x.argmax(dim=2)", one, ("[2, 3]", "2")),
        Mistake("max_of_none", "z = x.max()", _floats(x=(0,)), ("[0]",)),
        Mistake("topk", "z = x.topk(7)", one, ("[2, 3]", "7")),
        Mistake("sort_dim", "z = x.sort(dim=2)", one, ("[2, 3]", "2")),
        Mistake("cumsum_dim", "z = x.cumsum(5)", one, ("[2, 3]", "5")),
        Mistake("masked_fill", "z = x.masked_fill(y > 0, 0.0)", two, shown),
        Mistake("inverse", "z = torch.linalg.inv(x)", one, ("[2, 3]",)),
        Mistake("cholesky", "z = torch.linalg.cholesky(x)", one, ("[2, 3]",)),
        Mistake("solve", "z = torch.linalg.solve(x, y)", _floats(x=(3, 3), y=(4, 1)), ("[3, 3]",)),
        Mistake("det", "z = torch.det(x)", one, ("[2, 3]",)),
        Mistake("item", "z = x.item()", one, ("[2, 3]",)),
        Mistake("truth", "z = 1 if x else 0", one, ("[2, 3]",)),
        Mistake("int", "z = int(x)", one, ("[2, 3]",)),
        Mistake("dtypes", "z = x @ y", _floats(x=a) | {"y": "torch.ones(3, 2).double()"}, ("double",)),
        Mistake("list", "z = torch.add(x, [1, 2, 3])", one, ("[2, 3]", "[1, 2, 3]")),
        Mistake("keyword", "z = torch.softmax(x, axes=1)", one, ("axes",)),
    ]  # fmt: skip


def _functions() -> list[Mistake]:
    image = _floats(x=(1, 3, 8, 8))
    scores = _floats(x=(2, 3))
    F = "nn.functional"
    return [
        Mistake("entropy_class", f"z = {F}.cross_entropy(x, y)", scores | {"y": _longs(1, 3)}, ("[2, 3]", "int64[2]")),
        Mistake("entropy_batch", f"z = {F}.cross_entropy(x, y)", scores | {"y": _longs(1, 1, 1)}, ("[2, 3]", "[3]")),
        Mistake("nll_class", f"z = {F}.nll_loss(x, y)", scores | {"y": _longs(9, 1)}, ("[2, 3]", "9")),
        Mistake("bce_shape", f"z = {F}.binary_cross_entropy(x, y)", _floats(x=(2, 3), y=(2,)), ("[2, 3]", "[2]")),
        Mistake("mse_shape", f"z = {F}.mse_loss(x, y)", _floats(x=(2, 3), y=(2, 4)), ("[2, 3]", "[2, 4]")),
        Mistake("one_hot", f"z = {F}.one_hot(x, 3)", {"x": _longs(1, 5)}, ("int64[2]", "3")),
        Mistake("linear", f"z = {F}.linear(x, y)", _floats(x=(2, 3), y=(4, 5)), ("[2, 3]", "[4, 5]")),
        Mistake("conv", f"z = {F}.conv2d(x, y)", image | _floats(y=(4, 2, 3, 3)), ("[1, 3, 8, 8]", "[4, 2, 3, 3]")),
        Mistake("conv_large", f"z = {F}.conv2d(x, y)", image | _floats(y=(4, 3, 9, 9)), ("[1, 3, 8, 8]", "[4, 3, 9, 9]")),
        Mistake("pool", f"z = {F}.max_pool2d(x, 9)", image, ("[1, 3, 8, 8]", "9")),
        Mistake("pad", f"z = {F}.pad(x, (9, 9, 9, 9), mode='reflect')", image, ("[1, 3, 8, 8]",)),
        Mistake("resize", f"z = {F}.interpolate(x, size=(4, 4, 4))", image, ("[1, 3, 8, 8]", "4, 4, 4")),
        Mistake("layer_norm", f"z = {F}.layer_norm(x, (4,))", scores, ("[2, 3]", "4")),
        Mistake("group_norm", f"z = {F}.group_norm(x, 2)", image, ("[1, 3, 8, 8]", "2")),
        Mistake("attention", f"z = {F}.scaled_dot_product_attention(x, y, y)", _floats(x=(1, 2, 3), y=(1, 2, 4)), ("[1, 2, 3]", "[1, 2, 4]")),
        Mistake("embedding", f"z = {F}.embedding(x, y)", {"x": _longs(7)} | _floats(y=(3, 2)), ("int64[1]", "[3, 2]")),
    ]  # fmt: skip


def _modules() -> list[Mistake]:
    nets = """
class Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, *more):
        return self.layer(x, *more)


class Bare(nn.Module):
    pass


class Lacks(nn.Module):
    def forward(self, x):
        return self.absent(x)


def deep(layer):
    return nn.Sequential(nn.Identity(), nn.ModuleDict({"body": Block(layer)})["body"])

"""
    image, rows = _floats(x=(1, 3, 8, 8)), _floats(x=(2, 3))
    steps = _floats(x=(5, 2, 3))
    made = [
        ("Linear(4, 5)", rows, "Linear(4 -> 5)", ("[2, 3]", "[5, 4]")),
        ("Bilinear(3, 4, 2)", rows, "Bilinear", ("[2, 3]",)),
        ("Conv1d(4, 2, 3)", _floats(x=(1, 3, 8)), "Conv1d(4 -> 2)", ("[1, 3, 8]", "[2, 4, 3]")),
        ("Conv2d(4, 2, 3)", image, "Conv2d(4 -> 2)", ("[1, 3, 8, 8]", "[2, 4, 3, 3]")),
        ("Conv2d(3, 2, 9)", image, "Conv2d(3 -> 2)", ("[1, 3, 8, 8]",)),
        ("Conv3d(3, 2, 3)", image, "Conv3d(3 -> 2)", ("[1, 3, 8, 8]",)),
        ("ConvTranspose2d(4, 2, 3)", image, "ConvTranspose2d(4 -> 2)", ("[1, 3, 8, 8]",)),
        ("MaxPool2d(9)", image, "MaxPool2d", ("[1, 3, 8, 8]",)),
        ("AdaptiveAvgPool2d((2, 2))", rows, "AdaptiveAvgPool2d", ("[2, 3]",)),
        ("BatchNorm1d(4)", rows, "BatchNorm1d", ("[2, 3]", "4")),
        ("BatchNorm2d(3)", rows, "BatchNorm2d", ("[2, 3]",)),
        ("BatchNorm2d(4)", image, "BatchNorm2d", ("[1, 3, 8, 8]", "4")),
        ("InstanceNorm2d(3)", rows, "InstanceNorm2d", ("[2, 3]",)),
        ("GroupNorm(2, 4)", image, "GroupNorm", ("[1, 3, 8, 8]", "4")),
        ("LayerNorm(4)", rows, "LayerNorm", ("[2, 3]", "4")),
        ("Embedding(3, 4)", {"x": _longs(1, 7)}, "Embedding(3 -> 4)", ("int64[2]", "[3, 4]")),
        ("Embedding(3, 4)", rows, "Embedding(3 -> 4)", ("float32[2, 3]", "[3, 4]")),
        ("EmbeddingBag(3, 4)", {"x": "torch.tensor([[1, 7]])"}, "EmbeddingBag(3 -> 4)", ("int64[1, 2]",)),
        ("RNN(4, 5)", steps, "RNN(4 -> 5)", ("[5, 2, 3]", "4")),
        ("LSTM(4, 5)", steps, "LSTM(4 -> 5)", ("[5, 2, 3]", "4")),
        ("GRU(4, 5)", steps, "GRU(4 -> 5)", ("[5, 2, 3]", "4")),
        ("LSTMCell(4, 5)", rows, "LSTMCell(4 -> 5)", ("[2, 3]", "4")),
        ("MultiheadAttention(4, 2)", steps, "MultiheadAttention", ("[5, 2, 3]",)),
        ("TransformerEncoderLayer(4, 2)", steps, "MultiheadAttention", ("[5, 2, 3]",)),
        ("Flatten(1, 5)", rows, "Flatten", ("[2, 3]", "5")),
        ("Unflatten(1, (2, 2))", rows, "Unflatten", ("[2, 3]", "2, 2")),
        ("PixelShuffle(2)", image, "PixelShuffle", ("[1, 3, 8, 8]", "2")),
        ("Softmax(3)", rows, "Softmax", ("[2, 3]", "3")),
        ("GLU()", rows, "GLU", ("[2, 3]",)),
        ("PReLU(2)", rows, "PReLU", ("[2, 3]", "[2]")),
    ]  # fmt: skip
    found = []
    for text, given, described, said in made:
        more = {"Bilinear": ", torch.ones(2, 5)", "MultiheadAttention": ", x, x"}
        line = f"z = net(x{more.get(text.partition('(')[0], '')})"
        inner = "" if "Transformer" not in text else ".self_attn"
        deep = "nn.Sequential" if "," in line else "deep"
        name = f"{text.partition('(')[0]} {len(found)}"
        if deep == "deep":
            found.append(
                Mistake(
                    name,
                    line,
                    given,
                    said,
                    f"net.1.layer{inner}: {described}",
                    f"{nets}net = deep(nn.{text})",
                )
            )
        else:
            found.append(
                Mistake(
                    name,
                    line,
                    given,
                    said,
                    f"net.layer{inner}: {described}",
                    f"{nets}net = Block(nn.{text})",
                )
            )
    net = f"{nets}net = Block(nn.Linear(3, 4))"
    shown = ("float32[2, 3]",)
    return [
        *found,
        Mistake("arguments", "z = net(x, x)", rows, shown, "net.layer: Linear(3 -> 4)", net),
        Mistake("a_list", "z = net([1.0, 2.0])", rows, ("list",), "net.layer: Linear(3 -> 4)", net),
        Mistake("a_double", "z = net(x.double())", rows, ("float64[2, 3]", "[4, 3]"), "net.layer: Linear(3 -> 4)", net),
        Mistake("no_forward", "z = net(x)", rows, shown, "net: Bare", f"{nets}net = Bare()"),
        Mistake("no_layer", "z = net(x)", rows, ("absent",), "net: Lacks", f"{nets}net = Lacks()"),
        Mistake("entropy", "z = loss(x, y)", rows | {"y": _longs(1, 9)}, ("[2, 3]", "int64[2]"), "loss: CrossEntropyLoss", "loss = nn.CrossEntropyLoss()"),
        Mistake("bce", "z = loss(x, y)", _floats(x=(2, 3), y=(2,)), ("[2, 3]", "[2]"), "loss: BCELoss", "loss = nn.BCELoss()"),
        Mistake("nll", "z = loss(x, y)", rows | {"y": _longs(1, 9)}, ("[2, 3]", "int64[2]"), "loss: NLLLoss", "loss = nn.NLLLoss()"),
        Mistake("mse", "z = loss(x, y)", _floats(x=(2, 3), y=(2, 4)), ("[2, 3]", "[2, 4]"), "loss: MSELoss", "loss = nn.MSELoss()"),
    ]  # fmt: skip


def _days() -> list[Mistake]:
    """What is met in a day's work, each with what to try."""
    net = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.encoder(x))


net = Net()
entropy = nn.CrossEntropyLoss()
F = nn.functional
"""
    mask = "net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), {})"
    function = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g
"""
    load = "from lucerne.utils.data import DataLoader"
    rows, classes, image = _floats(x=(5, 8)), "entropy: CrossEntropyLoss", _floats(x=(2, 3, 9, 9))
    grows = "torch.ones((3,), requires_grad=True)"
    ragged = {"x": "[torch.ones(3), torch.ones(4)]"}
    first, in_head = "net.encoder.0: Linear(8 -> 16)", "net.head: Linear(4 -> 3)"
    return [
        Mistake("loss_shape", "z = F.mse_loss(net(x), y)", _floats(x=(5, 8), y=(4, 3)), ("[5, 3]", "[4, 3]", "try making dimension 0 equal"), "", net),
        Mistake("target_floats", "z = entropy(net(x), y)", rows | _floats(y=(5,)), ("float32[5]", "try target.long()"), classes, net),
        Mistake("target_int32", "z = entropy(net(x), y)", rows | {"y": "torch.ones(5, dtype=torch.int32)"}, ("int32[5]", "try target.long()"), classes, net),
        Mistake("target_column", "z = entropy(net(x), y)", rows | {"y": "torch.ones(5, 1).long()"}, ("int64[5, 1]", "try target.squeeze(1)"), classes, net),
        Mistake("other_device", "z = net(x)", {"x": "torch.ones(5, 8, device='reference')"}, ("float32[5, 8] on reference", "try x.to(device)"), first, net),
        Mistake("no_cuda", "z = net.to('cuda')", rows, ("'cuda'", "try device = 'cuda' if torch.cuda.is_available()"), "", net),
        Mistake("in_double", "z = net(x)", {"x": "torch.ones(5, 8).double()"}, ("float64[5, 8]", "try x.to(weight.dtype), from double to float"), first, net),
        Mistake("in_half", "z = net.head.half()(net.encoder(x))", rows, ("float16[3, 4]", "from float to half"), in_head, net),
        Mistake("an_array", "z = net(x.numpy())", rows, ("input: ndarray", "Hint: torch.tensor"), first, net),
        Mistake("features", "z = net(x)", _floats(x=(5, 9)), ("[5, 9]", "try a layer with in_features=9 (a matrix with 9 rows) instead of 8"), first, net),
        Mistake("flattened", "z = net(x)", image, ("[2, 392]", "in_features=392"), "net.3: Linear(100 -> 2)", mask.format("nn.Flatten(), nn.Linear(100, 2)")),
        Mistake("channels", "z = net(x)", image, ("[2, 8, 7, 7]", "try in_channels=8 in this layer"), "net.2: Conv2d(16 -> 4)", mask.format("nn.Conv2d(16, 4, 3)")),
        Mistake("channels_last", "z = net(x)", _floats(x=(2, 9, 9, 3)), ("[2, 9, 9, 3]", "try x.permute(0, 3, 1, 2)"), "net.0: Conv2d(3 -> 8)", mask.format("nn.ReLU()")),
        Mistake("norm_channels", "z = net(x)", image, ("[2, 8, 7, 7]", "try num_features=8"), "net.2: BatchNorm2d", mask.format("nn.BatchNorm2d(4)")),
        Mistake("norm_of_one", "z = net(x)", _floats(x=(1, 4)), ("[1, 4]", "try a larger batch"), "net: BatchNorm1d", "net = nn.BatchNorm1d(4)"),
        Mistake("lstm_rank", "z = net(x)", _floats(x=(2, 3, 5, 4)), ("[2, 3, 5, 4]", "2D or 3D, got 4D"), "net: LSTM(4 -> 5)", "net = nn.LSTM(4, 5)"),
        Mistake("lstm_state", "z = net(x, (y, y))", _floats(x=(2, 3, 4), y=(1, 2, 5)), ("[1, 2, 5]", "(1, 3, 5)"), "net: LSTM(4 -> 5)", "net = nn.LSTM(4, 5)"),
        Mistake("embedding_row", "z = net(x)", {"x": _longs(1, 10)}, ("int64[2]", "[10, 4]", "try indices from 0"), "net: Embedding(10 -> 4)", "net = nn.Embedding(10, 4)"),
        Mistake("embedding_float", "z = net(x)", _floats(x=(2,)), ("float32[2]", "try x.long()"), "net: Embedding(10 -> 4)", "net = nn.Embedding(10, 4)"),
        Mistake("attention_mask", "z = net(x, x, x, attn_mask=y)", _floats(x=(5, 2, 8), y=(4, 4)), ("[4, 4]", "(5, 5)"), "net: MultiheadAttention", "net = nn.MultiheadAttention(8, 2)"),
        Mistake("cat_dims", "z = torch.cat([x, y], dim=1)", _floats(x=(2, 3), y=(2, 3, 1)), ("[2, 3, 1]", "try unsqueeze")),
        Mistake("stack_ragged", "z = torch.stack(x)", ragged, ("float32[4]", "try nn.utils.rnn.pad_sequence")),
        Mistake("einsum_output", "z = torch.einsum('ij,jk->il', x, y)", _floats(x=(2, 3), y=(3, 4)), ("subscript l", "[2, 3]", "[3, 4]")),
        Mistake("branch", "z = x if x > 0 else -x", _floats(x=(3,)), ("bool[3]", "try .any() or .all()")),
        Mistake("number_of_many", "z = float(x)", _floats(x=(2, 2)), ("[2, 2]", "try x.mean()")),
        Mistake("bce_range", "z = F.binary_cross_entropy(x, y)", {"x": "torch.ones(3) * 2"} | _floats(y=(3,)), ("float32[3]", "try torch.sigmoid(x)"), "", net),
        Mistake("leaf_in_place", "z = w.add_(x)", _floats(x=(3,)), ("float32[3]", "try with torch.no_grad()"), "", f"w = {grows}"),
        Mistake("no_graph", "z = net(x).detach().sum().backward()", rows, ("grad_fn", "try a loss that is computed from parameters"), "", net),
        Mistake("backward_of_many", "z = net(x).backward()", rows, ("scalar outputs", "try loss.mean().backward()"), "", net),
        Mistake("function_gradients", "z = Twice.apply(x, x * 2).sum().backward()", {"x": grows}, ("expected 2, got 1", "try 2 values from backward"), "", function),
        Mistake("ragged_batch", "z = list(DataLoader(x, batch_size=2))", ragged, ("float32[4]", "sample 1", "try nn.utils.rnn.pad_sequence"), "", load),
        Mistake("batch_of_none", "z = list(DataLoader(x, batch_size=2))", {"x": "[torch.ones(3), None]"}, ("NoneType", "sample 1", "try a dataset with a sample"), "", load),
        Mistake("ragged_list", "z = torch.tensor([[1, 2], [3]])", {}, ("length 2 at dim 1 (got 1)", "try rows of one length")),
        Mistake("wrong_state", "z = net.load_state_dict({'head.weight': x})", rows, ("head.weight", "[5, 8]", "[3, 4]"), "", net),
        Mistake("module_as_parameters", "z = torch.optim.SGD(net)", {}, ("'Net'", "Hint: pass its parameters()"), "", net),
        Mistake("no_parameters", "z = torch.optim.SGD([])", {}, ("empty parameter list", "try nn.ModuleList"), "", net),
        Mistake("computed_parameter", "z = torch.optim.SGD([x * 2])", {"x": grows}, ("non-leaf", "try x.detach().requires_grad_()"), "", net),
        Mistake("no_file", "z = torch.load('/nowhere/model.pt')", {}, ("/nowhere/model.pt",)),
        Mistake("list_of_modules", "z = net(x)", rows, ("float32[5, 8]", "try calling the modules in it"), "net: ModuleList", "net = nn.ModuleList([nn.Linear(8, 2)])"),
    ]  # fmt: skip


MISTAKES = [*_ops(), *_functions(), *_modules(), *_days()]
