//! Where in an order a share of weight is reached, without sorting more than a handful; and where something begins to hold.

/// One place in an order: larger keys first, of equals the lower index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Rank of the entry.
    pub key: i32,
    /// Tells equals apart.
    pub index: u32,
    /// What it adds to the sum.
    pub weight: u32,
}

/// Entries that are sorted rather than split.
const FEW: usize = 64;

/// The last entry of the shortest prefix, of at least one entry, with `sum of weights * 2^32 >= wanted`; of
/// all, where the whole sum is less. None for no entry.
///
/// Entries come by ascending index and are used up. A quickselect: split by a key, add the weights of the
/// upper part, go on with the part in which `wanted` is reached. Every second split halves the range of keys,
/// so there are at most 64.
pub fn prefix_end(entries: &mut Vec<Entry>, wanted: u128) -> Option<Entry> {
    let mut above = 0_u64;
    let mut halve = false;
    while entries.len() > FEW {
        let (low, high) = key_range(entries);
        if low == high {
            break;
        }
        let pivot = if halve { middle(low, high) } else { some_median(entries).max(low + 1) };
        halve = !halve;
        let upper: u64 = entries.iter().map(|e| if e.key >= pivot { u64::from(e.weight) } else { 0 }).sum();
        if u128::from(above + upper) << 32 >= wanted {
            entries.retain(|entry| entry.key >= pivot);
        } else {
            above += upper;
            entries.retain(|entry| entry.key < pivot);
        }
    }
    // Equal keys are in the right order already, and this sort is fast on them.
    entries.sort_by_key(|entry| (std::cmp::Reverse(entry.key), entry.index));
    let reached = entries.iter().find(|entry| {
        above += u64::from(entry.weight);
        u128::from(above) << 32 >= wanted
    });
    reached.or(entries.last()).copied()
}

fn key_range(entries: &[Entry]) -> (i32, i32) {
    let keys = entries.iter().map(|entry| entry.key);
    keys.fold((i32::MAX, i32::MIN), |(low, high), key| (low.min(key), high.max(key)))
}

/// Above `low`, at most `high`, where low < high.
fn middle(low: i32, high: i32) -> i32 {
    let middle = (i64::from(low) + i64::from(high) + 1) >> 1;
    i32::try_from(middle).unwrap_or(high)
}

/// The median key of nine entries; there are at least as many.
fn some_median(entries: &[Entry]) -> i32 {
    let mut keys: [i32; 9] = std::array::from_fn(|i| entries[i * (entries.len() - 1) / 8].key);
    keys.sort_unstable();
    keys[4]
}

/// The least number from `first` to `last` for which something holds that holds for all above as well, and for `last`.
pub fn least(mut first: i64, mut last: i64, holds: impl Fn(i64) -> bool) -> i64 {
    while first < last {
        let middle = (first + last) >> 1;
        if holds(middle) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    last
}
