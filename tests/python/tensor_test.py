"""Tensors as objects of Python: making, printing, converting, indexing, and what is refused, with the library's words."""

import copy
import pickle
import threading

import numpy as np
import pytest
import shardgrad as sg


def test_numbers_lists_and_arrays_become_tensors_of_the_dtype_one_expects():
    assert sg.tensor([1, 2]).dtype == sg.int64
    assert sg.tensor([1, 2.5]).dtype == sg.float32
    assert sg.tensor([True, False]).dtype == sg.uint8
    assert sg.tensor(3).shape == () and sg.tensor([]).shape == (0,) and sg.tensor([[]]).shape == (1, 0)
    assert sg.tensor(2**62 + 1).item() == 2**62 + 1  # no way through floating point
    assert sg.tensor([0.1], dtype=sg.float64).item() == 0.1
    assert sg.tensor([1, 2], dtype=sg.bfloat16).tolist() == [1.0, 2.0]
    assert sg.tensor(np.float32(0.5)).item() == 0.5 and sg.tensor(np.int32(7)).item() == 7
    for dtype in ("float32", "float64", "int64", "int32", "uint8", "float16"):
        array = np.arange(6).astype(dtype).reshape(2, 3)
        assert np.array_equal(sg.tensor(array).numpy(), array) and str(sg.tensor(array).dtype) == f"shardgrad.{dtype}"


@pytest.mark.parametrize("data, words", [
    ([[1, 2], [3]], "different lengths"), ([1, [2]], "different depths"), ([[1], 2], "different depths"), (["a"], "is no number"), ([2**70], "does not fit"),
    (None, "is no number")])
def test_what_is_no_tensor_is_refused(data, words):
    with pytest.raises(sg.InputError, match=words):
        sg.tensor(data)


def test_errors_are_the_librarys_sentences_and_kinds():
    with pytest.raises(ValueError, match=r"matmul: \[2, 3\] x \[2, 3\]") as error:
        sg.zeros(2, 3) @ sg.zeros(2, 3)
    assert isinstance(error.value, sg.Error) and isinstance(error.value, RuntimeError)
    with pytest.raises(sg.MissingError):
        sg.zeros(2, device="cuda")
    with pytest.raises(sg.InputError, match="unknown device 'tpu'"):
        sg.zeros(2, device="tpu")
    with pytest.raises(sg.OutOfMemoryError):
        sg.zeros(1 << 50)
    assert issubclass(sg.OutOfMemoryError, MemoryError)


def test_shapes_come_one_by_one_or_as_a_list():
    assert sg.zeros(2, 3).shape == sg.zeros((2, 3)).shape == sg.zeros([2, 3]).shape == (2, 3)
    assert sg.zeros(()).shape == sg.zeros().shape == ()
    assert sg.ones(6).reshape(2, -1).shape == sg.ones(6).view((2, 3)).shape == (2, 3)
    with pytest.raises(sg.InputError, match="zeros: '2.5' is given where an integer belongs"):
        sg.zeros(2.5)


def test_printing():
    assert repr(sg.tensor([[1., 2.], [3., 4.]])) == "tensor([[1. 2.]\n        [3. 4.]])"
    assert repr(sg.tensor([1, 2])) == "tensor([1 2])"
    assert repr(sg.zeros(1, dtype=sg.float64, requires_grad=True)) == "tensor([0.], dtype=float64, requires_grad=True)"
    assert repr(sg.float32) == "shardgrad.float32"


def test_a_tensor_as_a_number_a_truth_and_an_index():
    assert float(sg.tensor(2.5)) == 2.5 and int(sg.tensor(2.5)) == 2 and [10, 20, 30][sg.tensor(2)] == 30
    assert sg.tensor(1.5) > 1 and not sg.tensor(0.)
    with pytest.raises(sg.InputError):
        bool(sg.ones(2) > 0)
    with pytest.raises(sg.InputError, match="item"):
        sg.ones(2).item()
    with pytest.raises(sg.InputError, match="no index"):
        [1, 2][sg.tensor(1.)]


def test_operators_with_numbers_and_what_they_do_not_know():
    x = sg.tensor([4., 9.])
    assert (1 + x - 2).tolist() == [3, 8] and (2 / x)[0].item() == 0.5
    assert (-x).tolist() == [-4, -9] and abs(-x).tolist() == [4, 9] and (x // 2).tolist() == [2, 4]
    assert (x == 4).tolist() == [1, 0] and (~(x == 4)).tolist() == [0, 1] and (x != None) is True  # noqa: E711
    with pytest.raises(TypeError):
        x + "a"
    assert (sg.tensor([1, 2]) + 1).dtype == sg.int64
    with pytest.raises(sg.InputError):
        sg.tensor([1, 2]) + 0.5
    assert len({x: 1, x.clone(): 2}) == 2  # by identity, as keys


def test_a_number_is_divided_by_a_tensor_with_its_remainder():
    x = sg.tensor([3., -4., 0.5])
    assert (7 % x).tolist() == (7 % x.numpy()).tolist() and (7 // x).tolist() == (7 // x.numpy()).tolist()
    assert (7 % sg.tensor([3, -4])).tolist() == [1, -1] and (7 % sg.tensor([3])).dtype == sg.int64
    assert (2.5 % sg.tensor([2.])).item() == 0.5
    with pytest.raises(sg.InputError, match="floor_divide: the float 2.5"):
        2.5 // sg.tensor([2])
    with pytest.raises(TypeError):
        [1] // sg.tensor([2])


def test_in_place_keeps_the_object():
    x = sg.tensor([1., 2.])
    y = x
    x += 1
    x *= sg.tensor([2., 3.])
    assert x is y and y.tolist() == [4, 9]
    w = sg.ones(2, requires_grad=True)
    with pytest.raises(sg.InputError):
        z = w * 2
        z += w
    with sg.no_grad():
        w += 1
    assert w.tolist() == [2, 2]


def test_indices():
    x = sg.arange(12).reshape(3, 4)
    array = np.arange(12).reshape(3, 4)
    for i in (1, -1, slice(1, 3), slice(None, None, 2), (slice(None), 2), (..., 0), (None, 1), (1, 2), (slice(-2, None), slice(1, 9))):
        assert np.array_equal(x[i].numpy(), array[i]), i
    assert x[x > 5].tolist() == [6, 7, 8, 9, 10, 11] and x[[2, 0]].tolist() == array[[2, 0]].tolist()
    x[0] = sg.tensor([9, 9, 9, 9])
    x[1, 2] = -1
    x[x > 10] = 0
    assert x.tolist() == [[9, 9, 9, 9], [4, 5, -1, 7], [8, 9, 10, 0]]
    assert [row.tolist() for row in x] == x.tolist() and len(x) == 3
    for wrong in (3, (0, 4), (0, 0, 0)):
        with pytest.raises(sg.InputError):
            x[wrong]
    with pytest.raises(sg.InputError, match="no index"):
        x["a"]


def test_index_assignment_that_would_lose_a_gradient_is_refused():
    w = sg.ones(3, requires_grad=True)
    with pytest.raises(sg.InputError):
        (w * 2)[0] = 1.
    x = sg.zeros(3)
    with pytest.raises(sg.InputError, match="index_put"):
        x[0] = w.sum()
    sg.index_put(x, 0, w.sum()).sum().backward()
    assert w.grad.tolist() == [1, 1, 1]


def test_numpy_takes_no_tensor_apart_behind_ones_back():
    w = sg.ones(2, requires_grad=True)
    array = np.ones(2, dtype=np.float32)
    for mixed in (lambda: w + array, lambda: array + w, lambda: np.sin(w), lambda: array @ w):
        with pytest.raises(TypeError):  # the result would be an array, without a graph
            mixed()
    assert (np.float32(2) * w).requires_grad and (w * np.float64(2)).tolist() == [2, 2]
    with pytest.raises(sg.InputError, match="detach"):
        np.asarray(w)
    assert np.asarray(w.detach()).tolist() == [1, 1]
    assert sg.ones(3)[np.array([0, 2])].tolist() == [1, 1]


def test_names_that_pytorch_programs_type():
    x = sg.tensor([[3., -4.], [0., 1.]])
    assert x.norm(1).item() == 8 and x.norm(float("inf"), dim=1).tolist() == [4, 1] and abs(x[0].norm(3).item() - 91 ** (1 / 3)) < 1e-5
    assert x.norm(dim=1).tolist() == [5, 1] and x.norm(2, 1, True).shape == (2, 1)
    assert abs(x.var(unbiased=False).item() - x.var(correction=0).item()) == 0
    assert sg.allclose(x, x + 1e-9) and not sg.allclose(x, x + 1) and x.equal(x.clone()) and not x.equal(x[0])
    assert sg.randint(7, (3,)).shape == (3,) and sg.randint(5, 6, (2,)).tolist() == [5, 5]
    assert x.to(dtype=sg.float64).dtype == sg.double and x.to("cpu", sg.float16).dtype == sg.half and x.bool().tolist() == [[1, 1], [0, 1]]
    assert f"{x[0, 0]:.2f}" == "3.00" and f"{x[0]}" == "tensor([ 3. -4.])"
    y = sg.ones(2)
    assert y.add_(1).mul_(3).sub_(sg.ones(2)).div_(5) is y and y.tolist() == [1, 1]


def test_devices_are_names_that_know_their_parts():
    cpu, gpu = sg.device("cpu"), sg.device("cuda:0")
    x = sg.ones(2, device=cpu)
    assert x.device == cpu == "cpu" and x.device.type == "cpu" and x.device.index is None and not x.is_cuda
    assert gpu == sg.device("cuda", 0) == "cuda" and (gpu.type, gpu.index) == ("cuda", 0)
    assert x.to(cpu, non_blocking=True).tolist() == x.to(sg.float64, non_blocking=True).tolist() == [1, 1]
    assert sg.nn.Linear(2, 2).to(cpu, non_blocking=True).weight.device == cpu
    for wrong, says in ("tpu", "unknown device 'tpu'"), ("cuda:1", "a rank has one device"), ("cuda:x", "cuda:x"):
        with pytest.raises(sg.InputError, match=says):
            sg.device(wrong)
    assert sg.cuda.is_available() == (sg.cuda.device_count() > 0)


def test_asking_for_a_gpu_begins_nothing(alone):
    alone("""
        import shardgrad as sg
        device = sg.device("cuda" if sg.cuda.is_available() else "cpu")
        sg.dist.init(seed=3)
        assert sg.initial_seed() == 3
    """)


def test_threads_compute_in_the_same_context():
    found = []
    sg.ones(1)
    threads = [threading.Thread(target=lambda i=i: found.append((sg.ones(100, 100) * i).sum().item())) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 10000, 20000, 30000]


def test_random_numbers_follow_the_seed():
    sg.manual_seed(3)
    first = sg.randn(4).tolist(), sg.randint(0, 9, (5,)).tolist(), sg.randperm(5).tolist()
    sg.manual_seed(3)
    assert first == (sg.randn(4).tolist(), sg.randint(0, 9, (5,)).tolist(), sg.randperm(5).tolist())
    sg.manual_seed(4)
    assert first[0] != sg.randn(4).tolist()
    assert sg.randn(3, name="a").tolist() != sg.randn(3, name="b").tolist()


def test_several_results_are_named():
    values, indices = sg.tensor([[1., 3.], [5., 2.]]).max(1)
    assert values.tolist() == [3, 5] and indices.tolist() == [1, 0]
    assert sg.tensor([3., 1., 2.]).sort().indices.tolist() == [1, 2, 0]
    assert sg.tensor([1., 2.]).max(sg.tensor([0., 5.])).tolist() == [1, 5]
    assert sg.tensor([1., 2.]).max().item() == 2


def test_copies_and_pickles():
    x = sg.tensor([1., 2.])
    y = copy.deepcopy(x)
    y += 1
    assert x.tolist() == [1, 2] and y.tolist() == [2, 3]
    assert pickle.loads(pickle.dumps(x)).tolist() == [1, 2]
    w = pickle.loads(pickle.dumps(sg.ones(2, 3, dtype=sg.bfloat16, requires_grad=True)))
    assert w.requires_grad and w.dtype == sg.bfloat16 and w.shape == (2, 3)


def test_a_scalar_has_no_order_to_turn():
    assert sg.flip(sg.tensor(3.), []).item() == sg.tensor(3.).flip(()).item() == 3


def test_einsum():
    a, b = sg.randn(2, 3, 4), sg.randn(2, 4, 5)
    assert sg.einsum("bij,bjk->bik", a, b).tolist() == sg.einsum("bij,bjk->bik", [a, b]).tolist() == (a @ b).tolist()
    x = a.numpy()
    assert np.allclose(sg.einsum("...ij->...ji", a).numpy(), np.einsum("...ij->...ji", x))
    assert np.allclose(sg.einsum("bij,bij", a, a).item(), np.einsum("bij,bij", x, x))
    with pytest.raises(sg.InputError, match="einsum: '3' is no tensor"):
        sg.einsum("i", 3)
    with pytest.raises(sg.InputError, match="einsum: 'ij' names 2 dimensions of operand 0"):
        sg.einsum("ij", a)


def test_equal_extremes_have_equal_parts_of_the_gradient():
    for of, expected in ((lambda x: x.max(), [0.5, 0, 0.5]), (lambda x: x.norm(float("inf")), [0.5, 0, 0.5]),
                         (lambda x: sg.amin(-x), [-0.5, 0, -0.5]), (lambda x: x.max(0).values, [1, 0, 0])):
        x = sg.tensor([3., 1., 3.], requires_grad=True)
        of(x).backward()
        assert x.grad.tolist() == expected


def test_reductions_go_over_several_dimensions():
    x = sg.arange(24).to(sg.float64).reshape(2, 3, 4)
    rows = x.permute(1, 0, 2).reshape(3, 8)
    assert x.amax((0, 2)).tolist() == [15, 19, 23] and x.amin(dim=(0, -1), keepdim=True).shape == (1, 3, 1)
    for name in ("var", "std", "logsumexp"):
        assert getattr(x, name)((0, 2)).tolist() == pytest.approx(getattr(rows, name)(1).tolist()), name
        assert getattr(x, name)(dim=[0, 2], keepdim=True).shape == (1, 3, 1)
    for p in (1, 2, 3, float("inf")):
        assert x.norm(p, dim=(0, 2)).tolist() == pytest.approx(rows.norm(p, dim=1).tolist())
    assert (x > 14).any((0, 2)).tolist() == [1, 1, 1] and (x > 14).all(dim=(0, 2), keepdim=True).shape == (1, 3, 1)
    with pytest.raises(sg.InputError, match="twice"):
        x.var((0, 0))


def test_fractions_in_lists_stay_fractions():
    assert sg.tensor([sg.tensor(1.5), sg.tensor(2.5)]).tolist() == [1.5, 2.5]
    assert sg.tensor([np.array(1.5)]).tolist() == [1.5] and sg.tensor([[np.float32(0.5)]]).tolist() == [[0.5]]
    assert sg.tensor([sg.tensor(3), np.int32(4)]).dtype == sg.int64


def test_a_scalar_may_be_told_its_dimension():
    x = sg.tensor(3., requires_grad=True)
    for of in (lambda x, d: x.sum(d), lambda x, d: x.mean(d, keepdim=True), lambda x, d: x.prod(d), lambda x, d: x.amax((d,)), lambda x, d: x.max(d).values,
               lambda x, d: x.norm(dim=d), lambda x, d: x.norm(3, d), lambda x, d: x.cumsum(d), lambda x, d: x.logsumexp(d),
               lambda x, d: x.sort(d).values, lambda x, d: x.topk(1, d).values):
        for dim in 0, -1:
            y = of(x, dim)
            assert y.shape == () and y.item() == pytest.approx(3), of
        x.grad = None
        y.backward()
        assert x.grad.item() == pytest.approx(1) and x.grad.shape == ()
        with pytest.raises(sg.InputError, match="no dimension 1"):
            of(x, 1)
    assert x.softmax(0).item() == x.softmax(-1).item() == 1 and x.log_softmax(0).item() == 0 and x.std(0, correction=0).item() == 0
    assert x.argmax(0).item() == x.max(0).indices.item() == x.argsort(0).item() == 0 and x.any(0).item() == 1 and x.all(-1).shape == ()
    assert sg.zeros(0, 3).logsumexp(0).tolist() == [-sg.inf] * 3 and sg.tensor([1., 2.]).var(0, correction=2).item() == sg.inf


def test_other_lines():
    assert sg.from_numpy(np.ones((0, 3), np.float32)).shape == (0, 3)
    x = sg.zeros(3)
    x[0:2] = [1, 2]
    x[2] = np.float32(5)
    assert x.tolist() == [1, 2, 5]
    y = sg.ones(2, requires_grad=True)
    sg.checkpoint(lambda a: a.exp(), y, use_reentrant=False).sum().backward()
    sg.checkpoint(lambda a, name: a.exp(), y, name="mine").sum().backward()
