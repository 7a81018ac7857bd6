//! Groups the reasons why sites are traps.

/// A reason without its instruction and numbers, so that reasons which differ only in them are
/// counted together.
pub(crate) fn general(reason: &str) -> String {
    let parts = reason.split('`').enumerate();
    let parts: Vec<&str> = parts.map(|(number, part)| if number % 2 == 1 { "..." } else { part }).collect();
    let words = parts.join("`");
    let words = words.split(' ').map(|word| if word.starts_with("0x") { "N" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
