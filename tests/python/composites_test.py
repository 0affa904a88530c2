"""What is made of other operations: against NumPy, and with gradients that differences confirm."""

import math

import numpy as np
import pytest
import shardgrad as sg
from shardgrad import nn

F = nn.functional
A = np.array([[1.5, -2., 0.25, 3.], [0.5, 4., -1., 2.5], [-0.75, 1., 2., -3.5]])
V = np.array([0.5, 1.25, 2.])


def same(x, expected):
    expected = np.asarray(expected)
    assert x.shape == expected.shape and np.allclose(x.numpy(), expected, rtol=1e-12, atol=1e-14), (x, expected)


def gradient_is_right(function, *arrays):
    """Of a weighted sum of what the function gives, each element's by central differences."""
    def total(*inputs):
        y = function(*inputs)
        parts = y if isinstance(y, (list, tuple)) else [y]
        return sum(((part * sg.arange(1., part.numel() + 1, dtype=sg.float64).reshape(*part.shape)).sum() for part in parts), sg.zeros((), dtype=sg.float64))

    leaves = [sg.tensor(array, requires_grad=True) for array in arrays]
    total(*leaves).backward()
    for leaf, array in zip(leaves, arrays):
        for place in np.ndindex(array.shape):
            ends = []
            for step in 1e-6, -1e-6:
                moved = array.copy()
                moved[place] += step
                ends.append(total(*(sg.tensor(moved if other is array else other) for other in arrays)).item())
            slope = 0 if leaf.grad is None else leaf.grad[place].item()
            assert abs((ends[0] - ends[1]) / 2e-6 - slope) < 1e-5 * max(1, abs(ends[0])), place


JOINED = [
    (lambda a, v: sg.concat([a, a], 1), lambda a, v: np.concatenate([a, a], 1)),
    (lambda a, v: sg.concatenate([v, v]), lambda a, v: np.concatenate([v, v])),
    (lambda a, v: sg.hstack([a, a]), lambda a, v: np.hstack([a, a])),
    (lambda a, v: sg.hstack([v, v]), lambda a, v: np.hstack([v, v])),
    (lambda a, v: sg.vstack([v, v]), lambda a, v: np.vstack([v, v])),
    (lambda a, v: sg.vstack([a, a[:1]]), lambda a, v: np.vstack([a, a[:1]])),
    (lambda a, v: sg.unbind(a)[2], lambda a, v: a[2]),
    (lambda a, v: a.unbind(1)[-1], lambda a, v: a[:, -1]),
    (lambda a, v: a.repeat_interleave(2, 1), lambda a, v: np.repeat(a, 2, 1)),
    (lambda a, v: sg.repeat_interleave(a, sg.tensor([2, 0, 3]), dim=0), lambda a, v: np.repeat(a, [2, 0, 3], 0)),
    (lambda a, v: a.repeat_interleave(3), lambda a, v: np.repeat(a, 3)),
    (lambda a, v: v.tile(2, 3), lambda a, v: np.tile(v, (2, 3))),
    (lambda a, v: sg.tile(a, (2,)), lambda a, v: np.tile(a, 2)),
    (lambda a, v: sg.broadcast_to(v, (2, 3)), lambda a, v: np.broadcast_to(v, (2, 3))),
    (lambda a, v: sg.meshgrid(v, a[0])[1], lambda a, v: np.meshgrid(v, a[0], indexing="ij")[1]),
    (lambda a, v: sg.meshgrid(v, a[0], indexing="xy")[0], lambda a, v: np.meshgrid(v, a[0])[0]),
    (lambda a, v: sg.meshgrid([v, a[0], v], indexing="xy")[2], lambda a, v: np.meshgrid(v, a[0], v)[2]),
]
DIAGONALS = [
    (lambda a, v: a.diagonal(), lambda a, v: np.diagonal(a)),
    (lambda a, v: sg.diagonal(a, 1), lambda a, v: np.diagonal(a, 1)),
    (lambda a, v: sg.diagonal(a, -2), lambda a, v: np.diagonal(a, -2)),
    (lambda a, v: sg.diagonal(sg.stack([a, a * 2]), 0, 2, 1), lambda a, v: np.diagonal(np.stack([a, a * 2]), 0, 2, 1)),
    (lambda a, v: a.diag(1), lambda a, v: np.diag(a, 1)),
    (lambda a, v: sg.diag(v), lambda a, v: np.diag(v)),
    (lambda a, v: sg.diag(v, 2), lambda a, v: np.diag(v, 2)),
    (lambda a, v: v.diag(-1), lambda a, v: np.diag(v, -1)),
    (lambda a, v: a.trace(), lambda a, v: np.trace(a)),
]
ELEMENTS = [
    (lambda a, v: sg.dot(v, v * 2), lambda a, v: np.dot(v, v * 2)),
    (lambda a, v: v.log2(), lambda a, v: np.log2(v)),
    (lambda a, v: sg.log10(v), lambda a, v: np.log10(v)),
    (lambda a, v: a.tan(), lambda a, v: np.tan(a)),
    (lambda a, v: sg.clip(a, -1.1, 2.2), lambda a, v: np.clip(a, -1.1, 2.2)),
    (lambda a, v: F.pad(a, (1, 2)), lambda a, v: np.pad(a, ((0, 0), (1, 2)))),
    (lambda a, v: F.pad(a, (1, -1, 0, 2), value=7), lambda a, v: np.pad(a[:, :-1], ((0, 2), (1, 0)), constant_values=7)),
    (lambda a, v: F.normalize(a), lambda a, v: a / np.linalg.norm(a, axis=1, keepdims=True)),
    (lambda a, v: F.normalize(a, p=1, dim=0), lambda a, v: a / np.abs(a).sum(0, keepdims=True)),
    (lambda a, v: F.cosine_similarity(a, a.flip(1)), lambda a, v: (a * a[:, ::-1]).sum(1) / (a * a).sum(1)),
]


@pytest.mark.parametrize("ours, numpys", JOINED + DIAGONALS + ELEMENTS)
def test_values_are_numpys_and_gradients_are_slopes(ours, numpys):
    same(ours(sg.tensor(A), sg.tensor(V)), numpys(A, V))
    gradient_is_right(ours, A, V)


def test_a_zero_vector_has_no_direction():
    assert F.normalize(sg.zeros(1, 3)).tolist() == [[0, 0, 0]]
    assert F.cosine_similarity(sg.zeros(1, 3), sg.ones(1, 3)).tolist() == [0]


def test_integers_are_joined_and_taken_apart_too():
    x = sg.arange(6).reshape(2, 3)
    assert x.diagonal().tolist() == [0, 4] and sg.diag(sg.tensor([1, 2])).tolist() == [[1, 0], [0, 2]] and x.trace().item() == 4
    assert x.tile(2).tolist() == np.tile(x.numpy(), 2).tolist() and x.repeat_interleave(2, 0).dtype == sg.int64


def test_what_does_not_fit_is_refused_by_name():
    a, v = sg.tensor(A), sg.tensor(V)
    for wrong, says in [(lambda: sg.dot(a, a), "dot: .* are not two rows"), (lambda: v.trace(), "trace: .* is no matrix"),
                        (lambda: sg.diag(a[None]), "diag: .* neither"), (lambda: a.diagonal(0, 1, 1), "diagonal: .* are one"),
                        (lambda: a.repeat_interleave(sg.tensor([1, 2]), 0), "repeat_interleave: dimension 0 .* needs 3"),
                        (lambda: v.repeat_interleave(-1), "repeat_interleave"), (lambda: sg.meshgrid(v, indexing="yx"), "meshgrid: indexing 'yx'"),
                        (lambda: sg.meshgrid(a), "meshgrid: .* no row"), (lambda: F.pad(v, (1, 1, 1, 1)), "pad: 4 numbers"),
                        (lambda: F.pad(v, (1,)), "pad: 1 numbers"), (lambda: F.pad(v, (1, 1), mode="reflect"), "pad: mode 'reflect'")]:
        with pytest.raises(sg.InputError, match=says):
            wrong()


def test_tensors_like_others():
    x = sg.ones(2, 3, dtype=sg.float64)
    assert x.new_zeros(2).dtype == x.new_ones((1, 2)).dtype == x.new_full((3,), 7).dtype == sg.float64
    assert x.new_zeros(2, 3).shape == (2, 3) and x.new_ones((1, 2)).tolist() == [[1, 1]] and x.new_full((2,), 7, dtype=sg.int64).tolist() == [7, 7]
    assert sg.ones(3).expand_as(x).shape == (2, 3) and sg.arange(6).view_as(x).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert sg.arange(2).type_as(x).dtype == sg.float64
    assert sg.as_tensor(x) is not None and sg.as_tensor(x).same_as(x) and sg.as_tensor(x, sg.float32).dtype == sg.float32
    assert sg.as_tensor([1, 2]).tolist() == [1, 2] and sg.as_tensor(A).dtype == sg.float64
    assert (sg.pi, sg.inf) == (math.pi, math.inf) and math.isnan(sg.nan)


P = np.array([[0.25, 0.5, 0.875], [0.125, 0.75, 0.625]])
T = np.array([[0., 1., 1.], [0.5, 0., 1.]])


def test_binary_cross_entropy():
    losses = -(T * np.log(P) + (1 - T) * np.log(1 - P))
    p, t, w = sg.tensor(P), sg.tensor(T), sg.tensor([1., 2., 3.], dtype=sg.float64)
    same(F.binary_cross_entropy(p, t, reduction="none"), losses)
    same(F.binary_cross_entropy(p, t), losses.mean())
    same(F.binary_cross_entropy(p, t, w, reduction="sum"), (losses * [1, 2, 3]).sum())
    same(F.binary_cross_entropy(p, t, count=12), losses.sum() / 12)
    same(nn.BCELoss()(p, t), losses.mean())
    same(nn.BCELoss(w, "none")(p, t), losses * [1, 2, 3])
    gradient_is_right(lambda x, t: F.binary_cross_entropy(x, t, reduction="sum"), P, T + 0.125 * (0.5 - T))
    x = sg.randn(5, 3)
    assert abs(F.binary_cross_entropy(x.sigmoid(), t[0].float()).item() - F.binary_cross_entropy_with_logits(x, t[0].float().expand(5, 3)).item()) < 1e-6


def test_binary_cross_entropy_of_certainties():
    p = sg.tensor([0., 1., 0., 1.], requires_grad=True)
    loss = F.binary_cross_entropy(p, sg.tensor([0., 1., 1., 0.]), reduction="none")
    loss.sum().backward()
    assert loss.tolist() == [0, 0, 100, 100] and p.grad.isfinite().all()
    rare = sg.tensor([1e-50, 1e-40], dtype=sg.float64)
    assert F.binary_cross_entropy(rare, sg.ones(2, dtype=sg.float64), reduction="none").tolist() == pytest.approx([100, 40 * math.log(10)])


def test_softmax_as_modules():
    x = sg.randn(2, 3)
    assert nn.Softmax(dim=0)(x).tolist() == x.softmax(0).tolist() and nn.Softmax(-1)(x).tolist() == x.softmax(-1).tolist()
    assert nn.LogSoftmax(dim=1)(x).tolist() == x.log_softmax(1).tolist()
