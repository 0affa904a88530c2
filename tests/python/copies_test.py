"""copy.copy, copy.deepcopy and pickle of tensors and modules."""

import copy
import pickle

import pytest
import shardgrad as sg
from shardgrad import nn, optim

F = nn.functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 6, activation="relu")
        self.norm = nn.BatchNorm1d(6)
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Dropout(0.25)])
        self.scale = nn.Parameter(sg.tensor([1., 2., 3., 4., 5., 6.]))
        self.large = self.param("large", (6, 2), nn.init.normal())
        self.register_buffer("seen", sg.zeros(1, dtype=sg.int64))
        self.words = ["any", {"thing": 1}]
        self.favourites = [self.scale]

    def forward(self, x):
        self.seen += 1
        x = self.norm(self.up(x))
        for block in self.blocks:
            x = block(x)
        return (x * self.scale) @ self.large


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 3, init=nn.init.normal())
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.table(ids))


class Watched(nn.Module):
    """Hooks of its own functions, whose handles it keeps."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.calls = []
        self.before = self.layer.register_forward_pre_hook(self.count)
        self.layer.register_forward_hook(twice)

    def count(self, module, tensors):
        self.calls.append(module is self.layer)

    def forward(self, x):
        return self.layer(x)


def twice(module, tensors):
    return [t * 2 for t in tensors]


def by_pickle(thing):
    found = [pickle.loads(pickle.dumps(thing, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    return found[-1]


both = pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle])


def names_of(module):
    return [name for name, _ in module.named_parameters()]


def values(module):
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


# --- tensors ---------------------------------------------------------------------------------------------------------


@both
def test_a_leaf_is_copied_with_its_values_dtype_and_flag(copied):
    for x in sg.tensor([1., 2.]), sg.ones(2, 3, dtype=sg.bfloat16, requires_grad=True), sg.arange(3), nn.Parameter(sg.ones(2)):
        y = copied(x)
        assert type(y) is type(x) and y.dtype == x.dtype and y.requires_grad == x.requires_grad
        assert y.tolist() == x.tolist() and y.data_ptr() != x.data_ptr()


def test_a_deep_copy_has_the_gradient_too():
    x = sg.tensor([1., 2.], requires_grad=True)
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [2, 4]
    y.grad += 1
    assert x.grad.tolist() == [2, 4]


def test_a_computed_tensor_is_not_copied_deeply():
    y = sg.ones(2, requires_grad=True) * 2
    with pytest.raises(sg.InputError, match=r"x.detach\(\).clone\(\)"):
        copy.deepcopy(y)
    assert by_pickle(y).tolist() == [2, 2]


def test_a_shallow_copy_is_another_tensor_on_the_same_memory():
    x = sg.tensor([1., 2.], requires_grad=True)
    y = copy.copy(x)
    y.sum().backward()
    assert y is not x and y.requires_grad and x.grad is None and y.grad is not None and y.data_ptr() == x.data_ptr()


def test_one_tensor_in_two_places_stays_one():
    x = sg.ones(2)
    for handles in [x, x], [x, x.contiguous()]:
        a, b = copy.deepcopy(handles)
        assert a.same_as(b)


# --- modules ---------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("called", [False, True])
def test_a_copy_is_equal_and_independent(copied, called):
    net = Net()
    net.blocks[0].requires_grad_(False)
    if called:
        net(sg.randn(8, 4)).sum().backward()
    net.norm.eval()
    other = copied(net)
    assert type(other) is Net and repr(other) == repr(net) and values(other) == values(net)
    assert [p.requires_grad for p in other.parameters()] == [p.requires_grad for p in net.parameters()]
    assert [m.training for m in other.modules()] == [m.training for m in net.modules()]
    assert other.words == net.words and other.words is not net.words and other.favourites[0] is other.scale
    before, x = values(net), sg.randn(8, 4)
    assert other.eval()(x).tolist() == net.eval()(x).tolist()
    optimizer = optim.SGD(other.train().parameters(), lr=0.1)
    other(x).square().sum().backward()
    optimizer.step()
    after = values(net)
    assert other.seen.item() == net.seen.item() + 1 and {**before, "seen": 0} == {**after, "seen": 0}
    assert all(other.state_dict()[name].tolist() != before[name] for name in ("scale", "large", "up.weight", "norm.running_mean"))


def test_a_deep_copy_has_the_gradients():
    net = Net()
    net(sg.randn(8, 4)).sum().backward()
    other = copy.deepcopy(net)
    assert [p.grad.tolist() for p in other.parameters()] == [p.grad.tolist() for p in net.parameters()]


@both
def test_tied_parameters_stay_tied(copied):
    model = Tied()
    other = copied(model)
    assert [name for name, _ in other.named_parameters()] == ["table.weight"] and other.head.weight is other.table.weight
    ids = sg.tensor([1, 2])
    assert other(ids).tolist() == model(ids).tolist()
    other(ids).sum().backward()
    optim.SGD(other.parameters(), lr=1.).step()
    assert other.head.weight.tolist() == other.table.weight.tolist() != model.table.weight.tolist()
    table, head = copied([model.table, model.head])
    assert table.weight is head.weight


@both
def test_hooks_are_copied_and_work_on_the_copy(copied):
    model = Watched()
    x = sg.ones(1, 2)
    model(x)
    other = copied(model)
    assert other(x).tolist() == model(x).tolist() == (F.linear(x, other.layer.weight, other.layer.bias) * 2).tolist()
    assert model.calls == other.calls == [True, True] and model.calls is not other.calls
    other.before.remove()
    other(x), model(x)
    assert len(other.calls) == 2 and len(model.calls) == 3


@both
def test_layers_of_all_kinds_are_copied(copied):
    images, lines, rows = sg.randn(2, 4, 6, 6), sg.randn(2, 4, 9), sg.randn(3, 8)
    ids = sg.tensor([1, 2])
    for layer, x in [(nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, bias=False), images), (nn.Conv1d(4, 2, 3), lines),
                     (nn.MaxPool2d(2, ceil_mode=True), images), (nn.AvgPool2d(3, 2, 1), images),
                     (nn.AdaptiveAvgPool2d((2, None)), images), (nn.BatchNorm2d(4, momentum=0.5), images),
                     (nn.GroupNorm(2, 4), images), (nn.LayerNorm(8, eps=0.5), rows), (nn.RMSNorm((8,)), rows),
                     (nn.GELU("tanh"), rows), (nn.LeakyReLU(0.5), rows), (nn.ELU(alpha=2.), rows),
                     (nn.Embedding(3, 4), ids), (nn.Sequential(nn.Linear(8, 2), nn.Tanh(), nn.Flatten()), rows)]:
        assert repr(copied(layer)) == repr(layer) and copied(layer)(x).tolist() == layer(x).tolist()
    lstm = nn.LSTM(8, 5, num_layers=2, bidirectional=True)
    assert str(copied(lstm)(rows[None])) == str(lstm(rows[None]))
    loss = nn.CrossEntropyLoss(weight=sg.rand(8), label_smoothing=0.25)
    labels = sg.tensor([1, 2, 7])
    assert copied(loss)(rows, labels).item() == loss(rows, labels).item()
    assert copied(nn.Linear(2, 2).to(sg.float64)).weight.dtype == sg.float64


class Doubled(nn.Linear):
    """Made otherwise than a Linear is."""

    def __init__(self, width, word):
        super().__init__(width, width)
        self.word = word

    def forward(self, x):
        return super().forward(x) * 2


@both
def test_a_class_derived_from_a_layer_is_copied_without_its_init(copied):
    layer = Doubled(3, "word")
    other = copied(layer)
    x = sg.ones(1, 3)
    assert type(other) is Doubled and other.word == "word" and other(x).tolist() == layer(x).tolist()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return F.gelu(F.gelu(x))


@both
def test_a_copy_recomputes_where_the_model_does(copied):
    model = nn.Sequential(Counting(), Counting())
    nn.recompute(model[0])
    other = copied(model)
    other(sg.ones(2, 3, requires_grad=True)).sum().backward()
    assert [m.calls for m in other] == [2, 1] and [m.calls for m in model] == [0, 0]


def test_a_teacher_follows_its_student():
    sg.manual_seed(3)
    student = Net()
    teacher = copy.deepcopy(student)
    teacher.requires_grad_(False)
    teacher.eval()
    optimizer = optim.AdamW(student.parameters(), lr=1e-2)
    expected = teacher.scale.clone()
    for step in range(3):
        F.mse_loss(student(sg.randn(8, 4)), sg.zeros(8, 2)).backward()
        optimizer.step()
        optimizer.zero_grad()
        with sg.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters()):
                slow.mul_(0.5).add_(fast * 0.5)
        expected = expected * 0.5 + student.scale.detach() * 0.5
    assert (teacher.scale - expected).abs().max().item() < 1e-6 and not teacher(sg.ones(2, 4)).requires_grad


def test_a_shallow_copy_of_a_module_has_the_same_parts():
    net = Net()
    other = copy.copy(net)
    assert other is not net and other.up is net.up and other.scale is net.scale and other.words is net.words
    assert [n for n, _ in other.named_parameters()] == [n for n, _ in net.named_parameters()]
    other.note = 1
    assert not hasattr(net, "note") and values(other) == values(net)


def test_a_shallow_copy_of_a_layer_has_the_same_parameters_and_buffers():
    net = Net()
    for layer, x in [(net.up, sg.ones(1, 4)), (net.norm.eval(), sg.ones(2, 6)), (nn.LSTM(2, 3), sg.ones(2, 1, 2)), (Doubled(3, "word"), sg.ones(1, 3))]:
        other = copy.copy(layer)
        assert type(other) is type(layer) and other is not layer and other.training == layer.training
        assert [p is q for p, q in zip(other.parameters(), layer.parameters(), strict=True)] == [True] * len(layer.parameters())
        assert str(other(x)) == str(layer(x))
        with sg.no_grad():
            for p in layer.parameters():
                p.mul_(2)
        assert str(other(x)) == str(layer(x))
    other = copy.copy(net.norm.train())
    other(sg.randn(4, 6))
    assert net.norm.running_mean.tolist() == other.running_mean.tolist() != [0.] * 6
    other.weight = nn.Parameter(sg.zeros(6))
    assert net.norm.weight.tolist() == [2] * 6 and copy.copy(Doubled(3, "word")).word == "word"
    assert sorted(names_of(net)) == sorted(names_of(copy.deepcopy(net)))


class Kept(nn.Module):
    """Of which the cache is not kept, and a field is new."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.scale = nn.Parameter(sg.ones(2))
        self.register_buffer("seen", sg.zeros(1))
        self.hooked = self.layer.register_forward_hook(twice)
        self.cache = lambda: None
        self.words = ["a"]

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["cache"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.cache = "made again"

    def forward(self, x):
        self.seen += 1
        return self.layer(x) * self.scale


class Super(Kept):
    """The same by what Module has."""

    def __getstate__(self):
        state = super(Kept, self).__getstate__()
        assert "scale" not in state and "layer" not in state
        return {name: value for name, value in state.items() if name != "cache"}

    def __setstate__(self, state):
        super(Kept, self).__setstate__(state)
        self.cache = "made again"


class Doubling(nn.Linear):
    def __getstate__(self):
        return {"times": 2}

    def forward(self, x):
        return super().forward(x) * self.times


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, by_pickle])
@pytest.mark.parametrize("kind", [Kept, Super])
def test_a_class_says_itself_which_attributes_are_kept(copied, kind):
    net = kind()
    x = sg.ones(1, 2)
    net(x)
    other = copied(net)
    assert type(other) is kind and other.cache == "made again" and callable(net.cache) and other.words == ["a"]
    assert names_of(other) == names_of(net) and values(other) == values(net)
    shares = copied is copy.copy
    assert (other.scale is net.scale) == (other.layer is net.layer) == (other.words is net.words) == shares
    assert other(x).tolist() == net(x).tolist()
    if not shares:
        other.hooked.remove()
        assert (other(x) * 2).tolist() == net(x).tolist()
    other.extra = nn.Linear(1, 1)
    other.scale = nn.Parameter(sg.zeros(2))
    assert net.scale.tolist() == [1, 1] and other.parameters()[0] is other.scale and not hasattr(net, "extra")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, by_pickle])
def test_a_class_derived_from_a_layer_says_so_too(copied):
    layer, x = Doubling(2, 2), sg.ones(1, 2)
    assert copied(layer)(x).tolist() == (F.linear(x, layer.weight, layer.bias) * 2).tolist()


class Rebuilt(nn.Module):
    """Which says itself how it is made again."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.layer = nn.Linear(width, width)

    def __reduce__(self):
        return Rebuilt, (self.width,)


@both
def test_a_class_may_have_a_reduce_of_its_own(copied):
    assert copied(Rebuilt(3)).layer.weight.shape == (3, 3)


def test_a_state_that_is_no_dict_needs_a_setstate():
    class Odd(nn.Module):
        def __getstate__(self):
            return 3

    class Nothing(nn.Module):
        def __getstate__(self):
            return None

    with pytest.raises(sg.InputError, match="is a dict of its attributes, not 3.* its own __setstate__"):
        copy.deepcopy(Odd())
    assert isinstance(copy.deepcopy(Nothing()), Nothing)


def test_a_sharded_module_is_refused_with_the_remedy(ranks):
    ended = ranks(2, """
        import copy, pickle
        import shardgrad as sg
        from shardgrad import nn
        sg.dist.init()
        for strategy in "ddp", "zero3":
            model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            sharded = sg.fully_shard(model, strategy=strategy)
            for wrong in copy.deepcopy, pickle.dumps:
                try:
                    wrong(model)
                except sg.InputError as error:
                    assert "'0.weight' of this Sequential is sharded" in str(error), error
                    assert "sharded.full_state_dict(rank0_only=False)" in str(error), error
                else:
                    raise AssertionError("copied")
            other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            other.load_state_dict(sharded.full_state_dict(rank0_only=False))
        print("right")
    """)
    assert ended.out.count("right") == 2, ended


def test_a_batch_norm_of_all_ranks_is_refused(alone):
    alone("""
        import copy
        import shardgrad as sg
        from shardgrad import nn
        sg.dist.init()
        model = nn.Sequential(nn.BatchNorm1d(2))
        copy.deepcopy(model)
        sg.fsdp.convert_sync_batchnorm(model)
        try:
            copy.deepcopy(model)
        except sg.InputError as error:
            assert "'0' of this Sequential" in str(error) and "copy before convert_sync_batchnorm" in str(error), error
        else:
            raise AssertionError("copied")
    """)


# --- parameters ------------------------------------------------------------------------------------------------------


def test_a_parameter_is_a_leaf_that_becomes_its_modules():
    given = sg.tensor([1., 2.])
    p = nn.Parameter(given)
    assert isinstance(p, sg.Tensor) and p.requires_grad and p.is_leaf and p.data_ptr() != given.data_ptr()
    (p * 3).sum().backward()
    assert p.grad.tolist() == [3, 3] and not nn.Parameter(given, requires_grad=False).requires_grad

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = p
            self.b = p

    module = Scale()
    assert module.a is p and module.b is p and [name for name, _ in module.named_parameters()] == ["a"]
    assert module.parameters()[0] is p and isinstance(nn.Linear(2, 2).weight, nn.Parameter)
    optim.SGD([p], lr=1.).step()
    assert module.a.tolist() == [-2, -1] and p.name == "a"


def test_pickles_of_before_buffers_could_be_left_out_are_read():
    net = Net()
    net.seen += 7
    make, made_by, (parts, attributes), _, _, restore = net.__reduce__()
    before = (*parts[:3], [buffer[:2] for buffer in parts[3]], *parts[4:])
    other = make(*made_by)
    restore(other, (before, attributes))
    assert other.seen.tolist() == [7] and "seen" in other.state_dict()
