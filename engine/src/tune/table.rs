//! What was measured on a device, as text: a line of JSON for the device, then one for each kernel.
//!
//! ```text
//! {"tuning_table":1,"version":"0.1.0","device":"NVIDIA H200","driver":"CUDA 12.8"}
//! {"kernel":"linear Q4_K 3584x18944 rows 1","row":"split-k form …","ns":10240,"rules_ns":11000,"tried":17,"of":17}
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use unisonic_core::plan::Device;
use unisonic_planner::tune::{Site, Table};

/// The version of the format.
const FORMAT: u32 = 1;
/// Kernels of a table; of some hundred models there are fewer.
const MAX_KERNELS: usize = 100_000;

/// Of which device a table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDevice {
    /// Its name.
    pub name: String,
    /// Its driver and the version of that; empty where there is none.
    pub driver: String,
}

impl TableDevice {
    /// Of a device.
    pub fn of(device: &dyn Device) -> Self {
        Self { name: device.info().name, driver: device.driver().unwrap_or_default() }
    }
}

/// What was measured for a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The fastest row of those that were tried, as text.
    pub row: String,
    /// What its launches of a step take, in nanoseconds.
    pub ns: u64,
    /// What they take as the rules choose.
    pub rules_ns: u64,
    /// Rows that were tried.
    pub tried: u32,
    /// Rows that there are.
    pub of: u32,
}

impl Measured {
    /// Whether all rows were tried.
    pub fn is_complete(&self) -> bool {
        self.tried >= self.of
    }
}

/// What was measured on a device by this version of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningTable {
    /// Which device.
    pub device: TableDevice,
    /// By the site's text.
    pub kernels: BTreeMap<Site, Measured>,
}

/// Why a text is no table for a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Not a table at all.
    #[error(
        "this is no tuning table: its first line should be like {{\"tuning_table\":1,…}}; write one with \
         `unisonic tune --export`"
    )]
    NoTable,
    /// A format of another program version.
    #[error("this tuning table has format {found}, expected {}; export it anew with this version", FORMAT)]
    Format {
        /// What it says.
        found: u32,
    },
    /// Kernels of another version are other kernels.
    #[error(
        "this tuning table was measured with version {found}, and this is version {}; measure anew with `unisonic tune`",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// What it says.
        found: String,
    },
    /// What is fast on one device need not be on another.
    #[error(
        "this tuning table is of `{}` with the driver `{}`, and the device is `{}` with `{}`; measure anew with `unisonic \
         tune`",
        .found.name, .found.driver, .expected.name, .expected.driver
    )]
    Device {
        /// Of which it is.
        found: TableDevice,
        /// Which there is.
        expected: TableDevice,
    },
    /// A line that is none of a kernel.
    #[error("line {number} of the tuning table: {problem}; export it again")]
    Line {
        /// Counted from 1.
        number: usize,
        /// What is wrong.
        problem: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    tuning_table: u32,
    version: String,
    device: String,
    driver: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    kernel: String,
    row: String,
    ns: u64,
    rules_ns: u64,
    tried: u32,
    of: u32,
}

impl TuningTable {
    /// An empty one.
    pub fn new(device: TableDevice) -> Self {
        Self { device, kernels: BTreeMap::new() }
    }

    /// The rows, for lowering.
    pub fn rows(&self) -> Table {
        self.kernels.iter().map(|(site, measured)| (site.clone(), measured.row.clone())).collect()
    }

    /// Takes over what another table of the device has, where this one has less.
    pub fn merge(&mut self, other: Self) {
        for (site, measured) in other.kernels {
            if self.kernels.get(&site).is_none_or(|known| !known.is_complete()) {
                self.kernels.insert(site, measured);
            }
        }
    }

    /// The text.
    pub fn to_text(&self) -> String {
        let head = Head {
            tuning_table: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: self.device.name.clone(),
            driver: self.device.driver.clone(),
        };
        let line = |(site, measured): (&Site, &Measured)| {
            let Measured { row, ns, rules_ns, tried, of } = measured.clone();
            json(&Line { kernel: site.to_string(), row, ns, rules_ns, tried, of })
        };
        let lines: Vec<String> = [json(&head)].into_iter().chain(self.kernels.iter().map(line)).collect();
        lines.join("\n") + "\n"
    }

    /// Reads a text that is of `device` and this version of the program.
    pub fn parse(text: &str, device: &TableDevice) -> Result<Self, TableError> {
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok());
        let head = head.ok_or(TableError::NoTable)?;
        if head.tuning_table != FORMAT {
            return Err(TableError::Format { found: head.tuning_table });
        }
        let found = TableDevice { name: head.device, driver: head.driver };
        if found != *device {
            return Err(TableError::Device { found, expected: device.clone() });
        }
        if head.version != env!("CARGO_PKG_VERSION") {
            return Err(TableError::Version { found: head.version });
        }
        let mut table = Self::new(found);
        for (number, line) in (2..).zip(lines).filter(|(_, line)| !line.is_empty()) {
            let wrong = |problem: String| TableError::Line { number, problem };
            if table.kernels.len() == MAX_KERNELS {
                return Err(wrong(format!("more than {MAX_KERNELS} kernels")));
            }
            let Line { kernel, row, ns, rules_ns, tried, of } =
                serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            table.kernels.insert(Site::new(kernel), Measured { row, ns, rules_ns, tried, of });
        }
        Ok(table)
    }
}

fn json(line: &impl Serialize) -> String {
    // Strings and numbers always become JSON.
    serde_json::to_string(line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> TableDevice {
        TableDevice { name: "A GPU".into(), driver: "driver 1.2".into() }
    }

    fn table() -> TuningTable {
        let measured = |row: &str, tried| Measured { row: row.into(), ns: 10, rules_ns: 12, tried, of: 9 };
        let kernels =
            [("linear Q4_K 16x256 rows 1", measured("rules", 9)), ("other", measured("x \"y\"", 3))];
        let kernels = kernels.into_iter().map(|(site, measured)| (Site::new(site), measured)).collect();
        TuningTable { device: device(), kernels }
    }

    #[test]
    fn tables_read_back() {
        let text = table().to_text();
        assert_eq!(text.lines().count(), 3);
        assert!(text.starts_with("{\"tuning_table\":1,\"version\":\""), "{text}");
        assert_eq!(TuningTable::parse(&text, &device()), Ok(table()));
        let empty = TuningTable::new(device());
        assert_eq!(TuningTable::parse(&empty.to_text(), &device()), Ok(empty));
    }

    #[test]
    fn tables_of_others_are_refused() {
        let text = table().to_text();
        let other = TableDevice { driver: "driver 1.3".into(), ..device() };
        let error = TuningTable::parse(&text, &other).expect_err("another driver");
        assert!(
            error.to_string().contains("`driver 1.2`, and the device is `A GPU` with `driver 1.3`"),
            "{error}"
        );
        let version = env!("CARGO_PKG_VERSION");
        let old = text.replace(&format!("\"version\":\"{version}\""), "\"version\":\"0.0.1\"");
        assert_eq!(TuningTable::parse(&old, &device()), Err(TableError::Version { found: "0.0.1".into() }));
        let new = text.replace("\"tuning_table\":1", "\"tuning_table\":2");
        assert_eq!(TuningTable::parse(&new, &device()), Err(TableError::Format { found: 2 }));
        for wrong in ["", "{}", "tuning", "\n"] {
            assert_eq!(TuningTable::parse(wrong, &device()), Err(TableError::NoTable), "{wrong}");
        }
        for (from, to) in
            [("\"ns\":10", "\"ns\":-1"), ("\"of\"", "\"to\""), ("}\n{\"kernel\":\"other\"", "{")]
        {
            let wrong = text.replace(from, to);
            let error = TuningTable::parse(&wrong, &device()).expect_err(from);
            assert!(error.to_string().starts_with("line 2 of the tuning table: "), "{error}");
        }
    }

    #[test]
    fn what_is_complete_stays() {
        let mut ours = table();
        let mut other = table();
        other.kernels.values_mut().for_each(|measured| measured.ns = 1);
        ours.merge(other);
        let ns: Vec<u64> = ours.kernels.values().map(|measured| measured.ns).collect();
        assert_eq!(ns, [10, 1], "the second was not complete");
    }
}
