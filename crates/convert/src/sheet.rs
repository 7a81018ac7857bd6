//! The templates of a conversion: those of a directory, or those that the trace itself has kept.

use trace::store::Info;
use trace::template::{Kept, Template, Templates};

/// What the bytes of records mean, by their programs and codes.
#[derive(Clone, Debug)]
pub struct Sheet {
    directory: Option<Templates>,
    own: Kept,
}

impl Sheet {
    /// The templates of a directory, and for the rest those of the trace. One of the trace that makes no sense is as good as none.
    pub fn new(directory: Option<Templates>, info: &Info) -> Sheet {
        let own = info.templates.iter().filter_map(|stored| {
            let format = stored.format.as_deref();
            let template = Template::compile(stored.major, stored.minor, &stored.description, format).ok()?;
            Some((stored.program, template))
        });
        Sheet { directory, own: Kept::of(own) }
    }

    /// The templates that are for all programs, those of the directory last: they count before all others.
    pub fn common(&self) -> impl Iterator<Item = &Template> {
        let directory = self.directory.iter().flat_map(Templates::templates);
        self.own.common().templates().chain(directory).map(|(_, template)| template)
    }

    /// The templates that only one program has, and that the directory has no others for, by program.
    pub fn of_programs(&self) -> impl Iterator<Item = (u32, impl Iterator<Item = &Template>)> {
        self.own.of_programs().map(|(program, own)| {
            let own = own.templates().map(|(_, template)| template);
            (program, own.filter(|template| self.given(template.major, template.minor).is_none()))
        })
    }

    /// The template for records of a program with these codes.
    pub fn get(&self, program: u32, major: u32, minor: u32) -> Option<&Template> {
        self.given(major, minor).or_else(|| self.own.get(program, major, minor))
    }

    /// That of the directory.
    fn given(&self, major: u32, minor: u32) -> Option<&Template> {
        self.directory.as_ref()?.get(major, minor)
    }
}
