"""What independent tries of the library found wrong, and the tests that hold each of them."""

from __future__ import annotations

SMALL = "tests/eager/test_small.py::test_as_in_torch"
STRICT = "tests/eager/test_strictness.py::test_as_in_torch"
TYPES = "tests/eager/test_float_types.py"
NUMBERS = "tests/eager/test_numbers.py"
HOSTILE = "tests/tensor/test_hostile.py"
FOLLOWED = "tests/arguments/test_followed.py"
KEYS = "tests/keys/test_keys.py"

ROWS: dict[str, tuple[str, ...]] = {
    # ---- arrays, threads, workers
    "`tensor == ndarray` was False": (
        "tests/tensor/test_arrays.py::test_equality_compares_elements",
        "tests/tensor/test_arrays.py::test_operators_with_arrays_are_torchs",
    ),
    "`t += ndarray` raised": (
        "tests/tensor/test_arrays.py::test_in_place_operators_take_arrays",
    ),
    "workers did not see what the script had set and defined": (
        "tests/data/test_workers.py::test_workers_see_what_the_script_set_and_defined",
    ),
    "backward passes of several threads lost additions": (
        "tests/threads/test_threads.py::test_no_addition_is_lost",
    ),
    "a loader's state with another number of replicas lost samples": (
        "tests/data/test_resume.py::test_an_epoch_is_shared_out_anew",
        "tests/data/test_resume.py"
        "::test_another_number_of_replicas_is_refused_where_nobody_knows_what_they_saw",
    ),
    "a child of fork hung when another thread compiled": (
        "tests/threads/test_threads.py::test_children_of_fork_end",
        "tests/threads/test_threads.py::test_every_lock_is_made_by_forks",
        "tests/threads/test_threads.py::test_a_lock_is_free_in_the_child",
    ),
    # ---- arguments that nobody read
    "decomposition tables were ignored": (
        "tests/export/test_decomposition_tables.py",
    ),
    "modes of compile were ignored": (f"{FOLLOWED}::test_said_once",),
    "pin_memory was ignored": (
        f"{FOLLOWED}::test_refused[pinning]", f"{FOLLOWED}::test_refused[pinned zeros]",
        f"{FOLLOWED}::test_warned_of_as_torch_does[pinned batches]",
    ),
    "streams were all equal and empty": (f"{FOLLOWED}::test_streams_of_the_host_are_torchs",),
    "set_num_interop_threads was ignored": (f"{FOLLOWED}::test_said_once",),
    "weights_only=False was ignored": (f"{FOLLOWED}::test_followed[weights_only]",),
    "schemas of torch.ops.aten were wrong": (
        "tests/library/test_schemas.py::test_schemas_are_torchs",
    ),
    "any other argument that no code reads": (
        "tests/arguments/test_unread.py::test_no_argument_is_accepted_and_ignored",
        "tests/arguments/test_unread.py::test_no_argument_is_kept_for_nobody",
    ),
    # ---- exceptions where torch works
    "no memory was a MemoryError without words": (
        "tests/test_around.py::test_no_memory_is_said_as_programs_expect_it",
    ),
    "`lucerne missing --device nosuch` ended in a traceback": (
        "tests/test_around.py::test_missing_names_the_device_that_is_not_there",
    ),
    "`lucerne primitives | head` ended in a traceback": (
        "tests/test_around.py::test_a_reader_that_has_enough_is_no_error",
    ),
    "shadow mode wrote to read-only memory of a device": ("tests/chip/test_shadow.py",),
    "autocast refused registered devices": ("tests/chip/test_autocast.py",),
    "one card for each backend": (
        "tests/chip/test_devices.py::test_numbers_of_devices",
        "tests/chip/test_devices.py::test_the_accelerator",
    ),
    "DLPack refused bfloat16 and float8": (
        "tests/tensor/test_arrays.py::test_dlpack_of_types_that_numpy_has_not",
        "tests/tensor/test_arrays.py::test_dlpack_of_types_that_numpy_has_not_with_torch",
    ),
    "compile said of meta tensors that no backend serves them": (
        "tests/capture/test_backends.py::test_tensors_without_bytes_run_as_they_are",
    ),
    "a module inside of Sequential was never stored": (
        "tests/capture_stored/test_stored.py::test_next_process_finds_what_the_first_has_stored",
    ),
    "functions with a break, and of notebooks, were never stored": (
        "tests/capture_stored/test_graphs.py"
        "::test_later_processes_find_what_the_first_has_stored",
    ),
    "LBFGS kept no func_evals": (
        "tests/optim/test_optimizers.py::test_lbfgs_evaluates_the_same_points",
    ),
    "SparseAdam refused dense gradients in other words": (
        "tests/optim/test_optimizers.py::test_sparse_adam_refuses_in_torchs_words",
    ),
    # ---- an attack
    "conv2d with a large stride: crash, wrong numbers, or all memory": (
        f"{HOSTILE}::test_a_stride_longer_than_the_image",
        f"{HOSTILE}::test_other_long_strides",
        f"{HOSTILE}::test_the_maps_of_convolution_check_their_settings",
    ),
    "nan_to_num left infinities in float16 and bfloat16": (
        "tests/eager/test_small.py::test_nan_to_num_has_the_limits_of_the_type",
    ),
    "set_ took negative offsets and strides": (f"{HOSTILE}::test_set_stays_within_the_storage",),
    "a storage that was made smaller was read beyond": (
        f"{HOSTILE}::test_a_storage_that_was_made_smaller_is_not_read_beyond",
    ),
    "forged files of exported programs crashed or hung": (
        "tests/export/test_file.py::test_forged_numbers_are_refused_or_run",
        "tests/export/test_file.py::test_forged_file_is_refused",
    ),
    "a refused cache folder was used for programs": (
        "tests/test_around.py::test_a_folder_inside_of_a_refused_one_is_not_made",
        "tests/capture_stored/test_stored.py"
        "::test_folder_that_others_may_write_to_is_not_used",
    ),
    "safetensors files carried no digest": (
        "tests/test_around.py::test_safetensors_carry_a_digest_unless_told_not_to",
    ),
    "a weight that is NaN spread through convolutions, forward and backward": (
        "tests/eager/test_spoiled_weights.py",
    ),
    "code that must raise did not when compiled": (
        "tests/faults/test_must_raise.py::test_what_must_raise_raises",
    ),
    "laxer than torch: ctc_loss": tuple(
        f"{STRICT}[ctc, {what}]"
        for what in ("frames below 0", "labels below 0", "rows too short", "too few labels")
    ),
    "laxer than torch: multilabel_margin_loss": (f"{STRICT}[several labels, below -1]",),
    "laxer than torch: grid_sample at NaN": (
        "tests/eager/test_strictness.py::test_points_that_are_no_numbers",
    ),
    "laxer than torch: lu_unpack, histogram, cov": (
        f"{STRICT}[a pivot behind the end]", f"{STRICT}[histogram, wider edges]",
        f"{STRICT}[cov, counts of 0]",
    ),
    "stricter than torch: equal, steps, circular padding, 100 dimensions": (
        f"{STRICT}[equal, as a whole number]", f"{STRICT}[a step far out]",
        f"{STRICT}[circular, cut to nothing]", f"{STRICT}[text of 100 dimensions 100]",
    ),
    "stricter than torch: in place on expanded tensors": tuple(
        f"{STRICT}[shared, {op}]"
        for op in ("masked_fill_", "tril_", "triu_", "baddbmm_", "index_put_", "index_fill_",
                   "threshold_")
    ),
    "as_tensor read the address that an object names": (f"{STRICT}[an address that is none]",),
    # ---- eager ops
    "the cache of plans took 0 and the smallest integer for one number": (
        f"{KEYS}::test_the_smallest_number_after_nought",
        f"{KEYS}::test_a_call_does_not_depend_on_what_ran_before",
        f"{KEYS}::test_exact_keys_are_equal_only_for_equal_values",
        f"{KEYS}::test_compiled_functions_tell_arguments_apart",
    ),
    "a half operand beside a float32 one: result and refusals": (
        f"{TYPES}::test_mixed_types_are_torchs", f"{TYPES}::test_refusals_have_torchs_text",
        f"{TYPES}::test_compiled_code_has_the_same_types",
        f"{TYPES}::test_a_loss_of_bfloat16_against_float32_keeps_its_digits",
    ),
    "std and norms overflowed and vanished": (
        f"{NUMBERS}::test_deviations_and_norms_neither_overflow_nor_vanish",
        f"{NUMBERS}::test_norms_of_single_elements_are_their_sizes",
    ),
    "var beside a large mean": (f"{NUMBERS}::test_variance_beside_a_large_mean",),
    "logcumsumexp of many numbers": (f"{NUMBERS}::test_logcumsumexp_keeps_its_digits",),
    "layer_norm and std of a constant": (
        f"{NUMBERS}::test_layer_norm_of_a_constant_is_zero",
        f"{NUMBERS}::test_equal_numbers_have_no_spread",
        f"{NUMBERS}::test_gradients_of_layer_norm_beside_a_large_mean",
    ),
    "Python numbers that do not fit were wrapped": (
        "tests/eager/test_scalars.py::test_numbers_beside_integers",
        "tests/eager/test_scalars.py::test_numbers_beside_half_floats",
        "tests/eager/test_scalars.py::test_ints_that_no_type_holds",
        "tests/eager/test_scalars.py::test_compiled_code_refuses_them_too",
    ),
    "shifted Chebyshev polynomials of integers": (
        f"{SMALL}[chebyshev of bytes]", f"{SMALL}[chebyshev in float64]",
    ),
    "conj() was no view": (
        "tests/tensor/test_conj.py::test_writing", "tests/tensor/test_conj.py::test_reading",
    ),
    "gradients at 0, NaN and infinity": (
        f"{SMALL}[norm 0, slope at 1e30]", f"{SMALL}[acosh, slope at -inf]",
        f"{SMALL}[pdist of one row, slope]", f"{SMALL}[logit, slope at nan]",
        "tests/eager/test_segments.py::test_a_count_has_no_gradient",
    ),
    "distances that count, of NaN": (
        f"{SMALL}[cdist of nan, p = 0]", f"{SMALL}[pdist of nan, p = 0]",
    ),
    "gaussian_nll_loss at inf": (f"{SMALL}[gaussian_nll_loss at inf]",),
    "diagonals of nothing had no history": (
        "tests/eager/test_small.py::test_diagonals_of_nothing_have_a_history",
    ),
    "types of results: bincount, losses, normal, arange": tuple(
        f"{SMALL}[{name}]"
        for name in ("bincount of nothing", "huber_loss of two types",
                     "soft_margin_loss of two types", "normal of a mean and a wider std",
                     "arange to a bool")
    ),
    "draws depended on layout": tuple(
        f"{SMALL}[{name}]"
        for name in ("normal of a permuted std", "normal of a permuted mean",
                     "multinomial of permuted bfloat16")
    ),
    "cat with an empty part had no gradient for it": (f"{SMALL}[cat with an empty part]",),
    "refused though torch works: view_copy, isin, inner, pools, bool powers": tuple(
        f"{SMALL}[{name}]"
        for name in ("view_copy of a transposed tensor", "isin of bytes", "inner of one number",
                     "means of no channels", "maxima of no channels", "a bool to a bool")
    ),
}  # fmt: skip
"""What was wrong -> tests, as pytest names them: a file, a function, or one row of a function."""
