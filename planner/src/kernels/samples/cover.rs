//! Which combinations of choices are tried.

use super::data::random;

/// How many combinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every two choices meet at least once.
    Pairs,
    /// All combinations.
    Full,
}

impl Extent {
    /// Combinations of one choice from each list, as indices; `sizes` are the lengths of the lists. The same
    /// input gives the same combinations.
    pub fn combinations<const N: usize>(self, sizes: [usize; N]) -> Vec<[usize; N]> {
        match self {
            Extent::Pairs => pairs(sizes),
            Extent::Full => all(sizes),
        }
    }

    /// The same, where in [`Extent::Full`] the last `drawn` lists are not multiplied out: each combination of
    /// the others gets one choice of them at random.
    pub fn combinations_with_drawn<const N: usize>(self, sizes: [usize; N], drawn: usize) -> Vec<[usize; N]> {
        if self == Extent::Pairs {
            return pairs(sizes);
        }
        let (mut multiplied, first) = (sizes, N.saturating_sub(drawn));
        multiplied[first..].fill(1);
        let mut combinations = all(multiplied);
        let mut next = random(1);
        for combination in &mut combinations {
            for (choice, size) in combination.iter_mut().zip(sizes).skip(first) {
                *choice = (next() >> 33) as usize % size;
            }
        }
        combinations
    }
}

fn all<const N: usize>(sizes: [usize; N]) -> Vec<[usize; N]> {
    let count: usize = sizes.iter().product();
    let combination = |mut number: usize| {
        sizes.map(|size| {
            let choice = number % size;
            number /= size;
            choice
        })
    };
    (0..count).map(combination).collect()
}

/// Greedy: each combination begins with a pair that has not met, and takes for every other list the choice
/// that meets most of those already taken for the first time.
fn pairs<const N: usize>(sizes: [usize; N]) -> Vec<[usize; N]> {
    let mut left: Vec<[(usize, usize); 2]> = Vec::new();
    for a in 0..N {
        for b in a + 1..N {
            left.extend(all([sizes[a], sizes[b]]).into_iter().map(|[i, j]| [(a, i), (b, j)]));
        }
    }
    if N == 1 {
        return all(sizes);
    }
    let mut chosen = Vec::new();
    while let Some(&[(a, i), (b, j)]) = left.first() {
        let mut combination: [Option<usize>; N] = [None; N];
        (combination[a], combination[b]) = (Some(i), Some(j));
        for list in 0..N {
            if combination[list].is_none() {
                let gain = |choice: usize| {
                    let meets = |&(other, x): &(usize, usize)| combination[other] == Some(x);
                    let is_new = |[x, y]: &&[(usize, usize); 2]| {
                        (*x == (list, choice) && meets(y)) || (*y == (list, choice) && meets(x))
                    };
                    left.iter().filter(is_new).count()
                };
                // The first of the best.
                combination[list] = (0..sizes[list]).rev().max_by_key(|&choice| gain(choice));
            }
        }
        let combination = combination.map(|choice| choice.unwrap_or(0));
        left.retain(|pair| !pair.iter().all(|&(list, choice)| combination[list] == choice));
        chosen.push(combination);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_two_choices_meet() {
        let sizes = [5, 3, 4, 2];
        let chosen = Extent::Pairs.combinations(sizes);
        for a in 0..4 {
            for b in a + 1..4 {
                for [i, j] in all([sizes[a], sizes[b]]) {
                    assert!(chosen.iter().any(|c| c[a] == i && c[b] == j), "{a}: {i}, {b}: {j}");
                }
            }
        }
        assert!((20..30).contains(&chosen.len()), "{}", chosen.len());
        assert_eq!(Extent::Full.combinations(sizes).len(), 120);
        assert_eq!(Extent::Pairs.combinations([3]), [[0], [1], [2]]);
    }

    #[test]
    fn all_choices_are_drawn() {
        let sizes = [5, 3, 4, 2];
        let chosen = Extent::Full.combinations_with_drawn(sizes, 2);
        assert_eq!(chosen.len(), 15);
        for (list, size) in sizes.into_iter().enumerate() {
            assert!((0..size).all(|choice| chosen.iter().any(|c| c[list] == choice)), "{list}");
        }
        assert_eq!(Extent::Pairs.combinations_with_drawn(sizes, 2), Extent::Pairs.combinations(sizes));
    }
}
