#!/usr/bin/env python3
"""What the program exports, transformers opens, and computes the same with it.

    hugging_face.py PROGRAM

Needs a Python with torch and transformers: SHARDGRAD_TEST_PYTHON, or build/hf-python/bin/python. Models that
transformers has made are trained for some steps on two ranks and exported; transformers must find every tensor and none
beside, and have the test loss that the run has told.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from needs import python_with, skip

PROGRAM = str(Path(sys.argv[1]).resolve())
MAKE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
torch.manual_seed(1)
tokens = {"vocab_size": 64, "bos_token_id": None, "eos_token_id": None}
gpt2 = {**tokens, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
GPT2LMHeadModel(GPT2Config(**gpt2)).save_pretrained("gpt2")
GPT2LMHeadModel(GPT2Config(**gpt2, tie_word_embeddings=False, n_inner=48)).save_pretrained("gpt2_untied")
llama = {**tokens, "max_position_embeddings": 32, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2}
LlamaForCausalLM(LlamaConfig(**llama)).save_pretrained("llama", max_shard_size="20KB")
scaling = {"rope_type": "llama3", "rope_theta": 1000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8}
LlamaForCausalLM(LlamaConfig(**llama, head_dim=6, tie_word_embeddings=True, rope_parameters=scaling)).save_pretrained("llama_tied")
"""
OPEN = """
import sys, json, torch
from transformers import AutoModelForCausalLM
model, info = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
assert not any(info[key] for key in info), info
ids = torch.tensor(json.load(open("test.json")))
logits = model.eval()(input_ids=ids[:, :-1]).logits
print(torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1)).item())
"""


def check(python, name):
    config = {"name": name, "data": {"name": "tokens", "train": "train.bin", "test": "test.bin", "length": 16},
              "model": {"from": name, "dropout": 0} if name.startswith("gpt2") else {"from": name},
              "task": {"name": "next_token"}, "optimizer": {"name": "adamw", "lr": 0.01}, "batch": 8, "steps": 20}
    Path(f"{name}.json").write_text(json.dumps(config))
    subprocess.run([PROGRAM, "launch", "-n", "2", "train", f"{name}.json"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([PROGRAM, "export", f"runs/{name}", "--hf", f"{name}_out"], check=True, stdout=subprocess.DEVNULL)
    told = json.loads(Path(f"runs/{name}/metrics.jsonl").read_text().splitlines()[-1])["test_loss"]
    found = float(subprocess.run([python, "-c", OPEN, f"{name}_out"], check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"{name}: test loss {told} here, {found} by transformers")
    assert abs(told - found) < 1e-5 * abs(told) and told < 4.1, "it has learnt, and is the same"


def main():
    os.environ["SHARDGRAD_TEST_PYTHON"] = os.environ.get("SHARDGRAD_TEST_PYTHON", str(Path(__file__).resolve().parents[2] / "build/hf-python/bin/python"))
    python = python_with(["torch", "transformers"])
    if not python:
        skip("hugging_face", "there is no Python with torch and transformers")
    with tempfile.TemporaryDirectory(prefix="hugging face ") as folder:
        os.chdir(folder)
        text = [(i * i + i // 7) % 61 for i in range(2000)]
        Path("train.bin").write_bytes(struct.pack("<2000H", *text))
        Path("test.bin").write_bytes(struct.pack("<161H", *text[700:861]))
        Path("test.json").write_text(json.dumps([text[i:i + 17] for i in range(700, 860, 16)]))
        subprocess.run([python, "-c", MAKE], check=True)
        for name in "gpt2", "gpt2_untied", "llama", "llama_tied":
            check(python, name)


if __name__ == "__main__":
    main()
