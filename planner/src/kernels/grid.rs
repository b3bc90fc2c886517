//! What a template gives: a kernel, and the grid of workgroups that it is launched over.

use unisonic_core::kir::Kernel;

/// A kernel and the grid it is launched over.
#[derive(Clone, Debug, PartialEq)]
pub struct GridKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Workgroups of a launch.
    pub grid: Grid,
    /// Words of a row in the buffer `flags`, each 1 where its part of the row is out of range, else 0; 0 if there is no such
    /// buffer.
    pub flags_a_row: u32,
}

impl GridKernel {
    /// A kernel over rows, without flags.
    pub(super) fn rows(kernel: Kernel, workgroups_a_row: u32) -> Self {
        Self { kernel, grid: Grid::Rows(workgroups_a_row), flags_a_row: 0 }
    }

    /// With a buffer `flags` of so many words a row.
    pub(super) fn with_flags(self, flags_a_row: u32) -> Self {
        Self { flags_a_row, ..self }
    }
}

/// Workgroups of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grid {
    /// So many for each row: row r is computed by workgroups `n*r .. n*(r + 1)`, so that a launch of fewer rows than a
    /// buffer has computes the first of them.
    Rows(u32),
    /// So many in all, the rows being constants of the kernel.
    Fixed(u32),
    /// So many for each row and group of 16 chunks: `rows * n * groups` ([`super::attention_decode`]).
    RowGroups(u32),
    /// So many for each tile of rows ([`super::attention_prefill`]).
    Tiles(u32),
}

impl Grid {
    /// Workgroups of a launch over `count` rows, rows times groups, or tiles; none if they are more than a launch has.
    pub fn workgroups(self, count: u32) -> Option<u32> {
        match self {
            Grid::Fixed(workgroups) => Some(workgroups),
            Grid::Rows(each) | Grid::RowGroups(each) | Grid::Tiles(each) => each.checked_mul(count),
        }
    }
}
