//! The versions of a program, one compiled for each machine.
//!
//! An x86-64 system runs processes of two machines, with different word sizes and registers. One
//! text is compiled for both, but inserted as one program, with common counts and variables. A
//! variable has 64 bits. An i386 handler reads and writes its low half; carries and borrows of its
//! increments and decrements are visible to x86-64 handlers in the full number.

use image::Machine;
use rpn::{Arch, Object};
use vm::Word;

use crate::reason::NoVersion;

/// A program compiled for x86-64, for i386, or for both.
#[derive(Clone, Debug)]
pub struct Versions {
    /// The version that reports show.
    main: Object,
    /// The version for the other machine, or why there is none.
    other: Result<Box<Object>, NoVersion>,
    /// Why the processes of the main version's machine are refused, if so.
    refused: Option<NoVersion>,
}

impl Versions {
    /// A program for one machine only; `reason` says why there is no version for the other.
    pub fn only(object: Object, reason: impl Into<String>) -> Versions {
        Versions { main: object, other: Err(NoVersion::Given(reason.into())), refused: None }
    }

    /// A program compiled from one text for both machines, or the reason why it could not be for
    /// the other. `main` is the version that reports show.
    pub fn of_text(main: Object, other: Result<Object, impl Into<String>>) -> Versions {
        let points =
            |object: &Object| object.probes.iter().map(|probe| probe.point.clone()).collect::<Vec<_>>();
        let like_main = |other: &Object| {
            (&other.module, other.vars, points(other)) == (&main.module, main.vars, points(&main))
        };
        let other = match other {
            Ok(other) if !like_main(&other) => Err(NoVersion::OtherProbes(other.arch)),
            Ok(other) => Ok(Box::new(other)),
            Err(reason) => Err(NoVersion::Given(reason.into())),
        };
        Versions { main, other, refused: None }
    }

    /// The same program with another name for its module.
    pub fn of_module(mut self, module: &str) -> Versions {
        module.clone_into(&mut self.main.module);
        if let Ok(other) = &mut self.other {
            module.clone_into(&mut other.module);
        }
        self
    }

    /// The version that reports show. All versions have its module name, and its probes by index.
    pub fn main(&self) -> &Object {
        &self.main
    }

    /// The version for the processes of a machine.
    ///
    /// # Errors
    /// Why the program is not for that machine.
    pub fn of(&self, machine: Machine) -> Result<&Object, NoVersion> {
        if machine_of(self.main.arch) == Some(machine) {
            return self.refused.clone().map_or(Ok(&self.main), Err);
        }
        match &self.other {
            Ok(other) if machine_of(other.arch) == Some(machine) => Ok(other),
            Ok(_) => Err(NoVersion::OtherMachine),
            Err(reason) => Err(reason.clone()),
        }
    }

    /// Refuses the processes of a machine from now on.
    pub fn refuse(&mut self, machine: Machine, reason: impl Into<String>) {
        match machine_of(self.main.arch) == Some(machine) {
            true => self.refused = Some(NoVersion::Given(reason.into())),
            false => self.other = Err(NoVersion::Given(reason.into())),
        }
    }

    /// The version for code with this word size. Only placed versions are hit.
    pub(crate) fn of_word(&self, word: Word) -> &Object {
        match &self.other {
            Ok(other) if other.word() == word => other,
            _ => &self.main,
        }
    }

    /// All versions.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Object> {
        std::iter::once(&self.main).chain(self.other.as_deref())
    }

    /// The widest word of the versions, which is that of the variables.
    pub fn widest_word(&self) -> Word {
        match &self.other {
            Ok(other) if other.word() == Word::W8 => Word::W8,
            _ => self.main.word(),
        }
    }

    /// The largest number of global variables that a version asks for.
    pub fn gvars(&self) -> u16 {
        self.other.as_ref().map_or(0, |other| other.gvars).max(self.main.gvars)
    }
}

/// The machine of a version, if it is one that is probed here.
fn machine_of(arch: Arch) -> Option<Machine> {
    match arch {
        Arch::X86_64 => Some(Machine::X86_64),
        Arch::I386 => Some(Machine::I386),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str, arch: Arch) -> Object {
        let options = rpn::Options { arch, ..rpn::Options::default() };
        rpn::compile_text("test.rpn", text, &options).expect("it compiles").object
    }

    fn given(reason: &str) -> NoVersion {
        NoVersion::Given(reason.to_owned())
    }

    const TEXT: &str = "name = a\nmodtype = user\nvars = 1\noffset = f\ninc lv, 0\nexit\n";

    #[test]
    fn each_machine_has_its_version() {
        let mut both =
            Versions::of_text(object(TEXT, Arch::X86_64), Ok::<_, String>(object(TEXT, Arch::I386)));
        assert_eq!(both.of(Machine::X86_64).map(|object| object.arch), Ok(Arch::X86_64));
        assert_eq!(both.of(Machine::I386).map(|object| object.arch), Ok(Arch::I386));
        assert!(both.of(Machine::Other(2)).is_err());
        assert_eq!((both.of_word(Word::W4).arch, both.of_word(Word::W8).arch), (Arch::I386, Arch::X86_64));
        let renamed = both.clone().of_module("b");
        assert!(renamed.all().all(|object| object.module == "b") && renamed.all().count() == 2);
        both.refuse(Machine::X86_64, "no");
        assert_eq!(both.of(Machine::X86_64), Err(given("no")));
        assert!(both.of(Machine::I386).is_ok());
        both.refuse(Machine::I386, "neither");
        assert_eq!(both.of(Machine::I386), Err(given("neither")));
    }

    #[test]
    fn what_there_is_for_one_machine_is_refused_to_the_other() {
        let one = Versions::only(object(TEXT, Arch::I386), "built for i386");
        assert_eq!(one.of(Machine::X86_64), Err(given("built for i386")));
        assert_eq!((one.widest_word(), one.of_word(Word::W4).arch), (Word::W4, Arch::I386));
        let more = format!("{TEXT}offset = g\nexit\n");
        let unlike =
            Versions::of_text(object(TEXT, Arch::X86_64), Ok::<_, String>(object(&more, Arch::I386)));
        assert_eq!(unlike.of(Machine::I386), Err(NoVersion::OtherProbes(Arch::I386)));
    }
}
