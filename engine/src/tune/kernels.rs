//! The kernels of a step that are measured, and the choice among their rows.

use std::collections::BTreeMap;

use unisonic_core::launch::Hardware;
use unisonic_core::plan::RunProfile;
use unisonic_planner::kernels::of_plan::Template;
use unisonic_planner::tune::{Site, Table, kernel, rows, site};

use super::table::{Measured, TuningTable};

/// Another row has to be faster by so much, in thousandths, to be taken: less is noise.
const GAIN_PER_MILLE: u64 = 30;

/// A kernel and what its rows take.
pub struct TunedKernel {
    /// What the rows are for.
    pub site: Site,
    /// The rows that the device takes, the rules' first.
    rows: Vec<String>,
    /// Nanoseconds of all its launches of a step, by row, as far as they were measured.
    ns: Vec<u64>,
}

/// The kernels of launches that `table` does not know, and how many it knows.
pub fn unknown(
    templates: &[Template],
    hardware: &Hardware,
    table: &TuningTable,
) -> (Vec<TunedKernel>, usize) {
    let sites: BTreeMap<Site, &Template> =
        templates.iter().filter_map(|template| Some((site(template)?, template))).collect();
    let all = sites.len();
    let is_known = |site: &Site| table.kernels.get(site).is_some_and(Measured::is_complete);
    let unknown: Vec<TunedKernel> = sites
        .into_iter()
        .filter(|(site, _)| !is_known(site))
        .map(|(site, template)| {
            let texts = rows(template, hardware).into_iter().map(|row| row.to_string());
            let rows = texts.filter(|row| kernel(template, row, hardware).is_some()).collect();
            TunedKernel { site, rows, ns: vec![] }
        })
        .collect();
    let known = all - unknown.len();
    (unknown, known)
}

impl TunedKernel {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Adds to a table what to run in a round: the row of that number, or the rules'.
    pub fn choose(&self, round: usize, table: &mut Table) {
        if let Some(row) = self.rows.get(round).or(self.rows.first()) {
            table.insert(self.site.clone(), row.clone());
        }
    }

    /// Takes over what a round's launches took, where it has a row of the round.
    pub fn record(&mut self, round: usize, templates: &[Template], run: &RunProfile) {
        if round < self.rows.len() && self.ns.len() == round {
            let is_own = |template: &Template| site(template).as_ref() == Some(&self.site);
            let own = run.launches.iter().zip(templates).filter(|(_, template)| is_own(template));
            self.ns.push(own.map(|(launch, _)| median(&launch.ns)).sum());
        }
    }

    /// Leaves the row of a round out, where it has one.
    pub fn refuse(&mut self, round: usize) {
        if round < self.rows.len() && self.ns.len() == round {
            self.ns.push(u64::MAX);
        }
    }

    /// What was found; none before the rules' row and another were measured.
    pub fn measured(&self) -> Option<Measured> {
        let (&rules_ns, _) = self.ns.split_first()?;
        let (fastest, &ns) = self.ns.iter().enumerate().min_by_key(|&(_, ns)| *ns)?;
        let is_faster = ns.saturating_mul(1000) < rules_ns.saturating_mul(1000 - GAIN_PER_MILLE);
        let (fastest, ns) = if is_faster { (fastest, ns) } else { (0, rules_ns) };
        let (tried, of) = (self.ns.len() as u32, self.rows.len() as u32);
        (tried == of || tried > 1).then(|| Measured {
            row: self.rows[fastest].clone(),
            ns,
            rules_ns,
            tried,
            of,
        })
    }

    /// What was found, if the rules' row is to stay.
    pub fn kept(&self) -> Option<Measured> {
        let measured = self.measured()?;
        Some(Measured { row: self.rows.first()?.clone(), ns: measured.rules_ns, ..measured })
    }
}

/// The middle one, or the lower of two; 0 of none.
pub fn median(numbers: &[u64]) -> u64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(ns: &[u64]) -> TunedKernel {
        let rows = ["rules", "a", "b"].map(str::to_owned).to_vec();
        TunedKernel { site: Site::new("x"), rows, ns: ns.to_vec() }
    }

    #[test]
    fn a_row_is_chosen_that_is_faster_than_noise() {
        let of =
            |ns: &[u64]| tuned(ns).measured().map(|m| (m.row.clone(), m.ns, m.rules_ns, m.is_complete()));
        assert_eq!(of(&[1000, 970, 980]), Some(("rules".into(), 1000, 1000, true)));
        assert_eq!(of(&[1000, 969, 800]), Some(("b".into(), 800, 1000, true)));
        assert_eq!(of(&[1000, 900]), Some(("a".into(), 900, 1000, false)));
        assert_eq!(of(&[1000]), None);
        assert_eq!(of(&[]), None);
        let kept = tuned(&[1000, 969, 800]).kept().map(|m| (m.row, m.ns, m.rules_ns));
        assert_eq!(kept, Some(("rules".into(), 1000, 1000)));
    }

    #[test]
    fn what_the_driver_refuses_is_tried_and_not_taken() {
        let mut kernel = tuned(&[1000]);
        kernel.refuse(1);
        kernel.refuse(3);
        let measured = kernel.measured().expect("two rows");
        assert_eq!((measured.row.as_str(), measured.tried, measured.of), ("rules", 2, 3));
    }

    #[test]
    fn medians_of_few() {
        assert_eq!([&[][..], &[7], &[9, 3], &[5, 1, 9]].map(median), [0, 7, 3, 5]);
    }
}
