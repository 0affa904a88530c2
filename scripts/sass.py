"""Machine code of NVIDIA GPUs as nvdisasm prints it: the instructions of the kernels in an object file.

The tools come from PyPI (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm): where no toolkit has them, wheels in build/python do.
"""
import json
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

STEP = 16  # bytes of an instruction
# What has no register as its result: the first operand is an address, a label or a predicate.
NO_RESULT = re.compile(r"ST|RED$|BAR|BRA|BRX|EXIT|RET|CALL|BSSY|BSYNC|BREAK|BPT|NOP|WARPSYNC|YIELD|DEPBAR|LDGSTS|LDGDEPBAR|"
                       r"MEMBAR|CCTL|ERRBAR|PLOP3|FCHK|R2P|\w*SETP|KILL|NANOSLEEP|ENDCOLLECTIVE")
PREDICATE = re.compile(r"!?U?P(\d|T)$")


@dataclass
class Instruction:
    """@guard name.modifiers results, sources: `changed` are predicates that it writes, `asked` those that it reads."""
    name: str
    modifiers: list
    guard: str
    result: str
    changed: list
    sources: list
    asked: list


@dataclass
class Code:
    instructions: list
    labels: dict = field(default_factory=dict)  # of what it calls: the byte where that begins


def uniform(name):
    """IADD3 for UIADD3: what the uniform unit does is what the others do."""
    return name[1:] if re.match(r"U(?!NPACK)[A-Z]", name) else name


def instruction(opcode, operands="", guard=""):
    name, *modifiers = opcode.split(".")
    name, rest = uniform(name), [each.strip() for each in operands.split(",") if each.strip() not in ("", "PR")]
    guard = "" if guard == "PR" else guard.strip("@")  # all predicates, which P2R and R2P move

    def leading_predicates():
        taken = []
        while rest and PREDICATE.match(rest[0]):
            taken.append(rest.pop(0))
        return taken

    has_result = not NO_RESULT.match(name)
    setter = re.match(r"\w*SETP|PLOP3|FCHK", name)
    changed = []
    if setter:
        changed = [rest.pop(0) for _ in range(2) if rest and PREDICATE.match(rest[0])]
    elif has_result:
        changed = leading_predicates()
    result = rest.pop(0) if has_result and rest else ""
    if has_result:
        changed += leading_predicates()
    asked = [each for each in rest if PREDICATE.match(each)]
    return Instruction(name, modifiers, guard, result, changed, [each for each in rest if each not in asked], asked)


def parsed(text):
    """Code from lines such as `@P0 LDG.E.128 R4, desc[UR4][R2.64] ;`; what stands before a colon is a label."""
    code = Code([])
    for line in filter(None, (each.strip(" ;") for each in text.splitlines())):
        if line.endswith(":"):
            code.labels[line[:-1]] = len(code.instructions) * STEP
            continue
        guard, opcode, operands = re.match(r"(@\S+ +)?(\S+) *(.*)", line).groups()
        code.instructions.append(instruction(opcode, operands, (guard or "").strip()))
    return code


def tool(name, root):
    """The path of cuobjdump or nvdisasm, or None."""
    wheels = sorted(root.glob(f"build/python/lib/python3*/site-packages/nvidia/cu*/bin/{name}"))
    beside = Path("/usr/local/cuda/bin") / name
    return shutil.which(name) or (str(beside) if beside.exists() else str(wheels[-1]) if wheels else None)


def symbols(elf):
    """(number, name, section, value) of each function in an ELF file of 64 bits."""
    start, = struct.unpack_from("<Q", elf, 0x28)
    count, = struct.unpack_from("<H", elf, 0x3C)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, start + 64 * i) for i in range(count)]
    table = next(each for each in sections if each[1] == 2)
    names = sections[table[6]][4]
    for i in range(table[5] // 24):
        name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", elf, table[4] + 24 * i)
        if info & 15 == 2:
            yield i, elf[names + name:elf.index(b"\0", names + name)].decode(), section, value


def disassembled(path, arch, wanted, root):
    """The code of those kernels of an object file for an architecture, by their mangled names, and the compiler's version."""
    path = Path(path).resolve()
    with tempfile.TemporaryDirectory(prefix="sass ") as folder:
        subprocess.run([tool("cuobjdump", root), "-xelf", "all", path], cwd=folder, check=True, capture_output=True)
        cubin = next(Path(folder).glob(f"*{arch}.cubin"))
        found = list(symbols(cubin.read_bytes()))
        numbers = ",".join(str(number) for number, name, _, _ in found if name in wanted)
        said = subprocess.run([tool("nvdisasm", root), "-json", "-fun", numbers, cubin], check=True, capture_output=True)
    section_of = {name: section for _, name, section, _ in found}
    head, functions = json.loads(said.stdout)
    codes = {}
    for function in functions:
        section = section_of[function["function-name"]]
        codes[function["function-name"]] = Code(
            [instruction(each["opcode"], each.get("operands", ""), each.get("predicate", "")) for each in function["sass-instructions"]],
            {name: value for _, name, where, value in found if where == section})
    return codes, head[".note.nv.tkinfo"]["tki_toolVersion"].split(", V")[-1]
