"""The launches that scripts/kernel-table looks at: a kernel, its block, and the arguments that it gets there, as C++ lays them
out. A pointer has the name of an operand; `~` before it says that the operand is small and stays in the caches.
"""
import struct
from dataclasses import dataclass

MAX_DIMS = 6        # kMaxDims
ARGUMENTS = 0x210   # where arguments begin in the bank of constants
BIG = 1 << 28  # elements: more than any launch's threads of a GPU at once take
COLUMNS, CLASSES = 50304, 50257  # of logits: those of a padded table, and the classes among them


@dataclass
class Argument:
    data: bytes
    align: int
    operands: dict  # {offset of a word: the operand that it points to}


def long(value): return Argument(struct.pack("<q", value), 8, {})
def whole(value): return Argument(struct.pack("<i", value), 4, {})
def flag(value): return Argument(bytes([value]), 1, {})
def real(size): return Argument(bytes(size), size, {})  # a factor, which no address depends on


NOTHING, FLAG_OFF, FLAG_ON = long(0), flag(False), flag(True)
EMPTY = flag(False)  # a struct without members


def pointer(name):
    """Of an operand; they lie far from each other."""
    return Argument(struct.pack("<q", (1 + sum(map(ord, name))) << 36), 8, {0: name, 4: name})


def members(*all_):
    """A struct of these."""
    data, operands, align = b"", {}, 1
    for each in all_:
        data += bytes(-len(data) % each.align)
        operands |= {len(data) + offset: name for offset, name in each.operands.items()}
        data, align = data + each.data, max(align, each.align)
    return Argument(data + bytes(-len(data) % align), align, operands)


def array(numbers):
    return members(*map(long, [*numbers, *[0] * (MAX_DIMS - len(numbers))]))


def ranges(most, *one):
    """Of ranges.h: one range, and room for the others."""
    first = members(*one)
    return members(first, Argument(bytes(len(first.data) * (most - 1)), first.align, {}), whole(1), whole(1 << 16))


@dataclass
class Launch:
    title: str
    dtype: str
    source: str
    kernel: str
    block: tuple
    arguments: list
    size: int                # bytes of an element
    per: str = "x"           # instructions are counted per element of this operand
    work: str = "memory"     # or "products", or "gather": what it reads lies anywhere
    grid: tuple = (1 << 16, 1, 1)
    dynamic: int = 0         # bytes of shared memory beside what the kernel declares


def wanted(name=None):
    return members(pointer(name) if name else NOTHING, FLAG_OFF)


def broadcast(extents, *strides):
    return members(whole(len(extents)), array(extents), *(array(each) for each in strides))


def elementwise(T, size):
    def mapped(title, op, *reads):
        kernel = f"map_kernel<{op}, {', '.join([T] * (1 + len(reads)))}>"
        return Launch(title, T, "binary" if op == "add_op" else "elementwise", kernel, (256, 1),
                      [EMPTY, pointer("y"), long(BIG), FLAG_OFF, FLAG_ON, *map(pointer, reads)], size)
    for title, op, reads in [("exp", "exp_op", "x"), ("gelu_tanh", "gelu_tanh_op", "x"),
                             ("gelu_tanh backward", "gelu_tanh_backward_op", "dx"), ("silu", "silu_op", "x"), ("add", "add_op", "xb")]:
        yield mapped(title, op, *reads)
    other, title = {"bf16": ("float", "cast to f32"), "float": ("bf16", "cast to bf16")}[T]
    yield Launch(title, T, "move", f"map_kernel<Cast<{other}>, {other}, {T}>", (256, 1),
                 [EMPTY, pointer("y"), long(BIG), FLAG_OFF, FLAG_ON, pointer("x")], size)
    yield Launch("copy", T, "move", f"map_kernel<Same, {T}, {T}>", (256, 1),
                 [EMPTY, pointer("y"), long(BIG), FLAG_OFF, FLAG_ON, pointer("x")], size)
    yield Launch("add a row", T, "binary", f"broadcast_kernel<add_op, {T}, {T}, {T}>", (256, 1),
                 [EMPTY, pointer("y"), long(BIG), FLAG_OFF, FLAG_ON, broadcast([BIG >> 12, 4096], [4096, 1], [0, 1]), pointer("x"),
                  pointer("~b")], size)
    yield Launch("mse backward", T, "losses", f"map_kernel<MseSlope<float>, {T}, {T}, {T}>", (256, 1),
                 [members(pointer("~dloss"), real(8)), pointer("y"), long(BIG), FLAG_OFF, FLAG_ON, pointer("x"), pointer("t")], size)
    yield Launch("huber backward", T, "losses", f"map_kernel<HuberSlope<float>, {T}, {T}, {T}>", (256, 1),
                 [members(pointer("~dloss"), real(8), real(8)), pointer("y"), long(BIG), FLAG_OFF, FLAG_ON, pointer("x"), pointer("t")], size)


def packs_of(cols, size):
    """What dispatch_rows of rows.h chooses: packs of a row that a thread keeps, whether a block has the row, and the block."""
    packs = -(-cols * size // 16)
    most = 32 * size // 16
    for block in (False, True):
        each = -(-packs // (256 if block else 32))
        if each <= most:
            return next(n for n in (1, 2, 4, 8) if n >= each), block, (256, 1) if block else (32, 4)
    raise ValueError(f"no kernel keeps rows of {cols}")


def rows(T, size, cols=4096):
    def kept(title, source, kernel, arguments, more="", width=cols):
        packs, block, threads = packs_of(width, size)
        name = f"{kernel}<{T}, {packs}, {str(block).lower()}{more}>"
        return Launch(f"{title}, rows of {width}", T, source, name, threads, arguments, size)
    for width in (768, cols):
        norm = members(long(1 << 14), whole(width), real(8), FLAG_ON, FLAG_ON, pointer("~weight"), pointer("~bias"))
        plain = members(long(1 << 14), whole(width), real(8), FLAG_OFF, FLAG_ON, pointer("~weight"), NOTHING)
        yield kept("layer_norm", "norm", "layer_norm_kernel",
                   [wanted("y"), wanted("~mean"), wanted("~rstd"), pointer("x"), norm], ", float", width)
        yield kept("rms_norm", "norm", "layer_norm_kernel", [wanted("y"), wanted(), wanted("~rstd"), pointer("x"), plain], ", float", width)
        summed = [wanted("sum"), wanted("y"), wanted("~mean"), wanted("~rstd"), members(pointer("x"), pointer("residual"))]
        yield kept("add_layer_norm", "add_norm", "add_norm_kernel", [*summed, norm], ", float", width)
        yield kept("add_rms_norm", "add_norm", "add_norm_kernel", [*summed, plain], ", float", width)
        weights = members(members(pointer("~sums"), long(64), long(width)), members(wanted("~dweight"), wanted("~dbias"), NOTHING), whole(1 << 16))
        yield kept("layer_norm backward", "norm", "layer_norm_backward_kernel",
                   [wanted("y"), pointer("d"), pointer("x"), pointer("~mean"), pointer("~rstd"), norm, weights], ", float", width)
    yield Launch(f"argmax, rows of {cols}", T, "reduce", f"max_row_kernel<{T}, true>", (256, 1),
                 [NOTHING, pointer("~index"), pointer("x"), long(1 << 14), long(cols), FLAG_OFF, FLAG_OFF, FLAG_OFF], size)
    softmax = members(long(1 << 14), whole(cols), FLAG_OFF, FLAG_ON, FLAG_OFF)
    yield kept("softmax", "softmax", "softmax_kernel", [pointer("y"), pointer("x"), softmax])
    yield kept("softmax backward", "softmax", "softmax_backward_kernel", [pointer("y"), pointer("d"), pointer("x"), softmax])
    yield Launch("cross_entropy, 50257 of 50304 columns", T, "losses", f"cross_entropy_kernel<{T}, float>", (256, 1),
                 [pointer("~losses"), pointer("~lse"), FLAG_OFF, pointer("x"), pointer("~labels"), whole(COLUMNS), whole(CLASSES),
                  long(-100), FLAG_ON], size)
    yield Launch("cross_entropy backward, 50257 of 50304 columns", T, "losses", f"cross_entropy_backward_kernel<{T}, float>", (256, 1),
                 [pointer("y"), pointer("~dloss"), pointer("x"), pointer("~lse"), pointer("~labels"), whole(COLUMNS), whole(CLASSES),
                  real(8), long(-100), FLAG_ON, FLAG_OFF], size)


def sums(T, size):
    keep, chunk = members(pointer("~sums")), [long(BIG), long(4096), long(BIG // 4096)]
    yield Launch("sum", T, "reduce", f"row_sums_kernel<double, 1, Element<{T}>, Keep<double, 1> >", (256, 1),
                 [members(pointer("x"), long(BIG), long(1)), keep, *chunk], size)
    yield Launch("mse", T, "losses", f"row_sums_kernel<double, 1, SquaredDifference<{T}>, Keep<double, 1> >", (256, 1),
                 [members(pointer("x"), pointer("t")), keep, *chunk], size)
    yield Launch("huber", T, "losses", f"row_sums_kernel<double, 1, HuberOfDifference<{T}>, Keep<double, 1> >", (256, 1),
                 [members(pointer("x"), pointer("t"), real(8)), keep, *chunk], size)
    columns = [long(1 << 14), long(4096), long(256), long(64), long(128)]
    yield Launch("sum of columns", T, "reduce", f"column_sums_kernel<double, 1, Element<{T}>, Keep<double, 1> >", (32, 8),
                 [members(pointer("x"), long(1 << 14), long(4096)), keep, *columns], size)
    term = members(members(pointer("d"), pointer("x"), pointer("~mean"), pointer("~rstd")), long(4096))
    yield Launch("layer_norm backward, weight and bias", T, "norm",
                 f"column_sums_kernel<double, 2, RowTerm<{T}>, Keep<double, 2> >", (32, 8), [term, keep, *columns], size)
    yield Launch("norm of gradients", T, "norm_powers", f"node_powers_kernel<Sum, Square, {T}>", (256, 1),
                 [ranges(96, pointer("~sums"), pointer("x"), long(BIG), whole(0), FLAG_ON), real(8)], size)
    parts = members(members(*(pointer(f"part {i}") if i < 8 else NOTHING for i in range(256))), whole(8))
    yield Launch("tree_sum of 8 parts", T, "tree_sum", f"tree_sum_kernel<{T}, {T}>", (256, 1),
                 [pointer("y"), parts, long(BIG), FLAG_OFF, FLAG_ON], size, "y")


def others(T, size):
    drawn = members(long(1), long(2), long(0), long(BIG), FLAG_OFF)
    yield Launch("dropout", T, "random", f"dropout_kernel<{T}>", (256, 1),
                 [pointer("y"), pointer("x"), drawn, real(4), real(8), FLAG_OFF, FLAG_ON, NOTHING], size)
    yield Launch("swiglu", T, "swiglu", f"swiglu_kernel<{T}>", (256, 1),
                 [pointer("y"), pointer("x"), long(BIG >> 12), long(4096), FLAG_OFF, FLAG_ON], size, "y")
    yield Launch("swiglu backward", T, "swiglu", f"swiglu_backward_kernel<{T}>", (256, 1),
                 [pointer("dx"), pointer("d"), pointer("x"), long(BIG >> 12), long(4096), FLAG_OFF, FLAG_ON], size, "d")
    shape = members(long(1 << 14), long(1024), long(2048), long(32), long(1024), members(long(32), long(0), FLAG_OFF))
    yield Launch("rope", T, "rope", f"rope_kernel<{T}, {16 // size}, float>", (256, 1),
                 [pointer("y"), pointer("x"), pointer("~table"), NOTHING, shape, FLAG_OFF], size)
    yield Launch("embedding", T, "indexing", f"index_select_kernel<{T}>", (256, 1),
                 [pointer("y"), pointer("x"), pointer("~index"), long(BIG), long(BIG // 768), long(CLASSES), long(768), FLAG_OFF], size,
                 work="gather")
    named = members(pointer("y"), pointer("x"), pointer("~index"), pointer("~order"), long(64), long(CLASSES), long(768), FLAG_ON, FLAG_ON)
    yield Launch("embedding backward", T, "index_add", f"index_add_kernel<{T}>", (512 // size, 1),
                 [named, whole(size // 2), whole(768 * size // 512)], size, work="gather")
    yield Launch("transpose", T, "move", f"transpose_kernel<{T}>", (32, 8),
                 [pointer("y"), pointer("x"), long(4096), long(4096), FLAG_OFF], size,
                 work="gather", grid=(128, 128, 1))


def optimizers():
    for copy in (None, "copy"):
        to = pointer(copy) if copy else NOTHING
        title = " with a copy in bf16" if copy else ""

        def ours(first, second, *factors):
            return [ranges(28, pointer("p"), first, second, to, pointer("g"), long(BIG), real(8), members(*factors), whole(0), FLAG_ON),
                    NOTHING, NOTHING]
        yield Launch("sgd with momentum" + title, "float", "optimizers", "sgd_kernel<float, bf16>", (256, 1),
                     ours(pointer("m"), NOTHING, *[real(4)] * 4, FLAG_OFF, FLAG_OFF), 4, "g")
        yield Launch("adamw" + title, "float", "optimizers", "adam_kernel<float, bf16>", (256, 1),
                     ours(pointer("m"), pointer("v"), *[real(4)] * 8, FLAG_ON), 4, "g")


def products():
    places, heads, depth = 1024, 12, 64
    shape = members(*map(long, [16, places, heads, heads, 1, 3 * heads * depth, depth]), NOTHING, long(1), long(2), long(0), real(8),
                    real(8), whole(0))
    tile, grid = 64 * (depth + 8) * 2, (16 * 16 * heads, 1, 1)
    yield Launch("attention, 1024 places, heads of 64", "bf16", "attention_tiles", "attention_tiles_kernel<bf16, 64, false>", (128, 1),
                 [shape, pointer("y"), pointer("~lse"), pointer("x"), FLAG_ON, FLAG_ON, FLAG_OFF, FLAG_OFF], 2, "y", "products", grid,
                 4 * tile)
    for T, kernel, block, dynamic in [("float", "matmul_kernel<float>", 256, 0),
                                      ("bf16", "pipelined_matmul_kernel<bf16, false, false>", 128, 3 * 2 * 128 * (32 + 8) * 2)]:
        side, depth = 4096, 1024
        finish = members(pointer("y"), NOTHING, NOTHING, NOTHING, long(side), long(side), whole(0), FLAG_OFF, FLAG_OFF)
        left, right = (members(pointer(name), *map(long, [*shape, 0])) for name, shape in
                       [("x", [side, depth, depth, 1]), ("w", [depth, side, 1, depth])])
        yield Launch("own product, 4096 × 1024 × 4096", T, "matmul" if T == "float" else "matmul_tiles", kernel, (block, 1),
                     [finish, left, right],
                     {"float": 4, "bf16": 2}[T], "y", "products", (64 * 64 if T == "float" else 32 * 32, 1, 1), dynamic)


def launches():
    for T, size in (("float", 4), ("bf16", 2)):
        for each in (elementwise, rows, sums, others):
            yield from each(T, size)
    yield from optimizers()
    yield from products()


def constants(launch):
    """The bank of constants from which a kernel reads its launch, and which words of it point to operands."""
    arguments = members(*launch.arguments)
    start = struct.pack("<6i", *launch.block, 1, *launch.grid)
    return start + bytes(ARGUMENTS - len(start)) + arguments.data, {ARGUMENTS + at: name for at, name in arguments.operands.items()}
