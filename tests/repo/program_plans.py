#!/usr/bin/env python3
"""What a plan predicts, and that it is what runs measure.

    program_plans.py PROGRAM CASE
"""
import itertools
import json
import os
import re
import time
from pathlib import Path

from program import CONFIG, PROGRAM, ROOT, ROOT_MAY, SMALL, call, each_rank, expect, main


def plan(ranks):
    """The table is printed, and what was predicted is what is measured."""
    for strategy in ["ddp", "zero1", "zero2", "zero3"]:
        run = call([PROGRAM, "plan", CONFIG, *SMALL, "--ranks", ranks, "--set", f"strategy={strategy}", "--measure"])
        expect(run.returncode == 0 and run.stdout.endswith("as predicted\n") and "NOT" not in run.stdout, run)
        # Where parameters stay in memory the layers are one bucket, and its size is no reason to warn.
        warned = "warning: unit 'layer0' holds 99 %" in run.stdout
        expect(run.stdout.count("layer0") >= 2 and warned == (strategy in ("zero2", "zero3")), run)
    table = call([PROGRAM, "plan", CONFIG, *SMALL, "--ranks", "3", "--compare", "--memory", "0.01", "--tflops", "0.1"])
    rows = [line.split() for line in table.stdout.splitlines()]
    expect(table.returncode == 0 and [row[0] for row in rows[2:16]] == "1 2 3 4 8 16 32 64 128 256 512 1024 2048 4096".split(), table)
    expect(rows[1] == ["ranks", "ddp", "zero1", "zero2", "zero3"] and re.search(r"ddp yes \(0\.00\d+\), ", table.stdout), table)
    expect("\nsending: not counted; say --bandwidth\n" in table.stdout, table)
    large = call([PROGRAM, "plan", CONFIG, *SMALL, "--ranks", "3", "--compare", "--memory", "0.0001"])
    expect(large.returncode == 0 and len(re.findall(r"(?:ddp|zero[123]) no \(0\.00\d+\)", large.stdout)) == 4, large)
    expect("*" not in large.stdout.split("\n", 1)[1], large)
    counted = " GiB without data and workspace"  # which a run has beside it
    expect(f"\nfits in 0.01{counted}: ddp yes (" in table.stdout, table)
    for memory, fits in ("0.0001", f"does not fit in 0.0001{counted}\n"), ("1", f"\nfits in 1{counted}\n"):
        one = call([PROGRAM, "plan", CONFIG, *SMALL, "--ranks", "3", "--memory", memory])
        expect(one.returncode == 0 and fits in one.stdout, one)
    # 10 MFLOP and 1 MB in a second: with few ranks computing takes longer, with many ranks sending.
    rates = ["--tflops", "0.00001", "--bandwidth", "0.001"]
    timed = call([PROGRAM, "plan", CONFIG, "--compare", *rates])
    longer = set()
    for row in timed.stdout.splitlines()[2:15]:
        count = int(row.split()[0])
        computing = -(-256 // count) * (4 * 784 * 512 + 6 * 512 * 256 + 6 * 256 * 10) / 1e7
        cells = re.findall(r"[\d.]+ / ([\d.]+) / ([\d.]+)", row)  # MB that are sent, and seconds
        for sent, seconds in cells:
            sending = float(sent) / 1
            assert len(cells) == 4 and abs(float(seconds) - max(computing, sending)) < 0.6, row
            longer.add(computing > sending)
    assert longer == {False, True}, timed
    once = call([PROGRAM, "plan", CONFIG, "--ranks", "2", *rates, "--latency", "100000"])
    said = {key: float(value) for key, value in re.findall(r"^(computing|sending|a step) takes at least ([\d.]+) s$", once.stdout, re.M)}
    gathers, reductions, mebibytes = map(float, re.search(r"^all .*$", once.stdout, re.M)[0].split()[-3:])
    assert abs(said["computing"] - 128 * 2407424 / 1e7) < 1e-3 and said["a step"] == max(said["computing"], said["sending"]), once
    assert abs(said["sending"] - mebibytes * 2**20 / 1e6 - 0.1 * (gathers + reductions)) < 0.006, once
    for group in [], ["--set", "strategy=hybrid", "--set", "fsdp.shard_ranks=2"]:
        table = call([PROGRAM, "plan", CONFIG, *SMALL, *group, "--time", "--ranks", "3", "--threads", "1"])
        rows = [re.split(r"  +", line) for line in table.stdout.splitlines()]
        expect(table.returncode == 0 and [row[0] for row in rows[2:16]] == "1 2 3 4 8 16 32 64 128 256 512 1024 2048 4096".split(), table)
        expect(rows[1][:5] == ["ranks", "ddp", "zero1", "zero2", "zero3"] and len(rows[1]) == 5 + bool(group), table)
        assert all(re.fullmatch(r"[\d.]+ / [\d.]+ / \d+ %( s)?", cell) or (cell == "-" and group) for row in rows[2:16] for cell in row[1:]), table
        assert all(cell.endswith(" / 0.00 / 100 %") for cell in rows[2][1:5]), table
        of_one = [float(cell.split()[0]) for cell in rows[2][1:5]]
        for ranks_, *cells in rows[2:16]:
            for one, (step, percent) in zip(of_one, (map(float, re.match(r"([\d.]+) /.* / (\d+) %", cell).groups()) for cell in cells[:4])):
                efficiency = 100 * one / (int(ranks_) * step)
                assert abs(percent - efficiency) < 1 + 0.02 * efficiency / step, table
        expect("as between two ranks in this machine's memory; --network, --bandwidth" in table.stdout and ("shard_ranks is 2" in table.stdout) == bool(group), table)
    slow = call([PROGRAM, "plan", CONFIG, *SMALL, "--time", "--bandwidth", "0.00001"])
    expect(slow.returncode == 0 and all(line.endswith(" s") for line in slow.stdout.splitlines()[3:15]), slow)
    # A gradient norm's or a loss's exchange at least, each a tenth of a second long.
    far = call([PROGRAM, "plan", CONFIG, *SMALL, "--time", "--latency", "100000"])
    expect(far.returncode == 0 and all(0.1e3 < float(cell) < 5e3 for row in far.stdout.splitlines()[3:15] for cell in re.findall(r"([\d.]+) / [\d.]+ /", row)), far)
    for launcher, words in ([], "2 ranks on 1 machine, threads"), (["launch", "-n", "3", "--by", "local"], "3 ranks on 1 machine, shared_memory"):
        measured = call([PROGRAM, *launcher, "doctor", "--measure", "network.json"])
        expect(measured.returncode == 0 and f"{words}, cpu, " in measured.stdout, measured)
        speeds = json.loads(Path("network.json").read_text())
        expect(0 < speeds["bandwidth"] < 1e4 and 0 < speeds["latency"] < 1e6 and f": a collective takes " in measured.stdout, measured)
    Path("network.json").write_text('{"bandwidth": 0.00001, "latency": 100000, "from": "a slow one"}')
    by_file = call([PROGRAM, "plan", CONFIG, *SMALL, "--time", "--network", "network.json"])
    expect(by_file.returncode == 0 and all(line.endswith(" s") for line in by_file.stdout.splitlines()[3:15]), by_file)
    expect("a collective takes 100000.0 us, and its bytes go at 10.0 kB/s, as 'network.json' says: a slow one\n" in by_file.stdout, by_file)
    many = call([PROGRAM, "doctor", "-n", "8", "--measure", "network.json"])
    expect(many.returncode == 2 and "excludes" in many.stderr, many)
    both = call([PROGRAM, "plan", CONFIG, "--network", "network.json", "--latency", "1"])
    expect(both.returncode == 2 and "excludes" in both.stderr, both)
    for table in "--compare", "--time":
        dealt = call([PROGRAM, "plan", CONFIG, *SMALL, table, "--machines", "2"])
        expect(dealt.returncode == 2 and "--machines" in dealt.stderr and "excludes" in dealt.stderr, dealt)
    lone, same = (call([PROGRAM, "plan", CONFIG, *SMALL, "--ranks", "1", *more]) for more in ([], ["--machines", "1"]))
    memory = [plan.stdout.split("computes ")[0] for plan in (lone, same)]
    expect(same.returncode == 0 and memory[0] == memory[1], same)
    most = 32 * len(os.sched_getaffinity(0))
    if most < 1024:
        crowd = call([PROGRAM, "plan", CONFIG, *SMALL, "--time", "--per-machine", str(most + 1)])
        expect(crowd.returncode == 2 and f"{most + 1} ranks cannot be timed side by side on " in crowd.stderr, crowd)
    large = call([PROGRAM, "plan", CONFIG, "--time", "--set", "model.layers=[784,2000000,2000000,10]"])
    expect(large.returncode == 0 and "to time the step of one rank alone takes " in large.stdout and large.stdout.count("-") > 50, large)
    here = call([PROGRAM, "plan", CONFIG])
    expect(re.search(r"^computing: at \S+ [GT]FLOP/s, as fast as a product of f32 on this machine's cpu; --tflops says another$", here.stdout, re.M), here)
    expect(here.stdout.startswith("predicted for 1 rank, strategy ") and re.search(r"^4096 +\d.*( +\d[\d.]* / .*){4}$", here.stdout, re.M), here)
    # One rank cannot be divided into groups of four.
    divided = call([PROGRAM, "plan", CONFIG, "--set", "strategy=hybrid", "--set", "fsdp.shard_ranks=4"])
    expect(divided.returncode == 0 and re.search(r"^4096 +\d.*( +\d[\d.]* / .*){5}$", divided.stdout, re.M) and "shard_ranks is 4" in divided.stdout, divided)
    alone = call([PROGRAM, "plan", CONFIG, *SMALL, "--ranks", ranks])
    expect(alone.returncode == 0 and "layer0" in alone.stdout and "measured" not in alone.stdout and "4096" not in alone.stdout, alone)
    refused = call([PROGRAM, "plan", CONFIG, "--ranks", ranks, "--set", "strategy=hybrid"])
    expect(refused.returncode == 2 and "shard_ranks" in refused.stderr, refused)
    named = call([PROGRAM, "plan", CONFIG, *SMALL, "--set", f"devices={ranks}"])
    expect(named.returncode == 0 and f"predicted for {ranks} ranks, " in named.stdout, named)
    other = call([PROGRAM, "plan", CONFIG, *SMALL, "--set", f"devices={ranks}", "--ranks", "5"])
    expect(other.returncode == 2 and f"devices is {ranks}, and the plan is to be of 5 ranks; leave --ranks out, or say --ranks {ranks}" in other.stderr, other)


def the_command_says_what_a_run_measures():
    """Of ranks that share memory; a batch that they cannot share evenly, and tests that need more than a step."""
    uneven = ["--set", "batch=5000", "--set", "micro_batches=8", "--set", "epochs=1", "--set", "schedule.warmup_steps=0", "--set", "model.layers=[784,16,10]"]
    for strategy in "zero3", "zero1":
        words = [*uneven, "--set", f"strategy={strategy}", "--set", "device=cpu"]
        plan = call([PROGRAM, "plan", CONFIG, *words, "--ranks", "3", "--group", "shared_memory"])
        run = call([PROGRAM, "launch", "-n", "3", "--by", "local", "train", CONFIG, *words, "--set", f"name={strategy}"])
        expect(plan.returncode == 0 and run.returncode == 0, run)
        said = {owner: size for owner, size in re.findall(r"^  (\w+) +([\d.]+)$", plan.stdout, re.M)}
        ledger = json.loads(Path(f"runs/{strategy}/ledger.json").read_text())["categories"]
        measured = {owner: f"{bytes['peak'] / 2**20:.2f}" for owner, bytes in ledger.items()}
        for part in said, measured:  # a step's batch; what a plan does not know
            for owner in "data", "workspace", "other":
                part.pop(owner, None)
        assert said == measured and float(said["evaluation"]) > float(said["activation"]), f"planned {said}, measured {measured}: {plan.all}"


def expect_as_predicted(words, name, environment=None):
    """A run measures what its plan said: the peak of each owner, and what a step sends, to the byte."""
    run = call(words, environment)
    expect(run.returncode == 0, run)
    about, ledger = (json.loads(Path("runs", name, file).read_text()) for file in ("about.json", "ledger.json"))
    expect(about["end"]["step_bytes"] == about["plan"]["bytes_sent"] > 0, run)
    planned, measured = about["plan"]["peaks"], {owner: bytes["peak"] for owner, bytes in ledger["categories"].items()}
    beside = planned.get("data", 0) + planned.get("other", 0)  # the norm's lists
    for part in planned, measured:  # a step's batch; what a plan does not know
        for owner in "data", "workspace", "other":
            part.pop(owner, None)
    assert planned == measured and len(planned) >= 4, f"{name}: planned {planned}, measured {measured}"
    # All owners together are most in a step, which the trace has, and not in an evaluation, which it has not.
    held, expected = held_in_trace(Path("runs", name, "trace.json"), planned), about["plan"]["peak"] - beside
    assert planned["evaluation"] <= planned["activation"] and held == expected, f"{name}: planned {expected} of {planned}, measured {held}"
    return planned


# LLaMA 2's largest, and texts of which a batch has a sample for each of 512 ranks.
LLAMA = {"name": "llama", "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_size": 8192, "intermediate_size": 28672,
         "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}


def large_plans_are_made_at_once():
    """70e9 parameters, in few layers and in 80 blocks, and 200 layers on 1,024 ranks; also where a product is timed, as nobody has said how fast
    the device is. On two cores of an EPYC those of linear layers took 0.01, 0.03, 3.4 and 0.03 s without that."""
    wide, deep = (["--set", f"model.layers={json.dumps([784, *inner, 10])}"] for inner in ([100000] * 8, [512] * 200))
    Path("text.txt").write_text("x" * (512 * 512 + 1))
    Path("llama.json").write_text(json.dumps({"data": {"name": "text", "path": "text.txt", "test": "text.txt", "tokenizer": "bytes", "length": 512},
                                              "model": LLAMA, "task": {"name": "next_token"}, "batch": 512}))
    clip, said = ["--set", "clip_grad_norm=1"], ["--tflops", "100"]
    for name, config, words, limit in [
            ("wide", [CONFIG, *wide], ["--ranks", "512", *said], 1), ("wide", [CONFIG, *wide], ["--ranks", "512", *clip, *said], 1),
            ("wide", [CONFIG, *wide], ["--ranks", "512"], 1), ("wide", [CONFIG, *wide], ["--compare", *clip, *said], 10),
            ("deep", [CONFIG, *deep], ["--ranks", "1024", *said], 1), ("llama", ["llama.json"], ["--ranks", "512", *said], 1),
            ("llama", ["llama.json"], ["--compare", *said], 10)]:
        begin = time.monotonic()
        run = call([PROGRAM, "plan", *config, *words])
        took = time.monotonic() - begin
        expect(run.returncode == 0, run)
        print(f"{took:.2f} s: {name}, {' '.join(words)}")
        assert took < limit, f"{name}, {words}: {took:.1f} s"


def held_in_trace(path, owners):
    """The most bytes that these owners have on rank 0 at one time."""
    most, held = 0, {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "C" and event["name"] == "memory" and event["pid"] == 0:
            held |= {owner: bytes for owner, bytes in event["args"].items() if owner in owners}
            most = max(most, sum(held.values()))
    return most


def few_steps(config):
    """A configuration that is shipped, cut to some steps."""
    shipped = {key: value for key, value in json.loads((ROOT / "configs" / config).read_text()).items() if key != "epochs"}
    if shipped["data"]["name"] == "text":  # any will do
        Path("text.txt").write_text("In the beginning was the Word. " * 400)
        shipped["data"] |= {"path": "text.txt", "tokenizer": "bytes"}
    Path("shipped.json").write_text(json.dumps(shipped | {"steps": 3, "schedule": {}}))


def what_is_predicted_is_measured(config):
    """In whole runs, under each strategy."""
    few_steps(config)
    for strategy, ranks in itertools.product(("ddp", "zero1", "zero2", "zero3", "hybrid"), ("2", "4")):
        words = [PROGRAM, "launch", "-n", ranks, "--by", "local", "train", "shipped.json", "--set", f"strategy={strategy}"]
        words += ["--set", f"name={strategy}{ranks}", *(["--set", "fsdp.shard_ranks=2"] if strategy == "hybrid" else [])]
        expect_as_predicted(words, f"{strategy}{ranks}")


def what_messages_need_is_predicted(config):
    """Of ranks that MPI connects, and of ranks on two machines (by their word)."""
    few_steps(config)
    hybrid = ["--set", "fsdp.shard_ranks=2"]
    for group, strategy, *more in ("mpi", "ddp"), ("mpi", "hybrid", *hybrid), ("two_level", "zero3"), ("two_level", "hybrid", *hybrid):
        words = [PROGRAM, "train", "shipped.json", "--set", f"strategy={strategy}", "--set", f"name={group}-{strategy}", *more]
        ranks = each_rank(*(["env", f"SHARDGRAD_MACHINE={rank // 2}", *words] for rank in range(4)))
        planned = expect_as_predicted(ranks, f"{group}-{strategy}", ROOT_MAY | {"SHARDGRAD_GROUP": group})
        assert planned["communication"] > 0, planned


if __name__ == "__main__":
    main(globals())
