"""Names of `torch.distributed` that are not built: libraries name them at import."""

from __future__ import annotations

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

SHARDED = "_src.distributed.mesh.fully_shard"

WHY = (
    "Process groups, DistributedDataParallel and `lucerne run` are here; this is not part of "
    "Lucerne yet."
)
CHOICES = "_src.as_torch.choices"
SHARED = "_src.as_torch.shared_classes"
_SHARDED_CHOICES = "BackwardPrefetch OptimStateKeyType ShardingStrategy StateDictType"

SPACES: dict[str, NameTable] = {
    "distributed": space(
        WHY,
        refusals("gather_into_tensor gather_single get_backend_impl set_timeout"),
        same("distributed.device_mesh", "DeviceMesh init_device_mesh"),
    ),
    "distributed.device_mesh": space(
        WHY,
        refusals("_get_device_handle"),
    ),
    "distributed.distributed_c10d": space(
        WHY,
        refusals("_get_pg_default_device _object_to_tensor _tensor_to_object"),
        values("no table of groups: ask the groups", _pg_map={}, _world=None),
    ),
    "distributed._functional_collectives": space(
        WHY,
        classes("AsyncCollectiveTensor"),
        refusals(
            "all_gather_tensor all_gather_single all_reduce all_to_all_single "
            "all_to_all_single_autograd permute_tensor reduce_scatter_tensor broadcast"
        ),
        passes("wait_tensor", "gives its argument back: it is there already"),
    ),
    "distributed._tensor": space(
        WHY,
        same(
            "distributed.tensor",
            "DTensor DeviceMesh Partial Placement Replicate Shard distribute_tensor "
            "distribute_module",
        ),
    ),
    "distributed._tensor.experimental": space(WHY, refusals("implicit_replication")),
    "distributed._composable": space(
        WHY, same(SHARDED, "fully_shard replicate"), refusals("checkpoint")
    ),
    "distributed._composable.fsdp": space(
        WHY,
        same(
            "distributed.fsdp",
            "FSDPModule CPUOffloadPolicy MixedPrecisionPolicy OffloadPolicy fully_shard",
        ),
        classes("FSDP"),
        refusals("register_fsdp_forward_method"),
    ),
    "distributed.algorithms.join": space(WHY, classes("Join JoinHook Joinable")),
    "distributed.algorithms._checkpoint": space(WHY),
    "distributed.algorithms._checkpoint.checkpoint_wrapper": space(
        WHY,
        same(CHOICES, "CheckpointImpl"),
        classes("CheckpointWrapper OffloadWrapper ActivationWrapper"),
        refusals("apply_activation_checkpointing checkpoint_wrapper offload_wrapper"),
    ),
    "distributed.algorithms.ddp_comm_hooks.default_hooks": space(
        WHY,
        refusals("bf16_compress_wrapper fp16_compress_wrapper"),
    ),
    "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": space(
        WHY, classes("PostLocalSGDState"), refusals("post_localSGD_hook")
    ),
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook": space(
        WHY, classes("PowerSGDState"), refusals("batched_powerSGD_hook powerSGD_hook")
    ),
    "distributed.algorithms.model_averaging": space(WHY),
    "distributed.algorithms.model_averaging.averagers": space(
        WHY, classes("ModelAverager PeriodicModelAverager")
    ),
    "distributed.checkpoint": space(
        WHY,
        classes(
            "DefaultLoadPlanner DefaultSavePlanner "
            "FsspecReader FsspecWriter LoadPlan LoadPlanner Metadata SavePlan "
            "SavePlanner StorageReader StorageWriter CheckpointableTensor"
        ),
        refusals("load_state_dict save_state_dict"),
    ),
    "distributed.checkpoint._consolidate_hf_safetensors": space(
        WHY, refusals("consolidate_safetensors_files")
    ),
    "distributed.checkpoint.default_planner": space(
        WHY, classes("DefaultLoadPlanner DefaultSavePlanner _EmptyStateDictLoadPlanner")
    ),
    "distributed.checkpoint.format_utils": space(
        WHY,
        classes("BroadcastingTorchSaveReader DynamicMetaLoadPlanner _EmptyStateDictLoadPlanner"),
        refusals("_load_state_dict dcp_to_torch_save torch_save_to_dcp"),
    ),
    "distributed.checkpoint.hf_storage": space(
        WHY, classes("HuggingFaceStorageReader HuggingFaceStorageWriter")
    ),
    "distributed.checkpoint.metadata": space(
        WHY, classes("BytesStorageMetadata ChunkStorageMetadata Metadata TensorStorageMetadata")
    ),
    "distributed.checkpoint.optimizer": space(WHY, refusals("load_sharded_optimizer_state_dict")),
    "distributed.checkpoint.planner": space(
        WHY, classes("LoadPlan LoadPlanner SavePlan SavePlanner")
    ),
    "distributed.checkpoint.stateful": space(WHY, classes("Stateful")),
    "distributed.checkpoint.state_dict": space(
        WHY,
        classes("StateDictOptions"),
        refusals(
            "get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict "
            "set_optimizer_state_dict set_state_dict"
        ),
    ),
    "distributed.checkpoint.state_dict_loader": space(
        WHY, same("distributed.checkpoint", "load"), refusals("_load_state_dict load_state_dict")
    ),
    "distributed.elastic": space(WHY),
    "distributed.elastic.multiprocessing": space(WHY, classes("Std DefaultLogsSpecs")),
    "distributed.elastic.multiprocessing.errors": space(
        WHY, classes("ChildFailedError ProcessFailure"), passes("record")
    ),
    "distributed.fsdp": space(
        WHY,
        same(
            SHARED,
            "CPUOffload FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel "
            "MixedPrecision ShardedOptimStateDictConfig ShardedStateDictConfig",
        ),
        same(CHOICES, _SHARDED_CHOICES),
        classes(
            "GradientReductionHandle LocalOptimStateDictConfig LocalStateDictConfig "
            "OptimStateDictConfig StateDictConfig StateDictSettings UnshardHandle FlatParameter"
        ),
        refusals("register_fsdp_forward_method"),
    ),
    "distributed.fsdp.api": space(
        WHY,
        same(
            SHARED,
            "CPUOffload FullOptimStateDictConfig FullStateDictConfig MixedPrecision "
            "ShardedOptimStateDictConfig ShardedStateDictConfig",
        ),
        same(CHOICES, _SHARDED_CHOICES),
    ),
    "distributed.fsdp.fully_sharded_data_parallel": space(
        WHY,
        same(
            SHARED,
            "CPUOffload FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel "
            "MixedPrecision ShardedOptimStateDictConfig ShardedStateDictConfig",
        ),
        same(CHOICES, _SHARDED_CHOICES),
    ),
    "distributed.fsdp._fully_shard": space(WHY, same("distributed.fsdp", "FSDPModule fully_shard")),
    "distributed.fsdp._common_utils": space(
        WHY, classes("_FSDPState TrainingState HandleTrainingState")
    ),
    "distributed.fsdp._traversal_utils": space(WHY, refusals("_get_fsdp_handles _get_fsdp_states")),
    "distributed.fsdp.sharded_grad_scaler": space(WHY, classes("ShardedGradScaler")),
    "distributed.fsdp.wrap": space(
        WHY,
        classes("CustomPolicy ModuleWrapPolicy"),
        refusals(
            "_or_policy _recursive_wrap always_wrap_policy enable_wrap lambda_auto_wrap_policy "
            "size_based_auto_wrap_policy transformer_auto_wrap_policy wrap"
        ),
    ),
    "distributed.launcher": space(WHY),
    "distributed.launcher.api": space(WHY, classes("LaunchConfig elastic_launch")),
    "distributed.nn": space(WHY, refusals("all_gather all_reduce")),
    "distributed.nn.functional": space(
        WHY,
        refusals("all_gather all_reduce all_to_all broadcast gather reduce reduce_scatter scatter"),
    ),
    "distributed.optim": space(WHY, classes("DistributedOptimizer PostLocalSGDOptimizer")),
    "distributed.pipelining": space(
        WHY,
        same(CHOICES, "SplitPoint"),
        classes(
            "PipelineActivationLiveness PipelineStage PipelineStageInfo Schedule1F1B ScheduleGPipe"
        ),
        refusals("analyze_pipeline_activation_liveness pipe_split pipeline"),
    ),
    "distributed.rpc": space(
        WHY,
        classes("RRef RpcBackendOptions WorkerInfo"),
        refusals("init_rpc rpc_async rpc_sync remote shutdown"),
        answers(False, "is_available", "False: there is nothing to talk with"),
    ),
    "distributed.run": space(WHY, refusals("config_from_args")),
    "distributed.tensor": space(
        WHY,
        refusals("linspace logspace"),
    ),
    "distributed.tensor._utils": space(
        WHY, refusals("compute_local_shape_and_global_offset compute_global_tensor_info")
    ),
    "distributed.tensor.experimental": space(
        WHY, refusals("context_parallel implicit_replication local_map register_sharding")
    ),
    "distributed.tensor.experimental._attention": space(
        WHY, refusals("context_parallel_unshard set_rotate_method")
    ),
    "distributed.tensor.placement_types": space(
        WHY,
        classes("_StridedShard"),
    ),
    "distributed.utils": space(WHY, refusals("_sync_module_states _sync_params_and_buffers")),
}
