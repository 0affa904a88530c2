"""Modules: written in Python and the library's, their names, state, hooks, containers, recompute, and what is refused."""

import copy
import gc
import pickle
import threading
import weakref

import pytest
import shardgrad as sg
from shardgrad import nn

F = nn.functional


class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.up = nn.Linear(4, width)
        self.norm = nn.LayerNorm(width)
        self.down = nn.Linear(width, 2, bias=False)
        self.scale = nn.Parameter(sg.tensor([1., 2.]))
        self.register_buffer("seen", sg.zeros(1))

    def forward(self, x, *, twice=False):
        y = self.down(self.norm(F.relu(self.up(x)))) * self.scale
        return (y, y) if twice else y


def test_names_shapes_and_print():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["scale", "up.weight", "up.bias", "norm.weight", "norm.bias", "down.weight"]
    assert [name for name, _ in net.named_modules()] == ["", "up", "norm", "down"]
    assert [type(m).__name__ for m in net.children()] == ["Linear", "LayerNorm", "Linear"]
    assert repr(net) == """Net(scale [2]
  (up): Linear(weight [6, 4], bias [6])
  (norm): LayerNorm(weight [6], bias [6])
  (down): Linear(weight [2, 6])
) with 56 parameters"""
    assert net.down.bias is None and isinstance(net.up, nn.Module) and isinstance(net, nn.Module)
    assert net.named_modules()[0][1] is net and net.children()[0] is net.up


def test_walks_are_lists_and_iterators():
    net = Net()
    assert next(net.parameters()) is net.scale and next(net.modules()) is net and next(net.children()) is net.up
    assert next(net.buffers()) is net.seen and next(net.named_buffers())[0] == "seen"
    assert next(net.named_parameters())[0] == "scale" and next(net.named_modules())[0] == "" and next(net.named_children())[0] == "up"
    walk = net.parameters()
    assert len(walk) == 6 and len(list(walk)) == len([p for p in walk]) == 6 and walk[0] is net.scale
    assert next(walk) is net.scale and next(walk) is net.up.weight and list(walk)[0] is net.up.bias and list(walk) == []
    with pytest.raises(StopIteration):
        next(walk)
    assert sum(p.numel() for p in net.parameters()) == 56 and list(nn.ReLU().parameters()) == []
    assert sg.optim.SGD(net.parameters(), lr=0.5).param_groups[0]["params"][0] is net.scale
    assert next(net.parameters()).device == "cpu"


def test_the_first_call_fills_the_parameters_whoever_is_called_first():
    sg.manual_seed(5)
    whole, part = Net(), Net()
    x = sg.ones(3, 4)
    whole(x)
    part.up(x)
    assert whole.up.weight.tolist() == part.up.weight.tolist()
    assert part.down.weight.tolist() == whole.down.weight.tolist()
    assert whole.scale.tolist() == [1, 2]


def test_state_goes_out_and_in():
    a, b = Net(), Net()
    sg.manual_seed(9)
    c = Net()
    state = c.state_dict()
    assert set(state) == {name for name, _ in c.named_parameters()} | {"seen"}
    a.load_state_dict(state)
    assert a.up.weight.tolist() == c.up.weight.tolist() and a.seen.tolist() == [0]
    with pytest.raises(sg.InputError, match="up.weight"):
        b.load_state_dict({})
    assert b.up.weight.tolist() != c.up.weight.tolist()


def test_a_state_is_in_the_order_of_registration():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), Net())
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "2.scale", "2.seen", "2.up.weight"]
    assert list(net.state_dict())[:9] == names and len(net.state_dict()) == 13
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert list(tied.state_dict()) == ["0.weight", "0.bias", "1.bias"]


def test_parts_by_name():
    net = nn.Sequential(Net(), nn.ReLU())
    assert net.get_submodule("0.up") is net[0].up and net.get_submodule("") is net and net.get_submodule("1") is net[1]
    for wrong in "0.left", "2", "0..up", "up":
        with pytest.raises(sg.InputError, match=f"get_submodule: there is no '{wrong}'"):
            net.get_submodule(wrong)
    assert [name for name, _ in net[0].named_parameters(recurse=False)] == ["scale"] and net.parameters(recurse=False) == []
    assert [b.tolist() for b in net[0].buffers(recurse=False)] == [[0]] and net.named_buffers(recurse=False) == []
    assert net[0].parameters(False)[0] is net[0].scale
    assert (net[0].up.in_features, net[0].up.out_features) == (4, 6)


def test_parameters_are_registered_by_name():
    module = nn.Sequential()
    p = nn.Parameter(sg.ones(2))
    module.register_parameter("p", p)
    module.register_parameter("q", None)
    assert module.p is p and module.q is None and [name for name, _ in module.named_parameters()] == ["p"]
    with pytest.raises(sg.InputError, match="register_parameter: 'r' is no nn.Parameter"):
        module.register_parameter("r", sg.ones(2))


def test_what_is_shared_is_applied_to_once():
    shared, seen = nn.ReLU(), []
    nn.Sequential(nn.Sequential(shared), shared, nn.Tanh()).apply(lambda module: seen.append(module.type_name))
    assert seen == ["ReLU", "Sequential", "Tanh", "Sequential"]


def test_a_state_that_is_not_strict_gives_the_other_names():
    net, head = Net(), sg.ones(2, 6)
    net.materialize()
    before = net.up.weight.tolist()
    missing, unexpected = net.load_state_dict({"down.weight": head, "old.weight": head}, strict=False)
    assert missing == ["norm.bias", "norm.weight", "scale", "seen", "up.bias", "up.weight"] and unexpected == ["old.weight"]
    assert net.down.weight.tolist() == head.tolist() and net.up.weight.tolist() == before
    found = net.load_state_dict(net.state_dict())
    assert found.missing_keys == found.unexpected_keys == []
    for strict in True, False:
        with pytest.raises(sg.InputError, match="'down.weight' is f32"):
            net.load_state_dict(net.state_dict() | {"down.weight": sg.ones(3)}, strict=strict)
    with pytest.raises(sg.InputError, match="unknown: 'old.weight'"):
        net.load_state_dict(net.state_dict() | {"old.weight": head})


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mean", sg.tensor([1.]))
        self.register_buffer("mask", sg.tensor([0., 1.]), persistent=False)


def test_a_buffer_that_is_not_persistent_moves_and_is_not_saved():
    model = Cached()
    assert [name for name, _ in model.named_buffers()] == ["mean", "mask"]
    assert set(model.state_dict()) == {"layer.weight", "layer.bias", "mean"}
    model.load_state_dict(model.state_dict())
    assert model.mask.tolist() == [0, 1] and model.to(sg.float64).mask.dtype == sg.float64
    for copied in copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model)):
        assert copied.mask.tolist() == [0, 1] and "mask" not in copied.state_dict()
    with pytest.raises(sg.InputError, match="unknown: 'mask'"):
        model.load_state_dict(model.state_dict() | {"mask": model.mask})
    with pytest.raises(sg.InputError, match="every module has"):
        model.register_buffer("train", sg.ones(1))


@pytest.mark.parametrize("convert", [lambda m: m.half(), lambda m: m.bfloat16(), lambda m: m.to(sg.bfloat16)])
def test_buffers_are_converted_too(convert):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)
            self.register_buffer("scale", sg.tensor([0.5, 2.]))
            self.register_buffer("count", sg.tensor([3]))

        def forward(self, x):
            return self.norm(self.layer(x)) * self.scale

    model = convert(Scaled())
    dtype = model.layer.weight.dtype
    assert model(sg.ones(3, 2, dtype=dtype)).dtype == dtype == model.scale.dtype and model.scale.tolist() == [0.5, 2]
    assert model.count.dtype == sg.int64 and model.norm.running_mean.dtype == copy.deepcopy(model).norm.running_var.dtype == sg.float32


def test_a_buffer_that_gets_no_values_is_none():
    model = nn.Sequential()
    with pytest.raises(sg.InputError, match="no values"):
        model.register_buffer("mean", sg.zeros(2, device="meta"))
    assert model.named_buffers() == [] and not hasattr(model, "mean")
    model.register_buffer("mean", sg.ones(2))
    assert model.mean.tolist() == [1, 1]
    with pytest.raises(sg.InputError, match="two things named 'mean'|every module has"):
        model.register_buffer("mean", sg.zeros(3))
    assert model.mean.tolist() == [1, 1]


def test_no_thread_sees_a_buffer_without_its_values():
    model, values = nn.Sequential(), sg.ones(1 << 25)
    thread = threading.Thread(target=model.register_buffer, args=("large", values))
    thread.start()
    seen = []
    while not seen:
        seen = [buffer[-1].item() for buffer in model.buffers()]
    thread.join()
    assert seen == [1]


def test_checkpoints_and_whole_states_have_persistent_buffers_alone(tmp_path):
    model = Cached()
    sharded = sg.fully_shard(model)
    optimizer = sg.optim.SGD(model.parameters())
    assert set(sharded.full_state_dict()) == {"layer.weight", "layer.bias", "mean"}
    sharded.load_full_state_dict(sharded.full_state_dict())
    sg.save_checkpoint(tmp_path / "run", model, sharded, optimizer, step=1)
    with sg.no_grad():
        model.mask.fill_(5), model.mean.fill_(5)
    assert sg.load_checkpoint(tmp_path / "run", model, sharded, optimizer)["step"] == 1
    assert model.mask.tolist() == [5, 5] and model.mean.tolist() == [1]


def test_a_checkpoint_that_would_not_stay_is_refused_and_those_before_it_do(tmp_path):
    model = nn.Linear(2, 2)
    sharded = sg.fully_shard(model)
    optimizer = sg.optim.SGD(model.parameters())
    sg.save_checkpoint(tmp_path, model, sharded, optimizer, step=1)
    for wrong, said in ({"step": 2, "keep": 0}, "keep is 0"), ({"step": 2, "keep": -1}, "keep is -1"), ({"step": -5}, "step is -5"):
        with pytest.raises(sg.InputError, match=said):
            sg.save_checkpoint(tmp_path, model, sharded, optimizer, **wrong)
    assert sg.load_checkpoint(tmp_path, model, sharded, optimizer)["step"] == 1


def test_inplace_is_taken_and_computed_out_of_place():
    x = sg.tensor([[-1., 2.]])
    for layer in nn.ReLU(inplace=True), nn.ReLU(True), nn.SiLU(inplace=True), nn.LeakyReLU(0.1, inplace=True), nn.ELU(inplace=True), nn.Dropout(0.5, inplace=True):
        layer(x)
        assert x.tolist() == [[-1, 2]] and type(copy.deepcopy(layer)) is type(layer)
    assert F.relu(x, inplace=True).tolist() == [[0, 2]] and F.silu(x, inplace=True).tolist() == F.silu(x).tolist()
    assert F.leaky_relu(x, 0.5, inplace=True).tolist() == [[-0.5, 2]] and F.elu(x, 1., True).tolist() == F.elu(x).tolist()
    assert F.dropout(x, 0.5, False, inplace=True).tolist() == x.tolist() == [[-1, 2]]
    y = sg.ones(3, requires_grad=True)
    nn.Sequential(nn.ReLU(inplace=True))(y * 2).sum().backward()
    assert y.grad.tolist() == [2, 2, 2]


def test_flatten_takes_its_dimensions():
    x = sg.ones(2, 3, 4, 5)
    assert nn.Flatten()(x).shape == (2, 60) and nn.Flatten(0)(x).shape == (120,) and nn.Flatten(start_dim=1, end_dim=2)(x).shape == (2, 12, 5)
    assert copy.deepcopy(nn.Flatten(1, 2))(x).shape == (2, 12, 5)


def test_values_are_given_in_place_or_to_begin_with():
    sg.manual_seed(1)
    model = nn.Linear(400, 300)
    assert nn.init.normal_(model.weight, std=2.) is model.weight and nn.init.constant_(model.bias, 3.) is model.bias
    model.materialize()
    assert abs(model.weight.std().item() - 2) < 0.02 and model.bias.tolist() == [3.] * 300
    first = nn.init.uniform_(model.weight, -1., 1.).tolist()
    assert -1 <= model.weight.min().item() < -0.9 < 0.9 < model.weight.max().item() < 1 and nn.init.uniform_(model.weight, -1., 1.).tolist() != first
    x = sg.zeros(300, 400)
    assert abs(nn.init.kaiming_normal_(x, mode="fan_out", nonlinearity="relu").std().item() - (2 / 300) ** 0.5) < 1e-3
    assert abs(nn.init.xavier_uniform_(x).max().item() - (6 / 700) ** 0.5) < 1e-3 and nn.init.zeros_(x).abs().max().item() == 0
    for wrong in dict(mode="fan_of"), dict(nonlinearity="cube"):
        with pytest.raises(sg.InputError, match="init: "):
            nn.init.kaiming_uniform_(x, **wrong)


def test_state_through_a_file(tmp_path):
    net = Net()
    sg.save(net.state_dict(), str(tmp_path / "net.safetensors"))
    sg.manual_seed(77)
    other = Net()
    other.load_state_dict(sg.load(str(tmp_path / "net.safetensors")))
    assert other.up.weight.tolist() == net.up.weight.tolist()
    safetensors = pytest.importorskip("safetensors.numpy")
    assert safetensors.load_file(tmp_path / "net.safetensors")["scale"].tolist() == [1, 2]
    with pytest.raises(sg.InputError, match="nothing.here"):
        sg.load("nothing.here")


def test_training_reaches_what_one_expects():
    sg.manual_seed(0)
    net = Net(32)
    optimizer = sg.optim.AdamW(net.parameters(), lr=1e-2)
    x = sg.randn(64, 4, name="x")
    target = sg.stack([x.sum(1), x[:, 0] * 2], 1)
    for _ in range(200):
        loss = F.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.05


def test_hooks_see_and_replace_and_keywords_pass():
    net = Net()
    seen = []
    net.up.register_forward_pre_hook(lambda module, tensors: seen.append((module is net.up, tensors[0].shape)))
    net.register_forward_hook(lambda module, tensors: [t * 0 for t in tensors])
    y, again = net(sg.ones(3, 4), twice=True)
    assert seen == [(True, (3, 4))] and y.tolist() == again.tolist() == [[0, 0]] * 3


def test_forward_gets_what_a_pre_hook_gives():
    net = Net()
    net(sg.zeros(1, 4))
    without = net(sg.ones(3, 4)).tolist()
    handle = net.register_forward_pre_hook(lambda module, tensors: [tensors[0] * 0])
    assert net(sg.ones(3, 4)).tolist() == net(sg.full((3, 4), 5.)).tolist() != without
    handle.remove()
    assert net(sg.ones(3, 4)).tolist() == without


def test_a_class_derived_from_a_layer_is_called_with_its_own_forward():
    class Doubled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Doubled(3, 2)

        def forward(self, x):
            return self.layer(x)

    holder = Holder()
    x = sg.ones(1, 3)
    y = holder(x)
    assert y.tolist() == (F.linear(x, holder.layer.weight, holder.layer.bias) * 2).tolist()


def test_modules_that_no_optimizer_would_see_are_refused():
    class Lists(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2)]

    with pytest.raises(sg.InputError, match="ModuleList"):
        Lists()


def test_forgetting_super_init_is_said():
    class Forgot(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(2, 2)

    with pytest.raises(sg.InputError, match="super"):
        Forgot()


def test_what_cannot_be_a_part_is_refused():
    net = Net()
    with pytest.raises(sg.InputError, match="another nn.Parameter goes, or None"):
        net.scale = nn.Linear(4, 6)
    with pytest.raises(sg.InputError, match="stays one"):
        del net.up
    with pytest.raises(sg.InputError, match="contain itself"):
        net.self = net
    with pytest.raises(sg.InputError, match="derive"):
        net.up.more = nn.Linear(2, 2)
    net.note = "anything else is an attribute"
    del net.note
    with pytest.raises(AttributeError):
        net.nothing


def test_containers():
    s = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
    assert s(sg.ones(5, 3)).shape == (5, 2) and len(s) == 3 and isinstance(s[1], nn.ReLU)
    assert [name for name, _ in s.named_parameters()] == ["0.weight", "0.bias", "2.0.weight", "2.0.bias"]
    blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    assert len(list(blocks)) == 3 and blocks[-1] is list(blocks)[2]
    heads = nn.ModuleDict({"a": nn.Linear(2, 1)})
    heads["b"] = nn.Linear(2, 3)
    assert list(heads) == ["a", "b"] and "b" in heads and heads["b"](sg.ones(1, 2)).shape == (1, 3)
    with pytest.raises(KeyError, match="'a', 'b'"):
        heads["c"]
    with pytest.raises(sg.InputError, match="not a|is no module"):
        nn.Sequential(F.relu)
    with pytest.raises(sg.InputError, match="ModuleList has no forward"):
        blocks(sg.ones(1, 2))


def test_tied_weights_are_one_parameter():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.table(ids))

    model = Tied()
    assert [name for name, _ in model.named_parameters()] == ["table.weight"]
    model(sg.tensor([1, 2])).sum().backward()
    assert model.head.weight.same_as(model.table.weight) and model.table.weight.grad is not None


def test_modes_dtypes_and_freezing():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    assert model.training and not model.eval().training and model.train()[1].training
    assert model.to(sg.float64)[0].weight.dtype == sg.float64
    model[0].requires_grad_(False)
    assert not any(p.requires_grad for p in model.parameters())
    x = sg.ones(4, 2, dtype=sg.float64)
    assert model.eval()(x).tolist() == model[0](x).tolist()


def test_first_values_by_pattern():
    net = Net()
    net.init_parameters("*.weight", nn.init.constant(0.5))
    net(sg.ones(1, 4))
    assert net.up.weight.tolist() == [[0.5] * 4] * 6
    with pytest.raises(sg.InputError, match="has its values"):
        net.init_parameters("up.*", nn.init.zeros())
    with pytest.raises(sg.InputError, match="no parameter"):
        Net().init_parameters("nothing", nn.init.zeros())


def test_lazy_parameters_have_no_memory_before_the_first_call():
    class Big(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = self.param("weight", (1 << 20, 1 << 20), nn.init.normal())

    before = sg.ledger.current()
    big = Big()
    assert sg.ledger.current() == before and big.weight.shape == (1 << 20, 1 << 20)
    with pytest.raises(sg.InputError, match="no values yet"):
        big.weight.tolist()


def test_recompute_of_a_module_of_python_gives_the_same_bits():
    def run(recomputed):
        sg.manual_seed(3)
        net = Net(16)
        if recomputed:
            nn.recompute_by_name(net, ["up", "norm"])
            nn.recompute(net)
        loss = net(sg.randn(8, 4, name="r")).square().sum()
        loss.backward()
        return [p.grad.tolist() for p in net.parameters()]

    assert run(False) == run(True)


def test_layers_of_all_kinds():
    x = sg.randn(2, 3, 8, 8)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 4),
                          nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 5), nn.GELU(approximate="tanh"), nn.RMSNorm(5))
    assert model(x).shape == (2, 5)
    y, (h, c) = nn.LSTM(3, 4, num_layers=2, bidirectional=True)(sg.randn(5, 2, 3))
    assert y.shape == (5, 2, 8) and h.shape == c.shape == (4, 2, 4)
    y, h = nn.GRU(3, 4, batch_first=True)(sg.randn(2, 5, 3))
    assert y.shape == (2, 5, 4) and h.shape == (1, 2, 4)
    with pytest.raises(sg.InputError, match="GELU"):
        nn.GELU(approximate="erf")


def test_a_sequence_in_two_parts_by_its_states():
    x = sg.randn(6, 2, 3)
    for layer in nn.LSTM(3, 4), nn.GRU(3, 4):
        whole, end = layer(x)
        first, state = layer(x[:4])
        second, last = layer(x[4:], state)
        assert sg.cat([first, second]).allclose(whole, atol=1e-6) and str(last) == str(end)
        assert str(layer(x[4:], hx=state)[0]) == str(second) and str(layer.forward(x[4:], state)) == str((second, last))
        begin = tuple(map(sg.zeros_like, state)) if isinstance(layer, nn.LSTM) else sg.zeros_like(state)
        assert str(layer(x, begin)[0]) == str(layer(x, None)[0]) == str(whole)
    lstm, (h, c) = nn.LSTM(3, 4), (sg.zeros(1, 2, 4), sg.zeros(1, 2, 4))
    for wrong in (lambda: lstm(x, h, c), lambda: lstm(x, h), lambda: lstm(x, (h,)), lambda: lstm(x, sg.zeros(2, 2, 4))):
        with pytest.raises((TypeError, sg.InputError)):
            wrong()


def test_a_recurrent_layer_inside_hooks_and_a_derived_class():
    class Last(nn.LSTM):
        def forward(self, x):
            y, (h, c) = super().forward(x)
            return y[-1] + h[-1] + c[-1]

    x, seen = sg.randn(5, 2, 3), []
    assert Last(3, 4)(x).shape == (2, 4)
    lstm = nn.LSTM(3, 4)
    lstm.register_forward_hook(lambda module, tensors: seen.append([tuple(t.shape) for t in tensors]))
    y, (h, c) = lstm(x)
    assert seen == [[(5, 2, 4), (1, 2, 4), (1, 2, 4)]] and (y.shape, h.shape, c.shape) == ((5, 2, 4), (1, 2, 4), (1, 2, 4))


def test_words_of_layers():
    assert nn.Conv2d(1, 2, (3, 3), padding="same")(sg.ones(1, 1, 5, 5)).shape == (1, 2, 5, 5)
    assert nn.Conv1d(1, 2, 3, padding="valid")(sg.ones(1, 1, 5)).shape == (1, 2, 3)
    assert nn.MaxPool2d((2, 2), stride=(1, 1))(sg.ones(1, 1, 5, 5)).shape == (1, 1, 4, 4)
    assert nn.AdaptiveAvgPool2d((1, 1))(sg.ones(2, 3, 5, 5)).shape == (2, 3, 1, 1)
    assert nn.BatchNorm1d(3)(sg.ones(2, 3, 5)).shape == (2, 3, 5)
    assert nn.LayerNorm((3,))(sg.ones(2, 3)).shape == (2, 3)
    assert nn.Linear(2, 2, activation="relu")(sg.ones(1, 2)).min().item() >= 0
    assert nn.Conv2d(1, 2, (3, 5), padding=(1, 2), stride=(2, 1))(sg.ones(1, 1, 6, 6)).shape == (1, 2, 3, 6)
    assert sg.nn.functional.conv2d(sg.ones(1, 1, 6, 6), sg.ones(2, 1, 3, 5), stride=(1, 2), padding="valid").shape == (1, 2, 4, 1)
    assert sg.nn.functional.conv1d(sg.ones(1, 1, 6), sg.ones(2, 1, 3), padding="same").shape == (1, 2, 6)
    for wrong in (lambda: nn.Conv2d(1, 1, (3, 5, 7)), lambda: nn.Conv1d(1, 1, (3, 5)), lambda: nn.Conv2d(2, 3, 0), lambda: nn.Conv2d(1, 1, 2, padding="same"), lambda: nn.LayerNorm((2, 3)),
                  lambda: nn.Linear(2, 2, activation="elu")):
        with pytest.raises(sg.InputError):
            wrong()
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    seen = []
    assert model.apply(lambda module: seen.append(module.type_name)) is model and seen == ["Linear", "ReLU", "Sequential", "Sequential"]
    assert model.double()[0].weight.dtype == sg.float64


def test_losses_as_modules_and_functions_agree():
    logits, labels = sg.randn(6, 4), sg.tensor([0, 1, 2, 3, 0, 1])
    assert nn.CrossEntropyLoss()(logits, labels).item() == F.cross_entropy(logits, labels).item()
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1, reduction="sum")(logits, labels)
    assert abs(smooth.item() / 6 - F.cross_entropy(logits, labels, label_smoothing=0.1).item()) < 1e-6
    x, t = sg.randn(5), sg.rand(5)
    for kind, function in ((nn.MSELoss, F.mse_loss), (nn.L1Loss, F.l1_loss), (nn.HuberLoss, F.huber_loss), (nn.SmoothL1Loss, F.smooth_l1_loss),
                           (nn.BCEWithLogitsLoss, F.binary_cross_entropy_with_logits), (nn.KLDivLoss, F.kl_div)):
        for reduction in "mean", "sum", "none":
            assert kind(reduction=reduction)(x, t).tolist() == function(x, t, reduction=reduction).tolist()
        assert kind()(x, t).item() == function(x, t).item() and function(x, t, reduction="none").shape == (5,)
        assert abs(function(x, t, reduction="sum").item() / 5 - function(x, t).item()) < 1e-6
        with pytest.raises(sg.InputError, match="median"):
            kind(reduction="median")
    for kind, function in (nn.CrossEntropyLoss, F.cross_entropy), (nn.NLLLoss, F.nll_loss):
        for reduction in "mean", "sum", "none":
            assert kind(reduction=reduction)(logits, labels).tolist() == function(logits, labels, reduction=reduction).tolist()
    assert nn.KLDivLoss(reduction="batchmean")(logits, logits.exp()).item() == F.kl_div(logits, logits.exp(), reduction="batchmean").item()
    with pytest.raises(sg.InputError, match="median"):
        F.l1_loss(x, t, reduction="median")


def test_a_count_of_0_is_no_other_count():
    x, t = sg.ones(3), sg.zeros(3)
    for function in F.mse_loss, F.l1_loss, F.huber_loss:
        with pytest.raises(sg.InputError, match="count 0, but"):
            function(x, t, count=0)
        assert function(sg.ones(0), sg.zeros(0), count=0).item() == 0
    assert F.cross_entropy(sg.ones(2, 3), sg.tensor([-100, -100]), count=0).item() == 0


def test_modules_are_freed():
    net = Net()
    net(sg.ones(1, 4)).sum().backward()
    gone = weakref.ref(net)
    before = sg.ledger.current()
    del net
    gc.collect()
    assert gone() is None and sg.ledger.current() < before


def test_a_cycle_of_modules_and_python_objects_is_freed():
    class Child(nn.Module):
        def __init__(self, owner):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            object.__setattr__(self, "owner", [owner])

    class Owner(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Child(self)

    owner = Owner()
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_layers_and_losses_are_called_as_in_pytorch():
    x, weight = sg.randn(4, 6), sg.randn(6)
    assert F.layer_norm(x, (6,), weight).tolist() == F.layer_norm(x, weight).tolist()
    assert F.rms_norm(x, [6]).tolist() == F.rms_norm(x).tolist()
    with pytest.raises(sg.InputError, match=r"normalized_shape \[4, 6\] is not the last dimension"):
        F.layer_norm(x, (4, 6))
    images, norm = sg.randn(2, 6, 3, 5), nn.GroupNorm(3, 6)
    assert F.group_norm(images, 3).tolist() == norm(images).tolist()
    assert F.group_norm(images, 3, weight, eps=0.5).shape == (2, 6, 3, 5)
    with pytest.raises(sg.InputError, match="group_norm: 6 channels in 4 groups"):
        F.group_norm(images, 4)
    target = F.softmax(sg.randn(4, 6), -1)
    sums = F.kl_div(F.log_softmax(x, -1), target, reduction="sum")
    assert F.kl_div(F.log_softmax(x, -1), target, reduction="batchmean").item() == pytest.approx(sums.item() / 4)
    assert x.index_put((sg.tensor([1, 3]),), sg.zeros(2, 6))[1].tolist() == [0.] * 6
    assert x.norm(dim=1).tolist() == pytest.approx([sum(v * v for v in row) ** 0.5 for row in x.tolist()], rel=1e-5)


def test_windows_of_pooling_are_pytorchs():
    F, x = nn.functional, sg.arange(24, dtype=sg.float32).reshape(1, 1, 4, 6)
    assert F.max_pool2d(x, (2, 3)).flatten().tolist() == [8, 11, 20, 23]
    assert F.avg_pool2d(x, [1, 3], stride=(3, 1)).shape == (1, 1, 2, 4)
    assert nn.MaxPool2d((2, 4), (2, 5), (0, 2))(x).flatten().tolist() == [7, 11, 19, 23]
    assert F.max_pool2d(x, 4, ceil_mode=True).flatten().tolist() == [21, 23]
    assert nn.MaxPool2d(4, ceil_mode=True)(x).flatten().tolist() == [21, 23]
    assert F.avg_pool2d(x, 4, 3, 1, False, False).flatten().tolist() == nn.AvgPool2d(4, 3, 1, count_include_pad=False)(x).flatten().tolist() == [7, 9.5]
    assert F.max_pool2d(x, 2, 2, 0, 1).shape == (1, 1, 2, 3)
    assert F.adaptive_avg_pool2d(x, (2, 3)).flatten().tolist() == [3.5, 5.5, 7.5, 15.5, 17.5, 19.5]
    assert F.adaptive_avg_pool2d(x, (None, 1)).flatten().tolist() == nn.AdaptiveAvgPool2d((None, 1))(x).flatten().tolist() == [2.5, 8.5, 14.5, 20.5]
    for wrong, said in ((lambda: F.max_pool2d(x, 2, stride=0), "max_pool2d: stride 0"), (lambda: nn.AvgPool2d(2, (1, 0)), "AvgPool2d: stride 0"),
                        (lambda: F.max_pool2d(x, 2, dilation=2), "max_pool2d: dilation=\\(2, 2\\)"), (lambda: nn.MaxPool2d(2, dilation=(1, 3)), "MaxPool2d: dilation=\\(1, 3\\)"),
                        (lambda: F.max_pool2d(x, 2, return_indices=True), "return_indices"), (lambda: nn.AvgPool2d(2, divisor_override=3), "divisor_override"),
                        (lambda: F.adaptive_avg_pool2d(x, (1, 2, 3)), "output_size"), (lambda: F.adaptive_avg_pool2d(x, -1), "size of -1"),
                        (lambda: F.max_pool2d(x, (2, 2, 2)), "max_pool2d"), (lambda: F.max_pool2d(x, 2**62), "kernel 4611686018427387904")):
        with pytest.raises(sg.InputError, match=said):
            wrong()


def test_windows_of_lines_are_one_number():
    x, w = sg.ones(1, 1, 9), sg.ones(1, 1, 3)
    assert nn.functional.conv1d(x, w, stride=[2], padding=(1,), dilation=(1,)).shape == nn.Conv1d(1, 1, (3,), stride=(2,), padding=[1])(x).shape == (1, 1, 5)
    for wrong in (lambda: nn.functional.conv1d(x, w, stride=(2, 1)), lambda: nn.functional.conv1d(x, w, padding=(1, 0)),
                  lambda: nn.functional.conv1d(x, w, dilation=[2, 1]), lambda: nn.Conv1d(1, 1, 3, stride=(2, 1)),
                  lambda: nn.Conv1d(1, 1, 3, padding=(1, 1)), lambda: nn.Conv1d(1, 1, 3, dilation=(1, 1)), lambda: nn.functional.conv1d(x, w, stride=[])):
        with pytest.raises(sg.InputError, match="(?i)conv1d: .* are one number, got"):
            wrong()


def test_pytorchs_state_of_a_batch_norm_is_taken():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    state = {name: sg.full(tensor.shape, 2.) for name, tensor in model.state_dict().items()}
    model.load_state_dict(state | {"1.num_batches_tracked": sg.tensor(5)})
    assert model[1].running_var.tolist() == [2, 2] and "1.num_batches_tracked" not in model.state_dict()
    with pytest.raises(sg.InputError, match="unknown: '0.num_batches_tracked'"):
        model.load_state_dict(state | {"0.num_batches_tracked": sg.tensor(5)})
