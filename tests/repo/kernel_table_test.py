#!/usr/bin/env python3
"""What scripts/kernel-table reads in machine code, on a few lines of it, and that its check can fail.

    kernel_table_test.py SOURCE_DIR
"""
import importlib.machinery
import importlib.util
import struct
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/repo")]
import kernel_launches  # noqa: E402
from kernel_model import Row  # noqa: E402
from sass import parsed  # noqa: E402
from sass_walk import Access, Thread, Walked  # noqa: E402

loader = importlib.machinery.SourceFileLoader("kernel_table", str(ROOT / "scripts/kernel-table"))
table = importlib.util.module_from_spec(importlib.util.spec_from_loader("kernel_table", loader))
loader.exec_module(table)

AT = kernel_launches.ARGUMENTS
X, Y, N = f"c[0x0][{AT:#x}]", f"c[0x0][{AT + 8:#x}]", f"c[0x0][{AT + 16:#x}]"
ADDRESSES = f"""
  LDC.64 R2, {X}
  LDC.64 R4, {Y}
"""


def walked(text, n=0):
    """The walk of a thread with the arguments (x, y, n)."""
    launch = kernel_launches.Launch("", "float", "", "", (256, 1), [*map(kernel_launches.pointer, ("x", "y")), kernel_launches.long(n)], 4)
    thread = Thread(parsed(text), *kernel_launches.constants(launch), {"SR_TID.X": 1, "SR_CTAID.X": 3, "SRZ": 0})
    return thread.walk(), thread


def flight(text, n=0):
    found = Counter((each.operand, each.bytes) for each in walked(text, n)[0].flight)
    return dict(found)


def loads_before_the_first_use():
    two = ADDRESSES + """
      LDG.E.128 R8, desc[UR6][R2.64]
      LDG.E.128 R12, desc[UR6][R2.64+0x10]
      FADD R8, R8, R12
      STG.E desc[UR6][R4.64], R8
      EXIT"""
    found, _ = walked(two)
    assert flight(two) == {("x", 16): 2} and found.stores == [Access("y", 4)] and found.instructions == 7, found
    used = two.replace("LDG.E.128 R12", "FADD R20, R11, R11\n LDG.E.128 R12")
    assert flight(used) == {("x", 16): 1}, "a load whose last register is used is no longer on its way"
    assert flight(two.replace("LDG.E.128 R12", "@!PT LDG.E.128 R12")) == {("x", 16): 1}, "a load that is not made"


def loops_as_often_as_the_arguments_say():
    once = ADDRESSES + f"""
      LDC R6, {N}
      LDG.E R8, desc[UR6][R2.64]
      FADD R9, R9, R8
      IADD3 R2, P0, R2, 0x4, RZ
      IADD3.X R3, R3, RZ, RZ, P0, !PT
      VIADD R6, R6, 0xffffffff
      ISETP.NE.AND P1, PT, R6, RZ, PT
      @P1 BRA 0x30
      EXIT"""
    found, _ = walked(once, 5)
    assert len(found.loads) == 5 and found.undecided == 0 and flight(once, 5) == {("x", 4): 1}, found
    unrolled = once.replace("LDG.E R8, desc[UR6][R2.64]", "".join(f"LDG.E.U16 R{10 + i}, desc[UR6][R2.64]\n" for i in range(4)))
    assert flight(unrolled.replace("R9, R8", "R9, R10"), 1) == {("x", 2): 4}


def numbers_of_64_bits():
    """(3 · 256 + 1) · 2^30 by shifts and carries, and 1000 / 7 as CUDA divides."""
    _, thread = walked("""
      S2R R2, SR_TID.X
      S2R R3, SR_CTAID.X
      IMAD.WIDE.U32 R4, R3, 0x100, RZ
      IADD3 R4, P0, R4, R2, RZ
      SHF.L.U64.HI R5, R4, 0x1e, RZ
      IMAD.SHL.U32 R6, R4, 0x40000000, RZ
      IADD3 R7, P1, R6, -0x1, RZ
      ISETP.LT.U32.AND P2, PT, R6, R7, PT
      ISETP.LE.AND.EX P2, PT, R5, R5, PT, P2
      HFMA2.MMA R8, -RZ, RZ, 0, 5.9604644775390625e-08
      EXIT""")
    expected = (3 * 256 + 1) << 30
    assert (thread.registers["R5"] << 32 | thread.registers["R6"]) == expected and thread.registers["R8"] == 1
    assert thread.predicates["P1"] is True and thread.predicates["P2"] is False
    _, thread = walked("""
      MOV R0, 0x3e8
      I2F.U32.RP R2, 0x7
      MUFU.RCP R2, R2
      VIADD R2, R2, 0xffffffe
      F2I.FTZ.U32.TRUNC.NTZ R3, R2
      IMAD.MOV R4, RZ, RZ, -R3
      IMAD R4, R4, 0x7, RZ
      IMAD.HI.U32 R3, R3, R4, R2
      MOV R2, RZ
      IMAD.HI.U32 R3, R3, R0, RZ
      IMAD R4, R3, -0x7, R0
      ISETP.GE.U32.AND P0, PT, R4, 0x7, PT
      @P0 VIADD R3, R3, 0x1
      EXIT""")
    assert thread.registers["R3"] in (142, 143), thread.registers["R3"]


def branches_on_data():
    """Some thread of a warp goes on; where only one way leads to the end without a call or a trap, it is taken."""
    some = ADDRESSES + """
      LDG.E R8, desc[UR6][R2.64]
      FSETP.GT.AND P0, PT, R8, RZ, PT
      @!P0 BRA 0x60
      {}
      STG.E desc[UR6][R4.64], R8
      EXIT"""
    assert len(walked(some.format("LDG.E R8, desc[UR6][R2.64+0x8]"))[0].loads) == 2
    found, _ = walked(some.format("CALL.REL.NOINC elsewhere"))
    assert found.undecided == 1 and found.counts["CALL"] == 0
    found, _ = walked(some.format("BPT.TRAP 0x1"))
    assert found.counts["BPT"] == 0 and len(found.stores) == 1


def calls_and_what_is_kept():
    found, thread = walked("""
      MOV R4, 0x30
      STL [R1+0x8], R4
      CALL.REL.NOINC divide
      LDL R5, [R1+0x8]
      ISETP.EQ.AND P0, PT, R5, 0x30, PT
      P2R R6, PR, RZ, 0x1
      EXIT
    divide:
      MOV R9, 0x7
      RET.REL.NODEC R4, kernel""".replace("R1+", "RZ+"))
    assert thread.registers["R9"] == 7 and thread.registers["R5"] == 0x30 and thread.registers["R6"] == 1 and found.instructions == 9


def asynchronous_copies():
    copy = "LDGSTS.E.BYPASS.128 [R9], desc[UR6][R2.64]\n"
    assert flight(ADDRESSES + copy * 2 + "LDGDEPBAR\n" + copy + "LDGDEPBAR\n DEPBAR.LE SB0, 0x1\n" + copy + "EXIT") == {("x", 16): 3}


def row(work="memory", flights=1, instructions=20, registers=32, title="a kernel"):
    launch = kernel_launches.Launch(title, "float", "", "map_kernel<op>", (256, 1), [], 4, work=work)
    loads = [Access("x", 16)] * flights
    return Row(launch, registers, 0, 0, 0, Walked(instructions=instructions, loads=loads, stores=[Access("y", 16)] * flights, flight=loads))


def what_follows():
    made = row()
    assert made.threads == 2048 and made.in_flight == 2048 * 16 and made.instructions == 5 and made.moved == 8
    assert row(registers=128).threads == 512 and not list(made.shortfalls())
    assert "16 KB in flight" in list(row(registers=64).shortfalls())[0]
    assert "per element" in list(row(instructions=4 * made.issue_allowed + 4).shortfalls())[0]


def check_can_fail(objects=None):
    table.cuda_resources.by_source = lambda *_: {("map", "map_kernel<op>"): None, ("new", "new_kernel<float>"): None}
    table.SHORTFALLS, table.NOT_LAUNCHED = {("mended", "float"): "a reason"}, {"gone_kernel": "a reason"}
    said = "\n".join(table.faults([row(registers=64), row("gather", registers=64, title="a gather")], objects))
    for expected in ["a kernel float: 16 KB in flight", "mended float has a reason", "new_kernel is in no row", "gone_kernel has a reason"]:
        assert expected in said, said
    assert "gather" not in said, said
    table.SHORTFALLS, table.NOT_LAUNCHED = {("a kernel", "float"): "why"}, {"new_kernel": "why"}
    assert not list(table.faults([row(registers=64)], objects))
    text = table.table([row(registers=64)], "1.2.3")
    assert "| a kernel | f32 | 1 × 128 | 16 **short** | 5.0 of" in text and "- why: in f32 a kernel" in text, text


def arguments_as_cplusplus_lays_them_out():
    from kernel_launches import FLAG_ON, long, members, pointer, whole
    made = members(FLAG_ON, whole(7), members(pointer("x"), FLAG_ON), long(-1))
    assert made.data[:8] == b"\1\0\0\0\7\0\0\0" and len(made.data) == 32 and made.operands == {8: "x", 12: "x"}
    assert struct.unpack_from("<q", made.data, 24) == (-1,)


for test in (loads_before_the_first_use, loops_as_often_as_the_arguments_say, numbers_of_64_bits, branches_on_data, calls_and_what_is_kept,
             asynchronous_copies, what_follows, check_can_fail, arguments_as_cplusplus_lays_them_out):
    test()
