"""What integer instructions compute: functions of a Thread (sass_walk.py) and an instruction. They return a number, for
registers of 64 bits the pair's, or None for what is not known; those that carry set the predicate.
"""
import re
import struct

WORD, LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def signed(value, bits=32):
    return value - (1 << bits) if value >> (bits - 1) else value


def known(function):
    """None where any of the numbers is not known."""
    def of(*numbers):
        return None if None in numbers else function(*numbers)
    return of


def carried(thread, it):
    """How many of the predicates that an .X instruction asks for are set."""
    return known(lambda *set_: sum(set_))(*map(thread.predicate, it.asked)) if "X" in it.modifiers else 0


def carries(thread, it, total, bits=32):
    if it.changed:
        thread.set_predicate(it.changed[0], None if total is None else bool(total >> bits))
        for each in it.changed[1:]:
            thread.set_predicate(each, None if total is None else bool(total >> bits > 1))
    return total


def add(thread, it):
    def term(text):
        value = thread.number(text.lstrip("-~"))
        flipped = None if value is None else ~value & WORD
        return value if text[0] not in "-~" else flipped if text[0] == "~" else known(lambda v: v + 1)(flipped)
    terms = [term(each) for each in it.sources]
    return carries(thread, it, known(lambda *all_: sum(all_))(*terms, carried(thread, it)))


def multiply(thread, it):
    """a · b + c; WIDE: c and the result have 64 bits; HI: the upper half of such a result."""
    wide = "WIDE" in it.modifiers or "HI" in it.modifiers
    a, b = map(thread.number, it.sources[:2])
    c = (thread.long if wide else thread.number)(it.sources[2])
    if wide and "U32" not in it.modifiers:
        a, b = known(signed)(a), known(signed)(b)
    total = known(lambda a, b, c, x: a * b + c + x)(a, b, c, carried(thread, it))
    carries(thread, it, total, 64 if wide else 32)
    return known(lambda t: (t & LONG) >> 32)(total) if "HI" in it.modifiers else total


def shifted_add(thread, it):
    """LEA: (a << s) + b; HI: the upper half of that of 64 bits."""
    if "HI" not in it.modifiers:
        a, b, s = map(thread.number, it.sources)
        return carries(thread, it, known(lambda a, b, s: ((a << s) & WORD) + b)(a, b, s))
    if len(it.sources) == 3:
        (a, b, s), c = map(thread.number, it.sources), 0
        if "SX32" in it.modifiers:
            c = known(lambda a: WORD if a >> 31 else 0)(a)
    else:
        a, b, c, s = map(thread.number, it.sources)
    upper = known(lambda a, c, s: (((c << 32 | a) << s) & LONG) >> 32)(a, c, s)
    return carries(thread, it, known(lambda u, b, x: u + b + x)(upper, b, carried(thread, it)))


def shift(thread, it):
    """SHF: of a pair (low, high), to the left or right; its lower word, or with HI its upper one."""
    low, by, high = map(thread.number, it.sources)
    def to(low, by, high):
        by = min(by, 64) if "U64" in it.modifiers or "S64" in it.modifiers or "W" not in it.modifiers else by & 31
        pair = high << 32 | low
        if "L" in it.modifiers:
            return (pair << by & LONG) >> 32 if "HI" in it.modifiers else low << by & WORD
        if "S32" in it.modifiers or "S64" in it.modifiers:
            pair = signed(pair, 64)
        return pair >> by >> 32 & WORD if "HI" in it.modifiers else pair >> by & WORD
    return known(to)(low, by, high)


def table_of(lut, inputs):
    return lut >> (inputs[0] << 2 | inputs[1] << 1 | inputs[2]) & 1


def logic(thread, it):
    *inputs, lut = map(thread.number, it.sources)
    if lut == 0xC0 and 0 in inputs[:2]:  # and
        value = 0
    else:
        value = known(lambda a, b, c: sum(table_of(lut, (a >> i & 1, b >> i & 1, c >> i & 1)) << i for i in range(32)))(*inputs)
    if it.changed:
        thread.set_predicate(it.changed[0], None if value is None else value != 0)
    return value


def logic_of_predicates(thread, it):
    """The result where it does not depend on what is not known."""
    choices = [[set_] if set_ is not None else [False, True] for set_ in map(thread.predicate, it.asked[:3])]
    for name, lut in zip(it.changed, map(thread.number, it.sources)):
        results = {table_of(lut, (a, b, c)) for a in choices[0] for b in choices[1] for c in choices[2]}
        thread.set_predicate(name, bool(results.pop()) if len(results) == 1 else None)


def kept_predicates(thread, it):
    """P2R: those of a mask as bits of a register."""
    mask = thread.number(it.sources[-1])
    if it.modifiers or mask is None:
        return None
    set_ = {i: thread.predicate(f"P{i}") for i in range(7) if mask >> i & 1}
    return None if None in set_.values() else sum(1 << i for i, value in set_.items() if value)


def restored_predicates(thread, it):
    """R2P: the reverse."""
    bits, mask = map(thread.number, it.sources[-2:])
    for i in range(7):
        if mask is None or mask >> i & 1:
            thread.set_predicate(f"P{i}", None if bits is None or it.modifiers else bool(bits >> i & 1))


COMPARISONS = {"LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
               "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b}


def compare(thread, it):
    relation = it.modifiers[0]
    a, b = map(thread.number, it.sources[:2])
    if "U32" not in it.modifiers:
        a, b = known(signed)(a), known(signed)(b)
    result = known(COMPARISONS[relation])(a, b)
    if "EX" in it.modifiers and a is not None and b is not None:  # the upper words: equal ones leave it to the lower
        lower = thread.predicate(it.asked[1])
        strict = COMPARISONS[relation[0] + "T" if relation[0] in "LG" else relation](a, b)
        result = lower if a == b else strict
    other = thread.predicate(it.asked[0])
    if "OR" in it.modifiers:
        result = True if True in (result, other) else None if None in (result, other) else False
    else:
        result = False if False in (result, other) else None if None in (result, other) else True
    thread.set_predicate(it.changed[0], result)
    thread.set_predicate(it.changed[1], None)


def permute(thread, it):
    """PRMT: four bytes of two words, each chosen by four bits; the highest repeats the byte's sign."""
    def of(a, selector, b):
        pair, value = b << 32 | a, 0
        for i in range(4):
            choice = selector >> 4 * i & 15
            byte = pair >> 8 * (choice & 7) & 255
            value |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
        return value
    return known(of)(*map(thread.number, it.sources))


def select(thread, it):
    first = thread.predicate(it.asked[0])
    return None if first is None else thread.number(it.sources[0 if first else 1])


def smaller(thread, it):
    first, (a, b) = thread.predicate(it.asked[0]), map(thread.number, it.sources)
    order = (lambda v: v) if "U32" in it.modifiers else signed
    return None if first is None else known(lambda a, b: (min if first else max)(a, b, key=order))(a, b)


def smaller_sum(thread, it):
    """VIADDMNMX: the smaller, or larger, of a + b and c."""
    first, (a, b, c) = thread.predicate(it.asked[0]), map(thread.number, it.sources)
    order = (lambda v: v) if "U32" in it.modifiers else signed
    return None if first is None else known(lambda a, b, c: (min if first else max)((a + b) & WORD, c, key=order))(a, b, c)


def to_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def of_bits(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def to_float(thread, it):
    """I2F of unsigned numbers, rounded up as divisions want it."""
    value = (thread.long if "U64" in it.modifiers else thread.number)(it.sources[0])
    def up(value):
        bits = to_bits(float(value))
        return bits + (of_bits(bits) < value)
    return known(up)(value) if "RP" in it.modifiers else None


def reciprocal(thread, it):
    value = thread.number(it.sources[0]) if it.modifiers == ["RCP"] else None
    return to_bits(1 / of_bits(value)) if value and 0 < of_bits(value) < float("inf") else None


def to_integer(thread, it):
    value = thread.number(it.sources[0])
    return int(of_bits(value)) if value is not None and "TRUNC" in it.modifiers and 0 <= of_bits(value) < 2**64 else None


def halves(thread, it):
    """HFMA2 with factors of zero, which is how some constants come to a register."""
    zeros = {thread.name_of(each) for each in it.sources[:2]} == {"RZ"}
    if not zeros or len(it.sources) != 4 or not all(re.match(r"-?[\d.e+-]+$", each) for each in it.sources[2:]):
        return None
    bits = [struct.unpack("<H", struct.pack("<e", float(each)))[0] for each in it.sources[2:]]
    return bits[0] << 16 | bits[1]


def same(thread, it):
    return thread.number(it.sources[-1])


def absolute(thread, it):
    return known(lambda v: abs(signed(v)))(thread.number(it.sources[0]))


COMPUTES = {"IADD3": add, "VIADD": add, "IMAD": multiply, "LEA": shifted_add, "SHF": shift, "LOP3": logic, "PLOP3": logic_of_predicates,
            "ISETP": compare, "PRMT": permute, "SEL": select, "VIMNMX": smaller, "IMNMX": smaller, "VIADDMNMX": smaller_sum,
            "I2F": to_float, "MUFU": reciprocal, "F2I": to_integer, "MOV": same, "R2UR": same, "IABS": absolute, "HFMA2": halves,
            "P2R": kept_predicates, "R2P": restored_predicates}
