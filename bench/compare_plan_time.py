#!/usr/bin/env python3
"""How near `shardgrad plan --time` is to steps that are measured: three shipped configurations, every strategy.

    bench/compare_plan_time.py [--build build] [--rounds 3] [--places here delay hosts] [--quick] [--json FILE]

Places are ranks of this machine (1, 2 and 4), 2 ranks of which each collective is held up by 2 ms, and two and four hosts of one rank, which are
network namespaces, on cables of 100 Mbit/s and 1 Gbit/s (scripts/hosts.py: needs root). A network's speed is what `doctor --measure` finds there.

A round predicts and times by turns. Measured is the median over the lines of a run (`seconds` of metrics.jsonl), without the first. Where ranks of
this machine are more than its cores, it is their CPU time, held against the step of ranks with a core each; hosts that share cores are predicted
from ranks that are timed side by side on them. Nothing else should run on the machine.

Exits 1 where an aim is missed: half of the errors at most 15 %, all at most 30 %; 3 where it cannot run, with the reason. Takes an hour or more,
--quick (a round of the smallest model, fewer places) some minutes.
"""
import argparse
import json
import os
import re
import resource
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from hosts import Hosts, check_tools, refuse, run  # noqa: E402

MEDIAN_AIM, LARGEST_AIM = 0.15, 0.30
STRATEGIES = ["ddp", "zero1", "zero2", "zero3", "hybrid"]
HYBRID = ["strategy=hybrid", "fsdp.shard_ranks=2"]
# A configuration: (batch, the most steps of a line).
CONFIGS = {"fashion_mnist": (256, 100), "fashion_mnist_cnn": (64, 10), "gpt_kjv": (8, 4)}
LINES, LINE_SECONDS = 7, 0.5
CORES = len(os.sched_getaffinity(0))
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}


class Here:
    """Ranks of this machine; with a delay, each collective is held up by so many microseconds."""

    def __init__(self, build, ranks, delay=0):
        self.program, self.delayed, self.ranks, self.delay = build / "bin/shardgrad", build / "bin/delayed_run", ranks, delay
        self.side_by_side, self.by_cpu = min(ranks, CORES), ranks > CORES
        self.title = f"{ranks} ranks" + (f", {delay / 1e3:g} ms" if delay else "")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def network(self, file):
        """What `plan` is told of it."""
        if not self.delay:
            return []
        run([self.program, "doctor", "--measure", file], env=ONE_THREAD, cwd=ROOT)
        found = json.loads(file.read_text())
        file.write_text(json.dumps({**found, "latency": found["latency"] + self.delay}))
        return ["--network", file]

    def train(self, config, settings):
        started = [self.program, "launch", "-n", self.ranks, "--by", "local"]
        if self.delay:
            started += [self.delayed, self.delay, config, *settings]
        else:
            started += ["train", config, *set_words(settings)]
        run(started, 900, env=ONE_THREAD, cwd=ROOT)


class OnHosts:
    """A rank on each of several hosts."""
    by_cpu = False

    def __init__(self, build, count, rate):
        self.program, self.ranks, self.side_by_side, self.rate = build / "bin/shardgrad", count, count, rate
        self.title = f"{count} hosts, {rate}"

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.hosts = Hosts(Path(self.folder.name), self.rate, (1,) * self.ranks)
        return self

    def __exit__(self, *exception):
        self.hosts.close()
        self.folder.cleanup()

    def network(self, file):
        run(self.hosts.line_by_tcp([self.program, "doctor", "--measure", file]), cwd=ROOT)
        return ["--network", file]

    def train(self, config, settings):
        run(self.hosts.line_by_tcp([self.program, "train", config, *set_words(settings)]), 900, cwd=ROOT)


def set_words(settings):
    return [word for setting in settings for word in ("--set", setting)]


def predicted(place, name):
    """{strategy: seconds}, without those that so many ranks cannot have."""
    with tempfile.TemporaryDirectory() as folder:
        words = [place.program, "plan", f"configs/{name}.json", "--time", "--threads", 1, "--per-machine", place.side_by_side]
        words += [*place.network(Path(folder) / "network.json"), *set_words([f"batch={CONFIGS[name][0]}", *HYBRID])]
        table = run(words, 900, cwd=ROOT)
    row = re.search(rf"^{place.ranks} +[-\d].*$", table, re.M)
    cells = re.findall(r"([\d.]+) / [\d.]+ / \d+ %|(?<= )-(?= |$)", row[0])
    return {strategy: float(cell) / 1e3 for strategy, cell in zip(STRATEGIES, cells, strict=True) if cell}


def trained(place, name, strategy, each, lines):
    """Seconds of each line of so many steps, and the CPU seconds of the whole job."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"batch": CONFIGS[name][0], "strategy": strategy, "log_interval": each, "steps": each * lines, "eval_every": each * lines,
                    "schedule.warmup_steps": 0, "save_minutes": 0, "trace_steps": "[0,0]", "sanity_steps": 0, "runs": folder, "name": "run"}
        before = cpu_of_children()
        place.train(f"configs/{name}.json", [*(f"{key}={value}" for key, value in settings.items()), *(HYBRID if strategy == "hybrid" else [])])
        rows = [json.loads(line) for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
        return [row["seconds"] for row in rows], cpu_of_children() - before


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measured(place, name, strategy, guess):
    """Seconds of a step, which takes about `guess`."""
    each = max(1, min(CONFIGS[name][1], round(LINE_SECONDS / guess)))
    seconds, cpu = trained(place, name, strategy, each, LINES)
    if not place.by_cpu:
        return statistics.median(seconds[1:]) / each
    _, cpu_of_one = trained(place, name, strategy, each, 1)  # which began and ended likewise
    return (cpu - cpu_of_one) / ((LINES - 1) * each * place.ranks)


def places_of(options):
    here = [Here(options.build, ranks) for ranks in ((1, 2) if options.quick else (1, 2, 4))]
    hosts = [(2, "1gbit")] if options.quick else [(count, rate) for count in (2, 4) for rate in ("100mbit", "1gbit")]
    of = {"here": here, "delay": [Here(options.build, 2, 2000)], "hosts": [OnHosts(options.build, *of_hosts) for of_hosts in hosts]}
    return [place for kind in options.places for place in of[kind]]


def check_can_run(options):
    if "hosts" in options.places:
        check_tools()
    for program in ("shardgrad", *(["delayed_run"] if "delay" in options.places else [])):
        if not (options.build / "bin" / program).exists():
            refuse(f"no {program} in {options.build}/bin; build it with -DSHARDGRAD_BENCH=ON, as scripts/test --all does")
    if "gpt_kjv" in options.configs and not (ROOT / "build/text/kjv.json").exists():
        refuse("no text to train on; run scripts/quickstart --text first, or leave gpt_kjv out (--configs)")


def compare(options, name, place):
    """Prints a line for each strategy; the numbers of all rounds."""
    said, taken = {}, {}
    for _ in range(options.rounds):
        with place:
            guesses = predicted(place, name)
            for strategy, guess in guesses.items():
                said.setdefault(strategy, []).append(guess)
                taken.setdefault(strategy, []).append(measured(place, name, strategy, guess))
    for strategy in taken:
        mine, here = statistics.median(said[strategy]), statistics.median(taken[strategy])
        print(f"{name:18} {strategy:6} {place.title:16}: predicted {1e3 * mine:8.2f} ms, measured {1e3 * here:8.2f} ms"
              f"{' of CPU time' if place.by_cpu else ''}, ratio {mine / here:.3f}", flush=True)
        yield {"config": name, "strategy": strategy, "place": place.title, "predicted": said[strategy], "measured": taken[strategy], "ratio": mine / here}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--places", nargs="+", default=["here", "delay", "hosts"], choices=["here", "delay", "hosts"])
    parser.add_argument("--configs", nargs="+", choices=list(CONFIGS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, help="write all numbers there, too")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.configs = options.configs or (["fashion_mnist"] if options.quick else list(CONFIGS))
    check_can_run(options)
    found = [one for name in options.configs for place in places_of(options) for one in compare(options, name, place)]
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    errors = sorted(abs(one["ratio"] - 1) for one in found)
    median = statistics.median(errors)
    print(f"error: median {100 * median:.1f} %, largest {100 * errors[-1]:.1f} % of {len(errors)}; "
          f"aims: {100 * MEDIAN_AIM:.0f} % and {100 * LARGEST_AIM:.0f} %")
    return 1 if median > MEDIAN_AIM or errors[-1] > LARGEST_AIM else 0


if __name__ == "__main__":
    sys.exit(main())
