//! The templates of a conversion: those of a directory, or those stored in the trace.

use trace::store::Info;
use trace::template::{StoredTemplates, Template, Templates};

/// The templates for records, by program and codes.
#[derive(Clone, Debug)]
pub struct TemplateSet {
    directory: Option<Templates>,
    own: StoredTemplates,
}

impl TemplateSet {
    /// The templates of a directory, supplemented by those of the trace. Templates of the trace
    /// that do not compile are ignored.
    pub fn new(directory: Option<Templates>, info: &Info) -> TemplateSet {
        let own = info.templates.iter().filter_map(|stored| {
            let format = stored.format.as_deref();
            let template = Template::compile(stored.major, stored.minor, &stored.description, format).ok()?;
            Some((stored.program, template))
        });
        TemplateSet { directory, own: StoredTemplates::of(own) }
    }

    /// The templates for all programs; those of the directory come last, and take precedence.
    pub fn common(&self) -> impl Iterator<Item = &Template> {
        let directory = self.directory.iter().flat_map(Templates::templates);
        self.own.common().templates().chain(directory).map(|(_, template)| template)
    }

    /// The templates of single programs, by program, without those that the directory replaces.
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

    /// The template of the directory.
    fn given(&self, major: u32, minor: u32) -> Option<&Template> {
        self.directory.as_ref()?.get(major, minor)
    }
}
