"""Lists and dicts in a module's call: forward's own are the caller's, and results keep their classes."""

from collections import OrderedDict, defaultdict, namedtuple

import pytest
import shardgrad as sg
from shardgrad import nn

Pair = namedtuple("Pair", "a b")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2, bias=False)

    def forward(self, x, aux):
        y = self.layer(x)
        aux.append((y * y).mean())
        return y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        aux = []
        for block in self.blocks:
            x = block(x, aux)
        return x.sum() * 0 + sum(aux)


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3"])
def test_losses_in_an_argument_train_the_same_under_every_strategy(strategy):
    def trained(prepare):
        model = Net()
        model.init_parameters("*", nn.init.constant(1.))
        prepare(model)
        optimizer = sg.optim.SGD(model.parameters(), lr=1 / 64)
        losses = []
        for _ in range(3):
            loss = model(sg.ones(1, 2))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    alone = trained(lambda model: None)
    assert alone[0] == 4 + 16 > alone[1] > alone[2]
    assert trained(lambda model: sg.fully_shard(model, strategy=strategy, wrap=lambda m, *_: isinstance(m, Block))) == alone


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x, cache):
        cache["x"] = x
        return self.layer(x)


def hooked(module):
    module.register_forward_hook(lambda *_: None)
    module.register_forward_pre_hook(lambda *_: None)
    return module


@pytest.mark.parametrize("prepare", [lambda m: None, hooked, nn.Sequential, lambda m: sg.fully_shard(m, strategy="zero3")])
def test_a_dict_that_forward_writes_into_is_the_callers(prepare):
    module = Remembers()
    holds = prepare(module)
    for _ in range(2):
        cache, x = {}, sg.ones(1)
        module(x, cache)
        assert cache["x"] is x
    del holds


def test_a_recomputed_forward_writes_into_an_argument_once():
    block = Block()
    nn.recompute(block)
    aux = []
    block(sg.ones(1, 2), aux).sum().backward()
    assert len(aux) == 1


class Given(nn.Module):
    def forward(self, xs, *others):
        self.seen, self.first = xs, xs[0]
        xs.append(xs[0] + 1)
        return xs[0]


class Listed(list):
    pass


@pytest.mark.parametrize("others", [lambda xs: (), lambda xs: (xs, {"a": [xs]})])
def test_other_tensors_of_a_pre_hook_are_in_the_callers_list_during_the_call_alone(others):
    module = Given()
    module.register_forward_pre_hook(lambda module, tensors: [x * 2 for x in tensors])
    x = sg.ones(1)
    xs = Listed([x])
    assert module(xs, *others(xs)).tolist() == module.first.tolist() == [2.]
    assert len(xs) == 2 and xs[0] is x and xs[1].tolist() == [3.] and module.seen is xs


def test_the_callers_list_has_its_tensors_after_a_failure():
    class Fails(nn.Module):
        def forward(self, xs):
            xs.insert(0, 3)
            raise KeyError("no")

    module, x = Fails(), sg.ones(1)
    module.register_forward_pre_hook(lambda module, tensors: [x * 2 for x in tensors])
    xs = [x]
    with pytest.raises(KeyError):
        module(xs)
    assert xs[0] == 3 and xs[1] is x


class Gives(nn.Module):
    def __init__(self, given):
        super().__init__()
        object.__setattr__(self, "given", given)

    def forward(self, *_):
        return self.given


class Numbers(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@pytest.mark.parametrize("of", [lambda x: Numbers(a=x), lambda x: OrderedDict(a=x), lambda x: defaultdict(list, a=x), lambda x: {"a": x},
                                lambda x: Listed([x]), lambda x: [x], lambda x: Pair(x, 1), lambda x: (x, [x])])
def test_results_are_of_their_classes(of):
    x = sg.ones(1)
    given = of(x)
    same, doubled = Gives(given), Gives(given)
    hooked(same)
    doubled.register_forward_hook(lambda module, tensors: [x * 2 for x in tensors])
    for _ in range(2):
        assert same() is given
        result = doubled()
        assert type(result) is type(given) and result is not given
        values, before = (list(r.values()) if isinstance(r, dict) else list(r) for r in (result, given))
        assert values[0].tolist() == [2.] and before[0] is x


def test_a_list_that_is_argument_and_result_has_what_a_pre_hook_gave():
    class Same(nn.Module):
        def forward(self, xs):
            return xs

    module, x = Same(), sg.ones(1)
    module.register_forward_pre_hook(lambda module, tensors: [x * 2 for x in tensors])
    xs = [x]
    assert module(xs)[0].tolist() == [2.] and xs[0] is x
