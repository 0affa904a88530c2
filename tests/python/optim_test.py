"""Optimizers: what they are given, and their groups of parameters as PyTorch's programs use them."""

import weakref

import pytest
import shardgrad as sg
from shardgrad import nn, optim


def made(*shapes):
    return [sg.zeros(*shape, requires_grad=True) for shape in shapes]


def stepped(optimizer, *parameters):
    for each in parameters:
        each.grad = sg.ones(*each.shape)
    optimizer.step()
    return [each.flatten()[0].item() for each in parameters]


def test_what_is_no_parameter_is_refused_with_its_name_too():
    for given in [("a", 3)], [3], [nn.Linear(2, 2)], [{"params": [("a", 3)]}]:
        with pytest.raises(sg.InputError, match="parameters: '.*' is no tensor"):
            optim.AdamW(given)
    w, = made((2,))
    with pytest.raises(sg.InputError, match="options of a group of parameters: lr='x' is not possible"):
        optim.SGD([{"params": w, "lr": "x"}])
    with pytest.raises(sg.InputError, match="weight_decay=None is not possible"):
        optim.SGD([w], rules={"*": {"weight_decay": None}})
    with pytest.raises(sg.InputError, match="mixed"):
        optim.SGD([w, {"params": [w]}])
    with pytest.raises(sg.InputError, match="mixed"):
        optim.SGD([{"params": [w]}, w])


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad, optim.Lion, optim.Muon])
def test_parameters_of_no_module_are_trained_as_those_of_one(kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(sg.tensor([[1., 2.], [3., 4.]]))
            self.b = nn.Parameter(sg.tensor([[0.5, 1.]]))

    net = Net()
    alone = [nn.Parameter(sg.tensor([[1., 2.], [3., 4.]])), sg.tensor([[0.5, 1.]], requires_grad=True)]
    found = []
    for a, b in (net.a, net.b), alone:
        optimizer = kind([a, b], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (a @ b.T).square().sum().backward()
            optimizer.step()
        found.append([a.tolist(), b.tolist()])
    assert found[0] == found[1] and found[0][0][0][0] != 1


def test_state_of_parameters_of_no_module_is_by_their_places():
    def trained(optimizer, a, b, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            (a * b).square().sum().backward()
            optimizer.step()
        return a.tolist(), b.tolist()

    def begun():
        a, b = nn.Parameter(sg.tensor([1., 2.])), sg.tensor([3., 4.], requires_grad=True)
        return optim.AdamW([a, b], lr=0.1), a, b

    whole = trained(*begun(), 4)
    optimizer, a, b = begun()
    trained(optimizer, a, b, 2)
    state = optimizer.state_dict()
    assert {name.rsplit(".", 1)[0] for name in state} == {"parameter", "parameter@1"}
    other_a, other_b = nn.Parameter(a.detach()), b.detach().clone().requires_grad_()
    other = optim.AdamW([other_a, other_b], lr=0.1)
    other.load_state_dict(state)
    assert trained(other, other_a, other_b, 2) == whole


def test_what_was_computed_is_refused():
    with pytest.raises(sg.InputError, match=r"SGD: 'parameter' was computed, .* x.detach\(\)"):
        optim.SGD([nn.Parameter(sg.ones(2)) * 2])


def test_steps_below_the_precision_of_bfloat16_move_its_mean():
    w, grad = sg.ones(4096).to(sg.bfloat16).requires_grad_(), sg.ones(4096).to(sg.bfloat16)
    for kind in optim.SGD, optim.Adam, optim.AdamW:
        with pytest.raises(sg.InputError, match="take bf16 with stochastic_rounding"):
            kind([w])
        kind([w], stochastic_rounding=True)
    optimizer = optim.SGD([w], lr=2**-12, stochastic_rounding=True)  # a sixteenth of the last place below 1
    w.grad = grad
    optimizer.step()
    moved = 4096 - w.detach().to(sg.float32).sum().item()
    assert 0.7 < moved < 1.3
    with pytest.raises(sg.InputError, match="AdamW: stochastic_rounding='yes' is not possible"):
        optim.AdamW([w], stochastic_rounding="yes")


def test_the_rate_of_the_only_group_is_the_optimizers():
    w, = made((2,))
    for given, lr in ([w], 0.25), ([("w", w)], 0.25), ([{"params": [w]}], 0.25), ([{"params": w, "lr": 0.5}], 0.5):
        optimizer = optim.SGD(given, lr=0.25)
        group, = optimizer.param_groups
        assert group["lr"] == optimizer.lr == lr
        assert len(group["params"]) == 1 and group["params"][0] is w
        group["lr"] = 0.125
        assert optimizer.lr == 0.125 == optimizer.param_groups[0]["lr"]
        optimizer.lr = 2
        assert group["lr"] == 2


def test_each_group_has_a_rate_of_its_own():
    a, b, c = made((2,), (2,), (2,))
    optimizer = optim.SGD([{"params": [a, b], "weight_decay": 0.5}, {"params": iter([c]), "lr": 0.5}], lr=0.25)
    first, second = optimizer.param_groups
    assert (first["lr"], first["weight_decay"], second["lr"], second["weight_decay"]) == (0.25, 0.5, 0.5, 0)
    assert [x is y for x, y in zip(first["params"] + second["params"], (a, b, c))] == [True] * 3
    for group in optimizer.param_groups:
        group["lr"] *= 2
    assert optimizer.lr == 0.25
    with sg.no_grad():
        assert stepped(optimizer, a, b, c) == [-0.5, -0.5, -1]
    optimizer.lr = 0.125  # each keeps its ratio
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5]


def test_a_loop_of_pytorchs_sets_every_rate():
    a, b = made((2,), (2,))
    optimizer = optim.SGD([{"params": [a]}, {"params": [b]}], lr=0.)
    for lr in 0.5, 0.25:
        for group in optimizer.param_groups:
            group["lr"] = lr
        found = stepped(optimizer, a, b)
    assert found == [-0.75, -0.75]


def test_a_group_is_as_a_dict():
    w, = made((2,))
    group = optim.AdamW([w], lr=0.25, weight_decay=0.5).param_groups[0]
    assert list(group) == ["params", "lr", "weight_decay"] and len(group) == 3 and "lr" in group and "betas" not in group
    assert group.get("betas") is None and dict(group)["weight_decay"] == 0.5 and "'lr': 0.25" in repr(group)
    with pytest.raises(KeyError, match="betas"):
        group["betas"]
    for wrong in (lambda: group.__setitem__("weight_decay", 0), lambda: group.pop("lr"), lambda: group.update(lr=-1)):
        with pytest.raises(sg.InputError):
            wrong()
    empty, other = optim.SGD([{"params": []}, {"params": [w]}], lr=0.25).param_groups
    empty["lr"] = 7
    assert other["lr"] == 0.25 and list(empty) == ["params", "lr"]


def test_a_group_without_parameters_keeps_its_rate():
    w, = made((2,))
    optimizer = optim.SGD([{"params": [], "lr": 0.125}, {"params": [w], "lr": 0.5}, {"params": []}], lr=0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.5, 0.25]
    optimizer.param_groups[0]["lr"] = 0.75
    assert [group["lr"] for group in optimizer.param_groups] == [0.75, 0.5, 0.25]
    optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5).step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.375, 0.25, 0.125]


def test_an_optimizer_with_groups_is_freed():
    w, = made((2,))
    optimizer = optim.SGD([w])
    groups, gone = optimizer.param_groups, weakref.ref(optimizer)
    del optimizer
    assert gone() is not None, "they hold it"
    del groups
    assert gone() is None


def test_groups_of_a_sharded_model(ranks):
    ended = ranks(2, """
        import shardgrad as sg
        from shardgrad import nn, optim
        world = sg.dist.init()
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        sharded = sg.fully_shard(model, strategy="zero3")
        optimizer = optim.SGD([{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.5}], lr=0.25)
        before = sharded.full_state_dict(rank0_only=False)
        before = {name: tensor.clone() for name, tensor in before.items()}
        optimizer.param_groups[0]["lr"] = 0.
        model(sg.ones(2, 4)).sum().backward()
        optimizer.step()
        after = sharded.full_state_dict(rank0_only=False)
        changed = [name for name in sorted(before) if before[name].tolist() != after[name].tolist()]
        assert changed == ["1.bias", "1.weight"], changed
        moved = before["1.bias"] - after["1.bias"]  # of 2 rows on each of 2 ranks, times 0.5
        assert (moved - 2).abs().max().item() < 1e-6, moved
        print("right")
    """)
    assert ended.out.count("right") == 2, ended


def test_rates_that_were_set_are_in_the_state():
    a, b = made((2,), (2,))

    def groups():
        return optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.25)

    before, after = groups(), groups()
    before.param_groups[0]["lr"] = 0.125
    before.lr = 0.5  # each keeps its ratio
    before.param_groups[1]["lr"] = 7.
    after.load_state_dict(before.state_dict())
    assert after.lr == 0.5 and [group["lr"] for group in after.param_groups] == [0.25, 7]
    state = {name: tensor for name, tensor in before.state_dict().items() if not name.endswith(".lr")}
    other = groups()
    other.load_state_dict(state)  # as it was once saved
    assert [group["lr"] for group in other.param_groups] == [0.25, 0.5]


def test_rates_that_were_set_are_in_checkpoints_and_full_states(ranks):
    source = """
        import sys
        import shardgrad as sg
        from shardgrad import nn, optim
        sg.dist.init()

        def made():
            model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            sharded = sg.fully_shard(model, strategy="zero3")
            return model, sharded, optim.AdamW([{"params": m.parameters()} for m in model], lr=0.25)

        model, sharded, optimizer = made()
        if sys.argv[1] == "save":
            model(sg.randn(4, 4)).sum().backward()
            optimizer.step()
            optimizer.param_groups[1]["lr"] = 0.0625
            sg.save_checkpoint("run", model, sharded, optimizer, step=1)
            other, others, again = made()
            others.load_full_optim_state_dict(again, sharded.full_optim_state_dict(optimizer, rank0_only=False))
            others.load_full_state_dict(sharded.full_state_dict(rank0_only=False))
            assert other[1].running_mean.abs().sum().item() > 0
        else:
            sg.load_checkpoint("run", model, sharded, optimizer)
            again = optimizer
        assert again.lr == 0.25 and [group["lr"] for group in again.param_groups] == [0.25, 0.0625]
        print("right")
    """
    assert ranks(2, source, "save").out.count("right") == 2
    assert ranks(3, source, "load").out.count("right") == 3


def test_a_scaler_unscales_once_for_who_clips():
    w = sg.ones(2, requires_grad=True)
    optimizer, scaler = optim.SGD([w], lr=1.), optim.GradScaler(init_scale=8.)
    scaler.scale((w * sg.tensor([3., 4.])).sum()).backward()
    assert w.grad.tolist() == [24, 32]
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [3, 4] and optim.clip_grad_norm_([w], 1.) == pytest.approx(5)
    with pytest.raises(sg.InputError, match=r"GradScaler: unscale_\(\) after another one"):
        scaler.unscale_(optimizer)
    assert scaler.step(optimizer) and w.tolist() == pytest.approx([0.4, 0.2])
    scaler.update()
    optimizer.zero_grad()
    scaler.scale((w * sg.inf).sum()).backward()
    scaler.unscale_(optimizer)  # the norm of what overflowed and is left out is 0
    assert optim.clip_grad_norm_([w], 1.) == 0 and not scaler.step(optimizer) and w.tolist() == pytest.approx([0.4, 0.2])
    scaler.update()
    assert scaler.scale(sg.ones(1)).item() == 4


def test_optimizers_take_a_tensor_as_a_group():
    w = sg.ones(2, requires_grad=True)
    optimizer = sg.optim.SGD([{"params": w, "lr": 0.5}], lr=0.1)
    w.sum().backward()
    optimizer.step()
    assert w.tolist() == [0.5, 0.5]
    with pytest.raises(sg.InputError, match="not 0"):
        sg.optim.SGD([{"params": w, "lr": 0.5}, {"params": sg.ones(1, requires_grad=True)}], lr=0.)
    w.data -= 0.5
    assert w.tolist() == [0, 0]
    w.data = sg.ones(2)
    assert w.tolist() == [1, 1]


def test_muon_takes_pytorchs_arguments_and_matrices_only():
    w = sg.eye(3)
    w.requires_grad_()
    optimizer = sg.optim.Muon([w], lr=0.5, weight_decay=0., momentum=0., nesterov=False, ns_coefficients=(1.5, -0.5, 0.),
                              eps=1e-7, ns_steps=30, adjust_lr_fn="match_rms_adamw")
    (w * sg.eye(3) * 7).sum().backward()
    optimizer.step()
    assert abs(w[0, 0].item() - (1 - 0.5 * 0.2 * 3**0.5)) < 1e-5 and abs(w[0, 1].item()) < 1e-5
    assert sg.optim.Muon([w], adjust_lr_fn=None).lr == 1e-3
    with pytest.raises(sg.InputError, match="no matrix"):
        sg.optim.Muon([sg.ones(3, requires_grad=True)])
    with pytest.raises(sg.InputError, match="none of original, match_rms_adamw, spectral_unclamped"):
        sg.optim.Muon([w], adjust_lr_fn="adam")
    with pytest.raises(sg.InputError, match="ns_coefficients"):
        sg.optim.Muon([w], ns_coefficients=(1., 2.))
