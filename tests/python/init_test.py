"""nn.init: PyTorch's names of arguments, and the guards that every change in place has."""

import math

import pytest
import shardgrad as sg
from shardgrad import nn

init = nn.init
FILLS = [init.zeros_, init.ones_, init.uniform_, init.normal_, init.trunc_normal_, init.kaiming_uniform_, init.kaiming_normal_,
         init.xavier_uniform_, init.xavier_normal_, init.orthogonal_, lambda x: init.constant_(x, 2.)]


@pytest.mark.parametrize("fill", [*FILLS, lambda x: sg.no_grad()(x.fill_)(0)])
def test_a_value_that_backward_needs_is_not_changed_in_silence(fill):
    x = sg.ones(2, 2, requires_grad=True)
    y = x * 2
    z = y * y
    fill(y)
    with pytest.raises(sg.InputError, match="changed"):
        z.sum().backward()


def test_a_gathered_parameter_is_refused(ranks):
    ranks(2, """
        import pytest
        import shardgrad as sg
        from shardgrad import nn
        sg.dist.init(seed=1)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(sg.ones(4, 4))

            def forward(self, x):
                for fill in nn.init.zeros_, nn.init.normal_, lambda w: w.fill_(0):
                    with pytest.raises(sg.InputError, match="write|changed|sharded"), sg.no_grad():
                        fill(self.weight)
                return x @ self.weight

        net = Net()
        sg.fully_shard(net, strategy="zero3")
        assert net(sg.ones(1, 4)).tolist() == [[4.] * 4]
    """)


def test_arguments_have_pytorchs_names():
    x = sg.zeros(200, 100)
    assert init.constant_(x, val=2.).min().item() == 2
    assert init.uniform_(x, a=2., b=3.).min().item() >= 2 and x.max().item() < 3
    assert abs(init.normal_(tensor=x, mean=5., std=0.1, generator=None).mean().item() - 5) < 0.01
    assert 1 <= init.trunc_normal_(x, mean=0., std=1., a=1., b=1.5, generator=None).min().item() and x.max().item() <= 1.5
    for drawn in init.kaiming_uniform_, init.xavier_normal_, init.orthogonal_:
        drawn(x, generator=None)
    with pytest.raises(sg.InputError, match="no generators"):
        init.normal_(x, generator=1)


def test_gains():
    expected = {"linear": 1, "conv1d": 1, "conv2d": 1, "conv_transpose3d": 1, "sigmoid": 1, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4,
                "leaky_relu": math.sqrt(2 / (1 + 1e-4))}
    assert {name: init.calculate_gain(name) for name in expected} == pytest.approx(expected)
    assert init.calculate_gain("leaky_relu", 1) == 1
    for wrong in "conv4d", "conv", "gelu":
        with pytest.raises(sg.InputError, match=f"nonlinearity '{wrong}'"):
            init.calculate_gain(wrong)
    x = sg.zeros(300, 400)
    for name in expected:
        assert abs(init.kaiming_normal_(x, a=0.01, nonlinearity=name).std().item() * 20 / expected[name] - 1) < 0.02
        assert abs(init.kaiming_uniform_(x, a=0.01, nonlinearity=name).max().item() * 20 / expected[name] / 3**0.5 - 1) < 0.01


def test_what_is_no_tensor_is_refused():
    for wrong in 3, [1., 2.], None, nn.Linear(2, 2):
        with pytest.raises(sg.InputError, match="is no tensor"):
            init.zeros_(wrong)
