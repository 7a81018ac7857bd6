//! The templates that a store has kept.

use std::collections::HashMap;

use super::definition::Template;
use super::directory::Templates;

/// The templates of several programs. Each program's records are shown by its own templates,
/// whatever others have for the same codes.
#[derive(Clone, Debug)]
pub struct StoredTemplates {
    /// For the programs that have no template of their own for these codes.
    common: Templates,
    own: HashMap<u32, Templates>,
}

impl StoredTemplates {
    /// Templates with the numbers of their programs; none stands for all programs without one of
    /// their own. Of two of a program for the same codes, the last counts.
    pub fn of(templates: impl IntoIterator<Item = (Option<u32>, Template)>) -> StoredTemplates {
        let mut programs: HashMap<Option<u32>, Vec<Template>> = HashMap::new();
        for (program, template) in templates {
            programs.entry(program).or_default().push(template);
        }
        let common = Templates::of(programs.remove(&None).unwrap_or_default());
        let own = programs.into_iter().filter_map(|(program, own)| Some((program?, Templates::of(own))));
        StoredTemplates { common, own: own.collect() }
    }

    /// The template for records of a program with these codes.
    pub fn get(&self, program: u32, major: u32, minor: u32) -> Option<&Template> {
        let own = self.own.get(&program).and_then(|own| own.get(major, minor));
        own.or_else(|| self.common.get(major, minor))
    }

    /// The templates that belong to no program.
    pub fn common(&self) -> &Templates {
        &self.common
    }

    /// The templates of each program that has some.
    pub fn of_programs(&self) -> impl Iterator<Item = (u32, &Templates)> {
        self.own.iter().map(|(program, own)| (*program, own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_the_same_codes_keep_their_own() {
        let template = |program, minor, description| {
            (program, Template::compile(1, minor, description, None).expect("it is right"))
        };
        let kept = StoredTemplates::of([
            template(Some(1), 1, "of one"),
            template(Some(2), 1, "of two"),
            template(None, 1, "of all"),
            template(None, 2, "of all, too"),
            template(Some(2), 2, "first"),
            template(Some(2), 2, "last"),
        ]);
        let of = |program, minor| kept.get(program, 1, minor).map(|template| template.description.as_str());
        assert_eq!((of(1, 1), of(2, 1), of(3, 1)), (Some("of one"), Some("of two"), Some("of all")));
        assert_eq!((of(1, 2), of(2, 2), of(1, 3)), (Some("of all, too"), Some("last"), None));
    }
}
