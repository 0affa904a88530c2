"""What a call takes as a number: Python's, NumPy's, a tensor of one; none whose gradient would be lost."""

import numpy as np
import pytest
import shardgrad as sg
from shardgrad import nn

F = nn.functional


def test_a_tensor_of_one_number_is_a_number():
    x, slope = sg.tensor([-2., 4.]), sg.tensor(0.5)
    assert F.leaky_relu(x, slope).tolist() == F.leaky_relu(x, np.float32(0.5)).tolist() == [-1, 4]
    assert sg.full_like(x, slope).tolist() == x.new_full((2,), slope).tolist() == sg.full((2,), slope).tolist() == [0.5, 0.5]
    assert x.add(x, alpha=slope).tolist() == [-3, 6]


def test_whole_numbers_fractions_and_truths_are_told_apart():
    for value, dtype in ((1, sg.int64), (True, sg.uint8), (1., sg.float32), (np.int64(1), sg.int64), (np.float64(1), sg.float32),
                         (np.float32(1), sg.float32)):
        assert sg.full((2,), value).dtype == dtype and sg.full((2,), value).tolist() == [1, 1]
    with pytest.raises(sg.InputError, match="the float 1 beside"):
        sg.arange(2).add(1, alpha=np.float64(1))
    truths = np.array([1, 0]) == 1
    assert sg.full((2,), truths[0]).dtype == sg.tensor(list(truths)).dtype == sg.uint8
    assert sg.tensor(list(truths)).tolist() == [1, 0] and sg.tensor([truths[0], 3]).dtype == sg.int64


def test_arange_of_integers_is_of_integers_whosever_they_are():
    for two in 2, np.int64(2), np.uint8(2), np.array(2), sg.tensor(2), sg.tensor(2, dtype=sg.int32):
        assert sg.arange(two).dtype == sg.arange(0, two, 1).dtype == sg.int64 and sg.arange(two, 5).tolist() == [2, 3, 4]
    for two in 2., np.float32(2), np.array(2.), sg.tensor(2.):
        assert sg.arange(two).dtype == sg.arange(0, two, 1).dtype == sg.float32
    for large in 2**53 + 1, np.int64(2**53 + 1), sg.tensor(2**53 + 1), 2**70:
        with pytest.raises(sg.InputError, match="arange: .* is beyond ±2\\^53"):
            sg.arange(large, 2**53 + 3)
    assert sg.arange(np.int64(2**53 - 1), 2**53).tolist() == [2**53 - 1]


def test_fill_writes_the_number_of_a_tensor_exactly():
    large = sg.tensor(2**53 + 1)
    for value in large, large.reshape(1, 1):
        assert sg.zeros(2, 1, dtype=sg.int64).fill_(value).tolist() == [[2**53 + 1]] * 2
    assert sg.zeros((), dtype=sg.int64).fill_(sg.tensor([2.75])).item() == 2 and sg.zeros(2, dtype=sg.float16).fill_(sg.tensor(0.5)).tolist() == [0.5, 0.5]
    with pytest.raises(sg.InputError, match=r"fill_: i64\[2\] on cpu is given where one number belongs"):
        sg.zeros(2).fill_(sg.tensor([1, 2]))


def test_numbers_that_a_dtype_does_not_hold_are_refused():
    for number, dtype in ((300, sg.uint8), (-256, sg.uint8), (-1., sg.uint8), (256., sg.uint8), (2**31, sg.int32), (-2**31 - 1, sg.int32), (1e30, sg.int64),
                          (2.**63, sg.int64), (float("nan"), sg.int64), (float("inf"), sg.int32)):
        with pytest.raises(sg.InputError, match="tensor: .* does not fit into [ui]"):
            sg.tensor([1, number], dtype=dtype)
    assert sg.tensor([255, -1, -255], dtype=sg.uint8).tolist() == [255, 255, 1]
    assert sg.tensor([2.75, 255.], dtype=sg.uint8).tolist() == [2, 255] and sg.tensor(-2.**63, dtype=sg.int64).item() == -2**63
    assert sg.tensor([2**31 - 1, -2**31], dtype=sg.int32).tolist() == [2**31 - 1, -2**31] and sg.tensor(2**63 - 1, dtype=sg.int64).item() == 2**63 - 1


@pytest.mark.parametrize("call", [
    lambda x, w: F.leaky_relu(x, w), lambda x, w: F.elu(x, alpha=w), lambda x, w: sg.full_like(x, w), lambda x, w: sg.full((2,), w),
    lambda x, w: x.new_full((2,), w), lambda x, w: x.add(x, alpha=w), lambda x, w: F.dropout(x, w), lambda x, w: sg.linspace(0, w, 3),
    lambda x, w: F.layer_norm(x, (2,), eps=w), lambda x, w: nn.LeakyReLU(w), lambda x, w: F.pad(x, (1, 1), value=w * 2),
    lambda x, w: sg.optim.SGD([sg.ones(1, requires_grad=True)], lr=w)])
def test_a_gradient_is_not_lost_in_the_place_of_a_number(call):
    x, w = sg.tensor([-2., 4.]), sg.tensor(0.5, requires_grad=True)
    with pytest.raises(sg.InputError, match=r"gradient is given, which would be lost; give its item\(\)"):
        call(x, w)
    call(x, w.item()), call(x, w.detach())
    with sg.no_grad():
        call(x, w)


def test_masked_fill_with_a_tensor_is_differentiable_in_it():
    x, w = sg.tensor([[1., 2.], [3., 4.]], requires_grad=True), sg.tensor(5., requires_grad=True)
    filled = x.masked_fill(sg.tensor([1, 0], dtype=sg.uint8), w)
    assert filled.tolist() == [[5, 2], [5, 4]]
    filled.sum().backward()
    assert w.grad.item() == 2 and x.grad.tolist() == [[0, 1], [0, 1]]
    assert sg.zeros(2).masked_fill(sg.tensor([1, 0]) == 1, sg.tensor(7)).tolist() == [7, 0]
    with pytest.raises(sg.InputError, match="masked_fill: the value is a number, or a tensor without dimensions"):
        x.masked_fill(x > 1, sg.ones(2))
    with pytest.raises(sg.InputError, match="masked_fill: the mask .* does not broadcast"):
        sg.zeros(2).masked_fill(x > 1, w)


def test_an_integer_that_a_double_holds_is_taken_however_large():
    x = sg.tensor([1, -1])
    assert (x * 2**60).tolist() == [2**60, -2**60] and (x + 2**62).tolist() == [2**62 + 1, 2**62 - 1]
    assert (sg.tensor([5]) + -2**63).tolist() == [5 - 2**63] and x.masked_fill(x > 0, 2**62).tolist() == [2**62, -1]
    for wrong in (2**53 + 1, -2**53 - 1, 2**63 - 1, 2**62 + 1):
        with pytest.raises(sg.InputError, match="would be rounded"):
            x * wrong


def test_an_integer_that_no_double_holds_is_rounded_beside_floats_and_refused_beside_integers():
    big, ones, whole = 2**53 + 1, sg.ones(1), sg.tensor([3])
    for y in (ones * big, ones.masked_fill(ones > 0, big), sg.full_like(ones, big), sg.full((1,), big, dtype=sg.float32), ones.new_full((1,), big)):
        assert y.tolist() == [2.**53]
    for y in (ones, whole):
        assert y.clamp(0, 2**63 - 1).tolist() == y.tolist()
    for wrong in (lambda: sg.full_like(whole, big), lambda: whole.masked_fill(whole > 0, big), lambda: whole.clamp(0, big),
                  lambda: whole.add_(big, alpha=2), lambda: whole.add_(2, alpha=big), lambda: big + whole, lambda: big - whole,
                  lambda: big * whole, lambda: big % whole, lambda: big // whole, lambda: big**whole):
        with pytest.raises(sg.InputError, match="would be rounded"):
            wrong()
    assert whole.tolist() == [3]


def test_numbers_beside_integers_are_not_cut():
    x = sg.tensor([1, 2])
    for wrong in (lambda: sg.eq(x, 1.5), lambda: sg.mul(x, 0.5), lambda: sg.add(x, 0.5), lambda: sg.maximum(x, 1.5),
                  lambda: sg.where(x > 0, 1.5, x), lambda: x.__setitem__(0, 0.5)):
        with pytest.raises(sg.InputError):
            wrong()
    for wrong in (lambda: x * 2.0, lambda: 2.0 * x, lambda: x == 1.0, lambda: x.lt(1.0), lambda: x**2.0, lambda: 2.0**x, lambda: x // 1.0,
                  lambda: x.add(1.0), lambda: x.add(1, alpha=1.0), lambda: x.add_(1.0), lambda: x.sub_(1, alpha=1.0), lambda: x.clamp(min=1.0),
                  lambda: sg.where(x > 0, 1.0, x), lambda: sg.arange(5)[x * 1.0], lambda: (x > 1) * 1.0, lambda: x.__imul__(1.0)):
        with pytest.raises(sg.InputError, match=r"the float [12] beside .* convert it with .to\(float32\)"):
            wrong()
    assert x.tolist() == [1, 2] and (x * 2).tolist() == [2, 4] and (x.float() * 2).tolist() == (2.0 * x.float()).tolist() == [2, 4]
    assert (7 // x).tolist() == [7, 3] and (x // 2).tolist() == [0, 1] and (2**x).tolist() == [2, 4] and (5 % x).tolist() == [0, 1]
    x[0] = 2.0
    x.fill_(3.0)
    assert x.tolist() == [3, 3]
    x.copy_(sg.tensor([1, 2]))
    big = 2**53 + 1
    for wrong in (lambda: x + big, lambda: x == big, lambda: sg.full((1,), big, dtype=sg.int64), lambda: x.fill_(big),
                  lambda: x.__setitem__(0, big), lambda: sg.arange(2**53, 2**53 + 3)):
        with pytest.raises(sg.InputError, match="2\\^53"):
            wrong()
    assert (x + 2**53).tolist() == [2**53 + 1, 2**53 + 2]


def test_full_has_the_dtype_of_its_number():
    assert [sg.full((2,), value).dtype for value in (7, 7., True)] == [sg.int64, sg.float32, sg.uint8]
    assert sg.full((2,), True).tolist() == [1, 1] and sg.full((2,), 7).tolist() == [7, 7] and sg.full((1,), 1, dtype=sg.float16).dtype == sg.float16
