"""Walks one thread of a kernel through its machine code, with the arguments of a launch: what it loads and stores, how much of
that is on its way at a time, and which instructions it takes. Numbers that follow from the arguments are computed, data are
not known. Where a branch depends on them, the thread goes on with the next instruction, as some thread of a warp does, unless
only the other way leads to the end without a call or a trap.
"""
import heapq
import re
from collections import Counter
from dataclasses import dataclass, field

from sass import STEP
from sass_numbers import COMPUTES, WORD

LIMIT = 200_000     # instructions, before a walk is given up
REGISTER = re.compile(r"U?R(\d+)")
ADDRESS = re.compile(r"\[(U?R[^\]]*)\]$")
CONSTANT = re.compile(r"c\[0x0\]\[(?:(U?R\w+)\+?)?(-?0x[0-9a-f]+)?\]$")


@dataclass
class Access:
    operand: str
    bytes: int

    @property
    def streamed(self):
        """From memory; what a name with ~ stands for is small, and stays in the caches."""
        return not (self.operand or "").startswith("~")


@dataclass
class Walked:
    instructions: int = 0
    undecided: int = 0
    counts: Counter = field(default_factory=Counter)   # instructions by name
    shared: int = 0                                    # clocks that shared memory is busy with a warp's accesses
    loads: list = field(default_factory=list)
    stores: list = field(default_factory=list)
    flight: list = field(default_factory=list)         # the streamed loads on their way when most bytes were


def bytes_of(modifiers):
    for word, size in {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}.items():
        if word in modifiers:
            return size
    return 4


def width_of(it):
    """Registers of an instruction's result."""
    if it.name in ("LDG", "LDS", "LDL", "LDC", "LD", "ATOMG"):
        return max(1, bytes_of(it.modifiers) // 4)
    if it.name == "IMAD" and "WIDE" in it.modifiers or it.name == "CS2R" and "32" not in it.modifiers:
        return 2
    if it.name in ("DADD", "DMUL", "DFMA") or it.name in ("F2F", "I2F") and "F64" in it.modifiers[:1] or it.name == "F2I" and (
            "U64" in it.modifiers or "S64" in it.modifiers):
        return 2
    return 4 if it.name == "HMMA" or it.name == "LDSM" else 1


def next_of(name, count):
    """R5, R6, … for R4 and 2, 3, …"""
    found = REGISTER.match(name)
    return f"{name[:found.start(1)]}{int(found.group(1)) + count}" if found else name


def calls_from(code):
    """Of each instruction, how many calls and traps there are between it and the end at least."""
    before, here = {}, code.instructions
    for i, it in enumerate(here):
        target = int(it.sources[-1], 16) // STEP if it.name == "BRA" and it.sources and it.sources[-1].startswith("0x") else None
        ends = it.name in ("EXIT", "RET", "BPT", "BRA", "BRX") and it.guard in ("", "PT") and not it.asked
        for to in ([target] if target is not None else []) + ([] if ends else [i + 1]):
            before.setdefault(to, []).append((i, it.name in ("CALL", "BPT")))
    found, queue = {}, [(0, i) for i, it in enumerate(here) if it.name == "EXIT"]
    while queue:
        far, i = heapq.heappop(queue)
        if i not in found:
            found[i] = far
            for each, cost in before.get(i, []):
                heapq.heappush(queue, (far + cost, each))
    return found


class Thread:
    def __init__(self, code, bank, operands, special, data=None):
        """`bank`: the bytes of constants, the words of which at the offsets of `operands` point to these; `special`: what
        SR_TID.X and the like are; `data`: the number that every element of some operands is."""
        self.code, self.bank, self.operands, self.special, self.data, self.local = code, bank, operands, special, data or {}, {}
        self.registers, self.bases, self.predicates, self.barriers = {}, {}, {}, {}
        self.pending, self.copies, self.group, self.walked = [], [], [], Walked()
        self.calls_from = calls_from(code)

    def name_of(self, text):
        return text.lstrip("-~!|").split(".")[0].rstrip("|")

    def constant(self, text):
        """The offset of a constant, or None."""
        register, offset = CONSTANT.match(text).groups()
        at = self.number(register) if register else 0
        return None if at is None else at + int(offset or "0", 16)

    def constant_number(self, text, size=4):
        at = self.constant(text) if CONSTANT.match(text) else None
        return None if at is None else int.from_bytes(self.bank[at:at + size], "little")

    def number(self, text):
        """A source's number, or None."""
        name = self.name_of(text)
        if name in ("RZ", "URZ", "SRZ"):
            value = 0
        elif text.lstrip("-").startswith("0x"):
            return int(text, 16) & WORD
        elif text.lstrip("-~|").startswith("c["):
            value = self.constant_number(text.strip("-~|"))
        else:
            value = self.registers.get(name)
        if value is None or "|" in text:
            return None
        return -value & WORD if text[0] == "-" else ~value & WORD if text[0] == "~" else value

    def long(self, text):
        """The number of a pair of registers, or of two words of constants."""
        if text.startswith("c["):
            return self.constant_number(text, 8)
        low, high = self.number(text), self.number(next_of(self.name_of(text), 1))
        return None if low is None or high is None else high << 32 | low

    def predicate(self, text):
        name = text.lstrip("!")
        value = True if name in ("PT", "UPT") else self.predicates.get(name)
        return value if value is None or text[0] != "!" else not value

    def set_predicate(self, name, value):
        if name not in ("PT", "UPT"):
            self.predicates[name] = value

    def base_of(self, text):
        if text.startswith("c[") and CONSTANT.match(text):
            return self.operands.get(self.constant(text))
        return self.bases.get(self.name_of(text))

    def write(self, it, value, base, certain):
        width = width_of(it)
        for i in range(width):
            name = next_of(it.result, i)
            if name not in ("RZ", "URZ"):
                self.registers[name] = value >> 32 * i & WORD if value is not None and certain and i < 2 else None
                self.bases[name] = base

    def reads(self, it):
        """The registers that an instruction asks for; of wide data the first and the last."""
        for text in it.sources:
            for name in re.findall(r"U?R\d+", text):
                yield name
                if it.name in ("STG", "STS") or it.name in ("DADD", "DMUL", "DFMA") or ".64" in text:
                    yield next_of(name, max(1, bytes_of(it.modifiers) // 4 - 1))

    def wait_for(self, it):
        """Loads come in their order: what is asked for is there, and so is all before it."""
        asked = set(self.reads(it))
        last = max((i for i, (names, _) in enumerate(self.pending) if asked & names), default=-1)
        self.pending = self.pending[last + 1:]

    def fly(self):
        flight = [access for _, access in self.pending] + [each for group in self.copies for each in group] + self.group
        flight = [each for each in flight if each.streamed]
        if sum(each.bytes for each in flight) > sum(each.bytes for each in self.walked.flight):
            self.walked.flight = flight

    def access(self, it):
        """Loads, stores and copies of global memory; how long shared memory is busy."""
        size = bytes_of(it.modifiers)
        if it.name in ("LDS", "STS", "LDSM", "ATOMS"):
            self.walked.shared += 4 if it.name == "LDSM" else max(1, size // 4)
            return
        address = next(text for text in it.sources if ADDRESS.search(text) and (it.name != "LDGSTS" or text.startswith("desc")))
        operands = map(self.base_of, re.findall(r"U?R\d+", ADDRESS.search(address).group()))
        to = Access(next(filter(None, operands), None), size)
        if it.name == "STG":
            self.walked.stores.append(to)
        else:
            self.walked.loads.append(to)
            if it.name == "LDG":
                self.pending.append(({next_of(it.result, i) for i in range(width_of(it))}, to))
            else:
                self.group.append(to)
            self.fly()

    def keep_local(self, it):
        """The number that is loaded from local memory, where one was stored."""
        name, offset = re.match(r"\[(U?R\w+)(?:\+(-?0x[0-9a-f]+))?\]", it.sources[0]).groups()
        base = self.number(name)
        at = None if base is None else base + int(offset or "0", 16)
        if it.name == "STL":
            self.local = {} if at is None else self.local | {at: self.number(it.sources[1])}
        return self.local.get(at) if bytes_of(it.modifiers) == 4 else None

    def compute(self, it, certain):
        value = base = None
        if it.name == "LDC":
            value, base = self.constant_number(it.sources[0], bytes_of(it.modifiers)), self.base_of(it.sources[0])
        elif it.name in ("S2R", "S2UR", "CS2R"):
            value = self.special.get(it.sources[0])
        elif it.name == "LDG":
            value = self.data.get(self.walked.loads[-1].operand)
        elif it.name in ("LDL", "STL"):
            value = self.keep_local(it)
        else:
            base = next(filter(None, map(self.base_of, it.sources)), None)
            if it.name in COMPUTES:
                value = COMPUTES[it.name](self, it)
            else:
                for each in it.changed:
                    self.set_predicate(each, None)
        if not certain:
            for each in it.changed:
                self.set_predicate(each, None)
        if it.result:
            self.write(it, value, base, certain)

    def goes(self, it, at, target):
        """Whether a branch is taken."""
        if "DIV" in it.modifiers:
            return False
        asked = [self.predicate(each) for each in ([it.guard] if it.guard else []) + it.asked]
        if False in asked:
            return False
        if None not in asked:
            return True
        self.walked.undecided += 1
        calls = self.calls_from.get
        return calls(target, 1 << 60) < calls(at + 1, 1 << 60)

    def target(self, text):
        return (int(text, 16) if text.startswith("0x") else self.code.labels[text]) // STEP

    def jump(self, it, at):
        """The instruction after this one, or None at the end."""
        guard = self.predicate(it.guard or "PT")
        if it.name == "BRA":
            target = self.target(it.sources[-1])
            return target if self.goes(it, at, target) else at + 1
        if it.name in ("EXIT", "BPT", "BRX"):
            return at + 1 if guard is False or guard is None and self.calls_from.get(at + 1, 1 << 60) < 1 else None
        if it.name == "CALL" and guard is not False:
            return self.target(it.sources[-1]) if it.sources[-1] in self.code.labels else at + 1
        if it.name == "RET":
            return self.number(it.sources[0]) // STEP
        if it.name == "BSSY":
            self.barriers[it.sources[0]] = self.target(it.sources[-1])
        if it.name == "BSYNC":
            return self.barriers.get(it.sources[0], at + 1)
        return at + 1

    def step(self, it):
        guard = self.predicate(it.guard or "PT")
        if guard is False:
            return
        self.wait_for(it)
        if it.name in ("LDG", "LDGSTS", "STG", "LDS", "STS", "LDSM", "ATOMS"):
            self.access(it)
        if it.name == "LDGDEPBAR":
            self.copies, self.group = self.copies + [self.group], []
        elif it.name == "DEPBAR" and it.sources[1:]:
            left = self.number(it.sources[1]) or 0
            self.copies = self.copies[len(self.copies) - left:] if left else []
        self.compute(it, guard is True)

    def walk(self):
        at = 0
        while at is not None and at < len(self.code.instructions):
            it, walked = self.code.instructions[at], self.walked
            walked.instructions += 1
            walked.counts[it.name] += 1
            if walked.instructions > LIMIT:
                raise RuntimeError("the thread does not end")
            self.step(it)
            at = self.jump(it, at)
        return self.walked
