"""NumPy and DLPack, both ways, without copies where that can be; memory that is lent is not taken away."""

import gc

import numpy as np
import pytest

try:
    import torch  # before shardgrad, as docs/python.md says
except ImportError:
    torch = None
import shardgrad as sg


def test_numpy_sees_the_memory_and_writes_to_it():
    x = sg.zeros(2, 3)
    array = x.numpy()
    array[1, 2] = 5
    assert x[1, 2].item() == 5 and array.flags.writeable and not array.flags.owndata
    x += 1
    assert array[0, 0] == 1


def test_numpy_gets_a_copy_where_it_asks_for_one():
    x = sg.zeros(3)
    for copy in np.array(x), np.array(x, dtype=np.float32), np.asarray(x, dtype=np.float64), x.__array__(copy=True):
        copy[0] = 5
        assert x.tolist() == [0, 0, 0] and copy.flags.owndata
    shared = [np.asarray(x), np.asarray(x, dtype=np.float32), x.__array__(copy=False)]
    x += 1
    assert [array.tolist() for array in shared] == [[1, 1, 1]] * 3
    with pytest.raises(ValueError, match="an array of float64 is a copy of a tensor of f32, and copy=False was given"):
        x.__array__(np.dtype(np.float64), copy=False)


def test_an_array_outlives_its_tensor():
    array = (sg.arange(1000) * 2).numpy()
    gc.collect()
    assert array[999] == 1998


def test_from_numpy_shares_memory_and_outlives_the_array():
    array = np.arange(4, dtype=np.float32)
    x = sg.from_numpy(array)
    array[0] = 7
    assert x.tolist() == [7, 1, 2, 3]
    x *= 2
    assert array.tolist() == [14, 2, 4, 6]
    del array
    gc.collect()
    assert x.tolist() == [14, 2, 4, 6]


def test_the_ledger_knows_borrowed_memory():
    before = sg.ledger.categories().get("borrowed", 0)
    x = sg.from_numpy(np.zeros(100, dtype=np.float32))
    assert sg.ledger.current("borrowed") == before + 400
    del x
    gc.collect()
    assert sg.ledger.current("borrowed") == before


@pytest.mark.parametrize("array, words", [
    (np.zeros((3, 4), np.float32).T, "row by row"), (np.zeros(3, np.complex64), "complex"), (np.zeros(3, np.int8), "int")])
def test_what_cannot_be_shared_is_refused_by_name(array, words):
    with pytest.raises(sg.InputError, match=words):
        sg.from_numpy(array)


def test_read_only_arrays_are_copied_not_shared():
    array = np.arange(3, dtype=np.float32)
    array.flags.writeable = False
    assert sg.tensor(array).tolist() == [0, 1, 2]
    with pytest.raises((sg.InputError, BufferError)):
        sg.from_numpy(array)


def test_tensor_copies_what_has_gaps():
    array = np.arange(24).reshape(2, 3, 4)
    for view in (array.T, array[:, ::2], array[:, :, 1], array[::-1], array.transpose(1, 0, 2), array[:0]):
        copy = sg.tensor(view)
        assert np.array_equal(copy.numpy(), view)
    copy = sg.tensor(array)
    array[:] = 0
    assert copy.numpy().sum() == 276


def test_gradients_and_bfloat16_do_not_go_to_numpy():
    with pytest.raises(sg.InputError, match="detach"):
        sg.ones(2, requires_grad=True).numpy()
    assert sg.ones(2, requires_grad=True).detach().numpy().sum() == 2
    with pytest.raises(sg.InputError, match="bfloat16"):
        sg.ones(2, dtype=sg.bfloat16).numpy()


def test_dlpack_to_itself_shares():
    x = sg.arange(4, dtype=sg.bfloat16)
    y = sg.from_dlpack(x)
    y += 1
    assert x.tolist() == [1, 2, 3, 4] and y.dtype == sg.bfloat16
    assert x.__dlpack_device__() == (1, 0)
    capsule = x.__dlpack__()
    z = sg.from_dlpack(capsule)
    with pytest.raises(sg.InputError, match="taken before"):
        sg.from_dlpack(capsule)
    assert z.tolist() == [1, 2, 3, 4]


def test_a_capsule_that_nobody_takes_gives_the_memory_back():
    for version in (None, (1, 0)):
        x = sg.zeros(1000)
        before = sg.ledger.current()
        capsule = x.__dlpack__(max_version=version)
        del x
        gc.collect()
        assert sg.ledger.current() == before
        del capsule
        gc.collect()
        assert sg.ledger.current() == before - 4000


def test_torch_if_it_is_here():
    if torch is None:
        pytest.skip("no PyTorch here")
    x = sg.arange(6, dtype=sg.float32).reshape(2, 3)
    shared = torch.from_dlpack(x)
    shared += 1
    assert x[0, 0].item() == 1
    y = sg.from_dlpack(torch.ones(3, dtype=torch.bfloat16))
    assert y.dtype == sg.bfloat16 and y.tolist() == [1, 1, 1]


def test_refused_arrays_leak_nothing():
    import resource

    def refuse():
        for _ in range(20000):
            with pytest.raises(sg.InputError):
                sg.from_numpy(np.zeros(2, np.complex64))

    refuse()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuse()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1500
