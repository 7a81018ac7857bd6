//! What is found of a variable, or why nothing is.

/// The most names that are suggested.
const SUGGESTIONS: usize = 5;

/// What a variable's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// An unsigned integer or an enumeration.
    Unsigned,
    /// A signed integer.
    Signed,
    /// A boolean.
    Boolean,
    /// A character.
    Character,
    /// A floating-point number.
    Float,
    /// An address.
    Pointer,
    /// A structure, a union or an array.
    Aggregate,
    /// Not known: there is no debug information.
    Unknown,
}

/// A global variable, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its address in the file, without the load bias.
    pub vaddr: u64,
    /// Its bytes; 0 if the symbol table does not tell.
    pub size: u64,
    /// What its value is.
    pub kind: ValueKind,
}

/// Why a name is no variable that has an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVariable {
    /// The name is not written as one.
    #[error(
        "`{name}` is no name of a variable: {problem} (examples: counter, config.limits[2].soft, main::calls, server.c:state)"
    )]
    Syntax {
        /// The name.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// There is no variable of this name.
    #[error("no variable is called `{name}`{}", suggested(.similar))]
    Unknown {
        /// The name.
        name: String,
        /// Names of variables that are written similarly.
        similar: Vec<String>,
    },
    /// Several variables have the name.
    #[error("`{name}` is ambiguous: name one of {}", .candidates.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Names that are not ambiguous.
        candidates: Vec<String>,
    },
    /// Each thread has a variable of its own.
    #[error("`{name}` is a variable of each thread: it has no fixed address")]
    ThreadLocal {
        /// The name.
        name: String,
    },
    /// It is in a register, on a stack, or was optimised away.
    #[error(
        "`{name}` has no fixed address: the compiler keeps it in registers or on the stack, or has removed it"
    )]
    NoAddress {
        /// The name.
        name: String,
    },
    /// Parts of variables are named, but there is no debug information.
    #[error(
        "`{name}`: the parts of a variable are known by debug information only, and there is none (compile with -g, or install the debug package)"
    )]
    NoDebugInformation {
        /// The name.
        name: String,
    },
    /// A structure has no such member.
    #[error("`{of}` has no member `{member}`{}", suggested(.similar))]
    NoMember {
        /// The structure, as named.
        of: String,
        /// The member.
        member: String,
        /// Members that are written similarly.
        similar: Vec<String>,
    },
    /// A member of something that has none.
    #[error("`{of}` is no structure: it has no member `{member}`")]
    NotAStructure {
        /// What it was asked of.
        of: String,
        /// The member.
        member: String,
    },
    /// A member of what a pointer points to.
    #[error(
        "`{of}` is a pointer: what it points to may change, so that it has no fixed address; watch the address itself, in hexadecimal"
    )]
    BehindAPointer {
        /// The pointer.
        of: String,
    },
    /// An element of something that is no array.
    #[error("`{of}` is no array")]
    NotAnArray {
        /// What it was asked of.
        of: String,
    },
    /// An array has fewer elements.
    #[error("`{of}` has {length} elements: the last one is {}", .length.saturating_sub(1))]
    NoElement {
        /// The array.
        of: String,
        /// Its elements.
        length: u64,
    },
    /// A member that does not begin or end at a byte.
    #[error("`{of}` is a bit field: it has no address of its own; name the structure around it")]
    BitField {
        /// The bit field.
        of: String,
    },
    /// The debug information is damaged or in a form that is not read.
    #[error("the debug information of `{name}` cannot be read: {cause}")]
    Damaged {
        /// The name.
        name: String,
        /// What is wrong.
        cause: String,
    },
}

fn suggested(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("; did you mean `{one}`?"),
        several => {
            let names: Vec<String> = several.iter().map(|name| format!("`{name}`")).collect();
            format!("; did you mean one of {}?", names.join(", "))
        }
    }
}

/// The names that are written similarly to a wanted one, the most similar first.
pub(super) fn similar(wanted: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let distance = |name: &str| strsim::damerau_levenshtein(wanted, name);
    let most = (wanted.chars().count() / 3).clamp(1, 3);
    let names: std::collections::BTreeSet<String> = names.filter(|name| name.len() <= 64).collect();
    let mut close: Vec<(usize, String)> = names.into_iter().map(|name| (distance(&name), name)).collect();
    close.retain(|(distance, _)| *distance <= most);
    close.sort();
    close.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect()
}
