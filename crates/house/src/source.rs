//! Reads a source file as the paths that it names.

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

/// A name that a `use` imports to a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The modules inside the file that contain it, outermost first.
    pub scope: Vec<String>,
    /// The path of what it imports.
    pub path: Vec<String>,
    /// The imported name; `*` for all names behind the path.
    pub name: String,
}

/// The modules and paths of a file, without `#[cfg(test)]` items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The modules that are other files, with the scopes of their declarations.
    pub files: Vec<(Vec<String>, String)>,
    /// The modules inside this file, by their whole path in it.
    pub inside: Vec<Vec<String>>,
    /// The imports by `use`.
    pub uses: Vec<Use>,
    /// All other paths of two or more names, with their scopes.
    pub paths: Vec<(Vec<String>, Vec<String>)>,
    /// The types of inherent `impl` blocks, as their paths, with the scopes of the blocks.
    pub impls: Vec<(Vec<String>, Vec<String>)>,
}

impl Source {
    /// Reads a file's text.
    ///
    /// # Errors
    /// If it is not a sequence of Rust tokens.
    pub fn read(text: &str) -> Result<Source, LexError> {
        let mut source = Source::default();
        source.walk(text.parse()?, &[]);
        Ok(source)
    }

    fn walk(&mut self, tokens: TokenStream, scope: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => at = self.attribute(&tokens, at, scope),
                TokenTree::Ident(ident) if ident == "use" => at = self.bring(&tokens, at + 1, scope),
                TokenTree::Ident(ident) if ident == "mod" => at = self.module(&tokens, at + 1, scope),
                TokenTree::Ident(ident) if ident == "impl" => {
                    if begins_item(&tokens[..at])
                        && let Some(path) = inherent_type(&tokens[at + 1..])
                    {
                        self.impls.push((scope.to_vec(), path));
                    }
                    at += 1;
                }
                // The path in `pub(in path)` limits visibility; it is not used by the item.
                TokenTree::Ident(ident) if ident == "pub" => {
                    at += 1 + usize::from(is_group(tokens.get(at + 1), Delimiter::Parenthesis));
                }
                TokenTree::Ident(_) => at = self.path(&tokens, at, scope),
                TokenTree::Group(group) => {
                    self.walk(group.stream(), scope);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Skips an attribute at `at`, and its item if that is for tests only. Returns the position
    /// behind.
    fn attribute(&mut self, tokens: &[TokenTree], at: usize, scope: &[String]) -> usize {
        let bang = usize::from(is_punct(tokens.get(at + 1), '!'));
        let Some(TokenTree::Group(group)) = tokens.get(at + 1 + bang) else { return at + 1 };
        let behind = at + 2 + bang;
        if bang == 0 && is_for_tests(group.stream()) {
            return behind_item(tokens, behind);
        }
        self.walk(group.stream(), scope);
        behind
    }

    /// Reads a path at `at`. Returns the position behind it.
    fn path(&mut self, tokens: &[TokenTree], at: usize, scope: &[String]) -> usize {
        let mut path = Vec::new();
        let mut at = at;
        while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
            path.push(ident.to_string());
            at += 1;
            if !is_separator(tokens, at) || !matches!(tokens.get(at + 2), Some(TokenTree::Ident(_))) {
                break;
            }
            at += 2;
        }
        // An exported macro is named as if it were in the root, wherever it is.
        let is_exported_macro = path.len() == 2 && path[0] == "crate" && is_punct(tokens.get(at), '!');
        if path.len() > 1 && !is_exported_macro {
            self.paths.push((scope.to_vec(), path));
        }
        at
    }

    /// Reads what follows `mod`.
    fn module(&mut self, tokens: &[TokenTree], at: usize, scope: &[String]) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(at) else { return at };
        match tokens.get(at + 1) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner = [scope, &[name.to_string()]].concat();
                self.inside.push(inner.clone());
                self.walk(group.stream(), &inner);
            }
            _ => self.files.push((scope.to_vec(), name.to_string())),
        }
        at + 2
    }

    /// Reads what follows `use`. Returns the position behind it.
    fn bring(&mut self, tokens: &[TokenTree], at: usize, scope: &[String]) -> usize {
        // `impl Trait + use<'a>`.
        if is_punct(tokens.get(at), '<') {
            return at;
        }
        let end = tokens[at..].iter().position(|token| is_punct(Some(token), ';'));
        let end = end.map_or(tokens.len(), |length| at + length);
        self.tree(&tokens[at..end], &[], scope);
        end
    }

    /// The comma-separated trees of a `use`, below a path.
    fn tree(&mut self, tokens: &[TokenTree], before: &[String], scope: &[String]) {
        let trees = tokens.split(|token| is_punct(Some(token), ','));
        // There may be a trailing comma.
        for tree in trees.filter(|tree| !tree.is_empty()) {
            let mut path = before.to_vec();
            let mut name = None;
            let mut tokens = tree.iter();
            while let Some(token) = tokens.next() {
                match token {
                    TokenTree::Ident(ident) if ident == "as" => name = tokens.next().map(ToString::to_string),
                    TokenTree::Ident(ident) if ident == "self" && !path.is_empty() => {}
                    TokenTree::Ident(ident) => path.push(ident.to_string()),
                    TokenTree::Punct(punct) if punct.as_char() == '*' => name = Some("*".to_string()),
                    TokenTree::Group(group) => {
                        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.tree(&inner, &path, scope);
                        path.clear();
                    }
                    _ => {}
                }
            }
            if let Some(name) = name.or(path.last().cloned()).filter(|_| !path.is_empty()) {
                self.uses.push(Use { scope: scope.to_vec(), path, name });
            }
        }
    }
}

/// Whether an item may begin behind these tokens: `impl` is an `impl` block there, and not a type.
fn begins_item(before: &[TokenTree]) -> bool {
    match before.last() {
        None => true,
        // An item, or an attribute, ends there.
        Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Parenthesis,
        Some(TokenTree::Ident(ident)) => ident == "unsafe",
        last => is_punct(last, ';'),
    }
}

/// The path of the type of an `impl` block, from the tokens behind `impl`. None if it implements a
/// trait, or if there is no block.
fn inherent_type(tokens: &[TokenTree]) -> Option<Vec<String>> {
    let (mut path, mut depth, mut is_bound) = (Vec::new(), 0, false);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            // The arrow of a function type closes nothing.
            TokenTree::Punct(punct) if punct.as_char() == '>' && !is_arrow(tokens, at) => depth -= 1,
            // In a macro, the type may be a parameter.
            TokenTree::Punct(punct) if matches!(punct.as_char(), ';' | '$') => return None,
            TokenTree::Ident(ident) if depth == 0 && ident == "where" => is_bound = true,
            TokenTree::Ident(_) if depth > 0 || is_bound => {}
            TokenTree::Ident(ident) if ident == "for" => return None,
            TokenTree::Ident(ident) => path.push(ident.to_string()),
            TokenTree::Group(group) if depth == 0 && group.delimiter() == Delimiter::Brace => {
                return Some(path).filter(|path| !path.is_empty());
            }
            _ => {}
        }
    }
    None
}

/// Whether the `>` at `at` belongs to `->`.
fn is_arrow(tokens: &[TokenTree], at: usize) -> bool {
    at > 0 && is_punct(tokens.get(at - 1), '-')
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn is_group(token: Option<&TokenTree>, delimiter: Delimiter) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == delimiter)
}

/// Whether `::` is at `at`.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

/// Whether an attribute is `cfg(test)` or `cfg(all(test, ...))`.
fn is_for_tests(attribute: TokenStream) -> bool {
    let mut tokens = attribute.into_iter();
    let is_cfg = matches!(tokens.next(), Some(TokenTree::Ident(ident)) if ident == "cfg");
    let Some(TokenTree::Group(condition)) = tokens.next() else { return false };
    is_cfg && wants_test(condition.stream())
}

/// Whether a condition holds in tests only.
fn wants_test(condition: TokenStream) -> bool {
    let mut tokens = condition.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(ident)), None) => ident == "test",
        (Some(TokenTree::Ident(ident)), Some(TokenTree::Group(group))) if ident == "all" => {
            let all: Vec<TokenTree> = group.stream().into_iter().collect();
            all.split(|token| is_punct(Some(token), ','))
                .any(|each| wants_test(each.iter().cloned().collect()))
        }
        _ => false,
    }
}

/// The position behind the item, field, arm or statement at `at`.
fn behind_item(tokens: &[TokenTree], at: usize) -> usize {
    let mut at = at;
    while is_punct(tokens.get(at), '#') {
        at += 2;
    }
    // A list element ends at a comma; a declaration may contain commas.
    let keywords = [
        "pub",
        "mod",
        "fn",
        "use",
        "struct",
        "enum",
        "impl",
        "const",
        "static",
        "extern",
        "unsafe",
        "type",
        "trait",
        "macro_rules",
    ];
    let declares =
        matches!(tokens.get(at), Some(TokenTree::Ident(ident)) if keywords.iter().any(|it| ident == it));
    while let Some(token) = tokens.get(at) {
        at += 1;
        let ends = is_punct(Some(token), ';')
            || is_group(Some(token), Delimiter::Brace)
            || (!declares && is_punct(Some(token), ','));
        if ends {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        Source::read(text).expect("tokens")
    }

    fn uses(text: &str) -> Vec<String> {
        let uses = read(text).uses.into_iter();
        uses.map(|it| format!("{}={}", it.name, it.path.join("::"))).collect()
    }

    fn paths(text: &str) -> Vec<String> {
        read(text).paths.into_iter().map(|(_, path)| path.join("::")).collect()
    }

    #[test]
    fn a_use_names_each_of_its_leaves() {
        assert_eq!(uses("use crate::a::B;"), ["B=crate::a::B"]);
        assert_eq!(
            uses("pub(crate) use super::a::{self, B as C, d::{E, F}};"),
            ["a=super::a", "C=super::a::B", "E=super::a::d::E", "F=super::a::d::F",]
        );
        assert_eq!(uses("use crate::a::*; use {crate::b, c};"), ["*=crate::a", "b=crate::b", "c=c"]);
        assert_eq!(uses("use crate::{a, b,};"), ["a=crate::a", "b=crate::b"]);
        assert_eq!(uses("use crate::a as _;"), ["_=crate::a"]);
        assert_eq!(uses("fn f() { use super::x::y; }"), ["y=super::x::y"]);
        assert_eq!(uses("fn f<'a>() -> impl Sized + use<'a> { crate::b::c() }"), [""; 0]);
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let text = "fn f(a: crate::a::A) -> Vec<super::B> { macro_call!(c::d(1), e::<F>()); x.method() }";
        assert_eq!(paths(text), ["crate::a::A", "super::B", "c::d"]);
        assert_eq!(paths("#[derive(a::B)] struct S;"), ["a::B"]);
        assert_eq!(paths("pub(in crate::a) fn f() {} pub(super) fn g() {}"), [""; 0]);
    }

    #[test]
    fn an_exported_macro_is_not_in_the_root() {
        assert_eq!(
            paths("crate::declare! { a::b } crate::c::d!(); crate::e"),
            ["a::b", "crate::c::d", "crate::e"]
        );
    }

    #[test]
    fn comments_texts_and_tests_say_nothing() {
        assert_eq!(
            paths("// crate::a::b\n/* crate::c::d */ /// crate::e::f\nconst A: &str = \"crate::g::h\";"),
            [""; 0]
        );
        assert_eq!(paths("#[cfg(test)] mod tests { fn f() { crate::a::b() } } fn g() { c::d() }"), ["c::d"]);
        assert_eq!(
            paths("#[cfg(all(test, unix))] fn f<A, B>() { crate::a::b() } fn g() { c::d() }"),
            ["c::d"]
        );
        assert_eq!(paths("struct S { #[cfg(test)] a: crate::a::A, b: c::D }"), ["c::D"]);
        assert_eq!(paths("#[cfg(not(test))] fn f() { a::b() }"), ["a::b"]);
        assert_eq!(paths("#[cfg(test)] #[path = \"x\"] mod x; fn f() { a::b() }"), ["a::b"]);
    }

    #[test]
    fn an_impl_names_its_type_unless_it_implements_a_trait() {
        let types = |text: &str| {
            let impls = read(text).impls.into_iter();
            impls.map(|(scope, path)| [scope, path].concat().join("::")).collect::<Vec<_>>()
        };
        assert_eq!(types("struct A; impl A {} mod b { impl<'a> super::C<'a> {} }"), ["A", "b::super::C"]);
        assert_eq!(types("#[rustfmt::skip] impl<F: Fn() -> u8, T> A<F> where T: for<'a> B<'a> {}"), ["A"]);
        assert_eq!(types("impl<T> Clone for A<T> {} unsafe impl Send for A {} impl Drop for A {}"), [""; 0]);
        assert_eq!(types("fn f(a: impl A, b: &impl B) -> impl C { let c: Box<(impl D)> = x; }"), [""; 0]);
        assert_eq!(types("macro_rules! m { ($t:ty) => { impl $t {} } }"), [""; 0]);
        assert_eq!(types("fn f() { struct A; impl A {} } #[cfg(test)] impl B {}"), ["A"]);
    }

    #[test]
    fn modules_are_files_or_inside() {
        let source = read("mod a; pub mod b { mod c; mod d { use super::E; } } #[cfg(test)] mod tests;");
        let names = |scope: &[&str]| scope.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(source.files, [(names(&[]), "a".into()), (names(&["b"]), "c".into())]);
        assert_eq!(source.inside, [names(&["b"]), names(&["b", "d"])]);
        assert_eq!(source.uses[0].scope, ["b", "d"]);
    }
}
