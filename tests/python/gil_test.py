"""A call that computes or waits lets other threads of Python go on."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import shardgrad as sg
from counting import counted_during
from shardgrad import nn, optim

LARGE = np.ones(48 << 20, np.float32)


def test_the_count_stands_still_while_the_lock_is_held():
    def hash_of_bytes():
        hash(LARGE.tobytes())

    assert any(counted_during(hash_of_bytes) <= 5 for _ in range(10)), "of ten, on a machine that has other work, too"


def a_matmul():
    x = sg.ones(1500, 1500)
    return lambda: x @ x


def a_copy_of_an_array():
    return lambda: sg.tensor(LARGE)


def a_copy_that_is_lent():
    x = sg.from_numpy(LARGE)
    return lambda: x.__dlpack__(max_version=(1, 0), copy=True)


def a_new_buffer():
    x = sg.from_numpy(LARGE)
    return lambda: nn.Sequential().register_buffer("large", x)


def a_backward():
    x = sg.ones(1500, 1500, requires_grad=True)
    y = (x @ x).sum()
    return lambda: y.backward(retain_graph=True)


def an_update():
    weight = nn.Parameter(sg.ones(16 << 20))
    weight.sum().backward()
    return optim.AdamW([weight]).step


def a_file_that_is_read():
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "large.safetensors")
    sg.save({"large": sg.ones(32 << 20)}, path)
    return lambda: sg.load(path) if folder else None  # which is there as long as the call


@pytest.mark.parametrize("prepared", [a_matmul, a_copy_of_an_array, a_copy_that_is_lent, a_new_buffer, a_backward, an_update, a_file_that_is_read])
def test_a_thread_counts_while_another_makes(prepared):
    call = prepared()
    assert any(counted_during(call) > 5 for _ in range(10)), "of ten, on a machine that has other work, too"


def test_a_thread_counts_while_another_waits_for_a_number(alone):
    alone(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from counting import counted_during
        import shardgrad as sg
        sg.dist.init(device="acc")  # which computes by itself: only who asks for the number waits
        x = sg.ones(1500, 1500)
        def counted(call):
            y = (x @ x).sum()
            return counted_during(lambda: call(y))
        for call in (lambda y: y.item(), lambda y: y.tolist(), float, bool):
            assert any(counted(call) > 5 for _ in range(10)), "of ten, on a machine that has other work, too"
    """)


def test_a_thread_counts_while_another_waits_for_ranks_and_for_files(ranks):
    program = f"""
    import sys, time
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from counting import counted_during
    import shardgrad as sg
    from shardgrad import nn, optim
    world = sg.dist.init()

    def with_a_late_rank(call):
        given = []
        if world.rank == 1:
            time.sleep(0.5)
        counted = counted_during(lambda: given.append(call()))
        assert counted > 5 or world.rank == 1, counted
        return given[0]

    with_a_late_rank(world.barrier)
    with_a_late_rank(lambda: world.all_reduce(sg.ones(1 << 20)))
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12)))
    sharded = with_a_late_rank(lambda: sg.fully_shard(model))
    with_a_late_rank(sharded.full_state_dict)
    optimizer = optim.AdamW(model.parameters())
    nn.functional.mse_loss(model(sg.ones(1, 1024)), sg.zeros(1, 1024), count=2048).backward()
    optimizer.step()
    for call in (lambda: sg.save_checkpoint("run", model, sharded, optimizer, step=1),
                 lambda: sg.load_checkpoint("run", model, sharded, optimizer)):
        counted = counted_during(call)
        assert counted > 5, counted
    print("went on")
    """
    assert ranks(2, program).out.count("went on") == 2
