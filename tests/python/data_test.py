"""Datasets, samplers and batches."""

from collections import namedtuple

import numpy as np
import pytest
import shardgrad as sg
from shardgrad.utils.data import (BatchSampler, ConcatDataset, DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler,
                                  Sampler, SequentialSampler, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler,
                                  default_collate, random_split)


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
    for wrong in dict(batch_size=0), dict(shuffle=True, sampler=[0]), dict(batch_sampler=[[0]], batch_size=2), dict(batch_sampler=[], shuffle=True):
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


def test_a_loader_from_before_a_seed_has_another_order_than_one_after_it():
    def orders():
        sg.manual_seed(5)
        before = DataLoader(Squares(20), 20, shuffle=True)
        sg.manual_seed(0)
        after = DataLoader(Squares(20), 20, shuffle=True)
        return numbers(before), numbers(after)

    before, after = orders()
    assert before != after == orders()[1]
    sg.manual_seed(0)
    kept = DataLoader(Squares(20), 20, shuffle=True)
    assert numbers(kept) == after
    for _ in range(2):
        sg.manual_seed(1)
        kept.sampler.set_epoch(0)
        found = numbers(kept)
    sg.manual_seed(1)
    kept.sampler.set_epoch(0)
    assert numbers(kept) == found != after


def test_old_loaders_are_alike_on_all_ranks_and_in_every_run(ranks):
    program = """
        import shardgrad as sg
        from shardgrad.utils.data import DataLoader, TensorDataset
        sg.dist.init(seed=5)
        loaders = [DataLoader(TensorDataset(sg.arange(12)), 12, shuffle=True) for _ in range(2)]
        sg.manual_seed(0)
        print(f"{[[x.tolist() for x, in loader] for loader in loaders]}\\n", end="", flush=True)
    """
    one, other, again, _ = (line for _ in range(2) for line in ranks(2, program).out.splitlines() if line.startswith("["))
    first, second = eval(one)
    assert one == other == again and first != second


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
                        shuffle=None, worker_init_fn=None, timeout=0, batch_sampler=None, multiprocessing_context=None)
    assert numbers(loader) == [[0, 1], [2, 3]]
    with pytest.raises(sg.InputError, match="batch_size=None, samples without batches"):
        DataLoader(Squares(4), batch_size=None)
    for wrong in (lambda: DataLoader(Squares(4), generator=1), lambda: random_split(Squares(4), [2, 2], generator=1),
                  lambda: RandomSampler(Squares(4), generator=1), lambda: SubsetRandomSampler([1], 1), lambda: WeightedRandomSampler([1], 1, generator=1)):
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


def test_loaders_take_pytorchs_order_of_arguments():
    loader = sg.utils.data.DataLoader(list(range(10)), 1, False, None, [[0, 1], [2]])
    assert [batch.tolist() for batch in loader] == [[0, 1], [2]]
    with pytest.raises(sg.InputError, match="num_samples 3 of no samples"):
        sg.utils.data.RandomSampler([], num_samples=3)


# --- more datasets and samplers -----------------------------------------------------------------------------------------

def test_datasets_one_after_another():
    both = Squares(3) + Squares(2)
    assert isinstance(both, ConcatDataset) and len(both) == 5 and [index for index, _ in both] == [0, 1, 2, 0, 1] and both[-1] == (1, 1.)
    assert [index for index, _ in ConcatDataset([Squares(0), Squares(1), both])] == [0, 0, 1, 2, 0, 1]
    for index in 5, -6:
        with pytest.raises(IndexError, match=f"no sample {index} of 5"):
            both[index]
    with pytest.raises(sg.InputError, match="ConcatDataset: there is no dataset"):
        ConcatDataset([])
    with pytest.raises(sg.InputError, match="IterableDataset: Stream would have samples without numbers"):
        class Stream(IterableDataset):
            pass


def test_a_sampler_of_batches():
    assert list(BatchSampler(range(7), 3, False)) == [[0, 1, 2], [3, 4, 5], [6]] and list(BatchSampler(range(7), 3, True)) == [[0, 1, 2], [3, 4, 5]]
    assert (len(BatchSampler(range(7), 3, False)), len(BatchSampler(range(7), 3, True))) == (3, 2)
    loader = DataLoader(Squares(9), batch_sampler=[[8, 1], [3]])
    assert numbers(loader) == [[8, 1], [3]] and len(loader) == 2 and loader.batch_size is None
    sampler = RandomSampler(Squares(9), seed=1)
    assert DataLoader(Squares(9), batch_sampler=BatchSampler(sampler, 4, False)).sampler is sampler
    assert isinstance(DataLoader(Squares(9), 4).batch_sampler, BatchSampler) and numbers(DataLoader(Squares(9), batch_sampler=[])) == []


def test_samples_drawn_as_pytorchs_samplers_do():
    repeated = list(RandomSampler(Squares(4), num_samples=10))
    assert len(repeated) == 10 and sorted(repeated[:4]) == sorted(repeated[4:8]) == [0, 1, 2, 3] and repeated[:4] + repeated[:4] != repeated[:8]
    drawn = RandomSampler(Squares(4), replacement=True, num_samples=4000, seed=1)
    counts = np.bincount(list(drawn))
    assert len(drawn) == 4000 and counts.sum() == 4000 and all(900 < count < 1100 for count in counts)
    some = SubsetRandomSampler([7, 5, 3, 9], seed=2)
    first, second = list(some), list(some)
    assert sorted(first) == sorted(second) == [3, 5, 7, 9] and first != second and len(some) == 4
    weighted = WeightedRandomSampler(sg.tensor([0., 1., 3.]), 4000, seed=3)
    counts = np.bincount(list(weighted))
    assert len(weighted) == 4000 and counts[0] == 0 and 2850 < counts[2] < 3150
    for seed in range(20):
        assert sorted(WeightedRandomSampler([1, 0, 5, 2], 3, replacement=False, seed=seed)) == [0, 2, 3]
    firsts = [list(WeightedRandomSampler([1, 3], 1, False, seed=seed))[0] for seed in range(2000)]
    assert 1420 < sum(firsts) < 1580


@pytest.mark.parametrize("make, says", [
    (lambda: RandomSampler(Squares(4), 3), "RandomSampler: replacement 3 is neither .* seed="), (lambda: RandomSampler(Squares(4), num_samples=0), "num_samples 0"),
    (lambda: WeightedRandomSampler([1, -1], 1), "weights are numbers"), (lambda: WeightedRandomSampler([0], 1), "weights"),
    (lambda: WeightedRandomSampler([1, 0], 2, False), "2 different samples of 1"), (lambda: WeightedRandomSampler([1], 0), "num_samples 0"),
    (lambda: BatchSampler([1], 0, False), "BatchSampler: batch_size 0"), (lambda: DataLoader(Squares(4), 0), "DataLoader: batch_size 0")])
def test_what_draws_nothing(make, says):
    with pytest.raises(sg.InputError, match=says):
        make()


def test_a_sampler_may_give_anything():
    class Words(Sampler[str]):
        def __iter__(self):
            return iter(["b", "a"])

        def __len__(self):
            return 2

    assert numbers(DataLoader({"a": (1, 1.), "b": (2, 2.)}, 2, sampler=Words())) == [[2, 1]]
