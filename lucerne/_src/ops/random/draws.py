"""Random numbers. One primitive draws; everything a user calls is made of it.

Drawing goes through a generator object (torch's CPU stream bit for bit, or a counter-based one),
which the primitive gets as an opaque argument. Values are written in memory order, as torch does.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.process.default_generator import generator_or_default
from lucerne._src.ir import op as op_
from lucerne._src.ir.convert import Dtype, Opaque, as_dtype, as_int_list, as_optional_dtype
from lucerne._src.ir.define import composite, front, random
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Scalar, Tensor
from lucerne._src.ir.symbolic.numbers import to_int
from lucerne._src.ops.copy.place import inherit
from lucerne._src.ops.creation import fills
from lucerne._src.ops.random.implicit import dirichlet_grad, standard_gamma_grad


def _same_meta(input: TensorMeta, *rest: Any) -> TensorMeta:
    return input


def _zeros(g: Tensor) -> Tensor:
    """A sample does not depend smoothly on anything: torch says zero, not nothing."""
    return fills.zeros_like(g)


@random(internal=True, meta=_same_meta, vjp={"input": _zeros}, torch="uniform_")
def draw(
    input: Tensor, distribution: str, first: Scalar, second: Scalar, dtype: Dtype, generator: Opaque
) -> Tensor:
    """Values like `input` in shape and memory order, drawn from a named distribution."""


@random(internal=True, meta=_same_meta, vjp={"input": _zeros}, torch="bernoulli_")
def draw_each(
    input: Tensor, distribution: str, other: Tensor | None, dtype: Dtype, generator: Opaque
) -> Tensor:
    """One value per element of `input`, which holds that element's parameter."""


def _draw_over(
    target: Tensor, distribution: str, first: Any, second: Any, generator: Any, out: Any
) -> Tensor:
    return draw(
        target, distribution, first, second, target.dtype, generator_or_default(generator), out=out
    )


def _needs_float(input: Tensor, name: str) -> None:
    if input.dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.cxx_name(input.dtype)}'")


@front(name="uniform", namespace="Tensor", inplace=True)
def uniform(
    input: Tensor,
    from_: float = 0,
    to: float = 1,
    *,
    generator: Any = None,
    out: Any = None,
    **named: Any,
) -> Tensor:
    """Uniform values in [from, to)."""
    low = named.pop("from", from_)
    _needs_float(input, "check_uniform_bounds")
    if low > to:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}"
        )
    return _draw_over(input, "uniform", float(low), float(to), generator, out)


def normal_fill(input: Tensor, mean: float, std: float, generator: Any, out: Any) -> Tensor:
    """Normal values with one mean and one standard deviation."""
    _needs_float(input, "normal_kernel_cpu")
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return _draw_over(input, "normal", float(mean), float(std), generator, out)


@front(name="exponential", namespace="Tensor", inplace=True)
def exponential(
    input: Tensor, lambd: float = 1, *, generator: Any = None, out: Any = None
) -> Tensor:
    """Exponentially distributed values with rate `lambd`."""
    if input.dtype.category != dt.FLOAT:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a "
            "floating point but you specified " + dt.cxx_name(input.dtype)
        )
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return _draw_over(input, "exponential", float(lambd), 0.0, generator, out)


@front(name="cauchy", namespace="Tensor", inplace=True)
def cauchy(
    input: Tensor, median: float = 0, sigma: float = 1, *, generator: Any = None, out: Any = None
) -> Tensor:
    """Cauchy distributed values."""
    if input.dtype.category != dt.FLOAT:
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution. dtype must be a "
            "floating point but you specified " + dt.cxx_name(input.dtype)
        )
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return _draw_over(input, "cauchy", float(median), float(sigma), generator, out)


@front(name="log_normal", namespace="Tensor", inplace=True)
def log_normal(
    input: Tensor, mean: float = 1, std: float = 2, *, generator: Any = None, out: Any = None
) -> Tensor:
    """Values whose logarithm is normal."""
    _needs_float(input, "log_normal_cpu")
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return _draw_over(input, "log_normal", float(mean), float(std), generator, out)


@front(name="geometric", namespace="Tensor", inplace=True)
def geometric(input: Tensor, p: float, *, generator: Any = None, out: Any = None) -> Tensor:
    """Number of trials until the first success."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return _draw_over(input, "geometric", float(p), 0.0, generator, out)


@front(name="random", namespace="Tensor", inplace=True)
def random_integers(
    input: Tensor,
    from_: Any = None,
    to: Any = None,
    *,
    generator: Any = None,
    out: Any = None,
    **named: Any,
) -> Tensor:
    """Integers over the dtype's whole range, below a bound, or in [from, to)."""
    low = named.pop("from", from_)
    if to is None:
        low, to = (None, low) if low is not None else (None, None)
    if to is not None and (low or 0) >= to:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low or 0} >= to={to}"
        )
    first = math.nan if low is None else to_int(low)
    second = math.nan if to is None else to_int(to)
    return _draw_over(input, "integers", first, second, generator, out)


@front(method=True, inplace=False)
def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Any = None) -> Tensor:
    """Zeros and ones; `input` (or `p`) gives the probability of a one."""
    if p is not None:
        return bernoulli_fill(input, p, generator, out)
    _needs_float(input, "bernoulli_tensor_cpu_p_")
    if input.numel() and not bool(every_value((input >= 0) & (input <= 1)).all()):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    probs = input.contiguous()
    sample = draw_each(probs, "bernoulli", None, input.dtype, generator_or_default(generator))
    return sample if out is None else out.resize_(input.shape).copy_(sample)


def bernoulli_fill(input: Tensor, p: Any, generator: Any, out: Any) -> Tensor:
    """A Bernoulli sample in the shape and dtype of `input`."""
    if hasattr(p, "_meta") and p.ndim:
        probs = p.expand(input.shape).contiguous()
        sample = draw_each(probs, "bernoulli", None, p.dtype, generator_or_default(generator))
        return sample.to(input.dtype) if out is None else creation_copy(input, sample, out)
    value = float(p)
    if not 0 <= value <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={value}")
    return _draw_over(input, "bernoulli", value, 0.0, generator, out)


def creation_copy(input: Tensor, sample: Tensor, out: Any) -> Tensor:
    input.copy_(sample)
    return input


# ---- factories ----------------------------------------------------------------------------------


def _size(args: tuple[Any, ...]) -> tuple[int, ...]:
    return (
        as_int_list(args[0])
        if len(args) == 1 and not isinstance(args[0], int)
        else as_int_list(args)
    )


def _blank(size: Any, dtype: Any, device: Any, layout: Any) -> Tensor:
    return fills.empty(
        size,
        dtype=as_optional_dtype(dtype) or defaults.get_default_dtype(),
        device=device,
        layout=layout,
    )


def _target(size: Any, dtype: Any, device: Any, layout: Any, out: Any) -> Tensor:
    """Where a factory draws: a new tensor, or `out` brought to the right shape."""
    if out is None:
        return _blank(size, dtype, device, layout)
    if dtype is not None and as_dtype(dtype) is not out.dtype:
        raise RuntimeError(
            f"dtype {dt.cxx_name(as_dtype(dtype))} does not match dtype of out parameter "
            f"({dt.cxx_name(out.dtype)})"
        )
    return out if tuple(out.shape) == tuple(size) else out.resize_(size)


def _finish(made: Tensor, requires_grad: bool) -> Tensor:
    return made.requires_grad_() if requires_grad else made


@front(options=fills.options_given)
def rand(
    *args: Any, size: Any = None, generator: Any = None, out: Any = None, **options: Any
) -> Tensor:
    """Uniform values in [0, 1).

    >>> import lucerne
    >>> lucerne.rand(size=(2, 3)).shape
    torch.Size([2, 3])
    """
    dtype, layout, device, requires_grad = fills.options_given("rand", **options)
    made = _target(_size(args if size is None else (*args, size)), dtype, device, layout, out)
    return _finish(made.uniform_(generator=generator), requires_grad)


@front(options=fills.options_given)
def randn(
    *args: Any, size: Any = None, generator: Any = None, out: Any = None, **options: Any
) -> Tensor:
    """Standard normal values.

    >>> import lucerne
    >>> _ = lucerne.manual_seed(0)
    >>> lucerne.randn(2)
    tensor([ 1.5410, -0.2934])
    """
    dtype, layout, device, requires_grad = fills.options_given("randn", **options)
    made = _target(_size(args if size is None else (*args, size)), dtype, device, layout, out)
    return _finish(made.normal_(generator=generator), requires_grad)


@front(options=fills.options_given)
def randint(
    *bounds_and_size: Any,
    generator: Any = None,
    out: Any = None,
    low: Any = None,
    high: Any = None,
    size: Any = None,
    **options: Any,
) -> Tensor:
    """Integers in [low, high)."""
    dtype, layout, device, requires_grad = fills.options_given("randint", **options)
    given = list(bounds_and_size)
    if size is None:
        size = given.pop() if given and not isinstance(given[-1], int) else ()
    if high is None:
        high = given.pop()
    if low is None:
        low = given.pop() if given else 0
    if high <= low:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    kind = (dtype or dt.int64) if out is None else dtype
    made = _target(as_int_list(size), kind, device, layout, out)
    return _finish(made.random_(low, high, generator=generator), requires_grad)


@front(options=fills.options_given)
def randperm(
    n: int, *, generator: Any = None, out: Any = None, dtype: Any = dt.int64, **options: Any
) -> Tensor:
    """A random permutation of 0 .. n-1."""
    dtype, layout, device, requires_grad = fills.options_given("randperm", dtype=dtype, **options)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    made = _draw_over(
        _blank((n,), dtype if out is None else out.dtype, device, layout),
        "permutation",
        0.0,
        0.0,
        generator,
        None,
    )
    return _finish(made if out is None else out.resize_((n,)).copy_(made), requires_grad)


def _blank_like(name: str, input: Tensor, options: dict[str, Any]) -> tuple[Tensor, bool]:
    """Where a factory draws that takes after a tensor, and whether that gets a gradient."""
    dtype, device, requires_grad, strides = fills.like_options(name, input, **options)
    blank = fills.make_empty(tuple(input.shape), dtype, device, False, strides)
    return inherit(blank, input), requires_grad


@front(options=fills.like_options)
def rand_like(input: Tensor, *, generator: Any = None, **options: Any) -> Tensor:
    """Uniform values in the shape of `input`."""
    made, requires_grad = _blank_like("rand_like", input, options)
    return _finish(made.uniform_(generator=generator), requires_grad)


@front(options=fills.like_options)
def randn_like(input: Tensor, *, generator: Any = None, **options: Any) -> Tensor:
    """Standard normal values in the shape of `input`."""
    made, requires_grad = _blank_like("randn_like", input, options)
    return _finish(made.normal_(generator=generator), requires_grad)


@front(options=fills.like_options)
def randint_like(
    input: Tensor, low: Any = None, high: Any = None, *, generator: Any = None, **options: Any
) -> Tensor:
    """Integers in [low, high) in the shape of `input`."""
    if high is None:
        low, high = 0, low
    made, requires_grad = _blank_like("randint_like", input, options)
    return _finish(made.random_(to_int(low), to_int(high), generator=generator), requires_grad)


@front(options=fills.options_given)
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    out: Any = None,
    **options: Any,
) -> Tensor:
    """Normal values; mean and std may be tensors, one per element."""
    dtype, layout, device, requires_grad = fills.options_given("normal", **options)
    mean_t, std_t = hasattr(mean, "_meta"), hasattr(std, "_meta")
    if size is not None or not (mean_t or std_t):
        made = _target(as_int_list(size), dtype, device, layout, out)
        return _finish(made.normal_(float(mean), float(std), generator=generator), requires_grad)
    if std_t and std.is_complex():
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if std_t and std.numel() and bool(every_value(std < 0).any()):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    if out is None:
        return normal_around(mean, std, generator)
    shapes = [t.shape for t in (mean, std) if hasattr(t, "_meta")]
    shape = sh.broadcast_shapes(*shapes, *([] if std_t else [out.shape]))
    if tuple(out.shape) != shape:
        resize_with_warning(out, shape)
    if not std_t:
        return out.normal_(0, float(std), generator=generator).add_(mean)
    return out.normal_(0, 1, generator=generator).mul_(std).add_(mean)


def resize_with_warning(out: Tensor, shape: Any) -> None:
    """Resize an `out=` tensor as ops do: with a warning when it held elements."""
    fills.zeros(shape, dtype=out.dtype).add(0, out=out)


@composite(internal=True, vjp={"mean": _zeros, "std": _zeros}, out=False, torch="normal")
def normal_around(mean: Tensor, std: Tensor, generator: Opaque) -> Tensor:
    """Normal values, each with a mean and a standard deviation of its own."""
    if not hasattr(std, "_meta"):
        return mean.new_empty(mean.shape).normal_(0, float(std), generator=generator).add_(mean)
    if not hasattr(mean, "_meta"):
        return std.new_empty(std.shape).normal_(0, 1, generator=generator).mul_(std).add_(mean)
    shape = (mean + std).shape  # in the order of the elements, whatever lies how in memory
    return mean.new_empty(shape).normal_(0, 1, generator=generator).mul_(std).add_(mean)


def _multinomial_meta(
    input: TensorMeta, num_samples: int, replacement: bool, dtype: Any, generator: Any
) -> TensorMeta:
    shape = (num_samples,) if input.ndim == 1 else (input.shape[0], num_samples)
    return make_meta(dt.int64, shape, None, input.device)


@random(
    checks=op_.VALUES,
    internal=True,
    meta=_multinomial_meta,
    name="draw_categories",
    vjp={},
    torch="multinomial",
)
def draw_categories(
    input: Tensor, num_samples: int, replacement: bool, dtype: Dtype, generator: Opaque
) -> Tensor:
    """Category numbers drawn by weight, one row at a time."""


@front(method=True)
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,
    out: Any = None,
) -> Tensor:
    """Indices drawn with probability proportional to `input`."""
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if input.dtype.category != dt.FLOAT:
        raise RuntimeError(
            "multinomial only supports floating-point dtypes for input, got: "
            f"{dt.cxx_name(input.dtype)}"
        )
    if input.shape[-1] > 1 << 24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    if not bool(every_value((input >= 0) & input.isfinite()).all()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not bool(every_value(input.sum(-1) > 0).all()):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if out is not None and out.dtype is not dt.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {dt.cxx_name(out.dtype)}")
    weights, source = input.detach(), generator_or_default(generator)
    raced = not replacement or num_samples == 1
    if raced and weights._meta.is_dense and not weights.is_contiguous():
        found = _race(weights, num_samples, generator)
    else:
        found = draw_categories(weights, num_samples, replacement, input.dtype, source)
    return found if out is None else out.resize_(found.shape).copy_(found)


def _race(weights: Tensor, count: int, generator: Any) -> Tensor:
    """The first of a race in which each category needs a random time: of a permuted tensor the
    times are drawn in the order of its memory, as torch does."""
    speed = weights / weights.clone().exponential_(1, generator=generator)
    return speed.topk(count, -1)[1] if count > 1 else speed.argmax(-1, keepdim=True)


@front()
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """A Poisson sample for each rate."""
    if input.numel() and not bool(every_value(input >= 0).all()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    rates = input.contiguous()
    return draw_each(rates, "poisson", None, input.dtype, generator_or_default(generator))


@front()
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Successes among `count` trials of probability `prob`."""
    shape = sh.broadcast_shapes(count.shape, prob.shape)
    counts = count.expand(shape).contiguous()
    return draw_each(counts, "binomial", prob, prob.dtype, generator_or_default(generator))


def _moved_gamma(g: Tensor, y: Tensor, input: Tensor) -> Tensor:
    return g * standard_gamma_grad(input, y)


def _moved_dirichlet(g: Tensor, y: Tensor, input: Tensor) -> Tensor:
    """Of the components' common motion, what leaves their sum at one."""
    total = input.sum(-1, True).expand(input.shape)
    return dirichlet_grad(y, input, total) * (g - (y * g).sum(-1, True))


@composite(internal=True, vjp={"input": _moved_gamma}, out=False, torch="_standard_gamma")
def gamma_of(input: Tensor, generator: Opaque) -> Tensor:
    """`_standard_gamma` with the generator in place."""
    return draw_each(input.contiguous(), "gamma", None, input.dtype, generator)


@composite(internal=True, vjp={"input": _moved_dirichlet}, out=False, torch="_sample_dirichlet")
def dirichlet_of(input: Tensor, generator: Opaque) -> Tensor:
    """`_sample_dirichlet` with the generator in place."""
    rows = input.contiguous().reshape(-1, input.shape[-1])
    return draw_each(rows, "dirichlet", None, input.dtype, generator).reshape(input.shape)


@front(name="_standard_gamma")
def standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """A gamma sample of scale one for each shape parameter."""
    return gamma_of(input, generator_or_default(generator))


@front(name="_sample_dirichlet")
def sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """A point of the simplex for each row of concentrations."""
    return dirichlet_of(input, generator_or_default(generator))
