"""What becomes a part of a module, and by which name: parameters and modules, once each, or a refusal that leaves nothing behind."""

import pytest
import shardgrad as sg
from shardgrad import nn


def test_a_parameter_is_one_object():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    assert model[0].weight is model[0].weight is model.parameters()[0] is model.named_parameters()[0][1]
    head = set(map(id, model[1].parameters()))
    assert [p.shape for p in model.parameters() if id(p) not in head] == [(2, 2), (2,)]
    assert model[1].bias in set(model.parameters())
    model.to(sg.float64)
    assert model.parameters()[0] is model[0].weight and model[0].weight.dtype == sg.float64

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(3, 2)
            self.head = nn.Linear(2, 3, bias=False)
            self.head.weight = self.table.weight
            self.scale = nn.Parameter(sg.ones(1))
            self.large = self.param("large", (2, 2), nn.init.zeros())

    tied = Tied()
    assert tied.head.weight is tied.table.weight
    assert [p is q for p, q in zip(tied.parameters(), (tied.scale, tied.large, tied.table.weight))] == [True] * 3


def test_one_parameter_under_two_names_has_the_first():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            p = nn.Parameter(sg.ones(1))
            self.a = p
            self.b = p

    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["a"] and net.b is net.a


def test_a_refused_parameter_registers_nothing():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            with pytest.raises(sg.InputError, match="float32 values"):
                self.w = nn.Parameter(sg.zeros(2, dtype=sg.bfloat16))
            self.w = nn.Parameter(sg.ones(2))

    assert [name for name, _ in Scale().named_parameters()] == ["w"]


def test_names_that_mean_something_else_are_no_parameters():
    module = nn.Sequential(nn.ReLU())
    for name in "forward", "", "a.b", "state_dict":
        with pytest.raises(sg.InputError, match="is no name for a parameter"):
            module.register_parameter(name, None)
    with pytest.raises(sg.InputError, match="has no module ''"):
        module.get_submodule("0.")


def test_names_of_modules_own_functions_are_refused_whole():
    heads = nn.ModuleDict()
    for name in ("train", "parameters", "training", "full_name", "__class__"):
        with pytest.raises(sg.InputError, match="every module has"):
            heads[name] = nn.Linear(2, 2)
    assert heads.named_children() == [] and heads.parameters() == []


@pytest.mark.parametrize("held", [lambda m: [[m]], lambda m: {"a": [m]}, lambda m: {m}, lambda m: (m,)])
def test_modules_are_not_hidden_deeper_either(held):
    model = nn.Sequential(nn.ReLU())
    with pytest.raises(sg.InputError, match="ModuleList"):
        model.kept = held(nn.Linear(2, 2))


def test_what_contains_itself_is_an_error():
    endless = []
    endless.append(endless)
    with pytest.raises((RecursionError, sg.InputError)):
        sg.tensor(endless)
    model = nn.Sequential(nn.Linear(2, 2))
    model.register_forward_hook(lambda module, tensors: None)
    with pytest.raises(RecursionError):
        model(endless)
    a, b, c = nn.Sequential(nn.ReLU()), nn.Sequential(), nn.Sequential()
    a.append(b)
    c.append(b)
    with pytest.raises(sg.InputError, match="contain itself"):
        b.append(c)
    with pytest.raises(sg.InputError, match="contain itself"):
        b.append(a)
    assert "Sequential" in repr(a)


def test_a_part_that_stays_in_evaluation_does():
    class Frozen(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(False)

    model = nn.Sequential(nn.Linear(2, 2), Frozen(2))
    model.train()
    assert model.training and not model[1].training and model[0].training
