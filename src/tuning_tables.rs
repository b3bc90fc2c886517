//! The tuning table of a device in the cache.

use unisonic_cache::{Cache, Key, Kind};
use unisonic_engine::tune::{TableDevice, TuningTable};

/// What was measured on a device by this version of the program; none if nothing was.
pub fn kept(cache: &Cache, device: &TableDevice) -> Option<TuningTable> {
    let text = String::from_utf8(cache.get(&key(device))?).ok()?;
    TuningTable::parse(&text, device).inspect_err(|error| tracing::warn!("{error}")).ok()
}

/// Keeps it.
pub fn keep(cache: &Cache, table: &TuningTable) {
    let TableDevice { name, driver } = &table.device;
    let label = format!("{name}, {driver}, {} kernels", table.kernels.len());
    cache.put(&key(&table.device), &label, table.to_text().as_bytes());
}

fn key(device: &TableDevice) -> Key {
    Key::builder(Kind::TuningTable).field("device", &device.name).field("driver", &device.driver).finish()
}
