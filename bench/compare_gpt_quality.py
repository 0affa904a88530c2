#!/usr/bin/env python3
"""The PyTorch side of bench/compare_gpt_quality: a GPT-2 by the recipe of configs/gpt_kjv.json.

Same model, initial distributions, windows, split, optimizer, schedule and clipping; other random numbers.
"""
import argparse
import json
import math
import statistics
import subprocess

import numpy
import torch
from torch import nn
from torch.nn import functional

CONFIG = "configs/gpt_kjv.json"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        samples, places, width = x.shape
        parts = self.c_attn(self.ln_1(x)).view(samples, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.attn_c_proj(y.transpose(1, 2).reshape(samples, places, width))
        return x + self.mlp_c_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, model):
        super().__init__()
        width = model["n_embd"]
        self.wte, self.wpe = nn.Embedding(model["vocab_size"], width), nn.Embedding(model["n_positions"], width)
        self.h = nn.ModuleList(Block(width, model["n_head"]) for _ in range(model["n_layer"]))
        self.ln_f = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                narrower = math.sqrt(2 * model["n_layer"]) if name.endswith("c_proj.weight") else 1
                nn.init.normal_(parameter, std=0.02 / narrower)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def loss(self, tokens, following, reduction="mean"):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction=reduction)


def read_text(config):
    """Windows of tokens, those that follow each of them, and how many bytes each token is."""
    data = config["data"]
    file = "build/text/compare_gpt_quality.bin"
    subprocess.run(["build/bin/shardgrad", "tokenizer", "encode", data["tokenizer"], "--input", data["path"][0],
                    "--output", file], check=True, stdout=subprocess.DEVNULL)
    text = torch.from_numpy(numpy.fromfile(file, dtype=numpy.uint16).astype(numpy.int64))
    count, length = (len(text) - 1) // data["length"], data["length"]
    with open(data["tokenizer"]) as opened:
        vocabulary = json.load(opened)["model"]["vocab"]  # a letter of GPT-2's alphabet for each byte
    sizes = torch.zeros(config["model"]["vocab_size"], dtype=torch.int64)
    for token, number in vocabulary.items():
        sizes[number] = len(token)
    return text[: count * length].view(count, length), text[1 : count * length + 1].view(count, length), sizes


def rate_at(step, steps, config):
    warmup, final = config["schedule"]["warmup_steps"], config["schedule"]["final"]
    if step < warmup:
        return (step + 1) / warmup
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def train(config, steps, seed):
    """Bits per byte of the test part after `steps` steps."""
    torch.manual_seed(seed)
    optimizer_keys = config["optimizer"]
    tokens, following, sizes = read_text(config)
    kept = len(tokens) - round(0.1 * len(tokens))  # data.test_share
    model = Gpt(config["model"])
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": optimizer_keys["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=optimizer_keys["lr"], betas=optimizer_keys["betas"], fused=True)
    order = torch.randperm(kept)
    for step in range(steps):
        rows = order[torch.arange(step * config["batch"], (step + 1) * config["batch"]) % kept]
        for group in optimizer.param_groups:
            group["lr"] = optimizer_keys["lr"] * rate_at(step, steps, config)
        model.loss(tokens[rows], following[rows]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config["clip_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        parts = range(kept, len(tokens), 64)
        total = sum(model.loss(tokens[i : i + 64], following[i : i + 64], "sum").item() for i in parts)
    return total / math.log(2) / sizes[following[kept:]].sum().item()


def train_here(steps):
    settings = [f"steps={steps}", f"eval_every={steps}", f"log_interval={steps}", "name=compare_gpt_quality", "runs=build/runs", "save_minutes=0"]
    command = ["build/bin/shardgrad", "launch", "-n", "2", "train", CONFIG]
    for setting in settings:
        command += ["--set", setting]
    output = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    run = output.strip().splitlines()[-1].split("run=")[1]
    with open(f"{run}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines][-1]["test_bits_per_byte"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, help=f"{CONFIG} says how many by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = json.load(open(CONFIG))
    steps = options.steps or config["steps"]
    ours = train_here(steps)
    print(f"here: {ours:.4f} bits per byte after {steps} steps", flush=True)
    theirs = []
    for seed in range(options.seeds):
        theirs.append(train(config, steps, seed))
        print(f"PyTorch, seed {seed}: {theirs[-1]:.4f}", flush=True)
    # Where the next one would be in 19 of 20 cases, were it of their kind (Student's t of seeds - 1 degrees of freedom).
    quantile = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}[options.seeds]
    mean = statistics.mean(theirs)
    width = quantile * statistics.stdev(theirs) * math.sqrt(1 + 1 / options.seeds)
    inside = abs(ours - mean) <= width
    print(f"PyTorch's band: {mean:.4f} ± {width:.4f}; here is {'inside' if inside else 'OUTSIDE'} of it")
    return 0 if inside else 1


if __name__ == "__main__":
    raise SystemExit(main())
