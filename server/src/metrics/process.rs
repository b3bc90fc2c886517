//! What the system knows of this process, under the names that Prometheus' clients use.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Clock ticks of `/proc/self/stat` in a second, on every architecture of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Memory and processor time, where the system tells them as Linux does.
pub fn register(registry: &mut Registry) {
    if let Some(bytes) = read("/proc/self/status").as_deref().and_then(resident_bytes) {
        let gauge = Gauge::<i64>::default();
        gauge.set(bytes as i64);
        registry.register("process_resident_memory_bytes", "Memory in use", gauge);
    }
    if let Some(seconds) = read("/proc/self/stat").as_deref().and_then(cpu_seconds) {
        let counter = Counter::<f64, AtomicU64>::default();
        counter.inc_by(seconds);
        registry.register("process_cpu_seconds", "Processor time, of user and system", counter);
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// `VmRSS:    1234 kB`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Members 14 and 15; the second is a name in brackets, which may have spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut members = rest.split_whitespace().skip(11);
    let user: u64 = members.next()?.parse().ok()?;
    let system: u64 = members.next()?.parse().ok()?;
    Some((user as f64 + system as f64) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read() {
        assert_eq!(resident_bytes("VmHWM:\t  99 kB\nVmRSS:\t   1234 kB\n"), Some(1234 * 1024));
        assert_eq!(resident_bytes("VmRSS:\t lots\n"), None);
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 5";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("7 (a"), None);
    }
}
