"""Schedulers set the rates that PyTorch's set."""

import math

import pytest
import shardgrad as sg
from shardgrad import optim
from shardgrad.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, OneCycleLR, ReduceLROnPlateau, StepLR


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
