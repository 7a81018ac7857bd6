//! Which of the called functions return: results of single functions, propagated between them.
//!
//! In: the functions that are or may be called. Each is followed from its entry
//! (`return_address`). Out: [`Returns`]. A function that jumps at its end to another one (a tail
//! call) moves its return address if that one does, and returns if that one does.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use iced_x86::InstructionInfoFactory;

use super::return_address::{Follow, Summary};
use super::returns::Returns;
use super::walk::FlowAnalysis;

/// The most rounds in which results are propagated between functions.
const ROUNDS: usize = 64;

impl Returns {
    /// Analyzes all functions that are or may be called.
    pub(super) fn of(walk: &FlowAnalysis<'_>, functions: impl Iterator<Item = u64>) -> Returns {
        let mut summaries: HashMap<u64, Summary> = HashMap::new();
        let mut open: Vec<u64> = functions.collect();
        let mut factory = InstructionInfoFactory::new();
        while let Some(function) = open.pop() {
            if let Entry::Vacant(place) = summaries.entry(function) {
                let summary = place.insert(Follow::new(walk, &mut factory, function).run());
                open.extend(&summary.tails);
            }
        }
        // A function that jumps to one that moves its return address moves its own.
        for _ in 0..ROUNDS {
            let moving = |summary: &Summary| {
                let tail = |tail: &u64| summaries.get(tail).is_some_and(|tail| tail.moves);
                !summary.moves && summary.tails.iter().any(tail)
            };
            let more: Vec<u64> = summaries
                .iter()
                .filter(|(_, summary)| moving(summary))
                .map(|(function, _)| *function)
                .collect();
            if more.is_empty() {
                break;
            }
            more.iter().filter_map(|function| summaries.get_mut(function).map(|it| it.moves = true)).count();
        }
        let moved = summaries.values().any(|summary| summary.moves);
        let mut comes_back: HashMap<u64, bool> = summaries
            .iter()
            .map(|(&function, summary)| {
                (function, !summary.moves && (summary.returns || summary.leaves && !moved))
            })
            .collect();
        for _ in 0..ROUNDS {
            let more: Vec<u64> = summaries
                .iter()
                .filter(|(function, summary)| {
                    let tail = |tail: &u64| comes_back.get(tail) == Some(&true);
                    !summary.moves
                        && comes_back.get(function) == Some(&false)
                        && summary.tails.iter().any(tail)
                })
                .map(|(function, _)| *function)
                .collect();
            if more.is_empty() {
                break;
            }
            comes_back.extend(more.into_iter().map(|function| (function, true)));
        }
        let unknown: HashSet<u64> = summaries
            .iter()
            .filter(|(_, summary)| {
                let tail = |tail: &u64| summaries.get(tail).is_some_and(|tail| tail.unknown);
                !summary.moves && (summary.unknown || summary.tails.iter().any(tail))
            })
            .map(|(function, _)| *function)
            .collect();
        Returns { comes_back, unknown, is_lenient: false, moved }
    }
}
