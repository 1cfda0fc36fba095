"""Names that libraries ask of torch beyond its public modules: compiler, extension module, tools."""

from __future__ import annotations

import typing
import urllib.parse

from lucerne._src.as_torch.kinds import (
    NameTable,
    answers,
    classes,
    passes,
    refusals,
    same,
    space,
    values,
)

SMALL, CHOICES = "_src.as_torch.small", "_src.as_torch.choices"
NO_GPU = "This build has no GPU: torch.cuda.is_available() is False."
NO_XPU = "This build serves no XPU: torch.xpu.is_available() is False."
COMPILER = "Lucerne's compiler is its own: lucerne.compiler has what programs may ask of it."
EXTENSION = "Lucerne has no extension module; these are the names of it that libraries use."
NO_ONNX = "Lucerne writes ONNX by torch.onnx.export alone, from rules of its own."
NO_EAGER_QUANT = (
    "Lucerne quantizes by lucerne.quantization.quantize_: observers and stubs are not needed."
)
FAKE = "Lucerne traces with tensors of its own kind: use the device 'meta' for shapes alone."
SYMBOLS = "Lucerne's sizes are its own expressions: torch.SymInt, and torch.export.Dim for users."
BATCHING = "Lucerne's vmap has levels of its own: use torch.func.vmap."
SCRIPT = "Lucerne runs TorchScript as the Python it is."
PLAIN = "Names that work here as in torch."
LOADER = "Lucerne loads no library made for libtorch: C++ kernels come by utils.cpp_extension."
COMPILER_OF_CPP = (
    "C++ is compiled against TVM-FFI, not libtorch: docs/extend/cpp.md ports an extension."
)

_QUANTIZERS = (
    "FakeQuantize FakeQuantizeBase HistogramObserver MinMaxObserver MovingAverageMinMaxObserver "
    "ObserverBase PerChannelMinMaxObserver QConfig QConfigMapping QuantWrapper"
)

SPACES: dict[str, NameTable] = {
    "": space(
        "Lucerne has what it can do under torch's public names.",
        same(SMALL, "_check _check_index _check_not_implemented _check_tensor_all "
             "_check_tensor_all_with _check_type _check_value _check_with _shape_as_tensor"),
        same("jit", "ScriptModule ScriptFunction"),
        same("_src.ir.symbolic.numbers", "SymFloat"),
        same("futures", "Future"),
        same("_src.as_torch.itself", "torch"),
        same("_src.base.device", "DeviceObjType=device"),
        same("storage", "StorageBase=_StorageBase"),
        classes("SymBool PyTorchFileReader PyTorchFileWriter TensorType ClassType StaticModule"),
        refusals("_grouped_mm _scaled_mm _scaled_grouped_mm _make_per_tensor_quantized_tensor"),
        same("_src.as_torch.asserting", "_assert_async"),
    ),
    "__config__": space(
        PLAIN,
        same("_src.environment", "show parallel_info"),
    ),
    "_C": space(
        EXTENSION,
        same("", "Generator"),
        same("_src.base.device", "device"),
        same("_src.as_torch.itself", "_TensorMeta"),
        same(CHOICES, "DispatchKey DispatchKeySet"),
        same("_src.as_torch.small", "_ExcludeDispatchKeyGuard=nothing"),
        same("func.active", "_are_functorch_transforms_active=transforms_active"),
        same(SMALL, "_is_alias_of=is_alias_of "
             "_is_torch_function_mode_enabled=function_mode_enabled"),
        classes("Graph Node Value Block TensorType ScriptObject Argument FunctionSchema _TensorBase"),
        answers(None, "_log_api_usage_once", "counts nothing"),
        answers(None, "_get_tracing_state", "None: nothing is traced by TorchScript"),
        answers(None, "_get_accelerator", "None: there is none"),
        answers("privateuseone", "_get_privateuse1_backend_name", "torch's name for it"),
        answers(False, "_jit_can_fuse_on_cpu _jit_can_fuse_on_gpu", "False: there is no such fuser"),
        answers(
            None,
            "_jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu _jit_set_nvfuser_enabled "
            "_jit_set_nvfuser_guard_mode _jit_set_profiling_executor _jit_set_profiling_mode "
            "_jit_set_texpr_fuser_enabled _set_math_sdp_allow_fp16_bf16_reduction",
            "a switch of a fuser that is not there",
        ),
        values("no such hardware", _has_xpu=False, _has_cuda=False, _has_mps=False),
    ),
    "_C._nn": space(
        EXTENSION,
        same("nn.functional", "gelu linear scaled_dot_product_attention"),
        same(SMALL, "_parse_to=parse_to"),
    ),
    "_C._distributed_c10d": space(
        "Process groups are Python here.",
        same("distributed", "ProcessGroup Store Work"),
        classes("Reducer _ProcessGroupWrapper"),
    ),
    "_C._functorch": space(
        BATCHING,
        answers(False, "is_batchedtensor is_functorch_wrapped_tensor is_gradtrackingtensor "
                "is_legacy_batchedtensor",
                "False: no tensor is of torch's batching"),
        passes("get_unwrapped", "gives its argument back"),
        answers(-1, "maybe_get_bdim maybe_get_level", "-1: no level"),
        refusals("_add_batch_dim _remove_batch_dim _unwrap_batched _vmap_decrement_nesting "
                 "_vmap_increment_nesting"),
    ),
    "_C._profiler": space(EXTENSION, classes("_ExperimentalConfig")),
    "_custom_ops": space(EXTENSION, same("library", "get_ctx")),
    "_dynamo": space(
        COMPILER,
        same("compiler", "OptimizedModule allow_in_graph assume_constant_result disable "
             "is_compiling list_backends mark_dynamic register_backend reset "
             "substitute_in_graph maybe_mark_dynamic=mark_dynamic"),
        answers(None, "graph_break mark_static mark_static_address decorate_context_fn",
                "has no effect: a hint for torch's compiler"),
        passes("forbid_in_graph disallow_in_graph run nonstrict_trace dont_skip_tracing"),
        refusals("explain export optimize optimize_assert"),
    ),
    "_dynamo.config": space(
        "Settings of torch's compiler: they can be set, and have no effect here.",
        values(
            "torch's default", cache_size_limit=8, recompile_limit=8,
            accumulated_cache_size_limit=256, verbose=False, suppress_errors=False,
            capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False,
            dynamic_shapes=True, assume_static_by_default=True, automatic_dynamic_shapes=True,
            inline_inbuilt_nn_modules=True, optimize_ddp=True, disable=False,
            specialize_int=False, skip_fwd_side_effects_in_bwd_under_checkpoint=False,
        ),
        same(SMALL, "patch=DynamoPatch"),
    ),
    "_dynamo.decorators": space(
        COMPILER,
        same("compiler", "allow_in_graph assume_constant_result disable mark_dynamic"),
        answers(None, "mark_static_address mark_static", "has no effect"),
    ),
    "_dynamo.eval_frame": space(
        COMPILER,
        same("compiler", "OptimizedModule disable"),
        answers(True, "is_dynamo_supported", "True: torch.compile works"),
    ),
    "_dynamo.exc": space(COMPILER, classes(
        "BackendCompilerFailed TensorifyScalarRestartAnalysis TorchDynamoException Unsupported")),
    "_dynamo.external_utils": space(COMPILER, same("compiler", "is_compiling")),
    "_dynamo.utils": space(
        COMPILER,
        answers(False, "is_compile_supported", "False: torch's own compiler is not here"),
        classes("CompileProfiler"),
    ),
    "_dynamo._trace_wrapped_higher_order_op": space(
        COMPILER, same(SMALL, "TransformGetItemToIndex=nothing")
    ),
    "_functorch": space(BATCHING),
    "_functorch.apis": space(BATCHING, same("func", "grad grad_and_value vmap")),
    "_functorch.deprecated": space(
        BATCHING,
        same("func", "functionalize grad grad_and_value hessian jacfwd jacrev jvp vjp vmap"),
        refusals("combine_state_for_ensemble make_functional make_functional_with_buffers"),
    ),
    "_functorch.eager_transforms": space(
        BATCHING, same("func", "functionalize grad hessian jacfwd jacrev jvp vjp")
    ),
    "_functorch.functional_call": space(BATCHING, same("func", "functional_call stack_module_state")),
    "_functorch.make_functional": space(
        BATCHING,
        classes("FunctionalModule FunctionalModuleWithBuffers"),
        refusals("make_functional make_functional_deprecated_v1 make_functional_with_buffers "
                 "make_functional_with_buffers_deprecated_v1"),
    ),
    "_functorch.python_key": space(BATCHING, same("fx.experimental.proxy_tensor", "make_fx")),
    "_functorch.vmap": space(
        BATCHING,
        same("func", "vmap"),
        same("", "Tensor"),
        same("utils._pytree", "_broadcast_to_and_flatten tree_flatten tree_unflatten"),
        refusals(
            "_add_batch_dim _create_batched_inputs _flat_vmap _get_name _maybe_remove_batch_dim "
            "_process_batched_inputs _remove_batch_dim _unwrap_batched "
            "_validate_and_get_batch_size _vmap_decrement_nesting _vmap_increment_nesting "
            "lazy_load_decompositions vmap_decrement_nesting vmap_impl vmap_increment_nesting"
        ),
    ),
    "_inductor": space(
        COMPILER,
        same("compiler", "cudagraph_mark_step_begin"),
        refusals("aot_compile compile list_mode_options"),
    ),
    "_inductor.codecache": space(COMPILER, refusals("extract_tensor_metadata_for_cache_key")),
    "_inductor.config": space(
        "Settings of torch's code generator: they can be set, and have no effect here.",
        values("torch's default", max_autotune=False, fallback_random=False, coordinate_descent_tuning=False,
               epilogue_fusion=True, freezing=False, cpp_wrapper=False, fx_graph_cache=True),
        same(SMALL, "patch=InductorPatch"),
    ),
    "_guards": space(COMPILER, answers(None, "active_fake_mode detect_fake_mode", "None: " + FAKE)),
    "_jit_internal": space(
        SCRIPT,
        same("jit", "Final export ignore is_scripting unused"),
        same(SMALL, "BroadcastingList1=BroadcastingList BroadcastingList2=BroadcastingList "
             "BroadcastingList3=BroadcastingList"),
        passes("boolean_dispatch _overload _overload_method _copy_to_script_wrapper"),
    ),
    "_lowrank": space(PLAIN, same("", "pca_lowrank svd_lowrank")),
    "_ops": space(
        "Operators that take functions are functions here.", classes("HigherOrderOperator")
    ),
    "_prims_common": space(
        PLAIN,
        same("_src.as_torch.asserting", "alert_not_deterministic is_contiguous_or_false"),
    ),
    "_subclasses": space(FAKE, same("_src.as_torch.fake_names", "FakeTensor FakeTensorMode")),
    "_subclasses.fake_tensor": space(
        FAKE,
        same("_src.as_torch.fake_names", "FakeTensor FakeTensorMode"),
        answers(False, "is_fake", "False: no tensor is of torch's fake class"),
        refusals("unset_fake_temporarily"),
    ),
    "_subclasses.functional_tensor": space(
        FAKE, classes("FunctionalTensor"), refusals("mb_unwrap_functional_tensor")
    ),
    "_subclasses.meta_utils": space(FAKE, classes("MetaConverter")),
    "_weights_only_unpickler": space(
        PLAIN, same("serialization", "_safe_globals=safe_globals")
    ),
    "ao": space(NO_EAGER_QUANT),
    "ao.nn": space(NO_EAGER_QUANT),
    "ao.nn.quantized": space(NO_EAGER_QUANT, classes("FloatFunctional Linear Conv2d")),
    "ao.quantization": space(
        NO_EAGER_QUANT,
        same("nn", "DeQuantStub=Identity QuantStub=Identity"),
        classes(_QUANTIZERS),
        refusals(
            "convert default_observer default_per_channel_weight_observer default_weight_observer "
            "fuse_modules fuse_modules_qat get_default_qat_qconfig get_default_qconfig prepare "
            "prepare_qat"
        ),
    ),
    "ao.quantization.fx": space(NO_EAGER_QUANT),
    "ao.quantization.fx._decomposed": space(NO_EAGER_QUANT),
    "ao.quantization.quantize_fx": space(NO_EAGER_QUANT, refusals("convert_fx prepare_fx prepare_qat_fx")),
    "autograd": space(
        PLAIN,
        answers(None, "_disable_profiler", "nothing: torch's old profiler is not running"),
        answers(False, "_profiler_enabled", "False: torch's old profiler is not running"),
    ),
    "backends.cpu": space(PLAIN, same("_src.as_torch.itself", "get_cpu_capability")),
    "backends.cuda": space(
        NO_GPU,
        classes("SDPAParams cuFFTPlanCache"),
        answers(False, "can_use_cudnn_attention can_use_efficient_attention can_use_flash_attention",
                "False: there is no GPU"),
    ),
    "backends": space(PLAIN, values("torch's default", fp32_precision="none")),
    "backends.quantized": space(
        NO_EAGER_QUANT, values("no engine", engine="none", supported_engines=["none"])
    ),
    "backends.xnnpack": space(NO_EAGER_QUANT, values("absent", enabled=False)),
    "classes": space(LOADER, refusals("load_library")),
    "cuda": space(
        NO_GPU,
        classes(
            "BFloat16Tensor BoolTensor ByteTensor CUDAGraph CharTensor DoubleTensor "
            "ExternalStream FloatTensor HalfTensor IntTensor LongTensor MemPool OutOfMemoryError "
            "ShortTensor StreamContext device device_of graph",
        ),
        refusals("default_stream graph_pool_handle make_graphed_callables nvtx_range "
                 "can_device_access_peer"),
        answers(False, "is_current_stream_capturing is_tf32_supported", "False: there is no GPU"),
        answers(None, "reset_max_memory_allocated reset_max_memory_cached set_rng_state_all "
                "set_per_process_memory_fraction reset_accumulated_memory_stats",
                "nothing: no device holds memory or a generator"),
        answers({}, "memory_stats", "empty: no device holds memory"),
        answers([], "get_arch_list", "empty: there is no GPU"),
        values("no device, no generator", default_generators=()),
    ),
    "cuda.amp.common": space(
        NO_GPU, answers(True, "amp_definitely_not_available", "True: there is no GPU")
    ),
    "cuda.amp.autocast_mode": space(NO_GPU, same("cuda.amp", "autocast custom_bwd custom_fwd")),
    "cuda.amp.grad_scaler": space(NO_GPU, same("cuda.amp", "GradScaler")),
    "cuda.comm": space(NO_GPU, refusals("broadcast broadcast_coalesced gather reduce_add scatter")),
    "cuda.graphs": space(NO_GPU, classes("CUDAGraph graph")),
    "cuda.memory": space(NO_GPU, classes("CUDAPluggableAllocator MemPool")),
    "cuda.nvtx": space(NO_GPU, refusals("mark range range_pop range_push")),
    "cuda.profiler": space(NO_GPU, refusals("init profile start stop")),
    "cuda.random": space(
        NO_GPU, same("cuda", "get_rng_state get_rng_state_all manual_seed manual_seed_all")
    ),
    "cuda.streams": space(NO_GPU, same("cuda", "Event Stream")),
    "distributions.transforms": space(PLAIN, same("distributions.transforms", "_clipped_sigmoid=clipped_sigmoid")),
    "export._trace": space(COMPILER, refusals("_export")),
    "export.decomp_utils": space(COMPILER, classes("CustomDecompTable")),
    "fx.experimental.proxy_tensor": space(
        COMPILER, answers(None, "get_proxy_mode", "None: torch's mode is not running"),
        answers(None, "maybe_disable_fake_tensor_mode", "None"),
    ),
    "fx.experimental.symbolic_shapes": space(
        SYMBOLS,
        classes("GuardOnDataDependentSymNode ShapeEnv SymNode DimDynamic"),
        answers(set(), "free_symbols free_unbacked_symbols", "empty: sizes are numbers here"),
        same("_src.as_torch.asserting", "guard_or_false=as_bool guard_or_true=as_bool "
             "guard_size_oblivious=as_bool statically_known_true=as_bool definitely_true=as_bool "
             "guard_int=as_int"),
    ),
    "hub": space(
        PLAIN, values("the standard library's", urlparse=urllib.parse.urlparse)
    ),
    "jit": space(
        SCRIPT,
        same("jit", "_script_if_tracing=script_if_tracing"),
        passes("_overload _overload_method strict_fusion"),
        refusals("_get_trace_graph"),
    ),
    "jit._script": space(SCRIPT, same("jit", "ScriptModule RecursiveScriptModule script")),
    "jit._trace": space(SCRIPT, same("jit", "trace TopLevelTracedModule")),
    "jit.annotations": space(
        SCRIPT,
        same(SMALL, "BroadcastingList1=BroadcastingList BroadcastingList2=BroadcastingList "
             "BroadcastingList3=BroadcastingList"),
        values("Python's", List=typing.List, Dict=typing.Dict, Optional=typing.Optional),  # noqa: UP006
    ),
    "mtia": space(
        "Lucerne serves no MTIA.", answers(False, "is_available", "False: there is none"),
        answers(0, "device_count", "0: there is none"),
    ),
    "nn.modules.activation": space(
        PLAIN, same("nn.init", "constant_ xavier_normal_ xavier_uniform_")
    ),
    "nested._internal": space(PLAIN),
    "nested._internal.nested_tensor": space(
        PLAIN, same("_src.tensor.nested.kinds", "NestedTensor=JaggedTensor")
    ),
    "nn.quantized": space(NO_EAGER_QUANT, classes("FloatFunctional Linear Conv2d")),
    "nn.utils._named_member_accessor": space(PLAIN, same(SMALL, "swap_tensor")),
    "nn.utils.clip_grad": space(PLAIN),
    "numa": space("Lucerne binds no process to a part of the machine."),
    "numa.binding": space(
        "Lucerne binds no process to a part of the machine.",
        same(CHOICES, "AffinityMode"), classes("NumaOptions"),
    ),
    "onnx": space(
        NO_ONNX,
        same(CHOICES, "OperatorExportTypes TrainingMode TensorProtoDataType"),
        classes("ExportOptions JitScalarType"),
        refusals("dynamo_export"),
        answers(False, "is_in_onnx_export", "False: a program is recorded as it runs"),
        answers(None, "register_custom_op_symbolic unregister_custom_op_symbolic",
                "nothing: no export will ask for it"),
    ),
    "onnx._internal": space(NO_ONNX),
    "onnx._internal.exporter": space(NO_ONNX, classes("ONNXProgram")),
    "onnx.operators": space(
        NO_ONNX, same(SMALL, "shape_as_tensor=_shape_as_tensor"), refusals("reshape_from_tensor_shape")
    ),
    "onnx.symbolic_helper": space(
        NO_ONNX, passes("parse_args quantized_args"), refusals("_get_tensor_sizes _unimplemented"),
        values("empty", cast_pytorch_to_onnx={}),
    ),
    "onnx.symbolic_opset9": space(NO_ONNX, refusals("masked_fill softmax expand unsqueeze")),
    "onnx.symbolic_opset11": space(NO_ONNX, refusals("select squeeze unsqueeze")),
    "onnx.symbolic_opset12": space(NO_ONNX, refusals("dropout")),
    "ops": space(LOADER, same("_src.as_torch.extensions", "load_library")),
    "optim.optimizer": space(
        PLAIN, same(SMALL, "_default_to_fused_or_foreach=default_to_fused_or_foreach"),
        answers(["cuda", "xpu", "hpu", "privateuseone", "xla"], "_get_capturable_supported_devices",
                "torch's list"),
    ),
    "profiler.profiler": space(
        PLAIN, same("_src.as_torch.itself", "_default_schedule_fn"),
    ),
    "serialization": space(
        PLAIN,
        values("torch's", DEFAULT_PROTOCOL=2, MAP_LOCATION=typing.Any, FILE_LIKE=typing.Any),
    ),
    "types": space(
        PLAIN, same("_src.base.device", "_device=device"), same("_src.base.dtype", "_dtype=dtype"),
        same("_src.base.layout", "_layout=layout"),
    ),
    "utils._config_module": space(COMPILER, classes("ConfigModule")),
    "utils._device": space(PLAIN, same("_src.as_torch.itself", "DeviceContext")),
    "utils._sympy": space(SYMBOLS),
    "utils._sympy.numbers": space(SYMBOLS, classes("IntInfinity")),
    "utils._sympy.value_ranges": space(SYMBOLS, classes("ValueRanges")),
    "utils.bundled_inputs": space(SCRIPT, refusals("augment_model_with_bundled_inputs")),
    "utils.cpp_extension": space(
        COMPILER_OF_CPP,
        classes("BuildExtension"),
        refusals("CUDAExtension CppExtension SyclExtension"),
        answers(False, "is_ninja_available", "False: ninja is not used"),
        values("absent", CUDA_HOME=None, ROCM_HOME=None),
    ),
    "utils.data._utils.collate": space(PLAIN, same(SMALL, "np_str_obj_array_pattern=NUMPY_TEXT")),
    "utils.data._utils.worker": space(PLAIN, same(SMALL, "_generate_state=generate_state")),
    "utils.data.datapipes.iter.combinatorics": space(
        PLAIN,
        same("utils.data.datapipes.iter", "ShufflerIterDataPipe=Shuffler"),
    ),
    "utils.data.graph_settings": space(
        PLAIN, same(SMALL, "apply_shuffle_settings=graph_settings_apply_shuffle")
    ),
    "utils.mobile_optimizer": space(SCRIPT, refusals("optimize_for_mobile")),
    "xpu": space(
        NO_XPU,
        classes("Event Stream StreamContext device"),
        answers(False, "is_bf16_supported is_current_stream_capturing", "False: there is none"),
        answers(0, "max_memory_allocated max_memory_reserved memory_allocated memory_reserved",
                "0: no device holds memory"),
        answers([], "get_rng_state_all", "empty: no device has a generator"),
        answers(None, "reset_peak_memory_stats set_rng_state_all", "nothing: there is no device"),
        refusals("get_device_capability get_device_properties get_rng_state mem_get_info set_rng_state"),
    ),
}  # fmt: skip
