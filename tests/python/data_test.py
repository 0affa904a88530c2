"""Datasets, samplers and batches."""

from collections import namedtuple

import numpy as np
import pytest
import shardgrad as sg
from shardgrad.utils.data import (DataLoader, Dataset, DistributedSampler, RandomSampler, Sampler, SequentialSampler, Subset,
                                  TensorDataset, default_collate, random_split)


class Squares(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index, float(index * index)


def numbers(loader):
    return [x.tolist() for x, _ in loader]


def test_batches_in_order_and_the_last_one():
    loader = DataLoader(Squares(7), batch_size=3)
    assert numbers(loader) == [[0, 1, 2], [3, 4, 5], [6]] == numbers(loader) and len(loader) == 3
    assert [y.tolist() for _, y in loader][1] == [9, 16, 25]
    short = DataLoader(Squares(7), batch_size=3, drop_last=True)
    assert numbers(short) == [[0, 1, 2], [3, 4, 5]] and len(short) == 2
    assert numbers(DataLoader(Squares(0))) == [] and len(DataLoader(Squares(0))) == 0
    assert numbers(DataLoader(Squares(4), 2, sampler=[3, 1, 2])) == [[3, 1], [2]]


def test_shuffled_batches_follow_the_seed_and_the_pass():
    def passes(seed, draws=0):
        sg.manual_seed(seed)
        sg.rand(draws)
        loader = DataLoader(Squares(20), batch_size=4, shuffle=True)
        return [numbers(loader) for _ in range(3)]

    first = passes(1)
    assert first == passes(1) == passes(1, draws=9) != passes(2)
    assert all(sorted(sum(each, [])) == list(range(20)) for each in first)
    assert len({str(each) for each in [list(range(20)), *first]}) == 4


def test_a_pass_is_told_its_number():
    loader = DataLoader(Squares(20), batch_size=20, shuffle=True)
    first, second, third = numbers(loader), numbers(loader), numbers(loader)
    loader.sampler.set_epoch(1)
    assert numbers(loader) == second and numbers(loader) == third != first
    assert list(RandomSampler(Squares(9), seed=3)) == list(RandomSampler(Squares(9), seed=3)) != list(RandomSampler(Squares(9), seed=4))


def test_ranks_share_the_samples():
    def of(rank, **options):
        return list(DistributedSampler(Squares(10), 4, rank, **options))

    assert [of(rank, shuffle=False) for rank in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    assert [of(rank, shuffle=False, drop_last=True) for rank in range(4)] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    whole = [index for rank in range(4) for index in of(rank)]
    assert set(whole) == set(range(10)) and len(whole) == 12 and of(0) != of(0, seed=1)
    sampler = DistributedSampler(Squares(10), 4, 0)
    before = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != before and len(sampler) == 3
    with pytest.raises(sg.InputError, match="no rank 4 of 4"):
        of(4)


def test_every_rank_shuffles_alike_and_takes_its_own(ranks):
    ended = ranks(2, """
        import shardgrad as sg
        from shardgrad.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split
        world = sg.dist.init(seed=5)
        data = TensorDataset(sg.arange(12))
        train, test = random_split(data, [8, 4])
        order = [x.tolist() for x, in DataLoader(train, 4, shuffle=True)]
        mine = [x.tolist() for x, in DataLoader(data, 3, sampler=DistributedSampler(data))]
        both = sg.zeros(2, 6, dtype=sg.int64)
        world.all_gather(both, sg.tensor(mine).flatten()[None])
        assert sorted(both.flatten().tolist()) == list(range(12))
        print(f"{train.indices} {test.indices} {order}\\n", end="", flush=True)
    """)
    lines = ended.out.splitlines()
    said = [line for line in lines if line.startswith("[")]
    assert len(said) == 2 and said[0] == said[1]


def test_subsets_and_splits():
    data = Squares(10)
    assert [Subset(data, [7, 2])[i][0] for i in range(2)] == [7, 2]
    for lengths, sizes in ([7, 3], [7, 3]), ([0.5, 0.25, 0.25], [6, 2, 2]), ([0.9, 0.1], [9, 1]):
        parts = random_split(data, lengths, seed=1)
        assert [len(part) for part in parts] == sizes and sorted(part[i][0] for part in parts for i in range(len(part))) == list(range(10))
    assert random_split(data, [5, 5], seed=1)[0].indices != random_split(data, [5, 5], seed=2)[0].indices
    for wrong in [5, 4], [0.5, 0.4], [11, -1]:
        with pytest.raises(sg.InputError, match="random_split"):
            random_split(data, wrong)


def test_rows_of_tensors():
    data = TensorDataset(sg.arange(6).reshape(3, 2), sg.tensor([0., 1., 2.]))
    assert len(data) == 3 and [part.tolist() for part in data[1]] == [[2, 3], 1]
    x, y = next(iter(DataLoader(data, batch_size=2)))
    assert x.tolist() == [[0, 1], [2, 3]] and y.tolist() == [0, 1]
    with pytest.raises(sg.InputError, match=r"TensorDataset: tensors of \[3, 2\] rows"):
        TensorDataset(sg.ones(3), sg.ones(2))


def test_what_a_batch_is_made_of():
    Pair = namedtuple("Pair", "a b")
    assert default_collate([True, False]).dtype == sg.uint8 and default_collate([1, 2]).dtype == sg.int64
    assert default_collate([np.ones(2), np.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    batch = default_collate([{"x": sg.ones(2), "y": Pair(1, "a")}, {"x": sg.zeros(2), "y": Pair(2, "b")}])
    assert batch["x"].shape == (2, 2) and batch["y"].a.tolist() == [1, 2] and batch["y"].b == ["a", "b"]
    assert DataLoader(Squares(2), 2, collate_fn=lambda samples: len(samples)).__iter__().__next__() == 2


def test_what_is_no_order_is_refused():
    for wrong in dict(batch_size=0), dict(shuffle=True, sampler=[0]):
        with pytest.raises(sg.InputError, match="DataLoader"):
            DataLoader(Squares(2), **wrong)
    for bare in (lambda: Dataset()[0], lambda: len(Dataset()), lambda: iter(Sampler()), lambda: len(Sampler())):
        with pytest.raises(NotImplementedError):
            bare()
    assert list(SequentialSampler(Squares(3))) == [0, 1, 2]


# --- orders of their own ------------------------------------------------------------------------------------------------

def test_two_loaders_walk_in_two_orders():
    def passes():
        sg.manual_seed(3)
        return [numbers(DataLoader(Squares(20), 20, shuffle=True)) for _ in range(3)]

    first = passes()
    assert len({str(each) for each in first}) == 3 and passes() == first
    one, other = DataLoader(Squares(20), 20, shuffle=True), DataLoader(Squares(20), 20, shuffle=True)
    assert numbers(one) != numbers(other) and numbers(one) != numbers(other)
    assert list(RandomSampler(Squares(20), seed=3)) == list(RandomSampler(Squares(20), seed=3))


def test_two_splits_differ():
    sg.manual_seed(3)
    first, second = (random_split(Squares(20), [10, 10])[0].indices for _ in range(2))
    sg.manual_seed(3)
    assert first != second and random_split(Squares(20), [10, 10], generator=None)[0].indices == first
    assert random_split(Squares(20), [10, 10], 1)[0].indices == random_split(Squares(20), [10, 10], seed=1)[0].indices


def test_new_loaders_are_alike_on_all_ranks(ranks):
    ended = ranks(2, """
        import shardgrad as sg
        from shardgrad.utils.data import DataLoader, TensorDataset
        world = sg.dist.init(seed=5)
        data = TensorDataset(sg.arange(12))
        sg.rand(world.rank, name="of this rank")
        print(f"{[[x.tolist() for x, in DataLoader(data, 12, shuffle=True)] for _ in range(2)]}\\n", end="", flush=True)
    """)
    one, other = (line for line in ended.out.splitlines() if line.startswith("["))
    first, second = eval(one)
    assert one == other and first != second


# --- what is taken, and what is refused ---------------------------------------------------------------------------------

def test_a_batch_of_tuples_is_a_list():
    assert [type(default_collate(samples)) for samples in ([(1, 2.)], [[1, 2.]])] == [list, list]
    assert [part.dtype for part in default_collate([(1, 2.), (3, 4.)])] == [sg.int64, sg.float32]
    assert default_collate([np.float64(1), np.float64(2)]).dtype == sg.float64


def test_whoever_lends_memory_is_collated():
    class Lent:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **options):
            return self.x.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    assert default_collate([Lent(sg.ones(2)), Lent(sg.zeros(2))]).tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize("samples, says", [
    ([[1, 2], [3]], "each element in list of batch should be of equal size"), ([(1,), (1, 2)], "equal size"),
    ([{"a": [1]}, {"a": []}], "equal size"), ([None, None], "of type NoneType"), ([(1, object())], "of type object"), ([{1}, {2}], "of type set")])
def test_what_makes_no_batch(samples, says):
    with pytest.raises(sg.InputError, match=says):
        default_collate(samples)


def test_workers_are_taken_and_mean_nothing():
    loader = DataLoader(Squares(4), 2, num_workers=4, pin_memory=True, persistent_workers=True, prefetch_factor=2, collate_fn=None, generator=None,
                        shuffle=None)
    assert numbers(loader) == [[0, 1], [2, 3]]
    with pytest.raises(sg.InputError, match="batch_size=None, samples without batches"):
        DataLoader(Squares(4), batch_size=None)
    for wrong in (lambda: DataLoader(Squares(4), generator=1), lambda: random_split(Squares(4), [2, 2], generator=1),
                  lambda: RandomSampler(Squares(4), generator=1)):
        with pytest.raises(sg.InputError, match="there are no generators"):
            wrong()


def test_a_walk_over_a_dataset_ends():
    class Rows(Dataset):
        def __init__(self):
            self.rows = sg.arange(6).reshape(3, 2)

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index]

    assert [row.tolist() for row in Rows()] == [[0, 1], [2, 3], [4, 5]]
    assert [index for index, _ in Squares(3)] == [0, 1, 2] and len(list(TensorDataset(sg.ones(2)))) == 2
    assert [index for index, _ in Subset(Squares(9), [7, 2])] == [7, 2]


def test_a_sampler_may_give_anything():
    class Words(Sampler[str]):
        def __iter__(self):
            return iter(["b", "a"])

        def __len__(self):
            return 2

    assert numbers(DataLoader({"a": (1, 1.), "b": (2, 2.)}, 2, sampler=Words())) == [[2, 1]]
