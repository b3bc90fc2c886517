#!/usr/bin/env python3
"""Prefill and decode speed of `unisonic` and llama.cpp, interleaved: one pair of measurements after the other.

    pip install xllamacpp==2026.10.11549     # llama.cpp as a Python package; nothing is built
    cargo build --release --locked
    python3 benches/llama_cpp.py --pairs 30 --threads 2 models/smollm2-135m-instruct-q4_1.gguf

Each pair measures both programs on the same file, threads and lengths, who goes first alternating: prefill of PREFILL
tokens from an empty cache, then DECODE tokens after those. The medians of the pairs' ratios are printed with a 95 %
interval (order statistics), as Markdown; --json also writes every measurement to a file.

llama.cpp counts N generated tokens, but its clock of generation starts when the first one is there, which the prompt's
work gave: the time is that of N - 1 tokens. Its rate is multiplied by (N - 1) / N, so that both rates are tokens read
one after the other, over their time.
"""

import argparse
import datetime
import importlib.metadata
import json
import platform
import subprocess
import sys
from math import comb
from pathlib import Path
from statistics import median


def llama_cpp(model, threads, prefill, decode):
    """A function that measures llama.cpp once: (prefill, decode) in tokens a second."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = prefill + decode + 64
    params.n_batch = params.n_ubatch = 512
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_parallel = 1
    params.warmup = True
    params.verbosity = -1
    server = xllamacpp.Server(params)
    ids = [(i * 7919 + 13) % 40000 + 100 for i in range(prefill)]
    request = {"prompt": ids, "n_predict": decode, "cache_prompt": False, "temperature": 0, "ignore_eos": True}

    def measure():
        answer = server.handle_completions(request)
        timings = (answer if isinstance(answer, dict) else json.loads(answer))["timings"]
        assert timings["prompt_n"] == prefill and timings["predicted_n"] == decode, timings
        return timings["prompt_per_second"], timings["predicted_per_second"] * (decode - 1) / decode

    measure()
    return measure


def unisonic(program, model, threads, prefill, decode):
    """A function that measures unisonic once, in a process of its own that warms up first."""

    def figure(*options):
        fixed = ["--json", "--no-bandwidth", "--repetitions", "1", "--threads", str(threads)]
        command = [program, "bench", *fixed, *options, model]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["tests"][0]

    def measure():
        reading = figure("--prefill", str(prefill), "--decode", "0")
        decoding = figure("--prefill", "0", "--decode", str(decode), "--depth", str(prefill))
        return reading["tokens_per_second"]["median"], decoding["tokens_per_second"]["median"]

    measure()
    return measure


def interval(values):
    """The order statistics that hold the median with at least 95 % probability; all values where there are too few."""
    n, ordered = len(values), sorted(values)
    below, rank = 0.0, 0
    while rank < n // 2 and below + comb(n, rank) / 2**n <= 0.025:
        below += comb(n, rank) / 2**n
        rank += 1
    low = max(rank - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="FILE", help="model in GGUF format")
    parser.add_argument("--program", default="target/release/unisonic")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--json", metavar="PATH", help="writes every measurement")
    args = parser.parse_args()

    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    version = subprocess.run([args.program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    peer = "xllamacpp " + importlib.metadata.version("xllamacpp")
    print(f"{datetime.date.today()}, {cpu or platform.machine()}, {args.threads} threads, {version} against {peer}:")
    print(f"`python3 benches/llama_cpp.py --pairs {args.pairs} --threads {args.threads} --prefill {args.prefill} "
          f"--decode {args.decode} {' '.join(Path(model).name for model in args.models)}`\n")
    print("| model | work | unisonic tok/s | llama.cpp tok/s | median ratio | 95 % interval | least, most |")
    print("|---|---|---|---|---|---|---|", flush=True)
    everything = []
    for model in args.models:
        ours = unisonic(args.program, model, args.threads, args.prefill, args.decode)
        theirs = llama_cpp(model, args.threads, args.prefill, args.decode)
        pairs = []
        for number in range(args.pairs):
            if number % 2 == 0:
                a, b = ours(), theirs()
            else:
                b, a = theirs(), ours()
            pairs.append((a, b))
            print(f"pair {number + 1}: {a} {b}", file=sys.stderr, flush=True)
        for work, name in enumerate([f"prefill {args.prefill}", f"decode {args.decode} at {args.prefill}"]):
            ratios = [a[work] / b[work] for a, b in pairs]
            low, high = interval(ratios)
            print(f"| {Path(model).name} | {name} | {median(a[work] for a, _ in pairs):.1f} "
                  f"| {median(b[work] for _, b in pairs):.1f} | {median(ratios):.2f} | {low:.2f} to {high:.2f} "
                  f"| {min(ratios):.2f}, {max(ratios):.2f} |", flush=True)
        everything.append({"model": Path(model).name, "pairs": pairs})
    if args.json:
        Path(args.json).write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
