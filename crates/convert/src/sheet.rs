//! The templates of a conversion: those of a directory, or those that the trace itself has kept.

use trace::store::Info;
use trace::template::{Template, Templates};

/// What the bytes of records mean, by their codes.
#[derive(Clone, Debug)]
pub struct Sheet {
    directory: Option<Templates>,
    own: Templates,
}

impl Sheet {
    /// The templates of a directory, and for the rest those of the trace. One of the trace that makes no sense is as good as none.
    pub fn new(directory: Option<Templates>, info: &Info) -> Sheet {
        let own = info.templates.iter().filter_map(|stored| {
            let format = stored.format.as_deref();
            Template::compile(stored.major, stored.minor, &stored.description, format).ok()
        });
        Sheet { directory, own: Templates::of(own) }
    }

    /// All templates. Of two for the same codes, the one that is used comes last.
    pub fn all(&self) -> impl Iterator<Item = &Template> {
        let directory = self.directory.iter().flat_map(Templates::templates);
        self.own.templates().chain(directory).map(|(_, template)| template)
    }

    /// The template for records with these codes.
    pub fn get(&self, major: u32, minor: u32) -> Option<&Template> {
        let directory = self.directory.as_ref().and_then(|directory| directory.get(major, minor));
        directory.or_else(|| self.own.get(major, minor))
    }
}
