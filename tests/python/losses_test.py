"""Losses of logits that are sure of themselves, and of no samples."""

import math

import pytest
import shardgrad as sg

F = sg.nn.functional


def softplus(z):
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


@pytest.mark.parametrize("logit", [10., 12., 15., 30., -10., -30.])
@pytest.mark.parametrize("positive", [None, 3.])
def test_binary_cross_entropy_with_logits_loses_no_digits(logit, positive):
    for t in 0., 0.5, 1 - 2**-20, 1.:
        x = sg.tensor([logit], requires_grad=True)
        weight = 1 if positive is None else positive
        loss = F.binary_cross_entropy_with_logits(x, sg.tensor([t]), pos_weight=None if positive is None else sg.tensor([positive]))
        loss.backward()
        assert loss.item() == pytest.approx((1 - t) * softplus(logit) + weight * t * softplus(-logit), rel=1e-6, abs=0)
        assert x.grad.item() == pytest.approx((1 - t) / (1 + math.exp(-logit)) - weight * t / (1 + math.exp(logit)), rel=1e-6, abs=0)


def test_the_mean_of_no_losses_is_0_whatever_the_count():
    empty = sg.zeros(0)
    for loss in F.binary_cross_entropy, F.mse_loss:
        assert loss(empty, empty, count=0).item() == 0 and loss(empty, empty, count=4).item() == 0
