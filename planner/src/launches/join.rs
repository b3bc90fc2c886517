//! Neighbouring launches that have nothing to do with each other become one: q, k and v of a layer, gate and
//! up, the query and the cache.
//!
//! A launch costs microseconds to begin and end, however little it does, and its last workgroups leave a
//! device half empty. What is joined is decided by what kernels do with places of memory, not by what they
//! compute.

use std::collections::HashMap;
use std::ops::Range;

use unisonic_core::kir::Kernel;
use unisonic_core::kir::abi::addressed;
use unisonic_core::kir::join::{Joined, Segment, join};
use unisonic_core::launch::{Hardware, Launch, Place, Workgroups};

use crate::kernels::misfit;

/// Most launches that become one.
const MOST: usize = 8;
/// How many times over a launch has to fill a device for its beginning and end to cost nothing.
const FILLS: u64 = 8;

/// Joins what may be joined, and leaves out kernels that are launched no more.
pub fn join_launches(kernels: &mut Vec<Kernel>, launches: &mut Vec<Launch>, hardware: &Hardware) {
    let mut joiner = Joiner { kernels, hardware, known: HashMap::new() };
    let mut joined = Vec::with_capacity(launches.len());
    let mut at = 0;
    while at < launches.len() {
        let (launch, count) = joiner.longest(&launches[at..]);
        joined.push(launch);
        at += count;
    }
    *launches = joined;
    drop_unused(kernels, launches);
}

struct Joiner<'a> {
    kernels: &'a mut Vec<Kernel>,
    hardware: &'a Hardware,
    /// Joined kernels and their buffers by what they were made of; none where a device has no room.
    known: HashMap<Vec<Part>, Option<(u32, Vec<u32>)>>,
}

/// A part of a joined kernel.
#[derive(PartialEq, Eq, Hash)]
struct Part {
    /// Which kernel.
    kernel: u32,
    workgroups: u32,
    /// Places in the order in which the joined launch first has them.
    buffers: Vec<u32>,
}

impl Joiner<'_> {
    /// The launch that the first of some become together with as many others as possible, and how many.
    fn longest(&mut self, launches: &[Launch]) -> (Launch, usize) {
        let most = launches.len().min(MOST);
        let alone = (1..most).find(|&count| !self.may_join(&launches[..count], &launches[count]));
        let together = (2..=alone.unwrap_or(most)).rev();
        let mut joined = together.filter_map(|count| Some((self.join(&launches[..count])?, count)));
        joined.next().unwrap_or_else(|| (launches[0].clone(), 1))
    }

    /// Whether a launch may run beside those before it, and something is gained by that.
    fn may_join(&self, before: &[Launch], launch: &Launch) -> bool {
        let [workgroup, first] =
            [launch, &before[0]].map(|launch| self.kernels[launch.kernel as usize].workgroup);
        let is_short = |launch: &Launch| self.is_short(launch);
        workgroup == first
            && (is_short(launch) || before.iter().all(is_short))
            && before.iter().all(|other| self.are_independent(other, launch))
    }

    /// Whether a launch does not fill the device many times over.
    fn is_short(&self, launch: &Launch) -> bool {
        let resident = self.kernels[launch.kernel as usize].resident.unwrap_or(1);
        let at_once = u64::from(resident) * u64::from(self.hardware.multiprocessors);
        fixed(launch).is_some_and(|workgroups| u64::from(workgroups) < FILLS * at_once)
    }

    /// Whether neither writes what the other reads or writes.
    fn are_independent(&self, a: &Launch, b: &Launch) -> bool {
        let touched = |launch| self.touched(launch);
        touched(a).all(|(place, writes)| {
            touched(b).all(|(other, also_writes)| !(writes || also_writes) || !overlap(place, other))
        })
    }

    /// The places of a launch, and whether it writes them.
    fn touched<'a>(&'a self, launch: &'a Launch) -> impl Iterator<Item = (&'a Place, bool)> {
        let kernel = &self.kernels[launch.kernel as usize];
        let writes = addressed(kernel).map(|id| kernel.objects[id.index()].space.is_writable());
        launch.places.iter().zip(writes)
    }

    /// One launch of several that are independent; none where the device has no room for it.
    fn join(&mut self, launches: &[Launch]) -> Option<Launch> {
        let mut places: Vec<Place> = vec![];
        let mut number = |place: &Place| {
            let known = places.iter().position(|other| other == place);
            known.unwrap_or_else(|| {
                places.push(*place);
                places.len() - 1
            }) as u32
        };
        let of_launch = |launch: &Launch| {
            let buffers = launch.places.iter().map(&mut number).collect();
            Some(Part { kernel: launch.kernel, workgroups: fixed(launch)?, buffers })
        };
        let parts: Vec<Part> = launches.iter().map(of_launch).collect::<Option<_>>()?;
        let workgroups = parts.iter().try_fold(0_u32, |sum, part| sum.checked_add(part.workgroups))?;
        i32::try_from(workgroups).ok()?;
        let (kernel, buffers) = self.kernel(parts)?;
        Some(Launch {
            step: launches[0].step,
            kernel,
            places: buffers.into_iter().map(|buffer| places[buffer as usize]).collect(),
            params: launches.iter().flat_map(|launch| &launch.params).copied().collect(),
            workgroups: Workgroups::Fixed(workgroups),
        })
    }

    /// The kernel of some parts, and its buffers.
    fn kernel(&mut self, parts: Vec<Part>) -> Option<(u32, Vec<u32>)> {
        if let Some(known) = self.known.get(&parts) {
            return known.clone();
        }
        let segments = parts.iter().map(|part| Segment {
            kernel: &self.kernels[part.kernel as usize],
            workgroups: part.workgroups,
            buffers: &part.buffers,
        });
        let Joined { kernel, buffers } = join(&segments.collect::<Vec<_>>());
        let made = misfit(&kernel, self.hardware).is_none().then(|| {
            self.kernels.push(kernel);
            (self.kernels.len() as u32 - 1, buffers)
        });
        self.known.insert(parts, made.clone());
        made
    }
}

/// Workgroups of a launch that has some, always as many.
fn fixed(launch: &Launch) -> Option<u32> {
    match launch.workgroups {
        Workgroups::Fixed(workgroups) => Some(workgroups).filter(|&workgroups| workgroups > 0),
        Workgroups::PerTile(..) => None,
    }
}

fn overlap(a: &Place, b: &Place) -> bool {
    let bytes =
        |place: &Place| Range { start: place.offset_bytes, end: place.offset_bytes + place.len_bytes };
    a.area == b.area && bytes(a).start < bytes(b).end && bytes(b).start < bytes(a).end
}

/// Leaves the kernels that are launched, in their order.
fn drop_unused(kernels: &mut Vec<Kernel>, launches: &mut [Launch]) {
    let mut numbers = vec![None; kernels.len()];
    launches.iter().for_each(|launch| numbers[launch.kernel as usize] = Some(0));
    (0..).zip(numbers.iter_mut().flatten()).for_each(|(number, of_kernel)| *of_kernel = number);
    let mut is_launched = numbers.iter().map(Option::is_some);
    kernels.retain(|_| is_launched.next() == Some(true));
    for launch in launches {
        launch.kernel = numbers[launch.kernel as usize].unwrap_or_default();
    }
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
