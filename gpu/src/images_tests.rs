//! What lies in device memory after loading, compared with what is packed in one go.

use std::sync::Mutex;

use super::*;
use crate::interpreter::InterpreterMachine;
use crate::machine::Machine;
use crate::shared::SharedMachine;
use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::launch::{Hardware, Memory, Place, Shape};
use unisonic_core::plan::{BufferId, Encoding, FloatSource, MemoryWeights, RopeStyle, RopeTableId};
use unisonic_core::planes::weight::WeightFormat;

/// More than a part, and no whole group.
const ROWS: u32 = 5003;
const COLS: u32 = 1024;

fn plan() -> Plan {
    let weight = |tensor: &str, encoding, rows, cols| Weight {
        tensor: tensor.into(),
        encoding,
        rows,
        cols,
        part: None,
    };
    Plan {
        architecture: "test".into(),
        vocab_len: 1,
        context_len: 1,
        weights: vec![
            weight("blocks", Encoding::Block(BlockFormat::Q8_0), ROWS, COLS),
            weight("floats", Encoding::W16(FloatSource::F16), 35, 40),
            weight("vector", Encoding::F32(FloatSource::F32), 1, 5),
        ],
        buffers: vec![],
        rope_tables: vec![RopeTable {
            style: RopeStyle::HalfSplit,
            inverse_frequencies: vec![1.0, 0.25],
            scale: 1.0,
        }],
        kv_layers: vec![],
        input: None,
        steps: vec![],
        logits: BufferId(0),
    }
}

fn source(plan: &Plan) -> MemoryWeights {
    let tensors = plan.weights.iter().map(|weight| {
        let bytes: Vec<u8> = match weight.encoding {
            // A scale of about 1, and all kinds of integers.
            Encoding::Block(_) => (0..weight.len_bytes() as usize)
                .map(|i| if i % 34 == 1 { 0x3C } else { (i * i / 7) as u8 })
                .collect(),
            Encoding::W16(_) => (0..35 * 40_u16).flat_map(|i| (0x3C00 + i).to_le_bytes()).collect(),
            Encoding::F32(_) | Encoding::Router(_) => {
                (0..5_u8).flat_map(|i| f32::from(i).to_le_bytes()).collect()
            }
        };
        (weight.tensor.clone(), bytes)
    });
    MemoryWeights(tensors.collect())
}

fn layout(weight: &Weight) -> WeightLayout {
    let format = match weight.encoding {
        Encoding::Block(format) => WeightFormat::Block(format),
        Encoding::W16(_) | Encoding::F32(_) | Encoding::Router(_) => WeightFormat::W16,
    };
    WeightLayout::new(format, weight.rows as usize, weight.cols as usize).expect("a test may panic")
}

fn images(plan: &Plan) -> Vec<Image> {
    let planes = |id: u32| Image::Planes { weight: WeightId(id), layout: layout(&plan.weights[id as usize]) };
    vec![
        Image::Bytes { weight: WeightId(0) },
        planes(0),
        planes(1),
        Image::Bytes { weight: WeightId(1) },
        Image::Vector { weight: WeightId(2) },
        Image::Bytes { weight: WeightId(2) },
        Image::Rope { table: RopeTableId(0), positions: 3 },
        Image::Words(vec![7, u32::MAX]),
    ]
}

struct Loaded {
    result: Result<(), String>,
    progress: Vec<(u64, u64)>,
    images: Vec<Vec<u8>>,
}

fn load_from(plan: &Plan, source: &MemoryWeights) -> Loaded {
    let images = images(plan);
    let memory = Memory {
        page_len_bytes: vec![],
        pages: 0,
        arena_len_bytes: 0,
        inputs_len_bytes: 0,
        largest: Shape { rows: 1, outputs: 1, groups: 1 },
        images,
    };
    let machine = SharedMachine::new(InterpreterMachine { hardware: Hardware::LEAST });
    let areas = Areas::allocate(&machine, plan, &memory).expect("a test may panic");
    let progress = Mutex::new(vec![]);
    let report = |now: LoadProgress| {
        progress.lock().expect("a test may panic").push((now.loaded_bytes, now.total_bytes))
    };
    let result = load(plan, source, &memory.images, &areas, &report).map_err(|error| error.to_string());
    let bytes = (0..).zip(&memory.images).map(|(index, image)| {
        let len_bytes = image.len_bytes(plan);
        read(&areas, &Place { area: Area::Image(index), offset_bytes: 0, len_bytes })
    });
    Loaded { result, images: bytes.collect(), progress: progress.into_inner().expect("a test may panic") }
}

/// A run without launches gives back what lies at a place.
fn read(areas: &Areas<InterpreterMachine>, place: &Place) -> Vec<u8> {
    let machine = InterpreterMachine { hardware: Hardware::LEAST };
    let empty = Place { len_bytes: 0, ..*place };
    let work = crate::machine::Work {
        dispatches: vec![],
        inputs: areas.span(&empty),
        results: vec![areas.span(place)],
    };
    let mut recording = machine.record(&work).expect("a test may panic");
    let mut bytes = vec![0; place.len_bytes as usize];
    machine.run(&mut recording, &[], Default::default(), &mut bytes).expect("a test may panic");
    bytes
}

#[test]
fn images_are_as_packed_in_one_go() {
    let plan = plan();
    let source = source(&plan);
    let loaded = load_from(&plan, &source);
    assert_eq!(loaded.result, Ok(()));
    let packed = |id: usize| {
        let rows = load_weight(&source, &plan.weights[id]).expect("a test may panic");
        let layout = layout(&plan.weights[id]);
        words(&pack(layout, layout.groups() as usize, &rows))
    };
    let [blocks, floats, vector] = ["blocks", "floats", "vector"].map(|name| source.0[name].clone());
    let mut rope = vec![];
    for position in 0..3 {
        let (mut cosines, mut sines) = ([0.0; 2], [0.0; 2]);
        rope::table_row(&[1.0, 0.25], 1.0, position, &mut cosines, &mut sines);
        rope.extend([cosines, sines].concat().iter().flat_map(|value| value.to_le_bytes()));
    }
    let expected =
        [blocks, packed(0), packed(1), floats, vector.clone(), vector, rope, words(&[7, u32::MAX])];
    for (index, (found, expected)) in loaded.images.iter().zip(&expected).enumerate() {
        assert!(found == expected, "image {index}");
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn progress_counts_each_tensor_once() {
    let plan = plan();
    let progress = load_from(&plan, &source(&plan)).progress;
    let total = plan.weights.iter().map(Weight::len_bytes).sum();
    assert_eq!((progress[0], progress[progress.len() - 1]), ((0, total), (total, total)));
    // Zero, two parts of the blocks, and the others.
    assert_eq!(progress.len(), 5, "{progress:?}");
    assert!(progress.is_sorted(), "{progress:?}");
}

#[test]
fn bytes_that_no_kernel_takes_apart_are_checked_too() {
    let plan = plan();
    let mut source = source(&plan);
    let blocks = source.0.get_mut("blocks").expect("a test may panic");
    // The scales of rows 4500 and 5002 are NaN; both lie in the second part.
    for row in [4500, 5002] {
        let at = row * COLS as usize / 32 * 34;
        blocks[at..at + 2].copy_from_slice(&[0xFF, 0x7F]);
    }
    let error = load_from(&plan, &source).result.unwrap_err();
    assert!(error.starts_with("tensor `blocks`, row 4500,"), "{error}");
}

#[test]
fn parts_cover_an_image() {
    let plan = plan();
    let images = images(&plan);
    let parts = parts(&plan, &images);
    for (index, image) in images.iter().enumerate() {
        let (count, unit_len_bytes) = units(&plan, image);
        let mut end = 0;
        for part in parts.iter().filter(|part| part.image == index) {
            assert_eq!((part.units.start, part.offset_bytes), (end, u64::from(end) * unit_len_bytes));
            assert!(u64::from(part.units.end - part.units.start) * unit_len_bytes <= PART_LEN_BYTES);
            end = part.units.end;
        }
        assert_eq!((end, u64::from(end) * unit_len_bytes), (count, image.len_bytes(&plan)));
    }
}
