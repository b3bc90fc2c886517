//! The table that lowering takes, in a handle that outlives a lowering.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use unisonic_core::launch::Hardware;

use super::row::kernel;
use super::site::{Site, site};
use crate::kernels::GridKernel;
use crate::kernels::of_plan::Template;

/// Texts of rows ([`super::Row`]) by site. What no template has says nothing.
pub type Table = BTreeMap<Site, String>;

/// A handle to the table of a device. Lowerings that were made with it read it each time they make launches
/// for a shape; launches that are there already stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Tuning(Arc<RwLock<State>>);

#[derive(Debug, Default)]
struct State {
    table: Arc<Table>,
    /// Whether launches are for measuring.
    is_watched: bool,
    watched: Vec<Template>,
}

impl Tuning {
    /// A handle to a table.
    pub fn new(table: Table) -> Self {
        let tuning = Self::default();
        tuning.set_table(table);
        tuning
    }

    /// The table.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).table)
    }

    /// Takes another table from now on.
    pub fn set_table(&self, table: Table) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).table = Arc::new(table);
    }

    /// From now on launches stay apart, so that each has a template and a time of its own, or no more.
    pub fn watch(&self, is_watched: bool) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        (state.is_watched, state.watched) = (is_watched, vec![]);
    }

    /// The templates of the launches that were made last while they were watched, in the order in which they
    /// run. A launch that belongs to no template comes after all of them.
    pub fn watched(&self) -> Vec<Template> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).watched.clone()
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_watched
    }

    pub(crate) fn set_watched(&self, templates: Vec<Template>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).watched = templates;
    }
}

/// The kernel of a template, legal for the hardware: in the row of the table, or as its rules have it.
pub(crate) fn tuned_kernel(template: &Template, table: &Table, hardware: &Hardware) -> GridKernel {
    // Nearly always: nothing is looked for where nothing was measured.
    let row = if table.is_empty() { None } else { site(template).and_then(|site| table.get(&site)) };
    let of_row = row.and_then(|row| kernel(template, row, hardware));
    of_row.unwrap_or_else(|| template.kernel(hardware))
}
