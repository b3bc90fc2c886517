//! What guessing does for the speed of answers, on the CPU device: an answer plain and an answer with n-gram guesses in turn.
//!
//! `cargo bench -p unisonic-engine --bench speculation -- editing ../models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf` pastes
//! files of 120 lines and asks for small edits, greedily, with up to 1,400 tokens of answer; the bar is 1.8 times the speed.
//! `-- new ../models/smollm2-135m-instruct-q4_1.gguf` has 30 pairs of stories, drawn at temperature 0.8, 128 tokens each; the
//! bar is a median ratio of 1.02. A last argument is the number of threads, 2 unless given.
//!
//! Times are those of decoding, from the first token to the last: wall time, and the processor time of the calling thread,
//! which other programs cannot stretch (with one thread it is all there is). Both answers of a pair have to be equal.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use unisonic_core::format::GgufFile;
use unisonic_cpu::native::CpuDevice;
use unisonic_engine::chat::{ChatOptions, ChatTemplate, Message, encode_chat};
use unisonic_engine::draft::{DraftStats, Drafter, MAX_VERIFY_ROWS, NgramDrafter, ROW_BUCKETS};
use unisonic_engine::sampling::{Sampler, SamplerOptions};
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_engine::{Engine, EngineOptions, GenerateOptions, generate};

/// File, language, and the edits that are asked for.
const FILES: [(&str, &str, [&str; 2]); 2] = [
    (
        include_str!("editing/ledger.py.txt"),
        "python",
        [
            "Rename the method `find` to `get_account`, also where it is called.",
            "Add a docstring to the method `withdraw`.",
        ],
    ),
    (
        include_str!("editing/costs.rs.txt"),
        "rust",
        [
            "Change the constant `NEW` from 0.25 to 0.5.",
            "Rename the method `most_rows` to `largest_allowed`, also in the tests.",
        ],
    ),
];

const STORIES: [&str; 6] = [
    "Write a story about a lighthouse keeper who finds a letter.",
    "Explain to a child why the sky is blue.",
    "Describe a market in a town by the sea.",
    "What would change if people slept only four hours a day?",
    "Write a letter from a gardener to the rain.",
    "Tell me about the history of bread.",
];
const PAIRS: u64 = 30;

/// What an answer took.
struct Run {
    ids: Vec<u32>,
    wall_s: f64,
    cpu_s: f64,
    drafts: DraftStats,
}

impl Run {
    fn tokens_per_second(&self) -> f64 {
        (self.ids.len() - 1) as f64 / self.wall_s
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [work, path, threads @ ..] = &args[..] else {
        println!("skipped: give `editing` or `new`, and a model file");
        return;
    };
    let threads = threads.first().map_or(2, |threads| threads.parse().expect("threads is a number"));
    let file = GgufFile::open(Path::new(path)).expect("the model file can be opened");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("it has a tokenizer");
    let start = Instant::now();
    let options = EngineOptions {
        max_outputs: MAX_VERIFY_ROWS as u32,
        context_len: Some(4096),
        clock: Some(Arc::new(move || start.elapsed())),
        ..EngineOptions::default()
    };
    let device = CpuDevice::new().with_threads(threads);
    let engine = Engine::load(file.metadata(), file.tensors(), &file, &device, &options, &|_| {});
    let mut bench = Bench { engine: engine.expect("the model can be loaded"), tokenizer, file };
    match &work[..] {
        "editing" => bench.editing(),
        "new" => bench.new_text(),
        other => println!("skipped: `{other}` is neither `editing` nor `new`"),
    }
    let costs = ROW_BUCKETS.map(|rows| bench.engine.costs().seconds(rows) * 1e3);
    println!("ms of a step of {ROW_BUCKETS:?} rows: {costs:.2?}");
}

struct Bench {
    engine: Engine,
    tokenizer: Tokenizer,
    file: GgufFile,
}

impl Bench {
    fn prompt(&self, text: &str) -> Vec<u32> {
        let template = ChatTemplate::from_metadata(self.file.metadata(), None).expect("it has a template");
        let messages = [Message::new("user", text)];
        let options = ChatOptions { date: Some("2026-11-30".into()), ..ChatOptions::default() };
        let rendered = template.render(&self.tokenizer, &messages, &options).expect("the chat is rendered");
        encode_chat(&self.tokenizer, &rendered).expect("the prompt has ids")
    }

    fn run(&mut self, prompt: &[u32], max_tokens: u32, sampling: &SamplerOptions, guess: bool) -> Run {
        let mut sampler = Sampler::new(sampling, self.tokenizer.vocab_len()).expect("options are right");
        let mut ngram = NgramDrafter::new();
        let drafter: Option<&mut dyn Drafter> = if guess { Some(&mut ngram) } else { None };
        let options = GenerateOptions {
            max_tokens: Some(max_tokens),
            sampler: Some(&mut sampler),
            drafter,
            ..GenerateOptions::default()
        };
        let mut session = self.engine.session();
        let (mut first, mut last) = (None, None);
        let completion = generate(
            &mut self.engine,
            &mut session,
            prompt,
            options,
            &|token| self.tokenizer.is_stop(token),
            &mut |_, _| {
                last = Some((Instant::now(), cpu_seconds()));
                first = first.or(last);
                ControlFlow::Continue(())
            },
        )
        .expect("the answer comes to its end");
        let (first, last) = (first.expect("there is a token"), last.expect("there is a token"));
        Run {
            ids: completion.token_ids,
            wall_s: (last.0 - first.0).as_secs_f64(),
            cpu_s: last.1 - first.1,
            drafts: completion.drafts,
        }
    }

    /// Plain and guessed, the one or the other first.
    fn pair(
        &mut self,
        prompt: &[u32],
        max_tokens: u32,
        sampling: &SamplerOptions,
        guess_first: bool,
    ) -> [Run; 2] {
        let first = self.run(prompt, max_tokens, sampling, guess_first);
        let second = self.run(prompt, max_tokens, sampling, !guess_first);
        assert_eq!(first.ids, second.ids, "guessing changes the answer");
        if guess_first { [second, first] } else { [first, second] }
    }

    fn editing(&mut self) {
        println!(
            "| edit | prompt | answer | plain tok/s | guessed tok/s | ratio | ratio of CPU time | steps | accepted |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        let (mut plain_s, mut guessed_s) = (0.0, 0.0);
        for (text, language, edits) in FILES {
            for (index, edit) in edits.into_iter().enumerate() {
                let ask = format!("{edit} Reply with the whole file.\n\n```{language}\n{text}```\n");
                let prompt = self.prompt(&ask);
                let [plain, guessed] = self.pair(&prompt, 1400, &SamplerOptions::default(), index % 2 == 1);
                let DraftStats { steps, drafted, accepted } = guessed.drafts;
                println!(
                    "| {edit} | {} | {} | {:.1} | {:.1} | {:.2} | {:.2} | {steps} | {accepted} of {drafted} |",
                    prompt.len(),
                    plain.ids.len(),
                    plain.tokens_per_second(),
                    guessed.tokens_per_second(),
                    plain.wall_s / guessed.wall_s,
                    plain.cpu_s / guessed.cpu_s,
                );
                plain_s += plain.wall_s;
                guessed_s += guessed.wall_s;
            }
        }
        println!("all: {:.2} times the speed", plain_s / guessed_s);
    }

    fn new_text(&mut self) {
        let (mut wall, mut cpu, mut drafts) = (Vec::new(), Vec::new(), DraftStats::default());
        for pair in 0..PAIRS {
            let prompt = self.prompt(STORIES[pair as usize % STORIES.len()]);
            let sampling = SamplerOptions { temperature: 0.8, seed: pair, ..SamplerOptions::default() };
            let [plain, guessed] = self.pair(&prompt, 128, &sampling, pair % 2 == 1);
            wall.push(guessed.wall_s / plain.wall_s);
            cpu.push(guessed.cpu_s / plain.cpu_s);
            drafts.steps += guessed.drafts.steps;
            drafts.drafted += guessed.drafts.drafted;
            drafts.accepted += guessed.drafts.accepted;
        }
        for (what, mut ratios) in [("wall time", wall), ("processor time", cpu)] {
            ratios.sort_by(f64::total_cmp);
            let median = (ratios[ratios.len() / 2] + ratios[(ratios.len() - 1) / 2]) / 2.0;
            println!(
                "{PAIRS} pairs, {what} guessed over plain: median {median:.3}, {:.3} to {:.3}",
                ratios[0],
                ratios[ratios.len() - 1]
            );
        }
        println!("{drafts:?}");
    }
}

/// Time that this thread has had on a processor; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: f64 = stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0.0);
    nanos * 1e-9
}
