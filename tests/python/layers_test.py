"""Layers and functions that are written in Python: PyTorch's numbers, gradients, and what is refused."""

import copy
import math
import pickle

import numpy as np
import pytest
import shardgrad as sg
from shardgrad import nn

F = nn.functional
X = np.array([-7., -3., -2.5, -1., -0.25, 0., 0.25, 1., 3., 5.5, 6.5])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "relu6": (nn.ReLU6, lambda x: np.clip(x, 0, 6)),
    "hardswish": (nn.Hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "mish": (nn.Mish, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "selu": (nn.SELU, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    "logsigmoid": (nn.LogSigmoid, lambda x: -np.log1p(np.exp(-x)))}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_and_its_gradient(name):
    kind, exact = ACTIVATIONS[name]
    x = sg.tensor(X, requires_grad=True)
    y = getattr(F, name)(x)
    assert np.allclose(y.detach().numpy(), exact(X), rtol=1e-12, atol=1e-14) and kind()(x).tolist() == y.tolist()
    y.sum().backward()
    smooth = np.abs(np.abs(X) - 3) > 0.1  # where there is no corner
    smooth &= X != 0
    slopes = (exact(X + 1e-6) - exact(X - 1e-6)) / 2e-6
    assert np.allclose(x.grad.numpy()[smooth], slopes[smooth], atol=1e-7)
    half = getattr(F, name)(sg.tensor(X, dtype=sg.float16))
    assert half.dtype == sg.float16 and np.allclose(half.numpy(), exact(X), rtol=2e-3, atol=1e-3)


def test_corners_are_pytorchs():
    x = sg.tensor([0., 6., math.nan], requires_grad=True)
    F.relu6(x).sum().backward()
    assert x.grad.tolist()[:2] == [0, 0] and math.isnan(F.relu6(x)[2].item())
    x = sg.tensor([-3., 3.], requires_grad=True)
    F.hardswish(x).sum().backward()
    assert x.grad.tolist() == [-0.5, 1.5]


def test_glu():
    x = np.arange(12.).reshape(2, 6) - 5
    assert np.allclose(F.glu(sg.tensor(x)).numpy(), x[:, :3] * sigmoid(x[:, 3:]))
    assert np.allclose(nn.GLU(0)(sg.tensor(x)).numpy(), x[:1] * sigmoid(x[1:]))
    with pytest.raises(sg.InputError, match="glu: dimension 0 of .3,. has no two halves"):
        F.glu(sg.zeros(3), 0)


def test_prelu_trains_its_weights():
    layer, x = nn.PReLU(2), sg.tensor([[[1., -2.], [-3., 4.]]], requires_grad=True)
    y = layer(x)
    assert y.tolist() == [[[1, -0.5], [-0.75, 4]]]
    y.sum().backward()
    assert layer.weight.grad.tolist() == [-2, -3] and x.grad.tolist() == [[[1, 0.25], [0.25, 1]]]
    assert nn.PReLU()(sg.tensor([-4.])).tolist() == [-1] and list(layer.state_dict()) == ["weight"]
    with pytest.raises(sg.InputError, match="prelu: weights .2,. are neither one nor one for each channel"):
        layer(sg.zeros(2, 3))


def test_pooling_of_one_dimension_is_that_of_an_image_of_one_row():
    x = sg.tensor([[[1., 5., 2., 4., 3.]]], requires_grad=True)
    assert F.max_pool1d(x, 2).tolist() == nn.MaxPool1d(2)(x).tolist() == [[[5, 4]]]
    assert F.max_pool1d(x, (3,), stride=1, padding=1).tolist() == [[[5, 5, 5, 4, 4]]]
    assert nn.MaxPool1d(2, ceil_mode=True)(x).tolist() == [[[5, 4, 3]]]
    assert F.max_pool1d(x, np.int64(2)).tolist() == F.max_pool1d(x, sg.tensor(2)).tolist() == [[[5, 4]]]
    assert F.max_pool1d(x, np.array([2])).tolist() == [[[5, 4]]]
    assert F.avg_pool1d(x, 2).tolist() == nn.AvgPool1d(2)(x).tolist() == [[[3, 3]]]
    assert np.allclose(nn.AvgPool1d(3, 2, 1, count_include_pad=False)(x).detach().numpy(), [[[3, 11 / 3, 3.5]]])
    assert np.allclose(F.adaptive_avg_pool1d(x, 2).detach().numpy(), [[[8 / 3, 3]]])
    assert F.max_pool1d(x[0], 2).tolist() == [[5, 4]] and nn.AdaptiveAvgPool1d(1)(x[0]).tolist() == [[3]]
    F.max_pool1d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[0, 1, 0, 1, 0]]]
    for wrong, says in ((lambda: F.max_pool1d(sg.zeros(3), 2), "max_pool1d: the input is"), (lambda: F.avg_pool1d(x, (2, 2)), "avg_pool1d: kernels"),
                        (lambda: F.max_pool1d(x, 2, return_indices=True), "return_indices")):
        with pytest.raises(sg.InputError, match=says):
            wrong()


def test_dropout_of_channels():
    sg.manual_seed(1)
    y = F.dropout2d(sg.ones(8, 16, 2, 3), 0.25)
    whole = y.flatten(2)
    assert (whole.amax(2) == whole.amin(2)).all() and set(whole.flatten().tolist()) == {0, sg.tensor(1 / 0.75).item()}
    assert 0.1 < (whole[:, :, 0] == 0).float().mean().item() < 0.4
    layer, x = nn.Dropout2d(0.5), sg.randn(2, 3, 4)
    assert layer.eval()(x).same_as(x) and F.dropout2d(x, training=False) is x and not layer.train()(x).equal(x)
    for wrong in (lambda: nn.Dropout2d(1.), lambda: F.dropout2d(sg.ones(2, 2))):
        with pytest.raises(sg.InputError, match="ropout2d"):
            wrong()


def attended(q, k, v, seen=None, scale=None):
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * (scale or 1 / math.sqrt(q.shape[-1]))
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v)


def test_attention_of_queries_keys_and_values():
    sg.manual_seed(3)
    q, k, v = (sg.randn(2, 4, 5, 8, dtype=sg.float64) for _ in range(3))
    arrays = [each.numpy() for each in (q, k, v)]
    lower = np.tril(np.ones((5, 5), bool))
    close = lambda a, b: np.allclose(a.numpy(), b, atol=1e-12)
    assert close(F.scaled_dot_product_attention(q, k, v), attended(*arrays))
    assert close(F.scaled_dot_product_attention(q, k, v, is_causal=True), attended(*arrays, lower))
    assert close(F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), attended(*arrays, lower, 0.3))
    assert close(F.scaled_dot_product_attention(q, k, v, sg.tensor(lower)), attended(*arrays, lower))
    assert close(F.scaled_dot_product_attention(q, k, v, sg.tensor(np.where(lower, 0., -np.inf))), attended(*arrays, lower))
    few = F.scaled_dot_product_attention(q[:, :, :3], k, v, is_causal=True)  # as PyTorch: the first query sees the first key
    assert close(few, attended(arrays[0][:, :, :3], *arrays[1:], lower[:3]))
    assert F.scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0]).shape == (5, 8)


def test_attention_of_groups_of_heads():
    q, k, v = sg.randn(2, 4, 5, 8), sg.randn(2, 2, 5, 8), sg.randn(2, 2, 5, 8)
    all_k, all_v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    for causal in False, True:
        found = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        assert found.allclose(F.scaled_dot_product_attention(q, all_k, all_v, is_causal=causal), atol=1e-5)
        with pytest.raises(sg.InputError, match="4 heads of queries, 2 of keys"):
            F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def test_the_gradients_of_both_ways_of_causal_attention_agree():
    first = [sg.randn(2, 2, 6, 4, dtype=sg.float64, requires_grad=True) for _ in range(3)]
    second = [each.detach().clone().requires_grad_() for each in first]
    (F.scaled_dot_product_attention(*first, is_causal=True) ** 2).sum().backward()
    (F.scaled_dot_product_attention(*second, attn_mask=sg.ones(6, 6).tril() > 0) ** 2).sum().backward()
    for one, other in zip(first, second):
        assert one.grad.allclose(other.grad, atol=1e-12)


def test_a_query_that_sees_nothing_has_nothing():
    q, mask = sg.randn(1, 1, 2, 4, requires_grad=True), sg.tensor([[1, 1], [0, 0]]) > 0
    y = F.scaled_dot_product_attention(q, q, q, mask)
    y.sum().backward()
    assert y[0, 0, 1].tolist() == [0] * 4 and q.grad.isfinite().all()
    half = q.detach().half()  # in which a mask's large numbers are infinite
    large = F.scaled_dot_product_attention(half, half, half, sg.tensor([[0., 0.], [-1e9, -1e9]]))
    assert large.isfinite().all() and large[0, 0, 1].tolist() == [0] * 4
    added = F.scaled_dot_product_attention(q, q, q, sg.zeros(2, 2).masked_fill(mask == 0, -math.inf))
    added.sum().backward()
    assert added.allclose(y) and q.grad.isfinite().all()
    dropped = F.scaled_dot_product_attention(q, q, q, dropout_p=0.9)
    assert dropped.shape == y.shape
    for wrong, says in ((lambda: F.scaled_dot_product_attention(q, q, q, mask, is_causal=True), "exclude each other"),
                        (lambda: F.scaled_dot_product_attention(q, q, q, sg.ones(2, 2, dtype=sg.int64)), "attn_mask is shardgrad.int64.*mask != 0"),
                        (lambda: F.scaled_dot_product_attention(q.expand(1, 3, 2, 4), q.expand(1, 2, 2, 4), q.expand(1, 2, 2, 4), enable_gqa=True), "3 heads of queries, 2 of keys; each"),
                        (lambda: F.scaled_dot_product_attention(q, q[..., :2], q), "are not")):
        with pytest.raises(sg.InputError, match=says):
            wrong()


def test_scores_that_fit_once_they_are_scaled_fit():
    q = sg.full((1, 1, 2, 256), 20., dtype=sg.float16)  # 256 · 400 is more than f16 has
    k = sg.cat([q[:, :, :1], -q[:, :, :1]], 2)
    y = F.scaled_dot_product_attention(q, k, k, sg.ones(2, 2) > 0)
    assert y.tolist() == [[[[20] * 256] * 2]]


@pytest.mark.parametrize("layer, x", [(nn.ReLU6(inplace=True), (2, 3)), (nn.Mish(), (2, 3)), (nn.SELU(), (2, 3)), (nn.GLU(1), (2, 4)), (nn.PReLU(3), (2, 3)),
                                      (nn.MaxPool1d(2), (1, 2, 4)), (nn.AvgPool1d(2, 1), (1, 2, 4)), (nn.AdaptiveAvgPool1d(2), (1, 2, 4)), (nn.LogSigmoid(), (2,))])
def test_layers_are_copied(layer, x):
    x = sg.randn(*x)
    for other in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)):
        assert other(x).tolist() == layer(x).tolist() and repr(other) == repr(layer)


def test_a_row_of_an_embedding_that_is_padding():
    table = nn.Embedding(4, 2, padding_idx=-1)
    for layer in table, copy.deepcopy(table), pickle.loads(pickle.dumps(table)):
        y = layer(sg.tensor([[0, 3], [3, 1]]))
        y.sum().backward()
        assert y[0, 1].tolist() == y[1, 0].tolist() == [0, 0] and y[0, 0].tolist() == layer.weight[0].tolist()
        assert layer.weight.grad.tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]
    with pytest.raises(sg.InputError, match="Embedding: there is no row 4 of 4 that could be padding"):
        nn.Embedding(4, 2, 4)
    w = sg.ones(3, 2, requires_grad=True)
    for row in 3, -4:
        with pytest.raises(sg.InputError, match=f"embedding: there is no row {row} of 3 that could be padding"):
            F.embedding(sg.tensor([0]), w, padding_idx=row)
    y = F.embedding(sg.tensor([0, 1]), w, padding_idx=-2)
    y.sum().backward()
    assert y.tolist() == [[1, 1], [1, 1]] and w.grad.tolist() == [[1, 1], [0, 0], [0, 0]]


def test_vectors_of_parameters():
    model = nn.Sequential(nn.Linear(2, 3), nn.PReLU())
    model.materialize()
    row = nn.utils.parameters_to_vector(model.parameters())
    assert row.shape == (10,) and row[-1].item() == 0.25 and row.requires_grad
    nn.utils.vector_to_parameters(row.detach() * 2, model.parameters())
    assert model[1].weight.tolist() == [0.5] and model[0].bias.tolist() == (2 * row.detach()[6:9]).tolist()
    with pytest.raises(sg.InputError, match="no row of the parameters' 10 elements"):
        nn.utils.vector_to_parameters(sg.zeros(9), model.parameters())


def test_gradients_are_clipped_by_value():
    w, other = sg.tensor([1., 2., 3.], requires_grad=True), sg.ones(1, requires_grad=True)
    (w * sg.tensor([5., -5., 0.5])).sum().backward()
    nn.utils.clip_grad_value_([w, other], 1.5)
    assert w.grad.tolist() == [1.5, -1.5, 0.5] and other.grad is None
    assert nn.utils.clip_grad_norm_(parameters=[w], max_norm=1.0) == pytest.approx(math.sqrt(4.75))
    assert nn.utils.clip_grad_norm_(w, 2.0, foreach=True) == pytest.approx(1)
    with pytest.raises(sg.InputError, match="leave error_if_nonfinite out"):
        nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=False)


def test_sequences_are_padded():
    a, b = sg.tensor([[1., 2.], [3., 4.]], requires_grad=True), sg.tensor([[5., 6.]])
    padded = nn.utils.rnn.pad_sequence([a, b], batch_first=True, padding_value=-1)
    assert padded.tolist() == [[[1, 2], [3, 4]], [[5, 6], [-1, -1]]]
    padded.sum().backward()
    assert a.grad.tolist() == [[1, 1], [1, 1]]
    assert nn.utils.rnn.pad_sequence([sg.tensor([1, 2, 3]), sg.tensor([4])]).tolist() == [[1, 4], [2, 0], [3, 0]]
    assert nn.utils.rnn.pad_sequence([sg.tensor([1, 2]), sg.tensor([4])], True, padding_side="left").tolist() == [[1, 2], [0, 4]]
    for wrong in (lambda: nn.utils.rnn.pad_sequence([]), lambda: nn.utils.rnn.pad_sequence([a], padding_side="up")):
        with pytest.raises(sg.InputError, match="pad_sequence"):
            wrong()


@pytest.mark.parametrize("function", [F.mish, F.hardswish, F.selu])
@pytest.mark.parametrize("dtype", [sg.uint8, sg.int32, sg.int64])
def test_activations_with_fractions_refuse_integers(function, dtype):
    with pytest.raises(sg.InputError):
        function(sg.ones(2, dtype=dtype))
