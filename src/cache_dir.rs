//! Where what is expensive to make is kept, such as the kernels that a GPU's driver has compiled.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use unisonic_cache::{Cache, DEFAULT_LIMIT_BYTES};

/// The cache of every command that has one.
#[derive(Args, Clone)]
#[command(next_help_heading = "Cache")]
pub struct CacheDirArg {
    /// Folder for compiled kernels and other things that the next start need not make again; `off` for none
    /// [default: unisonic in the user's folder for caches]
    #[arg(long, value_name = "DIR|off")]
    cache_dir: Option<PathBuf>,
}

impl CacheDirArg {
    /// As it was given.
    pub fn folder(&self) -> Option<&Path> {
        self.cache_dir.as_deref()
    }

    /// The cache; none if it is switched off or there is no place for it.
    pub fn open(&self) -> Option<Arc<Cache>> {
        let folder = match &self.cache_dir {
            Some(off) if off == Path::new("off") => return None,
            Some(folder) => folder.clone(),
            None => default_folder()?,
        };
        tracing::debug!("cache: {}", folder.display());
        Some(Arc::new(Cache::new(folder, DEFAULT_LIMIT_BYTES)))
    }
}

/// `unisonic` in what the system has for caches; none for a user without a home.
fn default_folder() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute());
    let caches = if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Caches"))
    } else {
        // XDG Base Directory Specification: a path that is not absolute counts as not set.
        absolute("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache")))
    };
    caches.map(|caches| caches.join("unisonic"))
}
