#!/usr/bin/env python3
"""scripts/gguf_to_hugging_face.py gives a hand-made GGUF file's numbers, of every type of block that it reads.

    gguf_test.py SOURCE_DIR

A LLaMA of one block, whose file and whose numbers are made here, without NumPy, from ggml's description of the types: all are
products that are exact. Rows of q_proj and k_proj come in another order, since pairs that are rotated are neighbours in GGUF.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from needs import python_with, skip

SCRIPT = Path(sys.argv[1]).resolve() / "scripts/gguf_to_hugging_face.py"
WIDTH, HEADS, KV_HEADS, DEPTH, HIDDEN, TOKENS = 32, 2, 1, 16, 64, 5
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8


def text(words):
    return struct.pack("<Q", len(words.encode())) + words.encode()


def elements(kind, count, seed):
    """The bytes of so many elements, and their values."""
    if kind in (F32, F16):
        values = [((i * 7 + seed) % 33 - 16) / 8 for i in range(count)]
        return struct.pack(f"<{count}{'f' if kind == F32 else 'e'}", *values), values
    data, values = b"", []
    for block in range(count // 32):
        d, m = ((seed + block) % 7 + 1) / 16, -((seed + 3 * block) % 5) / 8
        if kind == Q8_0:
            q = [(i * 37 + block * 11 + seed) % 256 - 128 for i in range(32)]
            data, values = data + struct.pack("<e32b", d, *q), values + [d * each for each in q]
        else:
            q = [(i * 5 + i // 16 + block * 3 + seed) % 16 for i in range(32)]
            halves = (q[i] | q[16 + i] << 4 for i in range(16))
            data, values = data + struct.pack("<ee16B", d, m, *halves), values + [d * each + m for each in q]
    return data, values


def gguf(tensors):
    """A file with these tensors: name -> (shape, type); and their values, row-major."""
    ids = {f"tokenizer.ggml.{name}_token_id": 0 for name in ("bos", "eos", "padding", "unknown")}
    sizes = {"embedding_length": WIDTH, "feed_forward_length": HIDDEN, "block_count": 1, "attention.head_count": HEADS,
             "attention.head_count_kv": KV_HEADS, "context_length": 40}
    words = {"general.architecture": "llama", "general.name": "by hand", "tokenizer.ggml.pre": "smollm", "tokenizer.chat_template": "{{ messages }}"}
    keys = [text(key) + struct.pack("<I", 8) + text(value) for key, value in words.items()]
    keys += [text(key) + struct.pack("<II", 4, value) for key, value in (ids | {f"llama.{key}": size for key, size in sizes.items()}).items()]
    keys += [text(key) + struct.pack("<If", 6, value) for key, value in (("llama.rope.freq_base", 1000.0), ("llama.attention.layer_norm_rms_epsilon", 1e-5))]
    tokens = ["<|end|>", "a", "b", "ab", "Ġ"]
    keys += [text(key) + struct.pack("<IIQ", 9, 8, len(items)) + b"".join(map(text, items)) for key, items in
             (("tokenizer.ggml.tokens", tokens), ("tokenizer.ggml.merges", ["a b"]))]
    keys += [text("tokenizer.ggml.token_type") + struct.pack("<IIQ5i", 9, 5, 5, 3, 1, 1, 1, 1)]
    heads, body, values = b"", b"", {}
    for seed, (name, (shape, kind)) in enumerate(tensors.items()):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data, values[name] = elements(kind, count, seed)
        heads += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(body))
        body += data + bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + heads
    return head + bytes(-len(head) % 32) + body, values


def in_halves(rows, heads):
    """Row i of a head is row 2 i of GGUF's in the first half, and row 2 i + 1 in the second."""
    half = len(rows) // heads // 2
    return [rows[head * 2 * half + 2 * i + second] for head in range(heads) for second in (0, 1) for i in range(half)]


def main():
    python = python_with(["numpy"])
    if not python:
        skip("gguf", "there is no Python with NumPy")
    square, wide = (WIDTH, WIDTH), (HIDDEN, WIDTH)
    tensors = {"token_embd.weight": ((TOKENS, WIDTH), Q8_0), "output_norm.weight": ((WIDTH,), F32),
               "blk.0.attn_norm.weight": ((WIDTH,), F32), "blk.0.attn_q.weight": (square, Q4_1),
               "blk.0.attn_k.weight": ((DEPTH, WIDTH), Q8_0), "blk.0.attn_v.weight": ((DEPTH, WIDTH), F16),
               "blk.0.attn_output.weight": (square, Q8_0), "blk.0.ffn_norm.weight": ((WIDTH,), F32),
               "blk.0.ffn_gate.weight": (wide, Q4_1), "blk.0.ffn_up.weight": (wide, F16), "blk.0.ffn_down.weight": ((WIDTH, HIDDEN), Q4_1)}
    names = {"token_embd": "embed_tokens", "output_norm": "norm"} | {f"blk.0.{ours}": f"layers.0.{theirs}" for ours, theirs in {
        "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj"}.items()}
    with tempfile.TemporaryDirectory(prefix="gguf test ") as folder:
        file, out = Path(folder, "model.gguf"), Path(folder, "out")
        data, values = gguf(tensors)
        file.write_bytes(data)
        subprocess.run([python, SCRIPT, file, out], check=True, stdout=subprocess.DEVNULL)
        written = (out / "model.safetensors").read_bytes()
        begin = 8 + int.from_bytes(written[:8], "little")
        header = json.loads(written[8:begin])
        assert header.keys() - {"__metadata__"} == {f"model.{name}.weight" for name in names.values()}, header
        for name, (shape, _) in tensors.items():
            entry = header[f"model.{names[name.removesuffix('.weight')]}.weight"]
            first, end = entry["data_offsets"]
            found = list(struct.unpack(f"<{(end - first) // 4}f", written[begin + first:begin + end]))
            rows = [values[name][i:i + shape[-1]] for i in range(0, len(values[name]), shape[-1])]
            for part, heads in ("attn_q", HEADS), ("attn_k", KV_HEADS):
                rows = in_halves(rows, heads) if part in name else rows
            assert entry["shape"] == list(shape) and found == [value for row in rows for value in row], name
        config = json.loads((out / "config.json").read_text())
        sizes = [config[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                         "num_key_value_heads", "max_position_embeddings", "rope_theta", "rms_norm_eps", "tie_word_embeddings")]
        assert sizes == [TOKENS, WIDTH, HIDDEN, 1, HEADS, KV_HEADS, 40, 1000.0, 1e-5, True], config
        tokenizer = json.loads((out / "tokenizer.json").read_text())
        assert tokenizer["model"]["vocab"]["ab"] == 3 and [token["content"] for token in tokenizer["added_tokens"]] == ["<|end|>"], tokenizer
        kind_of_table = len(text("token_embd.weight") + struct.pack("<I2Q", 2, WIDTH, TOKENS)) + data.index(text("token_embd.weight"))
        file.write_bytes(data[:kind_of_table] + struct.pack("<I", 2) + data[kind_of_table + 4:])
        run = subprocess.run([python, SCRIPT, file, out], capture_output=True, text=True)
        assert run.returncode == 1 and "cannot read tensors of types {2}" in run.stderr, run
    print("a hand-made GGUF file has its numbers in Hugging Face's form")


if __name__ == "__main__":
    main()
