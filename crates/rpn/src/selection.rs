//! Selects the probes of a program to use, by group and type.

use source::{nearest, quote};

use crate::object::Object;

/// The selected groups and types (`--group` and `--type` of dprobes(8); dprobes.lang, example 6).
/// An empty list selects everything; a probe must be selected by both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names of groups.
    pub groups: Vec<String>,
    /// Names of types.
    pub types: Vec<String>,
}

impl Selection {
    /// Whether all probes are selected.
    pub fn is_all(&self) -> bool {
        self.groups.is_empty() && self.types.is_empty()
    }

    /// Removes the probes that are not selected, and returns their number.
    ///
    /// # Errors
    ///
    /// The program does not define such a group or type, or no probe is left. The object is
    /// unchanged.
    pub fn apply(&self, object: &mut Object) -> Result<usize, String> {
        known(&self.groups, &object.groups, "group")?;
        known(&self.types, &object.types, "type")?;
        let wanted = |names: &[String], name: &Option<String>| {
            names.is_empty() || name.as_deref().is_some_and(|name| contains(names, name))
        };
        let kept: Vec<bool> = object
            .probes
            .iter()
            .map(|probe| wanted(&self.groups, &probe.group) && wanted(&self.types, &probe.kind))
            .collect();
        let left = kept.iter().filter(|kept| **kept).count();
        if left == 0 && !self.is_all() {
            return Err(format!("no probe of the program is {}", self.described()));
        }
        let removed = kept.len() - left;
        let mut kept = kept.into_iter();
        object.probes.retain(|_| kept.next().unwrap_or(true));
        Ok(removed)
    }

    fn described(&self) -> String {
        let list = |names: &[String]| names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(" or ");
        match (self.groups.as_slice(), self.types.as_slice()) {
            (groups, []) => format!("in the group {}", list(groups)),
            ([], types) => format!("of the type {}", list(types)),
            (groups, types) => format!("in the group {} and of the type {}", list(groups), list(types)),
        }
    }
}

/// Names are case-insensitive, as everywhere in the language.
fn contains(names: &[String], name: &str) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

fn known(wanted: &[String], defined: &[String], what: &str) -> Result<(), String> {
    let Some(unknown) = wanted.iter().find(|name| !contains(defined, name)) else { return Ok(()) };
    let unknown_name = quote(unknown);
    if defined.is_empty() {
        return Err(format!("no {what} {unknown_name}: the program defines no {what}s (`{what}def =`)"));
    }
    let all = defined.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ");
    let hint = match nearest(unknown, defined.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean {}?", quote(near)),
        None => String::new(),
    };
    Err(format!("no {what} {unknown_name}; the program's {what}s are {all}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, compile_text};

    /// A small version of example 6 of dprobes.lang: groups and types crossed, and a probe that has
    /// neither.
    fn object() -> Object {
        let mut text =
            "name = a\nmodtype = user\ngroupdef = Process memory\ntypedef = enter leave\n".to_owned();
        for (point, group, kind) in [
            ("a", "process", "enter"),
            ("b", "process", "leave"),
            ("c", "memory", "enter"),
            ("d", "memory", "leave"),
        ] {
            text += &format!("offset = {point}\ngroup = {group}\ntype = {kind}\nexit\n");
        }
        text += "offset = e\nexit\n";
        compile_text("a.rpn", &text, &Options::default()).expect("it compiles").object
    }

    fn points(groups: &[&str], types: &[&str]) -> Result<String, String> {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let mut object = object();
        let selection = Selection { groups: names(groups), types: names(types) };
        let removed = selection.apply(&mut object)?;
        assert_eq!(removed + object.probes.len(), 5);
        Ok(object.probes.iter().map(|probe| probe.point.as_str()).collect())
    }

    #[test]
    fn groups_and_types_select_and_both_together_intersect() {
        assert_eq!(points(&[], &[]), Ok("abcde".into()));
        assert_eq!(points(&["process"], &[]), Ok("ab".into()));
        assert_eq!(points(&[], &["LEAVE"]), Ok("bd".into()));
        assert_eq!(points(&["process"], &["enter"]), Ok("a".into()));
        assert_eq!(points(&["PROCESS", "memory"], &["leave"]), Ok("bd".into()));
    }

    #[test]
    fn an_unknown_one_is_named_with_those_there_are() {
        assert_eq!(
            points(&["memroy"], &[]),
            Err("no group `memroy`; the program's groups are `Process`, `memory`; did you mean `memory`?"
                .into())
        );
        assert_eq!(
            points(&[], &["memory"]),
            Err("no type `memory`; the program's types are `enter`, `leave`".into())
        );
        let mut bare = Object { probes: object().probes, ..Object::default() };
        let selection = Selection { groups: vec!["x".into()], types: Vec::new() };
        assert_eq!(
            selection.apply(&mut bare),
            Err("no group `x`: the program defines no groups (`groupdef =`)".into())
        );
    }

    #[test]
    fn nothing_left_is_an_error_and_leaves_the_object() {
        let mut object = object();
        object.probes.retain(|probe| probe.point != "a");
        let before = object.clone();
        let selection = Selection { groups: vec!["process".into()], types: vec!["enter".into()] };
        let said = selection.apply(&mut object);
        assert_eq!(
            said,
            Err("no probe of the program is in the group `process` and of the type `enter`".into())
        );
        assert_eq!(object, before);
    }
}
