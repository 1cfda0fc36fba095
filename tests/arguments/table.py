"""Parameters that nothing reads, and why that is right: `name:parameter`, `*` for any text.

`UNMEANT` are arguments that users may give: docs/guide/porting.md says of each that it has no
meaning here. `FORMS` are parameters of functions that somebody else calls with a fixed list of
arguments.
"""

from __future__ import annotations

Rows = list[tuple[str, tuple[str, ...]]]

UNMEANT: Rows = [
    ("work on the host is done when a call returns: there is nothing to wait for", (
        "*:non_blocking", "lucerne._src.streams.Event.[rw]*:stream",
        "lucerne._src.streams.Stream.wait_*", "lucerne.cpu.Event.*:stream",
        "lucerne.cpu.Stream.wait_*",
        "lucerne.Tensor.record_stream:stream", "lucerne._src.streams.Event.__init__:blocking",
        "lucerne._src.streams.Event.__init__:interprocess", "lucerne.cpu.synchronize:device",
    )),
    ("there is one host, and one generator for all devices", (
        "lucerne.cpu.current_stream:device", "lucerne.cpu.set_device:device",
        "lucerne.random.fork_rng:devices", "lucerne.random.fork_rng:device_type",
        "lucerne.nn.parallel.data_parallel.DataParallel.__init__:device_ids",
        "lucerne.nn.parallel.parallel_apply:devices",
    )),
    ("there is no such device: it has no generators, no memory and no library", (
        "lucerne.*:seed", "lucerne.cuda.*:device", "lucerne.accelerator.*:device_index",
        "lucerne.accelerator.current_accelerator:check_available",
        "lucerne.backends.cudnn.is_acceptable:tensor",
        "lucerne.backends.mps.is_macos_or_newer:m*or",
        "lucerne.cuda.is_bf16_supported:including_emulation",
        "lucerne.utils.checkpoint.set_device_states:states", "lucerne.*_norm:cudnn_enable*",
    )),
    ("stores have one server, of our own, and a file needs no count of who uses it", (
        "*.TCPStore.__init__:use_libuv", "*.FileStore.__init__:world_size",
    )),
    ("no device wants pinned memory", (
        "lucerne.Tensor.is_pinned:device", "lucerne._src.tensor.autograd.graph.save_on_cpu.*",
    )),
    ("a hint about speed: the result is the same, and it is computed in one way", (
        "*:foreach", "*:fused", "*:has_complex", "*:has_sparse_grad", "lucerne.isin:assume_unique",
        "*.scaled*_mm:use_fast_accum", "*.flex_attention:kernel_options",
        "*.create_block_mask:_compile", "lucerne.nn.functional.linear_cross_entropy:options",
        "lucerne.jit.freeze:optimize_numerics", "lucerne.jit.set_fusion_strategy:strategy",
        "lucerne.jit.enable_onednn_fusion:enabled", "lucerne.jit.run_frozen_optimizations:*",
        "*.profile.__init__:post_processing_timeout_s", "*.profile.__init__:use_kineto",
    )),
    ("what it asks for is always so", (
        "lucerne.Tensor.topk:sorted", "lucerne.Tensor.unique:sorted",
        "lucerne.Tensor.argsort:stable", "lucerne.fx.graph.Graph.find_nodes:sort",
        "*max_pool1d_with_indices:return_indices", "lucerne.Tensor.to_dense:masked_grad",
        "*.ExportedProgram.module:check_guards", "*.SparseTensor.is_contiguous:memory_format",
        "*.make_fx:_allow_non_fake_inputs", "*.key_averages:group_by_overload_name",
    )),
    ("programs are recorded in one way, and what runs is Python", (
        "lucerne.export.export:strict", "lucerne.jit.trace:strict", "lucerne.jit.*:_*",
        "lucerne.jit.ignore:kwargs", "lucerne.jit.annotate:the_type", "lucerne.jit.Attribute:type",
        "*.compiler.substitute_in_graph:options",
    )),
    ("files are written in one form, which every reader takes", (
        "*.save:pickle_protocol", "lucerne.save:_disable_byteorder_record",
    )),
    ("what is registered stays as long as the operator does", (
        "*.register_autograd:lib", "lucerne.library.*:lib", "lucerne.library.*:_stacklevel",
    )),
    ("no repository is fetched, so there is none to trust, to check or to fetch again", (
        "lucerne._src.hub.*:trust_repo", "lucerne._src.hub.*:force_reload",
        "lucerne._src.hub.*:skip_validation", "lucerne._src.hub.*:verbose",
    )),
    ("ignored by PyTorch too", (
        "lucerne.nn.modules.linear.Identity.__init__:*", "*.split_module:root_m",
        "*.add_pr_curve_raw:weights", "*.infer_schema:tags", "lucerne.Tensor.expand:implicit",
        "lucerne.expand_copy:implicit", "*:enable_df_api_tracing", "*.normalize*:*arg_types",
        "lucerne.random.fork_rng:_*",
    )),
    ("text for people, who may read it without", (
        "*.print_readable:colored", "lucerne.profiler.itt.*", "*._Marks.__init__:record_shapes",
    )),
]  # fmt: skip

FORMS: Rows = [
    ("libraries call these of torch's own, behind `import torch`, with arguments of theirs", (
        "lucerne._src.as_torch.finder.TorchFinder.find_spec:target",
        "lucerne._src.as_torch.small.default_to_fused_or_foreach:*",
        "lucerne._src.as_torch.small.nothing:*",
    )),
    ("torchvision's schemas: an operator gets all that another kernel of it would need", (
        "*.ps_roi_*_backward:channel_mapping", "*.roi_pool_backward:spatial_scale",
        "*.roi_pool_backward:pooled_*",
    )),
    ("methods that subclasses override, and what they get", (
        "lucerne._src.ir.dispatch.Interpreter.*",
        "lucerne._src.tensor.subclasses.torch_function.FunctionMode.run:proceed",
        "lucerne.fx.interpreter.*", "lucerne.fx._symbolic_trace.Tracer.*",
        "lucerne.fx.passes.infra.*", "lucerne._src.tensor.autograd.node.GradientNode.*",
        "lucerne.nn.utils.prune.*", "*.initialize_parameters:*", "*.log_abs_det_jacobian:*",
        "*.backward:ctx",
    )),
    ("hooks, which modules call with all they know", (
        "lucerne.nn.utils.spectral_norm.*", "lucerne.nn.utils.weight_norm.*",
    )),
    ("a mask of the form that is asked for: it lets everything pass", ("*.noop_mask:*",)),
    ("`__new__` is given what `__init__` reads", ("lucerne.fx.graph_module.*.__new__:*",)),
]  # fmt: skip

KEPT: Rows = [
    ("of a tensor on a mesh no process has a local one (docs/guide/mesh.md): torch's attribute", (
        "_OneInOneOut:use_local_output", "PrepareModule*put:use_local_output",
    )),
    ("for users to read", (
        "PHWithMeta:ph_key", "SelectiveCheckpointContext:is_recompute",
        "SelectiveCheckpointContext:op_output", "BlockMask:*",
    )),
    ("the host's streams are done at once: there is nothing to put first", ("Stream:priority",)),
    ("there is one process, and one host", (
        "DataParallel:output_device",
    )),
    ("kept and not read by PyTorch either", (
        "PassManager:suppress_check_failures", "functional_datapipe:enable_df_api_tracing",
    )),
]  # fmt: skip
"""Arguments of constructors, `Class:parameter`, that are only kept in an attribute."""
