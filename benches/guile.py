#!/usr/bin/env python3
"""Time per token of greedy generation, Guile over Rust, in interleaved pairs.

Usage: benches/guile.py MODEL.gguf [--pairs 30] [--tokens 32] [--threads 1] [--unisonic PATH] [--library PATH]

Each pair runs `unisonic bench --generate` and benches/guile.scm, one after the other, the first of them by turns; each loads the
model, warms up and measures five times. Wall time is the median of these. Processor time, which says more on a machine that others
use too, is the mean; that of Rust is the difference between a process with five measurements and one with one. Build
both in the same profile:

    cargo build --release && cargo build --release -p unisonic-capi
    scripts/test-guile.sh tensor      # compiles the modules, as installing them would
"""

import argparse
import json
import os
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEASUREMENTS = 5


def run(command, **options):
    """What a process prints, and its processor seconds."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} failed")
    return printed, usage.ru_utime + usage.ru_stime


def of_rust(args):
    """Milliseconds a token: wall, processor."""
    def bench(repetitions):
        return run([args.unisonic, "bench", "--prefill", "0", "--decode", "0", "--generate", str(args.tokens), "--no-bandwidth",
                    "--repetitions", str(repetitions), "--threads", str(args.threads), "--json", args.model])
    _, once = bench(1)
    printed, processor = bench(MEASUREMENTS)
    (test,) = json.loads(printed)["tests"]
    wall = statistics.median(test["seconds"]) / args.tokens
    return 1000 * wall, 1000 * (processor - once) / (args.tokens * (MEASUREMENTS - 1))


def of_guile(args):
    """Milliseconds a token: wall, processor."""
    environment = dict(os.environ, UNISONIC_LIBRARY=os.path.abspath(args.library), GUILE_AUTO_COMPILE="0")
    command = ["guile", "-C", "target/guile", "-L", "bindings/guile", "-s", "benches/guile.scm", os.path.abspath(args.model),
               str(args.tokens), str(args.threads)]
    printed, _ = run(command, env=environment, cwd=ROOT)
    walls, processors = zip(*(map(float, line.split()) for line in printed.splitlines()))
    return 1000 * statistics.median(walls), 1000 * statistics.mean(processors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--unisonic", default=os.path.join(ROOT, "target/release/unisonic"))
    parser.add_argument("--library", default=os.path.join(ROOT, "target/release/libunisonic.so"))
    args = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f}; {args.tokens} tokens, {args.threads} thread(s), {os.cpu_count()} processors\n")
    print("| pair | Rust, wall | Guile, wall | ratio | Rust, processor | Guile, processor | ratio |\n|---|---|---|---|---|---|---|")
    pairs = []
    for pair in range(args.pairs):
        sides = [of_rust, of_guile] if pair % 2 == 0 else [of_guile, of_rust]
        found = {side: side(args) for side in sides}
        rust, guile = found[of_rust], found[of_guile]
        pairs.append([(rust[clock], guile[clock]) for clock in (0, 1)])
        columns = [f"{rust:.3f} | {guile:.3f} | {guile / rust:.4f}" for rust, guile in pairs[-1]]
        print(f"| {pair + 1} | {' | '.join(columns)} |", flush=True)
    print(f"\nload after: {os.getloadavg()[0]:.2f}")
    for clock, name in enumerate(["wall", "processor"]):
        rust, guile = zip(*(pair[clock] for pair in pairs))
        ratios = [b / a for a, b in zip(rust, guile)]
        quartiles = ", ".join(f"{quartile:.4f}" for quartile in statistics.quantiles(ratios, n=4))
        print(f"{name}: medians {statistics.median(rust):.3f} ms (Rust) and {statistics.median(guile):.3f} ms (Guile) a token; "
              f"quartiles of the ratios {quartiles}")


main()
