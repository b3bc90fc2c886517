#!/usr/bin/env python3
"""Do the tests notice faults? Plants small ones in the kernel IR and its emitters, one at a time, and runs their tests.

    scripts/mutants.py [--count 240] [--seed 1] [--only PART] [--list] [--report FILE]

Works on a copy of the tracked files, in DIR (--dir, default target/mutants), so the working tree stays as it is. A mutant that does
not compile is not counted, another one takes its place. The end says how many were killed and lists the survivors; the
exit status is 1 if more than 3 % survive.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Files of a part, and the tests that watch it; the first that fails kills the mutant.
CORE_TESTS = [
    ["-p", "unisonic-core", "--lib", "kir"],
    ["-p", "unisonic-core", "--test", "kir_filetests"],
    ["-p", "unisonic-core", "--test", "kir_doc"],
]
# Without the assembler and the validator, which are not copied: they take long, and goldens say more.
PTX_TESTS = [["-p", "unisonic-cuda", "--lib", "--test", "ptx_filetests", "--test", "proof"]]
SPIRV_TESTS = [
    ["-p", "unisonic-vulkan", "--lib", "--test", "spirv_filetests", "--test", "all_ops"],
    ["-p", "unisonic-vulkan", "--test", "on_device", "operation"],
]
PARTS = {
    "table": (["core/src/kir/op.rs", "core/src/kir/abi.rs"], CORE_TESTS + PTX_TESTS + SPIRV_TESTS),
    "legaliser": (["core/src/kir/legal/*.rs"], CORE_TESTS),
    "rules": (["core/src/kir/verify/*.rs", "core/src/kir/waits.rs", "core/src/kir/join.rs", "core/src/kir/uniform.rs"], CORE_TESTS),
    "ptx": (["backend-cuda/src/ptx/*.rs"], PTX_TESTS),
    "spirv": (["backend-vulkan/src/spirv/*.rs"], SPIRV_TESTS),
}

# What is changed: (kind, pattern, replacement). A group marks the text that is replaced.
RULES = [
    ("operator", r" (\+) ", "-"),
    ("operator", r" (-) ", "+"),
    ("operator", r" (\*) ", "+"),
    ("operator", r" (<<) ", ">>"),
    ("operator", r" (>>) ", "<<"),
    ("operator", r" (<) ", "<="),
    ("operator", r" (<=) ", "<"),
    ("operator", r" (==) ", "!="),
    ("operator", r" (!=) ", "=="),
    ("operator", r" (&&) ", "||"),
    ("operator", r" (\^) ", "|"),
    ("operator", r" (&) ", "|"),
    ("operator", r"(\.min)\(", ".max"),
    ("operator", r"(\.max)\(", ".min"),
    ("operator", r'"[^"]*\b(add)\b', "sub"),
    ("operator", r'"[^"]*\b(sub)\b', "add"),
    ("operator", r'"[^"]*\b(mul)\b', "add"),
    ("operator", r'"[^"]*\b(min)\b', "max"),
    ("operator", r'"[^"]*\b(max)\b', "min"),
    ("operator", r'"[^"]*\b(shl)\b', "shr"),
    ("operator", r'"[^"]*\b(and)\.', "or"),
    ("operator", r'"[^"]*\b(xor)\b', "or"),
    ("operator", r"Op::(IAdd)\b(?=.*,)", "ISub"),
    ("operand order", r"(\[0\])", "[1]"),
    ("operand order", r"(\[1\])", "[0]"),
    ("operand order", r"\b(a, b)\b(?!\]? ?=)", "b, a"),
    ("operand order", r"\b(yes, no)\b(?!\)? ?=)", "no, yes"),
    ("type", r"Scalar::(U32)\b", "I32"),
    ("type", r"Scalar::(I32)\b", "U32"),
    ("type", r"Scalar::(I8x4)\b", "U8x4"),
    ("type", r"\bIs\((U32)\)", "I32"),
    ("type", r"\bIs\((I32)\)", "U32"),
    ("type", r"\bIs\((I8x4)\)", "U8x4"),
    ("type", r"\b(Int), (?=true|false)", "Word"),
    ("type", r'"[^"]*\.(s32)\b', "u32"),
    ("type", r'"[^"]*\.(u32)\b', "s32"),
    ("type", r'"[^"]*\.(s8)\b', "u8"),
    ("type", r'"[^"]*\.(rn)\b', "rz"),
    ("type", r'"[^"]*(\.nc)\b', ""),
    ("effect", r", (Exchanges),", "Pure"),
    ("effect", r", (Waits),", "Pure"),
    ("effect", r", (Reads),", "Pure"),
    ("effect", r", (Writes),", "Pure"),
    ("barrier", r"^(\s*k\.barrier\(\);)$", ""),
    ("barrier", r'(bar\.sync)', "// bar.sync"),
    ("barrier", r"^(\s*self\.module\.push_effect\(Op::ControlBarrier, .*\);)$", ""),
    ("index + 1", r"(?<![\w.\"#:])(\d+)(?![\w.\"'])", lambda m: str(int(m) + 1)),
    ("index - 1", r"(?<![\w.\"#:])([1-9]\d*)(?![\w.\"'])", lambda m: str(int(m) - 1)),
]


def code_lines(text):
    """Lines of a file that are compiled into the library: no comments, imports, attributes or tests."""
    for number, line in enumerate(text.split("\n")):
        if line.startswith("#[cfg(test)]"):
            return
        bare = line.strip()
        if not bare or bare.startswith(("//", "use ", "#[", "#!", "mod ", "pub mod ", "pub use ", "debug_assert", "assert")):
            continue
        # Sentences for the documentation, and messages of bugs.
        if "unreachable!" in bare or "panic!" in bare:
            continue
        yield number, line


def mutants(part):
    """All mutants of a part: (file, line number, kind, new line)."""
    found = []
    for pattern in PARTS[part][0]:
        for path in sorted(ROOT.glob(pattern)):
            if path.stem.endswith("tests"):
                continue
            for number, line in code_lines(path.read_text()):
                code = line.split(" //")[0]
                for kind, rule, replacement in RULES:
                    for match in re.finditer(rule, code):
                        start, end = match.span(1)
                        new = replacement(match.group(1)) if callable(replacement) else replacement
                        found.append((path.relative_to(ROOT), number, kind, line[:start] + new + line[end:]))
    return found


def copy_tree(to):
    """Makes the sources in a folder those of the working tree; `target` stays, for speed."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    names = {name for name in files.decode().split("\0") if name and (ROOT / name).is_file()}
    for old in to.rglob("*.rs") if to.exists() else []:
        name = old.relative_to(to)
        if name.parts[0] != "target" and str(name) not in names:
            old.unlink()
    for name in sorted(names):
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            shutil.copyfile(ROOT / name, target)
            shutil.copymode(ROOT / name, target)


def run(tests, where, env, seconds):
    """`killed`, `survived`, or `unviable` with what was seen."""
    for test in tests:
        # Compiling is not the test: a mutant that is no program says nothing of the tests.
        build = subprocess.run(["cargo", "test", "-q", "--offline", "--no-run", *test], cwd=where, env=env, capture_output=True)
        if build.returncode != 0:
            return "unviable"
        try:
            done = subprocess.run(["cargo", "test", "-q", "--offline", *test], cwd=where, env=env, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return "killed"
        if done.returncode != 0:
            return "killed"
    return "survived"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=240, help="mutants in all, shared between the parts by their size")
    options.add_argument("--seed", type=int, default=1, help="which ones")
    options.add_argument("--only", choices=sorted(PARTS), help="one part")
    options.add_argument("--list", action="store_true", help="say which, and run nothing")
    options.add_argument("--report", type=Path, help="a file for the result, as a table")
    options.add_argument("--dir", type=Path, default=ROOT / "target" / "mutants", help="where the copy lies")
    options.add_argument("--timeout", type=int, default=300, help="seconds that the tests of a mutant may take")
    options = options.parse_args()

    parts = [options.only] if options.only else list(PARTS)
    all_of = {part: mutants(part) for part in parts}
    total = sum(len(found) for found in all_of.values())
    pick = random.Random(options.seed)
    for found in all_of.values():
        pick.shuffle(found)
    wanted = {part: max(1, round(options.count * len(found) / total)) for part, found in all_of.items()}
    print(f"{total} mutants exist; wanted: {wanted}", flush=True)
    if options.list:
        for part, found in all_of.items():
            for path, number, kind, line in found[: wanted[part]]:
                print(f"{part}: {path}:{number + 1}: {kind}: {line.strip()}")
        return 0

    copy_tree(options.dir)
    env = dict(os.environ, CARGO_TARGET_DIR=str(options.dir / "target"), CARGO_PROFILE_TEST_OPT_LEVEL="1", RUST_BACKTRACE="0")
    for part in parts:
        if run(PARTS[part][1], options.dir, env, 1200) != "survived":
            print(f"error: the tests of `{part}` fail without a mutant", file=sys.stderr)
            return 2
    rows, begun = [], time.time()
    for part in parts:
        done = 0
        for path, number, kind, line in all_of[part]:
            if done == wanted[part]:
                break
            file = options.dir / path
            text = file.read_text()
            lines = text.split("\n")
            old, lines[number] = lines[number], line
            file.write_text("\n".join(lines))
            result = run(PARTS[part][1], options.dir, env, options.timeout)
            file.write_text(text)
            if result == "unviable":
                continue
            done += 1
            rows.append((part, f"{path}:{number + 1}", kind, old.strip(), line.strip(), result))
            print(f"{time.time() - begun:6.0f} s {part} {done}/{wanted[part]} {result}: {path}:{number + 1}: {kind}: {line.strip()}", flush=True)
    killed = sum(row[-1] == "killed" for row in rows)
    survivors = [row for row in rows if row[-1] == "survived"]
    share = killed / max(1, len(rows))
    summary = f"{killed} of {len(rows)} killed ({100 * share:.1f} %)"
    print(summary)
    if options.report:
        table = "\n".join("| " + " | ".join(f"`{cell}`".replace("|", "\\|") for cell in row[:5]) + " |" for row in survivors)
        options.report.write_text(f"{summary}\n\n| part | place | kind | was | became |\n|---|---|---|---|---|\n{table}\n")
    return 0 if share >= 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
