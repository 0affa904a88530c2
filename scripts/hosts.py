"""Hosts that are network namespaces of this machine, joined by cables with a speed limit: for scripts/two-hosts and
bench/compare_plan_time.py. Needs root, and what `check_tools` names."""
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tell_skipped(what, reason):
    """In the words behind which scripts/test finds the reason."""
    print(f"{what}: Skipped\n{reason}", flush=True)


def refuse(reason):
    tell_skipped(Path(sys.argv[0]).resolve().relative_to(ROOT), reason)
    sys.exit(3)


def check_tools(*more):
    """Ends the program where hosts cannot be made, with the reason."""
    if os.geteuid() != 0:
        refuse("needs root, to make network namespaces")
    for tool in ("ip", "tc", "unshare", *more):
        if not shutil.which(tool):
            refuse(f"missing: {tool} (Debian packages iproute2, openmpi-bin, util-linux)")


def run(words, seconds=300, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=seconds, **more)
    if done.returncode:
        raise RuntimeError(f"$ {' '.join(map(str, words))}\n{done.stdout}{done.stderr}[{done.returncode}]")
    return done.stdout


class Hosts:
    """Namespaces, a cable between two of them or from each to a switch, and the agent that mpirun calls instead of ssh.
    `ranks`: how many each is to have."""

    def __init__(self, folder, rate, ranks):
        self.ranks, self.rate = ranks, rate
        self.addresses = {chr(ord("a") + i): f"10.213.0.{i + 1}" for i in range(len(ranks))}
        self.names = {host: f"sg-{os.getpid()}-{host}" for host in self.addresses}
        self.switch = f"sg-{os.getpid()}-switch"
        self.agent = folder / "agent"
        try:
            for name in self.names.values():
                run(["ip", "netns", "add", name])
            self.lay_cables()
            for host, name in self.names.items():
                run(["ip", "-n", name, "addr", "add", f"{self.addresses[host]}/24", "dev", "cable"])
                for device in ("lo", "cable"):
                    run(["ip", "-n", name, "link", "set", device, "up"])
                run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "cable", "root", "handle", "1:", "tbf", "rate", rate,
                     "burst", "128kb", "latency", "50ms"])
                run(["ip", "netns", "exec", name, "unshare", "--uts", "true"])
        except RuntimeError as error:
            self.close()
            refuse("this kernel or container does not let network namespaces be made: " + str(error))
        cases = "".join(f"{address}) name={self.names[host]} host=host-{host};; "
                        for host, address in self.addresses.items())
        self.agent.write_text("#!/bin/sh\naddress=$1; shift\ncase $address in " + cases + "esac\n"
                              'exec ip netns exec "$name" unshare --uts sh -c "hostname $host; $*"\n')
        self.agent.chmod(0o755)

    def lay_cables(self):
        if len(self.names) == 2:
            a, b = self.names.values()
            run(["ip", "link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b])
            return
        run(["ip", "netns", "add", self.switch])
        run(["ip", "-n", self.switch, "link", "add", "switch", "type", "bridge"])
        run(["ip", "-n", self.switch, "link", "set", "switch", "up"])
        for host, name in self.names.items():
            run(["ip", "link", "add", "cable", "netns", name, "type", "veth", "peer", "name", host, "netns", self.switch])
            run(["ip", "-n", self.switch, "link", "set", "dev", host, "master", "switch", "up"])

    def close(self):
        for name in (*self.names.values(), self.switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def mpirun(self, words, *options):
        """Runs a program with as many ranks on each host as it is to have."""
        return run(self.line(words, *options))

    def line(self, words, *options):
        addresses = list(self.addresses.values())
        slots = ",".join(f"{address}:{ranks}" for address, ranks in zip(addresses, self.ranks))
        network = addresses[0].rsplit(".", 1)[0] + ".0/24"
        command = ["mpirun", "--allow-run-as-root", "-q", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", self.agent,
                   "--mca", "oob_tcp_if_include", network, "--mca", "btl_tcp_if_include", network, "--bind-to", "none",
                   "-x", "OMP_NUM_THREADS=1", "-x", "GOMP_SPINCOUNT=1000", "--host", slots, "-n", sum(self.ranks), *options,
                   *words]
        quoted = " ".join("'" + str(word) + "'" for word in command)
        return [str(self.agent), addresses[0], quoted]

    def line_by_tcp(self, words):
        """Without mpirun: each process is told who it is, and how it ended is printed."""
        addresses, commands, rank = list(self.addresses.values()), "", 0
        job = {"WORLD_SIZE": sum(self.ranks), "MASTER_ADDR": addresses[0], "MASTER_PORT": 29533,
               "SHARDGRAD_JOB_TOKEN": secrets.token_hex(16), "OMP_NUM_THREADS": 1, "GOMP_SPINCOUNT": 1000}
        for address, ranks in zip(addresses, self.ranks):
            for _ in range(ranks):
                told = [f"{name}={value}" for name, value in {**job, "RANK": rank}.items()]
                command = shlex.join([str(self.agent), address, shlex.join(["env", *told, *map(str, words)])])
                commands += f'{{ {command}; code=$?; echo "exit of {rank}: $code"; exit $code; }} & '
                commands += 'ranks="$ranks $!"; '
                rank += 1
        return ["bash", "-c", commands + "code=0; for rank in $ranks; do wait $rank || code=$?; done; exit $code"]

    def on(self, host, *words):
        return run(["ip", "netns", "exec", self.names[host], *words])

    def send_packets(self):
        """As a cable carries them, of at most 1,500 bytes: what a namespace sends is cut into such only where it must be."""
        for name in self.names.values():
            run(["ip", "-n", name, "link", "set", "dev", "cable", "gso_max_segs", "1"])

    def queue_as_usual(self):
        """As Linux does by default: what is to go first goes first."""
        for host in self.names:
            self.on(host, "tc", "qdisc", "replace", "dev", "cable", "parent", "1:1", "pfifo_fast")

    def set_rate(self, rate):
        """Of all ends; what waits for its turn is not thrown away."""
        for host in self.names:
            self.on(host, "tc", "qdisc", "change", "dev", "cable", "root", "tbf", "rate", rate, "burst", "128kb", "limit", "64mb")

    def set_cable(self, state):
        run(["ip", "-n", self.names["b"], "link", "set", "cable", state])

    def processes(self, host):
        return run(["ip", "netns", "pids", self.names[host]]).split()

    def is_empty_within(self, host, seconds):
        """Whether all of its processes end meanwhile."""
        deadline = time.monotonic() + seconds
        while self.processes(host) and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self.processes(host)

    def signal(self, host, name):
        subprocess.run(["kill", f"-{name}", *self.processes(host)], capture_output=True)

    def bytes_by_host(self):
        """That each has sent over its cable since it was made."""
        counters = (run(["ip", "netns", "exec", name, "cat", "/sys/class/net/cable/statistics/tx_bytes"])
                    for name in self.names.values())
        return list(map(int, counters))

    def bytes_sent(self):
        return sum(self.bytes_by_host())


class LateHosts(Hosts):
    """Two hosts whose cable is a program, which holds packets up (scripts/late_cable.py). Needs /dev/net/tun."""
    cable = None

    def lay_cables(self):
        words = [sys.executable, str(ROOT / "scripts/late_cable.py"), *self.names.values()]
        self.cable = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.cable.stdout.readline() != "laid\n":
            raise RuntimeError("scripts/late_cable.py could not make its ends")
        for name in self.names.values():  # what waits there for a program must not be thrown away
            run(["ip", "-n", name, "link", "set", "cable", "txqueuelen", "10000"])

    def hold_up(self, seconds):
        """What is sent from now on; 0 also lets go what is held."""
        self.cable.stdin.write(f"{seconds}\n")
        self.cable.stdin.flush()

    def close(self):
        if self.cable:
            self.cable.stdin.close()
            self.cable.wait()
            self.cable.stdout.close()
        super().close()
