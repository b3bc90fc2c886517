//! `docs/kir.md` shows the table of operations as it is. `BLESS=1 cargo test -p unisonic-core --test kir_doc`
//! rewrites it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use unisonic_core::kir::Type;
use unisonic_core::kir::op::{AttrKind, Effect, Family, Op, Pattern, Row};

const HEAD: &str = "\
# The kernel IR

What runs on a GPU is a kernel in this IR (`core/src/kir/`). It is structured: statements over values that are each defined
once, `if` and counted `loop`, named arrays instead of pointers. Every operation is exact: integers modulo 2^32, and
floats that are added, subtracted or multiplied, each rounded to nearest, ties to even. So a kernel has one result,
whatever the device.

- **Types**: `bool`, `u32`, `i32`, `f32`, `i8x4`, `u8x4` (four bytes in a
  word), and vectors of two or four of them (`f32x4`). Bytes of an `i8x4` are counted from the low bits.
- **Words**: a word has 32 bits, in registers and in memory; halves (binary16) and bytes are taken out of words by operations.
- **Memory**: `read`, `write` and `readwrite` buffers and `shared` arrays, indexed by element. A vector lies at a multiple of
  its width. Shared memory is undefined until written; a barrier makes writes visible to the workgroup.
- **Flow**: `if` and `loop` hold blocks; a block `yield`s the results of an `if`, or what a loop carries to its next turn.
- **Copies** (`copy_async`) bring words from buffers to shared memory while an invocation goes on; their destination is nobody's until
  `copy_wait`.
- **Matrices**: `mma16` and `mma32` multiply matrices of bytes whose words are spread over 32 invocations as PTX `mma.sync` spreads
  them: invocation `4g + t` has of A the words of four bytes (row g, k = 4t ..), (row g+8, k = 4t ..), and in `mma32` then (g, 16+4t ..),
  (g+8, 16+4t ..); of B, column g, k = 4t .. and 16+4t ..; of the sum (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1). `load_b` reads B
  from a shared array, which devices do faster than words one by one.
- **Clusters** are runs of 8, 16 or 32 invocations, whatever the subgroups of a device.
- **Together**: barriers, exchanges and loads of matrices are reached by all invocations of a workgroup at once; the verifier proves it from
  what is uniform.

A kernel is written with `core::kir::build`, run on the host by `interp`, rewritten by `legal` for a device that lacks
something, and emitted as PTX (`backend-cuda/src/ptx/`) or SPIR-V (`backend-vulkan/src/spirv/`). The templates are in
`planner/src/kernels/`; start reading there at `rms_norm`, and here at `op.rs`, then `kernel.rs`. [add-an-op.md](add-an-op.md) and
[add-a-kernel.md](add-a-kernel.md) say how to add to them. [Decision 0010](decisions/0010-launches.md) says how they run.

The text form, with more examples in `core/tests/kir/`:

```text
kernel scale workgroup 64 {
  param n: u32
  param factor: f32
  read x: f32
  write y: f32
  %0 = group_id
  %1 = const.u32 64
  %2 = imul %0, %1
  %3 = local_id
  %4 = iadd %2, %3
  %5 = param.u32 n
  %6 = ilt %4, %5
  if %6 {
    %7 = load.f32 x[%4]
    %8 = param.f32 factor
    %9 = fmul %7, %8
    store y[%4], %9
  }
}
```

The tables below are made from `core/src/kir/op.rs` by `core/tests/kir_doc.rs`. `T` is any type of the column `T`; operations
on vectors work word by word unless said otherwise. RN is rounding to nearest, ties to even.
";

#[test]
fn the_document_shows_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/kir.md");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = document();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, expected).unwrap();
    } else {
        assert!(found == expected, "docs/kir.md is not what the table says; BLESS=1 rewrites it");
    }
}

fn document() -> String {
    let chapters = [
        (Family::Index, "Where an invocation is"),
        (Family::Alu, "Arithmetic"),
        (Family::Shape, "Vectors and bytes"),
        (Family::Mem, "Memory"),
        (Family::Lanes, "Other invocations"),
        (Family::Dot, "Dot products"),
        (Family::Matrix, "Matrices"),
    ];
    let mut text = HEAD.to_owned();
    let mut shown = 0;
    for (family, title) in chapters {
        text += &format!(
            "\n## {title}\n\n| operation | result | `T` | meaning | description |\n|---|---|---|---|---|\n"
        );
        for row in Op::ALL.iter().map(|op| op.row()).filter(|row| row.family == family) {
            text += &line(row);
            shown += 1;
        }
    }
    assert_eq!(shown, Op::ALL.len(), "every family has a chapter");
    text
}

fn line(row: &Row) -> String {
    let operands: Vec<String> = row.operands.iter().map(|&pattern| name(pattern)).collect();
    let attr = match row.attr {
        AttrKind::None => "",
        AttrKind::Word => "the word",
        AttrKind::Param => "the parameter",
        AttrKind::Object => "the object",
        AttrKind::Copy => "the two objects",
        AttrKind::Columns => "the object, and a stride",
        AttrKind::Index => "an index",
        AttrKind::Selector => "a selector",
        AttrKind::Cluster => "a width, and a lane or mask",
    };
    let mut takes = operands.join(", ");
    if !attr.is_empty() {
        takes = if takes.is_empty() { attr.to_owned() } else { format!("{takes}; {attr}") };
    }
    let takes = if takes.is_empty() { String::new() } else { format!(" ({takes})") };
    let uses_t = row.operands.iter().any(|pattern| matches!(pattern, Pattern::T | Pattern::OneT));
    let set = if uses_t { row.set.name() } else { "" };
    let effect = match row.effect {
        Effect::Pure | Effect::Reads | Effect::Writes => "",
        Effect::Exchanges | Effect::ReadsTogether | Effect::Waits => " Reached together.",
    };
    let is_word = |pattern: &Pattern| matches!(pattern, Pattern::Is(_) | Pattern::OneT);
    let are_words = !row.by_word && !row.operands.is_empty() && row.operands.iter().all(is_word);
    let touches_memory = !matches!(row.effect, Effect::Pure | Effect::Exchanges);
    let width = if are_words && !touches_memory { " One word each." } else { "" };
    format!(
        "| `{}`{takes} | {} | {set} | {} | {}{width}{effect} |\n",
        row.mnemonic,
        row.result.map_or(String::new(), name),
        row.meaning.replace('|', "\\|"),
        row.doc.trim(),
    )
}

fn name(pattern: Pattern) -> String {
    match pattern {
        Pattern::Is(scalar) => scalar.name().to_owned(),
        Pattern::T => "T".to_owned(),
        Pattern::OneT => "a word of T".to_owned(),
        Pattern::Words(width) => format!("{width} words of T"),
        Pattern::Many(scalar, width) => Type { scalar, width }.to_string(),
        Pattern::Stated => "as stated".to_owned(),
    }
}
