"""Schedulers set the rates that PyTorch's set."""

import json
import math

import numpy as np
import pytest
import shardgrad as sg
from shardgrad import nn, optim
from shardgrad.optim.lr_scheduler import (ConstantLR, CosineAnnealingLR, ExponentialLR, LambdaLR, LinearLR, LRScheduler, MultiStepLR,
                                          OneCycleLR, PolynomialLR, ReduceLROnPlateau, SequentialLR, StepLR)


def made(lr=1., groups=1):
    parameters = [sg.zeros(2, requires_grad=True) for _ in range(groups)]
    if groups == 1:
        return optim.SGD(parameters, lr=lr)
    return optim.SGD([{"params": [p], "lr": lr / (i + 1)} for i, p in enumerate(parameters)], lr=lr)


def rates(scheduler, steps):
    """Of the only group, before the first step and after each."""
    found = [scheduler.optimizer.lr]
    for _ in range(steps):
        scheduler.step()
        found.append(scheduler.optimizer.lr)
        assert scheduler.get_last_lr() == [scheduler.optimizer.lr]
    return found


def test_step_lr():
    assert rates(StepLR(made(), 2, gamma=0.5), 5) == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_rates_that_fall_by_factors():
    assert rates(ExponentialLR(made(), 0.5), 3) == [1, 0.5, 0.25, 0.125]
    assert rates(MultiStepLR(made(), [4, 1, 4], gamma=0.5), 5) == [1, 0.5, 0.5, 0.5, 0.125, 0.125]
    assert rates(ConstantLR(made(), factor=0.25, total_iters=2), 3) == [0.25, 0.25, 1, 1]
    assert rates(PolynomialLR(made(), total_iters=4, power=2), 5) == pytest.approx([1, 0.5625, 0.25, 0.0625, 0, 0])
    with pytest.raises(sg.InputError, match="ConstantLR: factor 0 is not above 0"):
        ConstantLR(made(), factor=0)


def test_a_warm_up_and_then_a_fall():
    optimizer = made()
    sequence = SequentialLR(optimizer, [ConstantLR(optimizer, factor=0.25, total_iters=2), ExponentialLR(optimizer, 0.5)], milestones=[2])
    assert rates(sequence, 4) == [0.25, 0.25, 1, 0.5, 0.25]


@pytest.mark.parametrize("make", [lambda o: ExponentialLR(o, 0.5), lambda o: MultiStepLR(o, [1, 3], 0.5), lambda o: ConstantLR(o, 0.5, 3),
                                  lambda o: PolynomialLR(o, 6, 2.)])
def test_they_go_on_from_a_state_and_to_a_step_of_their_own(make):
    whole = rates(make(made()), 5)
    first = make(made())
    rates(first, 2)
    state, steps = first.optimizer.state_dict(), json.loads(json.dumps(first.state_dict()))
    second = make(first.optimizer)
    second.optimizer.load_state_dict(state)
    second.load_state_dict(steps)
    assert rates(second, 3) == pytest.approx(whole[2:])
    jumped = make(made())
    jumped.step(4)
    assert jumped.get_last_lr() == pytest.approx(whole[4:5])


def test_cosine_annealing_lr():
    root = math.sqrt(0.5)
    expected = [1, 0.2 + 0.8 * (1 + root) / 2, 0.6, 0.2 + 0.8 * (1 - root) / 2, 0.2, 0.2 + 0.8 * (1 - root) / 2]
    assert rates(CosineAnnealingLR(made(), T_max=4, eta_min=0.2), 5) == pytest.approx(expected)


def test_lambda_lr_of_one_and_of_each_group():
    assert rates(LambdaLR(made(2.), lambda step: 1 / (step + 1)), 3) == pytest.approx([2, 1, 2 / 3, 0.5])
    optimizer = made(1., groups=2)
    scheduler = LambdaLR(optimizer, [lambda step: 1, lambda step: 0.5**step])
    scheduler.step()
    assert scheduler.get_last_lr() == [1, 0.25] == [group["lr"] for group in optimizer.param_groups]
    with pytest.raises(sg.InputError, match="LambdaLR: 1 functions for 2 groups"):
        LambdaLR(optimizer, [lambda step: 1])


def test_one_cycle_lr():
    # Up to 1 at step 0.4 · 10 - 1 = 3, down to 0.1 / 10 at step 9; after it as PyTorch goes on.
    def between(a, b, part):
        return a + (b - a) * (1 - math.cos(math.pi * part)) / 2

    expected = [between(0.1, 1, i / 3) for i in range(4)] + [between(1, 0.01, i / 6) for i in range(1, 8)]
    scheduler = OneCycleLR(made(), max_lr=1., total_steps=10, pct_start=0.4, div_factor=10, final_div_factor=10)
    assert rates(scheduler, 10) == pytest.approx(expected)
    with pytest.raises(sg.InputError, match="OneCycleLR: step 11 of 10"):
        scheduler.step()
    straight = OneCycleLR(made(), 1., epochs=2, steps_per_epoch=5, pct_start=0.4, anneal_strategy="linear", div_factor=10)
    assert rates(straight, 3) == pytest.approx([0.1, 0.4, 0.7, 1])
    for wrong in dict(), dict(total_steps=5, cycle_momentum=True), dict(total_steps=5, anneal_strategy="poly"):
        with pytest.raises(sg.InputError, match="OneCycleLR"):
            OneCycleLR(made(), 1., **wrong)


def test_one_cycle_lr_is_the_schedule_of_that_name():
    one_cycle = optim.schedule.one_cycle(20)
    assert rates(OneCycleLR(made(), 1., total_steps=20), 19) == pytest.approx([one_cycle(step) for step in range(20)])


def test_reduce_lr_on_plateau():
    optimizer = made()
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.1, cooldown=1, min_lr=0.2)
    found = []
    for score in 1., 0.95, sg.tensor(0.95), 0.95, 0.95, 0.95, 0.5, 0.5, 0.5, 0.5:
        scheduler.step(score)
        found.append(optimizer.lr)
    # 0.95 is not 10 % better: the second one lowers, then one is passed over; 0.2 is the least.
    assert found == [1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2] and scheduler.get_last_lr() == [0.2]
    best = ReduceLROnPlateau(made(), mode="max", patience=0, threshold=1., threshold_mode="abs")
    assert [best.is_better(score, 5.) for score in (5.5, 6., 6.5)] == [False, False, True]
    for wrong in dict(mode="most"), dict(threshold_mode="much"), dict(factor=1.):
        with pytest.raises(sg.InputError, match="ReduceLROnPlateau"):
            ReduceLROnPlateau(made(), **wrong)


@pytest.mark.parametrize("begun", [
    lambda optimizer: StepLR(optimizer, 2), lambda optimizer: CosineAnnealingLR(optimizer, 7),
    lambda optimizer: LambdaLR(optimizer, lambda step: 0.9**step), lambda optimizer: OneCycleLR(optimizer, 1., 9)])
def test_a_state_goes_on(begun):
    whole = rates(begun(made()), 6)
    first = begun(made())
    rates(first, 3)
    state = first.state_dict()
    assert "optimizer" not in state and not any(map(callable, state.values()))
    other = made()
    second = begun(other)
    second.load_state_dict(state)
    other.load_state_dict(first.optimizer.state_dict())
    assert rates(second, 3) == whole[3:]


def test_the_state_of_a_plateau_goes_on():
    scheduler = ReduceLROnPlateau(made(), patience=1)
    for score in 3., 4.:
        scheduler.step(score)
    other = ReduceLROnPlateau(made(), patience=1)
    other.load_state_dict(scheduler.state_dict())
    other.step(5.)
    assert other.optimizer.lr == pytest.approx(0.1) and other.best == 3


def test_a_scheduler_of_ones_own():
    class Half(LRScheduler):
        def get_lr(self):
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    assert rates(Half(made()), 2) == [1, 0.5, 0.25]
    with pytest.raises(NotImplementedError, match="get_lr"):
        LRScheduler(made())


# --- schedulers of one optimizer ----------------------------------------------------------------------------------------

def height(step, steps=4):
    return (1 + math.cos(math.pi * step / steps)) / 2


def test_a_warm_up_and_a_cosine_that_step_together():
    # The function sets the rate, the cosine multiplies it by what its height has become of the step before.
    optimizer = made(2.)
    warm_up = LambdaLR(optimizer, lambda step: min(1, (step + 1) / 4))
    assert optimizer.lr == 0.5
    cosine = CosineAnnealingLR(optimizer, T_max=4)
    assert cosine.base_lrs == [2] and optimizer.lr == 0.5 and optimizer.param_groups[0]["initial_lr"] == 2
    found = []
    for _ in range(3):
        warm_up.step()
        cosine.step()
        found.append(optimizer.lr)
    assert found == pytest.approx([1 * height(1) / height(0), 1.5 * height(2) / height(1), 2 * height(3) / height(2)])


def test_a_cosine_that_follows_a_warm_up():
    optimizer = made(2.)
    warm_up = LambdaLR(optimizer, lambda step: min(1, (step + 1) / 4))
    cosine = CosineAnnealingLR(optimizer, T_max=4, eta_min=0.2)
    assert rates(warm_up, 3) == [0.5, 1, 1.5, 2]
    assert rates(cosine, 6) == pytest.approx([2] + [0.2 + 1.8 * height(step) for step in range(1, 7)])


def test_a_plateau_and_steps_multiply():
    optimizer = made()
    steps, plateau = StepLR(optimizer, 2, gamma=0.5), ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
    found = []
    for score in 3., 3., 3., 1., 1.:
        steps.step()
        plateau.step(score)
        found.append(optimizer.lr)
    # Lowered at the second, third and fifth score; halved at the second and fourth step.
    assert found == pytest.approx([1, 0.05, 0.005, 0.0025, 0.00025])


def test_linear_lr():
    assert rates(LinearLR(made(2.), start_factor=0.25, total_iters=3), 5) == pytest.approx([0.5, 1, 1.5, 2, 2, 2])
    assert rates(LinearLR(made(), 1., 0., 2), 3) == pytest.approx([1, 0.5, 0, 0])
    with pytest.raises(sg.InputError, match="LinearLR: factors 0 and 1"):
        LinearLR(made(), start_factor=0)


def sequence():
    optimizer = made()
    return SequentialLR(optimizer, [LinearLR(optimizer, 0.25, total_iters=3), CosineAnnealingLR(optimizer, 4), StepLR(optimizer, 1, 0.5)], [3, 5])


def test_one_after_another():
    whole = rates(sequence(), 7)
    assert whole == pytest.approx([0.25, 0.5, 0.75, height(0), height(1), 1, 0.5, 0.25])
    first, second = sequence(), sequence()
    rates(first, 4)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert second.last_epoch == 4 and rates(second, 3) == whole[4:]
    for wrong in ([], []), ([StepLR(made(), 1)], []), ([first], [3]):
        with pytest.raises(sg.InputError, match="SequentialLR"):
            SequentialLR(first.optimizer, *wrong)


def inner(optimizer):
    return SequentialLR(optimizer, [LinearLR(optimizer, 0.1, 1, 2), StepLR(optimizer, 2, 0.5)], [2])


def test_sequences_of_sequences():
    def nested(make):
        optimizer = made(0.1)
        return SequentialLR(optimizer, *make(optimizer))

    first = nested(lambda o: ([inner(o), LambdaLR(o, lambda step: step * 0.1)], [6]))
    assert rates(first, 8) == pytest.approx([0.01, 0.1, 0.1, 0.05, 0.05, 0.025, 0, 0.01, 0.02])  # PyTorch's
    deeper = nested(lambda o: ([SequentialLR(o, [inner(o), StepLR(o, 1, 0.5)], [4]), StepLR(o, 1, 0.1)], [7]))
    assert rates(deeper, 8) == pytest.approx([0.1, 0.1, 0.05, 0.1, 0.05, 0.025, 0.0125, 0.1, 0.01])
    begun, other = (nested(lambda o: ([inner(o), StepLR(o, 1, 0.5)], [6])) for _ in range(2))
    whole = rates(nested(lambda o: ([inner(o), StepLR(o, 1, 0.5)], [6])), 8)
    rates(begun, 3)
    other.optimizer.load_state_dict(begun.optimizer.state_dict())
    other.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    assert rates(other, 5) == whole[3:]
    with pytest.raises(sg.InputError, match="SequentialLR: a ReduceLROnPlateau is no scheduler that goes on step by step"):
        SequentialLR(begun.optimizer, [ReduceLROnPlateau(begun.optimizer)], [])
    second = nested(lambda o: ([LinearLR(o, 0.5, 1, 3), inner(o)], [3]))
    assert rates(second, 7) == pytest.approx([0.05, 0.2 / 3, 0.25 / 3, 0.01, 0.055, 0.1, 0.1, 0.05])
    at_once = nested(lambda o: ([LinearLR(o, 0.5, 1, 3), StepLR(o, 1, 0.5)], [0]))
    assert rates(at_once, 2) == pytest.approx([0.1, 0.05, 0.025])
    with pytest.raises(sg.InputError, match="SequentialLR: .* not at 3"):
        second.step(3)


def test_the_epoch_that_a_scheduler_is_made_with():
    class Half(LRScheduler):
        def __init__(self, optimizer, last_epoch=-1):
            super().__init__(optimizer, last_epoch)

        def get_lr(self):
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    assert rates(Half(made()), 2) == [1, 0.5, 0.25] and rates(StepLR(made(), 1, 0.5, -1), 1) == [1, 0.5]
    makes = (lambda o, e: Half(o, e), lambda o, e: StepLR(o, 3, 0.5, e), lambda o, e: LinearLR(o, 0.5, 1., 3, e), lambda o, e: LambdaLR(o, lambda step: 1, e),
             lambda o, e: CosineAnnealingLR(o, 7, 0., e), lambda o, e: SequentialLR(o, [StepLR(o, 1)], [], e), lambda o, e: OneCycleLR(o, 1., 9, last_epoch=e))
    for make in makes:
        make(made(), -1)
        with pytest.raises(sg.InputError, match="last_epoch 5; .* load_state_dict"):
            make(made(), 5)


def test_a_group_without_parameters_has_a_rate_of_its_own():
    w = sg.zeros(2, requires_grad=True)
    optimizer = optim.SGD([{"params": []}, {"params": [w], "lr": 0.5}, {"params": []}], lr=0.25)
    scheduler = LambdaLR(optimizer, lambda step: 1.)
    assert scheduler.base_lrs[1] == 0.5 == optimizer.param_groups[1]["lr"] == optimizer.param_groups[1]["initial_lr"]
    scheduler.step()
    assert optimizer.param_groups[1]["lr"] == 0.5


def test_lists_are_one_for_each_group():
    for make in (lambda o: OneCycleLR(o, [1., 1., 1.], 10), lambda o: ReduceLROnPlateau(o, min_lr=[0.]), lambda o: LambdaLR(o, [math.exp])):
        with pytest.raises(sg.InputError, match="for 2 groups of parameters"):
            make(made(groups=2))
    optimizer = made(groups=2)
    OneCycleLR(optimizer, np.array([1., 2.]), 10, div_factor=10)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.1, 0.2])


def test_numbers_of_numpys():
    scheduler = OneCycleLR(made(), np.float32(1), total_steps=np.int64(10), pct_start=np.float64(0.5), div_factor=np.float32(10))
    assert rates(scheduler, 4)[::4] == pytest.approx([0.1, 1])
    assert rates(StepLR(made(), np.int64(1), np.float32(0.5)), 1) == [1, 0.5]
    assert ReduceLROnPlateau(made(), factor=np.float32(0.5), min_lr=np.float32(0.25)).min_lrs == [0.25]


@pytest.mark.parametrize("make", [
    lambda n, x: StepLR(made(), n, x), lambda n, x: LinearLR(made(), x, x, n), lambda n, x: CosineAnnealingLR(made(), n, x),
    lambda n, x: OneCycleLR(made(), x, n, pct_start=x), lambda n, x: OneCycleLR(made(), x, epochs=n, steps_per_epoch=n, div_factor=x, final_div_factor=x),
    lambda n, x: ReduceLROnPlateau(made(), factor=x, patience=n, threshold=x, cooldown=n, min_lr=x, eps=x)])
def test_a_state_is_kept_by_json(make):
    state = make(np.int64(3), np.float32(0.5)).state_dict()
    assert json.loads(json.dumps(state)) == state == make(3, 0.5).state_dict()


@pytest.mark.parametrize("wrong, says", [
    (dict(total_steps=0), "total_steps"), (dict(total_steps=-1), "total_steps"), (dict(epochs=0, steps_per_epoch=3), "at least one step"),
    (dict(epochs=2), "steps_per_epoch"), (dict(total_steps=5, pct_start=1.5), "pct_start 1.5"), (dict(total_steps=5, pct_start=-0.1), "pct_start")])
def test_what_is_no_cycle(wrong, says):
    with pytest.raises(sg.InputError, match=says):
        OneCycleLR(made(), 1., **wrong)
    with pytest.raises(TypeError):
        OneCycleLR(made(), 1., total_steps=2.5)


def test_a_cycle_that_only_rises():
    assert rates(OneCycleLR(made(), 1., 3, pct_start=1, anneal_strategy="linear", div_factor=2), 2) == pytest.approx([0.5, 0.75, 1])


def test_milestones_go_up_and_a_refused_scheduler_changes_nothing():
    optimizer = sg.optim.SGD([nn.Parameter(sg.ones(2))], lr=1.)
    schedulers = [sg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.) for _ in range(3)]
    with pytest.raises(sg.InputError, match="do not go up"):
        sg.optim.lr_scheduler.SequentialLR(optimizer, schedulers, [5, 3])
    with pytest.raises(sg.InputError):
        sg.optim.lr_scheduler.OneCycleLR(optimizer, 2., 9, last_epoch=5)
    assert sg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.).get_last_lr() == [1.]
