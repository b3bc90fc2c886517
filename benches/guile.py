#!/usr/bin/env python3
"""Time per token of greedy generation, Guile over Rust, in interleaved pairs.

Usage: benches/guile.py MODEL.gguf [--pairs 30] [--tokens 64] [--threads 2] [--unisonic PATH] [--library PATH]

Each pair runs `unisonic bench --generate` and benches/guile.scm, one after the other, the first of them by turns; each loads the
model, warms up and measures once. Build both in the same profile:

    cargo build --release && cargo build --release -p unisonic-capi
"""

import argparse
import json
import os
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def of_rust(args):
    """Milliseconds a token."""
    command = [args.unisonic, "bench", "--prefill", "0", "--decode", "0", "--generate", str(args.tokens), "--no-bandwidth",
               "--repetitions", "1", "--threads", str(args.threads), "--json", args.model]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (test,) = found["tests"]
    (seconds,) = test["seconds"]
    return 1000 * seconds / args.tokens


def of_guile(args):
    """Milliseconds a token."""
    environment = dict(os.environ, UNISONIC_LIBRARY=os.path.abspath(args.library))
    command = ["guile", "-L", "bindings/guile", "-s", "benches/guile.scm", os.path.abspath(args.model), str(args.tokens),
               str(args.threads)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
    return 1000 * float(found.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--unisonic", default=os.path.join(ROOT, "target/release/unisonic"))
    parser.add_argument("--library", default=os.path.join(ROOT, "target/release/libunisonic.so"))
    args = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f}; {args.tokens} tokens, {args.threads} threads")
    print("| pair | Rust, ms a token | Guile, ms a token | ratio |\n|---|---|---|---|")
    pairs = []
    for pair in range(args.pairs):
        sides = [of_rust, of_guile] if pair % 2 == 0 else [of_guile, of_rust]
        found = {side: side(args) for side in sides}
        pairs.append((found[of_rust], found[of_guile]))
        rust, guile = pairs[-1]
        print(f"| {pair + 1} | {rust:.3f} | {guile:.3f} | {guile / rust:.4f} |", flush=True)
    ratios = [guile / rust for rust, guile in pairs]
    rust, guile = (statistics.median(side) for side in zip(*pairs))
    print(f"\nload after: {os.getloadavg()[0]:.2f}; medians: Rust {rust:.3f} ms, Guile {guile:.3f} ms")
    print(f"median of the ratios: {statistics.median(ratios):.4f}; quartiles "
          + ", ".join(f"{quartile:.4f}" for quartile in statistics.quantiles(ratios, n=4)))


main()
