//! Leaves out what is never executed: the verifier refuses programs that contain it.

use crate::item::{Item, Items};
use crate::label::AssembleError;

/// The items that can be reached from the program's begin. Labels of others are unbound.
///
/// # Errors
/// If the last item of a function that is reached falls through to the next function.
pub(crate) fn without_dead_code(items: &Items) -> Result<Items, AssembleError> {
    let reached = reached(items)?;
    // For each item, how many that are kept come before it.
    let mut kept_before = Vec::with_capacity(reached.len());
    let mut list = Vec::with_capacity(reached.len());
    for (&item, &keep) in items.list.iter().zip(&reached) {
        kept_before.push(list.len());
        if keep {
            list.push(item);
        }
    }
    let kept = |place: usize| reached.get(place).is_some_and(|&keep| keep);
    let labels =
        items.labels.iter().map(|place| place.filter(|&p| kept(p)).map(|p| kept_before[p])).collect();
    let functions = items.functions.iter().filter(|&&first| kept(first)).map(|&first| kept_before[first]);
    let functions = functions.collect();
    let sources = items.sources.iter();
    let moved = |first: usize| kept_before.get(first).copied().unwrap_or(list.len());
    let sources = sources.map(|&(first, source)| (moved(first), source)).collect();
    Ok(Items { list, labels, functions, sources })
}

/// For each item whether it can be executed.
fn reached(items: &Items) -> Result<Vec<bool>, AssembleError> {
    let mut reached = vec![false; items.list.len()];
    let mut open = vec![0];
    if items.list.is_empty() {
        return Err(AssembleError::NoEnd(0));
    }
    while let Some(place) = open.pop() {
        if std::mem::replace(&mut reached[place], true) {
            continue;
        }
        let item: Item = items.list[place];
        if let Some(label) = item.label() {
            open.push(items.item_of(label)?);
        }
        if item.falls_through() {
            if place + 1 == items.function(place).end {
                return Err(AssembleError::NoEnd(place));
            }
            open.push(place + 1);
        }
    }
    Ok(reached)
}
