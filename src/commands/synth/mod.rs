//! `unisonic synth`: writes a model with random weights in the shape of a real one.
//!
//! [`shapes`] has the hyperparameters, [`quant`] the mixtures of types, [`tensors`] what follows from both; [`weights`]
//! makes the values, [`metadata`] the rest of the file. Start reading at [`run`].

mod metadata;
mod quant;
mod shapes;
mod tensors;
mod weights;

use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use unisonic_core::format::{GgufStream, WriteError};

use self::quant::Quant;
use self::shapes::{Hyperparameters, SHAPES};
use self::tensors::{Content, Tensor};
use self::weights::Weights;
use crate::numbers::whole;
use crate::output::{bytes, bytes_bar, say, write_stdout};
use crate::{atomic, interrupt};

const DETAILS: &str = "\
The file has the size and the speed of the real model, but what it writes is noise: for measuring speed and memory \
without a download. The same arguments give the same file everywhere, byte for byte. Its vocabulary is a stand-in: a \
token for each byte, and names such as <filler_300> for the others.

Types are mixed as llama.cpp does: with q4_k_m most matrices are Q4_K, the head Q6_K, attn_v and ffn_down Q6_K in half \
of the layers; rows that are not whole blocks of 256 get Q5_0 or Q8_0 in their place.

Examples:
  unisonic synth --list
  unisonic synth qwen2.5-0.5b qwen.gguf
  unisonic synth llama-3.1-8b --layers 4 --quant q8_0 part.gguf
  unisonic bench qwen.gguf";

/// Bytes that are made at a time.
const PIECE_LEN_BYTES: usize = 1 << 20;

/// Writes a model with random weights in the shape of a real one
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct SynthArgs {
    /// The shape
    #[arg(value_name = "SHAPE", required_unless_present = "list", conflicts_with = "list")]
    shape: Option<Hyperparameters>,
    /// The file to write
    #[arg(value_name = "OUT", required_unless_present = "list", conflicts_with = "list")]
    out: Option<PathBuf>,
    /// Lists the shapes, with parameters and sizes
    #[arg(long)]
    list: bool,
    /// Types of the weights
    #[arg(long, value_name = "QUANT", default_value = "q4_k_m")]
    quant: Quant,
    /// Only this many layers [default: all]
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    layers: Option<u32>,
    /// The context that the file says it was made for [default: the shape's]
    #[arg(long, value_name = "TOKENS", value_parser = whole(2..=1u32 << 28))]
    context: Option<u32>,
    /// Another seed gives other weights
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=u64::MAX))]
    seed: u64,
    /// Replaces OUT if it exists
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub fn run(args: &SynthArgs) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let (Some(shape), Some(out)) = (&args.shape, &args.out) else {
        return write_stdout(&list()?).map(|()| ExitCode::SUCCESS);
    };
    let name = shape.name;
    let layers = args.layers.unwrap_or(shape.layers);
    if layers > shape.layers {
        bail!("{name} has {} layers, so that --layers {layers} cannot be had", shape.layers);
    }
    // A link is looked at, not followed: it is what would be replaced.
    match out.symlink_metadata() {
        Ok(found) if !found.is_file() => {
            bail!("{} is no regular file, and only such are replaced; give another name", out.display())
        }
        Ok(_) if !args.force => {
            bail!("{} exists; give another name, or --force to replace it", out.display())
        }
        _ => {}
    }
    let context_len = args.context.unwrap_or(shape.context_len);
    let metadata = metadata::metadata(shape, args.quant, layers, context_len, args.seed);
    let tensors = tensors::tensors(shape, args.quant, layers);
    let len_bytes = len_bytes(&tensors)?;
    let written = write(out, args, len_bytes, |file| {
        let shapes = tensors.iter().map(|tensor| tensor.shape.clone()).collect();
        let mut stream = GgufStream::begin(file, &metadata, shapes)?;
        let bar = bytes_bar("writing", len_bytes);
        for tensor in &tensors {
            if !append(&mut stream, tensor, args.seed, &|len| bar.inc(len))? {
                return Ok(false);
            }
        }
        bar.finish_and_clear();
        stream.finish().map(|_| true)
    })?;
    if !written {
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    let file_len_bytes = out.metadata().map_or(len_bytes, |file| file.len());
    say(format_args!(
        "wrote {}: {}, random weights in the shape of {name}{}",
        out.display(),
        bytes(file_len_bytes),
        if layers < shape.layers { format!(", {layers} of {} layers", shape.layers) } else { String::new() }
    ));
    Ok(ExitCode::SUCCESS)
}

/// Writes a file under a name of its own beside `out`, and gives it its name when all of it is on the disk; false if
/// `body` was interrupted, and then nothing is left.
fn write(
    out: &Path,
    args: &SynthArgs,
    len_bytes: u64,
    body: impl FnOnce(&mut BufWriter<&std::fs::File>) -> Result<bool, WriteError>,
) -> anyhow::Result<bool> {
    // From here on an interrupt ends this function, which removes the file.
    interrupt::defer_first_interrupt();
    let file = atomic::unnamed(out)?;
    let mut buffered = BufWriter::with_capacity(PIECE_LEN_BYTES, file.as_file());
    let explain = |error: WriteError| match error.at(out) {
        WriteError::Io { problem, .. } if problem.kind() == ErrorKind::StorageFull => anyhow::anyhow!(
            "the disk is full: {} needs {}; free some space, or choose a smaller --quant or fewer --layers",
            out.display(),
            bytes(len_bytes)
        ),
        other => other.into(),
    };
    if !body(&mut buffered).map_err(explain)? {
        return Ok(false);
    }
    let io = |problem| explain(WriteError::Io { path: Some(out.to_owned()), problem });
    buffered.flush().map_err(io)?;
    drop(buffered);
    file.as_file().sync_all().map_err(io)?;
    if interrupt::requested() {
        return Ok(false);
    }
    let persisted = if args.force { file.persist(out) } else { file.persist_noclobber(out) };
    persisted.map_err(|error| io(error.error))?;
    Ok(true)
}

/// Appends the values of a tensor; false if interrupted.
fn append(
    stream: &mut GgufStream<impl Write>,
    tensor: &Tensor,
    seed: u64,
    done: &dyn Fn(u64),
) -> Result<bool, WriteError> {
    let row_len = tensor.shape.dims.first().copied().unwrap_or(1) as f64;
    let (standard_deviation, mean) = match &tensor.content {
        Content::Values(values) => {
            stream.append(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())?;
            return Ok(true);
        }
        Content::Matrix => (1.0 / libm::sqrt(row_len), 0.0),
        Content::Norm => (0.1, 1.0),
        Content::Bias => (0.1, 0.0),
    };
    let weights = Weights::new(seed, &tensor.shape.name, tensor.shape.ty, standard_deviation, mean);
    let units_per_piece = (PIECE_LEN_BYTES / weights.unit_len_bytes()) as u64;
    let mut piece = vec![0; units_per_piece as usize * weights.unit_len_bytes()];
    let (mut unit, mut left_bytes) = (0, tensor.shape.len_bytes()?);
    while left_bytes > 0 {
        if interrupt::requested() {
            return Ok(false);
        }
        let len = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(piece.len());
        let bytes = &mut piece[..len];
        weights.fill(unit, bytes);
        stream.append(bytes)?;
        done(len as u64);
        unit += units_per_piece;
        left_bytes -= len as u64;
    }
    Ok(true)
}

fn len_bytes(tensors: &[Tensor]) -> Result<u64, WriteError> {
    tensors.iter().try_fold(0, |sum: u64, Tensor { shape, .. }| {
        sum.checked_add(shape.len_bytes()?).ok_or_else(|| WriteError::TooLong { tensor: shape.name.clone() })
    })
}

/// The shapes as a table.
fn list() -> anyhow::Result<String> {
    const QUANTS: [Quant; 4] = [Quant::Q4_0, Quant::Q4_K_M, Quant::Q8_0, Quant::F16];
    let names =
        QUANTS.iter().filter_map(Quant::to_possible_value).map(|quant| format!("GB {}", quant.get_name()));
    let head =
        ["shape", "architecture", "layers", "hidden", "ff", "heads", "head", "vocabulary", "parameters"];
    let mut lines = vec![head.map(str::to_owned).into_iter().chain(names).collect()];
    for shape in SHAPES {
        let mut line = facts(shape);
        for quant in QUANTS {
            let len_bytes = len_bytes(&tensors::tensors(shape, quant, shape.layers))?;
            line.push(format!("{:.2}", len_bytes as f64 * 1e-9));
        }
        lines.push(line);
    }
    Ok(crate::output::aligned(&lines))
}

fn facts(shape: &Hyperparameters) -> Vec<String> {
    let elements = |tensor: &Tensor| tensor.shape.dims.iter().product::<u64>();
    let parameters: u64 = tensors::tensors(shape, Quant::F16, shape.layers).iter().map(elements).sum();
    vec![
        shape.name.to_owned(),
        shape.architecture.to_owned(),
        shape.layers.to_string(),
        shape.embedding_len.to_string(),
        shape.feed_forward_len.to_string(),
        format!("{}/{}", shape.heads, shape.kv_heads),
        shape.head_len.to_string(),
        shape.vocab_len.to_string(),
        format!("{:.0} M", parameters as f64 * 1e-6),
    ]
}
