"""Changes in place, comparisons within a tolerance, and what operators refuse."""

import math

import numpy as np
import pytest
import shardgrad as sg

F = sg.nn.functional


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


@pytest.mark.parametrize("name, values", [("add_", 6.), ("sub_", -2.), ("mul_", 8.), ("div_", 0.5), ("__iadd__", 6.),
                                          ("__isub__", -2.), ("__imul__", 8.), ("__itruediv__", 0.5)])
def test_changes_in_place_take_other_widths_under_autocast(name, values):
    for narrow in (sg.bfloat16, sg.float16):
        for dtype, other in ((narrow, sg.float32), (sg.float32, narrow)):
            x, y = sg.full((2,), 2., dtype=dtype), sg.full((2,), 4., dtype=other)
            with pytest.raises(sg.InputError, match="dtypes"):
                getattr(x, name)(y)
            with sg.autocast(narrow):
                assert getattr(x, name)(y) is x
            assert x.dtype == dtype and x.tolist() == [values] * 2
    with sg.autocast(sg.bfloat16), pytest.raises(sg.InputError, match="lost"):
        sg.ones(2).add_(sg.ones(2, dtype=sg.bfloat16, requires_grad=True))


def test_methods_in_place_take_alpha_and_refuse_what_they_do_not_know():
    x = sg.ones(2)
    assert x.add_(sg.ones(2), alpha=-0.5) is x and x.tolist() == [0.5, 0.5]
    assert x.sub_(1, alpha=2).tolist() == [-1.5, -1.5] and x.add(sg.ones(2), alpha=3).tolist() == [1.5, 1.5]
    for wrong in (lambda: x.add_("abc"), lambda: x.add_([1, 2]), lambda: x.mul_(None), lambda: x.add_()):
        with pytest.raises(TypeError):
            wrong()


def test_smaller_ones():
    x = sg.tensor([1., 2., 4.])
    assert x.std(False).item() == x.std(unbiased=False).item() != x.std().item()
    with pytest.raises(sg.InputError, match="no such dimension"):
        sg.ones(2, 2).permute(2**32, 1)
    for norm in (lambda w: w.norm(dim=0), lambda w: w.norm(3)):
        w = sg.zeros(3, requires_grad=True)
        norm(w).sum().backward()
        assert w.grad.tolist() == [0, 0, 0]
    w = sg.tensor([3., 4.], requires_grad=True)
    w.norm(dim=0).backward()
    assert np.allclose(w.grad.tolist(), [0.6, 0.8])
    for p in (float("nan"), -0.5, 2.):
        with pytest.raises(sg.InputError):
            F.dropout(x, p)
    for reduction in ("sum", "none"):
        with pytest.raises(sg.InputError, match="count"):
            F.mse_loss(x, x, reduction=reduction, count=3)
    with pytest.raises(sg.InputError, match="truths"):
        sg.tensor([1]) & sg.tensor([2])
    w = sg.ones(3, requires_grad=True)
    with pytest.raises(sg.InputError, match="gradient"):
        sg.zeros(3).copy_(w * 2)
    with pytest.raises(sg.InputError, match="gradient"):
        sg.zeros(3).fill_(w.sum())
    low = sg.tensor(2., requires_grad=True)
    x.clamp(min=low, max=3).sum().backward()
    assert x.clamp(low, 3).tolist() == [2, 2, 3] and low.grad.item() == 1.5
    assert sg.tensor([1, 5]).clamp(max=3).tolist() == [1, 3]
    with pytest.raises(sg.InputError):
        sg.dist.world().all_reduce(w * 2)
