//! Copies from global to shared memory that have begun and may not have arrived.

use super::super::kernel::ObjectId;

/// A copy under way: four words that will arrive at an element.
#[derive(Clone, Copy)]
pub struct Copy {
    /// Where to.
    pub to: ObjectId,
    /// First element.
    pub at: u32,
    /// What.
    pub words: [u32; 4],
}

/// The copies of each invocation of a workgroup, by group: the last is the one that is open.
pub struct Copies {
    of_lane: Vec<Vec<Vec<Copy>>>,
}

impl Copies {
    /// None.
    pub fn new(lanes: usize) -> Self {
        Self { of_lane: vec![Vec::new(); lanes] }
    }

    /// Begins a copy in the open group.
    pub fn begin(&mut self, lane: usize, copy: Copy) {
        let groups = &mut self.of_lane[lane];
        if groups.is_empty() {
            groups.push(Vec::new());
        }
        groups.last_mut().unwrap_or_else(|| unreachable!("a group was pushed")).push(copy);
    }

    /// Closes the open group.
    pub fn commit(&mut self, lane: usize) {
        let groups = &mut self.of_lane[lane];
        if groups.is_empty() {
            groups.push(Vec::new());
        }
        groups.push(Vec::new());
    }

    /// Takes what has arrived when all but the last `groups` closed groups have. Copies of the open group
    /// have not.
    pub fn arrived(&mut self, lane: usize, groups: u32) -> Vec<Copy> {
        let of_lane = &mut self.of_lane[lane];
        let closed = of_lane.len().saturating_sub(1);
        let done = closed.saturating_sub(groups as usize);
        of_lane.drain(..done).flatten().collect()
    }
}
