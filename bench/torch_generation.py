"""The PyTorch side of bench/generation.cpp: the same arguments, numbers and protocol. Keys and values go to a cache that
is made once; nothing is done beside what GPT-2 needs."""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

threads, rows, length = map(int, sys.argv[1:4])
dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[sys.argv[4]]
torch.set_num_threads(threads)
C, H, L, V, PADDED, POSITIONS = 768, 12, 12, 50257, 50304, 1024


def numbers_of(count, seed, mean, deviation):
    with np.errstate(over="ignore"):
        h = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(seed) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(15))) * np.uint32(0x85EBCA77)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE3D)
    h = h ^ (h >> np.uint32(16))
    return (mean + (h * 2.0**-32 - 0.5) * 12**0.5 * deviation).astype(np.float32)


seed = 0


def parameter(*shape, mean=0):
    global seed
    seed += 1
    return torch.from_numpy(numbers_of(int(np.prod(shape)), seed, mean, 0.02)).reshape(shape).to(dtype)


# In the order of the model's parameters there.
wte, wpe = parameter(PADDED, C), parameter(POSITIONS, C)
blocks = []
for _ in range(L):
    blocks.append(dict(ln_1=(parameter(C, mean=1), parameter(C)), qkv=(parameter(3 * C, C), parameter(3 * C)),
                       proj=(parameter(C, C), parameter(C)), ln_2=(parameter(C, mean=1), parameter(C)),
                       fc=(parameter(4 * C, C), parameter(4 * C)), out=(parameter(C, 4 * C), parameter(C))))
ln_f = parameter(C, mean=1), parameter(C)
head = wte[:V]
caches = [torch.zeros(2, rows, H, POSITIONS, C // H, dtype=dtype) for _ in range(L)]


def forward(ids, first):
    n = ids.shape[1]
    x = wte[ids] + wpe[first:first + n]
    for block, cache in zip(blocks, caches):
        q, k, v = F.linear(F.layer_norm(x, (C,), *block["ln_1"]), *block["qkv"]).view(rows, n, 3, H, C // H).unbind(2)
        cache[0, :, :, first:first + n] = k.transpose(1, 2)
        cache[1, :, :, first:first + n] = v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), cache[0, :, :, :first + n], cache[1, :, :, :first + n],
                                           is_causal=n > 1)
        x = x + F.linear(y.transpose(1, 2).reshape(rows, n, C), *block["proj"])
        hidden = F.gelu(F.linear(F.layer_norm(x, (C,), *block["ln_2"]), *block["fc"]), approximate="tanh")
        x = x + F.linear(hidden, *block["out"])
    return F.linear(F.layer_norm(x[:, -1], (C,), *ln_f), head)


@torch.inference_mode()
def generate(prompt, tokens):
    texts, begin = [], time.perf_counter()
    ids, first, after = prompt, 0, None
    for _ in range(tokens):
        drawn = forward(ids, first).argmax(-1)
        after = after or time.perf_counter()
        texts.append(drawn[0].item())
        first += ids.shape[1]
        ids = drawn[:, None]
    return texts, after - begin, time.perf_counter() - after


prompt = torch.tensor([[(i * 7919 + r * 104729) % V for i in range(length)] for r in range(rows)])
for line in sys.stdin:
    word, tokens = line.split()
    texts, prefill, rest = generate(prompt, int(tokens))
    print(*(texts if word == "check" else (prefill, rest)), flush=True)
