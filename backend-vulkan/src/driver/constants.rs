//! What the launches of a recording are given: records as push constants, and what is longer, in one device buffer.
//!
//! ```text
//! record of the first such launch | of the second | ... | workgroups of launches per tile
//! ```
//!
//! A record is `core::kir::abi`'s and begins at a multiple of [`RECORD_ALIGN_BYTES`]. Workgroups are a
//! `VkDispatchIndirectCommand`, 12 bytes, for each number of workgroups a tile that occurs; each run fills them in.

use unisonic_core::launch::Workgroups;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::plan::Rows;
use unisonic_gpu::machine::MachineError;

use super::error::misuse;

/// Records begin at multiples of this.
const RECORD_ALIGN_BYTES: usize = 16;
/// A `VkDispatchIndirectCommand`.
const COMMAND_LEN_BYTES: usize = 12;

/// What launches are given, and where everything will be.
#[derive(Debug, Default)]
pub struct Constants {
    /// Records in the buffer.
    pub bytes: Vec<u8>,
    /// For each launch its record.
    pub records: Vec<Record>,
    /// Each number of workgroups a tile.
    pub per_tile: Vec<PerTile>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// It is pushed.
    Pushed(Vec<u8>),
    /// Its address is; it begins here in the buffer.
    At(u64),
}

/// A number of workgroups a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerTile {
    /// Tiles of which rows.
    pub rows: Rows,
    /// How many workgroups each has.
    pub groups: u32,
    /// The first kernel that has so many, for messages.
    pub kernel: String,
}

/// How many workgroups a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// So many.
    Fixed(u32),
    /// As a command says, which begins here.
    At(u64),
}

impl Constants {
    /// Adds the record of a launch.
    pub fn push(&mut self, addresses: impl Iterator<Item = u64>, params: &[u32], is_pushed: bool) {
        let addresses = addresses.flat_map(u64::to_le_bytes);
        let record: Vec<u8> = addresses.chain(params.iter().flat_map(|param| param.to_le_bytes())).collect();
        if is_pushed {
            self.records.push(Record::Pushed(record));
            return;
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(RECORD_ALIGN_BYTES), 0);
        self.records.push(Record::At(self.bytes.len() as u64));
        self.bytes.extend(record);
    }

    /// Makes room for the workgroups of a launch per tile, once for each number of them.
    pub fn share(&mut self, workgroups: Workgroups, kernel: &str) {
        if let Workgroups::PerTile(rows, groups) = workgroups
            && !self.per_tile.iter().any(|entry| entry.is(rows, groups))
        {
            self.per_tile.push(PerTile { rows, groups, kernel: kernel.to_owned() });
        }
    }

    /// Where commands begin; asked once all records are there.
    pub fn commands_at(&self) -> u64 {
        self.bytes.len().next_multiple_of(RECORD_ALIGN_BYTES) as u64
    }

    /// All commands.
    pub fn commands_len_bytes(&self) -> usize {
        self.per_tile.len() * COMMAND_LEN_BYTES
    }

    /// The workgroups of a launch; asked once all launches are there.
    pub fn groups(&self, workgroups: Workgroups) -> Groups {
        match workgroups {
            Workgroups::Fixed(groups) => Groups::Fixed(groups),
            Workgroups::PerTile(rows, groups) => {
                let number = self.per_tile.iter().take_while(|entry| !entry.is(rows, groups)).count();
                Groups::At(self.commands_at() + (number * COMMAND_LEN_BYTES) as u64)
            }
        }
    }
}

impl PerTile {
    fn is(&self, rows: Rows, groups: u32) -> bool {
        (self.rows, self.groups) == (rows, groups)
    }
}

/// The commands of a run with so many tiles, on a device that takes so many workgroups.
pub fn commands(per_tile: &[PerTile], tiles: TileCounts, most: u32) -> Result<Vec<u8>, MachineError> {
    let mut bytes = Vec::with_capacity(per_tile.len() * COMMAND_LEN_BYTES);
    for PerTile { rows, groups, kernel } in per_tile {
        let groups = check_groups(u64::from(*groups) * u64::from(tiles.of(*rows)), kernel, most)?;
        bytes.extend([groups, 1, 1].into_iter().flat_map(u32::to_le_bytes));
    }
    Ok(bytes)
}

/// So many workgroups, if a device takes them.
pub fn check_groups(groups: u64, kernel: &str, most: u32) -> Result<u32, MachineError> {
    u32::try_from(groups).ok().filter(|&groups| groups <= most).ok_or_else(|| {
        let reason = format!("{groups} workgroups; this device takes {most} (maxComputeWorkGroupCount[0])");
        misuse(&format!("the launch of `{kernel}`"), reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_aligned_and_commands_are_shared() {
        let mut constants = Constants::default();
        constants.push([0x1_0000_0100].into_iter(), &[7], false);
        constants.push([0x400].into_iter(), &[8], true);
        constants.push([0x200, 0x300].into_iter(), &[], false);
        let of = |rows, groups| Workgroups::PerTile(rows, groups);
        let launches = [of(Rows::All, 4), Workgroups::Fixed(9), of(Rows::Outputs, 4), of(Rows::All, 4)];
        for (workgroups, kernel) in launches.into_iter().zip(["a", "b", "c", "d"]) {
            constants.share(workgroups, kernel);
        }
        let pushed = Record::Pushed(vec![0, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(constants.records, [Record::At(0), pushed, Record::At(16)]);
        assert_eq!(constants.bytes[..16], [0, 1, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(constants.commands_at(), 32);
        assert_eq!(constants.commands_len_bytes(), 24);
        let groups = launches.map(|workgroups| constants.groups(workgroups));
        assert_eq!(groups, [Groups::At(32), Groups::Fixed(9), Groups::At(44), Groups::At(32)]);
    }

    #[test]
    fn too_many_workgroups_name_kernel_and_limit() {
        let entry = |rows, groups, kernel: &str| PerTile { rows, groups, kernel: kernel.to_owned() };
        let per_tile = [entry(Rows::All, 2, "rope"), entry(Rows::Outputs, 5, "attention")];
        let bytes = commands(&per_tile, TileCounts { all: 4, outputs: 3 }, 15).unwrap_or_default();
        let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        assert_eq!(words, [8, 1, 1, 15, 1, 1]);
        let error = |all, outputs| match commands(&per_tile, TileCounts { all, outputs }, 15) {
            Ok(bytes) => format!("{bytes:?}"),
            Err(error) => error.to_string(),
        };
        let limit = "workgroups; this device takes 15 (maxComputeWorkGroupCount[0])";
        assert_eq!(error(0, 4), format!("the launch of `attention` failed: 20 {limit}"));
        assert_eq!(error(u32::MAX, 0), format!("the launch of `rope` failed: 8589934590 {limit}"));
    }
}
