//! Passes over launches, as rows of one table: each makes fewer of them, and none changes a bit of a result.
//!
//! They are switched off by name, as the passes over graphs are (`crate::passes`).

/// Which passes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchPasses {
    /// Joins launches that have nothing to do with each other (`join.rs`).
    pub join: bool,
    /// Lets the end of attention quantise its result (`merge_quantize.rs`).
    pub merge_quantize: bool,
}

impl Default for LaunchPasses {
    fn default() -> Self {
        Self { join: true, merge_quantize: true }
    }
}

/// One row of the table.
pub struct LaunchPass {
    /// As in options.
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
    /// Its switch.
    switch: fn(&mut LaunchPasses) -> &mut bool,
}

/// All passes.
pub const LAUNCH_PASSES: &[LaunchPass] = &[
    LaunchPass {
        name: "fuse-merge-quantize",
        doc: "lets the end of attention quantise its own result, of the output rows alone in the last layer",
        switch: |passes| &mut passes.merge_quantize,
    },
    LaunchPass {
        name: "join-launches",
        doc: "makes one launch of neighbours that have nothing to do with each other",
        switch: |passes| &mut passes.join,
    },
];

impl LaunchPasses {
    /// All but those named; names of other passes say nothing here.
    pub fn without(off: &[String]) -> Self {
        let mut passes = Self::default();
        for pass in LAUNCH_PASSES.iter().filter(|pass| off.iter().any(|name| name == pass.name)) {
            *(pass.switch)(&mut passes) = false;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_switched_off_by_name() {
        assert_eq!(LaunchPasses::without(&["dead-code".to_owned()]), LaunchPasses::default());
        let mut all: Vec<LaunchPasses> =
            LAUNCH_PASSES.iter().map(|pass| LaunchPasses::without(&[pass.name.to_owned()])).collect();
        all.push(LaunchPasses::default());
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), LAUNCH_PASSES.len() + 1);
    }
}
