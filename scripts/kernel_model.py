"""What a walk through a kernel (sass_walk.py) says of its speed on one GPU: bytes in flight, instructions per element, and the
limit that follows. The numbers of the GPU stand here, and where they come from.
"""
from collections import Counter
from dataclasses import dataclass

# An H200. Its copy is the fastest of the GPUs that we meet, and so asks the most of a kernel; an H100's is 2.93 TB/s
# (bench/results/2026-11-26-h100.json), with the same multiprocessors.
COPY = 4.3e12              # bytes read and written per second by a copy: 90 % of the 4.8 TB/s of its memory
SHARE = 0.85               # of a copy, which kernels should reach
SMS = 132
CLOCK = 1.83e9             # at which 132 multiprocessors make NVIDIA's 989 TFLOP/s of bf16
ISSUE = 4                  # instructions of a warp per clock
LATENCY = 0.6e-6           # seconds from a load to its data: what kernels with one load in flight were measured at, see docs/cuda.md
IN_FLIGHT = 32 << 10       # bytes of a multiprocessor that should be on their way
# Programming guide, arithmetic instructions of compute capability 9.0: results per clock of a multiprocessor where it is not 128.
LANES = {"MUFU": 16, "F2F": 16, "DADD": 64, "DMUL": 64, "DFMA": 64, "DSETP": 64, "POPC": 16}
PRODUCT = 16 * 8 * 16 * 2  # operations of an HMMA.16816
MMA_CLOCKS = 1 / 0.63      # of one: mma.sync reaches 63 % of the 4096 operations per clock (arXiv 2402.13499)
REGISTERS, THREADS, BLOCKS, SHARED, SHARED_OF_BLOCK = 65536, 2048, 32, 227 << 10, 1 << 10


@dataclass
class Row:
    launch: object
    registers: int
    stack: int
    shared: int
    spilled: int
    walked: object

    @property
    def threads(self):
        """Threads of a multiprocessor: as many blocks as registers, shared memory and its own limits allow."""
        block = self.launch.block[0] * self.launch.block[1]
        warps = -(-block // 32)
        of_registers = REGISTERS // (-(-self.registers * 32 // 256) * 256 * warps)
        of_shared = SHARED // (self.shared + self.launch.dynamic + SHARED_OF_BLOCK)
        return min(of_registers, of_shared, THREADS // block, BLOCKS) * block

    @property
    def flight(self):
        """The loads from memory that a thread has on their way at a time: {bytes: how many}."""
        return Counter(each.bytes for each in self.walked.flight)

    @staticmethod
    def bytes_of(accesses):
        return sum(each.bytes for each in accesses if each.streamed)

    @property
    def in_flight(self):
        return self.threads * sum(size * count for size, count in self.flight.items())

    @property
    def elements(self):
        """Of a thread."""
        of_operand = [each.bytes for each in self.walked.loads if each.operand == self.launch.per]
        return sum(of_operand or [each.bytes for each in self.walked.stores if each.operand == self.launch.per]) / self.launch.size

    @property
    def instructions(self):
        return self.walked.instructions / self.elements

    @property
    def moved(self):
        """Bytes of an element that are read or written."""
        return self.bytes_of(self.walked.loads + self.walked.stores) / self.elements

    @property
    def clocks(self):
        """Of a multiprocessor, for what a warp does: {what is busy: how long}."""
        counts = self.walked.counts
        pipes = {name: counts[name] * 32 / lanes for name, lanes in LANES.items() if counts[name]}
        return {"issue": self.walked.instructions / ISSUE, "shared memory": self.walked.shared,
                "tensor cores": counts["HMMA"] * MMA_CLOCKS, **pipes}

    @property
    def limits(self):
        """Bytes per second: {what limits them: how many}."""
        reads = self.bytes_of(self.walked.loads) / self.elements
        moved = self.moved * self.elements * 32 * SMS * CLOCK
        found = {"memory": COPY} | {what: moved / clocks for what, clocks in self.clocks.items() if clocks}
        if reads:
            found["latency"] = self.in_flight * SMS / LATENCY * self.moved / reads
        return found

    @property
    def operations(self):
        """TFLOP/s of a product: {what limits them: how many}."""
        made = self.walked.counts["HMMA"] * PRODUCT + self.walked.counts["FFMA"] * 32 * 2 * (not self.walked.counts["HMMA"])
        return {what: made / clocks * SMS * CLOCK / 1e12 for what, clocks in self.clocks.items() if clocks}

    @property
    def issue_allowed(self):
        """Instructions of an element at which issuing them takes as long as moving it at SHARE of a copy."""
        return ISSUE * 32 * SMS * CLOCK * self.moved / (SHARE * COPY)

    def shortfalls(self):
        """Why a kernel of memory does not reach SHARE of a copy."""
        if self.in_flight < IN_FLIGHT:
            yield f"{self.in_flight / 1024:.0f} KB in flight"
        if self.instructions > self.issue_allowed:
            yield f"{self.instructions:.0f} instructions per element, {self.issue_allowed:.0f} allowed"
