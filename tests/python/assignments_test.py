"""What takes the place of a module's parts: parameters, buffers, None, other modules, other forwards; lists that change."""

import copy
import pickle

import pytest
import shardgrad as sg
from shardgrad import nn, optim

F = nn.functional


def values(*shape):
    return sg.arange(sg.zeros(*shape).numel(), dtype=sg.float32).reshape(*shape) * 0.25 - 1


def names(module):
    return [name for name, _ in module.named_parameters()]


# --- parameters ------------------------------------------------------------------------------------------------------


def test_another_parameter_takes_the_place_of_a_layers():
    layer = nn.Linear(3, 2)
    before = layer.weight
    p = layer.weight = nn.Parameter(values(2, 3))
    x = sg.ones(1, 3)
    assert layer.weight is p and layer.parameters()[0] is p and names(layer) == ["weight", "bias"] and p.name == "weight"
    assert layer(x).tolist() == F.linear(x, p, layer.bias).tolist()
    layer(x).sum().backward()
    assert p.grad.tolist() == [[1] * 3] * 2 and before.grad is None
    optim.SGD(layer.parameters(), lr=1.).step()
    assert layer.state_dict()["weight"].tolist() == (values(2, 3) - 1).tolist()
    layer.weight = before
    assert layer.weight is before and layer(x).tolist() == F.linear(x, before, layer.bias).tolist()


@pytest.mark.parametrize("make, name", [(lambda: nn.Conv2d(1, 2, 3), "weight"), (lambda: nn.Embedding(4, 2), "weight"),
                                        (lambda: nn.LayerNorm(4), "bias"), (lambda: nn.BatchNorm2d(3), "weight"),
                                        (lambda: nn.LSTM(2, 3, num_layers=2, bidirectional=True), "weight_hh_l1_reverse"),
                                        (lambda: nn.GRU(2, 3), "bias_ih_l0")])
def test_layers_of_all_kinds_take_parameters(make, name):
    layer = make()
    p = nn.Parameter(values(*getattr(layer, name).shape))
    setattr(layer, name, p)
    assert getattr(layer, name) is p and layer.state_dict()[name].tolist() == p.tolist()
    assert [kept is p for kept in layer.parameters()].count(True) == 1


def test_a_recurrent_layers_parameters_are_attributes_and_what_it_computes_with():
    lstm, x = nn.LSTM(2, 3), values(4, 1, 2)
    for name, p in lstm.named_parameters():
        assert getattr(lstm, name) is p
        setattr(lstm, name, nn.Parameter(sg.zeros(*p.shape)))
    assert lstm(x)[0].tolist() == sg.zeros(4, 1, 3).tolist()
    assert nn.GRU(2, 3, bias=False).bias_hh_l0 is None
    with pytest.raises(AttributeError, match="'weight_ih_l1'"):
        lstm.weight_ih_l1


def test_what_does_not_fit_is_refused_and_changes_nothing():
    layer = nn.Linear(3, 2)
    layer.materialize()
    before = layer.weight.tolist()
    for wrong, said in [(nn.Parameter(sg.zeros(3, 2)), r"'weight' of this Linear is f32\[2, 3\].* cannot take its place; make a layer of other sizes"),
                        (nn.Parameter(sg.zeros(2, 3, dtype=sg.float64)), "convert it with .to"),
                        (sg.zeros(2, 3), r"another nn.Parameter goes, or None, not a tensor f32.*module.weight.copy_\(values\)")]:
        with pytest.raises(sg.InputError, match=said):
            layer.weight = wrong
    assert layer.weight.tolist() == before
    layer.double().weight = nn.Parameter(sg.zeros(2, 3, dtype=sg.float64))
    with pytest.raises(sg.InputError, match="gets no further parts"):
        layer.more = nn.Parameter(sg.zeros(1))


def test_a_layer_loses_its_bias_and_gets_one_again():
    layer, x = nn.Linear(3, 2), sg.ones(1, 3)
    layer.bias = None
    assert layer.bias is None and names(layer) == ["weight"] and layer(x).tolist() == F.linear(x, layer.weight).tolist()
    for copied in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.copy(layer):
        assert copied.bias is None and names(copied) == ["weight"] and copied(x).tolist() == layer(x).tolist()
    layer.bias = None
    layer.bias = nn.Parameter(sg.tensor([1., 2.]))
    assert names(layer) == ["weight", "bias"] and layer(x).tolist() == F.linear(x, layer.weight, layer.bias).tolist()
    without = nn.Linear(3, 2, bias=False)
    without.bias = layer.bias
    for copied in copy.deepcopy(without), pickle.loads(pickle.dumps(without)):
        assert copied.bias.tolist() == [1, 2] and copied.bias is not layer.bias and copied(x).tolist() == without(x).tolist()
    without.weight = None
    with pytest.raises(sg.Error):
        without(x)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(sg.ones(2))
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x * self.scale) if self.scale is not None else self.layer(x)


def test_a_module_of_ones_own_takes_parameters_of_other_sizes_and_none():
    net = Scaled()
    net.scale = nn.Parameter(sg.tensor([2.]))
    assert names(net) == ["scale", "layer.weight", "layer.bias"] and net(sg.ones(1, 2)).shape == (1, 2)
    net.scale = None
    assert names(net) == ["layer.weight", "layer.bias"] and net(sg.ones(1, 2)).shape == (1, 2)
    net.scale = nn.Parameter(sg.ones(2))
    assert set(names(net)) == {"scale", "layer.weight", "layer.bias"}


def test_one_parameter_of_two_modules_is_untied_by_another_one():
    table, head = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
    table.materialize()
    both = nn.ModuleList([table, head])
    head.weight = table.weight
    assert names(both) == ["0.weight"]
    head.weight = nn.Parameter(values(3, 2))
    assert names(both) == ["0.weight", "1.weight"] and table.weight.tolist() != head.weight.tolist()


def test_a_parameter_of_a_module_that_is_no_part_is_a_part_too():
    elsewhere = nn.Linear(2, 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = elsewhere.weight

    net = Net()
    assert names(net) == ["w"] and net.w is elsewhere.weight and copy.deepcopy(net).w.tolist() == net.w.tolist()


def test_an_optimizer_of_a_parameter_that_is_used_no_more_says_so():
    layer, x = nn.Linear(2, 2), sg.ones(1, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.5)
    before = layer.weight
    layer.weight = nn.Parameter(sg.zeros(2, 2))
    layer(x).sum().backward()
    with pytest.raises(sg.InputError, match="step: 'weight' has no gradient.*make the optimizer anew"):
        optimizer.step()
    layer.weight = before
    layer(x).sum().backward()
    optimizer.step()
    optim.SGD(layer.parameters(), lr=0.5).step()


def test_a_sharded_module_keeps_its_parts(ranks):
    ended = ranks(2, """
        import pytest
        import shardgrad as sg
        from shardgrad import nn
        sg.dist.init()
        for strategy in "ddp", "zero3":
            model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            sharded = sg.fully_shard(model, strategy=strategy)
            def set_weight(): model[0].weight = nn.Parameter(sg.zeros(4, 4))
            def set_none(): model[0].bias = None
            for wrong in set_weight, set_none, lambda: model.pop(), lambda: model.insert(0, nn.Linear(4, 4)):
                with pytest.raises(sg.InputError, match="build the whole model first"):
                    wrong()
            assert len(model) == 2 and len(model.parameters()) == 4
        print("right")
    """)
    assert ended.out.count("right") == 2, ended


def test_a_buffer_that_is_assigned_gets_the_values():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("run", sg.zeros(2))
            self.w = nn.Parameter(sg.ones(2))
            self.cache = None

        def forward(self, x):
            self.run = self.run * 0.5 + x.mean(0)
            self.cache = x
            return x * self.w

    net = Net()
    net(sg.ones(3, 2))
    net(sg.ones(3, 2))
    assert net.run.tolist() == net.state_dict()["run"].tolist() == [1.5, 1.5] and net.cache.shape == (3, 2)
    with pytest.raises(sg.InputError, match="buffer"):
        net.run = sg.zeros(3)
    for trained in (lambda p: setattr(net, "run", p), lambda p: net.register_parameter("run", p)):
        with pytest.raises(sg.InputError, match="'run' is a buffer of this Net, in whose place a parameter would not be trained"):
            trained(nn.Parameter(sg.zeros(2)))
    assert net.run.tolist() == [1.5, 1.5] and [name for name, _ in net.named_parameters()] == ["w"]
    with pytest.raises(sg.InputError, match="parameter"):
        net.w = sg.zeros(2)
    net.w = net.w


# --- modules ---------------------------------------------------------------------------------------------------------


def test_another_head_takes_the_place_of_the_first():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3)
            self.fc = nn.Linear(3, 10)
            self.last = nn.ReLU()

        def forward(self, x):
            return self.last(self.fc(self.body(x)))

    net = Net()
    net(sg.ones(1, 4))
    old = net.fc
    net.fc = new = nn.Linear(3, 2)
    assert net.fc is new and [name for name, _ in net.named_children()] == ["body", "fc", "last"]
    assert net(sg.ones(1, 4)).shape == (1, 2) and net.state_dict()["fc.weight"].shape == (2, 3) and new.full_name == "fc"
    assert old(sg.ones(1, 3)).shape == (1, 10)
    with pytest.raises(sg.InputError, match="contain itself"):
        net.fc = net
    with pytest.raises(sg.InputError, match="stays one"):
        net.fc = 3
    assert net.fc is new
    model[0] = nn.Linear(4, 5)
    assert model(sg.ones(1, 4)).shape == (1, 5) and isinstance(model[1], nn.ReLU)


@pytest.mark.parametrize("kind", [nn.ModuleList, lambda modules: nn.Sequential(*modules)])
def test_lists_are_changed_as_pytorchs(kind):
    layers = [nn.Linear(2, 2) for _ in range(4)]
    listed = kind(layers[:2])
    assert listed.insert(1, layers[2]) is listed and list(listed) == [layers[0], layers[2], layers[1]]
    assert [name for name, _ in listed.named_children()] == ["0", "1", "2"] and layers[1].full_name in ("2", "")
    assert listed.pop() is layers[1] and listed.pop(0) is layers[0] and list(listed) == [layers[2]]
    assert names(listed) == ["0.weight", "0.bias"]
    listed.extend(layers[:2])
    listed[-1] = layers[3]
    assert list(listed) == [layers[2], layers[0], layers[3]]
    part = listed[1:]
    assert type(part) is type(listed) and list(part) == [layers[0], layers[3]]
    del listed[:2]
    assert list(listed) == [layers[3]] and len(listed) == 1
    for wrong in (lambda: listed.pop(7), lambda: listed.__setitem__(7, layers[0])):
        with pytest.raises(IndexError):
            wrong()
    for wrong, said in ((listed, "contain itself"), (F.relu, "is no module")):
        with pytest.raises(sg.InputError, match=said):
            listed.insert(0, wrong)
    assert list(listed) == [layers[3]]
    popped = layers[1]
    assert popped(sg.ones(1, 2)).shape == (1, 2)


def test_named_parts_of_a_sequence_keep_their_names():
    s = nn.Sequential({"up": nn.Linear(2, 3), "act": nn.ReLU(), "down": nn.Linear(3, 1)})
    assert [name for name, _ in s[:2].named_children()] == ["up", "act"] and s[:2](sg.ones(1, 2)).shape == (1, 3)
    s[1] = nn.Tanh()
    assert [name for name, _ in s.named_children()] == ["up", "act", "down"] and isinstance(s[1], nn.Tanh)


def test_dicts_of_modules_are_changed_too():
    heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 2)})
    heads["a"] = a = nn.Linear(2, 3)
    heads.update({"c": nn.ReLU()})
    assert list(heads) == ["a", "b", "c"] and heads["a"] is a and heads.pop("a") is a and list(heads) == ["b", "c"]
    del heads["b"]
    assert list(heads) == ["c"] and names(heads) == []
    with pytest.raises(KeyError, match="'c'"):
        heads.pop("a")


# --- forwards --------------------------------------------------------------------------------------------------------


def test_a_forward_that_a_class_of_the_library_is_given_runs():
    layer, x = nn.Linear(2, 2), sg.ones(1, 2)
    model, before = nn.Sequential(layer), nn.Linear.forward
    y = model(x).tolist()
    try:
        nn.Linear.forward = lambda self, x: before(self, x) * 0
        assert layer(x).tolist() == model(x).tolist() == [[0, 0]]
    finally:
        nn.Linear.forward = before
    assert layer(x).tolist() == model(x).tolist() == y


def test_a_forward_of_the_librarys_is_not_replaced_in_silence():
    layer = nn.Linear(2, 2)
    with pytest.raises(sg.InputError, match="derive"):
        layer.forward = lambda x: x

    class Scaled(nn.Linear):
        def forward(self, x, scale, *, shift=0.):
            return super().forward(x) * scale + shift

    class Mean(nn.MSELoss):
        def forward(self, x, target):
            return super().forward(x, target)

    scaled = Scaled(2, 2)
    assert scaled(sg.ones(1, 2), 0., shift=3.).tolist() == [[3, 3]]
    assert Mean()(sg.ones(2), sg.zeros(2)).item() == 1
