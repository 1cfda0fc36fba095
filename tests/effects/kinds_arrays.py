"""Memory of others: arrays, buffers and views that native code writes into."""

from __future__ import annotations

from functools import partial

from tests.effects.kinds import kind

arrays = partial(kind, "arrays")
_ONES = "S = np.ones(3)"
_READ = "float(S[0])"

for name, write in {
    "by item": "S[0] += 0.5",
    "in place": "np.ndarray.__iadd__(S, 0.5)",
    "by out": "np.add(S, 0.5, out=S)",
    "by out in a place": "np.add(S, 0.5, S)",
    "by a method with out": "np.ones(3).cumsum(0, None, S)",
    "by fill": "S.fill(S[0] + 0.5)",
    "by copyto": "np.copyto(S, S + 0.5)",
    "by put": "np.put(S, [0], [S[0] + 0.5])",
    "by at": "np.add.at(S, [0], 0.5)",
    "by flat": "S.flat[0] = S[0] + 0.5",
    "by nditer": "for v in np.nditer(S, op_flags=['readwrite']):\n    v[...] = v + 0.5",
    "by a view": "S[:1][:] = S[0] + 0.5",
    "by reshape": "v = S.reshape(1, 3)\nv += 0.5",
    "by real": "S.real[0] = S[0] + 0.5",
    "by memoryview": "memoryview(S)[0] = float(S[0] + 0.5)",
    "by frombuffer": "v = np.frombuffer(S.data, np.float64)\nv[0] = S[0] + 0.5",
    "by asarray": "v = np.asarray(S)\nv[0] = S[0] + 0.5",
    "by setfield": "S.setfield(S[0] + 0.5, S.dtype)",
    "by clip": "np.clip(S + 0.5, 0, 9, S)",
    "by take": "np.take(S + 0.5, [0, 1, 2], 0, S)",
    "by dot": "np.dot(np.eye(3), S + 0.5, S)",
    "by partition": "S[0] = S[0] + 9\nS.partition(1)",
    "by shuffle": "S[1] += 1\nnp.random.shuffle(S)",
    "by random out": "np.random.default_rng(4).random(3, np.float64, S)",
    "by ctypes": "ctypes.memset(S.ctypes.data, 0, 4)",
    "by memmove": "t = np.ones(3) * (S[0] + 0.5)\nctypes.memmove(S.ctypes.data, t.ctypes.data, 24)",
    "by ctypes pointer": "S.ctypes.data_as(ctypes.POINTER(ctypes.c_double))[0] = S[0] + 0.5",
    "by struct": "struct.pack_into('d', S.data.cast('B'), 0, S[0] + 0.5)",
    "by readinto": "io.BytesIO((S + 0.5).tobytes()).readinto(S.data)",
    "by functools.partial": "functools.partial(np.add, S, 0.5)(S)",
    "by map": "list(map(S.__setitem__, [0], [float(S[0]) + 0.5]))",
    "by a tensor over it": "torch.from_numpy(S).add_(0.5)",
    "by asarray of a tensor": "torch.as_tensor(S).add_(0.5)",
    "by setflags": "S.setflags(write=True)\nS[0] += 0.5",
    "by sort": "S[0] = S[0] + 9\nS.sort()",
    "by np.sort out": "S[0] = S[0] + 9\nnp.ndarray.sort(S)",
    "by byteswap": "S.byteswap(True)\nS.byteswap(True)\nS[0] += 1",
    "by vectorize": "np.vectorize(lambda i: S.__setitem__(i, S[i] + 0.5))(np.arange(1))",
    "by apply_along_axis": "np.apply_along_axis(lambda r: S.__setitem__(0, S[0] + 0.5) or "
    "0.0, 0, np.ones(1))",
    "by ufunc where": "np.negative(S, where=[True, False, False], out=S)",
    "by resize": "np.multiply(S, 1.25, S)",
    "by einsum": "np.einsum('i->i', S + 0.5, out=S)",
    "by np.ma": "m = np.ma.masked_array(S, copy=False)\nm[0] = S[0] + 0.5",
    "by shape": "S.shape = (3,)\nS[0] += 0.5",
    "by dtype view": "S.view(np.int64)[0] += 1 << 51",
    "by nan_to_num": "S[0] = S[0] + 0.5\nnp.nan_to_num(S, False, 1.0)",
}.items():
    arrays(f"numpy {name}", _ONES, _READ, write=write, change="S[0] = k", state="S.tolist()")

arrays(
    "numpy scalar array",
    "S = np.array(1.0)",
    "float(S)",
    write="S += 0.5",
    change="S[()] = k",
    rebinds=True,
)
arrays("numpy summed", _ONES, "float(S.sum())", write="S[1] *= 1.5", change="S[2] = k")
arrays(
    "numpy item()",
    _ONES,
    "S.item(0)",
    write="S.itemset(0, 2.0) if 0 else S.fill(S[0] + 1)",
    change="S[0] = k",
)
arrays(
    "numpy to a tensor",
    _ONES,
    "torch.from_numpy(S)[0].float()",
    write="S[0] += 0.5",
    change="S[0] = k",
)
arrays(
    "numpy copied to a tensor",
    _ONES,
    "torch.tensor(S)[0].float()",
    write="S[0] += 0.5",
    change="S[0] = k",
)
arrays(
    "numpy of objects",
    "S = np.array([1.0, None], dtype=object)",
    "S[0]",
    write="S[0] += 0.5",
    change="S[0] = k",
)
arrays(
    "numpy structured",
    "S = np.zeros(2, [('a', 'f8')])",
    "float(S['a'][0])",
    write="S['a'][0] += 0.5",
    change="S['a'] = k",
)
arrays(
    "numpy record",
    "S = np.zeros(2, [('a', 'f8')]).view(np.recarray)",
    "float(S.a[0])",
    write="S.a[0] += 0.5",
    change="S.a = k",
)
arrays(
    "numpy void",
    "A = np.zeros(2, [('a', 'f8')])\nS = A[0]",
    "float(S['a'])",
    write="S['a'] += 0.5",
    change="A['a'] = k",
)
arrays(
    "numpy view of another",
    "A = np.ones(4)\nS = A[1:]",
    _READ,
    write="A[1] += 0.5",
    change="A[1] = k",
)
arrays(
    "numpy matrix",
    "S = np.matrix([[1.0, 2.0]])",
    "float(S[0, 0])",
    write="S[0, 0] += 0.5",
    change="S[0, 0] = k",
)
arrays(
    "numpy subclass",
    "class A(np.ndarray): pass\nS = np.ones(3).view(A)\nS.a = 1.0",
    "float(S[0]) + S.a",
    write="S[0] += 0.5\nS.a += 0.25",
    change="S[0] = k\nS.a = k",
)
arrays(
    "numpy large", "S = np.ones(20000)", _READ, write="S[0] += 0.5", change="S[0] = k", state="S[0]"
)
arrays(
    "numpy dtype set",
    "S = np.ones(2)",
    "float(S.itemsize)",
    write="S.dtype = np.float32 if S.dtype == np.float64 else np.float64",
    change="S.dtype = np.int64 if k == 2.0 else np.float64",
)
arrays(
    "numpy flags",
    "S = np.ones(2)",
    "2.0 if S.flags.writeable else 3.0",
    write="S.flags.writeable = not S.flags.writeable",
    change="S.flags.writeable = k == 1.0",
)
arrays(
    "numpy flat iterator",
    "A = np.arange(60.0)\nS = A.flat",
    "next(S)",
    change="A[:] = k",
    state="S.index",
)
arrays(
    "numpy poly",
    "S = np.poly1d([1.0, 2.0])",
    "float(S(1.0))",
    write="S.coeffs[0] += 0.5",
    change="S.coeffs[0] = k",
)
arrays(
    "masked array",
    "S = np.ma.array([1.0, 2.0], mask=[0, 1])",
    "float(S.sum())",
    write="S.mask[1] = not S.mask[1]",
    change="S.data[0] = k",
)
arrays(
    "tensor of numpy memory",
    "A = np.ones(1, np.float32)\nS = torch.from_numpy(A)",
    "S",
    write="A += 0.5",
    change="A[0] = k",
    places=("argument", "attribute"),
)
arrays(
    "numpy of tensor memory",
    "T = torch.ones(1)\nS = T.numpy()",
    _READ,
    write="T.add_(0.5)",
    change="T.fill_(k)",
)
arrays(
    "numpy of tensor memory, read by the tensor",
    "S = torch.ones(1)\nA = S.numpy()",
    "S",
    write="np.add(A, 0.5, A)",
    change="A[0] = k",
)
arrays(
    "array.array",
    "S = array.array('d', [1.0, 2.0])",
    "S[0]",
    write="S[0] += 0.5",
    change="S[0] = k",
    state="list(S)",
)
arrays(
    "array.array that grows",
    "S = array.array('d', [1.0])",
    "float(len(S))",
    write="S.append(1.0)",
    change="S[:] = array.array('d', [1.0] * int(k))",
    state="list(S)",
)
arrays(
    "array.array extended",
    "S = array.array('d', [1.0])",
    "sum(S)",
    write="S.extend([0.5])",
    change="S[:] = array.array('d', [k])",
    state="list(S)",
)
arrays(
    "array.array by readinto",
    "S = array.array('b', [1, 2])",
    "float(S[0])",
    write="io.BytesIO(bytes([S[0] + 1, 2])).readinto(S)",
    change="S[0] = int(k)",
    state="list(S)",
)
arrays(
    "array.array by slice",
    "S = array.array('d', [1.0, 2.0])",
    "S[0]",
    write="S[:1] = array.array('d', [S[0] + 0.5])",
    change="S[0] = k",
    state="list(S)",
)
arrays(
    "array.array by numpy",
    "S = array.array('d', [1.0])",
    "S[0]",
    write="np.add(np.frombuffer(S), 0.5, np.frombuffer(S))",
    change="S[0] = k",
    state="list(S)",
)
arrays(
    "array.array by pack_into",
    "S = array.array('d', [1.0])",
    "S[0]",
    write="struct.pack_into('d', S, 0, S[0] + 0.5)",
    change="S[0] = k",
    state="list(S)",
)
arrays(
    "array.array by a Struct",
    "S = array.array('d', [1.0])\nP = struct.Struct('d')",
    "S[0]",
    write="P.pack_into(S, 0, S[0] + 0.5)",
    change="S[0] = k",
    state="list(S)",
)
arrays(
    "array.array by a tensor",
    "S = array.array('f', [1.0])",
    "S[0]",
    write="torch.frombuffer(S, dtype=torch.float32).add_(0.5)",
    change="S[0] = k",
    state="list(S)",
)
arrays(
    "subclass of array.array",
    "class A(array.array): pass\nS = A('d', [1.0])\nS.b = 1.0",
    "S[0] + S.b",
    write="S[0] += 0.5\nS.b += 0.25",
    change="S[0] = k",
    state="list(S), S.b",
)
arrays(
    "bytearray",
    "S = bytearray([1, 2])",
    "float(S[0])",
    write="S[0] = (S[0] + 1) % 200",
    change="S[0] = int(k)",
)
arrays(
    "bytearray that grows",
    "S = bytearray([1])",
    "float(len(S))",
    write="S.append(1)",
    change="S[:] = bytes(int(k))",
)
arrays(
    "bytearray in place",
    "S = bytearray([1])",
    "float(len(S))",
    write="S += b'a'",
    change="S = bytearray(int(k))",
    rebinds=True,
)
arrays(
    "bytearray by pack_into",
    "S = bytearray(8)",
    "struct.unpack_from('d', S)[0]",
    write="struct.pack_into('d', S, 0, struct.unpack_from('d', S)[0] + 0.5)",
    change="S[:] = struct.pack('d', k)",
)
arrays(
    "bytearray by readinto",
    "S = bytearray([1, 2])",
    "float(S[0])",
    write="io.BytesIO(bytes([S[0] + 1, 2])).readinto(S)",
    change="S[0] = int(k)",
)
arrays(
    "bytearray by memoryview",
    "S = bytearray([1, 2])",
    "float(S[0])",
    write="memoryview(S)[0] = S[0] + 1",
    change="S[0] = int(k)",
)
arrays(
    "bytearray by numpy",
    "S = bytearray([1, 2])",
    "float(S[0])",
    write="v = np.frombuffer(S, np.uint8)\nnp.add(v, 1, v)",
    change="S[0] = int(k)",
)
arrays(
    "memoryview",
    "B = bytearray([1, 2])\nS = memoryview(B)",
    "float(S[0])",
    write="S[0] += 1",
    change="B[0] = int(k)",
    state="bytes(B)",
)
arrays(
    "memoryview by slice",
    "B = bytearray([1, 2])\nS = memoryview(B)",
    "float(S[0])",
    write="S[:1] = bytes([S[0] + 1])",
    change="S[0] = int(k)",
    state="bytes(B)",
)
arrays(
    "memoryview of an array",
    "B = array.array('d', [1.0])\nS = memoryview(B)",
    "S[0]",
    write="B[0] += 0.5",
    change="B[0] = k",
    state="list(B)",
)
arrays(
    "ctypes value",
    "S = ctypes.c_double(1.0)",
    "S.value",
    write="S.value += 0.5",
    change="S.value = k",
    state="S.value",
)
arrays(
    "ctypes array",
    "S = (ctypes.c_double * 2)(1.0, 2.0)",
    "S[0]",
    write="S[0] += 0.5",
    change="S[0] = k",
    state="list(S)",
)
arrays(
    "ctypes structure",
    "class P(ctypes.Structure):\n    _fields_ = [('a', ctypes.c_double)]\nS = P(1.0)",
    "S.a",
    write="S.a += 0.5",
    change="S.a = k",
    state="S.a",
)
arrays(
    "ctypes by pointer",
    "S = ctypes.c_double(1.0)\np = ctypes.pointer(S)",
    "S.value",
    write="p.contents.value += 0.5",
    change="p[0] = k",
    state="S.value",
)
arrays(
    "ctypes by memmove",
    "S = ctypes.c_double(1.0)",
    "S.value",
    write="ctypes.memmove(ctypes.byref(S), ctypes.byref(ctypes.c_double(S.value + 0.5)), 8)",
    change="S.value = k",
    state="S.value",
)
arrays(
    "BytesIO buffer",
    "B = io.BytesIO(bytes([1, 2]))\nS = B.getbuffer()",
    "float(S[0])",
    write="S[0] += 1",
    change="S[0] = int(k)",
    state="bytes(S)",
)
