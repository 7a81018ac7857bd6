//! What a script calls the parts of the keys of its maps.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::ast::{Expr, ExprKind, Item, Script};
use crate::walk;

/// The names of each map's parts of keys.
pub(crate) fn of(script: &Script) -> BTreeMap<String, Vec<String>> {
    let names: RefCell<BTreeMap<String, Vec<String>>> = RefCell::default();
    for item in &script.items {
        let Item::Probe(probe) = item else { continue };
        // Nothing is looked for: each expression is seen.
        walk::find(probe, &|expr| {
            if let ExprKind::Map(map, Some(key)) = &expr.kind {
                names.borrow_mut().entry(map.clone()).or_insert_with(|| part_names(key));
            }
            false
        });
    }
    names.into_inner()
}

/// The names of the parts of a key.
fn part_names(key: &Expr) -> Vec<String> {
    match &key.kind {
        ExprKind::Tuple(parts) => parts.iter().map(name).collect(),
        _ => vec![name(key)],
    }
}

/// The name of a part; empty if it has none.
fn name(part: &Expr) -> String {
    match &part.kind {
        ExprKind::Name(name) | ExprKind::Field(_, name) => name.clone(),
        ExprKind::Local(local) => local.name.clone(),
        // `str(arg0)` is what `arg0` points to.
        ExprKind::Call(function, arguments) => match arguments.first().map(name) {
            Some(name) if !name.is_empty() => name,
            _ => function.clone(),
        },
        ExprKind::Cast(_, value) | ExprKind::Unary(_, value) => name(value),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::check_text;

    #[test]
    fn parts_of_keys_are_called_as_in_the_script() {
        let script = "uprobe:a.out:f { $x = 1; @a[pid, str(arg0), $x, 7, kstack(3)] = count(); @b[comm]++; @b[tid]++; \
                      @c[(int32)arg1] = 1; @d = 2; if (pid > 1) { @e[probe] = 1; } }";
        let names = check_text("script", script).key_names();
        let of = |map: &str| names.get(map).map(|names| names.join(" "));
        assert_eq!(of("a").as_deref(), Some("pid arg0 x  kstack"));
        assert_eq!(of("b").as_deref(), Some("comm"));
        assert_eq!(of("c").as_deref(), Some("arg1"));
        assert_eq!(of("d"), None);
        assert_eq!(of("e").as_deref(), Some("probe"));
    }
}
