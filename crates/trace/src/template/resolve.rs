//! Finds the values that conditions name: earlier values of the same group, or of one around it.

use std::collections::HashMap;

use super::condition::{MOST, SLOTS};
use super::control::{Item, Width};
use super::fields::Namer;

/// Why a condition cannot be used.
#[derive(Debug)]
pub(super) struct Unresolved {
    /// Which condition of the template it is, from 0 on.
    pub(super) condition: usize,
    pub(super) message: String,
    pub(super) expected: String,
}

/// Gives each value that a condition names a slot, and each condition the slot of its value.
pub(super) fn resolve(items: &mut [Item]) -> Vec<Unresolved> {
    let mut resolver = Resolver::default();
    resolver.scopes.push(Scope::default());
    resolver.sequence(items);
    let problems = std::mem::take(&mut resolver.problems);
    drop(resolver);
    note_slots(items);
    problems
}

#[derive(Default)]
struct Resolver<'i> {
    /// The groups that are open, the innermost last.
    scopes: Vec<Scope<'i>>,
    /// How many slots are used.
    slots: usize,
    /// How many conditions there were.
    conditions: usize,
    problems: Vec<Unresolved>,
}

/// The values of a group up to some item.
#[derive(Default)]
struct Scope<'i> {
    namer: Namer,
    known: HashMap<String, Known<'i>>,
}

/// A value with a name.
enum Known<'i> {
    Integer { slot: &'i mut Option<u8>, width: Width, is_signed: bool },
    Other,
}

impl<'i> Resolver<'i> {
    /// Resolves the items of a group.
    fn sequence(&mut self, items: &'i mut [Item]) {
        for item in items {
            if let Item::Conditional(condition, part) = item {
                let number = self.conditions;
                self.conditions += 1;
                match self.find(&condition.name, &condition.numbers) {
                    _ if number >= MOST => self.refuse(
                        number,
                        "this template has too many conditions".to_owned(),
                        format!("at most {MOST} expected"),
                    ),
                    Ok((slot, is_signed)) => (condition.slot, condition.is_signed) = (slot, is_signed),
                    Err((message, expected)) => self.refuse(number, message, expected),
                }
                self.sequence(&mut part.items);
                continue;
            }
            let Some(scope) = self.scopes.last_mut() else { return };
            let name = scope.namer.next(item).map(|field| field.name);
            let known = match item {
                Item::Control(single) | Item::Prefixed(single) => match single.control.integer() {
                    Some((width, is_signed)) => Known::Integer { slot: &mut single.slot, width, is_signed },
                    None => Known::Other,
                },
                Item::Group(part) | Item::Repeated(part) => {
                    self.scopes.push(Scope::default());
                    self.sequence(&mut part.items);
                    self.scopes.pop();
                    Known::Other
                }
                _ => Known::Other,
            };
            if let (Some(name), Some(scope)) = (name, self.scopes.last_mut()) {
                scope.known.insert(name, known);
            }
        }
    }

    /// The slot of the value with this name, and whether it is signed.
    fn find(&mut self, name: &str, numbers: &[i128]) -> Result<(u8, bool), (String, String)> {
        let found = self.scopes.iter_mut().rev().find_map(|scope| scope.known.get_mut(name));
        match found {
            Some(Known::Integer { slot, width, is_signed }) => {
                let bits = width.bytes(8) * 8;
                let (least, most) = match is_signed {
                    true => (-1i128 << (bits - 1), (1i128 << (bits - 1)) - 1),
                    false => (0, (1i128 << bits) - 1),
                };
                // The bits of a signed number may be written as those of an unsigned one.
                if let Some(number) = numbers.iter().find(|&&number| number < least || number >> bits > 0) {
                    let message = format!("`{name}` is never {number}");
                    return Err((message, format!("a number from {least} to {most} expected")));
                }
                let slot = match slot {
                    Some(slot) => *slot,
                    None if self.slots == SLOTS => {
                        let message = "the conditions of this template ask for too many values".to_owned();
                        return Err((message, format!("at most {SLOTS} expected")));
                    }
                    None => {
                        let next = self.slots as u8;
                        self.slots += 1;
                        *slot.insert(next)
                    }
                };
                Ok((slot, *is_signed))
            }
            Some(Known::Other) => Err((
                format!("`{name}` is no integer"),
                "the name of a value of `%d`, `%u`, `%x` or `%m` expected".to_owned(),
            )),
            None => Err((format!("no value before it is called `{name}`"), self.names())),
        }
    }

    /// The names that a condition could have here, for a message.
    fn names(&self) -> String {
        let known = self.scopes.iter().flat_map(|scope| &scope.known);
        let integers = known.filter(|(_, known)| matches!(known, Known::Integer { .. }));
        let mut names: Vec<String> = integers.map(|(name, _)| format!("`{name}`")).collect();
        names.sort();
        match names.as_slice() {
            [] => "an integer before it expected, with its name in front, as in `kind=%u`".to_owned(),
            [only] => format!("{only} expected"),
            [first @ .., last] if names.len() <= 8 => format!("{} or {last} expected", first.join(", ")),
            _ => "a name expected that `dprobes templates list` shows".to_owned(),
        }
    }

    fn refuse(&mut self, condition: usize, message: String, expected: String) {
        self.problems.push(Unresolved { condition, message, expected });
    }
}

/// Tells each condition which slots its group fills, once all slots are given.
fn note_slots(items: &mut [Item]) -> u16 {
    let mut slots = 0;
    for item in items {
        slots |= match item {
            Item::Control(single) | Item::Prefixed(single) => single.slot.map_or(0, |slot| 1 << slot),
            Item::Conditional(condition, part) => {
                condition.inside = note_slots(&mut part.items);
                condition.inside
            }
            Item::Group(part) | Item::Repeated(part) => note_slots(&mut part.items),
            Item::Literal(_) | Item::Prefix => 0,
        };
    }
    slots
}
