#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers.json: what PyPI's `tokenizers` makes of awkward texts, by small tokenizers of many kinds.

    make_tokenizer_fixture.py [FILE [FOLDER]]      needs tokenizers (PyPI), 0.20 or newer; in FOLDER go the tokenizers, each whole

The file is committed, so neither a build nor the tests need that package.
"""
import copy
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenizer_texts import AWKWARD, SENTENCES, mixed_text

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+$|\s+(?!\S)|\s+")


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(id, text, special=True, normalized=False):
    return {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": special}


def template(before, after=()):
    names = {id: f"<{id}>" for id in (*before, *after)}
    pieces = [[{"SpecialToken": {"id": names[id], "type_id": 0}} for id in ids] for ids in (before, after)]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [*pieces[0], text, *pieces[1]], "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]} for id, name in names.items()}}


def learned():
    """The model that all of them share: 256 bytes and 300 tokens that were learned."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([*SENTENCES, *AWKWARD, mixed_text(20000)], trainers.BpeTrainer(
        vocab_size=556, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def kinds():
    """name: (pre-tokenizer, changes of the model, added tokens, post-processor)."""
    end = [added(556, "<|endoftext|>")]
    chat = [*end, added(557, "<|im_start|>"), added(558, "<|im_end|>"), added(559, "<extra>", special=False),
            added(560, "<ex", special=False, normalized=True), added(561, "  ", special=False, normalized=True),
            added(562, "x<extra", special=False, normalized=True), added(563, "<extra>s", special=False)]
    return {
        "gpt2": (byte_level(), {}, end, byte_level()),
        "gpt2 with a space before": (byte_level(prefix=True), {}, chat, None),
        "llama3": (sequence(split(LLAMA3), byte_level(regex=False)), {"ignore_merges": True}, chat,
                   {"type": "Sequence", "processors": [byte_level(), template([556])]}),
        "smollm2": (sequence(digits(True), byte_level()), {}, chat, None),
        "o200k": (sequence(split(O200K), byte_level(regex=False)), {}, end, template([557, 556], [558])),
        "digits together, a space before each": (sequence(digits(False), byte_level(prefix=True)), {}, end, None),
        "words that are found": (sequence(split(r"[\p{L}\p{N}]+|[^\p{L}\p{N}\s]+", "Removed", True), byte_level(regex=False)), {}, end, None),
        "spaces that are removed": (sequence(split(" ", "Removed", kind="String"), byte_level(regex=False)), {}, end, None),
        "one word": (byte_level(regex=False), {}, end, None),
        "unknown bytes": (byte_level(), {"unk_token": "<unk>"}, [added(557, "<|endoftext|>")], None),
    }


def file_of(pre_tokenizer, changes, added_tokens, post_processor):
    if post_processor and "557" in json.dumps(post_processor):
        added_tokens = [*added_tokens, added(557, "<557>"), added(558, "<558>")]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens, "normalizer": None,
            "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": byte_level(),
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **changes}}


def complete(name, file, model):
    """With vocabulary and merges. `unknown bytes` has none of the bytes above 0xBF, and no merge that needs one; other names
    have the numbers of their tokens. Where whole words may be tokens without merges, the last 50 merges are gone."""
    whole = copy.deepcopy(file)
    vocabulary, merges = dict(model["vocab"]), model["merges"]
    if name == "unknown bytes":
        gone = {letter for letter in vocabulary if any(0xC0 <= ord(c) <= 0xFF for c in letter)}
        merges = [pair for pair in merges if not gone & {pair[0], pair[1], pair[0] + pair[1]}]
        vocabulary = {f"<gone {id}>" if letter in gone else letter: id for letter, id in vocabulary.items()}
        vocabulary["<unk>"] = 556
    if whole["model"]["ignore_merges"]:
        merges = merges[:-50]
    whole["model"].update(vocab=vocabulary, merges=merges)
    return whole


def main():
    model = learned()
    texts = [*AWKWARD, mixed_text(600, seed=7)]
    fixture = {"vocab": model["vocab"], "merges": model["merges"], "texts": texts, "kinds": []}
    for name, parts in kinds().items():
        file = file_of(*parts)
        whole = json.dumps(complete(name, file, model))
        if len(sys.argv) > 2:
            Path(sys.argv[2]).mkdir(exist_ok=True)
            Path(sys.argv[2], f"{name}.json").write_text(whole)
        tokenizer = Tokenizer.from_str(whole)
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        with_special = tokenizer.encode("In the", add_special_tokens=True).ids
        decoded = [tokenizer.decode(each, skip_special_tokens=True) for each in ids]
        tokenizer.encode_special_tokens = True
        as_letters = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts if "<|" in text]
        fixture["kinds"].append({"name": name, "file": file, "ids": ids, "add_special": with_special, "as_letters": as_letters,
                                 "decoded": decoded if decoded != texts else None})
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "fixtures/tokenizers.json"
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in fixture.items() if key != "kinds"]
    lines.append('"kinds": [\n' + ",\n".join(json.dumps(kind, separators=(",", ":")) for kind in fixture["kinds"]) + "]")
    path.write_text("{" + ",\n".join(lines) + "}\n")
    print(f"wrote {path}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
