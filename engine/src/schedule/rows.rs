//! Who gets how many rows of a step.

/// What a request would like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// Tokens to be run; the last of them needs an output row. At least 1.
    pub pending: usize,
    /// Number of the last step that it had rows in.
    pub served: u64,
}

/// Divides rows among requests, the oldest first in `wishes`: each gets an equal share, those first that were
/// served least recently; what is left goes to the oldest that have use for it. So in any step each request
/// has rows or is nearer to the front than before, and one long prompt cannot hold up the others.
pub(super) fn share(rows: usize, outputs: usize, wishes: &[Wish]) -> Vec<usize> {
    let mut given = vec![0; wishes.len()];
    let equal = (rows / wishes.len().max(1)).max(1);
    let (mut rows, mut outputs) = (rows, outputs);
    let mut give = |index: usize, most: usize, given: &mut Vec<usize>| {
        let pending = wishes[index].pending - given[index];
        let mut more = pending.min(most).min(rows);
        if more > 0 && more == pending {
            match outputs {
                0 => more -= 1,
                _ => outputs -= 1,
            }
        }
        rows -= more;
        given[index] += more;
    };
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by_key(|&index| wishes[index].served);
    for index in order {
        give(index, equal, &mut given);
    }
    for index in 0..wishes.len() {
        give(index, usize::MAX, &mut given);
    }
    given
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wishes(pending: &[usize]) -> Vec<Wish> {
        pending.iter().map(|&pending| Wish { pending, served: 0 }).collect()
    }

    #[test]
    fn decoding_goes_on_beside_a_long_prompt() {
        assert_eq!(share(64, 16, &wishes(&[1, 1, 500, 1])), [1, 1, 61, 1]);
        assert_eq!(share(64, 16, &wishes(&[500, 500, 1])), [42, 21, 1]);
        assert_eq!(share(4, 16, &wishes(&[500, 500, 1])), [2, 1, 1]);
        assert!(share(64, 16, &[]).is_empty());
    }

    #[test]
    fn those_who_waited_are_first_when_rows_are_few() {
        let wish = |served| Wish { pending: 1, served };
        assert_eq!(share(2, 16, &[wish(5), wish(5), wish(4), wish(3)]), [0, 0, 1, 1]);
    }

    #[test]
    fn outputs_are_rows_too() {
        assert_eq!(share(64, 1, &wishes(&[1, 10, 1])), [1, 9, 0]);
    }

    proptest! {
        #[test]
        fn rows_are_used_up_and_no_more(
            rows in 1usize..100,
            outputs in 1usize..20,
            pending in prop::collection::vec((1usize..50, 0u64..4), 1..40),
        ) {
            let wishes: Vec<Wish> = pending.iter().map(|&(pending, served)| Wish { pending, served }).collect();
            let given = share(rows, outputs, &wishes);
            let sum: usize = given.iter().sum();
            let done = given.iter().zip(&wishes).filter(|(given, wish)| **given == wish.pending).count();
            prop_assert!(sum <= rows && done <= outputs);
            prop_assert!(given.iter().zip(&wishes).all(|(given, wish)| *given <= wish.pending));
            // Rows are left over only if nobody can use them.
            let idle = given.iter().zip(&wishes).any(|(given, wish)| given + 1 < wish.pending);
            prop_assert!(sum == rows || !idle);
            prop_assert!(sum > 0);
        }
    }
}
