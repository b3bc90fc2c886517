//! A stand-in for NVIDIA's driver, so that what calls it is tested where there is no GPU. Compiled by
//! `support/fake.rs` as `libcuda.so`; only the functions that are called are here.
//!
//! Device memory is host memory. What is put into a stream is done at the latest moment the API allows, when
//! something waits, so that memory given back or overwritten too early is seen: each address is looked up
//! among what is allocated, and a wrong one is an illegal address, after which every call fails. Kernels are
//! known by their names (`run`). The end of the last context with something left that was not lost, and a
//! call after a loss when `FAKE_CUDA_STRICT` is set, end the process. `FAKE_CUDA_FAIL=name=code,...` lets
//! functions fail.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex};

type Result = c_int;
type Out = *mut u64;
const ILLEGAL_ADDRESS: Result = 700;
const MEMORY_LEN_BYTES: u64 = 256 << 20;

#[derive(Clone)]
enum Op {
    Copy { to: u64, from: u64, len: u64 },
    Launch { entry: String, grid: u32, addresses: Vec<u64>, params: Vec<u32> },
    Stamp { event: u64 },
}

struct Module {
    entry: String,
    addresses: usize,
    params: usize,
}

#[derive(Default)]
struct State {
    contexts: u32,
    lost: bool,
    next: u64,
    /// Device and pinned memory: address to length.
    device: BTreeMap<u64, u64>,
    pinned: BTreeMap<u64, u64>,
    streams: BTreeMap<u64, Vec<Op>>,
    /// Streams that are captured, with what came so far.
    captures: BTreeMap<u64, Vec<Op>>,
    events: BTreeMap<u64, u64>,
    /// After how many operations events were stamped.
    stamps: BTreeMap<u64, u64>,
    done: u64,
    /// Links, with the image that each made.
    links: BTreeMap<u64, Vec<u8>>,
    modules: BTreeMap<u64, Module>,
    graphs: BTreeMap<u64, Vec<Op>>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
static FAILURES: LazyLock<Vec<(String, Result)>> = LazyLock::new(|| {
    let text = std::env::var("FAKE_CUDA_FAIL").unwrap_or_default();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, code)| (name.to_owned(), code.parse().unwrap())).collect()
});

fn end(why: &str) -> ! {
    eprintln!("fake driver: {why}");
    std::process::abort()
}

/// Does a call, unless it is to fail.
fn call(name: &str, act: impl FnOnce(&mut State) -> Result) -> Result {
    let mut state = STATE.lock().unwrap();
    if state.lost {
        if std::env::var_os("FAKE_CUDA_STRICT").is_some() {
            end(&format!("{name} was called after the loss"));
        }
        return ILLEGAL_ADDRESS;
    }
    let failure = FAILURES.iter().find(|(function, _)| function == name);
    if failure.is_some() && name == "cuStreamEndCapture" {
        // A failed capture too is at an end.
        state.captures.clear();
    }
    let code = failure.map_or_else(|| act(&mut state), |failure| failure.1);
    state.lost |= matches!(code, 214 | 700..720);
    code
}

impl State {
    fn handle(&mut self) -> u64 {
        self.next += 0x10;
        self.next
    }

    fn allocate(&mut self, len: u64) -> u64 {
        let layout = std::alloc::Layout::from_size_align(len as usize, 256).unwrap();
        let address = unsafe { std::alloc::alloc(layout) } as u64;
        unsafe { (address as *mut u8).write_bytes(0xCD, len as usize) };
        address
    }

    fn holds(&self, address: u64, len: u64) -> bool {
        [&self.device, &self.pinned].into_iter().any(|memory| {
            memory.range(..=address).next_back().is_some_and(|(start, own)| address + len <= start + own)
        })
    }

    fn put(&mut self, stream: u64, op: Op) -> Result {
        if let Some(ops) = self.captures.get_mut(&stream) {
            ops.push(op);
            return 0;
        }
        let Some(ops) = self.streams.get_mut(&stream) else { end("no such stream") };
        ops.push(op);
        0
    }

    fn finish(&mut self, stream: u64) -> Result {
        if self.captures.contains_key(&stream) {
            return 900;
        }
        let Some(ops) = self.streams.get_mut(&stream) else { end("no such stream") };
        std::mem::take(ops).into_iter().map(|op| self.run(op)).find(|&code| code != 0).unwrap_or(0)
    }

    fn run(&mut self, op: Op) -> Result {
        self.done += u64::from(!matches!(op, Op::Stamp { .. }));
        match op {
            Op::Stamp { event } => {
                self.stamps.insert(event, self.done);
                0
            }
            Op::Copy { to, from, len } => {
                if !self.holds(to, len) || !self.holds(from, len) {
                    return ILLEGAL_ADDRESS;
                }
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
                0
            }
            Op::Launch { entry, grid, addresses, params } => self.kernel(&entry, grid, &addresses, &params),
        }
    }

    /// What the kernels of `tests/driver.rs` do.
    fn kernel(&self, entry: &str, grid: u32, addresses: &[u64], params: &[u32]) -> Result {
        let get = |buffer: usize, at: u32| {
            let address = addresses[buffer] + 4 * u64::from(at);
            self.holds(address, 4).then(|| unsafe { (address as *const u32).read() })
        };
        let set = |buffer: usize, at: u32, value: u32| {
            let address = addresses[buffer] + 4 * u64::from(at);
            self.holds(address, 4).then(|| unsafe { (address as *mut u32).write(value) })
        };
        let all = |count: u32, each: &dyn Fn(u32) -> Option<()>| (0..count).try_for_each(each);
        let done = match entry {
            "kir_double" => all(params[0].min(32 * grid), &|at| set(1, at, get(0, at)?.wrapping_mul(2))),
            "kir_add" => all(params[0].min(32 * grid), &|at| set(1, at, get(0, at)?.wrapping_add(params[1]))),
            "kir_number_groups" => all(grid, &|at| set(0, at, at + params[0])),
            "kir_far_store" => set(0, params[0], 1),
            "kir_turn_around" => all(32, &|at| set(1, at, get(0, 31 - at)?)),
            _ => end(&format!("no kernel {entry}")),
        };
        done.map_or(ILLEGAL_ADDRESS, |()| 0)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_: c_uint) -> Result {
    call("cuInit", |_| 0)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(to: *mut c_int) -> Result {
    let version = std::env::var("FAKE_CUDA_VERSION").ok().and_then(|text| text.parse().ok());
    unsafe { *to = version.unwrap_or(12_040) };
    0
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(to: *mut c_int) -> Result {
    unsafe { *to = 1 };
    call("cuDeviceGetCount", |_| 0)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(to: *mut c_int, index: c_int) -> Result {
    unsafe { *to = index };
    0
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(to: *mut c_char, _: c_int, _: c_int) -> Result {
    unsafe { std::ptr::copy(c"Fake GPU".as_ptr(), to, 9) };
    0
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, _: c_int) -> Result {
    let value = match attribute {
        1 => 1024,
        16 => 40,
        18 => 0,
        75 => 9,
        76 => 0,
        97 => 227 * 1024,
        _ => return 1,
    };
    unsafe { *to = value };
    0
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(to: *mut usize, _: c_int) -> Result {
    unsafe { *to = MEMORY_LEN_BYTES as usize };
    0
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: Out, _: c_int) -> Result {
    call("cuDevicePrimaryCtxRetain", |state| {
        state.contexts += 1;
        unsafe { *to = 0xC0 };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> Result {
    let mut state = STATE.lock().unwrap();
    state.contexts = state.contexts.checked_sub(1).unwrap_or_else(|| end("released too often"));
    if state.contexts == 0 && !state.lost {
        let lens = [state.device.len(), state.pinned.len(), state.streams.len(), state.events.len()];
        let lens = [lens.as_slice(), &[state.modules.len(), state.graphs.len(), state.links.len()]].concat();
        if lens.iter().any(|&len| len > 0) {
            end(&format!("left behind: device, pinned, streams, events, modules, graphs, links: {lens:?}"));
        }
    }
    0
}
#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: u64) -> Result {
    call(
        "cuCtxSetCurrent",
        |state| if context == 0xC0 && state.contexts > 0 { 0 } else { end("no such context") },
    )
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(to: Out, len: usize) -> Result {
    call("cuMemAlloc_v2", |state| {
        if len == 0 {
            return 1;
        }
        if state.device.values().sum::<u64>() + len as u64 > MEMORY_LEN_BYTES {
            return 2;
        }
        let address = state.allocate(len as u64);
        state.device.insert(address, len as u64);
        unsafe { *to = address };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> Result {
    call("cuMemFree_v2", |state| state.device.remove(&address).map_or_else(|| end("freed twice"), |_| 0))
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Result {
    call("cuMemGetInfo_v2", |state| {
        let taken: u64 = state.device.values().sum();
        unsafe { (*free, *total) = ((MEMORY_LEN_BYTES - taken) as usize, MEMORY_LEN_BYTES as usize) };
        0
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(to: Out, len: usize, _: c_uint) -> Result {
    call("cuMemHostAlloc", |state| {
        let address = state.allocate(len as u64);
        state.pinned.insert(address, len as u64);
        unsafe { *to = address };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: u64) -> Result {
    call("cuMemFreeHost", |state| state.pinned.remove(&address).map_or_else(|| end("freed twice"), |_| 0))
}
#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, len: usize, stream: u64) -> Result {
    call("cuMemcpyHtoDAsync_v2", |state| state.put(stream, Op::Copy { to, from, len: len as u64 }))
}
#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, len: usize, stream: u64) -> Result {
    call("cuMemcpyDtoHAsync_v2", |state| state.put(stream, Op::Copy { to, from, len: len as u64 }))
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(to: Out, _: c_uint) -> Result {
    call("cuStreamCreate", |state| {
        let stream = state.handle();
        state.streams.insert(stream, vec![]);
        unsafe { *to = stream };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> Result {
    call("cuStreamDestroy_v2", |state| {
        let code = state.finish(stream);
        state.streams.remove(&stream);
        code
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: u64) -> Result {
    call("cuStreamSynchronize", |state| state.finish(stream))
}
#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: u64, _: c_uint) -> Result {
    call("cuStreamBeginCapture_v2", |state| {
        state.captures.insert(stream, vec![]).map_or(0, |_| end("captured twice"))
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: u64, to: Out) -> Result {
    call("cuStreamEndCapture", |state| {
        let Some(ops) = state.captures.remove(&stream) else { end("not captured") };
        let graph = state.handle();
        state.graphs.insert(graph, ops);
        unsafe { *to = graph };
        0
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(to: Out, _: c_uint) -> Result {
    call("cuEventCreate", |state| {
        let event = state.handle();
        state.events.insert(event, 0);
        unsafe { *to = event };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> Result {
    call("cuEventDestroy_v2", |state| state.events.remove(&event).map_or_else(|| end("no such event"), |_| 0))
}
#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: u64) -> Result {
    call("cuEventRecord", |state| {
        state.events.insert(event, stream).map_or_else(|| end("no such event"), |_| 0)
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: u64, stream: u64, flags: c_uint) -> Result {
    call("cuEventRecordWithFlags", |state| {
        // Only an external one is part of the graph.
        if state.captures.contains_key(&stream) != (flags == 1) {
            return 1;
        }
        if !state.events.contains_key(&event) {
            end("no such event")
        }
        state.put(stream, Op::Stamp { event })
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: u64, to: *mut c_int) -> Result {
    call("cuStreamIsCapturing", |state| {
        unsafe { *to = state.captures.contains_key(&stream).into() };
        0
    })
}
/// A microsecond for each operation between them.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(to: *mut f32, from: u64, event: u64) -> Result {
    call("cuEventElapsedTime", |state| {
        let at = |event: u64| state.stamps.get(&event).copied();
        let (Some(from), Some(event)) = (at(from), at(event)) else { return 400 };
        unsafe { *to = (event as f32 - from as f32) * 1e-3 };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: u64) -> Result {
    call("cuEventSynchronize", |state| match state.events.get(&event) {
        None => end("no such event"),
        Some(0) => 0,
        Some(&stream) => state.finish(stream),
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkCreate_v2(options: c_uint, _: *const c_int, _: *const c_void, to: Out) -> Result {
    call("cuLinkCreate_v2", |state| {
        let link = state.handle();
        state.links.insert(link, vec![]);
        unsafe { *to = link };
        if options == 0 { 0 } else { 1 }
    })
}
/// The image of a text is the text, behind what an ELF image begins with.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkAddData_v2(
    link: u64,
    kind: c_uint,
    text: *const u8,
    len: usize,
    _: *const c_char,
    _: c_uint,
    _: *const c_int,
    _: *const c_void,
) -> Result {
    call("cuLinkAddData_v2", |state| {
        let text = unsafe { std::slice::from_raw_parts(text, len) };
        let Some((0, _)) = text.split_last() else { end("a text without a zero byte at its end") };
        let Some(image) = state.links.get_mut(&link) else { end("no such link") };
        *image = [b"\x7fELF", text].concat();
        match entry(std::str::from_utf8(&text[..len - 1]).unwrap()) {
            Some(_) if kind == 1 => 0,
            _ => 218,
        }
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkComplete(link: u64, to: Out, len: *mut usize) -> Result {
    call("cuLinkComplete", |state| {
        let Some(image) = state.links.get(&link) else { end("no such link") };
        unsafe { (*to, *len) = (image.as_ptr() as u64, image.len()) };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuLinkDestroy(link: u64) -> Result {
    call("cuLinkDestroy", |state| state.links.remove(&link).map_or_else(|| end("no such link"), |_| 0))
}
/// The name of a text's entry, unless it is none.
fn entry(text: &str) -> Option<&str> {
    let entry = text.split(".entry ").nth(1)?.split('(').next()?;
    (!entry.contains(' ')).then_some(entry)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    to: Out,
    text: *const c_char,
    options: c_uint,
    _: *const c_int,
    values: *mut *mut c_char,
) -> Result {
    call("cuModuleLoadDataEx", |state| {
        let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap();
        let Some(entry) = entry(text) else {
            if options == 0 {
                return 218;
            }
            let log = c"ptxas application ptx input, line 5; fatal   : Parsing error near '-': syntax error";
            unsafe { std::ptr::copy(log.as_ptr(), *values, log.count_bytes() + 1) };
            return 218;
        };
        let count = |what: &str| text.matches(what).count();
        let module = Module {
            entry: entry.to_owned(),
            addresses: count(".param .u64 object_"),
            params: count(".param .b32 param_"),
        };
        let handle = state.handle();
        state.modules.insert(handle, module);
        unsafe { *to = handle };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: u64) -> Result {
    call("cuModuleUnload", |state| state.modules.remove(&module).map_or_else(|| end("unloaded twice"), |_| 0))
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(to: Out, module: u64, name: *const c_char) -> Result {
    call("cuModuleGetFunction", |state| {
        let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
        unsafe { *to = module };
        if state.modules[&module].entry == name { 0 } else { 500 }
    })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(to: *mut c_int, _: c_int, _: u64) -> Result {
    unsafe { *to = 1024 };
    call("cuFuncGetAttribute", |_| 0)
}
#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(_: u64, _: c_int, _: c_int) -> Result {
    call("cuFuncSetAttribute", |_| 0)
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: u64,
    grid: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    stream: u64,
    record: *const *const c_void,
    _: *const c_void,
) -> Result {
    call("cuLaunchKernel", |state| {
        let Some(Module { entry, addresses, params }) = state.modules.get(&function) else { return 400 };
        let at = |number: usize| unsafe { *record.add(number) };
        let op = Op::Launch {
            entry: entry.clone(),
            grid,
            addresses: (0..*addresses).map(|number| unsafe { at(number).cast::<u64>().read() }).collect(),
            params: (0..*params)
                .map(|number| unsafe { at(addresses + number).cast::<u32>().read() })
                .collect(),
        };
        if grid == 0 { 1 } else { state.put(stream, op) }
    })
}
/// `CUlaunchConfig`, and the one attribute of it that is known: a launch that begins before the one before it
/// has ended.
#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: u64,
    attributes: *const Attribute,
    attribute_count: c_uint,
}
#[repr(C, align(8))]
struct Attribute {
    id: c_uint,
    pad: [c_char; 4],
    value: c_int,
    rest: [c_char; 60],
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const Config,
    function: u64,
    record: *const *const c_void,
    extra: *const c_void,
) -> Result {
    let Config { grid, block, shared, stream, attributes, attribute_count } = unsafe { config.read() };
    let attribute = unsafe { attributes.read() };
    if (attribute_count, attribute.id, attribute.value) != (1, 6, 1) {
        end("other attributes than that of an early launch");
    }
    let code = call("cuLaunchKernelEx", |state| {
        let ops = state.captures.get(&stream).or_else(|| state.streams.get(&stream));
        match ops.and_then(|ops| ops.last()) {
            Some(Op::Launch { .. }) => 0,
            _ => end("an early launch that does not come after a launch"),
        }
    });
    if code != 0 {
        return code;
    }
    let ([x, y, z], [a, b, c]) = (grid, block);
    unsafe { cuLaunchKernel(function, x, y, z, a, b, c, shared, stream, record, extra) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(to: Out, graph: u64, _: u64) -> Result {
    call("cuGraphInstantiateWithFlags", |state| {
        let ops = state.graphs[&graph].clone();
        let handle = state.handle();
        state.graphs.insert(handle, ops);
        unsafe { *to = handle };
        0
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(_: u64, _: u64) -> Result {
    call("cuGraphUpload", |_| 0)
}
#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(graph: u64, stream: u64) -> Result {
    call("cuGraphLaunch", |state| {
        let ops = state.graphs[&graph].clone();
        ops.into_iter().map(|op| state.put(stream, op)).find(|&code| code != 0).unwrap_or(0)
    })
}
#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: u64) -> Result {
    call("cuGraphDestroy", |state| state.graphs.remove(&graph).map_or_else(|| end("no such graph"), |_| 0))
}
#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(graph: u64) -> Result {
    call("cuGraphExecDestroy", |state| {
        state.graphs.remove(&graph).map_or_else(|| end("no such graph"), |_| 0)
    })
}
