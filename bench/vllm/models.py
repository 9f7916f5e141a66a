# SPDX-License-Identifier: MIT
"""The models: configurations, random weights and a tokenizer, written once into a folder.

    models.py MODEL FOLDER

Weights are bf16 with a fixed seed, made on the GPU if there is one. run.py starts this file as a process of its own, because the
process of an engine must not use CUDA before Loch is enabled. A folder that is complete is left alone.
"""
import json
import math
import os
import pathlib
import sys

VOCABULARY = 32768
CONTEXT = 4096
SEED = 7
SHAPES = {  # hidden size, size inside of a layer, layers, heads, key/value heads, experts
    "tiny": (256, 512, 2, 4, 2, 0),  # for tests of these scripts
    "1b": (2048, 8192, 16, 32, 8, 0),
    "7b": (4096, 11008, 32, 32, 32, 0),
    "moe": (2048, 2048, 16, 32, 8, 8),
}
END = 2  # id of the token that ends a text; token 0 is the unknown word, 1 begins a text


def get_config(name):
    """Returns config.json of a model: Llama's architecture, or Mixtral's with two experts a token."""
    hidden, inside, layers, heads, shared_heads, experts = SHAPES[name]
    config = {
        "architectures": ["MixtralForCausalLM" if experts else "LlamaForCausalLM"],
        "model_type": "mixtral" if experts else "llama", "hidden_size": hidden, "intermediate_size": inside,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": shared_heads, "head_dim": hidden // heads,
        "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": END, "torch_dtype": "bfloat16",
    }
    if experts:
        config.update(num_local_experts=experts, num_experts_per_tok=2, sliding_window=None)
    else:
        config.update(attention_bias=False, mlp_bias=False)
    return config


def get_tensors(config):
    """Yields (name, shape) of each weight."""
    hidden, inside, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    experts = config.get("num_local_experts", 0)
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    for layer in range(config["num_hidden_layers"]):
        start = f"model.layers.{layer}."
        yield start + "input_layernorm.weight", (hidden,)
        yield start + "post_attention_layernorm.weight", (hidden,)
        for letter, rows in (("q", queries), ("k", keys), ("v", keys)):
            yield f"{start}self_attn.{letter}_proj.weight", (rows, hidden)
        yield start + "self_attn.o_proj.weight", (hidden, queries)
        if experts:
            yield start + "block_sparse_moe.gate.weight", (experts, hidden)
            places = [(f"block_sparse_moe.experts.{expert}.", ("w1", "w3", "w2")) for expert in range(experts)]
        else:
            places = [("mlp.", ("gate_proj", "up_proj", "down_proj"))]
        for place, (gate, rise, fall) in places:
            yield f"{start}{place}{gate}.weight", (inside, hidden)
            yield f"{start}{place}{rise}.weight", (inside, hidden)
            yield f"{start}{place}{fall}.weight", (hidden, inside)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (VOCABULARY, hidden)


def write_weights(config, path):
    """Writes a safetensors file, one tensor after another, so that the process needs memory for one of them."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    source = torch.Generator(device).manual_seed(SEED)
    tensors = list(get_tensors(config))
    header, place = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in tensors:
            if len(shape) == 1:  # the scales of norms
                values = torch.ones(shape, dtype=torch.bfloat16, device=device)
            else:
                values = torch.randn(shape, generator=source, dtype=torch.bfloat16, device=device).mul_(0.02)
            values.view(torch.uint8).cpu().numpy().tofile(file)


def write_tokenizer(folder):
    """Writes a tokenizer whose words are t0, t1 and so on: the text "t5 t6" has the tokens 5 and 6."""
    import tokenizers

    words = {f"t{number}": number for number in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "bos_token": "t1", "eos_token": f"t{END}",
                "model_max_length": CONTEXT, "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def make(name, folder):
    """Writes a model unless it is there. Returns its folder."""
    target = pathlib.Path(folder) / name
    mark = target / "complete"
    config = json.dumps(get_config(name), indent=1)
    if not mark.is_file() or mark.read_text() != config:
        target.mkdir(parents=True, exist_ok=True)
        mark.unlink(missing_ok=True)
        (target / "config.json").write_text(config)
        write_tokenizer(target)
        write_weights(json.loads(config), target / "model.safetensors")
        mark.write_text(config)
    return target


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: models.py {{{','.join(SHAPES)}}} FOLDER")
    make(sys.argv[1], os.path.abspath(sys.argv[2]))
