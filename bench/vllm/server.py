#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs vLLM's OpenAI server, lets it sleep and wake over HTTP, and prints one JSON line, the last of the output.

    PYTHONPATH=$(bench/vllm/unpack PARCEL DESTINATION) bench/vllm/server.py --memory loch --model 1b

Completions are asked for by several connections at a time, greedily, in two turns before the sleep and in two after the wake;
then by one connection in a third turn. The texts of each turn are compared. The tokenizer's words are t0, t1 and so on, so a text
names its tokens. With several connections the order in which requests reach the engine changes from turn to turn, and with it
the sizes of its batches: texts may differ without a sleep, too. `differing_before` says how many do; those of the third turn must
be equal. The server is a process of its own and ends with the script. --memory enable is not offered: the server's engine is a
child process, in which only a plug-in of vLLM can enable Loch.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import engine
from device import Device, Sampler

START_S, ANSWER_S, STOP_S = 400, 300, 30
TURNS, ALONE = 3, 4  # turns; prompts of the last one, which come one after another
NAME = "model"


def ask(port, method, path, body=None):
    """Sends one request. Returns (status, bytes of the answer)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        found = connection.getresponse()
        return found.status, found.read()
    finally:
        connection.close()


def need(port, method, path, body=None):
    """Sends one request; anything but 200 raises. Returns the bytes of the answer."""
    status, content = ask(port, method, path, body)
    if status != 200:
        raise RuntimeError(f"{method} {path}: {status} {content[:500].decode(errors='replace')}")
    return content


def find_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get_command(arguments, model, port):
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port),
             "--served-model-name", NAME]
    for name, value in engine.get_arguments(arguments, model).items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(option if value else "--no-" + option[2:])
        else:
            words += [option, str(value)]
    return words


def wait_until_ready(server, port):
    begin = time.monotonic()
    while time.monotonic() - begin < START_S:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode} before it was ready")
        try:
            if ask(port, "GET", "/health")[0] == 200:
                return round(time.monotonic() - begin, 2)
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the server was not ready after {START_S} s")


def complete(port, prompt, tokens):
    body = {"model": NAME, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return json.loads(need(port, "POST", "/v1/completions", body))["choices"][0]["text"]


def turn(port, arguments, number):
    """Asks for the completions of a turn. Returns (texts, tokens a second)."""
    prompts = engine.get_prompts(arguments.prompts)
    connections = arguments.connections
    if number == TURNS - 1:
        prompts, connections = prompts[:ALONE], 1
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        texts = list(pool.map(lambda prompt: complete(port, prompt, arguments.tokens), prompts))
    return texts, round(len(prompts) * arguments.tokens / (time.monotonic() - begin), 1)


def post(port, path):
    """Posts, and returns the seconds until the answer."""
    begin = time.monotonic()
    need(port, "POST", path)
    return round(time.monotonic() - begin, 3)


def count_differences(ones, others):
    return sum(one != other for one, other in zip(ones, others))


def measure(port, arguments, sampler, result):
    before = []
    for number in range(TURNS):
        texts, speed = turn(port, arguments, number)
        before.append(texts)
        result["tokens_per_s"].append(speed)
    result["differing_before"] = count_differences(before[0], before[1])
    result["words"] = len(set(" ".join(before[0]).split()))
    result["used_mib"]["running"] = sampler.get_mib()
    if not arguments.sleep:
        return
    result["sleep_s"] = post(port, f"/sleep?level={arguments.sleep}")
    result["is_sleeping"] = json.loads(need(port, "GET", "/is_sleeping"))["is_sleeping"]
    result["used_mib"]["asleep"] = sampler.get_mib()
    if arguments.sleep == 2:
        result["wake_s"] = post(port, "/wake_up?tags=weights")
        need(port, "POST", "/collective_rpc", {"method": "reload_weights"})
        result["wake_s"] += post(port, "/wake_up?tags=kv_cache")
    else:
        result["wake_s"] = post(port, "/wake_up")
    result["used_mib"]["awake"] = sampler.get_mib()
    for number, earlier in enumerate(before):
        texts, speed = turn(port, arguments, number)
        result["tokens_per_s"].append(speed)
        result["differing"].append(count_differences(earlier, texts))


def stop(server):
    """Ends the server and its engine: politely, then by force."""
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    engine.add_options(parser)
    parser.add_argument("--connections", type=engine.read_count, default=8, help="requests at a time (default %(default)s)")
    arguments = parser.parse_args()
    if arguments.memory == "enable":
        parser.error("--memory is native or loch: the server's engine is a child process")
    engine.clean_up_when_ended()
    environment = {**os.environ, **engine.get_environment(arguments.memory, arguments.folder), "VLLM_SERVER_DEV_MODE": "1"}
    model = engine.make_model(arguments.model, arguments.folder)
    log = pathlib.Path(arguments.folder) / "server.log"
    result = {"server": True, "memory": arguments.memory, "model": arguments.model, "eager": arguments.eager, "sleep": arguments.sleep,
              "prompts": arguments.prompts, "tokens": arguments.tokens, "connections": arguments.connections, "tokens_per_s": [],
              "differing": [], "used_mib": {}}
    port = find_port()
    with Sampler(Device()) as sampler, open(log, "w", encoding="utf-8") as output:
        server = subprocess.Popen(get_command(arguments, model, port), stdout=output, stderr=output, env=environment,
                                  start_new_session=True)
        try:
            result["start_s"] = wait_until_ready(server, port)
            measure(port, arguments, sampler, result)
        except Exception:
            sys.stderr.write(log.read_text(encoding="utf-8", errors="replace")[-6000:])
            raise
        finally:
            stop(server)
        result["peak_mib"] = sampler.get_peak_mib()
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
