# SPDX-License-Identifier: MIT
"""What an engine needs before it starts: the environment, its model and its memory. For run.py and server.py."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import models

HERE = pathlib.Path(__file__).resolve().parent
MEMORIES = ("native", "enable", "loch")
MIB = 1 << 20


def add_options(parser):
    """Adds the options that each script has."""
    parser.add_argument("--memory", choices=MEMORIES, default="native",
                        help="native: vLLM's own; enable: loch.torch.enable(), sleep by vLLM; loch: LOCH_VLLM=1, sleep by Loch")
    parser.add_argument("--model", choices=models.SHAPES, default="1b")
    parser.add_argument("--eager", action="store_true", help="neither torch.compile nor CUDA graphs")
    parser.add_argument("--prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--sleep", type=int, choices=(0, 1, 2), default=1, help="level of the sleep; 0: no sleep mode")
    parser.add_argument("--prompts", type=read_count, default=32)
    parser.add_argument("--tokens", type=read_count, default=96, help="tokens for each prompt")
    parser.add_argument("--kv-gib", type=float, default=8.0, help="size of the key/value cache (default %(default)s)")
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "loch-vllm"), help="for models and vLLM's caches")


def read_count(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def clean_up_when_ended():
    """Turns SIGTERM into an exception, so that what this process started is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def get_environment(memory, folder):
    """Returns the variables of an engine, without those that the caller has set."""
    values = {
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false", "VLLM_HOST_IP": "127.0.0.1", "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_CACHE_ROOT": os.path.join(folder, "cache"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "cache", "inductor"),
        "TRITON_CACHE_DIR": os.path.join(folder, "cache", "triton"),
    }
    values = {name: value for name, value in values.items() if name not in os.environ}
    values["VLLM_PLUGINS"] = "loch" if memory == "loch" else ""
    values["LOCH_VLLM"] = "1" if memory == "loch" else "0"
    return values


def make_model(name, folder):
    """Writes the model in a process of its own, unless it is there. Returns its folder."""
    done = subprocess.run([sys.executable, HERE / "models.py", name, folder], check=False)
    if done.returncode:
        raise SystemExit(f"the model {name} could not be written to {folder}")
    return os.path.join(folder, name)


def get_arguments(arguments, model):
    """Returns the arguments of vLLM's engine that all kinds of memory share."""
    return {
        "model": model, "dtype": "bfloat16", "max_model_len": models.CONTEXT, "max_num_seqs": 64, "seed": 0,
        "enable_sleep_mode": arguments.sleep > 0, "enforce_eager": arguments.eager, "gpu_memory_utilization": 0.5,
        "kv_cache_memory_bytes": int(arguments.kv_gib * 1024) * MIB, "enable_prefix_caching": arguments.prefix_caching,
        "generation_config": "vllm", "attention_backend": "FLASH_ATTN",
    }


def get_prompts(number):
    """Returns lists of token ids. All begin with the same 64 tokens, which prefix caching shares."""
    span = models.VOCABULARY - 16
    shared = [(place * 7561) % span + 16 for place in range(64)]
    return [shared + [(one * 7919 + place * 104729) % span + 16 for place in range(64 + 8 * (one % 8))] for one in range(number)]
