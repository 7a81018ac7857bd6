//! Maps of scripts: what crate `maps` does on their words, as functions of a program.
//!
//! ```text
//!     instruction: pops, checks; A, B = the key's place and length, C = a number or a place
//!       operation(context) -> R0, D = the result
//!         key:    the key to a place of its own; hash, tag, buckets
//!         entry:  the entry in this processor's copy, which is made if there is none
//!           ensure: the same in one copy
//!             find: the entry in one copy
//! ```
//!
//! A function's result is 0 if there is no entry or no room for one, 1 if all went well, and 2 if
//! others are changing what it needs: then the instruction begins again in the next step, as often
//! as [`TRIES`](crate::scripts::TRIES). What a function has found is in fields, and is checked anew
//! where it is used: so the verifier sees one state wherever paths meet.

mod entry;
mod find;
mod insert;
mod key;
mod number;
mod operation;
mod shape;
mod update;

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::table_function::Function;
use bpf::Reg;
use maps::Kind;
pub(crate) use shape::AGAIN;
use shape::Shape;

/// Whether updates of such a map add to the words of its value.
pub(crate) fn adds_words(kind: Kind) -> bool {
    !matches!(kind, Kind::Plain | Kind::Tseries | Kind::Stacks)
}

/// Adds `R8` to the value of a map without keys. `processor`: a register that has its number, which
/// is changed, as are all others but `R6` and `R7`.
pub(crate) fn update_single(c: &mut Compiler<'_>, map: u16, processor: Reg) {
    let shape = Shape::of(map, &c.handler.tables.infos[usize::from(map)]);
    update::single(c, &shape, processor);
}

/// Emits the functions that are used, and those that these use.
pub(crate) fn emit(c: &mut Compiler<'_>) {
    let mut done = Vec::new();
    loop {
        let next = c.table_functions.iter().find(|(key, _)| !done.contains(*key));
        let Some((&(function, map), &label)) = next else { return };
        done.push((function, map));
        let shape = Shape::of(map, &c.handler.tables.infos[usize::from(map)]);
        c.e.asm.function(label);
        if function != Function::Same {
            c.e.mov(CONTEXT, Reg::R1);
        }
        match function {
            Function::Key => key::key(c, &shape),
            Function::Same => find::same(c, &shape),
            Function::Find => find::find(c, &shape),
            Function::Ensure => insert::ensure(c, &shape),
            Function::Entry => entry::entry(c, &shape),
            Function::Lose => entry::lose(c, &shape),
            Function::Update => update::update(c, &shape),
            Function::Load => number::load(c, &shape),
            Function::Fetch => operation::fetch(c, &shape),
            Function::Store => operation::store(c, &shape),
            Function::Put => operation::put(c, &shape),
            Function::Bump => operation::bump(c, &shape),
            Function::Erase => operation::erase(c, &shape),
            Function::Has => operation::has(c, &shape),
            Function::Intern => operation::intern(c, &shape),
        }
    }
}
