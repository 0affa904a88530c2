"""Gradients from Python: leaves, grad(), hooks, scopes, operations of one's own, recompute, and errors on the way."""

import gc
import sys
import weakref

import pytest
import shardgrad as sg
from shardgrad import nn


class Cube(sg.Function):
    @staticmethod
    def forward(ctx, x, times):
        ctx.save_for_backward(x)
        ctx.times = times
        return x * x * x * times

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 3 * ctx.times * x * x * dy, None


def leaf(*numbers):
    return sg.tensor(list(numbers), dtype=sg.float32, requires_grad=True)


def test_backward_adds_to_leaves():
    x = leaf(1, 2)
    (x * x).sum().backward()
    (x * x).sum().backward()
    assert x.grad.tolist() == [4, 8] and x.is_leaf
    x.grad = None
    assert x.grad is None
    y = x * 2
    y.backward(sg.tensor([1., 10.]))
    assert x.grad.tolist() == [2, 20]
    with pytest.raises(sg.InputError):
        y.backward(sg.tensor([1., 10.]))


def test_grad_leaves_leaves_alone():
    x, w = leaf(1, 2), leaf(3, 4)
    dx, dw, none = sg.grad((x * w).sum(), [x, w, leaf(1)])
    assert dx.tolist() == [3, 4] and dw.tolist() == [1, 2] and none is None and x.grad is None


def test_an_unused_input_is_none_or_refused():
    x, unused = leaf(1), leaf(2)
    assert sg.grad(x.sum(), [x, unused], allow_unused=True)[1] is None
    with pytest.raises(sg.InputError, match="grad: the outputs do not depend on input 1; with allow_unused=True"):
        sg.grad(x.sum(), [x, unused], allow_unused=False)
    assert sg.grad(x.sum(), [x], allow_unused=False)[0].tolist() == [1]


def test_double_backward_is_refused_in_the_engines_words():
    x = leaf(1)
    y = (x * x).sum()
    for wrong in (lambda: sg.grad(y, x, create_graph=True), lambda: y.backward(create_graph=True),
                  lambda: sg.backward([y], create_graph=True)):
        with pytest.raises(sg.InputError, match="Gradients themselves are not recorded: double backward is not supported"):
            wrong()
    sg.grad(y, x, create_graph=False, retain_graph=True)
    y.backward(create_graph=False)
    assert x.grad.tolist() == [2]


def test_autocast_is_written_in_two_ways():
    x = sg.ones(2, 2)

    def dtype(*words, **options):
        with sg.autocast(*words, **options):
            return (x @ x).dtype

    for words in (sg.bfloat16,), ("cuda", sg.bfloat16), ("cpu",), (sg.device("cpu"),):
        assert dtype(*words) == sg.bfloat16, words
    assert dtype("cuda") == sg.float16 and dtype(device_type="cuda", dtype=sg.bfloat16) == dtype(dtype=sg.bfloat16) == sg.bfloat16
    assert dtype("cuda", sg.bfloat16, enabled=False) == dtype(None) == sg.float32
    with pytest.raises(sg.InputError, match="unknown device 'tpu'"):
        sg.autocast("tpu")


def test_inference_mode_records_nothing():
    x = leaf(1)

    @sg.inference_mode
    def plain():
        return (x * 2).requires_grad

    @sg.inference_mode()
    def called():
        return (x * 2).requires_grad

    with sg.inference_mode():
        assert not (x * 2).requires_grad
    assert not plain() and not called() and (x * 2).requires_grad


def test_scopes_also_as_decorators_and_nested():
    x = leaf(1)
    with sg.no_grad():
        assert not (x * 2).requires_grad and not sg.is_grad_enabled()
        with sg.enable_grad():
            assert (x * 2).requires_grad

    @sg.no_grad()
    def depth(n):
        assert not sg.is_grad_enabled()
        return n if n == 0 else depth(n - 1)

    depth(3)
    assert sg.is_grad_enabled()
    with pytest.raises(KeyError):
        with sg.no_grad():
            raise KeyError
    assert sg.is_grad_enabled()
    with sg.autocast(sg.bfloat16):
        assert (sg.ones(2, 2) @ sg.ones(2, 2)).dtype == sg.bfloat16


def test_hooks_see_and_replace_gradients():
    x = leaf(1, 2)
    seen = []
    x.register_hook(lambda grad: seen.append(grad.tolist()))
    y = x * 3
    y.register_hook(lambda grad: grad * 10)
    y.retain_grad()
    y.sum().backward()
    assert seen == [[30, 30]] and x.grad.tolist() == [30, 30] and y.grad.tolist() == [10, 10]


def test_an_exception_in_a_hook_comes_out_as_it_was():
    x = leaf(1)

    def hook(grad):
        raise ZeroDivisionError("mine")

    x.register_hook(hook)
    with pytest.raises(ZeroDivisionError, match="mine"):
        (x * 2).sum().backward()


def test_a_function_of_ones_own():
    x = leaf(2, 3)
    Cube.apply(x, 2).sum().backward()
    assert x.grad.tolist() == [24, 54]
    assert not Cube.apply(sg.ones(2), 1).requires_grad
    with sg.no_grad():
        assert not Cube.apply(x, 1).requires_grad


def test_a_function_with_several_results_of_which_one_is_used():
    class Both(sg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, da, db):
            return 2 * da + 3 * db

    x = leaf(1)
    Both.apply(x)[1].sum().backward()
    assert x.grad.tolist() == [3]


def test_a_functions_result_of_integers_requires_no_grad():
    class Sorted(sg.Function):
        @staticmethod
        def forward(ctx, x):
            values, places = x.sort()
            ctx.save_for_backward(places)
            return values, places

        @staticmethod
        def backward(ctx, dv, dp):
            (places,) = ctx.saved_tensors
            assert dp.tolist() == [0, 0, 0]
            return sg.zeros(3).scatter_add(0, places, dv)

    x = leaf(3, 1, 2)
    values, places = Sorted.apply(x)
    assert values.requires_grad and not places.requires_grad and places.is_leaf
    assert places.numpy().tolist() == [1, 2, 0]
    (values * sg.tensor([1., 2., 3.])).sum().backward()
    assert x.grad.tolist() == [3, 1, 2]


def test_a_kept_gradient_can_be_forgotten():
    y = leaf(1, 2) * 3
    y.retain_grad()
    loss = (y * y).sum()
    for _ in range(2):
        loss.backward(retain_graph=True)
        assert y.grad.tolist() == [6, 12]
        y.grad = None
        assert y.grad is None


def test_an_input_may_be_given_twice_and_be_an_output():
    x = leaf(2)
    assert [g.tolist() for g in sg.grad((x * 3).sum(), [x, x])] == [[3], [3]]
    assert sg.grad(x, x)[0].tolist() == [1] and x.grad is None


def test_autocast_assigns_values_of_another_width():
    wide, narrow = sg.zeros(2), sg.ones(2).to(sg.bfloat16)
    with sg.autocast(sg.bfloat16):
        wide[0:2] = narrow
        narrow[0:1] = wide[0:1] * 3
    assert wide.dtype == sg.float32 and wide.tolist() == [1, 1]
    assert narrow.dtype == sg.bfloat16 and narrow.tolist() == [3, 1]


def test_a_function_may_save_its_result_and_give_back_its_argument():
    class Exp(sg.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            (y,) = ctx.saved_tensors
            return y * dy

    class Same(sg.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 5

    x = leaf(0)
    Same.apply(Exp.apply(x)).sum().backward()
    assert x.grad.tolist() == [5]


@pytest.mark.parametrize("given, words", [
    (lambda dy: (dy, dy, dy), "3 gradients"), (lambda dy: (dy[0], None), r"f32\[\] on cpu"), (lambda dy: ("a", None), "gradient 0 .*'a'")])
def test_a_wrong_gradient_is_refused_with_the_functions_name(given, words):
    class Wrong(sg.Function):
        @staticmethod
        def forward(ctx, x, n):
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            return given(dy)

    with pytest.raises(sg.InputError, match="Wrong.*" + words):
        Wrong.apply(leaf(1, 2), 3).sum().backward()


def test_what_a_function_saved_and_was_changed_since_is_refused():
    x = leaf(1)
    y = x * 1
    z = Cube.apply(y, 1)
    with sg.no_grad():
        y += 1
    with pytest.raises(sg.InputError, match="Cube"):
        z.sum().backward()


def test_recompute_gives_the_same_gradient_and_runs_twice():
    runs = []

    def block(x, scale=1.):
        runs.append(1)
        return Cube.apply((x * 0.1).exp(), 1) * scale + sg.dropout(x, 0.5, name="recompute")

    sg.manual_seed(1)
    x = leaf(*range(32))
    block(x, scale=2.).sum().backward()
    expected = x.grad.tolist()
    sg.manual_seed(1)
    y = leaf(*range(32))
    runs.clear()
    loss = sg.checkpoint(block, y, scale=2.).sum()
    assert len(runs) == 1
    loss.backward()
    assert len(runs) == 2 and y.grad.tolist() == expected


def test_recompute_whose_second_run_fails_or_differs_says_so():
    state = []

    def fails(x):
        state.append(1)
        if len(state) == 2:
            raise LookupError("second run")
        return x.exp()

    with pytest.raises(LookupError, match="second run"):
        sg.checkpoint(fails, leaf(1)).sum().backward()
    state.clear()

    def differs(x):
        state.append(1)
        return x.exp() if len(state) == 1 else x.sin()

    with pytest.raises(sg.Error):
        sg.checkpoint(differs, leaf(1)).sum().backward()


def test_a_graph_frees_what_it_holds():
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    x = leaf(1, 2)
    gc.collect()
    x_before = sg.ledger.current()
    y = sg.checkpoint(lambda a, t: a.exp().exp(), x, thing)
    del thing
    assert gone() is not None
    y.sum().backward()
    del y
    gc.collect()
    assert gone() is None
    assert sg.ledger.current() == x_before + 8  # the gradient


def test_recompute_keeps_arguments_only_where_the_library_does():
    x = leaf(1, 2)
    before = sys.getrefcount(x)
    y = sg.checkpoint(lambda a, more: a.exp() * more["scale"], x, {"scale": 2., "same": [x]})
    assert sys.getrefcount(x) == before  # the graph has C++'s handle, which it may move to the host
    y.sum().backward()


def test_anomaly_mode_names_the_operation():
    x = leaf(-1)
    with sg.detect_anomaly():
        with pytest.raises(sg.InputError, match="log|sqrt"):
            x.sqrt().sum().backward()


def test_many_nodes_of_python_are_freed_without_recursion():
    x = leaf(1)
    y = x
    for _ in range(20000):
        y = Cube.apply(y * 0, 1)
    del y
    gc.collect()


def test_a_function_may_give_none_beyond_its_arguments():
    class Doubled(sg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 2, None, None

    class Other(Doubled):
        @staticmethod
        def backward(ctx, dy):
            return dy * 2, dy

    x = sg.ones(2, requires_grad=True)
    Doubled.apply(x).sum().backward()
    assert x.grad.tolist() == [2., 2.]
    with pytest.raises(sg.InputError, match="gave 2 gradients"):
        Other.apply(x).sum().backward()


def test_settings_of_gradients():
    sg.set_grad_enabled(False)
    try:
        assert not sg.is_grad_enabled()
    finally:
        sg.set_grad_enabled(True)
    assert sg.is_grad_enabled()
    with sg.no_grad():
        sg.set_grad_enabled(True)
        assert sg.is_grad_enabled()
    assert sg.is_grad_enabled()
    with sg.set_grad_enabled(False):
        assert not sg.is_grad_enabled()
    assert sg.is_grad_enabled()
    for _ in range(3):
        sg.set_grad_enabled(False)
    sg.set_grad_enabled(True)
    assert sg.is_grad_enabled()

    @sg.no_grad
    def plain():
        return sg.is_grad_enabled()

    @sg.set_grad_enabled(False)
    def off():
        return sg.is_grad_enabled()

    assert not plain() and not off() and sg.is_grad_enabled()


def test_a_decorated_generator_keeps_its_setting_to_itself():
    @sg.no_grad()
    def steps(n):
        total = 0
        for _ in range(n):
            try:
                got = yield sg.is_grad_enabled()
                total += got or 0
            except KeyError:
                yield "caught"
        return total

    run = steps(3)
    assert next(run) is False and sg.is_grad_enabled()
    assert run.send(5) is False and run.throw(KeyError()) == "caught" and sg.is_grad_enabled()
    assert next(run) is False
    with pytest.raises(StopIteration) as end:
        run.send(2)
    assert end.value.value == 7 and sg.is_grad_enabled()


def test_a_scope_left_on_another_thread_is_harmless(alone):
    alone("""
        import threading
        import shardgrad as sg
        sg.ones(1)
        scope = sg.no_grad()
        thread = threading.Thread(target=scope.__enter__)
        thread.start()
        thread.join()
        scope._entered.pop().close()
        assert sg.is_grad_enabled()
    """)


def test_saved_tensors_keep_their_places_and_say_when_they_are_gone():
    kept = []

    class Two(sg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            kept.append(ctx)
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            x, nothing = ctx.saved_tensors
            assert nothing is None
            return dy

    Two.apply(sg.ones(1, requires_grad=True)).backward()
    with pytest.raises(sg.InputError, match="freed"):
        kept[0].saved_tensors


def test_recompute_across_a_switch_of_mode_is_refused():
    class Net(nn.Module):
        def forward(self, x):
            return (x * (2.0 if self.training else 3.0)).exp()

    net = Net()
    nn.recompute(net)
    x = sg.ones(1, requires_grad=True)
    y = net(x)
    net.eval()
    with pytest.raises(sg.InputError, match="train"):
        y.backward()
