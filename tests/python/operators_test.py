"""Changes in place, and comparisons within a tolerance."""

import math

import pytest
import shardgrad as sg


def test_copy_broadcasts_and_converts_as_pytorchs():
    x = sg.zeros(2, 3)
    assert x.copy_(sg.tensor([1, 2, 3])).tolist() == [[1, 2, 3], [1, 2, 3]]
    assert x.copy_(sg.tensor([[4.], [5.]], dtype=sg.float64)).tolist() == [[4, 4, 4], [5, 5, 5]]
    assert x.copy_(sg.tensor(7.)).tolist() == [[7, 7, 7], [7, 7, 7]]
    assert sg.zeros(3, dtype=sg.int64).copy_(sg.tensor([1.5, -1.5, 2.])).tolist() == [1, -1, 2]


@pytest.mark.parametrize("shape", [(6,), (3, 2), (2,), (1, 2, 3)])
def test_copy_refuses_what_has_as_many_elements_in_another_shape(shape):
    x = sg.tensor([[1., 2., 3.], [4., 5., 6.]])
    with pytest.raises(sg.InputError, match="copy_: .*broadcast"):
        x.copy_(sg.zeros(shape))
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_data_keeps_its_shape_and_dtype():
    w = sg.nn.Parameter(sg.zeros(2, 3))
    w.data = sg.ones(2, 3)
    assert w.tolist() == [[1, 1, 1], [1, 1, 1]]
    for other in sg.zeros(6), sg.zeros(3, 2), sg.zeros(3), sg.zeros(2, 3, dtype=sg.float64):
        with pytest.raises(sg.InputError, match=r"data: .* does not fit f32\[2, 3\]"):
            w.data = other
    assert w.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_every_operator_has_a_form_in_place():
    x = kept = sg.arange(6)
    x //= 2
    x **= 2
    x %= sg.tensor([3, 3, 3, 4, 4, 4])
    assert x is kept and x.tolist() == [0, 0, 1, 1, 0, 0]
    assert x.floor_divide_(1) is x and x.pow_(2) is x and x.remainder_(5) is x and x.tolist() == [0, 0, 1, 1, 0, 0]
    mask = truths = x > 0
    mask |= sg.arange(6) == 5
    mask &= sg.arange(6) != 2
    mask ^= sg.arange(6) < 1
    assert mask is truths and mask.tolist() == [1, 0, 0, 1, 0, 1]
    y = sg.ones(2, 2)
    before = y
    y @= y
    assert y.tolist() == [[2, 2], [2, 2]] and before.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("change, says", [
    (lambda leaf, made, x: leaf.pow_(2), "gradient"), (lambda leaf, made, x: made.pow_(2), "computed"), (lambda leaf, made, x: x.pow_(leaf), "gradient"),
    (lambda leaf, made, x: x.remainder_(sg.ones(3, 2)), "does not broadcast"), (lambda leaf, made, x: x.__ior__(x), "holds no truths"),
    (lambda leaf, made, x: x.pow_(sg.arange(2)), "dtypes"), (lambda leaf, made, x: sg.arange(2).floor_divide_(2.0), "the float 2 beside")])
def test_a_change_in_place_is_refused_as_by_plus(change, says):
    leaf, x = sg.tensor([1., 2.], requires_grad=True), sg.tensor([3., 4.])
    made = leaf * 2
    with pytest.raises(sg.InputError, match=says):
        change(leaf, made, x)
    assert leaf.tolist() == [1, 2] and made.tolist() == [2, 4] and x.tolist() == [3, 4]
    with sg.no_grad():
        leaf **= 2
    assert leaf.tolist() == [1, 4]


def test_expand_keeps_an_extent_where_minus_one_is_given():
    x = sg.tensor([[1.], [2.]])
    assert x.expand(-1, 3).tolist() == sg.expand(x, (2, 3)).tolist() == [[1, 1, 1], [2, 2, 2]]
    assert x.expand(4, -1, -1).shape == x.broadcast_to((4, -1, -1)).shape == sg.broadcast_to(x, (4, 2, -1)).shape == (4, 2, 1)
    for wrong in (lambda: x.expand(-1, 2, 3), lambda: sg.broadcast_to(x, (-1, 2, 1))):
        with pytest.raises(sg.InputError, match="-1 keeps the extent"):
            wrong()


def test_close_numbers():
    a, b = sg.tensor([1, 2, 3]), sg.tensor([1, 2, 4])
    assert a.allclose(a) and not a.allclose(b) and a.allclose(b, atol=1) and not a.allclose(b, rtol=0.2) and a.allclose(b, rtol=0.3)
    assert sg.isclose(a, b).tolist() == [1, 1, 0] and sg.isclose(a.float(), b.float(), atol=1.).tolist() == [1, 1, 1]
    big = sg.tensor([2**60, 2**60 + 1])
    assert sg.isclose(big, big.flip(0), rtol=0, atol=0).tolist() == [0, 0] and sg.isclose(big, big.flip(0), rtol=0, atol=1).tolist() == [1, 1]
    assert (a > 1).allclose(b > 1)
    odd = sg.tensor([math.inf, -math.inf, math.nan, 1.])
    assert sg.isclose(odd, odd).tolist() == [1, 1, 0, 1] and odd.isclose(odd, equal_nan=True).tolist() == [1, 1, 1, 1]
    assert sg.isclose(sg.tensor([1., math.inf]), sg.tensor([math.inf, 1.])).tolist() == [0, 0]
