//! What a machine says of itself. Where it is silent, nothing is known: no figure is guessed.

use std::fs;

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

/// Memory that a process can take without pushing another out (`MemAvailable` of Linux).
pub fn available_memory_bytes() -> Option<u64> {
    fs::read_to_string("/proc/meminfo").ok().and_then(|text| kibibytes(&value(&text, "MemAvailable")?))
}

/// Length of the largest cache of the first processor.
pub fn cache_len_bytes() -> Option<u64> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = caches.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("size")).ok());
    sizes.filter_map(|size| size_bytes(&size)).max()
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
}
