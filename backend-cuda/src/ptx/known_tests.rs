use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::op::Family;
use unisonic_core::kir::{Op, Scalar, Type, parse, verify};

use super::super::registers::{File, Register, Word};
use super::known;

const A: Word = Word::Register(Register { file: File::Scalar, number: 0 });

const EDGES: [u32; 20] = [
    0,
    1,
    2,
    3,
    7,
    8,
    30,
    31,
    32,
    33,
    255,
    0x1234_5678,
    0x7FFF_FFFF,
    0x8000_0000,
    0x8000_0001,
    0xC000_0000,
    0x9E37_79B9,
    0xF0F0_F0F0,
    0xFFFF_FFFE,
    u32::MAX,
];

/// Operations whose results are computed if their operands are known.
const COMPUTED: [Op; 12] = [
    Op::IAdd,
    Op::ISub,
    Op::IMul,
    Op::UDiv,
    Op::URem,
    Op::IMin,
    Op::IMax,
    Op::And,
    Op::Or,
    Op::Xor,
    Op::Shl,
    Op::Shr,
];

/// Operations of two words, with the scalars of operands and result.
fn operations() -> Vec<(Op, [Scalar; 2], Scalar)> {
    let mut operations = Vec::new();
    for &op in Op::ALL.iter().filter(|op| op.row().family == Family::Alu) {
        for (a, b) in Scalar::ALL.into_iter().flat_map(|a| Scalar::ALL.map(|b| (a, b))) {
            if let Ok(Some(result)) = op.row().check(&[Type::one(a), Type::one(b)], None) {
                operations.push((op, [a, b], result.scalar));
            }
        }
    }
    operations
}

fn words(scalar: Scalar) -> &'static [u32] {
    if scalar == Scalar::Bool { &[0, 1] } else { &EDGES }
}

fn has_result(op: Op, b: u32) -> bool {
    match op {
        Op::UDiv | Op::URem => b != 0,
        Op::Shl | Op::Shr => b < 32,
        _ => true,
    }
}

/// What the interpreter makes of pairs of words.
fn interpreted(op: Op, scalars: [Scalar; 2], result: Scalar, pairs: &[(u32, u32)]) -> Vec<u32> {
    // Memory holds no bools.
    let stored = |scalar: Scalar| if scalar == Scalar::Bool { Scalar::U32 } else { scalar };
    let mut text = "kernel one workgroup 1 {\n".to_owned();
    let [a, b, y] = [scalars[0], scalars[1], result].map(|scalar| stored(scalar).name());
    text += &format!("read a: {a}\nread b: {b}\nwrite y: {y}\n");
    text += "%i = group_id\n%zero = const.u32 0\n%one = const.u32 1\n";
    for (name, scalar) in [("a", scalars[0]), ("b", scalars[1])] {
        text += &match scalar {
            Scalar::Bool => format!("%w{name} = load.u32 {name}[%i]\n%{name} = ilt %zero, %w{name}\n"),
            _ => format!("%{name} = load.{} {name}[%i]\n", scalar.name()),
        };
    }
    text += &format!("%y = {} %a, %b\n", op.row().mnemonic);
    text += match result {
        Scalar::Bool => "%word = select %y, %one, %zero\nstore y[%i], %word\n}",
        _ => "store y[%i], %y\n}",
    };
    let kernel = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(verify(&kernel), [], "{text}");
    let column =
        |word: fn(&(u32, u32)) -> u32| pairs.iter().flat_map(|pair| word(pair).to_le_bytes()).collect();
    let buffers = vec![column(|pair| pair.0), column(|pair| pair.1), column(|_| 0)];
    let mut launch = Launch { groups: pairs.len() as u32, params: vec![], buffers, fuel: u64::MAX };
    run(&kernel, &mut launch).unwrap_or_else(|trap| panic!("{trap}\n{text}"));
    launch.buffers[2].chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Of all operations and all types, what the interpreter computes; nothing where it has no result.
#[test]
fn constants_are_what_the_interpreter_computes() {
    for (op, scalars, result) in operations() {
        let pairs = words(scalars[0]).iter().flat_map(|&a| words(scalars[1]).iter().map(move |&b| (a, b)));
        let (pairs, others): (Vec<_>, Vec<_>) = pairs.partition(|&(_, b)| has_result(op, b));
        let of = |(a, b)| known(op, scalars[0], &[Word::Constant(a), Word::Constant(b)]);
        for (&pair, computed) in pairs.iter().zip(interpreted(op, scalars, result, &pairs)) {
            let expected = COMPUTED.contains(&op).then_some(Word::Constant(computed));
            assert_eq!(of(pair), expected, "{op:?} {scalars:?} {pair:x?}");
        }
        for pair in others {
            assert_eq!(of(pair), None, "{op:?} {pair:x?}");
        }
    }
}

/// With one operand that is known: what is said is what the interpreter computes, whatever the other operand
/// is.
#[test]
fn one_constant_says_what_holds_of_every_other_operand() {
    let mut said = String::new();
    for (op, scalars, result) in operations() {
        let mut of_op = Vec::new();
        for is_left in [false, true] {
            for &constant in words(scalars[usize::from(!is_left)]) {
                let pair = |x: Word| {
                    if is_left { [Word::Constant(constant), x] } else { [x, Word::Constant(constant)] }
                };
                let Some(known) = known(op, scalars[0], &pair(A)) else { continue };
                let others = words(scalars[usize::from(is_left)]).iter();
                let pairs = others.map(|&x| if is_left { (constant, x) } else { (x, constant) });
                let pairs: Vec<_> = pairs.filter(|&(_, b)| has_result(op, b)).collect();
                for (&(a, b), computed) in pairs.iter().zip(interpreted(op, scalars, result, &pairs)) {
                    let expected = match known {
                        Word::Constant(word) => word,
                        Word::Register(_) if is_left => b,
                        Word::Register(_) => a,
                    };
                    assert_eq!(computed, expected, "{op:?} {scalars:?} {a:x} {b:x}");
                }
                let text = |word: Word| match word {
                    Word::Constant(word) => format!("{word:x}"),
                    Word::Register(_) => "x".to_owned(),
                };
                of_op.push(format!("{} = {}", pair(A).map(text).join(" "), text(known)));
            }
        }
        if !of_op.is_empty() {
            said += &format!("{} {}: {}\n", op.row().mnemonic, scalars[0].name(), of_op.join(", "));
        }
    }
    assert_eq!(said, SAID);
}

/// All that is said of one constant.
const SAID: &str = "\
iadd u32: x 0 = x, 0 x = x
iadd i32: x 0 = x, 0 x = x
isub u32: x 0 = x
isub i32: x 0 = x
imul u32: x 0 = 0, x 1 = x, 0 x = 0, 1 x = x
imul i32: x 0 = 0, x 1 = x, 0 x = 0, 1 x = x
udiv u32: x 1 = x
urem u32: x 1 = 0
imin u32: x 0 = 0, 0 x = 0
imax u32: x 0 = x, 0 x = x
and bool: x 0 = 0, 0 x = 0
and u32: x 0 = 0, x ffffffff = x, 0 x = 0, ffffffff x = x
and i32: x 0 = 0, x ffffffff = x, 0 x = 0, ffffffff x = x
and i8x4: x 0 = 0, x ffffffff = x, 0 x = 0, ffffffff x = x
and u8x4: x 0 = 0, x ffffffff = x, 0 x = 0, ffffffff x = x
or bool: x 0 = x, 0 x = x
or u32: x 0 = x, 0 x = x
or i32: x 0 = x, 0 x = x
or i8x4: x 0 = x, 0 x = x
or u8x4: x 0 = x, 0 x = x
xor bool: x 0 = x, 0 x = x
xor u32: x 0 = x, 0 x = x
xor i32: x 0 = x, 0 x = x
xor i8x4: x 0 = x, 0 x = x
xor u8x4: x 0 = x, 0 x = x
shl u32: x 0 = x
shl i32: x 0 = x
shr u32: x 0 = x
shr i32: x 0 = x
";
