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
mod update;

use bpf::{Alu, Cond, Insn, Label, Reg, Size};
use maps::{Kind, MapInfo, Places};

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{Field, Map};

/// A function on a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Function {
    /// Copies the key and hashes it.
    Key,
    /// Whether an entry (`R1`) has the key; `R2` is the context.
    Same,
    /// Finds the entry in the copy at `CopyAt`.
    Find,
    /// The same, and makes it if there is none.
    Ensure,
    /// The entry in this processor's copy.
    Entry,
    /// Counts an update that is lost.
    Lose,
    Update,
    Load,
    Fetch,
    Store,
    Put,
    Bump,
    Erase,
    Has,
    /// The number of a stack.
    Intern,
}

/// Nothing was found, or there is no room.
const NONE: i32 = 0;
/// It was done.
const DONE: i32 = 1;
/// It must be done again.
pub(crate) const AGAIN: i32 = 2;

/// A map, and where its parts are, in bytes.
#[derive(Clone, Copy, Debug)]
struct Shape {
    number: u16,
    info: MapInfo,
    places: Places,
    /// The first word of copy 0: how many updates were lost.
    lost: i32,
    /// Bytes of a copy.
    copy: i32,
    /// The first bucket of copy 0.
    table: i32,
    /// The value of a map without keys.
    value: i32,
    bucket: i32,
    entry: i32,
    /// The value in an entry.
    value_in_entry: i32,
    value_bytes: i32,
}

impl Shape {
    fn of(number: u16, info: &MapInfo) -> Shape {
        let places = info.places();
        let bytes = |words: usize| 8 * words as i32;
        let lost = bytes(info.place as usize);
        Shape {
            number,
            info: *info,
            places,
            lost,
            copy: bytes(info.words as usize),
            table: lost + bytes(places.table),
            value: lost + bytes(places.value),
            bucket: bytes(places.bucket_words),
            entry: bytes(places.entry_words),
            value_in_entry: bytes(1 + places.key_words),
            value_bytes: bytes(places.value_words),
        }
    }

    fn kind(&self) -> Kind {
        self.info.kind()
    }

    fn copies(&self) -> i32 {
        self.info.copies.max(1) as i32
    }

    fn is_keyed(&self) -> bool {
        self.info.key > 0
    }

    /// The first bucket of the last copy.
    fn last_table(&self) -> i32 {
        self.table + (self.copies() - 1) * self.copy
    }

    /// The place of the last bucket of all copies.
    fn last_bucket(&self) -> i32 {
        self.last_table() + (self.places.buckets as i32 - 1) * self.bucket
    }

    /// The place of the last entry of all copies.
    fn last_entry(&self) -> i32 {
        self.last_bucket() + 8 + (maps::LANES as i32 - 1) * self.entry
    }
}

impl Compiler<'_> {
    /// The label of a function, which is emitted later.
    pub(crate) fn table_function(&mut self, function: Function, map: u16) -> Label {
        let Compiler { table_functions, e, .. } = self;
        *table_functions.entry((function, map)).or_insert_with(|| e.asm.label())
    }

    /// Calls a function with the context.
    pub(crate) fn call_table(&mut self, function: Function, map: u16) {
        let label = self.table_function(function, map);
        self.e.mov(Reg::R1, CONTEXT);
        self.e.asm.call_function(label);
    }

    /// Emits the functions that are used, and those that these use.
    pub(crate) fn emit_table_functions(&mut self) {
        let mut done = Vec::new();
        loop {
            let next = self.table_functions.iter().find(|(key, _)| !done.contains(*key));
            let Some((&(function, map), &label)) = next else { return };
            done.push((function, map));
            let shape = Shape::of(map, &self.handler.tables.infos[usize::from(map)]);
            self.e.asm.function(label);
            if function != Function::Same {
                self.e.mov(CONTEXT, Reg::R1);
            }
            match function {
                Function::Key => key::key(self, &shape),
                Function::Same => find::same(self, &shape),
                Function::Find => find::find(self, &shape),
                Function::Ensure => insert::ensure(self, &shape),
                Function::Entry => entry::entry(self, &shape),
                Function::Lose => entry::lose(self, &shape),
                Function::Update => update::update(self, &shape),
                Function::Load => number::load(self, &shape),
                Function::Fetch => operation::fetch(self, &shape),
                Function::Store => operation::store(self, &shape),
                Function::Put => operation::put(self, &shape),
                Function::Bump => operation::bump(self, &shape),
                Function::Erase => operation::erase(self, &shape),
                Function::Has => operation::has(self, &shape),
                Function::Intern => operation::intern(self, &shape),
            }
        }
    }

    /// Ends a function with a result.
    fn give(&mut self, result: i32) {
        self.e.mov(Reg::R0, result);
        self.e.asm.exit();
    }

    /// `dst` = the address of the byte `place`, a register that the verifier knows a bound of.
    fn in_tables(&mut self, dst: Reg, place: Reg) {
        self.e.map_value(dst, Map::Tables, 0);
        self.e.alu(Alu::Add, dst, place);
    }

    /// `dst` = a place that a field says. The verifier sees that it is one of a word.
    fn place(&mut self, dst: Reg, field: Field) {
        self.e.get(dst, field);
        self.e.alu(Alu::And, dst, -8);
    }

    /// `dst` = the address of what a field says, which is at most `last`; else jumps.
    fn found(&mut self, dst: Reg, field: Field, last: i32, bad: Label) {
        self.place(Reg::R0, field);
        self.e.jump_if(Cond::Gt, Reg::R0, last, bad);
        self.in_tables(dst, Reg::R0);
    }

    /// `dst` = this processor's copy, times its size. Uses no other register.
    fn own_copy(&mut self, dst: Reg, shape: &Shape) {
        self.e.get(dst, Field::Cpu);
        self.e.asm.push(Insn::mov32(dst, dst));
        let bounded = self.e.asm.label();
        // As in crate `maps`; the verifier takes no bound from it.
        self.e.alu(Alu::Mod, dst, shape.copies());
        self.e.jump_if(Cond::Lt, dst, shape.copies(), bounded);
        self.e.mov(dst, 0);
        self.e.asm.bind(bounded);
        self.e.alu(Alu::Mul, dst, shape.copy);
    }

    /// Atomically adds a register to a word, and counts a change of the bucket.
    fn change_control(&mut self, control: Reg, by: Reg, change: Reg) {
        self.e.number(change, maps::CHANGE);
        self.e.alu(Alu::Add, by, change);
        self.e.asm.push(Insn::atomic(bpf::Atomic::FetchAdd, Size::Double, control, 0, by));
    }
}
