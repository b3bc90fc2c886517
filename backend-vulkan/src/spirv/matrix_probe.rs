//! Asks a device which component of a cooperative matrix is which element, once for a device and driver.
//!
//! A launch of one workgroup ([`kernel`] says its objects, [`words`] is its code, and it needs a full
//! subgroup of 32) loads an A, a B and an accumulator whose elements are their own numbers, and writes their
//! components. [`read`] compares these with the lane map of `mma32` (`core::kir::interp`, `matrix.rs`).

use spirv::{CooperativeMatrixLayout, GlslStd450Op, MemoryAccess, Op, StorageClass, Word};
use unisonic_core::kir::build::kernel as build;
use unisonic_core::kir::kernel::ObjectId;
use unisonic_core::kir::{Kernel, Scalar, Type};

use super::Emitter;
use super::matrix::Matrix;
use super::target::{MatrixOrder, Target};

/// Bytes that a launch writes.
pub const OUTPUT_LEN_BYTES: usize = LANES * RECORD_WORDS * 4;

const LANES: usize = 32;
/// Words that an invocation writes: how many components A, B and C have, then a word unused, then the
/// components.
const RECORD_WORDS: usize = 32;
const A_AT: usize = 4;
const B_AT: usize = A_AT + A_LEN;
const C_AT: usize = B_AT + B_LEN;
const A_LEN: usize = 16;
const B_LEN: usize = 8;
const C_LEN: usize = 4;
/// An element's number in a byte is this many bits, and what is above them in another.
const LOW_BITS: u32 = 7;

/// The launch's objects: one buffer of [`OUTPUT_LEN_BYTES`].
pub fn kernel() -> Kernel {
    build("matrix_probe", LANES as u32, |k| {
        k.write("components", Scalar::U32);
    })
}

/// The module. The device has s8 x s8 + s32 -> s32 of 16x8x32 at subgroup scope.
pub fn words() -> Vec<u32> {
    let (kernel, target) = (kernel(), Target { subgroup_size: LANES as u32, ..NOTHING });
    let mut emitter = Emitter::new(&kernel, &target);
    emitter.probe();
    emitter.finish()
}

const NOTHING: Target = Target {
    subgroup_size: 1,
    integer_dot: false,
    rounds_to_even: false,
    preserves_signed_zeros: false,
    max_shared_len_bytes: 0,
    max_pushed_len_bytes: 0,
    knows_constants: true,
    matrix: None,
};

/// What the launch wrote; none if matrices are not made of the words of `mma32`, or it is not all there.
pub fn read(output: &[u8]) -> Option<MatrixOrder> {
    let words: Vec<u32> =
        output.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    if words.len() != LANES * RECORD_WORDS {
        return None;
    }
    let lanes: Vec<&[u32]> = words.chunks_exact(RECORD_WORDS).collect();
    // A word by its first byte, as the first invocation has it.
    let word_of = |first: u32| (0..4_u8).find(|&word| a_element(0, word.into(), 0) == first);
    let order = [0, 1, 2, 3].map(|components| word_of(lanes[0][A_AT + 4 * components]).unwrap_or(u8::MAX));
    let found = MatrixOrder::new(order)?;
    let is_as_expected = lanes.iter().zip(0..).all(|(record, lane)| {
        record[..3] == LENS && {
            let a = record[A_AT..B_AT].iter().zip(0..).all(|(&element, component)| {
                element == a_element(lane, order[component as usize / 4].into(), component % 4)
            });
            let b = record[B_AT..C_AT]
                .iter()
                .zip(0..)
                .all(|(&element, component)| element == b_element(lane, component / 4, component % 4));
            let c = record[C_AT..].iter().zip(0..).all(|(&element, word)| element == c_element(lane, word));
            a && b && c
        }
    });
    is_as_expected.then_some(found)
}

const LENS: [u32; 3] = [A_LEN as u32, B_LEN as u32, C_LEN as u32];

/// Number of the element, row by row, that is a byte of a word of A.
fn a_element(lane: u32, word: u32, byte: u32) -> u32 {
    let (g, t) = (lane / 4, lane % 4);
    (g + word % 2 * 8) * 32 + word / 2 * 16 + 4 * t + byte
}

/// The same of B, column by column.
fn b_element(lane: u32, word: u32, byte: u32) -> u32 {
    let (g, t) = (lane / 4, lane % 4);
    g * 32 + word * 16 + 4 * t + byte
}

/// The same of the accumulator, row by row.
fn c_element(lane: u32, word: u32) -> u32 {
    let (g, t) = (lane / 4, lane % 4);
    (g + word / 2 * 8) * 8 + 2 * t + word % 2
}

/// A matrix in a variable, so that its components have numbers at run time.
struct Held {
    variable: Word,
    matrix: Matrix,
}

impl Emitter<'_> {
    fn probe(&mut self) {
        let entry = self.module.id();
        self.module.begin_block(entry);
        // Variables come before all else.
        let [a, a_high] = [(); 2].map(|()| self.held(Matrix::A));
        let [b, b_high] = [(); 2].map(|()| self.held(Matrix::B));
        let c = self.held(Matrix::C);

        let (u32_, lane) = (self.u32_ty(), self.subgroup_lane());
        let array = self.shared_array(LANES as u32);
        let constant = |emitter: &mut Self, word| emitter.u32_constant(word);
        // Element 16*lane + i of bytes, i = 0 to 15, as four words.
        let (sixteen, low) = (constant(self, 16), constant(self, (1 << LOW_BITS) - 1));
        let in_each_byte = constant(self, 0x0101_0101);
        let number = self.push(Op::IMul, u32_, &[lane, sixteen]);
        let bytes = self.push(Op::BitwiseAnd, u32_, &[number, low]);
        let bytes = self.push(Op::IMul, u32_, &[bytes, in_each_byte]);
        let words = [0x0302_0100, 0x0706_0504, 0x0B0A_0908, 0x0F0E_0D0C].map(|below| {
            let below = constant(self, below);
            self.push(Op::IAdd, u32_, &[bytes, below])
        });
        self.share(array, lane, words);
        self.hold(&a, array);
        self.hold(&b, array);

        let shift = constant(self, LOW_BITS);
        let bytes = self.push(Op::ShiftRightLogical, u32_, &[number, shift]);
        let bytes = self.push(Op::IMul, u32_, &[bytes, in_each_byte]);
        self.share(array, lane, [bytes; 4]);
        self.hold(&a_high, array);
        self.hold(&b_high, array);

        let four = constant(self, 4);
        let number = self.push(Op::IMul, u32_, &[lane, four]);
        let words = [0, 1, 2, 3].map(|below| {
            let below = constant(self, below);
            self.push(Op::IAdd, u32_, &[number, below])
        });
        self.share(array, lane, words);
        self.hold(&c, array);

        self.write_components(0, A_AT, A_LEN, &a, Some(&a_high));
        self.write_components(1, B_AT, B_LEN, &b, Some(&b_high));
        self.write_components(2, C_AT, C_LEN, &c, None);
        self.module.push_effect(Op::Return, &[]);
    }

    fn held(&mut self, matrix: Matrix) -> Held {
        let ty = self.matrix_ty(matrix);
        let pointer = self.module.pointer(StorageClass::Function, ty);
        let variable = self.module.push_first(Op::Variable, pointer, &[StorageClass::Function as u32]);
        Held { variable, matrix }
    }

    /// Writes 16 bytes of an invocation to where matrices are loaded from.
    fn share(&mut self, array: Word, lane: Word, words: [Word; 4]) {
        let vec4 = self.spirv_ty(Type { scalar: Scalar::U32, width: 4 });
        let pointer = self.module.pointer(StorageClass::Workgroup, vec4);
        self.subgroup_barrier();
        let pointer = self.push(Op::AccessChain, pointer, &[array, lane]);
        let vector = self.push(Op::CompositeConstruct, vec4, &words);
        self.module.push_effect(Op::Store, &[pointer, vector, MemoryAccess::NON_PRIVATE_POINTER.bits()]);
        self.subgroup_barrier();
    }

    /// Loads a matrix: rows of A and C, columns of B, 32 bytes each.
    fn hold(&mut self, held: &Held, array: Word) {
        let vec4 = self.spirv_ty(Type { scalar: Scalar::U32, width: 4 });
        let (pointer, first) = (self.module.pointer(StorageClass::Workgroup, vec4), self.u32_constant(0));
        let pointer = self.push(Op::AccessChain, pointer, &[array, first]);
        let layout = match held.matrix {
            Matrix::A | Matrix::C => CooperativeMatrixLayout::RowMajorKHR,
            Matrix::B => CooperativeMatrixLayout::ColumnMajorKHR,
        };
        let matrix = self.load_matrix(held.matrix, pointer, layout, 2);
        self.module.push_effect(Op::Store, &[held.variable, matrix]);
    }

    /// Writes how many components a matrix has, and the elements that the first of them are. Where there are
    /// fewer, component 0 stands for what is missing.
    fn write_components(&mut self, number: u32, at: usize, len: usize, low: &Held, high: Option<&Held>) {
        let (ty, u32_) = (self.matrix_ty(low.matrix), self.u32_ty());
        let has = self.push(Op::CooperativeMatrixLengthKHR, u32_, &[ty]);
        self.write_word(number, has);
        let one = self.u32_constant(1);
        let last = self.push(Op::ISub, u32_, &[has, one]);
        for component in 0..len as u32 {
            let index = self.u32_constant(component);
            let index = self.extended(GlslStd450Op::UMin, u32_, &[index, last]);
            let mut element = self.component(low, index);
            if let Some(high) = high {
                let (shift, high) = (self.u32_constant(LOW_BITS), self.component(high, index));
                let high = self.push(Op::ShiftLeftLogical, u32_, &[high, shift]);
                element = self.push(Op::BitwiseOr, u32_, &[element, high]);
            }
            self.write_word(at as u32 + component, element);
        }
    }

    /// A component, none of which is negative, as u32.
    fn component(&mut self, held: &Held, index: Word) -> Word {
        let u32_ = self.u32_ty();
        let ty = match held.matrix {
            Matrix::A | Matrix::B => self.byte_ty(true),
            Matrix::C => self.spirv_ty(Scalar::I32.into()),
        };
        let pointer = self.module.pointer(StorageClass::Function, ty);
        let pointer = self.push(Op::AccessChain, pointer, &[held.variable, index]);
        let component = self.push(Op::Load, ty, &[pointer]);
        let op = if matches!(held.matrix, Matrix::C) { Op::Bitcast } else { Op::UConvert };
        self.push(op, u32_, &[component])
    }

    /// Writes a word of the invocation's record.
    fn write_word(&mut self, number: u32, word: Word) {
        let (base, u32_, lane) = (self.pointer(ObjectId(0), 1), self.u32_ty(), self.subgroup_lane());
        let numbers = [0, RECORD_WORDS as u32, number];
        let [first, len, number] = numbers.map(|number| self.u32_constant(number));
        let index = self.push(Op::IMul, u32_, &[lane, len]);
        let index = self.push(Op::IAdd, u32_, &[index, number]);
        let pointer = self.module.pointer(StorageClass::PhysicalStorageBuffer, u32_);
        let pointer = self.push(Op::AccessChain, pointer, &[base, first, index]);
        let access = MemoryAccess::ALIGNED | MemoryAccess::NON_PRIVATE_POINTER;
        self.module.push_effect(Op::Store, &[pointer, word, access.bits(), 4]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device writes whose A has the words in an order.
    fn output(order: [u32; 4]) -> Vec<u32> {
        let of_lane = |lane: u32| {
            let a =
                order.into_iter().flat_map(move |word| (0..4).map(move |byte| a_element(lane, word, byte)));
            let b = (0..2).flat_map(move |word| (0..4).map(move |byte| b_element(lane, word, byte)));
            let c = (0..4).map(move |word| c_element(lane, word));
            LENS.into_iter().chain([0xDEAD_BEEF]).chain(a).chain(b).chain(c)
        };
        (0..LANES as u32).flat_map(of_lane).collect()
    }

    fn read_words(words: &[u32]) -> Option<MatrixOrder> {
        read(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Written down from the lane map of PTX `mma.m16n8k32`, for the invocation with g = 3, t = 1.
    #[test]
    fn elements_are_those_of_the_lane_map() {
        let row = |row: u32, k: u32| row * 32 + k;
        let a = [0, 1, 2, 3].map(|word| a_element(13, word, 2));
        assert_eq!(a, [row(3, 6), row(11, 6), row(3, 22), row(11, 22)]);
        assert_eq!([0, 1].map(|word| b_element(13, word, 2)), [row(3, 6), row(3, 22)]);
        assert_eq!([0, 1, 2, 3].map(|word| c_element(13, word)), [26, 27, 90, 91]);
        assert_eq!(OUTPUT_LEN_BYTES, 4096);
    }

    #[test]
    fn orders_of_a_are_found() {
        for order in [[0, 1, 2, 3], [0, 2, 1, 3], [3, 1, 0, 2]] {
            let expected = MatrixOrder::new(order.map(|word| word as u8));
            assert!(expected.is_some());
            assert_eq!(read_words(&output(order)), expected);
        }
    }

    /// Every byte that the device writes counts, but for those of the unused word.
    #[test]
    fn other_maps_are_refused() {
        let words = output([0, 2, 1, 3]);
        for number in (0..words.len()).filter(|number| number % RECORD_WORDS != 3) {
            for byte in 0..4 {
                let mut wrong = words.clone();
                wrong[number] ^= 1 << (8 * byte);
                assert_eq!(read_words(&wrong), None, "word {number}, byte {byte}");
            }
        }
        assert_eq!(read_words(&words[1..]), None);
        assert_eq!(read_words(&[]), None);
        assert_eq!(read_words(&output([0, 0, 1, 3])), None, "a word is missing");
    }

    #[test]
    fn columns_of_the_accumulator_are_not_rows() {
        let mut words = output([0, 1, 2, 3]);
        for record in words.chunks_exact_mut(RECORD_WORDS) {
            record[C_AT..].swap(1, 2);
        }
        assert_eq!(read_words(&words), None);
    }

    #[test]
    fn orders_have_all_words() {
        assert_eq!(MatrixOrder::new([0, 1, 2, 2]), None);
        assert_eq!(MatrixOrder::new([0, 1, 2, 4]), None);
        assert_eq!(MatrixOrder::new([0, 2, 1, 3]).map(MatrixOrder::words), Some([0, 2, 1, 3]));
    }
}
