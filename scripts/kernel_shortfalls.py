"""Kernels of scripts/kernel-table that fall short of its limits, or that it does not look at, and why."""

# reason: [(dtype, kernels)]
REASONS = {
    "where an operand stands costs divisions of 64 bits, whose registers leave room for 1280 threads": [
        ("bf16", "add a row"), ("float", "add a row")],
    "tanh in f32 has two forms, of which a warp takes both; behind products it is cuBLASLt's": [("bf16", "gelu_tanh; gelu_tanh backward")],
    "the largest number so far and an exponential in f32 for each element, of which only 2 bytes are read": [
        ("bf16", "cross_entropy, 50257 of 50304 columns")],
    "sums in f32 of products that stay apart, and a root in f64 for each row": [
        ("bf16", "layer_norm, rows of 768; layer_norm, rows of 4096")],
    "elements come one by one, each compared with the best so far and not-a-number, and places of 64 bits go along": [
        ("bf16", "argmax, rows of 4096"), ("float", "argmax, rows of 4096")],
    "25 instructions of an element are Philox'": [("bf16", "dropout")],
    "of eight elements the compiler asks for four, and for the others when those are there": [("bf16", "sum")],
    "of eight differences the compiler asks for three, and for the others when those are there": [("bf16", "huber")],
    "the means, which need not be there, are asked for between two rows": [("bf16", "layer_norm backward, weight and bias")],
}
SHORTFALLS = {(title, dtype): reason for reason, all_ in REASONS.items() for dtype, titles in all_ for title in titles.split("; ")}

# reason: kernels
OUTSIDE = {
    "the plain form, for what tiles do not take": "attention_cached_kernel attention_kernel attention_keys_kernel attention_queries_kernel "
                                                  "tensor_matmul_kernel",
    "products, as attention and products in the table": "attention_cached_tiles_kernel attention_tiles_keys_kernel "
                                                        "attention_tiles_queries_kernel weight_kernel windows_kernel add_parts_kernel",
    "for rows that fit in no block's registers": "wide_add_norm_kernel wide_layer_norm_backward_kernel wide_layer_norm_kernel wide_softmax_backward_kernel "
                                                 "wide_softmax_kernel",
    "along a dimension that is not the last": "softmax_columns_backward_kernel softmax_columns_kernel cumsum_line_kernel",
    "gathers, permutes and sorts": "first_entries_kernel gather_kernel max_dim_kernel paste_kernel scatter_add_kernel "
                                   "scatter_add_rows_kernel scatter_kernel scatter_rows_kernel "
                                   "sort_entries_kernel sort_places_kernel sort_step_kernel sort_tile_kernel sum_any_kernel "
                                   "take_sorted_kernel triangle_kernel",
    "images, one element of a thread": "avg_pool2d_backward_kernel avg_pool2d_kernel batch_norm_backward_kernel group_norm_backward_kernel "
                                       "max_pool2d_backward_kernel max_pool2d_kernel normalize_channels_kernel normalize_groups_kernel",
    "a thread block, for a few thousand values": "clip_scale_kernel join_values_kernel",
    "seldom in a step": "block_powers_kernel cumsum_row_kernel normal_kernel prod_backward_kernel prod_kernel uniform_kernel",
}
NOT_LAUNCHED = {name: reason for reason, names in OUTSIDE.items() for name in names.split()}
