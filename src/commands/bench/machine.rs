//! What a machine says of itself. Where it is silent, nothing is known: no figure is guessed.

use std::fs;
use std::path::Path;

/// The machine that figures come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Name of the processor, as `/proc/cpuinfo` gives it.
    pub cpu: Option<String>,
    /// Operating system, and its kernel where it tells.
    pub system: String,
}

impl Machine {
    /// This machine.
    pub fn read() -> Self {
        let read = |path| fs::read_to_string(path).ok();
        let name = read("/etc/os-release").and_then(|text| pretty_name(&text));
        let kernel = read("/proc/sys/kernel/osrelease").map(|text| format!("kernel {}", text.trim()));
        let family = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        Self {
            cpu: read("/proc/cpuinfo").and_then(|text| value(&text, "model name")),
            system: [name, kernel, Some(family)].into_iter().flatten().collect::<Vec<_>>().join(", "),
        }
    }
}

/// Most memory that this process ever had resident (`VmHWM` of Linux).
pub fn peak_memory_bytes() -> Option<u64> {
    fs::read_to_string("/proc/self/status").ok().and_then(|text| kibibytes(&value(&text, "VmHWM")?))
}

/// Memory that this process can take without pushing others out: `MemAvailable` of Linux, or what its control group
/// (version 2) has left, where that is less.
pub fn available_memory_bytes() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let whole = kibibytes(&value(&read("/proc/meminfo")?, "MemAvailable")?)?;
    let in_group = || {
        let groups = read("/proc/self/cgroup")?;
        let folder = format!("/sys/fs/cgroup{}", groups.lines().find_map(|line| line.strip_prefix("0::"))?);
        let number = |name: &str| read(&format!("{folder}/{name}"))?.trim().parse::<u64>().ok();
        let stat = read(&format!("{folder}/memory.stat"))?;
        // Pages of files count as used, but are given up when others need them.
        let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
        let used = number("memory.current")?.saturating_sub(files.unwrap_or(0));
        Some(number("memory.max")?.saturating_sub(used))
    };
    Some(in_group().map_or(whole, |group| whole.min(group)))
}

/// A cache as `/sys/devices/system/cpu/cpu*/cache/index*` describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cache {
    level: u32,
    /// The processors that share it, such as `0-3`.
    shared_by: String,
    len_bytes: u64,
}

/// Length of all caches of the highest level together.
pub fn caches_len_bytes() -> Option<u64> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let cpus = entries(Path::new("/sys/devices/system/cpu"));
    let caches = cpus.flat_map(|cpu| entries(&cpu.join("cache"))).filter_map(|folder| {
        let read = |name| fs::read_to_string(folder.join(name)).ok();
        Some(Cache {
            level: read("level")?.trim().parse().ok()?,
            shared_by: read("shared_cpu_list")?.trim().to_owned(),
            len_bytes: size_bytes(&read("size")?)?,
        })
    });
    highest_level_len_bytes(caches.collect())
}

fn highest_level_len_bytes(mut caches: Vec<Cache>) -> Option<u64> {
    caches.sort();
    // Each processor describes the caches that it shares.
    caches.dedup();
    let level = caches.last()?.level;
    caches
        .iter()
        .filter(|cache| cache.level == level)
        .map(|cache| cache.len_bytes)
        .reduce(u64::saturating_add)
}

/// The value of the first line `key : value`.
fn value(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == key).then(|| value.trim().to_owned())
    })
}

/// Such as `1234 kB`, which means KiB.
fn kibibytes(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Such as `32768K`.
fn size_bytes(size: &str) -> Option<u64> {
    let size = size.trim();
    let (number, unit) = match size.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => (size.strip_suffix('M')?, 1 << 20),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_linux_are_understood() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some CPU @ 2.0GHz\n\nprocessor\t: 1\n";
        assert_eq!(value(cpuinfo, "model name").as_deref(), Some("Some CPU @ 2.0GHz"));
        assert_eq!(value(cpuinfo, "VmHWM"), None);
        assert_eq!(kibibytes("   1234 kB"), Some(1_263_616));
        assert_eq!(kibibytes("1234"), None);
        assert_eq!(size_bytes("48K\n"), Some(49_152));
        assert_eq!(size_bytes("2M"), Some(2_097_152));
        assert_eq!(size_bytes("-1K"), None);
        assert_eq!(pretty_name("ID=debian\nPRETTY_NAME=\"Debian 13\"\n").as_deref(), Some("Debian 13"));
    }

    #[test]
    fn shared_caches_count_once_and_others_add_up() {
        let cache =
            |level, shared_by: &str, len_bytes| Cache { level, shared_by: shared_by.into(), len_bytes };
        let caches = vec![
            cache(2, "0", 900),
            cache(3, "0-1", 100),
            cache(2, "1", 900),
            cache(3, "0-1", 100),
            cache(3, "2-3", 100),
        ];
        assert_eq!(highest_level_len_bytes(caches), Some(200));
        assert_eq!(highest_level_len_bytes(vec![]), None);
    }
}
