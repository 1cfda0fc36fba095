"""What a built program takes and gives, and the C header that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.contract.machines import CANT_RUN_HERE
from lucerne._src.ir.meta import TensorMeta
from lucerne.export.errors import ExportError

C_TYPES = {
    "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t",
    "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    "bool": "uint8_t", "complex64": "float", "complex128": "double",
}  # fmt: skip
"""Elements in C. Those of two bytes are bits; a complex number is two."""


@dataclass(frozen=True)
class Port:
    """An input or an output: its name, and its meta at each of the sizes."""

    name: str
    metas: tuple[TensorMeta, ...]
    dims: tuple[str, ...]
    """The first meta's dimensions, by name where they change."""

    @property
    def c_type(self) -> str:
        name = self.metas[0].dtype.name
        if name not in C_TYPES:
            raise ExportError(f"build: {self.name} is of {name}, which C has no type for")
        return C_TYPES[name]

    @property
    def nbytes(self) -> tuple[int, ...]:
        return tuple(m.numel * m.dtype.itemsize for m in self.metas)

    def __str__(self) -> str:
        return f"{self.name}: {self.metas[0].dtype.name}[{', '.join(self.dims)}]"


@dataclass(frozen=True)
class Interface:
    """All of it."""

    prefix: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    size_names: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]
    """Of each variant."""
    inside: bool
    """Whether the weights are in the object."""


def dims_of(metas: Sequence[TensorMeta], sizes: Sequence[tuple[int, ...]],
            names: Sequence[str]) -> tuple[str, ...]:  # fmt: skip
    """What to call each dimension: the size that it always equals, its number, or `?`."""
    found = []
    for d, n in enumerate(metas[0].shape):
        here = [m.shape[d] for m in metas]
        same = [name for k, name in enumerate(names) if [s[k] for s in sizes] == here]
        found.append(same[0] if same else str(n) if len(set(here)) == 1 else "?")
    return tuple(found)


_HEADER = """\
/* {title}: made by Lucerne {version} for {triple}. Needs the C library only.
 *
 * Memory is the caller's, aligned to 64 bytes. A model may be shared by any number of contexts; a
 * context serves one call at a time. Functions give 0, or the number of an error.
 *
{told}
 */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_INPUTS {inputs}
#define {upper}_OUTPUTS {outputs}
#define {upper}_SIZES {size_count}
#define {upper}_ALIGNMENT 64
/* Errors of model_init: the program can't run on this machine. */
#define {upper}_NO_TILES ({no_tiles})
#define {upper}_NO_INSTRUCTIONS ({no_instructions})

/* The memory that a model takes: {model_bytes} bytes. */
int64_t {p}_model_bytes(void);
/* {weights} */
int64_t {p}_model_init(void *model, const void *weights, int64_t weights_bytes);

/* The memory that a context takes: {context_bytes} bytes. */
int64_t {p}_context_bytes(void);
int64_t {p}_context_init(void *context, const void *model);

/* One call. `sizes`: {size_names}. Outputs may not overlap inputs. */
int64_t {p}_run(void *context, const int64_t *sizes, const void *const *inputs,
                void *const *outputs);

/* The text of an error. */
const char *{p}_error(int64_t number);
/* How many threads calls may use together, 1 at first, {threads} at most. */
void {p}_set_threads(int64_t n);

#ifdef __cplusplus
}}
#endif
#endif
"""


def header(i: Interface, facts: Mapping[str, Any], version: str) -> str:
    """The text of the C header."""
    told = [f" * input {k}   {port}, {port.c_type}" for k, port in enumerate(i.inputs)]
    told += [f" * output {k}  {port}, {port.c_type}" for k, port in enumerate(i.outputs)]
    if i.size_names:
        names = ", ".join(i.size_names)
        told += [f" * built for ({names}) = {', '.join(map(_tuple, i.sizes))}"]
    weights = (
        f"`weights`: the content of {i.prefix}.safetensors, which stays where it is as long as"
    )
    if i.inside:
        weights = "The weights are inside: NULL, 0. Or those of another file with the same header."
    else:
        weights += "\n * the model is used (map it), or of another file with the same header."
    return _HEADER.format(
        p=i.prefix, title=i.prefix, version=version, triple=facts["triple"], told="\n".join(told),
        guard=f"{i.prefix.upper()}_H", upper=i.prefix.upper(), inputs=len(i.inputs),
        outputs=len(i.outputs), size_count=len(i.size_names), weights=weights,
        model_bytes=facts["model_bytes"], context_bytes=facts["context_bytes"],
        no_tiles=CANT_RUN_HERE[0], no_instructions=CANT_RUN_HERE[1],
        size_names=", ".join(i.size_names) or "NULL", threads=facts["threads"],
    )  # fmt: skip


def _tuple(sizes: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, sizes))})"
