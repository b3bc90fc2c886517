//! Pages of a session as bytes: kept on disk, and come back from there.

use unisonic_core::plan::PAGE_TOKENS;

use crate::kv::store;
use crate::{Engine, EngineError, Session};

const SLOTS: usize = PAGE_TOKENS as usize;

impl Engine {
    /// The full pages of a session, in the layout of [`KvLayer`](unisonic_core::plan::KvLayer); none if the
    /// device does not give them out.
    pub fn read_pages(&mut self, session: &Session) -> Result<Vec<Vec<u8>>, EngineError> {
        self.check(session, 0)?;
        let full = session.tokens.len() / SLOTS;
        let mut pages = Vec::with_capacity(full);
        for &page in &session.pages.pages()[..full] {
            let mut bytes = Vec::new();
            if !self.program.read_page(page, &mut bytes)? {
                return Ok(Vec::new());
            }
            pages.push(bytes);
        }
        Ok(pages)
    }

    /// A session that begins with `tokens`, as far as there are pages for them that the device takes; what is
    /// left of the tokens is to be run. The pages have to be of these tokens, and of the same model and
    /// profile.
    pub fn session_with_pages(&mut self, tokens: &[u32], pages: &[Vec<u8>]) -> Result<Session, EngineError> {
        let mut session = self.session();
        for (run, page) in tokens.chunks_exact(SLOTS).zip(pages) {
            if !self.append_page(&mut session, run, page)? {
                break;
            }
        }
        Ok(session)
    }

    /// Appends a page to a session of full pages; false if there is no room, or the device does not take it.
    fn append_page(&mut self, session: &mut Session, run: &[u32], page: &[u8]) -> Result<bool, EngineError> {
        let len = session.tokens.len() + SLOTS;
        if len > self.context_len() as usize || self.reserve(session, len).is_err() {
            return Ok(false);
        }
        let written = session.pages.pages().last().map(|&to| self.program.write_page(to, page));
        if !written.transpose()?.unwrap_or(false) {
            session.pages.shrink(session.tokens.len() / SLOTS);
            return Ok(false);
        }
        session.tokens.extend_from_slice(run);
        Ok(true)
    }

    /// Extends a new session by what the folder has of `known` after the full pages in the session.
    pub(crate) fn attach_stored(&mut self, session: &mut Session, known: &[u32]) -> Result<(), EngineError> {
        let (true, Some(key)) = (self.store.is_some(), session.pages.key()) else { return Ok(()) };
        let mut chain = Vec::new();
        for run in known.chunks_exact(SLOTS) {
            let before = chain.last().copied().unwrap_or_else(|| store::root(key));
            chain.push(store::page_digest(before, run));
        }
        let full = session.tokens.len() / SLOTS;
        let mut loaded = full;
        while let Some(&digest) = chain.get(loaded) {
            let run = &known[loaded * SLOTS..][..SLOTS];
            let Some(page) = self.store.as_mut().and_then(|store| store.get(digest, run)) else { break };
            // A part of this page that was in memory is no longer needed.
            session.truncate(loaded * SLOTS);
            if !self.append_page(session, run, &page)? {
                break;
            }
            loaded += 1;
        }
        chain.truncate(loaded);
        if let Some(store) = self.store.as_ref().filter(|_| loaded > full) {
            store.touch(&chain);
        }
        session.stored = chain;
        Ok(())
    }

    /// Keeps the full pages of a session in the folder, if there is one. Its tokens have to be certain.
    pub(crate) fn store_pages(&mut self, session: &mut Session) -> Result<(), EngineError> {
        let (Some(store), Some(key)) = (&mut self.store, session.pages.key()) else { return Ok(()) };
        for index in session.stored.len()..session.tokens.len() / SLOTS {
            let run = &session.tokens[index * SLOTS..][..SLOTS];
            let before = session.stored.last().copied().unwrap_or_else(|| store::root(key));
            let digest = store::page_digest(before, run);
            session.stored.push(digest);
            if !store.wants(digest, run) {
                continue;
            }
            let mut page = Vec::new();
            if !self.program.read_page(session.pages.pages()[index], &mut page)? {
                let device = &self.program.device().id;
                tracing::warn!(device, "the device does not give out keys and values; none are kept on disk");
                self.store = None;
                return Ok(());
            }
            store.put(&session.stored, run, &page);
        }
        Ok(())
    }
}
