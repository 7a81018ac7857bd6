//! The programs of a tracer, by number.
//!
//! A number is never reused, so late data of a forgotten program cannot be taken for another's.
//! Forgotten programs take no memory: a session may have any number of programs over time.

use std::ops::{Index, IndexMut};

use crate::counts::State;
use crate::program::{Probe, Program};

/// The programs that are not forgotten.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// The numbers, ascending, and the programs in the same order.
    numbers: Vec<usize>,
    programs: Vec<Program>,
    /// The next number.
    next: usize,
}

impl Programs {
    /// The hits by traps so far of each program's probes, with the program's number.
    pub(crate) fn traps(&self) -> impl Iterator<Item = (usize, impl Iterator<Item = u64>)> {
        self.iter().map(|(number, program)| (number, program.probes.iter().map(|probe| probe.counts.hits)))
    }

    /// Adds a program. Returns its number.
    pub(crate) fn push(&mut self, program: Program) -> usize {
        let number = self.next;
        self.next += 1;
        self.numbers.push(number);
        self.programs.push(program);
        number
    }

    /// A number that no program of these will have.
    pub(crate) fn reserve(&mut self) -> usize {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Removes the last program, which was never used. Its number is used again.
    pub(crate) fn pop(&mut self) {
        if let Some(number) = self.numbers.pop() {
            self.programs.pop();
            self.next = number;
        }
    }

    /// Removes a program.
    pub(crate) fn remove(&mut self, number: usize) -> Option<Program> {
        let place = self.index(number)?;
        self.numbers.remove(place);
        Some(self.programs.remove(place))
    }

    /// The index of a program.
    #[inline]
    fn index(&self, number: usize) -> Option<usize> {
        // As long as none was removed, each index is the number.
        match self.numbers.get(number) {
            Some(&there) if there == number => Some(number),
            _ => self.numbers.binary_search(&number).ok(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&Program> {
        self.index(number).map(|place| &self.programs[place])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Program> {
        self.index(number).map(|place| &mut self.programs[place])
    }

    /// The numbers, ascending.
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.numbers
    }

    /// The programs in the order of their numbers.
    pub(crate) fn values(&self) -> std::slice::Iter<'_, Program> {
        self.programs.iter()
    }

    /// The programs in the order of their numbers, mutable.
    pub(crate) fn values_mut(&mut self) -> std::slice::IterMut<'_, Program> {
        self.programs.iter_mut()
    }

    /// The numbers and the programs.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &Program)> {
        self.numbers.iter().copied().zip(&self.programs)
    }

    /// The states of the probes, by program and probe.
    pub(crate) fn states(&self) -> Vec<Vec<State>> {
        let of = |program: &Program| program.probes.iter().map(Probe::state).collect();
        self.values().map(of).collect()
    }

    /// Whether an inserted program makes threads wait when a ring has no room for a record.
    pub(crate) fn is_lossless(&self) -> bool {
        self.values().any(|program| program.options.lossless)
    }
}

impl Index<usize> for Programs {
    type Output = Program;

    #[inline]
    fn index(&self, number: usize) -> &Program {
        self.get(number).expect("a program is asked for as long as something of it is there")
    }
}

impl IndexMut<usize> for Programs {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut Program {
        self.get_mut(number).expect("a program is asked for as long as something of it is there")
    }
}

#[cfg(test)]
mod tests {
    use rpn::Object;

    use super::*;
    use crate::program::{Engine, Options};
    use crate::versions::Versions;

    fn program(name: &str) -> Program {
        let object = Object { module: name.to_owned(), ..Object::default() };
        let options = Options {
            engine: Engine::Trap,
            verify_opcodes: false,
            items: trace::Items::default(),
            lossless: false,
            max_dumps: 1,
            symbols: None,
            tables: None,
            semaphores: Vec::new(),
            lenient: false,
        };
        Program::new(Versions::only(object, ""), options, None, None)
    }

    #[test]
    fn a_number_is_never_anothers_and_takes_nothing_once_it_is_forgotten() {
        let mut programs = Programs::default();
        assert_eq!([programs.push(program("stays")), programs.push(program("looked at"))], [0, 1]);
        programs.pop();
        for number in 1..1000 {
            assert_eq!(programs.push(program("comes")), number);
            assert_eq!((programs[0].module(), programs[number].module()), ("stays", "comes"));
            assert!(programs.remove(number).is_some() && programs.remove(number).is_none());
            assert!(
                programs.get(number).is_none() && programs.get_mut(number - 1).is_some() == (number == 1)
            );
        }
        assert!(programs.numbers.capacity() < 10 && programs.programs.capacity() < 10);
        assert_eq!(programs.push(program("last")), 1000);
        assert_eq!(programs.numbers(), [0, 1000]);
        let all: Vec<(usize, &str)> = programs.iter().map(|(number, it)| (number, it.module())).collect();
        assert_eq!(all, [(0, "stays"), (1000, "last")]);
        programs.remove(0);
        assert_eq!((programs.get(0).is_none(), programs[1000].module()), (true, "last"));
    }
}
