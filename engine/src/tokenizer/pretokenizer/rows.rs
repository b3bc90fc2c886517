//! One row for each pre-tokenizer: the names in `tokenizer.ggml.pre`, the passes, and what else goes with it.
//!
//! Names, regular expressions and flags are llama.cpp's (`llama-vocab.cpp`: `llm_tokenizer_bpe` and `tokenizer_pre`).
//! Where a comment gives an expression, `C` stands for `'s|'t|'re|'ve|'m|'ll|'d` in any case, and `…` for
//! `\s*[\r\n]+|\s+(?!\S)|\s+`.

use super::cased_letters::CASED_LETTERS;
use super::rule::{NO_BREAK_LETTER_NUMBER, Pass, Rule, run};
use super::set::{BLANK, BREAK, DIGIT, LETTER, LOWER, MARK, NUMBER, PUNCTUATION, SPACE, SYMBOL, Set, UPPER};
use super::{AddBos, Pre, Spelling};

use Pass::{Matches, TrailingSpace};
use Rule::{Breaks, CasedWord, Contraction, Spaces, SpacesButLast};

const fn plain(passes: &'static [Pass]) -> Pre {
    Pre { passes, spelling: Spelling::Bytes, ignore_merges: false, add_bos: AddBos::No }
}

const ANY_CASE: Rule = Contraction { any_case: true };
const NO_SPACE_LETTER_NUMBER: Set = SPACE.or(LETTER).or(NUMBER).not();
const SLASH_OR_BREAK: Set = BREAK.or(Set::ranges(&[('/', '/')]));

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
const GPT2: Pass = Matches(&[
    Contraction { any_case: false },
    run(LETTER).after(BLANK).rule(),
    run(NUMBER).after(BLANK).rule(),
    run(NO_SPACE_LETTER_NUMBER).after(BLANK).rule(),
    SpacesButLast,
    Spaces,
]);

/// `\p{N}`
const EACH_NUMBER: Pass = Matches(&[run(NUMBER).times(1, 1).rule()]);
/// `\p{N}{1,3}`
const THREE_NUMBERS: Pass = Matches(&[run(NUMBER).times(1, 3).rule()]);
/// `[0-9][0-9][0-9]`
const THREE_DIGITS: Pass = Matches(&[run(DIGIT).times(3, 3).rule()]);
/// `[\r\n]`
const EACH_BREAK: Pass = Matches(&[run(BREAK).times(1, 1).rule()]);
/// `[一-龥ࠀ-一가-퟿]+`
const DEEPSEEK_CJK: Pass =
    Matches(&[run(Set::ranges(&[('\u{800}', '\u{9fa5}'), ('\u{ac00}', '\u{d7ff}')])).rule()]);

/// `C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|…`
const LLAMA3: Pass = Matches(&[
    ANY_CASE,
    run(LETTER).after(NO_BREAK_LETTER_NUMBER).rule(),
    run(NUMBER).times(1, 3).rule(),
    run(NO_SPACE_LETTER_NUMBER).after(BLANK).then(BREAK).rule(),
    Breaks,
    SpacesButLast,
    Spaces,
]);

/// As `LLAMA3`, but `\p{N}` for `\p{N}{1,3}`.
const QWEN2: Pass = Matches(&[
    ANY_CASE,
    run(LETTER).after(NO_BREAK_LETTER_NUMBER).rule(),
    run(NUMBER).times(1, 1).rule(),
    run(NO_SPACE_LETTER_NUMBER).after(BLANK).then(BREAK).rule(),
    Breaks,
    SpacesButLast,
    Spaces,
]);

/// `C|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|…`
const QWEN35: Pass = Matches(&[
    ANY_CASE,
    run(LETTER.or(MARK)).after(NO_BREAK_LETTER_NUMBER).rule(),
    run(NUMBER).times(1, 1).rule(),
    run(SPACE.or(LETTER).or(MARK).or(NUMBER).not()).after(BLANK).then(BREAK).rule(),
    Breaks,
    SpacesButLast,
    Spaces,
]);

/// As `QWEN2`, but without line breaks in what is neither letter nor number.
const SEED_CODER: Pass = Matches(&[
    ANY_CASE,
    run(LETTER).after(NO_BREAK_LETTER_NUMBER).rule(),
    run(NUMBER).times(1, 1).rule(),
    run(NO_SPACE_LETTER_NUMBER).after(BLANK).rule(),
    Breaks,
    SpacesButLast,
    Spaces,
]);

/// Words that end where upper case begins, with their contraction:
/// `[^\r\n\p{L}\p{N}]?U*L+C?|[^\r\n\p{L}\p{N}]?U+L*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|…`
const GPT4O: Pass = Matches(&[
    CasedWord { lead: NO_BREAK_LETTER_NUMBER, contracted: true },
    run(NUMBER).times(1, 3).rule(),
    run(NO_SPACE_LETTER_NUMBER).after(BLANK).then(SLASH_OR_BREAK).rule(),
    Breaks,
    SpacesButLast,
    Spaces,
]);

/// As `GPT4O`, but no contraction, and `\p{N}` for `\p{N}{1,3}`.
const TEKKEN: Pass = Matches(&[
    CasedWord { lead: NO_BREAK_LETTER_NUMBER, contracted: false },
    run(NUMBER).times(1, 1).rule(),
    run(NO_SPACE_LETTER_NUMBER).after(BLANK).then(SLASH_OR_BREAK).rule(),
    Breaks,
    SpacesButLast,
    Spaces,
]);

/// `[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_``{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|…`
const DEEPSEEK_V3: Pass = Matches(&[
    run(LOWER.or(UPPER)).after_one(Set::ranges(&[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')])).rule(),
    run(LETTER.or(MARK)).after(BREAK.or(LETTER).or(PUNCTUATION).or(SYMBOL).not()).rule(),
    run(PUNCTUATION.or(SYMBOL)).after(BLANK).then(BREAK).rule(),
    Breaks,
    SpacesButLast,
    Spaces,
]);

/// ` ?[^(\s|.,!?…。，、।۔،)]+`
const BLOOM: Pass = Matches(&[run(SPACE
    .or(Set::ranges(&[
        ('(', ')'),
        ('|', '|'),
        ('.', '.'),
        (',', ','),
        ('!', '!'),
        ('?', '?'),
        ('…', '…'),
        ('。', '。'),
        ('，', '，'),
        ('、', '、'),
        ('।', '।'),
        ('۔', '۔'),
        ('،', '،'),
    ]))
    .not())
.after(BLANK)
.rule()]);

/// What a file without a name, or with the name `default`, is cut by.
pub const DEFAULT: Pre = plain(&[
    // `[\p{P}\$\+<=>\^~\|]+`
    Matches(&[run(PUNCTUATION.or(Set::ranges(&[
        ('$', '$'),
        ('+', '+'),
        ('<', '>'),
        ('^', '^'),
        ('|', '|'),
        ('~', '~'),
    ])))
    .rule()]),
    GPT2,
    // `\p{N}+`
    Matches(&[run(NUMBER).rule()]),
    THREE_DIGITS,
]);

/// Characters of the text itself, in stretches with and without line feeds: `[^\n]+|[\n]+`. It goes with
/// `tokenizer.ggml.model` = `gemma4` too. llama.cpp begins every prompt with BOS, even if the file says not to.
pub const GEMMA4: Pre = Pre {
    passes: &[Matches(&[run(Set::ranges(&[('\n', '\n')])).rule()])],
    spelling: Spelling::Characters,
    ignore_merges: false,
    add_bos: AddBos::Always,
};

/// Every name with its row.
pub const ROWS: &[(&[&str], Pre)] = &[
    (&["default"], DEFAULT),
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
        ],
        plain(&[GPT2]),
    ),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        plain(&[EACH_NUMBER, GPT2]),
    ),
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        Pre { ignore_merges: true, add_bos: AddBos::Yes, ..plain(&[LLAMA3]) },
    ),
    (&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], plain(&[LLAMA3])),
    (&["minicpm5"], Pre { ignore_merges: true, ..plain(&[THREE_NUMBERS, LLAMA3]) }),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
            "bailingmoe",
            "bailingmoe2",
            "llada-moe",
        ],
        plain(&[QWEN2]),
    ),
    (&["qwen35"], plain(&[QWEN35])),
    (&["seed-coder"], plain(&[SEED_CODER])),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], plain(&[GPT4O])),
    (&["tekken"], Pre { ignore_merges: true, add_bos: AddBos::Yes, ..plain(&[TEKKEN]) }),
    (
        &["falcon"],
        plain(&[
            // `[\p{P}\$\+<=>\^~\|`]+`
            Matches(&[run(PUNCTUATION.or(Set::ranges(&[
                ('$', '$'),
                ('+', '+'),
                ('<', '>'),
                ('^', '^'),
                ('`', '`'),
                ('|', '|'),
                ('~', '~'),
            ])))
            .rule()]),
            GPT2,
            THREE_DIGITS,
        ]),
    ),
    (
        &["deepseek-llm"],
        plain(&[
            EACH_BREAK,
            // `\s?[A-Za-zµÀ-ÖØ-…]+`
            Matches(&[run(Set::ranges(CASED_LETTERS)).after(SPACE).rule()]),
            // `\s?[!-/:-~！-／：-～‘-‟　-。]+`. As `:-~` has the letters, it cuts words at letters beyond ASCII.
            Matches(&[run(Set::ranges(&[
                ('!', '/'),
                (':', '~'),
                ('！', '／'),
                ('：', '～'),
                ('‘', '‟'),
                ('\u{3000}', '。'),
            ]))
            .after(SPACE)
            .rule()]),
            TrailingSpace,
            DEEPSEEK_CJK,
            Matches(&[run(NUMBER).rule()]),
        ]),
    ),
    (
        &["deepseek-coder"],
        plain(&[
            EACH_BREAK,
            Matches(&[run(LETTER).after(SPACE).rule()]),
            Matches(&[run(PUNCTUATION).after(SPACE).rule()]),
            DEEPSEEK_CJK,
            EACH_NUMBER,
        ]),
    ),
    (
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        plain(&[
            THREE_NUMBERS,
            // `[一-龥぀-ゟ゠-ヿ]+`
            Matches(&[run(Set::ranges(&[('\u{3040}', '\u{30ff}'), ('\u{4e00}', '\u{9fa5}')])).rule()]),
            DEEPSEEK_V3,
        ]),
    ),
    (&["bloom", "poro-chat", "gpt3-finnish"], plain(&[BLOOM])),
    (&["viking"], plain(&[BLOOM, EACH_NUMBER])),
    (&["gemma4"], GEMMA4),
];
