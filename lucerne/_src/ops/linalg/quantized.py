"""A linear layer whose weight is stored in 8 or 4 bits.

The weight is *codes* and what they stand for, by groups of columns of a row:

    weight[i, j] = (number of code[i, j]) * scale of (i, j // group_size)  (+ base of the same)

The number of a code is `code - 128` (int8), `code - 8` (int4) or the float8 it is. `base` is there
where zero does not lie in the middle of the codes: a zero point z is `(middle - z) * scale`.

Codes lie as machines with dot products read them (x86's VNNI and AMX, ARM's dot): panels of 16
rows of the weight, in them steps, in each step 16 words of 4 bytes, one for each row. A word holds
four columns in 8 bits, or eight in 4: columns 0 to 3 in the low halves of its bytes, 4 to 7 in the
high ones. So a panel is read from its first byte to its last, whatever the number of rows of the
input is, and no engine needs a copy in another order. Scales and bases lie alike: (panels, groups,
16), so that they come along with the codes they belong to. Bodies undo the order with views.
"""

from __future__ import annotations

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import need
from lucerne._src.ops.copy.join import stack

INT8, INT4, FLOAT8 = "int8", "int4", "float8_e4m3fn"
MIDDLE = {INT8: 128, INT4: 8}
"""The code of zero where `base` is not given."""
PANEL = 16
"""Rows of the weight that lie side by side."""
COLUMNS = {INT8: 4, INT4: 8, FLOAT8: 4}
"""Columns in one word."""
LEAST = 1e-30
"""A row of zeros is rounded, for `dynamic`, as if this were its largest number."""
MOST_CODE = 127


def panels_of(rows: int) -> int:
    """How many panels hold so many rows of a weight."""
    return -(-rows // PANEL)


def steps_of(columns: int, stored: str) -> int:
    """How many words a row of so many columns has."""
    return -(-columns // COLUMNS[stored])


def arranged(codes: Tensor, stored: str) -> Tensor:
    """Codes (rows, columns), one in each byte, in the order of panels.

    >>> import lucerne as torch
    >>> arranged(torch.zeros(20, 16, dtype=torch.uint8), "int4").shape
    torch.Size([2, 2, 16, 4])
    """
    rows, columns = codes.shape
    per = COLUMNS[stored]
    panels, steps = panels_of(rows), steps_of(columns, stored)
    whole = codes.new_full((panels * PANEL, steps * per), MIDDLE.get(stored, 0))
    whole[:rows, :columns] = codes
    if stored == INT4:
        halves = whole.reshape(panels, PANEL, steps, 2, 4).permute(3, 0, 2, 1, 4)
        return (halves[0] | halves[1] << 4).contiguous()
    return whole.reshape(panels, PANEL, steps, 4).permute(0, 2, 1, 3).contiguous()


def laid_out(codes: Tensor, rows: int, columns: int, stored: str) -> Tensor:
    """The codes (rows, columns) again: what `arranged` was given."""
    panels, steps = codes.shape[:2]
    if stored == INT4:
        words = stack((codes & 15, codes >> 4), 3).permute(0, 2, 1, 3, 4)
    else:
        words = codes.permute(0, 2, 1, 3)
    return words.reshape(panels * PANEL, steps * COLUMNS[stored])[:rows, :columns]


def arranged_scales(numbers: Tensor) -> Tensor:
    """Numbers of (rows, groups) in the order of panels."""
    rows, groups = numbers.shape
    whole = numbers.new_zeros((panels_of(rows) * PANEL, groups))
    whole[:rows] = numbers
    return whole.reshape(-1, PANEL, groups).transpose(1, 2).contiguous()


def _scales_of(scale: Tensor, rows: int) -> Tensor:
    """The same as (rows, groups, 1) again."""
    turned = scale.transpose(1, 2).reshape(scale.shape[0] * PANEL, scale.shape[1], 1)
    return turned[:rows]


def numbers_of(codes: Tensor, stored: str) -> Tensor:
    """What codes stand for before they are scaled."""
    if stored == FLOAT8:
        return codes.contiguous().view(dt.float8_e4m3fn).to(dt.float32)
    return codes.to(dt.float32) - MIDDLE[stored]


def dequantized(
    codes: Tensor, scale: Tensor, base: Tensor | None, rows: int, columns: int, group_size: int,
    stored: str,
) -> Tensor:  # fmt: skip
    """The weight as float32."""
    numbers = numbers_of(laid_out(codes, rows, columns, stored), stored)
    grouped = numbers.reshape(rows, scale.shape[1], group_size) * _scales_of(scale, rows)
    if base is not None:
        grouped = grouped + _scales_of(base, rows)
    return grouped.reshape(rows, columns)


def _meta(
    input: TensorMeta, codes: TensorMeta, scale: TensorMeta, base: TensorMeta | None,
    bias: TensorMeta | None, rows: int, group_size: int, stored: str, dynamic: bool,
) -> TensorMeta:  # fmt: skip
    need(stored in COLUMNS, lambda: f"quantized_linear: codes are {list(COLUMNS)}, not {stored!r}")
    need(
        not dynamic or stored != FLOAT8,
        lambda: "quantized_linear: rows in 8 bits go with codes that are integers, not float8",
    )
    need(
        input.ndim > 0 and input.dtype.category == dt.FLOAT,
        lambda: f"quantized_linear: expected rows of floats, got {input.dtype} of {input.shape}",
    )
    columns, panels = input.shape[-1], panels_of(rows)
    need(
        scale.ndim == 3
        and (scale.shape[0], scale.shape[2]) == (panels, PANEL)
        and scale.shape[1] * group_size == columns,
        lambda: (
            f"quantized_linear: scales {list(scale.shape)} of groups of {group_size} are not those "
            f"of a weight with {rows} rows and {columns} columns"
        ),
    )
    shape = (panels, steps_of(columns, stored), PANEL, 4)
    need(
        codes.dtype is dt.uint8 and codes.shape == shape,
        lambda: (
            f"quantized_linear: expected codes of uint8 {list(shape)}, got {codes.dtype} "
            f"{list(codes.shape)}"
        ),
    )
    need(
        base is None or base.shape == scale.shape,
        lambda: "quantized_linear: `base` has a number wherever `scale` has one",
    )
    need(
        bias is None or bias.shape == (rows,),
        lambda: f"quantized_linear: expected {rows} numbers as bias, got {bias}",
    )
    return make_meta(input.dtype, (*input.shape[:-1], rows), None, input.device)


def _input_gradient(
    g: Tensor, codes: Tensor, scale: Tensor, base: Tensor | None, input_meta: TensorMeta,
    rows: int, group_size: int, stored: str,
) -> Tensor:  # fmt: skip
    weight = dequantized(codes, scale, base, rows, input_meta.shape[-1], group_size, stored)
    return g @ weight.to(g.dtype)


@composite(
    internal=True,
    out=False,
    meta=_meta,
    vjp={
        "input": _input_gradient,
        "bias": lambda g, bias_meta: g.reshape(-1, bias_meta.shape[0]).sum(0),
    },
)
def quantized_linear(
    input: Tensor,
    codes: Tensor,
    scale: Tensor,
    base: Tensor | None,
    bias: Tensor | None,
    rows: int,
    group_size: int,
    stored: str,
    dynamic: bool,
) -> Tensor:
    """`input @ weight.T + bias` of a weight in codes; see the head of the file.

    `dynamic`: rows of the input are rounded to 8 bits first, each with a step of its own.
    """
    wide = input.to(dt.float32)
    weight = dequantized(codes, scale, base, rows, input.shape[-1], group_size, stored)
    if dynamic:
        most = wide.abs().amax(-1, keepdim=True).clamp(min=LEAST)
        made = ((wide * (MOST_CODE / most)).round() @ weight.t()) * (most / MOST_CODE)
    else:
        made = wide @ weight.t()
    if bias is not None:
        made = made + bias.to(dt.float32)
    return made.to(input.dtype)
