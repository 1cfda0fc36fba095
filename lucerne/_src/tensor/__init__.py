"""L7: what the user holds: Tensor, storage, eager execution, autograd, random generators."""
