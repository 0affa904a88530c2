"""Kernels of scripts/kernel-table that fall short of its limits, or that it does not look at, and why."""

# reason: [(dtype, kernels)]
REASONS = {
    "each pack is taken apart as it comes, before the next is asked for": [
        ("bf16", "layer_norm, rows of 768; rms_norm, rows of 768; layer_norm backward, rows of 768; layer_norm, rows of 4096; "
                 "rms_norm, rows of 4096; layer_norm backward, rows of 4096; softmax, rows of 4096; softmax backward, rows of 4096; "
                 "norm of gradients")],
    "one element of a thread at a time": [
        ("bf16", "sum; mse; layer_norm backward, weight and bias; tree_sum of 8 parts; dropout; swiglu; swiglu backward; rope"),
        ("float", "tree_sum of 8 parts; dropout; swiglu; swiglu backward; rope; sgd with momentum; sgd with momentum with a copy in bf16")],
    "where an operand stands costs divisions of 64 bits, and their registers": [("bf16", "add a row"), ("float", "add a row")],
    "a thread takes 16 bytes of the wider side": [("bf16", "cast to f32")],
    "exponentials in f32 and their ends; in products they are cuBLASLt's": [("bf16", "gelu_tanh; gelu_tanh backward")],
    "an exponential in f32 for each element, of which only 2 bytes are read": [("bf16", "cross_entropy, 50257 classes")],
    "40 registers of a thread, one pack at a time": [("bf16", "cross_entropy backward, 50257 classes")],
}
SHORTFALLS = {(title, dtype): reason for reason, all_ in REASONS.items() for dtype, titles in all_ for title in titles.split("; ")}

# reason: kernels
OUTSIDE = {
    "the plain form, for what tiles do not take": "attention_cached_kernel attention_kernel attention_keys_kernel attention_queries_kernel "
                                                  "tensor_matmul_kernel",
    "products, as attention and products in the table": "attention_cached_tiles_kernel attention_tiles_keys_kernel "
                                                        "attention_tiles_queries_kernel weight_kernel windows_kernel add_parts_kernel",
    "for rows that fit in no block's registers": "wide_layer_norm_backward_kernel wide_layer_norm_kernel wide_softmax_backward_kernel "
                                                 "wide_softmax_kernel",
    "along a dimension that is not the last": "softmax_columns_backward_kernel softmax_columns_kernel cumsum_line_kernel",
    "gathers, permutes and sorts": "gather_kernel max_dim_kernel paste_kernel scatter_add_kernel scatter_kernel scatter_rows_kernel "
                                   "sort_entries_kernel sort_places_kernel sort_step_kernel sort_tile_kernel sum_any_kernel take_sorted_kernel "
                                   "triangle_kernel",
    "images, one element of a thread": "avg_pool2d_backward_kernel avg_pool2d_kernel batch_norm_backward_kernel group_norm_backward_kernel "
                                       "max_pool2d_backward_kernel max_pool2d_kernel normalize_channels_kernel normalize_groups_kernel",
    "seldom in a step": "block_powers_kernel cumsum_row_kernel normal_kernel prod_backward_kernel prod_kernel uniform_kernel",
}
NOT_LAUNCHED = {name: reason for reason, names in OUTSIDE.items() for name in names.split()}
