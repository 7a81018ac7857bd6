//! The sections of a document, and the commands that their sessions show.

use std::fmt::Write;

use testing::repository;

/// A command as a document shows it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// The line of the prompt, from 1.
    pub(crate) line: usize,
    /// What stands behind the prompt; lines that end in `\` are joined.
    pub(crate) words: String,
    /// The lines up to the next prompt.
    pub(crate) output: Vec<String>,
}

/// What stands below one heading.
#[derive(Debug, Default, Clone)]
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) commands: Vec<Shown>,
}

/// A document in Markdown.
#[derive(Debug)]
pub(crate) struct Document {
    /// What stands before the first `##`.
    pub(crate) beginning: Section,
    /// The other sections that show commands.
    pub(crate) sections: Vec<Section>,
}

impl Document {
    /// Reads a document of the repository.
    ///
    /// # Panics
    /// If it cannot be read, or shows no command: then it was moved, or is not one to be tested.
    pub(crate) fn read(name: &str) -> Document {
        let text = std::fs::read_to_string(repository().join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let document = Document::parse(&text);
        assert!(!document.sections.is_empty(), "{name} shows no command");
        document
    }

    fn parse(text: &str) -> Document {
        let mut sections = vec![Section::default()];
        // Whether the line is in a block, and whether a prompt was seen in it.
        let (mut is_in_block, mut is_session) = (false, false);
        for (line, content) in (1..).zip(text.lines()) {
            let section = sections.last_mut().expect("there is a first one");
            if content.starts_with("```") {
                (is_in_block, is_session) = (!is_in_block, false);
            } else if !is_in_block {
                if let Some(heading) = content.strip_prefix("## ") {
                    sections.push(Section { heading: heading.to_string(), commands: Vec::new() });
                }
            } else if let Some(words) = content.strip_prefix("$ ") {
                is_session = true;
                let words = words.to_string();
                section.commands.push(Shown { line, words, output: Vec::new() });
            } else if is_session && let Some(shown) = section.commands.last_mut() {
                match shown.words.strip_suffix('\\') {
                    Some(words) if shown.output.is_empty() => {
                        shown.words = format!("{words}{}", content.trim_start());
                    }
                    _ => shown.output.push(content.to_string()),
                }
            }
        }
        let beginning = sections.remove(0);
        sections.retain(|section| !section.commands.is_empty());
        Document { beginning, sections }
    }
}

/// Writes what commands printed in place of what a document shows, by the lines of their prompts.
pub(crate) fn update(name: &str, changes: &[(usize, &str)]) {
    if changes.is_empty() {
        return;
    }
    let path = repository().join(name);
    let text = std::fs::read_to_string(&path).expect("it was read before");
    let mut updated = String::new();
    // Whether the line is output that was replaced, and whether the command goes on.
    let (mut is_replaced, mut replacement) = (false, None);
    for (line, content) in (1..).zip(text.lines()) {
        if content.starts_with("```") || content.starts_with("$ ") {
            is_replaced = false;
        }
        if let Some((_, printed)) = changes.iter().find(|(at, _)| *at == line) {
            replacement = Some(*printed);
        }
        if !is_replaced {
            writeln!(updated, "{content}").expect("a string takes it");
        }
        if !content.ends_with('\\')
            && let Some(printed) = replacement.take()
        {
            updated += printed;
            is_replaced = true;
        }
    }
    std::fs::write(&path, updated).expect("the document can be written");
}
