//! Conversations to token ids, by the template in the model's file.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};

use unisonic_engine::chat::{ChatOptions, Data, Message, encode_chat};

use crate::buffer::{Buffer, unisonic_buffer};
use crate::entry::entry;
use crate::error::{Error, unisonic_error};
use crate::handle::{self, Object};
use crate::locks::lock;
use crate::options::{self, SizeTagged};
use crate::status::unisonic_status;
use crate::tokenizer::{Tokenizer, unisonic_tokenizer};

/// A conversation: messages, and the tools that the model may call.
pub struct unisonic_chat {
    _opaque: (),
}

/// Options of unisonic_chat_encode.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_chat_options {
    /// sizeof(unisonic_chat_options).
    pub struct_size: usize,
    /// What a template may show as today's date, as "2026-01-31"; NULL: none. The clock is not read.
    pub date: *const c_char,
    /// Bytes of `date`.
    pub date_len: usize,
    /// 1: does not end with the beginning of the assistant's turn.
    pub no_generation_prompt: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_chat_options {
    const NAME: &'static str = "unisonic_chat_options";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What is behind a conversation.
pub(crate) struct Chat {
    tokenizer: Arc<Tokenizer>,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    messages: Vec<Message>,
    tools: Vec<Data>,
}

impl Object for Chat {
    type Handle = unisonic_chat;
    const NAME: &'static str = "chat";
}

/// An empty conversation. Free it with unisonic_chat_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_chat_new(
    tokenizer: *mut unisonic_tokenizer,
    chat: *mut *mut unisonic_chat,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let chat = options::out(chat, "chat")?;
            let (tokenizer, library) = entry.object_of::<Tokenizer>(tokenizer)?;
            tokenizer.template()?;
            handle::write(chat, &library, Arc::new(Chat { tokenizer, content: Mutex::default() }))
        })
    }
}

/// Appends a message. `role` is "system", "user", "assistant", "tool" or what else the template knows. What
/// `content` says is text and never a control token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_chat_add(
    chat: *mut unisonic_chat,
    role: *const c_char,
    role_len: usize,
    content: *const c_char,
    content_len: usize,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let chat = entry.object::<Chat>(chat)?;
            let role = options::text(role, role_len, "role")?;
            let message = Message::new(role, options::text(content, content_len, "content")?);
            lock(&chat.content)?.messages.push(message);
            Ok(())
        })
    }
}

/// Sets the tools that the model may call: a JSON list, as the template's model was trained to read it
/// (mostly that of OpenAI's `tools`). Its texts are never control tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_chat_set_tools(
    chat: *mut unisonic_chat,
    json: *const c_char,
    json_len: usize,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let chat = entry.object::<Chat>(chat)?;
            let json = options::text(json, json_len, "json")?;
            let tools: Vec<Data> = serde_json::from_str(json)
                .map_err(|error| Error::argument(format!("the tools are no JSON list: {error}")))?;
            lock(&chat.content)?.tools = tools;
            Ok(())
        })
    }
}

/// Token ids of the conversation, to be continued by the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_chat_encode(
    chat: *mut unisonic_chat,
    chat_options: *const unisonic_chat_options,
    tokens: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let tokens = options::out(tokens, "tokens")?;
            let (chat, library) = entry.object_of::<Chat>(chat)?;
            let given = options::read(chat_options)?;
            let date = match given.date.is_null() {
                true => None,
                false => Some(options::text(given.date, given.date_len, "date")?.to_owned()),
            };
            let no_prompt = options::switch(given.no_generation_prompt, "no_generation_prompt")?;
            options::reserved(given.reserved)?;
            let vocabulary = &chat.tokenizer.vocabulary;
            // Encoding may log, and a callback may use the conversation.
            let rendered = {
                let content = lock(&chat.content)?;
                let how =
                    ChatOptions { add_generation_prompt: !no_prompt, date, tools: content.tools.clone() };
                chat.tokenizer.template()?.render(vocabulary, &content.messages, &how)?
            };
            Buffer::Tokens(encode_chat(vocabulary, &rendered)?).write(tokens, &library)
        })
    }
}

/// Frees a conversation; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_chat_free(chat: *mut unisonic_chat) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Chat>(chat) }
}
