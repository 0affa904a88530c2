"""What is made of other operations: against NumPy, and with gradients that differences confirm."""

import copy
import math
import pickle

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
    x, wide = sg.randn(5, 3), t[0].float().expand(5, 3)
    assert abs(F.binary_cross_entropy(x.sigmoid(), wide).item() - F.binary_cross_entropy_with_logits(x, wide).item()) < 1e-6


def test_binary_cross_entropy_keeps_its_sign():
    # A weight below 0 makes losses below 0.
    p, t = sg.tensor([0.25, 0.5], requires_grad=True), sg.tensor([0., 1.])
    found = F.binary_cross_entropy(p, t, sg.tensor([1., -2.]), reduction="none")
    assert found.tolist() == pytest.approx([-math.log(0.75), -2 * -math.log(0.5)])
    assert F.binary_cross_entropy(p, t, sg.tensor([1., -2.]), count=4).item() == pytest.approx((-math.log(0.75) + 2 * math.log(0.5)) / 4)
    F.binary_cross_entropy(p, t, sg.tensor([-1., -2.]), reduction="sum").backward()
    assert p.grad.tolist() == pytest.approx([-1 / 0.75, -2 * (0.5 - 1) / 0.25])


@pytest.mark.parametrize("of, says", [
    (lambda p: F.binary_cross_entropy(p, p[0]), r"input \[2, 3\] and target \[3\]"), (lambda p: F.binary_cross_entropy(p[:1], p), "same shape"),
    (lambda p: F.binary_cross_entropy(p, p, sg.ones(4, 2, 3)), "expand|broadcast"), (lambda p: F.binary_cross_entropy(p + 1, p), "outside .0, 1."),
    (lambda p: F.binary_cross_entropy(-p, p), "logits"), (lambda p: F.binary_cross_entropy(p * math.nan, p), "probabilities"),
    (lambda p: F.binary_cross_entropy(p, p + 1), "target has numbers outside .0, 1."), (lambda p: F.binary_cross_entropy(p, p * math.nan), "target has"),
    (lambda p: F.binary_cross_entropy(p, p, count=0), "binary_cross_entropy: count 0, but"),
    (lambda p: F.binary_cross_entropy(p, p, reduction="most"), "none of mean"), (lambda p: nn.BCELoss(reduction="most"), "none of mean"),
    (lambda p: F.binary_cross_entropy(p, p, reduction="sum", count=2), "count")])
def test_what_has_no_binary_cross_entropy(of, says):
    with pytest.raises(sg.InputError, match=says):
        of(sg.tensor(P).float())


def test_a_mean_of_a_ranks_part_is_refused(ranks):
    ranks(2, """
        import pytest
        import shardgrad as sg
        sg.dist.init()
        loss = sg.nn.BCELoss()
        p = sg.full((4,), 0.5).requires_grad_()
        with pytest.raises(sg.InputError, match="binary_cross_entropy.*count"):
            loss(p, sg.ones(4))
        loss(p, sg.ones(4), count=8).backward()
        assert p.grad.tolist() == [-0.25] * 4
    """)


FUNCTIONS = {nn.BCELoss: F.binary_cross_entropy, nn.CrossEntropyLoss: F.cross_entropy, nn.NLLLoss: F.nll_loss,
             nn.BCEWithLogitsLoss: F.binary_cross_entropy_with_logits}


@pytest.mark.parametrize("make", FUNCTIONS)
def test_weights_of_losses_go_with_them(make):
    name = "pos_weight" if make is nn.BCEWithLogitsLoss else "weight"
    loss, without = make(**{name: sg.tensor([1., 2., 3.])}), make()
    assert [each for each, _ in loss.named_buffers()] == [name] == list(loss.state_dict()) and without.state_dict() == {}
    assert getattr(loss, name).dtype == sg.float32 and getattr(loss.to(sg.float64), name).dtype == sg.float64
    assert getattr(without, name) is None
    with pytest.raises(sg.InputError, match="median"):
        make(reduction="median")
    elements = make in (nn.BCELoss, nn.BCEWithLogitsLoss)
    x = sg.tensor(P) if make is nn.BCELoss else sg.tensor(P).log()
    target = sg.tensor(T) if elements else sg.tensor([0, 2])
    function = FUNCTIONS[make]
    assert loss(x, target).item() == function(x, target, **{name: sg.tensor([1., 2., 3.], dtype=sg.float64)}).item()
    assert copy.deepcopy(loss)(x, target, 9.).item() == loss(x, target, count=9.).item()
    assert pickle.loads(pickle.dumps(loss))(x, target).item() == loss(x, target).item()


def test_binary_cross_entropy_of_certainties():
    p = sg.tensor([0., 1., 0., 1.], requires_grad=True)
    loss = F.binary_cross_entropy(p, sg.tensor([0., 1., 1., 0.]), reduction="none")
    loss.sum().backward()
    assert loss.tolist() == [0, 0, 100, 100] and p.grad.tolist() == pytest.approx([0, 0, -1e12, 1e12])
    rare = sg.tensor([1e-50, 1e-40], dtype=sg.float64)
    assert F.binary_cross_entropy(rare, sg.ones(2, dtype=sg.float64), reduction="none").tolist() == pytest.approx([100, 40 * math.log(10)])


def test_softmax_as_modules():
    x = sg.randn(2, 3)
    assert nn.Softmax(dim=0)(x).tolist() == x.softmax(0).tolist() and nn.Softmax(-1)(x).tolist() == x.softmax(-1).tolist()
    assert nn.LogSoftmax(dim=1)(x).tolist() == x.log_softmax(1).tolist()


# --- exactly, and what PyTorch takes ------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype, powers", [(sg.float32, range(-126, 128)), (sg.float64, range(-1022, 1024))])
def test_the_logarithm_of_a_power_of_2_is_whole(dtype, powers):
    assert sg.tensor([2.**k for k in powers], dtype=dtype).log2().tolist() == list(powers)


@pytest.mark.parametrize("dtype, powers", [(sg.float32, range(-10, 11)), (sg.float64, range(-22, 23))])
def test_the_logarithm_of_a_power_of_10_is_whole(dtype, powers):
    assert sg.tensor([float(f"1e{k}") for k in powers], dtype=dtype).log10().tolist() == list(powers)


def test_other_logarithms_and_gradients_are_as_they_were():
    beside = np.array([0.3, 1 - 2**-52, 1 + 2**-52, 7., 8.000001, 1000.0001])
    assert np.allclose(sg.tensor(beside).log2().numpy(), np.log2(beside), rtol=1e-12, atol=1e-18)
    assert np.allclose(sg.tensor(beside).log10().numpy(), np.log10(beside), rtol=1e-12, atol=1e-18)
    x = sg.tensor([1., 8., 1000., 5.], dtype=sg.float64, requires_grad=True)
    x.log2().sum().backward()
    assert x.grad.tolist() == pytest.approx([1 / (each * math.log(2)) for each in x.tolist()], rel=1e-14)
    ends = sg.tensor([0., math.inf, -1., math.nan])
    for log in sg.log2, sg.log10:
        assert log(ends).tolist()[:2] == [-math.inf, math.inf] and all(map(math.isnan, log(ends).tolist()[2:]))


def test_cosine_similarity_broadcasts_before_it_takes_norms():
    x, y = np.array([[1., 2., 2.], [0., 3., 4.]]), np.array([2., 0., 1.])
    expected = x @ y / np.linalg.norm(x, axis=1) / np.linalg.norm(y)
    same(F.cosine_similarity(sg.tensor(x), sg.tensor(y)), expected)
    same(F.cosine_similarity(sg.tensor(y), sg.tensor(x)), expected)
    same(F.cosine_similarity(sg.tensor(x)[:, None], sg.tensor(x)[None], dim=2), [[1, 14 / 15], [14 / 15, 1]])
    with pytest.raises(sg.InputError):
        F.cosine_similarity(sg.ones(2, 3), sg.ones(2))


@pytest.mark.parametrize("p", [1, 2, 3., 0.5, 0, -1, math.inf, -math.inf])
def test_normalize_has_pytorchs_norms(p):
    size = np.linalg.norm(A, p, axis=1, keepdims=True)
    same(F.normalize(sg.tensor(A), p), A / size)


def gradient(function, x):
    leaf = sg.tensor(x, requires_grad=True)
    function(leaf).sum().backward()
    return leaf.grad.tolist()


def test_norms_of_16_bits_are_rounded_once():
    half = sg.tensor([[1e-3, 2e-3], [100., 1.]]).half()
    assert sg.tensor([100., 100.]).half().norm(3).item() == 126 and sg.tensor([100., 100.]).half().norm(3).dtype == sg.float16
    assert sg.tensor([1e-3] * 300).bfloat16().norm(0.5).item() == 90
    expected = {3: [[0.480713, 0.961426], [1, 0.0100021]], 0: [[0.0005002, 0.0010004], [50, 0.5]], -1: [[1.5, 3], [101, 1.00977]],
                -2: [[1.11816, 2.23633], [100, 1]], 0.5: [[0.171509, 0.343018], [0.82666, 0.00826263]]}
    for p, values in expected.items():
        assert np.allclose(F.normalize(half, p).float().numpy(), values, rtol=1e-5, atol=0), p
    with sg.autocast(sg.bfloat16):
        assert half.norm(3).dtype == sg.float32


def test_zeros_have_no_slope_in_a_norm():
    root = [0, 2.5, 1.6666667]
    assert gradient(lambda x: x.norm(0.5), [0., 4., 9.]) == pytest.approx(root) == gradient(lambda x: x.norm(0.5, 0), [0., 4., 9.])
    for p in 0.5, 1.5, 3:
        assert gradient(lambda x: x.norm(p), [0., 0.]) == [0, 0]
    assert gradient(lambda x: F.normalize(x, 0.5), [[0., 4., 9.]])[0] == pytest.approx([0.04, -0.012, 0.00533333], rel=1e-5)
    for p in -1, -0.5:
        assert F.normalize(sg.tensor([[0., 4., 9.]]), p).tolist()[0] == pytest.approx([0, 4e12, 9e12])
        assert gradient(lambda x: F.normalize(x, p), [[0., 4., 9.]])[0] == pytest.approx([1e12] * 3)


@pytest.mark.parametrize("dtype, log2, log10, tan", [
    (sg.bfloat16, [6.65625, 2.8125, -1.734375], [2., 0.84375, -0.5234375], [-0.5859375, 0.87109375, 0.310546875]),
    (sg.float16, [6.64453125, 2.806640625, -1.736328125], [2., 0.84521484375, -0.52294921875], [-0.58740234375, 0.87158203125, 0.309326171875])])
def test_functions_of_16_bits_are_rounded_once(dtype, log2, log10, tan):
    x = sg.tensor([100., 7., 0.3]).to(dtype)
    assert x.log2().tolist() == log2 and x.log10().tolist() == log10 and x.tan().tolist() == tan and x.tan().dtype == dtype


def test_cosine_similarity_has_the_norms_gradient_below_eps():
    def small(x):
        return F.cosine_similarity(x * 1e-9, x.flip(1) * 1e-9)

    assert small(sg.tensor([[3., 4., 5.]])).tolist() == pytest.approx([0.46])
    assert gradient(small, [[3., 4., 5.]])[0] == pytest.approx([0.0609677, 0.0279569, -0.00505383], rel=1e-5)


def test_what_meshgrid_repeat_interleave_and_pad_take():
    for wrong, said in ((sg.ones(2), 3), "3"), (([sg.ones(2), None],), "None"), ((sg.ones(2), [sg.ones(2)]), r"\["):
        with pytest.raises(sg.InputError, match=f"meshgrid: {said}.* is no tensor"):
            sg.meshgrid(*wrong)
    x = sg.tensor([1, 2])
    assert x.repeat_interleave(sg.tensor(2)).tolist() == x.repeat_interleave(sg.tensor([2])).tolist() == [1, 1, 2, 2]
    for wrong in sg.tensor([1., 2.]), sg.tensor(2.), sg.tensor([1, 2, 3]):
        with pytest.raises(sg.InputError, match="repeat_interleave"):
            x.repeat_interleave(wrong)
    assert F.pad(x, (1, 0), value=None).tolist() == F.pad(x, (1, 0), "constant", None).tolist() == [0, 1, 2]


def test_what_shares_memory_says_so():
    x = sg.zeros(2, 2)
    for copies in x.diagonal(), x.unbind(1)[0]:
        copies.fill_(1)
    assert x.tolist() == [[0, 0], [0, 0]]
    x.unbind()[0].fill_(1)
    assert x.tolist() == [[1, 1], [0, 0]]
    for name in "diagonal", "unbind":
        assert all("cop" in function.__nb_signature__[0][1] for function in (getattr(sg, name), getattr(sg.Tensor, name)))


def test_cosine_similarity_is_finite_where_a_norm_overflows():
    x = sg.full((1, 4), 40000., dtype=sg.float16).requires_grad_()
    cosine = F.cosine_similarity(x, sg.ones(1, 4, dtype=sg.float16))
    assert cosine.tolist() == [0.0]
