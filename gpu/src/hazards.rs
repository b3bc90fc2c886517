//! Which launches have to wait for those before them: what decides where barriers go.
//!
//! Launches run in an order in which each sees all that those before it wrote. Two that share no memory, or
//! only read what they share, come to the same in any order, so that nothing has to be between them and a
//! device may run both at once.

/// Memory that a launch touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where it begins: an address, or anything else that orders all memory of a device.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Whether the launch writes it; otherwise it only reads.
    pub writes: bool,
}

impl Access {
    /// Whether the order of both matters.
    fn conflicts(&self, other: &Self) -> bool {
        (self.writes || other.writes) && self.start < other.end && other.start < self.end
    }
}

/// What launches since the last barrier touch.
#[derive(Clone, Debug, Default)]
pub struct Hazards {
    touched: Vec<Access>,
}

impl Hazards {
    /// Takes the next launch: whether a barrier has to be before it, which it then takes to be there.
    pub fn needs_barrier(&mut self, launch: impl IntoIterator<Item = Access>) -> bool {
        let launch: Vec<Access> = launch.into_iter().filter(|access| access.start < access.end).collect();
        let waits = launch.iter().any(|access| self.touched.iter().any(|before| before.conflicts(access)));
        if waits {
            self.touched.clear();
        }
        self.touched.extend(launch);
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn reads(start: u64, end: u64) -> Access {
        Access { start, end, writes: false }
    }

    const fn writes(start: u64, end: u64) -> Access {
        Access { start, end, writes: true }
    }

    fn barriers<const N: usize>(launches: [&[Access]; N]) -> [bool; N] {
        let mut hazards = Hazards::default();
        launches.map(|launch| hazards.needs_barrier(launch.iter().copied()))
    }

    #[test]
    fn what_one_wrote_another_waits_for() {
        let (x, y, z) = (0, 256, 512);
        let of = |from, to| [reads(from, from + 256), writes(to, to + 256)];
        assert_eq!(barriers([&of(x, y), &of(y, z)]), [false, true], "read after write");
        assert_eq!(barriers([&of(x, y), &of(z, x)]), [false, true], "write after read");
        assert_eq!(barriers([&of(x, y), &of(z, y)]), [false, true], "write after write");
        assert_eq!(barriers([&of(x, y), &of(x, z)]), [false, false], "both only read");
        assert_eq!(barriers([&[writes(0, 300)], &[reads(299, 300)]]), [false, true], "the last byte");
        assert_eq!(barriers([&[writes(0, 300)], &[reads(300, 400), reads(7, 7)]]), [false, false]);
    }

    #[test]
    fn a_barrier_is_for_all_before_it() {
        let (a, b) = ([writes(0, 8)], [writes(8, 16)]);
        let (of_a, of_b) = ([reads(0, 8)], [reads(8, 16)]);
        assert_eq!(barriers([&a, &b, &of_a, &of_b]), [false, false, true, false]);
        assert_eq!(barriers([&a, &of_a, &b, &a, &of_b]), [false, true, false, true, false]);
    }
}
