"""Layers and losses as functions."""

from .._core import (adaptive_avg_pool2d, attention, avg_pool2d, binary_cross_entropy_with_logits, conv1d, conv2d,
                     cross_entropy, dropout, elu, embedding, gelu, group_norm, huber_loss, kl_div, l1_loss, layer_norm,
                     leaky_relu, linear, linear_cross_entropy, log_softmax, max_pool2d, mse_loss, nll_loss, one_hot, relu, rms_norm,
                     rope, sigmoid, silu, smooth_l1_loss, softmax, softplus, swiglu, tanh)
