#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs one vLLM engine with one kind of memory in this process and prints one JSON line, the last of the output.

    PYTHONPATH=$(bench/vllm/unpack PARCEL DESTINATION) bench/vllm/run.py --memory loch --model 7b --sleep 2

The engine answers the same prompts twice, greedily; with prefix caching the second time finds the prompts cached. Then it sleeps
and wakes --cycles times, and answers twice again: each answer is compared with that of the same turn before the sleep. At level
2 the weights are loaded again after the wake. Weights are random with a fixed seed; the first run of a model writes them.

  --interrupt sleep   after the cycles, a signal handler raises half-way through one more sleep; the engine is woken and compared
  --kill wake         an engine in a child process is killed 20 ms into its wake; then the GPU's memory is read until it is back,
                      and a fresh engine runs
  --check             stops after vLLM's configuration of the engine was made; needs no GPU
"""
import argparse
import contextlib
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import engine
from device import Device, Sampler, to_mib

KILL_AFTER_S = 0.02
BACK_MIB = 16  # memory of the GPU counts as returned when so much more than before is in use, or less
BACK_S = 30


class Interrupted(Exception):
    """Raised by the signal handler in the middle of a sleep."""


class Clock:
    """Measures the seconds of a with statement: with Clock() as clock: ...; clock.s"""

    def __enter__(self):
        self._begin, self.s = time.perf_counter(), 0.0
        return self

    def __exit__(self, *_):
        self.s = round(time.perf_counter() - self._begin, 4)


def synchronize():
    import torch

    torch.cuda.synchronize()


def answer(llm, prompts, tokens):
    """Returns (token ids of each prompt, figures of the run)."""
    from vllm import SamplingParams

    settings = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    synchronize()
    with Clock() as clock:
        found = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], settings, use_tqdm=False)
        synchronize()
    ids = [list(one.outputs[0].token_ids) for one in found]
    made = sum(map(len, ids))
    figures = {"sha": hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16], "distinct": len(set().union(*ids)), "s": clock.s,
               "tokens_per_s": round(made / clock.s, 1)}
    return ids, figures


def count_differences(ones, others):
    """Returns the number of tokens that differ, and those that one side lacks."""
    return sum(abs(len(one) - len(other)) + sum(a != b for a, b in zip(one, other)) for one, other in zip(ones, others))


def sleep(llm, level):
    with Clock() as clock:
        llm.sleep(level=level)
        synchronize()
    return clock.s


def wake(llm, level):
    """Wakes the engine. Returns (seconds of the wake, seconds of loading the weights again)."""
    with Clock() as clock:
        llm.wake_up(tags=["weights"] if level == 2 else None)
        synchronize()
    if level == 1:
        return clock.s, 0.0
    with Clock() as loading:
        llm.collective_rpc("reload_weights")
        synchronize()
    with Clock() as rest:
        llm.wake_up(tags=["kv_cache"])
        synchronize()
    return round(clock.s + rest.s, 4), loading.s


def interrupt_sleep(llm, level, after_s):
    """Raises in the middle of a sleep. Returns what the caller of the sleep saw, and when."""
    def handle(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    raised = None
    try:
        with Clock() as clock:
            signal.setitimer(signal.ITIMER_REAL, after_s)
            llm.sleep(level=level)
    except Exception as error:
        raised = type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return {"after_s": round(after_s, 4), "returned_s": clock.s, "raised": raised}


def wake_interrupted(llm, level):
    """Wakes the workers and then the engine, which does not know that a worker may sleep."""
    llm.collective_rpc("wake_up")
    if level == 2:
        llm.collective_rpc("reload_weights")
    llm.wake_up()
    synchronize()


def get_figures(memory):
    """Returns PyTorch's figures of this process in MiB, and Loch's where it serves PyTorch."""
    import torch

    names = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    figures = {"torch": {name: to_mib(getattr(torch.cuda, name)()) for name in names}}
    if memory != "native":
        import loch.torch

        device = loch.torch.stats(0)
        chosen = ("used_bytes", "reserved_bytes", "peak_reserved_bytes", "asleep_bytes", "free_bytes", "host_bytes")
        figures["loch"] = {name: to_mib(device.get(name, 0)) for name in chosen}
        figures["loch"]["asleep_tags"] = loch.torch.asleep()
    return figures


def start(arguments, model):
    """Returns the engine."""
    if arguments.memory == "enable":
        import loch.torch

        loch.torch.enable()
    from vllm import LLM

    llm = LLM(**engine.get_arguments(arguments, model), skip_tokenizer_init=True, disable_log_stats=True)
    synchronize()
    if arguments.memory == "loch":
        import loch.torch

        if not loch.torch.is_enabled():
            raise RuntimeError("LOCH_VLLM=1 was set and vLLM did not enable Loch")
    return llm


def announce(arguments, event, **more):
    if arguments.announce:
        print(json.dumps({"event": event, **more}), flush=True)


def cycle(llm, arguments, sampler, result):
    """Lets the engine sleep and wake; appends times and memory to the result."""
    for _ in range(arguments.cycles):
        result["sleep_s"].append(sleep(llm, arguments.sleep))
        result["used_mib"]["asleep"] = sampler.get_mib()
        result["asleep"] = get_figures(arguments.memory)
        announce(arguments, "waking", shas=[run["sha"] for run in result["runs"]], asleep_mib=result["used_mib"]["asleep"])
        wake_s, reload_s = wake(llm, arguments.sleep)
        result["wake_s"].append(wake_s)
        result["reload_s"].append(reload_s)
        result["used_mib"]["awake"] = sampler.get_mib()


def compare_again(llm, prompts, arguments, before, result):
    """Answers twice after a wake, and appends the numbers of tokens that differ."""
    for earlier in before:
        ids, figures = answer(llm, prompts, arguments.tokens)
        result["runs"].append(figures)
        result["differing"].append(count_differences(earlier, ids))


def measure(arguments, model, sampler, result):
    with Clock() as clock:
        llm = start(arguments, model)
    result["start_s"] = clock.s
    prompts = engine.get_prompts(arguments.prompts)
    before = []
    for _ in range(2):
        ids, figures = answer(llm, prompts, arguments.tokens)
        before.append(ids)
        result["runs"].append(figures)
    result["timed"] = [answer(llm, prompts, arguments.tokens)[1]["tokens_per_s"] for _ in range(arguments.timed)]
    result["tokens_per_s"] = statistics.median(result["timed"])
    result["differing_before"] = count_differences(*before)
    result["used_mib"]["running"] = sampler.get_mib()
    result["running"] = get_figures(arguments.memory)
    result["peak_running_mib"] = sampler.get_peak_mib()
    if arguments.sleep:
        cycle(llm, arguments, sampler, result)
        compare_again(llm, prompts, arguments, before, result)
        result["awake"] = get_figures(arguments.memory)
    if arguments.interrupt:
        result["interrupt"] = interrupt_sleep(llm, arguments.sleep, result["sleep_s"][-1] / 2)
        result["interrupt"].update(used_mib=sampler.get_mib(), figures=get_figures(arguments.memory))
        wake_interrupted(llm, arguments.sleep)
        compare_again(llm, prompts, arguments, before, result)
    result["peak_mib"] = sampler.get_peak_mib()


def describe(arguments):
    names = ("memory", "model", "eager", "prefix_caching", "sleep", "prompts", "tokens", "kv_gib")
    return {name: getattr(arguments, name) for name in names}


def get_versions():
    import importlib.metadata

    found = {}
    for name in ("vllm", "torch", "transformers", "loch-memory"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def check(arguments):
    """Makes the configuration of the engine, as far as that goes without a GPU."""
    import models

    folder = os.path.join(arguments.folder, "check", arguments.model)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(models.get_config(arguments.model), file)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    config = EngineArgs(**engine.get_arguments(arguments, folder), skip_tokenizer_init=True).create_engine_config()
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    return {"architecture": config.model_config.architectures[0], "sleep_mode": config.model_config.enable_sleep_mode,
            "sleep_mode_backend": getattr(config.model_config, "sleep_mode_backend", None),
            "has_loch": getattr(WorkerWrapperBase.init_device, "is_loch", False)}


def make_child(*more):
    """Starts this script again with the same arguments and `more`, in a process group of its own."""
    own = [word for word in sys.argv[1:] if word not in ("--kill", "wake", "--kill=wake")]
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), *own, *more], stdout=subprocess.PIPE, text=True,
                            start_new_session=True)


def read_events(child):
    """Yields the JSON objects that a child prints; passes other lines on to stderr."""
    for line in child.stdout:
        found = None
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
        if found is None:
            sys.stderr.write(line)
        else:
            yield found


def kill_group(child):
    """Kills a child and what it started. What has ended already is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def kill_in_wake():
    """Kills an engine in the middle of a wake, and starts a fresh one. Returns what was seen."""
    device = Device()
    before = device.get_used()
    result = {"before_mib": to_mib(before)}
    child = make_child("--announce")
    try:
        for found in read_events(child):
            if found.get("event") == "waking":
                time.sleep(KILL_AFTER_S)
                result["at_kill_mib"] = to_mib(device.get_used() - before)
                result["killed"] = found
                break
    finally:
        kill_group(child)
    if "killed" not in result:
        raise RuntimeError("the engine ended before its wake")
    result["back_s"] = device.wait_for(before + (BACK_MIB << 20), BACK_S)
    result["after_mib"] = to_mib(device.get_used() - before)
    child = make_child()
    try:
        events = list(read_events(child))
        fresh = events[-1] if child.wait() == 0 and events else None
    finally:
        kill_group(child)
    if fresh is None:
        raise RuntimeError("the fresh engine failed")
    result["fresh"] = fresh
    result["is_same"] = fresh["runs"][0]["sha"] == result["killed"]["shas"][0]
    return result


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    engine.add_options(parser)
    parser.add_argument("--cycles", type=engine.read_count, default=2, help="sleeps before the comparison (default %(default)s)")
    parser.add_argument("--timed", type=engine.read_count, default=5,
                        help="further turns before the sleep; tokens_per_s is their median (default %(default)s)")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--interrupt", choices=["sleep"])
    chosen.add_argument("--kill", choices=["wake"])
    chosen.add_argument("--check", action="store_true")
    parser.add_argument("--announce", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if (arguments.interrupt or arguments.kill) and not arguments.sleep:
        parser.error("--interrupt and --kill need --sleep 1 or 2")
    return arguments


def main():
    arguments = read_arguments()
    os.environ.update(engine.get_environment(arguments.memory, arguments.folder), VLLM_ENABLE_V1_MULTIPROCESSING="0")
    result = describe(arguments)
    if arguments.check:
        result.update(check(arguments))
    elif arguments.kill:
        engine.clean_up_when_ended()
        engine.make_model(arguments.model, arguments.folder)
        result["kill"] = kill_in_wake()
    else:
        result.update(runs=[], differing=[], used_mib={}, sleep_s=[], wake_s=[], reload_s=[])
        model = engine.make_model(arguments.model, arguments.folder)
        with Sampler(Device()) as sampler:
            measure(arguments, model, sampler, result)
    result["versions"] = get_versions()
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
