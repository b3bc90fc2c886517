//! Which invocations of a workgroup run a statement.

/// A set of invocations. That all are in it is by far the most frequent case, and a fast one.
#[derive(Clone)]
pub struct Active {
    holds: Vec<bool>,
    count: usize,
}

impl Active {
    /// The whole workgroup.
    pub fn all(lanes: usize) -> Self {
        Self { holds: vec![true; lanes], count: lanes }
    }

    /// Whether any invocation is in the set.
    pub fn any(&self) -> bool {
        self.count > 0
    }

    /// Whether the whole workgroup is.
    pub fn is_all(&self) -> bool {
        self.count == self.holds.len()
    }

    /// For each invocation, whether it is in the set.
    pub fn holds(&self) -> &[bool] {
        &self.holds
    }

    /// Those in the set, in order.
    pub fn lanes(&self) -> impl Iterator<Item = usize> + '_ {
        self.holds.iter().enumerate().filter(|(_, holds)| **holds).map(|(lane, _)| lane)
    }

    /// Those whose condition is true, and the others of the set.
    pub fn split(&self, conditions: &[u32]) -> (Self, Self) {
        let part = |expected: bool| {
            let holds = self.holds.iter().zip(conditions).map(|(&holds, &c)| holds && (c != 0) == expected);
            Self::from_holds(holds.collect())
        };
        (part(true), part(false))
    }

    /// Leaves those out whose index is not below their end.
    pub fn keep_below(&mut self, indices: &[u32], ends: &[u32]) {
        for ((holds, index), end) in self.holds.iter_mut().zip(indices).zip(ends) {
            *holds &= index < end;
        }
        self.count = self.holds.iter().filter(|holds| **holds).count();
    }

    /// Copies the words of those in the set.
    pub fn blend(&self, to: &mut [u32], from: &[u32]) {
        if self.is_all() {
            return to.copy_from_slice(from);
        }
        let width = to.len() / self.holds.len();
        for lane in self.lanes() {
            to[lane * width..][..width].copy_from_slice(&from[lane * width..][..width]);
        }
    }

    fn from_holds(holds: Vec<bool>) -> Self {
        let count = holds.iter().filter(|holds| **holds).count();
        Self { holds, count }
    }
}
