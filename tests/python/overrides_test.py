"""What a class of modules may have of its own: train(), reset_parameters, __getattr__; and what is refused."""

import copy
import gc
import pickle
import weakref

import pytest
import shardgrad as sg
from shardgrad import nn


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.modes = nn.BatchNorm1d(2), []

    def train(self, mode=True):
        self.modes.append(mode)
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.norm(x)


def test_eval_goes_by_the_modules_own_train():
    module = Frozen()
    assert module.eval() is module and module.train() is module and module.modes == [False, True]
    assert module.training and not module.norm.training
    outer = nn.Sequential(Frozen())
    outer.eval()
    assert outer[0].modes == [False]


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 2), lambda: nn.Sequential(nn.Linear(2, 2))])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_that_mentions_its_model_does_not_keep_it(make, register):
    model, called = make(), []
    getattr(model, register)(lambda *_, m=model: called.append(m is not None))
    gone = weakref.ref(model)
    model(sg.ones(1, 2))
    del model
    gc.collect()
    assert gone() is None and called == [True]


class Threes(nn.Linear):
    def __init__(self, *sizes):
        self.times = 0
        super().__init__(*sizes)

    def reset_parameters(self):
        self.times += 1
        nn.init.constant_(self.weight, 3.)
        nn.init.zeros_(self.bias)


def test_a_layers_own_reset_parameters_gives_the_first_values():
    layer = Threes(2, 1)
    assert layer.times == 1 and layer(sg.ones(1, 2)).tolist() == [[6.]]
    with sg.no_grad():
        layer.weight.fill_(1.)
    for made in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert made.times == 1 and made(sg.ones(1, 2)).tolist() == [[2.]]

    class Filled(nn.Linear):
        def reset_parameters(self):
            with sg.no_grad():
                self.weight.fill_(3)
                self.bias.zero_()

    assert Filled(2, 1)(sg.ones(1, 2)).tolist() == [[6.]]

    class Fails(nn.Linear):
        def reset_parameters(self):
            raise KeyError("no values")

    with pytest.raises(KeyError, match="no values"):
        Fails(2, 1)


def test_extra_state_is_refused_by_name():
    class Counts(nn.Linear):
        def get_extra_state(self):
            return {"seen": 3}

    model = nn.Sequential(Counts(2, 1))
    for call in (model.state_dict, lambda: model.load_state_dict({})):
        with pytest.raises(sg.InputError, match="get_extra_state.* of a Counts .*register_buffer"):
            call()


def test_a_class_asks_super_for_an_attribute():
    class Forwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("layer"), name)

    module = Forwards()
    assert module.weight is module.layer.weight and not hasattr(module, "nope")
    for other in (nn.Linear(1, 1), nn.Sequential()):
        with pytest.raises(AttributeError, match=f"'{type(other).__name__}' object has no attribute 'nope'"):
            other.nope
    assert not hasattr(nn.Module.__new__(nn.Module), "nope"), "also before its __init__"
