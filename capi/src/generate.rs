//! Continuing a session.

use std::ops::ControlFlow;

use unisonic_engine::{GenerateOptions, Stop, generate};

use crate::asked::{Answer, Asked, Said, unisonic_generate_options};
use crate::callback::{Flow, failed};
use crate::cancel::Cancel;
use crate::completion::{Completion, unisonic_completion, unisonic_stop};
use crate::entry::entry;
use crate::error::{Result, unisonic_error};
use crate::handle;
use crate::locks::broken;
use crate::options;
use crate::session::{Sequence, Session, unisonic_session};
use crate::status::unisonic_status;

/// Appends a prompt to a session and continues it. The session then holds prompt and answer. Callbacks come
/// while this call runs the model: in them the model cannot be run, but tokenizers, cancel switches and other
/// models can be used.
///
/// A generation that is cancelled is no failure: the completion has what there was (UNISONIC_STOP_CANCELLED).
/// `completion` may be NULL if nobody wants it. Free it with unisonic_completion_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_session_generate(
    session: *mut unisonic_session,
    prompt: *const u32,
    prompt_len: usize,
    generate_options: *const unisonic_generate_options,
    completion: *mut *mut unisonic_completion,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            if !completion.is_null() {
                options::out(completion, "completion")?;
            }
            let (session, library) = entry.object_of::<Session>(session)?;
            let prompt = options::array(prompt, prompt_len, "prompt")?;
            let asked = Asked::read(generate_options)?;
            let mut sequence = session.begin()?;
            session.model.check(prompt, "prompt")?;
            let before = sequence.tokens.len();
            sequence.check_room(&session, before + prompt.len())?;
            sequence.tokens.extend_from_slice(prompt);
            let answered = answer(&session, &mut sequence, &asked);
            if answered.is_err() {
                sequence.cut(before);
            }
            let answered = answered?;
            match completion.is_null() {
                true => Ok(()),
                false => handle::write(completion, &library, std::sync::Arc::new(answered)),
            }
        })
    }
}

/// Continues all tokens of the sequence.
fn answer(session: &Session, sequence: &mut Sequence, asked: &Asked) -> Result<Completion> {
    let (model, cancel) = (&session.model, asked.cancel.as_deref());
    let start = sequence.tokens.len();
    let mut sampler = asked.choice.sampler(model, start, asked.looks_at_logits())?;
    let mut drafter = asked.drafter();
    asked.prepare(model)?;
    let mut turn = match model.turn(cancel) {
        Ok(turn) => turn,
        Err(error) if error.status == unisonic_status::Cancelled => return Ok(nothing()),
        Err(error) => return Err(error),
    };
    let engine = turn.engine_mut();
    let mut answer = Answer::new(model, engine, asked, &sequence.tokens)?;
    let mut telling = Telling { asked, text: String::new(), index: 0, flow: Flow::Continue };
    sequence.attach(session, engine)?;
    let Sequence { tokens, kv: Some(kv), .. } = &mut *sequence else { return Err(broken()) };
    // The last token is run again where it was: its logits are what goes on.
    kv.truncate(tokens.len().saturating_sub(1).min(kv.tokens().len()));
    let rest = tokens[kv.tokens().len()..].to_vec();
    let is_cancelled = || cancel.is_some_and(Cancel::is_requested);
    let options = GenerateOptions {
        max_tokens: asked.max_tokens,
        cancelled: Some(&is_cancelled),
        sampler: Some(&mut *sampler),
        drafter: drafter.as_deref_mut().map(|drafter| drafter as _),
    };
    let vocabulary = &model.tokenizer.vocabulary;
    let generated =
        generate(engine, kv, &rest, options, &|token| vocabulary.is_stop(token), &mut |token, logits| {
            let piece = answer.push(token, logits);
            telling.tell(Some(token), &piece, logits);
            let go_on = telling.flow == Flow::Continue && !answer.stopped && !is_cancelled();
            if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    if telling.flow == Flow::Continue {
        let tail = answer.finish();
        if !tail.is_empty() {
            telling.tell(None, &tail, &[]);
        }
    }
    let stop = match telling.flow {
        Flow::Failed(said) => return Err(failed("on_token", said)),
        Flow::Stop if generated.stop == Stop::Cancelled => unisonic_stop::Callback,
        _ if answer.stopped && generated.stop == Stop::Cancelled => unisonic_stop::StopString,
        _ => generated.stop.into(),
    };
    sequence.tokens.extend_from_slice(&generated.token_ids);
    sequence.forget_logits();
    sequence.chosen_by = asked.choice.options.clone();
    sequence.answer = asked.choice.answer(start);
    Ok(answer.complete(generated.token_ids, &telling.text, stop, generated.stop.as_str()))
}

/// The answer of a generation that was cancelled before it could begin.
fn nothing() -> Completion {
    Completion::new(Vec::new(), "", unisonic_stop::Cancelled, None)
}

/// Tells the host of tokens until it wants no more.
struct Telling<'a> {
    asked: &'a Asked,
    /// All that it was told.
    text: String,
    index: u32,
    flow: Flow,
}

impl Telling<'_> {
    fn tell(&mut self, token: Option<u32>, text: &str, logits: &[f32]) {
        self.text.push_str(text);
        self.flow = self.asked.tell(&Said { request: 0, token, text, logits, index: self.index });
        self.index += u32::from(token.is_some());
    }
}
