"""What hostile programs found: crashes, silent wrong numbers, and lines of PyTorch programs that must work or be refused."""

import gc
import weakref

import numpy as np
import pytest
import shardgrad as sg
from shardgrad import nn

F = nn.functional


# --- nothing crashes or hangs -------------------------------------------------------------------------------------------

def test_threads_that_go_on_at_the_end_are_harmless(alone):
    alone("""
        import threading, time
        import shardgrad as sg
        sg.ones(1)
        def work():
            x = sg.ones(200, 200)
            while True:
                (x @ x).sum()
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.5)
    """)


def test_threads_that_go_on_after_a_jobs_end_are_harmless(ranks):
    ended = ranks(2, """
        import threading, time
        import shardgrad as sg
        world = sg.dist.init()
        sg.ones(1)
        def work():
            x = sg.ones(100, 100)
            while True:
                (x @ x).sum()
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.5)
        x = sg.ones(1)
        world.all_reduce(x)
    """)
    assert "killed" not in ended.err, ended


def test_a_thread_is_refused_after_finish(alone):
    found = alone("""
        import threading
        import shardgrad as sg
        sg.ones(1)
        go, done = threading.Event(), threading.Event()
        def work():
            kept = sg.ones(3)
            done.set()
            go.wait()
            try:
                kept + 1
            except sg.InputError as error:
                print("refused:", error)
        thread = threading.Thread(target=work)
        thread.start()
        done.wait()
        sg.dist.finish()
        go.set()
        thread.join()
    """)
    assert "refused: the job has ended" in found.stdout


def test_a_fork_of_a_process_that_computes_is_refused_and_ends(ranks, alone):
    program = """
        import os, sys
        import shardgrad as sg
        {init}
        x = sg.ones(300, 300)
        x @ x
        pid = os.fork()
        if pid == 0:
            try:
                x @ x
            except sg.InputError as error:
                print(f"refused: {{error}}\\n", end="")
            sys.stdout.flush()
            sys.exit(7)
        print(f"child {{os.waitpid(pid, 0)[1] >> 8}}\\n", end="")
    """
    found = alone(program.format(init=""))
    assert "child 7" in found.stdout and "is a fork of one that has computed" in found.stdout
    ended = ranks(2, program.format(init="sg.dist.init()"), timeout=60)
    assert ended.out.count("child 7") == 2 and ended.out.count("is a fork of") == 2, ended


def test_a_world_in_a_plan_is_the_plans(alone):
    found = alone("""
        import shardgrad as sg
        kept = []
        def build(group):
            assert sg.dist.world().size == 8
            model = sg.nn.Linear(16, 16)
            sharded = sg.fully_shard(model)
            kept.append(sharded)
            return sharded, lambda: model(sg.ones(2, 16)).sum().backward()
        assert sg.fsdp.plan(8, build).bytes_sent > 0
        try:
            kept[0].group
        except sg.InputError as error:
            print("refused:", error)
        for wrong in (lambda group: None, lambda group: (1, 2), lambda group: kept[0]):
            try:
                sg.fsdp.plan(2, wrong)
            except sg.InputError as error:
                print("refused:", error)
    """)
    assert found.stdout.count("refused:") == 4


def test_what_contains_itself_is_an_error():
    endless = []
    endless.append(endless)
    with pytest.raises((RecursionError, sg.InputError)):
        sg.tensor(endless)
    model = nn.Sequential(nn.Linear(2, 2))
    model.register_forward_hook(lambda module, tensors: None)
    with pytest.raises(RecursionError):
        model(endless)
    a, b, c = nn.Sequential(nn.ReLU()), nn.Sequential(), nn.Sequential()
    a.append(b)
    c.append(b)
    with pytest.raises(sg.InputError, match="contain itself"):
        b.append(c)
    with pytest.raises(sg.InputError, match="contain itself"):
        b.append(a)
    assert "Sequential" in repr(a)


# --- nothing is lost without a word ---------------------------------------------------------------------------------------

def test_methods_in_place_take_alpha_and_refuse_what_they_do_not_know():
    x = sg.ones(2)
    assert x.add_(sg.ones(2), alpha=-0.5) is x and x.tolist() == [0.5, 0.5]
    assert x.sub_(1, alpha=2).tolist() == [-1.5, -1.5] and x.add(sg.ones(2), alpha=3).tolist() == [1.5, 1.5]
    for wrong in (lambda: x.add_("abc"), lambda: x.add_([1, 2]), lambda: x.mul_(None), lambda: x.add_()):
        with pytest.raises(TypeError):
            wrong()


def test_fractions_in_lists_stay_fractions():
    assert sg.tensor([sg.tensor(1.5), sg.tensor(2.5)]).tolist() == [1.5, 2.5]
    assert sg.tensor([np.array(1.5)]).tolist() == [1.5] and sg.tensor([[np.float32(0.5)]]).tolist() == [[0.5]]
    assert sg.tensor([sg.tensor(3), np.int32(4)]).dtype == sg.int64


def test_a_buffer_that_is_assigned_gets_the_values():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("run", sg.zeros(2))
            self.w = nn.Parameter(sg.ones(2))
            self.cache = None

        def forward(self, x):
            self.run = self.run * 0.5 + x.mean(0)
            self.cache = x
            return x * self.w

    net = Net()
    net(sg.ones(3, 2))
    net(sg.ones(3, 2))
    assert net.run.tolist() == net.state_dict()["run"].tolist() == [1.5, 1.5] and net.cache.shape == (3, 2)
    with pytest.raises(sg.InputError, match="buffer"):
        net.run = sg.zeros(3)
    for trained in (lambda p: setattr(net, "run", p), lambda p: net.register_parameter("run", p)):
        with pytest.raises(sg.InputError, match="'run' is a buffer of this Net, in whose place a parameter would not be trained"):
            trained(nn.Parameter(sg.zeros(2)))
    assert net.run.tolist() == [1.5, 1.5] and [name for name, _ in net.named_parameters()] == ["w"]
    with pytest.raises(sg.InputError, match="parameter"):
        net.w = sg.zeros(2)
    net.w = net.w


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


def test_numbers_beside_integers_are_not_cut():
    x = sg.tensor([1, 2])
    for wrong in (lambda: sg.eq(x, 1.5), lambda: sg.mul(x, 0.5), lambda: sg.add(x, 0.5), lambda: sg.maximum(x, 1.5),
                  lambda: sg.where(x > 0, 1.5, x), lambda: x.__setitem__(0, 0.5)):
        with pytest.raises(sg.InputError):
            wrong()
    for wrong in (lambda: x * 2.0, lambda: 2.0 * x, lambda: x == 1.0, lambda: x.lt(1.0), lambda: x**2.0, lambda: 2.0**x, lambda: x // 1.0,
                  lambda: x.add(1.0), lambda: x.add(1, alpha=1.0), lambda: x.add_(1.0), lambda: x.sub_(1, alpha=1.0), lambda: x.clamp(min=1.0),
                  lambda: sg.where(x > 0, 1.0, x), lambda: sg.arange(5)[x * 1.0], lambda: (x > 1) * 1.0, lambda: x.__imul__(1.0)):
        with pytest.raises(sg.InputError, match=r"the float [12] beside .* convert it with .to\(float32\)"):
            wrong()
    assert x.tolist() == [1, 2] and (x * 2).tolist() == [2, 4] and (x.float() * 2).tolist() == (2.0 * x.float()).tolist() == [2, 4]
    assert (7 // x).tolist() == [7, 3] and (x // 2).tolist() == [0, 1] and (2**x).tolist() == [2, 4] and (5 % x).tolist() == [0, 1]
    x[0] = 2.0
    x.fill_(3.0)
    assert x.tolist() == [3, 3]
    x.copy_(sg.tensor([1, 2]))
    big = 2**53 + 1
    for wrong in (lambda: x + big, lambda: x == big, lambda: sg.full((1,), big, dtype=sg.int64), lambda: x.fill_(big),
                  lambda: x.__setitem__(0, big), lambda: sg.arange(2**53, 2**53 + 3)):
        with pytest.raises(sg.InputError, match="2\\^53"):
            wrong()
    assert (x + 2**53).tolist() == [2**53 + 1, 2**53 + 2]


def test_full_has_the_dtype_of_its_number():
    assert [sg.full((2,), value).dtype for value in (7, 7., True)] == [sg.int64, sg.float32, sg.uint8]
    assert sg.full((2,), True).tolist() == [1, 1] and sg.full((2,), 7).tolist() == [7, 7] and sg.full((1,), 1, dtype=sg.float16).dtype == sg.float16


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


def test_a_parameter_is_one_object():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    assert model[0].weight is model[0].weight is model.parameters()[0] is model.named_parameters()[0][1]
    head = set(map(id, model[1].parameters()))
    assert [p.shape for p in model.parameters() if id(p) not in head] == [(2, 2), (2,)]
    assert model[1].bias in set(model.parameters())
    model.to(sg.float64)
    assert model.parameters()[0] is model[0].weight and model[0].weight.dtype == sg.float64

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(3, 2)
            self.head = nn.Linear(2, 3, bias=False)
            self.head.weight = self.table.weight
            self.scale = nn.Parameter(sg.ones(1))
            self.large = self.param("large", (2, 2), nn.init.zeros())

    tied = Tied()
    assert tied.head.weight is tied.table.weight
    assert [p is q for p, q in zip(tied.parameters(), (tied.scale, tied.large, tied.table.weight))] == [True] * 3


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


def test_a_forward_of_the_librarys_is_not_replaced_in_silence():
    layer = nn.Linear(2, 2)
    with pytest.raises(sg.InputError, match="derive"):
        layer.forward = lambda x: x

    class Scaled(nn.Linear):
        def forward(self, x, scale, *, shift=0.):
            return super().forward(x) * scale + shift

    class Mean(nn.MSELoss):
        def forward(self, x, target):
            return super().forward(x, target)

    scaled = Scaled(2, 2)
    assert scaled(sg.ones(1, 2), 0., shift=3.).tolist() == [[3, 3]]
    assert Mean()(sg.ones(2), sg.zeros(2)).item() == 1


def test_a_part_that_stays_in_evaluation_does():
    class Frozen(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(False)

    model = nn.Sequential(nn.Linear(2, 2), Frozen(2))
    model.train()
    assert model.training and not model[1].training and model[0].training


def test_one_parameter_under_two_names_has_the_first():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            p = nn.Parameter(sg.ones(1))
            self.a = p
            self.b = p

    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["a"] and net.b is net.a


def test_smaller_ones():
    x = sg.tensor([1., 2., 4.])
    assert x.std(False).item() == x.std(unbiased=False).item() != x.std().item()
    with pytest.raises(sg.InputError, match="no such dimension"):
        sg.ones(2, 2).permute(2**32, 1)
    for norm in (lambda w: w.norm(dim=0), lambda w: w.norm(3)):
        w = sg.zeros(3, requires_grad=True)
        norm(w).sum().backward()
        assert w.grad.tolist() == [0, 0, 0]
    w = sg.tensor([3., 4.], requires_grad=True)
    w.norm(dim=0).backward()
    assert np.allclose(w.grad.tolist(), [0.6, 0.8])
    for p in (float("nan"), -0.5, 2.):
        with pytest.raises(sg.InputError):
            F.dropout(x, p)
    for reduction in ("sum", "none"):
        with pytest.raises(sg.InputError, match="count"):
            F.mse_loss(x, x, reduction=reduction, count=3)
    with pytest.raises(sg.InputError, match="truths"):
        sg.tensor([1]) & sg.tensor([2])
    w = sg.ones(3, requires_grad=True)
    with pytest.raises(sg.InputError, match="gradient"):
        sg.zeros(3).copy_(w * 2)
    with pytest.raises(sg.InputError, match="gradient"):
        sg.zeros(3).fill_(w.sum())
    low = sg.tensor(2., requires_grad=True)
    x.clamp(min=low, max=3).sum().backward()
    assert x.clamp(low, 3).tolist() == [2, 2, 3] and low.grad.item() == 1.5
    assert sg.tensor([1, 5]).clamp(max=3).tolist() == [1, 3]
    with pytest.raises(sg.InputError):
        sg.dist.world().all_reduce(w * 2)


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


# --- what PyTorch programs type -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("held", [lambda m: [[m]], lambda m: {"a": [m]}, lambda m: {m}, lambda m: (m,)])
def test_modules_are_not_hidden_deeper_either(held):
    model = nn.Sequential(nn.ReLU())
    with pytest.raises(sg.InputError, match="ModuleList"):
        model.kept = held(nn.Linear(2, 2))


def test_names_of_modules_own_functions_are_refused_whole():
    heads = nn.ModuleDict()
    for name in ("train", "parameters", "training", "full_name", "__class__"):
        with pytest.raises(sg.InputError, match="every module has"):
            heads[name] = nn.Linear(2, 2)
    assert heads.named_children() == [] and heads.parameters() == []


def test_callbacks_that_give_something_else_are_told():
    x = sg.ones(1, requires_grad=True)
    x.register_hook(lambda grad: "no")
    with pytest.raises(sg.InputError, match="a tensor's hook gave 'no'"):
        (x * 2).backward()
    with pytest.raises(sg.InputError, match="wrap gave 'yes'"):
        sg.fully_shard(nn.Sequential(nn.Linear(2, 2)), wrap=lambda module, name, numel: "yes")

    class Forgot(nn.Module):
        def __init__(self):
            pass

    with pytest.raises(sg.InputError, match="super"):
        nn.Sequential(Forgot())


def test_hooks_can_be_removed():
    model, seen = nn.Sequential(nn.Linear(2, 2)), []
    handle = model.register_forward_hook(lambda module, tensors: seen.append("forward"))
    x = sg.ones(1, 2, requires_grad=True)
    of_tensor = x.register_hook(lambda grad: seen.append("grad"))
    model(x).sum().backward()
    handle.remove()
    handle.remove()
    of_tensor.remove()
    model(x).sum().backward()
    assert seen == ["forward", "grad"]


def test_a_hook_that_changes_the_lists_of_a_call_is_refused():
    class Same(nn.Module):
        def forward(self, xs):
            self.given = xs
            return xs

    for register in Same.register_forward_pre_hook, Same.register_forward_hook:
        for change in (lambda xs: xs.extend(sg.ones(2) for _ in range(50)), lambda xs: xs.clear(), lambda xs: xs.__setitem__(0, None)):
            model, xs = Same(), [sg.ones(2), sg.ones(2)]
            register(model, lambda module, tensors: change(getattr(module, "given", xs)))
            with pytest.raises(sg.InputError, match="has got more or fewer of them during the call; a hook gives other tensors as its result"):
                model(xs)


def test_a_hook_of_a_parameter_keeps_its_model_until_it_is_removed():
    model = nn.Sequential(nn.Linear(2, 2))
    handle = model[0].weight.register_hook(lambda grad, model=model: grad * len(model))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is not None
    handle.remove()
    gc.collect()
    assert gone() is None


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


def test_other_lines():
    assert sg.from_numpy(np.ones((0, 3), np.float32)).shape == (0, 3)
    x = sg.zeros(3)
    x[0:2] = [1, 2]
    x[2] = np.float32(5)
    assert x.tolist() == [1, 2, 5]
    y = sg.ones(2, requires_grad=True)
    sg.checkpoint(lambda a: a.exp(), y, use_reentrant=False).sum().backward()
    sg.checkpoint(lambda a, name: a.exp(), y, name="mine").sum().backward()


# --- and nothing is kept for ever -----------------------------------------------------------------------------------------

def test_a_wrap_function_does_not_keep_its_model():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    gone = weakref.ref(model)
    sg.fully_shard(model, wrap=lambda module, name, numel: module is not model)
    del model
    gc.collect()
    assert gone() is None


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


def test_a_refused_parameter_registers_nothing():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            with pytest.raises(sg.InputError, match="float32 values"):
                self.w = nn.Parameter(sg.zeros(2, dtype=sg.bfloat16))
            self.w = nn.Parameter(sg.ones(2))

    assert [name for name, _ in Scale().named_parameters()] == ["w"]


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


def test_cosine_similarity_is_finite_where_a_norm_overflows():
    x = sg.full((1, 4), 40000., dtype=sg.float16).requires_grad_()
    cosine = F.cosine_similarity(x, sg.ones(1, 4, dtype=sg.float16))
    assert cosine.tolist() == [0.0]


def test_the_mean_of_no_losses_is_0_whatever_the_count():
    empty = sg.zeros(0)
    for loss in F.binary_cross_entropy, F.mse_loss:
        assert loss(empty, empty, count=0).item() == 0 and loss(empty, empty, count=4).item() == 0


def test_names_that_mean_something_else_are_no_parameters():
    module = nn.Sequential(nn.ReLU())
    for name in "forward", "", "a.b", "state_dict":
        with pytest.raises(sg.InputError, match="is no name for a parameter"):
            module.register_parameter(name, None)
    with pytest.raises(sg.InputError, match="has no module ''"):
        module.get_submodule("0.")


def test_milestones_go_up_and_a_refused_scheduler_changes_nothing():
    optimizer = sg.optim.SGD([nn.Parameter(sg.ones(2))], lr=1.)
    schedulers = [sg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.) for _ in range(3)]
    with pytest.raises(sg.InputError, match="do not go up"):
        sg.optim.lr_scheduler.SequentialLR(optimizer, schedulers, [5, 3])
    with pytest.raises(sg.InputError):
        sg.optim.lr_scheduler.OneCycleLR(optimizer, 2., 9, last_epoch=5)
    assert sg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.).get_last_lr() == [1.]


def test_loaders_take_pytorchs_order_of_arguments():
    loader = sg.utils.data.DataLoader(list(range(10)), 1, False, None, [[0, 1], [2]])
    assert [batch.tolist() for batch in loader] == [[0, 1], [2]]
    with pytest.raises(sg.InputError, match="num_samples 3 of no samples"):
        sg.utils.data.RandomSampler([], num_samples=3)
