"""Functions that a program gives, hooks and `wrap`: what they may give and change, and what they keep alive."""

import gc
import weakref

import pytest
import shardgrad as sg
from shardgrad import nn


def test_hooks_can_be_removed():
    model, seen = nn.Sequential(nn.Linear(2, 2)), []
    handle = model.register_forward_hook(lambda module, tensors: seen.append("forward"))
    x = sg.ones(1, 2, requires_grad=True)
    of_tensor = x.register_hook(lambda grad: seen.append("grad"))
    model(x).sum().backward()
    handle.remove()
    handle.remove()
    of_tensor.remove()
    model(x).sum().backward()
    assert seen == ["forward", "grad"]


def test_callbacks_that_give_something_else_are_told():
    x = sg.ones(1, requires_grad=True)
    x.register_hook(lambda grad: "no")
    with pytest.raises(sg.InputError, match="a tensor's hook gave 'no'"):
        (x * 2).backward()
    with pytest.raises(sg.InputError, match="wrap gave 'yes'"):
        sg.fully_shard(nn.Sequential(nn.Linear(2, 2)), wrap=lambda module, name, numel: "yes")

    class Forgot(nn.Module):
        def __init__(self):
            pass

    with pytest.raises(sg.InputError, match="super"):
        nn.Sequential(Forgot())


def test_a_hook_that_changes_the_lists_of_a_call_is_refused():
    class Same(nn.Module):
        def forward(self, xs):
            self.given = xs
            return xs

    for register in Same.register_forward_pre_hook, Same.register_forward_hook:
        for change in (lambda xs: xs.extend(sg.ones(2) for _ in range(50)), lambda xs: xs.clear(), lambda xs: xs.__setitem__(0, None)):
            model, xs = Same(), [sg.ones(2), sg.ones(2)]
            register(model, lambda module, tensors: change(getattr(module, "given", xs)))
            with pytest.raises(sg.InputError, match="has got more or fewer of them during the call; a hook gives other tensors as its result"):
                model(xs)


def test_a_hook_of_a_parameter_keeps_its_model_until_it_is_removed():
    model = nn.Sequential(nn.Linear(2, 2))
    handle = model[0].weight.register_hook(lambda grad, model=model: grad * len(model))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is not None
    handle.remove()
    gc.collect()
    assert gone() is None


def test_a_wrap_function_does_not_keep_its_model():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    gone = weakref.ref(model)
    sg.fully_shard(model, wrap=lambda module, name, numel: module is not model)
    del model
    gc.collect()
    assert gone() is None
