#!/usr/bin/env python3
"""Tokens per second of `unisonic serve` and llama.cpp's server, interleaved, for clients that ask at the same time.

    pip install xllamacpp==2026.10.11549     # llama.cpp's server as a Python package; nothing is built
    cargo build --release --locked
    python3 benches/server.py --rounds 7 --threads 2 models/smollm2-135m-instruct-q4_1.gguf

Both servers run from the start, and what is not measured is idle. In a round each of them, who goes first alternating, answers
the clients of each count in CLIENTS: every client asks REQUESTS times in a row for TOKENS greedy tokens after a prompt of some PROMPT
tokens that no other request begins with, over HTTP (`/v1/completions`). A rate is the sum of `usage.completion_tokens` over the
time from the first request to the last answer. Medians of the rounds, and of their ratios, are printed as Markdown.
"""

import argparse
import concurrent.futures
import http.client
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from statistics import median

WORDS = "river stone seven green letters under morning trains of glass and paper before winter birds count slowly".split()


def serve_llama_cpp(model, threads, parallel, context, port):
    """Serves until it is killed."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = context * parallel
    params.n_batch = params.n_ubatch = 512
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_parallel = parallel
    params.port = port
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(server.listening_address, file=sys.stderr, flush=True)
    while True:
        time.sleep(3600)


def prompt(seed, words):
    """Words that begin as no other prompt does."""
    state, text = seed * 2654435761 % 2**32, [f"Note {seed}:"]
    for _ in range(words):
        state = (state * 1664525 + 1013904223) % 2**32
        text.append(WORDS[state >> 16 & 15])
    return " ".join(text)


class Bench:
    """Clients of a server."""

    def __init__(self, port, args):
        self.port, self.args = port, args

    def ask(self, connection, seed):
        body = {"prompt": prompt(seed, self.args.prompt), "max_tokens": self.args.tokens, "temperature": 0, "model": "any"}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer["usage"]["completion_tokens"]

    def client(self, seeds):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        return sum(self.ask(connection, seed) for seed in seeds)

    def rate(self, clients, first_seed):
        count = self.args.requests
        seeds = [range(first_seed + i * count, first_seed + (i + 1) * count) for i in range(clients)]
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            tokens = sum(pool.map(self.client, seeds))
        return tokens / (time.perf_counter() - start)


def ready(port):
    """Waits until a server answers."""
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("a server is not ready")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--program", default="target/release/unisonic")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 16])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--unisonic-options", default="", help="more options of `unisonic serve`")
    parser.add_argument("--serve-llama-cpp", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    parallel = max(args.clients)
    if args.serve_llama_cpp:
        return serve_llama_cpp(args.model, args.threads, parallel, args.context, args.port)

    fixed = ["--threads", str(args.threads), "--context", str(args.context)]
    ours = [args.program, "serve", *fixed, "--port", str(args.port), "--parallel", str(parallel), *args.unisonic_options.split()]
    clients = ",".join(map(str, args.clients))
    theirs = [sys.executable, __file__, *fixed, "--port", str(args.port + 1), "--clients", clients, "--serve-llama-cpp"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # Ends the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    processes = [subprocess.Popen([*command, args.model], **quiet) for command in (ours, theirs)]
    try:
        servers = {"unisonic": Bench(args.port, args), "llama.cpp": Bench(args.port + 1, args)}
        for bench in servers.values():
            ready(bench.port)
            bench.rate(1, 0)
        rates = {(name, count): [] for name in servers for count in args.clients}
        for number in range(args.rounds):
            for count in args.clients:
                order = list(servers)
                for name in order if number % 2 == 0 else order[::-1]:
                    # Prompts that neither has seen.
                    rate = servers[name].rate(count, 1000 * (number + 1))
                    rates[name, count].append(rate)
                    print(f"round {number + 1}: {name}, {count} clients: {rate:.1f} tokens/s", file=sys.stderr)
    finally:
        for process in processes:
            process.kill()
    version = importlib.metadata.version("xllamacpp")
    print(f"xllamacpp {version}, {args.threads} threads, {args.rounds} rounds, {args.requests} requests a client, "
          f"{args.prompt} words of prompt, {args.tokens} tokens {args.unisonic_options}\n")
    print("| clients | unisonic, tokens/s | llama.cpp, tokens/s | ratio, median | least, largest |\n|---|---|---|---|---|")
    for count in args.clients:
        pairs = list(zip(rates["unisonic", count], rates["llama.cpp", count]))
        ratios = [ours / theirs for ours, theirs in pairs]
        ours, theirs = (median(column) for column in zip(*pairs))
        print(f"| {count} | {ours:.1f} | {theirs:.1f} | {median(ratios):.2f} | {min(ratios):.2f}, {max(ratios):.2f} |")


if __name__ == "__main__":
    main()
