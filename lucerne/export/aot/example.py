"""A C program that loads a built program, runs it at every size, and compares with what it should
give: an example to start from, and the check of a build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.io.safetensors import dense_bytes
from lucerne.export.aot.interface import Interface

ALIGNMENT = 64
NOT_HERE = 3
"""What the program ends with where it can't run."""
_TOLERANCES = {"float64": 1e-5, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}
"""Of the largest element; others must be equal."""

_TEXT = """\
/* Runs {p} on the inputs of {p}_example.bin and compares with the outputs there.
 *
 *     {command}
 *     ./{p}_example [calls]        (in the folder of {p}_example.bin)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "{p}.h"

enum {{ VARIANTS = {variants}, INPUTS = {inputs}, OUTPUTS = {outputs}, PORTS = INPUTS + OUTPUTS }};

{sizes}
/* Bytes of inputs, then outputs. */
static const size_t bytes[VARIANTS][PORTS] = {bytes};
/* Of outputs: f(loat), d(ouble), h(alf), b(float16), or x: compared byte by byte. */
static const char kinds[] = "{kinds}";
static const double tolerances[] = {{{tolerances}}};

static void *take(size_t n) {{
    void *memory = aligned_alloc(64, (n + 64) / 64 * 64);
    if (!memory) {{ fprintf(stderr, "no memory for %zu bytes\\n", n); exit(2); }}
    return memory;
}}

static void *read_file(const char *path, size_t *n) {{
    FILE *file = fopen(path, "rb");
    if (!file) {{ perror(path); exit(2); }}
    fseek(file, 0, SEEK_END);
    *n = (size_t)ftell(file);
    rewind(file);
    void *data = take(*n);
    if (fread(data, 1, *n, file) != *n) {{ perror(path); exit(2); }}
    fclose(file);
    return data;
}}

static void must(int64_t status) {{
    if (!status) return;
    fprintf(stderr, "%s\\n", {p}_error(status));
    exit(status == {upper}_NO_TILES || status == {upper}_NO_INSTRUCTIONS ? {not_here} : 1);
}}

static double number(const char *data, size_t k, char kind) {{
    uint16_t bits;
    float f;
    double d;
    if (kind == 'd') {{ memcpy(&d, data + 8 * k, 8); return d; }}
    if (kind == 'f') {{ memcpy(&f, data + 4 * k, 4); return f; }}
    memcpy(&bits, data + 2 * k, 2);
    if (kind == 'b') {{
        uint32_t wide = (uint32_t)bits << 16;
        memcpy(&f, &wide, 4);
        return f;
    }}
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    d = exponent == 31 ? (fraction ? NAN : INFINITY)
        : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -d : d;
}}

/* The largest difference, by the largest element (1 at least); infinite where one is no number. */
static double difference(const char *got, const char *want, size_t n, char kind) {{
    if (kind == 'x') return memcmp(got, want, n) ? INFINITY : 0;
    size_t width = kind == 'd' ? 8 : kind == 'f' ? 4 : 2;
    double worst = 0, largest = 1;
    for (size_t k = 0; k < n / width; k++) {{
        double a = number(got, k, kind), b = number(want, k, kind);
        if (a == b || (isnan(a) && isnan(b))) continue;
        if (!(fabs(a - b) <= worst)) worst = isnan(a - b) ? INFINITY : fabs(a - b);
        if (isfinite(b) && fabs(b) > largest) largest = fabs(b);
    }}
    return worst / largest;
}}

static double now(void) {{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}}

int main(int count, char **arguments) {{
    int calls = count > 1 ? atoi(arguments[1]) : 1, bad = 0;
    size_t n{weights_size};
    char *data = read_file("{p}_example.bin", &n);
    void *model = take((size_t){p}_model_bytes()), *context = take((size_t){p}_context_bytes());
{load}
    must({p}_context_init(context, model));
    for (int v = 0; v < VARIANTS; v++) {{
        const void *inputs[INPUTS + 1];
        void *outputs[OUTPUTS + 1];
        const char *wanted[OUTPUTS + 1];
        for (int k = 0; k < PORTS; k++) {{
            if (k < INPUTS) inputs[k] = data;
            else wanted[k - INPUTS] = data, outputs[k - INPUTS] = take(bytes[v][k]);
            data += (bytes[v][k] + 63) / 64 * 64;
        }}
        must({p}_run(context, {sizes_of_v}, inputs, outputs));
        for (int k = 0; k < OUTPUTS; k++) {{
            double off = difference(outputs[k], wanted[k], bytes[v][INPUTS + k], kinds[k]);
            bad |= !(off <= tolerances[k]);
            printf("variant %d, output %d: largest difference %.3g\\n", v, k, off);
        }}
        double best = INFINITY;
        for (int k = 1; k < calls; k++) {{
            double began = now();
            must({p}_run(context, {sizes_of_v}, inputs, outputs));
            double took = now() - began;
            if (took < best) best = took;
        }}
        if (calls > 1) printf("variant %d: best of %d calls %.1f us\\n", v, calls, 1e6 * best);
        for (int k = 0; k < OUTPUTS; k++) free(outputs[k]);
    }}
    puts(bad ? "WRONG" : "right");
    return bad;
}}
"""
_KINDS = {"float32": "f", "float64": "d", "float16": "h", "bfloat16": "b", "complex64": "f",
          "complex128": "d"}  # fmt: skip


def source(i: Interface, command: str) -> str:
    """The text of the C program."""
    dtypes = [port.metas[0].dtype.name for port in i.outputs]
    rows = [[port.nbytes[v] for port in (*i.inputs, *i.outputs)] for v in range(len(i.sizes))]
    sizes = ""
    if i.size_names:
        of_each = [_braces(s) for s in i.sizes]
        sizes = f"static const int64_t sizes[VARIANTS][{len(i.size_names)}] = {_braces(of_each)};"
    load = f"    must({i.prefix}_model_init(model, NULL, 0));"
    if not i.inside:
        load = (
            f'    void *weights = read_file("{i.prefix}.safetensors", &weights_bytes);\n'
            f"    must({i.prefix}_model_init(model, weights, (int64_t)weights_bytes));"
        )
    return _TEXT.format(
        p=i.prefix, upper=i.prefix.upper(), not_here=NOT_HERE, command=command,
        variants=len(i.sizes), inputs=len(i.inputs),
        outputs=len(i.outputs), sizes=sizes, bytes=_braces([_braces(r) for r in rows]),
        kinds="".join(_KINDS.get(d, "x") for d in dtypes),
        tolerances=", ".join(str(_TOLERANCES.get(_real(d), 0)) for d in dtypes),
        load=load, sizes_of_v="sizes[v]" if i.size_names else "NULL",
        weights_size="" if i.inside else ", weights_bytes",
    )  # fmt: skip


def _real(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def _braces(items: Sequence[Any]) -> str:
    return "{" + ", ".join(map(str, items)) + "}"


def data(variants: Sequence[Sequence[Any]]) -> bytes:
    """Of each variant all inputs and outputs (tensors), each from a multiple of 64 on."""
    found = bytearray()
    for tensors in variants:
        for t in tensors:
            raw = dense_bytes(t.detach()).tobytes()
            found += raw + bytes(-len(raw) % ALIGNMENT)
    return bytes(found)
