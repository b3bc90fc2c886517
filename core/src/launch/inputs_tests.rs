//! The block that the host writes, word by word.

use super::*;

const SHAPE: Shape = Shape { rows: 4, outputs: 2, groups: 1 };
/// Six pages for the program, and one for rows that only fill up.
const LIMIT_PAGES: u32 = 6;

fn memory(pages: u32) -> Memory {
    Memory {
        images: vec![],
        page_len_bytes: vec![],
        pages,
        arena_len_bytes: 0,
        inputs_len_bytes: 0,
        largest: SHAPE,
    }
}

/// Two sequences, the second one first and at its page 1; the table of sequence 1 is nobody's.
const BATCH: Batch<'static> = Batch {
    tokens: &[70, 71, 72],
    positions: &[64, 3, 65],
    sequences: &[2, 0, 2],
    page_tables: &[&[4], &[], &[5, 3, 1]],
    outputs: &[2],
    values: &[],
};

fn fill(layout: InputLayout, batch: &Batch<'_>, pages: u32) -> (TileCounts, Vec<u8>) {
    // What a run before left there.
    let mut bytes = vec![0xEE; 7];
    let tiles = layout.fill(batch, 1, &memory(pages), LIMIT_PAGES, &mut bytes);
    assert_eq!(bytes.len() as u64, layout.len_bytes());
    (tiles, bytes)
}

fn words(layout: InputLayout, input: Input, bytes: &[u8]) -> Vec<u32> {
    let bytes = &bytes[layout.offset_bytes(input) as usize..][..4 * layout.len(input) as usize];
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

#[test]
fn inputs_lie_one_after_the_other_at_aligned_places() {
    let shape = Shape { rows: 96, outputs: 8, groups: 2 };
    let layout = InputLayout { shape, rows_a_tile: 16, values_a_row: 0 };
    let lens = Input::ALL.map(|input| layout.len(input));
    assert_eq!(lens, [96, 96, 96, 192, 8, 8, 8, 16, 8, 96 * 32, 8, 0]);
    let offsets = Input::ALL.map(|input| layout.offset_bytes(input));
    assert_eq!(offsets, [0, 512, 1024, 1536, 2304, 2560, 2816, 3072, 3328, 3584, 15872, 16128]);
    assert_eq!(layout.len_bytes(), 3584 + 4 * 96 * 32 + 256);
}

#[test]
fn a_batch_is_filled_up_to_its_shape() {
    let layout = InputLayout { shape: SHAPE, rows_a_tile: 0, values_a_row: 0 };
    let (tiles, bytes) = fill(layout, &BATCH, LIMIT_PAGES + 1);
    let of = |input| words(layout, input, &bytes);
    assert_eq!(tiles, TileCounts::default());
    assert_eq!(of(Input::Tokens(Rows::All)), [70, 71, 72, 0]);
    assert_eq!(of(Input::Positions(Rows::All)), [64, 3, 65, 0]);
    assert_eq!(of(Input::Sequences(Rows::All)), [0, 1, 0, 2], "sequences are numbered as they come");
    let pages = of(Input::Pages);
    let lists: Vec<_> = pages.chunks(16).map(|list| &list[..3]).collect();
    // What a sequence does not reach is not there: page 1 is past its last row.
    assert_eq!(lists, [&[5, 3, 0], &[4, 0, 0], &[LIMIT_PAGES, 0, 0], &[0; 3]]);
}

#[test]
fn output_rows_come_alone_too() {
    let layout = InputLayout { shape: SHAPE, rows_a_tile: 2, values_a_row: 0 };
    let (tiles, bytes) = fill(layout, &BATCH, LIMIT_PAGES + 1);
    let of = |input| words(layout, input, &bytes);
    assert_eq!(of(Input::Outputs), [2, 0], "a missing output row is row 0");
    assert_eq!(of(Input::Tokens(Rows::Outputs)), [72, 70]);
    assert_eq!(of(Input::Positions(Rows::Outputs)), [65, 64]);
    assert_eq!(of(Input::Sequences(Rows::Outputs)), [0, 0]);
    assert_eq!(tiles, TileCounts { all: 4, outputs: 2 });
    assert_eq!([Rows::All, Rows::Outputs].map(|rows| tiles.of(rows)), [4, 2]);
    assert_eq!(of(Input::Tiles(Rows::Outputs)), [0, 1, 1, 1], "what repeats row 0 goes back");
    assert_eq!(of(Input::Tiles(Rows::All)), [2, 1, 0, 1, 1, 1, 3, 1]);
}

#[test]
fn a_batch_that_fills_its_shape_needs_no_page_of_its_own() {
    let layout =
        InputLayout { shape: Shape { rows: 3, outputs: 1, ..SHAPE }, rows_a_tile: 0, values_a_row: 0 };
    let (_, bytes) = fill(layout, &BATCH, LIMIT_PAGES);
    assert_eq!(words(layout, Input::Sequences(Rows::All), &bytes), [0, 1, 0]);
    assert_eq!(words(layout, Input::Outputs, &bytes), [2]);
}

#[test]
#[should_panic(expected = "1 pages for rows that only fill up")]
fn rows_that_fill_up_never_share_a_page_with_the_batch() {
    fill(InputLayout { shape: SHAPE, rows_a_tile: 0, values_a_row: 0 }, &BATCH, LIMIT_PAGES);
}

/// Tiles of rows of sequences and positions, in their order.
fn tiles(rows_a_tile: u32, sequences: &[u32], positions: &[u32], rows: u32) -> Vec<[u32; 2]> {
    let layout = InputLayout { shape: Shape { rows, outputs: 0, groups: 1 }, rows_a_tile, values_a_row: 0 };
    let (tokens, table): (Vec<u32>, _) = (vec![0; positions.len()], [0; 16]);
    let page_tables = [&table[..]; 3];
    let batch =
        Batch { tokens: &tokens, positions, sequences, page_tables: &page_tables, outputs: &[], values: &[] };
    let (tiles, bytes) = fill(layout, &batch, LIMIT_PAGES + 1);
    assert_eq!(tiles.outputs, 0);
    let words = words(layout, Input::Tiles(Rows::All), &bytes);
    words.as_chunks().0[..tiles.all as usize].to_vec()
}

#[test]
fn tiles_are_runs_of_a_sequence_at_ascending_positions() {
    assert_eq!(tiles(8, &[0; 5], &[0, 1, 2, 3, 4], 5), [[0, 5]]);
    assert_eq!(tiles(2, &[0; 5], &[0, 1, 2, 3, 4], 5), [[4, 1], [2, 2], [0, 2]], "those that see most first");
    assert_eq!(tiles(8, &[0, 0, 1, 1], &[0, 1, 2, 3], 4), [[2, 2], [0, 2]], "another sequence");
    assert_eq!(tiles(8, &[0; 4], &[5, 7, 6, 8], 4), [[2, 2], [0, 2]], "going back");
    assert_eq!(tiles(1, &[0, 1], &[9, 9], 2), [[0, 1], [1, 1]], "of equal ones the first is first");
}

#[test]
fn rows_that_fill_up_are_tiles_too() {
    assert_eq!(tiles(8, &[0], &[40], 4), [[0, 1], [1, 3]]);
}

/// Rows that only fill up are zeros, and what is there of others is what enters the arithmetic.
#[test]
fn values_of_the_host_come_last() {
    let layout = InputLayout { shape: SHAPE, rows_a_tile: 0, values_a_row: 2 };
    let batch = Batch { values: &[1.0, -2.0, f32::from_bits(3), 0.5, 4.0, -0.0], ..BATCH };
    let (_, bytes) = fill(layout, &batch, LIMIT_PAGES + 1);
    let found = words(layout, Input::Values, &bytes);
    assert_eq!(found, [1.0, -2.0, 0.0, 0.5, 4.0, -0.0, 0.0, 0.0].map(f32::to_bits));
    assert_eq!(layout.offset_bytes(Input::Values) % ALIGN_BYTES, 0);
    assert_eq!(layout.len_bytes() - layout.offset_bytes(Input::Values), ALIGN_BYTES);
}
