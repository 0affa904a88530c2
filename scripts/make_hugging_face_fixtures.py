#!/usr/bin/env python3
"""Writes tests/fixtures/hugging_face: small models that transformers has saved, what it says of some tokens, and five
steps of AdamW in f64 that plain PyTorch has made.

    make_hugging_face_fixtures.py [FOLDER]        needs torch and transformers (PyPI; 2.15 and 5.24 wrote the files)

The files are committed, so neither a build nor the tests need either. A folder has config.json and tensors as a user
would have them; expected.safetensors beside them has `ids` (2, 12) and `logits` (2, 12, V).
"""
import json
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

torch.set_num_threads(1)
VOCABULARY, PLACES, TOKENS = 24, 16, (2, 12)
GPT2 = {"vocab_size": VOCABULARY, "n_positions": PLACES, "n_embd": 8, "n_layer": 2, "n_head": 2, "bos_token_id": None,
        "eos_token_id": None}
LLAMA = {"vocab_size": VOCABULARY, "max_position_embeddings": PLACES, "hidden_size": 8, "intermediate_size": 12,
         "num_hidden_layers": 2, "num_attention_heads": 2, "bos_token_id": None, "eos_token_id": None}
SCALING = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8}


def gpt2(**options):
    return GPT2LMHeadModel(GPT2Config(**(GPT2 | options)))


def llama(**options):
    return LlamaForCausalLM(LlamaConfig(**(LLAMA | options)))


def with_strong_weights(model):
    """Wide enough that every option shows in the logits."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.5)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()


def save(folder, model, shards=None, **changes):
    """As transformers saves it, with changes to config.json: a value, or None for a key to leave out."""
    model.save_pretrained(folder, **({"max_shard_size": shards} if shards else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    left_out = {key for key, value in changes.items() if value is None}
    path.write_text(json.dumps({k: v for k, v in config.items() if k not in left_out}, indent=1) + "\n")
    ids = torch.randint(0, VOCABULARY, TOKENS)
    with torch.no_grad():
        logits = type(model).from_pretrained(folder, dtype=torch.float32).eval()(input_ids=ids).logits
    save_file({"ids": ids, "logits": logits.contiguous()}, folder / "expected.safetensors")


def retensored(folder, change):
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def as_old_gpt2(tensors):
    """As the first GPT-2 folders are: of the bare model, with the masks of attention, here also one of bools."""
    bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    mask = torch.ones(PLACES, PLACES).tril().view(1, 1, PLACES, PLACES)
    bare |= {"h.0.attn.bias": mask, "h.1.attn.bias": mask.bool(), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    return bare


def as_old_llama(tensors):
    bare = {name.removeprefix("model."): value for name, value in tensors.items()}
    return bare | {f"layers.{i}.self_attn.rotary_emb.inv_freq": torch.rand(2) for i in range(2)}


def make_folders(root):
    make = lambda name, model, **how: save(root / name, with_strong_weights(model), **how)
    make("gpt2", gpt2())
    make("gpt2_untied", gpt2(tie_word_embeddings=False, activation_function="gelu_pytorch_tanh"))
    make("gpt2_inner", gpt2(n_inner=20, layer_norm_epsilon=0.1, n_head=4))
    make("gpt2_old", gpt2(), tie_word_embeddings=None)
    retensored(root / "gpt2_old", as_old_gpt2)
    make("llama", llama())
    make("llama_grouped", llama(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                                rms_norm_eps=0.1))
    make("llama_head_dim", llama(num_attention_heads=3, num_key_value_heads=1, head_dim=6, hidden_size=9), shards="2KB")
    make("llama_scaled", llama(rope_parameters=SCALING | {"rope_theta": 100.0}))
    make("llama_old", llama(head_dim=4, rope_parameters=SCALING | {"rope_theta": 100.0}), rope_parameters=None,
         rope_theta=100.0, rope_scaling=SCALING, dtype=None, torch_dtype="float32")
    retensored(root / "llama_old", as_old_llama)
    make("llama_bf16", llama(num_key_value_heads=1).to(torch.bfloat16))
    make("gpt2_f16", gpt2().to(torch.float16))


class Rotations(torch.nn.Module):
    """LLaMA's, in f64: transformers makes them in f32."""

    def __init__(self, config):
        super().__init__()
        d = config.head_dim
        self.frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


def norm_in_f64(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def make_steps(folder, model):
    """Five steps, in which vectors do not decay; parameters before and after."""
    model = with_strong_weights(model)
    save(folder, model)
    model.double()
    if hasattr(model, "model"):
        model.model.rotary_emb = Rotations(model.config)
    pairs = [(n, p) for n, p in model.named_parameters()]
    groups = [{"params": [p for _, p in pairs if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for _, p in pairs if p.dim() == 1], "weight_decay": 0.0}]
    # GPT-2's bias of keys changes no weight of attention: its gradient is rounding, which an eps of 1e-8 would amplify.
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-6)
    ids = torch.randint(0, VOCABULARY, (5, 4, 13))
    losses = []
    for tokens in ids:
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = {name: p.detach().contiguous() for name, p in pairs}
    save_file(after | {"ids": ids, "losses": torch.tensor(losses, dtype=torch.float64)}, folder / "after.safetensors")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "tests/fixtures/hugging_face")
    shutil.rmtree(root, ignore_errors=True)
    torch.manual_seed(1)
    make_folders(root)
    modeling_llama.LlamaRMSNorm.forward = norm_in_f64
    make_steps(root / "gpt2_steps", gpt2(n_layer=1, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0))
    make_steps(root / "llama_steps", llama(num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2))
    print(f"{root}: {sum(f.stat().st_size for f in root.rglob('*.*')) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
