"""Elements that are counted, put in order, picked and written over."""

import math

import numpy as np
import pytest
import shardgrad as sg


def test_counts_of_integers():
    x = sg.tensor([1, 3, 1])
    assert sg.bincount(x).tolist() == [0, 2, 0, 1] and x.bincount(minlength=6).tolist() == [0, 2, 0, 1, 0, 0]
    assert x.bincount(sg.tensor([0.5, 1., 2.])).tolist() == [0, 2.5, 0, 1]
    assert sg.bincount(sg.zeros(0, dtype=sg.int64), minlength=2).tolist() == [0, 0]
    for wrong in (lambda: sg.bincount(sg.tensor([-1])), lambda: sg.bincount(sg.ones(2)), lambda: sg.bincount(x[None])):
        with pytest.raises(sg.InputError, match="bincount"):
            wrong()


def test_different_elements_in_order():
    assert sg.unique(sg.tensor([[3, 1], [3, 2]])).tolist() == [1, 2, 3] and sg.tensor([7.]).unique().tolist() == [7]
    assert sg.unique(sg.zeros(0)).tolist() == [] and sg.unique(sg.tensor([1, 0, 1]) > 0).tolist() == [0, 1]
    random = np.random.default_rng(1).integers(0, 50, 1000)
    assert np.array_equal(sg.tensor(random).unique().numpy(), np.unique(random))


def test_the_median_is_the_lower_one_of_two():
    x = sg.tensor([[3., 1., 4., 2.], [8., 7., 5., 6.]], requires_grad=True)
    assert sg.median(x).item() == 4 and sg.median(sg.tensor([3, 1, 4, 2])).item() == 2
    values, places = x.median(1)
    assert values.tolist() == [2, 6] and places.tolist() == [3, 3] and x.median(0, keepdim=True).indices.shape == (1, 4)
    values.sum().backward()
    assert x.grad.tolist() == [[0, 0, 0, 1], [0, 0, 0, 1]]
    odd = sg.tensor([[1., math.nan, 3.], [1., 2., 3.]])
    assert math.isnan(odd.median().item()) and odd.median(1).indices.tolist() == [1, 1] and odd.median(1).values[1].item() == 2
    with pytest.raises(sg.InputError, match="median: .* has no elements"):
        sg.zeros(0).median()


def test_where_of_a_condition_alone_is_the_positions():
    x = sg.tensor([[1, 0], [2, 3]])
    rows, columns = sg.where(x > 0)
    assert rows.tolist() == [0, 1, 1] and columns.tolist() == [0, 0, 1] and x[rows, columns].tolist() == [1, 2, 3]


def test_scatter():
    labels = sg.tensor([2, 0])
    assert sg.zeros(2, 3).scatter_(1, labels[:, None], 1).tolist() == [[0, 0, 1], [1, 0, 0]]
    x, values = sg.ones(2, 3, requires_grad=True), sg.tensor([[5.], [6.]], requires_grad=True)
    y = sg.scatter(x, 1, labels[:, None], values)
    assert y.tolist() == [[1, 1, 5], [6, 1, 1]] and x.tolist() == [[1, 1, 1], [1, 1, 1]]
    (y * y).sum().backward()
    assert x.grad.tolist() == [[2, 2, 0], [0, 2, 2]] and values.grad.tolist() == [[10], [12]]
    assert sg.zeros(3, dtype=sg.int64).scatter_add_(0, sg.tensor([1, 1]), sg.tensor([2, 3])).tolist() == [0, 5, 0]
    with pytest.raises(sg.InputError, match="scatter: .* is named twice"):
        sg.zeros(3).scatter(0, sg.tensor([1, 1]), sg.tensor([1., 2.]))
    assert sg.zeros(3).scatter(0, sg.tensor([1, 1]), 2.).tolist() == [0, 2, 0], "a number is the same twice"


def test_writes_over_a_tensor_give_the_tensor_itself():
    x = sg.arange(5)
    assert x.clamp_(1, 3) is x and x.tolist() == [1, 1, 2, 3, 3] and x.clamp_(max=sg.tensor(2)).tolist() == [1, 1, 2, 2, 2]
    assert x.masked_fill_(x == 2, 7) is x and x.tolist() == [1, 1, 7, 7, 7]
    y = sg.zeros(10000)
    assert y.normal_(3, 0.5) is y and abs(y.mean().item() - 3) < 0.05 and abs(y.std().item() - 0.5) < 0.05
    assert y.uniform_(2, 4) is y and 2 <= y.min().item() < 2.01 and 3.99 < y.max().item() <= 4
    sg.manual_seed(5)
    first = y.normal_(name="y").tolist()
    sg.manual_seed(5)
    assert y.normal_(name="y").tolist() == first


@pytest.mark.parametrize("change", [
    lambda x, w: w.clamp_(0, 1), lambda x, w: x.clamp_(w, x), lambda x, w: x.clamp_(x, w), lambda x, w: w.masked_fill_(x > 0, 1),
    lambda x, w: x.masked_fill_(x > 0, w[0]), lambda x, w: x.scatter_(0, sg.tensor([0, 1]), w),
    lambda x, w: x.scatter_add_(0, sg.tensor([0, 1]), w), lambda x, w: w.normal_(), lambda x, w: w.uniform_()])
def test_a_write_that_would_lose_a_gradient_is_refused(change):
    x, w = sg.tensor([3., 4.]), sg.tensor([1., 2.], requires_grad=True)
    with pytest.raises(sg.InputError, match="_: .*is changed in place, and its gradient"):
        change(x, w)
    assert x.tolist() == [3, 4] and w.tolist() == [1, 2]
    with sg.no_grad():
        change(x, w)
        assert x.fill_(sg.tensor(2., requires_grad=True)).tolist() == [2, 2]


def test_integers_are_not_drawn():
    for draw in sg.arange(3).normal_, sg.arange(3).uniform_:
        with pytest.raises(sg.InputError, match="needs a floating dtype"):
            draw()


def test_small_names():
    assert sg.__version__[0].isdigit() and sg.is_tensor(sg.ones(1)) and not sg.is_tensor(1.)
    assert sg.ones(2, 3).nelement() == 6 and sg.ones(1).type(sg.int64).dtype == sg.int64
    sg.cuda.manual_seed_all(3)
    assert sg.initial_seed() == 3
    sg.cuda.empty_cache()
    if not sg.cuda.is_available():
        with pytest.raises(sg.MissingError):
            sg.cuda.synchronize()


def backward_of_infinity():
    x = sg.tensor([0.], requires_grad=True)
    (x.log() * 0).sum().backward()


def test_the_room_autograd():
    assert sg.autograd.grad is sg.grad and sg.autograd.Function is sg.Function
    with sg.autograd.set_detect_anomaly(True):
        with pytest.raises(sg.Error, match="NaN"):
            backward_of_infinity()
        with sg.autograd.set_detect_anomaly(False):
            backward_of_infinity()
    backward_of_infinity()
    sg.autograd.set_detect_anomaly(True)
    try:
        with sg.set_grad_enabled(True), pytest.raises(sg.Error, match="NaN"):
            backward_of_infinity()
    finally:
        sg.autograd.set_detect_anomaly(False)
    backward_of_infinity()


def test_a_split_of_nothing_is_one_part_of_nothing():
    for x, dim in ((sg.ones(0), 0), (sg.ones(2, 0), 1)):
        part, = x.split(3, dim)
        assert part.shape == x.shape
