"""Training on ranks from Python: the same bits under every strategy and of every form of the model, state, scopes, plans."""

import json
import re

import pytest
import shardgrad as sg

STRATEGIES = ["ddp", "zero1", "zero2", "zero3", "hybrid"]

# A model of one's own with dropout, trained for five steps; each rank prints what it has seen.
TRAIN = """
    import hashlib, json, sys
    import shardgrad as sg
    from shardgrad import nn, optim

    F = nn.functional
    world = sg.dist.init(seed=7)

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.up = nn.Linear(width, 2 * width)
            self.down = nn.Linear(2 * width, width)
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            return x + self.drop(self.down(F.gelu(self.up(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 8)
            self.blocks = nn.ModuleList(Block(8) for _ in range(3))
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    def digest(state):
        return hashlib.md5(b"".join(state[name].numpy().tobytes() for name in sorted(state))).hexdigest()

    def train(model, sharded, optimizer, steps, first=0, recompute=False, batch=16):
        part = batch // world.size
        mine = slice(world.rank * part, (world.rank + 1) * part)
        for step in range(first, first + steps):
            sg.set_progress(step, world.rank * part)
            x, labels = sg.randn(batch, 6, name="x"), sg.randint(0, 3, (batch,), name="y")
            loss = F.cross_entropy(model(x[mine]), labels[mine], count=batch)
            loss.backward()
            sharded.clip_grad_norm_(0.5)
            optimizer.step()
            optimizer.zero_grad()
        total = loss.detach()
        world.all_reduce(total)
        return total.item()

    class Both:
        def __init__(self, model):
            self.each = [optim.Muon([p for p in model.named_parameters() if p[1].ndim == 2], lr=0.02),
                         optim.AdamW([p for p in model.named_parameters() if p[1].ndim != 2], lr=1e-2)]
        def step(self):
            for each in self.each:
                each.step()
        def zero_grad(self):
            for each in self.each:
                each.zero_grad()

    def say(**what):
        if world.rank == 0:
            print(json.dumps(what))
"""


def said(ended):
    return [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("n", [1, 2, 4])
def test_every_strategy_gives_the_same_bits(ranks, n):
    program = TRAIN + """
    options = {"hybrid": dict(shard_ranks=max(1, world.size // 2))}
    for strategy in sg.fsdp.strategies():
        for more in ({}, {"wrap": sg.fsdp.wrap_by_type([Block])}):
            sg.manual_seed(7)
            model = Net()
            if more:
                nn.recompute_by_type(model, ["Block"])
            sharded = sg.fully_shard(model, strategy=strategy, **options.get(strategy, {}), **more)
            optimizer = optim.AdamW(model.parameters(), lr=1e-2, rules={"*.bias": {"weight_decay": 0}})
            loss = train(model, sharded, optimizer, 5)
            say(loss=loss, state=digest(sharded.full_state_dict()), optim=digest(sharded.full_optim_state_dict(optimizer)))
    """
    lines = said(ranks(n, program))
    assert len(lines) == 10 and all(line == lines[0] for line in lines), lines


# Another value than the default's, and a strategy that takes it.
OTHER_OPTIONS = {
    "prefetch": (3, "zero3"), "prefetch_bytes": (7, "zero3"), "bucket_bytes": (5, "ddp"), "keep_params": (True, "zero2"),
    "shard_ranks": (1, "hybrid"), "reshard_after_forward": (1, "zero3"), "move_params_to_cpu": (True, "zero3"),
    "move_grads_to_cpu": (True, "zero3"), "param_dtype": (sg.bfloat16, "zero3"), "reduce_dtype": (sg.bfloat16, "zero3"),
    "buffer_dtype": (sg.bfloat16, "zero3"), "output_dtype": (sg.bfloat16, "zero3"), "sync_module_states": (True, "zero3"),
    "leave_out": (["bias"], "zero3")}


def test_fully_shard_takes_all_options_of_the_engine_with_their_defaults():
    defaults = sg.fsdp._core._default_options()
    (signature, _, values), = sg.fully_shard.__nb_signature__
    names = re.findall(r"(\w+): [^=:]*? = \\\d+", signature)
    assert len(names) == len(values), signature
    taken = dict(zip(names, values))
    assert taken.pop("group") is None and taken.pop("wrap") is None
    assert taken == defaults
    assert sg.fsdp.strategies() == STRATEGIES


def test_an_option_of_fully_shard_is_the_engines_of_that_name():
    defaults = sg.fsdp._core._default_options()
    assert OTHER_OPTIONS.keys() == defaults.keys() - {"strategy"}
    for name, (value, strategy) in OTHER_OPTIONS.items():
        sharded = sg.fully_shard(sg.nn.Linear(2, 2), strategy=strategy, **{name: value})
        assert value != defaults[name]
        assert sharded._options == {**defaults, "strategy": strategy, name: value}, name


def test_muon_steps_beside_adamw_with_the_same_bits_under_every_strategy(ranks):
    program = TRAIN + """
    for strategy in ("ddp", "zero1", "zero2", "zero3"):
        sg.manual_seed(7)
        model = Net()
        sharded = sg.fully_shard(model, strategy=strategy)
        both = Both(model)
        loss = train(model, sharded, both, 5)
        say(loss=loss, state=digest(sharded.full_state_dict()),
            optim=digest(sharded.full_optim_state_dict(both.each[0])))
    """
    lines = said(ranks(2, program))
    assert len(lines) == 4 and all(line == lines[0] for line in lines), lines


def test_the_numbers_of_ranks_agree_to_rounding(ranks):
    program = TRAIN + """
    model = Net()
    sharded = sg.fully_shard(model)
    say(loss=train(model, sharded, optim.SGD(model.parameters(), lr=0.1), 5))
    """
    losses = [said(ranks(n, program))[0]["loss"] for n in (1, 2, 4)]
    assert max(losses) - min(losses) < 1e-6 * losses[0], losses


def test_a_checkpoint_goes_on_with_the_same_bits_on_other_ranks(ranks, tmp_path):
    program = TRAIN + """
    model = Net()
    sharded = sg.fully_shard(model, strategy="zero3")
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    reached = sg.load_checkpoint("run", model, sharded, optimizer) if sys.argv[1] == "resume" else None
    first = reached["step"] if reached else 0
    train(model, sharded, optimizer, 3, first)
    if sys.argv[1] == "begin":
        assert sg.load_checkpoint("nothing", model, sharded, optimizer) is None
        sg.save_checkpoint("run", model, sharded, optimizer, step=3)
        train(model, sharded, optimizer, 3, 3)
    say(first=first, state=digest(sharded.full_state_dict()))
    """
    begun = said(ranks(2, program, "begin"))[0]
    assert said(ranks(2, program, "resume"))[0] == {"first": 3, "state": begun["state"]}
    assert said(ranks(1, program, "resume"))[0]["first"] == 3
    assert (tmp_path / "run" / "step-3" / "model.safetensors").exists()


def test_optimizers_that_divide_a_model_are_one_checkpoint(ranks):
    program = TRAIN + """
    model = Net()
    sharded = sg.fully_shard(model, strategy="zero3")
    both = Both(model)
    first = 0
    if sys.argv[1] == "resume":
        first = sg.load_checkpoint("run", model, sharded, both.each)["step"]
    train(model, sharded, both, 3, first)
    if sys.argv[1] == "begin":
        try:
            sg.save_checkpoint("run", model, sharded, [both.each[0], None], step=3)
        except sg.InputError as error:
            assert "one of the optimizers is None" in str(error)
        sg.save_checkpoint("run", model, sharded, both.each, step=3)
        train(model, sharded, both, 3, 3)
    say(first=first, state=digest(sharded.full_state_dict()))
    """
    begun = said(ranks(2, program, "begin"))[0]
    assert said(ranks(2, program, "resume"))[0] == {"first": 3, "state": begun["state"]}


def test_scopes_of_a_sharded_model(ranks):
    program = TRAIN + """
    import numpy
    model = Net()
    sharded = sg.fully_shard(model, strategy="zero3")
    with sg.fsdp.summon_full_params(sharded, write_back=True):
        with sg.no_grad():
            model.head.bias += 1.
        before = model.head.weight.tolist()
    assert sharded.full_state_dict(rank0_only=False)["head.bias"].tolist() != [0, 0, 0]
    try:
        with sg.fsdp.summon_full_params(sharded, write_back=True):
            with sg.no_grad():
                model.head.weight *= 0.
            raise LookupError("dropped")
    except LookupError:
        pass
    assert sharded.full_state_dict(rank0_only=False)["head.weight"].tolist() == before

    sent = sg.recorder.bytes_sent()
    x = sg.randn(4, 6)
    with sg.fsdp.no_sync(sharded):
        model(x).sum().backward()
    reductions = [r for r in sg.recorder.records() if r.op == "reduce_scatter"]
    model(x).sum().backward()
    assert len([r for r in sg.recorder.records() if r.op == "reduce_scatter"]) > len(reductions)

    try:
        model.blocks[0].up.weight.tolist()
        raise AssertionError("a parameter that is not gathered was read")
    except sg.InputError as error:
        assert "not in memory" in str(error)
    sharded.unshard("blocks.0")
    assert model.blocks[0].up.weight.shape == (16, 8) and len(model.blocks[0].up.weight.tolist()) == 16
    sharded.reshard("blocks.0")
    say(units=sharded.units, strategy=sharded.strategy)
    """
    assert said(ranks(2, program)) == [{"units": ["root", "first", "blocks.0", "blocks.1", "blocks.2"], "strategy": "zero3"}]


def test_memory_that_numpy_holds_is_not_taken_away(ranks):
    program = """
    import shardgrad as sg
    world = sg.dist.init()
    model = sg.nn.Linear(8, 8)
    sharded = sg.fully_shard(model)
    with sg.fsdp.summon_full_params(sharded):
        held = model.weight.detach().numpy()
        values = model.weight.tolist()
    model(sg.ones(1, 8))
    assert held.tolist() == values  # a copy of the parameters, whose memory stays as long as it is lent

    class Holding(sg.nn.Linear):
        def __init__(self):
            super().__init__(8, 8)

        def forward(self, x):
            self.held = self.weight.detach().numpy()
            return super().forward(x)

    class Keeps(sg.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Holding()
            self.last = sg.nn.Linear(8, 8)

        def forward(self, x):
            return self.last(self.layer(x))

    keeps = Keeps()
    sg.fully_shard(keeps)
    try:
        keeps(sg.ones(1, 8))
        raise AssertionError("the memory went away under NumPy's array")
    except sg.InputError as error:
        assert "leased to DLPack" in str(error), error
    print("refused")
    """
    assert ranks(2, program).out.count("refused") == 2


def test_what_is_sharded_is_refused_with_what_to_call(ranks):
    program = """
    import pytest
    import shardgrad as sg
    from shardgrad import nn, optim
    sg.dist.init()
    model = nn.Sequential(nn.Linear(4, 4))
    sharded = sg.fully_shard(model, strategy="zero3")
    model(sg.ones(2, 4)).sum().backward()
    p = model[0].weight
    for wrong, says in [(lambda: p.grad, r"'0.weight' is sharded.*sharded.clip_grad_norm_\\(max_norm\\).*p.register_hook"),
                        (lambda: p.tolist(), r"with sg.fsdp.summon_full_params\\(sharded\\)"),
                        (lambda: optim.clip_grad_norm_([p], 1.), "^optim.clip_grad_norm_: .*call sharded.clip_grad_norm_ of"),
                        (lambda: optim.GradScaler().step(optim.SGD([p])), r"optim.GradScaler\\(ranks=sharded\\)"),
                        (lambda: model.double(), "param_dtype=")]:
        with pytest.raises(sg.InputError, match=says) as refused:
            wrong()
        assert "::" not in str(refused.value)
    seen = []
    p.register_hook(lambda grad: seen.append(grad.shape))
    model(sg.ones(2, 4)).sum().backward()
    with sg.fsdp.summon_full_params(sharded):
        assert len(p.tolist()) == 4
    assert seen == [(4, 4)]
    print("right")
    """
    assert ranks(2, program).out.count("right") == 2


def test_ranks_that_begin_with_other_models_are_refused(ranks):
    program = """
    import shardgrad as sg
    world = sg.dist.init()
    sg.manual_seed(world.rank)
    sg.fully_shard(sg.nn.Linear(3, 3))
    """
    ended = ranks(2, program, expect=2)
    assert "seed" in ended.err.splitlines()[-1], ended
    program = """
    import shardgrad as sg
    world = sg.dist.init()
    model = sg.nn.Linear(3, 3)
    with sg.no_grad():
        model(sg.zeros(1, 3))
        model.weight.fill_(world.rank)
    sharded = sg.fully_shard(model, sync_module_states=True)
    assert sharded.full_state_dict(rank0_only=False)["weight"].tolist() == [[0.] * 3] * 3
    print("went on")
    """
    assert ranks(2, program).out.count("went on") == 2


@pytest.mark.parametrize("loss", ["mse_loss(y, sg.ones(2, 1))", "kl_div(y, sg.ones(2, 1), reduction='batchmean')",
                                  "huber_loss(y, sg.ones(2, 1))", "binary_cross_entropy(sg.sigmoid(y), sg.ones(2, 1))"])
def test_a_loss_without_a_count_is_refused_on_ranks(ranks, loss):
    program = f"""
    import shardgrad as sg
    world = sg.dist.init()
    model = sg.nn.Linear(3, 1)
    sg.fully_shard(model)
    y = model(sg.ones(2, 3))
    sg.nn.functional.{loss}.backward()
    """
    assert "count" in ranks(2, program, expect=2).err.splitlines()[-1]


def test_collectives(ranks):
    program = """
    import shardgrad as sg
    world = sg.dist.init()
    r, n = world.rank, world.size
    x = sg.full((3,), r + 1.)
    world.all_reduce(x)
    assert x.tolist() == [sum(range(1, n + 1))] * 3
    full = sg.zeros(2 * n)
    work = world.all_gather(full, sg.full((2,), float(r)), async_op=True)
    work.wait()
    assert full.tolist() == [float(i // 2) for i in range(2 * n)]
    part = sg.zeros(2)
    sg.dist.reduce_scatter(part, sg.arange(2. * n))
    assert part.tolist() == [n * 2. * r, n * (2. * r + 1)]
    b = sg.full((1,), float(r))
    sg.dist.broadcast(b, root=n - 1)
    assert b.item() == n - 1
    assert world.share([r * 1.5]) == [i * 1.5 for i in range(n)]
    pair = world.split(r % 2)
    y = sg.full((1,), float(r))
    pair.all_reduce(y)
    assert y.item() == sum(range(r % 2, n, 2))
    w = sg.full((2,), float(r)).requires_grad_()
    sg.parallel.all_reduce(w, world).sum().backward()
    assert w.grad.tolist() == [n, n]
    sg.dist.barrier()
    assert (sg.dist.get_rank(), sg.dist.get_world_size()) == (r, n)
    print("well")
    """
    assert ranks(4, program).out.count("well") == 4


def test_the_ledger_and_recorder_say_what_the_plan_said(ranks):
    program = TRAIN + """
    model = Net()
    sharded = sg.fully_shard(model, strategy="zero2")
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    train(model, sharded, optimizer, 2)
    before = sg.recorder.bytes_sent()
    part = 16 // world.size
    F.cross_entropy(model(sg.zeros(part, 6)), sg.zeros(part, dtype=sg.int64), count=16).backward()
    optimizer.step()
    optimizer.zero_grad()
    sent = sg.recorder.bytes_sent() - before
    peaks = sg.ledger.peaks()

    def build(group):
        model = Net()
        sharded = sg.fully_shard(model, group, strategy="zero2")
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)

        def step():
            F.cross_entropy(model(sg.zeros(part, 6)), sg.zeros(part, dtype=sg.int64), count=16).backward()
            optimizer.step()
            optimizer.zero_grad()
        return sharded, step

    plan = sg.fsdp.plan(world.size, build)
    say(sent=sent, planned=plan.bytes_sent, state=peaks["optimizer_state"], planned_state=plan.peaks["optimizer_state"])
    if world.rank == 0:
        assert "blocks.0" in plan.table() or "root" in plan.table()
    """
    (line,) = said(ranks(2, program))
    assert line["sent"] == line["planned"] > 0 and line["state"] == line["planned_state"] > 0


def test_several_models_share_a_scaler_and_an_average(ranks):
    program = TRAIN + """
    model = Net()
    sharded = sg.fully_shard(model, param_dtype=sg.float16)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    average = optim.EMA(model.parameters(), decay=0.5)
    scaler = optim.GradScaler(init_scale=2.**40, ranks=sharded)
    steps = 0
    for step in range(40):
        sg.set_progress(step, world.rank * 8)
        x, labels = sg.randn(16, 6, name="x"), sg.randint(0, 3, (16,), name="y")
        mine = slice(world.rank * 8, world.rank * 8 + 8)
        scaler.scale(F.cross_entropy(model(x[mine]), labels[mine], count=16)).backward()
        steps += scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        average.update()
    trained = digest(sharded.full_state_dict())
    average.swap()
    other = digest(sharded.full_state_dict())
    average.swap()
    say(steps=steps, scale=scaler.factor, back=digest(sharded.full_state_dict()) == trained, other=other != trained)
    """
    (line,) = said(ranks(2, program))
    assert 0 < line["steps"] < 40 and line["scale"] < 2**40 and line["back"]


def test_scaled_gradients_are_clipped_once_they_are_unscaled(ranks):
    program = TRAIN + """
    def trained(scaled):
        sg.manual_seed(4)
        model = Net()
        sharded = sg.fully_shard(model)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        scaler = optim.GradScaler(init_scale=1024., ranks=sharded, enabled=scaled)
        norms = []
        for step in range(3):
            sg.set_progress(step, world.rank * 8)
            x, labels = sg.randn(16, 6, name="x"), sg.randint(0, 3, (16,), name="y")
            mine = slice(world.rank * 8, world.rank * 8 + 8)
            scaler.scale(F.cross_entropy(model(x[mine]), labels[mine], count=16)).backward()
            scaler.unscale_(optimizer)
            norms.append(sharded.clip_grad_norm_(0.1))
            assert scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        if scaled:  # on one rank alone
            (model(x[mine]).sum() * (sg.inf if world.rank == 0 else 1.)).backward()
            scaler.unscale_(optimizer)
            assert sharded.clip_grad_norm_(0.1) == 0 and not scaler.step(optimizer)
        return digest(sharded.full_state_dict()), norms
    say(same=trained(True) == trained(False))
    """
    (line,) = said(ranks(2, program))
    assert line["same"]


def test_a_model_alone_needs_no_job():
    model = sg.nn.Linear(4, 2)
    sharded = sg.fully_shard(model)
    model(sg.ones(1, 4)).sum().backward()
    optimizer = sg.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()
    assert sharded.group.size == 1 and set(sharded.full_state_dict()) == {"weight", "bias"}
    with pytest.raises(sg.InputError, match="before"):
        sg.dist.init()


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
