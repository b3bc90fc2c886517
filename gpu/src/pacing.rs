//! How the launches of a recording are shared out to submissions, by what each is estimated to take.
//!
//! Drivers and systems take a submission that runs for seconds for one that hangs, and reset the device (Windows after two).
//! So one is to take at most [`SUBMISSION_LIMIT`], of which `TARGET` leaves a part for estimates that err. What nobody has
//! measured yet is submitted alone. From then on a launch counts as what it took, times as many more workgroups as it has:
//! longer at once, shorter by and by. Where all launches fit into one submission, which is always so on a fast device, that is what is done.
//!
//! Nothing here knows a clock: whoever submits says what each submission took.

use std::ops::Range;
use std::time::Duration;

use unisonic_core::launch::Workgroups;
use unisonic_core::launch::inputs::TileCounts;

/// No submission of several launches is to take longer.
pub const SUBMISSION_LIMIT: Duration = Duration::from_millis(500);
/// Submissions are cut to be estimated at most this.
const TARGET: Duration = Duration::from_millis(200);
/// They are cut anew before one is estimated more than this.
const MOST: Duration = Duration::from_millis(300);

/// Which launches of a recording are a submission, and what is known of how long they take.
#[derive(Clone, Debug)]
pub struct Pacing {
    launches: Vec<Launch>,
    /// All launches, in order; there is always one.
    pieces: Vec<Range<usize>>,
}

/// What is known of a launch.
#[derive(Clone, Copy, Debug)]
struct Launch {
    workgroups: Workgroups,
    estimate: Option<Estimate>,
}

/// What a launch took with some workgroups.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    groups: u64,
    seconds: f64,
}

impl Launch {
    fn groups(&self, tiles: TileCounts) -> u64 {
        match self.workgroups {
            Workgroups::Fixed(groups) => groups.into(),
            Workgroups::PerTile(rows, groups) => u64::from(groups) * u64::from(tiles.of(rows)),
        }
    }

    /// Seconds with so many tiles; none if nobody knows.
    fn seconds(&self, tiles: TileCounts) -> Option<f64> {
        let groups = self.groups(tiles);
        if groups == 0 {
            return Some(0.0);
        }
        // With fewer workgroups, one of them may be what takes the time.
        let Estimate { groups: measured, seconds } = self.estimate?;
        Some(seconds * (groups as f64 / measured as f64).max(1.0))
    }
}

impl Pacing {
    /// For launches of which nothing is known.
    pub fn new(launches: impl Iterator<Item = Workgroups>) -> Self {
        let launches: Vec<_> = launches.map(|workgroups| Launch { workgroups, estimate: None }).collect();
        let mut pacing = Self { launches, pieces: vec![] };
        pacing.pieces = pacing.cut_to(TARGET, |_| None);
        pacing
    }

    /// The launches of each submission.
    pub fn pieces(&self) -> &[Range<usize>] {
        &self.pieces
    }

    /// Whether a submission may have all launches so many times.
    pub fn fits(&self, runs: u32, tiles: TileCounts) -> bool {
        let sum = self.launches.iter().map(|launch| launch.seconds(tiles)).sum::<Option<f64>>();
        self.pieces.len() == 1 && sum.is_some_and(|sum| sum * f64::from(runs) <= TARGET.as_secs_f64())
    }

    /// Other pieces for a run with so many tiles, where those that there are would take too long or are too many.
    pub fn cut(&self, tiles: TileCounts) -> Option<Vec<Range<usize>>> {
        let seconds = |launch: &Launch| launch.seconds(tiles);
        let is_too_long = self.pieces.iter().any(|piece| {
            let sum = self.launches[piece.clone()].iter().map(seconds).sum::<Option<f64>>();
            piece.len() > 1 && sum.is_none_or(|sum| sum > MOST.as_secs_f64())
        });
        if is_too_long {
            return Some(self.cut_to(TARGET, seconds));
        }
        // Not each time that an estimate is a little shorter.
        let are_too_many =
            self.pieces.len() > 1 && self.cut_to(TARGET / 2, seconds).len() < self.pieces.len();
        are_too_many.then(|| self.cut_to(TARGET, seconds))
    }

    /// From now on these are the pieces, which [`Pacing::cut`] gave.
    pub fn set(&mut self, pieces: Vec<Range<usize>>) {
        self.pieces = pieces;
    }

    /// A submission took so long, in a run with so many tiles.
    pub fn took(&mut self, piece: usize, tiles: TileCounts, duration: Duration) {
        let launches = &mut self.launches[self.pieces[piece].clone()];
        let found = duration.as_secs_f64();
        let estimated: Option<f64> = launches.iter().map(|launch| launch.seconds(tiles)).sum();
        let factor = match estimated {
            // Half of it is close enough.
            Some(estimated) if found <= estimated && estimated <= 2.0 * found => return,
            Some(estimated) if estimated > 0.0 => (found / estimated).max(0.75),
            _ => 1.0,
        };
        let share = found / launches.len() as f64;
        for launch in launches {
            let groups = launch.groups(tiles);
            // What few workgroups take says little of what many do.
            let is_small = launch.estimate.is_some_and(|estimate| 2 * groups < estimate.groups);
            if groups > 0 && !(is_small && factor < 1.0) {
                let seconds = launch.seconds(tiles).map_or(share, |seconds| seconds * factor);
                launch.estimate = Some(Estimate { groups, seconds });
            }
        }
    }

    /// As many launches a piece as take at most so long; what is not known is alone.
    fn cut_to(&self, most: Duration, seconds: impl Fn(&Launch) -> Option<f64>) -> Vec<Range<usize>> {
        let (mut pieces, mut start, mut sum) = (vec![], 0, Some(0.0));
        for (number, launch) in self.launches.iter().enumerate() {
            let seconds = seconds(launch);
            let with_it = sum.zip(seconds).map(|(sum, seconds): (f64, f64)| sum + seconds);
            if number > start && with_it.is_none_or(|sum| sum > most.as_secs_f64()) {
                pieces.push(start..number);
                (start, sum) = (number, seconds);
            } else {
                sum = with_it;
            }
        }
        pieces.push(start..self.launches.len());
        pieces
    }
}

#[cfg(test)]
mod tests {
    use unisonic_core::plan::Rows;

    use super::*;

    const NO_TILES: TileCounts = TileCounts { all: 0, outputs: 0 };

    /// A device that takes so many milliseconds for each launch; what it runs, and how long its submissions were.
    struct Simulated {
        pacing: Pacing,
        submissions: Vec<Duration>,
    }

    impl Simulated {
        fn new(launches: usize) -> Self {
            let workgroups = std::iter::repeat_n(Workgroups::Fixed(1), launches);
            Self { pacing: Pacing::new(workgroups), submissions: vec![] }
        }

        /// Submissions of a run, in which launch i takes `milliseconds(i)`.
        fn run(&mut self, tiles: TileCounts, milliseconds: impl Fn(usize) -> f64) -> Vec<Duration> {
            if let Some(pieces) = self.pacing.cut(tiles) {
                self.pacing.set(pieces);
            }
            let pieces = self.pacing.pieces().to_vec();
            assert_eq!(pieces.iter().cloned().flatten().count(), self.pacing.launches.len());
            assert!(pieces.iter().cloned().flatten().eq(0..self.pacing.launches.len()), "{pieces:?}");
            let took = |piece: &Range<usize>| {
                Duration::from_secs_f64(piece.clone().map(&milliseconds).sum::<f64>() / 1000.0)
            };
            let durations: Vec<Duration> = pieces.iter().map(took).collect();
            for (piece, &duration) in durations.iter().enumerate() {
                self.pacing.took(piece, tiles, duration);
            }
            self.submissions.extend(&durations);
            durations
        }

        fn longest(&self) -> Duration {
            self.submissions.iter().copied().max().unwrap_or_default()
        }
    }

    #[test]
    fn a_fast_device_has_one_submission_from_the_second_run_on() {
        let mut device = Simulated::new(300);
        let counts = [(); 50].map(|()| device.run(NO_TILES, |_| 0.1).len());
        assert_eq!(counts[0], 300, "nothing is known");
        assert_eq!(counts[1..], [1; 49]);
        let mut nothing = Simulated::new(0);
        assert_eq!([(); 3].map(|()| nothing.run(NO_TILES, |_| 0.0).len()), [1; 3], "copies are somewhere");
    }

    #[test]
    fn no_submission_of_a_slow_device_is_too_long() {
        for milliseconds in [1.0, 50.0, 190.0, 499.0] {
            let mut device = Simulated::new(100);
            for _ in 0..20 {
                device.run(NO_TILES, |_| milliseconds);
            }
            assert!(device.longest() <= SUBMISSION_LIMIT, "{milliseconds}: {:?}", device.longest());
        }
        let mut device = Simulated::new(100);
        let counts = [(); 4].map(|()| device.run(NO_TILES, |_| 50.0).len());
        assert_eq!(counts, [100, 25, 25, 25]);
    }

    /// A sequence that grows by a tenth of its length in each run, on a device that is throttled now and then.
    #[test]
    fn launches_that_become_longer_are_cut_before_they_are_too_long() {
        let mut device = Simulated::new(60);
        let mut length = 0.5;
        for run in 0..60 {
            let throttled = if run % 7 == 6 { 1.5 } else { 1.0 };
            device.run(NO_TILES, |launch| throttled * if launch % 3 == 0 { length } else { 1.0 });
            length = f64::min(1.1 * length, 300.0);
        }
        assert!(device.longest() <= SUBMISSION_LIMIT, "{:?}", device.longest());
    }

    #[test]
    fn a_stall_is_forgotten() {
        let mut device = Simulated::new(100);
        device.run(NO_TILES, |_| 0.1);
        assert_eq!(device.run(NO_TILES, |launch| if launch == 7 { 60_000.0 } else { 0.1 }).len(), 1);
        assert!(device.run(NO_TILES, |_| 0.1).len() > 10, "it might happen again");
        let counts: Vec<usize> = (0..60).map(|_| device.run(NO_TILES, |_| 0.1).len()).collect();
        assert_eq!(counts.last(), Some(&1), "{counts:?}");
    }

    /// Launches per tile count by the tiles of the run that is to come, and those that had none are not known.
    #[test]
    fn more_tiles_take_longer() {
        let of = |rows| Workgroups::PerTile(rows, 4);
        let launches = [of(Rows::All), of(Rows::All), of(Rows::Outputs), Workgroups::Fixed(2)];
        let mut device = Simulated { pacing: Pacing::new(launches.into_iter()), submissions: vec![] };
        let mut run = |all, outputs| {
            let tiles = TileCounts { all, outputs };
            let tiles_of = [all, all, outputs, 10];
            device.run(tiles, |launch| f64::from(tiles_of[launch])).len()
        };
        assert_eq!(run(10, 0), 4);
        assert_eq!(run(10, 0), 1);
        assert_eq!(run(90, 0), 1);
        assert_eq!(run(160, 0), 2, "before it has run");
        assert_eq!(run(10, 0), 1);
        assert_eq!(run(10, 5), 3, "the launch over output rows is new");
        assert_eq!(run(10, 5), 1);
        assert!(device.longest() <= SUBMISSION_LIMIT);
    }
}
