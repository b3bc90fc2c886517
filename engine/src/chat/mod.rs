//! Chat.
