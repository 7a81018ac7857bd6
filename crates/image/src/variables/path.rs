//! The name of a variable or of a part of one, taken apart.

use super::found::NoVariable;

/// The most parts of a name; deeper structures are not written by hand.
const PARTS: usize = 32;

/// A step from a variable to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A member of a structure or union.
    Member(String),
    /// An element of an array.
    Element(u64),
}

/// A name, taken apart: `FILE:VARIABLE.member[3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    text: String,
    file: Option<String>,
    variable: String,
    steps: Vec<Step>,
}

impl Path {
    /// # Errors
    /// It is not written like a name.
    pub(super) fn parse(text: &str) -> Result<Path, NoVariable> {
        let wrong = |problem| NoVariable::Syntax { name: text.to_owned(), problem };
        // A file's name ends at the last single colon: two colons are part of the variable's name.
        let separator = single_colons(text).last();
        let (file, rest) = match separator {
            Some(at) => (Some(text[..at].to_owned()), &text[at + 1..]),
            None => (None, text),
        };
        if file.as_deref() == Some("") {
            return Err(wrong("the file before the colon is missing"));
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (variable, mut rest) = rest.split_at(end);
        if variable.is_empty() {
            return Err(wrong("the variable is missing"));
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if steps.len() == PARTS {
                return Err(wrong("it has more than 32 parts"));
            }
            if let Some(member) = rest.strip_prefix('.') {
                let end = member.find(['.', '[']).unwrap_or(member.len());
                if end == 0 {
                    return Err(wrong("a member is missing behind the dot"));
                }
                steps.push(Step::Member(member[..end].to_owned()));
                rest = &member[end..];
            } else if let Some(element) = rest.strip_prefix('[') {
                let (number, after) =
                    element.split_once(']').ok_or_else(|| wrong("`]` is missing behind `[`"))?;
                let number = number.trim().parse();
                let number = number.map_err(|_| wrong("an element's index is a decimal number"))?;
                steps.push(Step::Element(number));
                rest = after;
            } else {
                return Err(wrong("`.` or `[` is missing behind `]`"));
            }
        }
        Ok(Path { text: text.to_owned(), file, variable: variable.to_owned(), steps })
    }

    /// The whole name.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The source file, if the name has one.
    pub(super) fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The variable's name.
    pub(super) fn variable(&self) -> &str {
        &self.variable
    }

    /// Whether it names a part of a variable.
    pub(super) fn has_parts(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The name of the part before a step, given by its number.
    pub(super) fn until(&self, step: usize) -> String {
        let mut text = self.variable.clone();
        for step in self.steps.iter().take(step) {
            match step {
                Step::Member(name) => text.extend([".", name]),
                Step::Element(index) => text.push_str(&format!("[{index}]")),
            }
        }
        text
    }

    /// The way from the variable to the part.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// The places of colons that have no other colon beside them.
fn single_colons(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    let is_colon = move |at: Option<usize>| at.and_then(|at| bytes.get(at)) == Some(&b':');
    (0..bytes.len())
        .filter(move |&at| is_colon(Some(at)) && !is_colon(at.checked_sub(1)) && !is_colon(Some(at + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart() {
        let path = Path::parse("src/server.c:ns::state.limits[2][0].soft").expect("it is one");
        assert_eq!((path.file(), path.variable()), (Some("src/server.c"), "ns::state"));
        let member = |name: &str| Step::Member(name.to_owned());
        assert_eq!(path.steps(), [member("limits"), Step::Element(2), Step::Element(0), member("soft")]);
        assert_eq!(path.until(3), "ns::state.limits[2][0]");
        let plain = Path::parse("ns::counter").expect("it is one");
        assert_eq!((plain.file(), plain.variable(), plain.has_parts()), (None, "ns::counter", false));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let deep = format!("a{}", ".b".repeat(33));
        for text in
            ["", ":a", "f.c:", ".a", "a.", "a..b", "a[", "a[1", "a[x]", "a[-1]", "a[1]b", "[1]", &deep]
        {
            assert!(matches!(Path::parse(text), Err(NoVariable::Syntax { .. })), "{text}");
        }
    }
}
