//! The shortest and plainest life that still fails in the same way.

use std::ops::Range;

use crate::judge::Failure;
use crate::steps::Life;

/// Parts of a length: the whole, halves, quarters and so on, the last first.
fn parts(length: usize) -> impl Iterator<Item = Range<usize>> {
    let sizes = std::iter::successors(Some(length), |size| (*size > 1).then(|| size.div_ceil(2)));
    sizes.filter(|size| *size > 0).flat_map(move |size| {
        let starts = (0..length).step_by(size).rev();
        starts.map(move |start| start..(start + size).min(length))
    })
}

/// Removes steps, and makes smaller the choices behind those that stay, while the life fails with the same kind.
pub fn shortest(mut life: Life, mut failure: Failure, fails: impl Fn(&Life) -> Option<Failure>) -> (Life, Failure) {
    let mut try_with = |life: &mut Life, change: &dyn Fn(&mut Life)| {
        let mut changed = life.clone();
        change(&mut changed);
        if changed != *life
            && let Some(other) = fails(&changed).filter(|other| other.kind == failure.kind)
        {
            (*life, failure) = (changed, other);
        }
    };
    loop {
        let before = life.clone();
        for part in parts(life.len()) {
            if part.end <= life.len() {
                try_with(&mut life, &|life| drop(life.drain(part.clone())));
            }
        }
        for step in 0..life.len() {
            for part in parts(life[step].len()) {
                try_with(&mut life, &|life| life[step][part.clone()].fill(0));
            }
            for choice in 0..life[step].len() {
                try_with(&mut life, &|life| life[step][choice] /= 2);
            }
        }
        if life == before {
            return (life, failure);
        }
    }
}
