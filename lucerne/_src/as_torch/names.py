"""The names behind the door: which modules are Lucerne's own, and which are tables of stubs."""

from __future__ import annotations

from lucerne._src.as_torch import distributed_names, library_names
from lucerne._src.as_torch.kinds import NameTable, classes, refusals, same, space

_OWN = """
    _C __future__ _higher_order_ops _higher_order_ops.associative_scan _higher_order_ops.cond
    _higher_order_ops.map _higher_order_ops.scan _higher_order_ops.while_loop _ops _tensor
    _tensor_str _utils accelerator amp amp.autocast_mode amp.grad_scaler ao ao.quantization autograd
    autograd.forward_ad autograd.function autograd.functional autograd.graph autograd.profiler
    autograd.profiler_util autograd.variable backends backends.cuda backends.cudnn backends.mha
    backends.mkl backends.mkldnn backends.mps backends.openmp backends.opt_einsum compiler cpu
    cpu.amp cuda cuda.amp distributed distributed.algorithms
    distributed.algorithms.ddp_comm_hooks distributed.algorithms.ddp_comm_hooks.default_hooks
    distributed.checkpoint distributed.checkpoint.filesystem distributed.constants
    distributed.device_mesh distributed.distributed_c10d distributed.fsdp distributed.optim
    distributed.run distributed.tensor distributed.tensor.parallel distributed.tensor.parallel.style
    distributed.tensor.placement_types
    distributions distributions.bernoulli distributions.beta
    distributions.binomial distributions.categorical distributions.cauchy distributions.chi2
    distributions.constraint_registry distributions.constraints distributions.continuous_bernoulli
    distributions.dirichlet distributions.distribution distributions.exp_family
    distributions.exponential distributions.fishersnedecor distributions.gamma
    distributions.generalized_pareto distributions.geometric distributions.gumbel
    distributions.half_cauchy distributions.half_normal distributions.independent
    distributions.inverse_gamma distributions.kl distributions.kumaraswamy distributions.laplace
    distributions.lkj_cholesky distributions.log_normal distributions.logistic_normal
    distributions.lowrank_multivariate_normal distributions.mixture_same_family
    distributions.multinomial distributions.multivariate_normal distributions.negative_binomial
    distributions.normal distributions.one_hot_categorical distributions.pareto
    distributions.poisson distributions.relaxed_bernoulli distributions.relaxed_categorical
    distributions.studentT distributions.transformed_distribution distributions.transforms
    distributions.uniform distributions.utils distributions.von_mises distributions.weibull
    distributions.wishart export fft func functional futures fx fx._compatibility fx._pytree
    fx._symbolic_trace fx.experimental fx.experimental.proxy_tensor fx.graph fx.graph_module
    fx.immutable_collections fx.interpreter fx.node fx.operator_schemas fx.passes
    fx.passes.graph_drawer fx.passes.infra fx.passes.infra.pass_base fx.passes.infra.pass_manager
    fx.passes.shape_prop fx.passes.split_module fx.passes.utils fx.passes.utils.matcher_utils
    fx.proxy fx.subgraph_rewriter hub jit library linalg masked mps multiprocessing
    multiprocessing.reductions multiprocessing.spawn nested nn nn._reduction nn.attention
    nn.attention.bias nn.attention.flex_attention nn.common_types nn.functional nn.grad nn.init
    nn.modules nn.modules.activation nn.modules.adaptive nn.modules.batchnorm
    nn.modules.channelshuffle nn.modules.container nn.modules.conv nn.modules.distance
    nn.modules.dropout nn.modules.flatten nn.modules.fold nn.modules.instancenorm nn.modules.lazy
    nn.modules.linear nn.modules.linear_cross_entropy_options nn.modules.loss nn.modules.module
    nn.modules.normalization nn.modules.padding nn.modules.pixelshuffle nn.modules.pooling
    nn.modules.rnn nn.modules.sparse nn.modules.transformer nn.modules.upsampling nn.modules.utils
    nn.parallel nn.parallel.data_parallel nn.parallel.distributed nn.parallel.parallel_apply
    nn.parallel.replicate nn.parallel.scatter_gather nn.parameter nn.utils nn.utils.clip_grad
    nn.utils.convert_parameters nn.utils.fusion nn.utils.init nn.utils.memory_format
    nn.utils.parametrizations nn.utils.parametrize nn.utils.prune nn.utils.rnn
    nn.utils.spectral_norm nn.utils.stateless nn.utils.weight_norm onnx ops optim optim._muon
    optim.adadelta optim.adagrad optim.adam optim.adamax optim.adamw optim.asgd optim.lbfgs
    optim.lr_scheduler optim.nadam optim.optimizer optim.radam optim.rmsprop optim.rprop optim.sgd
    optim.sparse_adam optim.swa_utils overrides profiler profiler.itt profiler.profiler
    quantization
    quasirandom random return_types serialization signal signal.windows sparse special storage
    testing types utils utils._contextlib utils._python_dispatch utils._pytree utils.benchmark
    utils.cpp_extension
    utils.checkpoint utils.data utils.data._utils utils.data._utils.collate
    utils.data._utils.fetch utils.data._utils.pin_memory utils.data._utils.signal_handling
    utils.data._utils.worker utils.data.dataloader utils.data.datapipes
    utils.data.datapipes._decorator utils.data.datapipes.datapipe utils.data.datapipes.iter
    utils.data.datapipes.map utils.data.dataset utils.data.distributed utils.data.sampler
    utils.dlpack utils.flop_counter utils.hooks utils.model_zoo utils.tensorboard
    utils.tensorboard.summary utils.tensorboard.writer utils.weak version xpu
"""
OWN = frozenset(_OWN.split())
"""Modules of Lucerne that torch has under the same name. A file of ours that is not here does not
exist behind the door."""

SPACES: dict[str, NameTable] = {**library_names.SPACES, **distributed_names.SPACES}
"""Names on top of those: by module, whether it is one of ours or exists for them alone."""

BESIDE: dict[str, NameTable] = {
    "functorch": space(
        "The package that comes with torch: today's names are in torch.func.",
        same("func", "functionalize grad grad_and_value hessian jacfwd jacrev jvp vjp vmap"),
        same("fx.experimental.proxy_tensor", "make_fx"),
        same("version", "__version__"),
        classes("FunctionalModule FunctionalModuleWithBuffers"),
        refusals("combine_state_for_ensemble make_functional make_functional_with_buffers"),
    ),
}
"""Packages that torch's distribution brings beside `torch`, by name."""
