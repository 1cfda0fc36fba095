"""Short-time Fourier transform and its inverse; frequencies of a transform."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy import join
from lucerne._src.ops.creation import fills, ranges
from lucerne._src.ops.creation.fills import strided_options
from lucerne._src.ops.pointwise import complexes
from lucerne._src.ops.signal.fft import (
    BY_COUNT,
    BY_ROOT,
    UNSCALED,
    fft_c2c,
    fft_c2r,
    fft_r2c,
    resized,
)
from lucerne._src.ops.spatial import padding

# ---- stft -------------------------------------------------------------------------------------


def _check_stft(input: Tensor, n_fft: int, hop: int, win: int, window: Any) -> None:
    def said() -> str:
        given = f"{dt.cxx_name(input.dtype)}{list(input.shape)}"
        return f"stft({given}, n_fft={n_fft}, hop_length={hop}, win_length={win})"

    if input.dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise RuntimeError(f"{said()}: expected a tensor of floating point or complex values")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"{said()}: expected a 1D or 2D tensor")
    length = input.shape[-1]
    if not 0 < n_fft <= length:
        raise RuntimeError(f"{said()}: expected 0 < n_fft < {length}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"{said()}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < win <= n_fft:
        raise RuntimeError(f"{said()}: expected 0 < win_length <= n_fft, but got win_length={win}")
    if window is not None and tuple(window.shape) != (win,):
        raise RuntimeError(
            f"{said()}: expected a 1D window tensor of size equal to win_length={win}, but got "
            f"window with size {list(window.shape)}"
        )


def centered(window: Tensor, n: int) -> Tensor:
    """A window with zeros on both sides, `n` long."""
    have = window.shape[0]
    if have == n:
        return window
    left = (n - have) // 2
    parts = [window.new_zeros(left), window, window.new_zeros(n - have - left)]
    return join.cat(parts)


def _padded(input: Tensor, n_fft: int, mode: str) -> Tensor:
    """Half a frame more on each side, so that frames are centred on their times."""
    extended = input.reshape([1] * (3 - input.ndim) + list(input.shape))
    half = n_fft // 2
    wide = padding.pad_function(extended, [half, half], mode)
    return wide.reshape(wide.shape[3 - input.ndim :])


def _wants_complex(input: Tensor, window: Any, return_complex: bool | None) -> bool:
    tensors = [input] if window is None else [input, window]
    if return_complex is None:
        if all(t.dtype.category != dt.COMPLEX for t in tensors):
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will "
                "further require that return_complex=True in a future PyTorch release."
            )
        return True
    return bool(return_complex)


@composite(internal=True, name="stft_frames", out=False, autocast="full", torch="stft")
def stft_frames(
    input: Tensor,
    window: Tensor | None,
    n_fft: int,
    hop: int,
    win: int,
    normalized: bool,
    onesided: bool | None,
) -> Tensor:
    """Transforms of the frames of a signal: (batch, frequencies, frames)."""
    x = input.unsqueeze(0) if input.ndim == 1 else input
    frames = x.unfold(-1, n_fft, hop)
    if window is not None:
        frames = frames * centered(window, n_fft)
    is_complex = frames.dtype.category == dt.COMPLEX
    if onesided is None:
        onesided = not is_complex
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    scale = BY_ROOT if normalized else UNSCALED
    if onesided:
        found = fft_r2c(frames, (2,), scale)
    else:
        found = fft_c2c(frames.to(frames.dtype.to_complex()), (2,), scale, True)
    found = found.transpose(1, 2)
    return found.squeeze(0) if input.ndim == 1 else found


@front(method=True, autocast="full")
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Spectra of overlapping frames of a signal, (..., frequencies, frames).

    >>> import lucerne
    >>> lucerne.stft(lucerne.ones(16), 8, return_complex=True).shape
    torch.Size([5, 9])
    """
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    win = n_fft if win_length is None else win_length
    hop = n_fft // 4 if hop_length is None else hop_length
    if center and 1 <= input.ndim <= 2:
        input = _padded(input, n_fft, pad_mode)
    elif align_to_window and input.ndim:
        side = (n_fft - win) // 2
        input = padding.pad_function(input, [side, side])
    wants_complex = _wants_complex(input, window, return_complex)
    _check_stft(input, n_fft, hop, win, window)
    if window is None and win != n_fft:
        window = input.new_ones(win)
    found = stft_frames(input, window, n_fft, hop, win, normalized, onesided)
    return found if wants_complex else complexes.view_as_real(found)


# ---- istft ------------------------------------------------------------------------------------


def _check_istft(
    input: Tensor, n_fft: int, hop: int, win: int, onesided: bool, window: Any
) -> None:
    given = f"{dt.cxx_name(input.dtype)}{list(input.shape)}"
    said = f"istft({given}, n_fft={n_fft}, hop_length={hop}, win_length={win})"
    if not input.numel():
        raise RuntimeError(f"{said}: input tensor cannot be empty.")
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"{said}: expected a tensor with 2 or 3 dimensions, but got {input.ndim}"
        )
    wanted = n_fft // 2 + 1 if onesided else n_fft
    if input.shape[-2] != wanted:
        kind = "n_fft / 2 + 1 when onesided=True" if onesided else "n_fft when onesided=False"
        raise RuntimeError(
            f"{said}: expected the frequency dimension (3rd to the last) of the input tensor to "
            f"match {kind}, but got {input.shape[-2]}"
        )
    if not 0 < hop <= win:
        raise RuntimeError(f"{said}: expected 0 < hop_length <= win_length")
    if not 0 < win <= n_fft:
        raise RuntimeError(f"{said}: expected 0 < win_length <= n_fft")
    if window is not None and tuple(window.shape) != (win,):
        raise RuntimeError(
            f"{said}: Invalid window shape. window has to be 1D and length of `win_length`"
        )


def overlap_add(frames: Tensor, hop: int) -> Tensor:
    """Frames (batch, count, size) summed at their places in a signal."""
    batch, count, size = frames.shape
    arange = ranges.arange
    starts = arange(count, device=frames.device) * hop
    places = starts.unsqueeze(1) + arange(size, device=frames.device)
    signal = frames.new_zeros((batch, size + hop * (count - 1)))
    return signal.index_add(1, places.reshape(-1), frames.reshape(batch, -1))


def _frames_of(
    input: Tensor, n_fft: int, normalized: bool, onesided: bool, return_complex: bool
) -> Tensor:
    """Frames (batch, count, n_fft) from their spectra (batch, frequencies, count)."""
    spectra = input.transpose(1, 2)
    scale = BY_ROOT if normalized else BY_COUNT
    if return_complex:
        if onesided:
            raise RuntimeError("Cannot have onesided output if window or input is complex")
        return fft_c2c(spectra, (2,), scale, False)
    if not onesided:
        spectra = spectra.narrow(-1, 0, n_fft // 2 + 1)
    return fft_c2r(spectra, (2,), scale, n_fft)


@composite(internal=True, name="istft_signal", out=False, torch="istft")
def istft_signal(
    input: Tensor,
    window: Tensor,
    n_fft: int,
    hop: int,
    center: bool,
    normalized: bool,
    onesided: bool,
    length: int | None,
    return_complex: bool,
) -> Tensor:
    """The signal whose frames have these spectra."""
    x = input if input.ndim == 3 else input.unsqueeze(0)
    frames = _frames_of(x, n_fft, normalized, onesided, return_complex) * window
    count = x.shape[-1]
    squares = (window * window).expand(1, count, n_fft)
    signal, weight = overlap_add(frames, hop), overlap_add(squares, hop)
    total = signal.shape[-1]
    start = n_fft // 2 if center else 0
    if length is not None:
        end = start + length
    else:
        end = total - n_fft // 2 if center else total
    inside = max(min(end, total) - start, 0)
    signal, weight = signal.narrow(1, start, inside), weight.narrow(1, start, inside)
    if input.device.type != "meta" and not bool(every_value(weight.abs() > 1e-11).all()):
        raise RuntimeError("window overlap add min: 1")
    signal = signal / weight
    signal = resized(signal, (1,), (end - start,)) if end > total else signal
    return signal if input.ndim == 3 else signal.squeeze(0)


@front(method=True)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Inverse of `stft`: frames are added where they overlap, divided by the windows' weight."""
    if input.dtype.category != dt.COMPLEX:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    win = n_fft if win_length is None else win_length
    hop = n_fft // 4 if hop_length is None else hop_length
    sided = onesided if onesided is not None or input.ndim < 2 else input.shape[-2] != n_fft
    _check_istft(input, n_fft, hop, win, bool(sided), window)
    if window is None:
        window = input.new_ones(win, dtype=input.dtype.to_real())
    elif window.dtype.category == dt.COMPLEX and not return_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    full = centered(window, n_fft)
    return istft_signal(
        input, full, n_fft, hop, center, normalized, bool(sided), length, return_complex
    )


# ---- frequencies ------------------------------------------------------------------------------


def _frequencies(
    name: str, first: int, last: int, n: int, d: float, out: Any, options: dict[str, Any]
) -> tuple[Tensor, bool]:
    """The frequencies in their order, and whether they shall have a gradient."""
    dtype, device, requires_grad = strided_options(name, **options)
    if dtype is None:
        dtype = fills.zeros(0).dtype if out is None else out.dtype
    return ranges.arange(first, last, dtype=dtype, device=device) * (1.0 / (n * d)), requires_grad


def _delivered(made: Tensor, out: Any, requires_grad: bool) -> Tensor:
    if out is not None:
        return out.resize_(made.shape).copy_(made)
    return made.requires_grad_() if requires_grad else made


@front(namespace="fft", options=strided_options)
def fftfreq(n: int, d: float = 1.0, *, out: Any = None, **options: Any) -> Tensor:
    """Frequencies of the points of `fft`: 0, 1/nd, ..., then the negative ones."""
    made, requires_grad = _frequencies("fftfreq", -(n // 2), n - n // 2, n, d, out, options)
    return _delivered(made.roll(-(n // 2)), out, requires_grad)


@front(namespace="fft", options=strided_options)
def rfftfreq(n: int, d: float = 1.0, *, out: Any = None, **options: Any) -> Tensor:
    """Frequencies of the points of `rfft`."""
    made, requires_grad = _frequencies("rfftfreq", 0, n // 2 + 1, n, d, out, options)
    return _delivered(made, out, requires_grad)
