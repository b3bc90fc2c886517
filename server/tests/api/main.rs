//! The routes, in this process, over a committed tiny model: what they answer, and what they refuse.
//!
//! `field_reports` holds what people reported of other servers; `clients` what needs a real connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chat;
mod clients;
mod common;
mod completions;
mod field_reports;
mod guard;
mod health;
mod openai_client;
mod requests;
mod responses;
mod structured;
mod tokens;
