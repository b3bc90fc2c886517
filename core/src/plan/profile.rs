//! What the launches of a run take, by the clock of the device.

/// Times of a batch that was run some times: as it always runs, and with each launch timed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunProfile {
    /// In the order in which they run.
    pub launches: Vec<LaunchProfile>,
    /// Nanoseconds from the first launch to the end of the last, with no stamp between them: one a
    /// repetition.
    pub whole_ns: Vec<u64>,
    /// Nanoseconds between two stamps without a launch between them, one a repetition: so much of the time of
    /// each launch is the stamp's.
    pub empty_ns: Vec<u64>,
}

/// A launch of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchProfile {
    /// Name of the kernel.
    pub kernel: String,
    /// Index into [`super::Plan::steps`] of the (first) step that it serves.
    pub step: u32,
    /// How many workgroups it had.
    pub workgroups: u32,
    /// Bytes that it has to move: each operand once, of tables and caches only the rows that the batch looks
    /// at. States that the parts of an attention hand over are not counted.
    pub bytes: u64,
    /// Multiplications of linear layers.
    pub macs: u64,
    /// Nanoseconds from the stamp before it to the one after it, one a repetition.
    pub ns: Vec<u64>,
}
