"""Enumerations of torch that name choices: libraries compare with them and list their members."""

from __future__ import annotations

import enum
from typing import Any

# Name, the module it is of in torch, its members in order.
_ROWS = (
    ("BackwardPrefetch", "distributed.fsdp.api", "BACKWARD_PRE BACKWARD_POST"),
    ("CheckpointImpl", "distributed.algorithms._checkpoint.checkpoint_wrapper",
     "REENTRANT NO_REENTRANT"),
    ("OptimStateKeyType", "distributed.fsdp.api", "PARAM_NAME PARAM_ID"),
    ("ShardingStrategy", "distributed.fsdp.api",
     "FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2"),
    ("SplitPoint", "distributed.pipelining", "BEGINNING END"),
    ("StateDictType", "distributed.fsdp.api",
     "FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT"),
    ("AffinityMode", "numa.binding", "NODE SOCKET EXCLUSIVE CORE_COMPLEX"),
)  # fmt: skip
_MADE: dict[str, Any] = {
    name: enum.Enum(name, members, module=f"torch.{module}") for name, module, members in _ROWS
}


def _counted(name: str, module: str, members: str) -> Any:
    pairs = [(member, k) for k, member in enumerate(members.split())]
    return enum.IntEnum(name, pairs, module=f"torch.{module}")


_MADE |= {
    "OperatorExportTypes": _counted(
        "OperatorExportTypes", "onnx", "ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH"
    ),
    "TrainingMode": _counted("TrainingMode", "onnx", "EVAL PRESERVE TRAINING"),
    "TensorProtoDataType": _counted(
        "TensorProtoDataType", "onnx",
        "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 "
        "UINT64 COMPLEX64 COMPLEX128 BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 "
        "FLOAT8E5M2FNUZ",
    ),
    "DispatchKey": _counted(
        "DispatchKey", "_C",
        "Undefined CompositeExplicitAutograd CompositeImplicitAutograd CPU CUDA HIP XPU MPS Meta "
        "PrivateUse1 SparseCPU SparseCUDA QuantizedCPU QuantizedCUDA NestedTensorCPU BackendSelect "
        "Python Functionalize ADInplaceOrView Autograd AutogradCPU AutogradCUDA AutogradXPU "
        "AutogradMPS AutogradMeta AutocastCPU AutocastCUDA AutocastXPU AutocastMPS "
        "FuncTorchBatched PreDispatch PythonTLSSnapshot",
    ),
}  # fmt: skip


_MADE["DispatchKeySet"] = type(
    "DispatchKeySet",
    (frozenset,),
    {
        "__module__": "torch._C",
        "__new__": lambda cls, key=(): frozenset.__new__(
            cls, (key,) if isinstance(key, enum.Enum) else key
        ),
        "has": lambda self, key: key in self,
    },
)


def __getattr__(name: str) -> Any:
    if name in _MADE:
        return _MADE[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
