//! PURE: assigns the calls that were made to the expected ones, so that as many expectations as possible are met in
//! whatever order calls and expectations come.

use std::collections::BTreeSet;

/// How often an expected call is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) least: usize,
    /// More calls are right, too.
    pub(super) or_more: bool,
}

/// The calls that were made, matched with the expected ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Matching {
    /// For each call that was made, whether it was expected.
    pub(super) right: Vec<bool>,
    /// For each expected call, how many are missing.
    pub(super) missing: Vec<usize>,
    /// The calls are first made in the order in which they are expected.
    pub(super) in_order: bool,
}

impl Matching {
    /// Matches calls. `fits` has, for each call that was made, the indices in `wanted` of those that it may be.
    pub(super) fn of(fits: &[Vec<usize>], wanted: &[Times]) -> Self {
        let may_be_more = |call: &usize| fits[*call].iter().any(|at| wanted[*at].or_more);
        let mut calls: Vec<usize> = (0..fits.len()).collect();
        // A call that is right in any case leaves its place to the others.
        calls.sort_by_key(may_be_more);
        let mut held = vec![Vec::new(); wanted.len()];
        let mut right = vec![false; fits.len()];
        for call in calls {
            let mut tried = vec![false; wanted.len()];
            let has_place = place(call, fits, wanted, &mut held, &mut tried);
            right[call] = has_place || may_be_more(&call);
        }
        let met: Vec<usize> = held.iter().map(Vec::len).collect();
        let expected = fits.iter().zip(&right).filter(|(_, right)| **right);
        let expected: Vec<&[usize]> = expected.map(|(fits, _)| fits.as_slice()).collect();
        Self {
            in_order: is_in_order(&expected, wanted, &met),
            missing: wanted
                .iter()
                .zip(&met)
                .map(|(times, met)| times.least - met)
                .collect(),
            right,
        }
    }
}

/// Assigns a call to an expected one, if need be by assigning others elsewhere. Whether it has found a place.
fn place(
    call: usize,
    fits: &[Vec<usize>],
    wanted: &[Times],
    held: &mut [Vec<usize>],
    tried: &mut [bool],
) -> bool {
    for &at in &fits[call] {
        if std::mem::replace(&mut tried[at], true) {
            continue;
        }
        if held[at].len() < wanted[at].least {
            held[at].push(call);
            return true;
        }
        for nth in 0..held[at].len() {
            if place(held[at][nth], fits, wanted, held, tried) {
                held[at][nth] = call;
                return true;
            }
        }
    }
    false
}

/// Whether all these calls can be expected ones, so that none is first made before one that is expected earlier. Each is
/// met as often as in `met`: no matching meets more.
fn is_in_order(calls: &[&[usize]], wanted: &[Times], met: &[usize]) -> bool {
    // How often each expected call may have been made so far.
    let mut counts = BTreeSet::from([vec![0; wanted.len()]]);
    for fits in calls {
        let mut after = BTreeSet::new();
        for (counts, &at) in counts
            .iter()
            .flat_map(|c| fits.iter().map(move |at| (c, at)))
        {
            // One before it would come too late, however it goes on.
            let mut before = counts[..at].iter().zip(met);
            let is_early = before.any(|(count, met)| *count == 0 && *met > 0);
            let is_full = counts[at] == met[at] && !(wanted[at].or_more && met[at] > 0);
            if !is_early && !is_full {
                let mut counts = counts.clone();
                counts[at] = met[at].min(counts[at] + 1);
                after.insert(counts);
            }
        }
        counts = after;
    }
    counts.contains(met)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONCE: Times = Times {
        least: 1,
        or_more: false,
    };
    const READ: Times = Times {
        least: 1,
        or_more: true,
    };

    fn matching(fits: &[&[usize]], wanted: &[Times]) -> Matching {
        let fits: Vec<Vec<usize>> = fits.iter().map(|fits| fits.to_vec()).collect();
        Matching::of(&fits, wanted)
    }

    #[test]
    fn a_call_leaves_its_place_to_one_that_fits_no_other() {
        let all = matching(&[&[0, 1], &[0]], &[ONCE, ONCE]);
        assert_eq!((all.right, all.missing), (vec![true; 2], vec![0; 2]));
        let all = matching(&[&[0, 1], &[1, 2], &[0], &[1]], &[ONCE; 3]);
        assert_eq!(all.right, [true, true, true, false], "the last is too much");
        assert_eq!(all.missing, [0; 3]);
        // The read is right in any case: the change has the only place that it fits.
        let all = matching(&[&[0, 1], &[0]], &[ONCE, READ]);
        assert_eq!((all.right, all.missing), (vec![true; 2], vec![0; 2]));
    }

    #[test]
    fn the_order_is_that_of_the_first_calls() {
        type Case<'a> = (&'a [&'a [usize]], &'a [Times], bool);
        let cases: [Case; 7] = [
            (&[&[0], &[1]], &[ONCE; 2], true),
            (&[&[1], &[0]], &[ONCE; 2], false),
            (&[&[0], &[0], &[1], &[0]], &[READ, ONCE], true),
            (&[&[1], &[0], &[1]], &[READ, READ], false),
            // A read that is repeated before the next call: it may be the later one of the two only at the end.
            (
                &[&[0, 2], &[0, 2], &[1], &[0, 2]],
                &[READ, ONCE, READ],
                true,
            ),
            (&[&[0, 2], &[0, 2], &[1]], &[READ, ONCE, READ], false),
            (&[&[1]], &[READ, ONCE], true),
        ];
        for (fits, wanted, in_order) in cases {
            let all = matching(fits, wanted);
            assert_eq!(all.in_order, in_order, "{fits:?}");
        }
    }

    /// Each set of expectations that may have been met was followed: twice as many with each further one.
    #[test]
    fn many_calls_that_fit_many_expectations_are_put_in_order_at_once() {
        let every: Vec<usize> = (0..200).collect();
        let all = Matching::of(&vec![every; 200], &[ONCE; 200]);
        assert_eq!((all.missing, all.in_order), (vec![0; 200], true));
    }

    /// As many are met as by the best of all ways to match them, and no more.
    #[test]
    fn no_other_way_meets_more() {
        fn best(fits: &[Vec<usize>], left: &mut [usize]) -> usize {
            let Some((first, rest)) = fits.split_first() else {
                return 0;
            };
            let mut most = best(rest, left);
            for &at in first {
                if left[at] > 0 {
                    left[at] -= 1;
                    most = most.max(1 + best(rest, left));
                    left[at] += 1;
                }
            }
            most
        }
        // Every way in which four calls fit any of three.
        for which in 0..1_usize << 12 {
            let fits: Vec<Vec<usize>> = (0..4_usize)
                .map(|call| {
                    (0..3_usize)
                        .filter(|at| (which >> (3 * call + at)) & 1 == 1)
                        .collect()
                })
                .collect();
            let times = |least, or_more| Times { least, or_more };
            let wanted = [times(1, true), times(2, false), times(1, false)];
            let all = Matching::of(&fits, &wanted);
            let met = 4 - all.missing.iter().sum::<usize>();
            assert_eq!(met, best(&fits, &mut [1, 2, 1]), "{fits:?}");
            let right = all.right.iter().filter(|right| **right).count();
            // Any number may be the read.
            assert_eq!(right, best(&fits, &mut [4, 2, 1]), "{fits:?}");
        }
    }
}
