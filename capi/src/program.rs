//! Programs: graphs on devices, and what runs through them.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

use unisonic_core::plan::LoadProgress;
use unisonic_devices::{DeviceName, OpenOptions};
use unisonic_engine::graph::{GraphOptions, GraphProgram, GraphRows, GraphSequence};
use unisonic_planner::PlanOptions;
use unisonic_planner::launches::LaunchPasses;

use crate::buffer::{Buffer, unisonic_buffer};
use crate::cancel::{Cancel, unisonic_cancel};
use crate::entry::{answer, entry};
use crate::error::{Error, Result, c_string, unisonic_error};
use crate::graph::{Graph, names, unisonic_graph};
use crate::graph_weights::{Weights, unisonic_weights};
use crate::handle::{self, Object};
use crate::library::Library;
use crate::loading::{Loading, unisonic_progress_fn};
use crate::locks::try_lock;
use crate::options::{self, SizeTagged, unisonic_text};
use crate::status::unisonic_status;
use crate::tensor::{Tensor, unisonic_tensor};
use crate::turns::{Turn, Turns};

/// A graph on a device. One call at a time runs it; others wait for their turn, in callbacks of its own calls they are refused:
/// UNISONIC_STATUS_BUSY.
pub struct unisonic_program {
    _opaque: (),
}

/// A sequence of rows on a program, with keys and values of its own. One thread at a time uses it: UNISONIC_STATUS_BUSY for others.
pub struct unisonic_sequence {
    _opaque: (),
}

/// How to load a program. None of these can change a bit of any result.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_program_options {
    /// sizeof(unisonic_program_options).
    pub struct_size: usize,
    /// The device, as unisonic_device_list_get names it; NULL: "cpu".
    pub device: *const c_char,
    /// Bytes of `device`.
    pub device_len: usize,
    /// Is told how far loading is; NULL: nobody is.
    pub progress: unisonic_progress_fn,
    /// Given to `progress`.
    pub progress_user: *mut c_void,
    /// Ends loading from another thread; NULL: nobody does.
    pub cancel: *mut unisonic_cancel,
    /// Passes that are left out, separated by commas; NULL: none.
    pub passes_off: *const c_char,
    /// Bytes of `passes_off`.
    pub passes_off_len: usize,
    /// Most memory that a GPU is asked for; 0: what is free.
    pub memory_limit_bytes: u64,
    /// Threads of the CPU; 0: one for each processor.
    pub threads: u32,
    /// Longest sequence, in rows; 0: what the graph says, 8192 at most.
    pub context_len: u32,
    /// Sequences that can be at full length at a time; 0: 1. Memory for keys and values grows with it.
    pub sequences: u32,
    /// Most rows in a step; 0: 64.
    pub chunk_rows: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_program_options {
    const NAME: &'static str = "unisonic_program_options";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What a program is. Its texts live as long as the program.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_program_info {
    /// sizeof(unisonic_program_info).
    pub struct_size: usize,
    /// The device that runs it, as it is opened.
    pub device: unisonic_text,
    /// Hardware or implementation.
    pub hardware: unisonic_text,
    /// The arithmetic: results of equal arithmetic have equal bits on all devices.
    pub profile: unisonic_text,
    /// Values of a row that it gives.
    pub output_width: u64,
    /// Steps of the plan.
    pub steps: u64,
    /// Values of a row that it takes; 0 if it takes none.
    pub input_width: u32,
    /// 1 if it takes a token id for each row; otherwise 0.
    pub takes_tokens: u32,
    /// 1 if what comes of a row depends on its position or on rows before it; otherwise sequences stay empty.
    pub has_state: u32,
    /// Longest sequence, in rows.
    pub context_len: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_program_info {
    const NAME: &'static str = "unisonic_program_info";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What is behind a program.
pub(crate) struct Program {
    loaded: Turns<GraphProgram>,
    facts: Facts,
}

/// What does not change while a program is loaded, and can be asked for while it runs.
struct Facts {
    device: CString,
    hardware: CString,
    profile: CString,
    output_width: u64,
    steps: u64,
    input_width: u32,
    takes_tokens: bool,
    has_state: bool,
    context_len: u32,
}

impl Facts {
    fn of(program: &GraphProgram) -> Self {
        let device = program.device();
        Self {
            device: c_string(&device.id),
            hardware: c_string(&device.name),
            profile: c_string(&device.profile),
            output_width: program.output_width() as u64,
            steps: program.plan().steps.len() as u64,
            input_width: program.input_width().unwrap_or(0),
            takes_tokens: program.takes_tokens(),
            has_state: program.has_state(),
            context_len: program.context_len(),
        }
    }
}

impl Object for Program {
    type Handle = unisonic_program;
    const NAME: &'static str = "program";
}

impl Program {
    /// Waits until this thread may run it.
    fn turn(&self) -> Result<Turn<'_, GraphProgram>> {
        self.loaded.take(None)
    }
}

/// What is behind a sequence.
pub(crate) struct Sequence(Mutex<GraphSequence>);

impl Object for Sequence {
    type Handle = unisonic_sequence;
    const NAME: &'static str = "sequence";
}

impl Sequence {
    fn begin(&self) -> Result<MutexGuard<'_, GraphSequence>> {
        try_lock(&self.0, "the sequence is used by another thread; wait until that has returned")
    }
}

/// Plans a graph that is whole and loads it, with its weights, on a device. The graph and the weights may be freed afterwards. Free
/// the program with unisonic_program_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_program_load(
    graph: *mut unisonic_graph,
    weights: *mut unisonic_weights,
    program_options: *const unisonic_program_options,
    program: *mut *mut unisonic_program,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let program = options::out(program, "program")?;
            let (graph, library) = entry.object_of::<Graph>(graph)?;
            let weights = entry.object::<Weights>(weights)?;
            let given = options::read(program_options)?;
            let loading = Loading::new(given.progress, given.progress_user, Cancel::of(given.cancel)?);
            let loaded = load(&library, &graph, &weights, &given, &loading)?;
            handle::write(program, &library, Arc::new(loaded))
        })
    }
}

/// # Safety
/// The texts in `given` are as the header asks.
unsafe fn load(
    library: &Library,
    graph: &Graph,
    weights: &Weights,
    given: &unisonic_program_options,
    loading: &Loading,
) -> Result<Program> {
    // SAFETY: the caller says so.
    let (device, passes_off) = unsafe {
        (
            options::text(given.device, given.device_len, "device")?,
            names(options::text(given.passes_off, given.passes_off_len, "passes_off")?),
        )
    };
    let device = match device {
        "" => DeviceName::Cpu,
        name => name.parse::<DeviceName>()?,
    };
    let or_none = |value: u32| (value != 0).then_some(value);
    let opened = OpenOptions {
        threads: or_none(given.threads).map(|threads| threads as usize),
        memory_limit_bytes: (given.memory_limit_bytes != 0).then_some(given.memory_limit_bytes),
        cache: library.cache().cloned(),
        launch_passes: LaunchPasses::without(&passes_off),
        ..OpenOptions::default()
    };
    let defaults = GraphOptions::default();
    let graph_options = GraphOptions {
        context_len: or_none(given.context_len),
        sequences: given.sequences.max(1),
        chunk_rows: or_none(given.chunk_rows).unwrap_or(defaults.chunk_rows),
        plan: PlanOptions { passes_off, ..PlanOptions::default() },
    };
    let nodes = graph.finished()?;
    let device = unisonic_devices::open(device, opened)?;
    loading.check()?;
    let tell = |progress: LoadProgress| loading.progress(progress);
    let loaded = weights.with(|tensors| {
        let watched = loading.watched(tensors);
        Ok(GraphProgram::load(&nodes, tensors.infos(), &watched, &*device, &graph_options, &tell))
    })?;
    // What ended it is not what failed, but who asked for it.
    loading.check()?;
    let loaded = loaded?;
    let facts = Facts::of(&loaded);
    Ok(Program { loaded: Turns::new(loaded, Program::NAME), facts })
}

/// Describes a program into `info`, whose struct_size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_program_get_info(
    program: *mut unisonic_program,
    info: *mut unisonic_program_info,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let program = entry.object::<Program>(program)?;
            let facts = &program.facts;
            let found = unisonic_program_info {
                struct_size: size_of::<unisonic_program_info>(),
                device: unisonic_text::of(&facts.device),
                hardware: unisonic_text::of(&facts.hardware),
                profile: unisonic_text::of(&facts.profile),
                output_width: facts.output_width,
                steps: facts.steps,
                input_width: facts.input_width,
                takes_tokens: facts.takes_tokens.into(),
                has_state: facts.has_state.into(),
                context_len: facts.context_len,
            };
            options::write(info, &found)
        })
    }
}

/// The plan of a program, as text for people, into a buffer: what unisonic_graph_plan gives. Waits for the call that
/// runs the program, if one does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_program_print(
    program: *mut unisonic_program,
    text: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let text = options::out(text, "text")?;
            let (program, library) = entry.object_of::<Program>(program)?;
            let plan = program.turn()?.plan().to_string();
            Buffer::of_bytes(plan.into_bytes()).write(text, &library)
        })
    }
}

/// Frees a program; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_program_free(program: *mut unisonic_program) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Program>(program) }
}

/// An empty sequence, for this program alone. Free it with unisonic_sequence_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_sequence_new(
    program: *mut unisonic_program,
    sequence: *mut *mut unisonic_sequence,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let sequence = options::out(sequence, "sequence")?;
            let (program, library) = entry.object_of::<Program>(program)?;
            let empty = program.turn()?.sequence();
            handle::write(sequence, &library, Arc::new(Sequence(Mutex::new(empty))))
        })
    }
}

/// Rows that have been run; 0 if it is no sequence, or another thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_sequence_len(sequence: *mut unisonic_sequence) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Sequence>(sequence)?.begin()?.len()) })
}

/// Forgets all rows past the first `len`; what stays is as if nothing had followed it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_sequence_truncate(
    sequence: *mut unisonic_sequence,
    len: usize,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let sequence = entry.object::<Sequence>(sequence)?;
            let mut sequence = sequence.begin()?;
            let found = sequence.len();
            if len > found {
                return Err(Error::argument(format!("len is {len}, but the sequence has {found} rows")));
            }
            sequence.truncate(len);
            Ok(())
        })
    }
}

/// Frees a sequence; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_sequence_free(sequence: *mut unisonic_sequence) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Sequence>(sequence) }
}

/// Appends rows to a sequence and gives what the program makes of those from index `first_output` on, as a tensor of a row each;
/// no rows if `first_output` is at the end or behind it. `tokens` has an id for each row if the program takes tokens, `values` is
/// a tensor of f32 rows if it takes such, and otherwise they are without length and NULL. `sequence` may be NULL: the rows are a
/// sequence of their own, which is forgotten. Free the tensor with unisonic_tensor_free.
///
/// After a failure the sequence is as it was before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_program_run(
    program: *mut unisonic_program,
    sequence: *mut unisonic_sequence,
    tokens: *const u32,
    tokens_len: usize,
    values: *mut unisonic_tensor,
    first_output: usize,
    output: *mut *mut unisonic_tensor,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let output = options::out(output, "output")?;
            let (program, library) = entry.object_of::<Program>(program)?;
            let tokens = options::array(tokens, tokens_len, "tokens")?;
            let values = (!values.is_null()).then(|| entry.object::<Tensor>(values)).transpose()?;
            let values = values.as_deref().map(|tensor| tensor.f32("values")).transpose()?;
            let rows = GraphRows { tokens, values: values.unwrap_or(&[]) };
            let made = match sequence.is_null() {
                true => {
                    let mut loaded = program.turn()?;
                    let mut fresh = loaded.sequence();
                    run(&mut loaded, &mut fresh, rows, first_output)?
                }
                false => {
                    let sequence = entry.object::<Sequence>(sequence)?;
                    let mut sequence = sequence.begin()?;
                    run(&mut *program.turn()?, &mut sequence, rows, first_output)?
                }
            };
            handle::write(output, &library, Arc::new(made))
        })
    }
}

fn run(
    program: &mut GraphProgram,
    sequence: &mut GraphSequence,
    rows: GraphRows<'_>,
    first_output: usize,
) -> Result<Tensor> {
    let (before, width) = (sequence.len(), program.output_width());
    let mut made = Vec::new();
    let ran = program.run(sequence, rows, first_output, &mut |_, row| made.extend_from_slice(row));
    if ran.is_err() {
        sequence.truncate(before);
    }
    ran?;
    Ok(Tensor::of_rows(made, width))
}
