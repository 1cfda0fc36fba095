"""The transformer: encoder, decoder, their layers, and both together."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.ir.dispatch import recording
from lucerne._src.tensor import api as lu
from lucerne.nn import functional as F
from lucerne.nn.init import xavier_uniform_
from lucerne.nn.modules.activation import GELU, ReLU
from lucerne.nn.modules.container import ModuleList
from lucerne.nn.modules.dropout import Dropout
from lucerne.nn.modules.linear import Linear
from lucerne.nn.modules.module import Module
from lucerne.nn.modules.multihead import MultiheadAttention, additive_mask
from lucerne.nn.modules.normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[lu.Tensor], lu.Tensor]


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> lu.Tensor:
    """Minus infinity above the diagonal: no position sees a later one."""
    mask: lu.Tensor = lu.full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)
    return mask


def _detect_is_causal_mask(
    mask: lu.Tensor | None, is_causal: bool | None, size: int | None
) -> bool:
    """Whether a mask is the causal one; what the caller says counts more than what is found."""
    if is_causal is not None or mask is None:
        return is_causal is True
    if recording():  # its values are not there to be looked at: the mask itself is used
        return False
    length = size if size is not None else mask.size(-2)
    causal = _generate_square_subsequent_mask(length, device=mask.device, dtype=mask.dtype)
    return mask.size() == causal.size() and bool(lu.equal(mask, causal))


def _get_seq_len(src: lu.Tensor, batch_first: bool) -> int:
    return src.size(1 if src.dim() == 3 and batch_first else 0)


def _get_activation_fn(activation: str) -> Callable[[lu.Tensor], lu.Tensor]:
    found: dict[str, Any] = {"relu": F.relu, "gelu": F.gelu}
    if activation not in found:
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    function: Callable[[lu.Tensor], lu.Tensor] = found[activation]
    return function


def _get_clones(module: Module, n: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


class _TransformerLayer(Module):
    """What both kinds of layer share: self-attention, a small network, norms and dropouts."""

    __constants__ = ["norm_first"]
    _attends_to_memory = False

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        attention: dict[str, Any] = {"dropout": dropout, "bias": bias, "batch_first": batch_first}
        both = self._attends_to_memory
        self.self_attn = MultiheadAttention(d_model, nhead, **attention, **made)
        if both:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **attention, **made)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        if both:
            self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        if both:
            self.dropout3 = Dropout(dropout)
        self._set_activation(activation)

    def _set_activation(self, activation: Activation) -> None:
        if isinstance(activation, str):
            activation = _get_activation_fn(activation)
        self.activation = activation

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def _sa_block(
        self,
        x: lu.Tensor,
        attn_mask: lu.Tensor | None,
        key_padding_mask: lu.Tensor | None,
        is_causal: bool = False,
    ) -> lu.Tensor:
        x = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False,
            is_causal=is_causal,
        )[0]  # fmt: skip
        dropped: lu.Tensor = self.dropout1(x)
        return dropped


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a small network, each with a residual connection and a norm.

    `norm_first` puts the norms before their blocks instead of after the sums.

    >>> import lucerne as torch
    >>> layer = torch.nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> layer(torch.randn(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    def _set_activation(self, activation: Activation) -> None:
        super()._set_activation(activation)
        self.activation_relu_or_gelu = 0
        if self.activation is F.relu or isinstance(self.activation, ReLU):
            self.activation_relu_or_gelu = 1
        elif self.activation is F.gelu or isinstance(self.activation, GELU):
            self.activation_relu_or_gelu = 2

    def forward(
        self,
        src: lu.Tensor,
        src_mask: lu.Tensor | None = None,
        src_key_padding_mask: lu.Tensor | None = None,
        is_causal: bool = False,
    ) -> lu.Tensor:
        """The encoded sequence; masks as for `MultiheadAttention`."""
        padding = additive_mask(
            src_key_padding_mask, "src_key_padding_mask", src.dtype, src_mask, "src_mask"
        )
        mask = additive_mask(src_mask, "src_mask", src.dtype)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), mask, padding, is_causal=is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, mask, padding, is_causal=is_causal))
        done: lu.Tensor = self.norm2(x + self._ff_block(x))
        return done

    def _ff_block(self, x: lu.Tensor) -> lu.Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        dropped: lu.Tensor = self.dropout2(x)
        return dropped


class TransformerEncoder(Module):
    """A stack of encoder layers, copies of the one given.

    In evaluation without gradients, when every layer allows it and padding comes last, padded
    positions of the output are zero (before `norm`): `enable_nested_tensor` as in torch, where
    such input is stored without its padding.

    >>> import lucerne as torch
    >>> layer = torch.nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> encoder = torch.nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(torch.randn(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    __constants__ = ["norm"]

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        reason = _why_not_nested(encoder_layer)
        self.use_nested_tensor = enable_nested_tensor and not reason
        if enable_nested_tensor and reason:
            notices.warn(
                "enable_nested_tensor is True, but self.use_nested_tensor is False because "
                f"{reason}"
            )

    def forward(
        self,
        src: lu.Tensor,
        mask: lu.Tensor | None = None,
        src_key_padding_mask: lu.Tensor | None = None,
        is_causal: bool | None = None,
    ) -> lu.Tensor:
        """The encoded sequence; masks as for `MultiheadAttention`."""
        padding = additive_mask(
            src_key_padding_mask, "src_key_padding_mask", src.dtype, mask, "mask"
        )
        mask = additive_mask(mask, "mask", src.dtype)
        hidden = self._left_out(src, mask, padding)
        if hidden is not None:
            padding = additive_mask(hidden, "src_key_padding_mask", src.dtype)
        output = src
        if len(self.layers):
            length = _get_seq_len(src, self.layers[0].self_attn.batch_first)
            is_causal = _detect_is_causal_mask(mask, is_causal, length)
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=is_causal, src_key_padding_mask=padding)
        if hidden is not None:
            output = output.masked_fill(hidden.unsqueeze(-1), 0.0)
        if self.norm is not None:
            output = self.norm(output)
        return output

    def _left_out(
        self, src: lu.Tensor, mask: lu.Tensor | None, padding: lu.Tensor | None
    ) -> lu.Tensor | None:
        """Positions that a nested tensor would not hold; None where torch would make none."""
        if not self.use_nested_tensor or padding is None or mask is not None or src.dim() != 3:
            return None
        first = self.layers[0] if len(self.layers) else None
        if first is None or first.training or lu.is_autocast_enabled("cpu"):
            return None
        weights = (src, *first.parameters())
        if lu.is_grad_enabled() and any(t.requires_grad for t in weights):
            return None
        hidden: lu.Tensor = padding.ne(0)
        # Padding comes last when a hidden position is never followed by a visible one.
        scattered = hidden[:, :-1] & ~hidden[:, 1:]
        return None if self.mask_check and bool(scattered.any()) else hidden


def _why_not_nested(layer: Any) -> str:
    """What keeps torch from storing this layer's input without padding; nothing if it can."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    if layer.norm_first:
        return "encoder_layer.norm_first was True"
    if not attention.batch_first:
        return (
            "encoder_layer.self_attn.batch_first was not True"
            "(use batch_first for better inference performance)"
        )
    if not attention._qkv_same_embed_dim:
        return "encoder_layer.self_attn._qkv_same_embed_dim was not True"
    if attention.in_proj_bias is None:
        return "encoder_layer.self_attn was passed bias=False"
    if not layer.activation_relu_or_gelu:
        return "encoder_layer.activation_relu_or_gelu was not True"
    if layer.norm1.eps != layer.norm2.eps:
        return "encoder_layer.norm1.eps was not equal to encoder_layer.norm2.eps"
    if attention.num_heads % 2:
        return "encoder_layer.self_attn.num_heads is odd"
    return ""


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the encoder's output, and a small network.

    >>> import lucerne as torch
    >>> layer = torch.nn.TransformerDecoderLayer(d_model=8, nhead=2)
    >>> layer(torch.randn(4, 3, 8), torch.randn(5, 3, 8)).shape
    torch.Size([4, 3, 8])
    """

    _attends_to_memory = True

    def forward(
        self,
        tgt: lu.Tensor,
        memory: lu.Tensor,
        tgt_mask: lu.Tensor | None = None,
        memory_mask: lu.Tensor | None = None,
        tgt_key_padding_mask: lu.Tensor | None = None,
        memory_key_padding_mask: lu.Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> lu.Tensor:
        """The decoded sequence; masks as for `MultiheadAttention`."""
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        other = memory_mask, memory_key_padding_mask, memory_is_causal
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        done: lu.Tensor = self.norm3(x + self._ff_block(x))
        return done

    def _mha_block(
        self,
        x: lu.Tensor,
        mem: lu.Tensor,
        attn_mask: lu.Tensor | None,
        key_padding_mask: lu.Tensor | None,
        is_causal: bool = False,
    ) -> lu.Tensor:
        x = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
            need_weights=False, is_causal=is_causal,
        )[0]  # fmt: skip
        dropped: lu.Tensor = self.dropout2(x)
        return dropped

    def _ff_block(self, x: lu.Tensor) -> lu.Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        dropped: lu.Tensor = self.dropout3(x)
        return dropped


class TransformerDecoder(Module):
    """A stack of decoder layers, copies of the one given.

    >>> import lucerne as torch
    >>> layer = torch.nn.TransformerDecoderLayer(d_model=8, nhead=2)
    >>> decoder = torch.nn.TransformerDecoder(layer, num_layers=2)
    >>> decoder(torch.randn(4, 3, 8), torch.randn(5, 3, 8)).shape
    torch.Size([4, 3, 8])
    """

    __constants__ = ["norm"]

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: lu.Tensor,
        memory: lu.Tensor,
        tgt_mask: lu.Tensor | None = None,
        memory_mask: lu.Tensor | None = None,
        tgt_key_padding_mask: lu.Tensor | None = None,
        memory_key_padding_mask: lu.Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> lu.Tensor:
        """The decoded sequence; masks as for `MultiheadAttention`."""
        output = tgt
        if len(self.layers):
            length = _get_seq_len(tgt, self.layers[0].self_attn.batch_first)
            tgt_is_causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, length)
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal,
            )
        if self.norm is not None:
            output = self.norm(output)
        return output


class Transformer(Module):
    """Encoder and decoder of "Attention Is All You Need".

    >>> import lucerne as torch
    >>> model = torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(torch.randn(3, 5, 8), torch.randn(3, 4, 8)).shape
    torch.Size([3, 4, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any | None = None,
        custom_decoder: Any | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        settings = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias,
        )  # fmt: skip
        encoder, decoder = custom_encoder, custom_decoder
        if encoder is None:
            layer = TransformerEncoderLayer(*settings, **made)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
            encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        self.encoder = encoder
        if decoder is None:
            last = TransformerDecoderLayer(*settings, **made)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
            decoder = TransformerDecoder(last, num_decoder_layers, norm)
        self.decoder = decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: lu.Tensor,
        tgt: lu.Tensor,
        src_mask: lu.Tensor | None = None,
        tgt_mask: lu.Tensor | None = None,
        memory_mask: lu.Tensor | None = None,
        src_key_padding_mask: lu.Tensor | None = None,
        tgt_key_padding_mask: lu.Tensor | None = None,
        memory_key_padding_mask: lu.Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> lu.Tensor:
        """Encode `src`, then decode `tgt` with it; masks as for `MultiheadAttention`."""
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        output: lu.Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return output

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: Any = None, dtype: Any = None
    ) -> lu.Tensor:
        """The causal mask: minus infinity where a position would see a later one."""
        return _generate_square_subsequent_mask(sz, dtype=dtype, device=device)

    def _reset_parameters(self) -> None:
        """Xavier's distribution for every matrix."""
        for p in self.parameters():
            if p.dim() > 1:
                xavier_uniform_(p)
