"""How a program of ranks ends: well, or everywhere within seconds with the first cause last on the screen."""

import pytest

STEPS = """
    import os, signal, sys, time
    import shardgrad as sg
    from shardgrad import nn

    world = sg.dist.init()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    sg.fully_shard(model)

    def steps(count):
        for _ in range(count):
            loss = nn.functional.mse_loss(model(sg.randn(4, 4)), sg.zeros(4, 2), count=8 * world.size)
            loss.backward()

    steps(3)
    if world.rank == 1:
        {fault}
    steps(100000)
"""


@pytest.mark.parametrize("fault, last, code", [
    ("raise KeyError('mine')", "shardgrad: rank 1 failed: KeyError: 'mine'", 4),
    ("sg.zeros(2, 3) @ sg.zeros(2, 3)", "shardgrad: rank 1 failed: matmul: [2, 3] x [2, 3]", 2),
    ("os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9", 4),
    ("os._exit(0)", "shardgrad: rank 1 (pid", 4),
    ("sys.exit(3)", "rank 1 finished with its program", 4),
    ("world.all_reduce(sg.zeros(3))", "the ranks have diverged", 4),
    ("os.kill(os.getpid(), signal.SIGINT)", "rank 1 failed: KeyboardInterrupt", 4),
])
def test_a_rank_that_fails_ends_the_job(ranks, fault, last, code):
    ended = ranks(2, STEPS.format(fault=fault), expect=None, timeout=60)
    assert ended.code == code and last in ended.err.splitlines()[-1], ended
    assert ended.err.count("Traceback") <= 1, ended  # of the rank that failed, not of those that end because of it
    assert ended.seconds < 20


def test_the_traceback_is_the_failing_ranks(ranks):
    ended = ranks(2, STEPS.format(fault="raise KeyError('mine')"), expect=None)
    assert "raise KeyError('mine')" in ended.err and "RankFailedError" not in ended.err


def test_an_exception_that_is_caught_ends_nothing(ranks):
    program = """
    import shardgrad as sg
    world = sg.dist.init()
    try:
        raise KeyError("handled")
    except KeyError:
        pass
    x = sg.ones(1)
    world.all_reduce(x)
    print(f"well {x.item()}\\n", end="")
    """
    assert ranks(2, program).out.count("well 2.0") == 2


def test_an_exception_inside_forward_reaches_python_and_the_model_goes_on(ranks):
    program = """
    import shardgrad as sg
    from shardgrad import nn
    world = sg.dist.init()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.fails = True

        def forward(self, x):
            y = self.layer(x)
            if self.fails:
                raise LookupError("in forward")
            return y

    net = Net()
    sg.fully_shard(net)
    for _ in range(2):
        try:
            net(sg.ones(1, 3))
        except LookupError:
            net.fails = False
    net(sg.ones(1, 3)).sum().backward()
    print("well")
    """
    assert ranks(2, program).out.count("well") == 2


def test_tensors_before_init_are_refused_where_there_are_several_processes(ranks):
    ended = ranks(2, "import shardgrad as sg\nsg.zeros(1)", expect=None)
    assert ended.code != 0 and "call shardgrad.dist.init() before the first tensor" in ended.err


def test_joining_twice_and_on_a_thread_is_refused(ranks):
    program = """
    import threading
    import shardgrad as sg
    world = sg.dist.init()
    try:
        sg.dist.init()
    except sg.InputError as error:
        assert "before" in str(error)
    def other():
        try:
            sg.dist.init()
        except sg.InputError as error:
            print("refused")
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    """
    assert ranks(2, program).out.count("refused") == 2


def test_init_on_a_thread_says_what_a_rank_is(alone):
    found = alone("""
        import threading
        import shardgrad as sg
        def rank():
            try:
                sg.dist.init()
            except sg.InputError as error:
                print(error)
        thread = threading.Thread(target=rank)
        thread.start()
        thread.join()
    """)
    assert "a rank is a process" in found.stdout and "shardgrad launch" in found.stdout


def test_finish_waits_and_what_comes_after_is_refused(ranks):
    program = """
    import time
    import shardgrad as sg
    world = sg.dist.init()
    x = sg.ones(2)
    if world.rank == 1:
        time.sleep(1)
    rank, begin = world.rank, time.monotonic()
    sg.dist.finish()
    assert rank == 1 or time.monotonic() - begin > 0.8
    for late in (lambda: sg.ones(1), lambda: world.rank, sg.dist.world):
        try:
            late()
            raise AssertionError("went on after the end")
        except sg.InputError as error:
            assert "ended" in str(error), error
    print(f"well {x.shape}\\n", end="")
    """
    assert ranks(2, program).out.count("well (2,)") == 2


def test_mpirun_starts_ranks_too(ranks):
    ended = ranks(2, "import shardgrad as sg\nw = sg.dist.init()\nx = sg.ones(1)\nw.all_reduce(x)\nprint(f'sum {x.item()}')", by="mpi", expect=None)
    if "MPI" in ended.err and ended.code == 3:
        pytest.skip("a build without MPI")
    assert ended.out.count("sum 2.0") == 2, ended


def test_a_program_alone_ends_as_any_of_pythons(alone):
    assert "KeyError: 'mine'" in alone("import shardgrad as sg\nsg.ones(1)\nraise KeyError('mine')", expect=1).stderr
    alone("import sys, shardgrad as sg\nsg.ones(1)\nsys.exit(7)", expect=7)
    program = """
        import os, signal
        import shardgrad as sg
        sg.dist.init()
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert "interrupted" in alone(program).stdout


def test_what_lives_until_the_interpreter_goes_is_harmless(alone):
    alone("""
        import shardgrad as sg
        from shardgrad import nn
        class Holder:
            def __del__(self):
                self.x = None
        model = nn.Linear(3, 3)
        sharded = sg.fully_shard(model)
        holder = Holder()
        holder.x = model(sg.ones(1, 3)).sum()
        model.register_forward_hook(lambda module, tensors: None)
        kept = sg.checkpoint(lambda x: x.exp(), sg.ones(3, requires_grad=True))
    """)


def test_threads_are_as_many_as_is_said(alone, monkeypatch):
    program = """
    import shardgrad as sg
    print(sg.get_num_threads())
    sg.set_num_threads(2)
    (sg.randn(300, 300) @ sg.randn(300, 300)).sum().item()
    print(sg.get_num_threads())
    try:
        sg.set_num_threads(0)
    except sg.InputError as error:
        print(error)
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert alone(program).stdout.splitlines() == ["3", "2", "set_threads: 0 threads are not possible"]


@pytest.mark.parametrize("dropped_by", ["values.clear", "gc.collect"])
def test_what_another_thread_drops_is_not_used_again_while_a_device_still_writes_it(alone, dropped_by):
    said = alone(f"""
        import gc, threading
        import shardgrad as sg
        sg.dist.init(device="acc")
        gc.disable()
        a = sg.ones(512, 512)
        for _ in range(5):
            b = a
            for _ in range(6):
                b = (b @ a) * (1 / 512)
            values = [b[:1].sum() * 7 + sg.zeros(50000)]
            if "{dropped_by}" == "gc.collect":
                values.append(values)
                del values
            thread = threading.Thread(target={dropped_by})
            thread.start()
            thread.join()
            assert sg.ones(1).cpu().item() == 1
        print("ok")
    """)
    assert said.stdout == "ok\n"


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
