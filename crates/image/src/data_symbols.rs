//! The names of data by address, and addresses by name, from the symbol tables.

use super::Image;
use super::table::{self, SymbolKind};

/// Most names kept of a file.
const MOST: usize = 1 << 20;

/// Global and static variables of a file, as its symbol tables have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSymbols(Vec<DataSymbol>);

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DataSymbol {
    vaddr: u64,
    size: u64,
    name: String,
}

impl Image {
    /// The address and the size of a variable or a function, by the name that the symbol tables
    /// have. Of several with one name, none is meant: what is returned is an error.
    ///
    /// # Errors
    /// How many there are.
    pub fn symbol(&self, name: &str) -> Result<Option<(u64, u64)>, usize> {
        let data = table::data(&self.source, &self.headers).take(MOST);
        let data = data.filter(|symbol| symbol.kind == SymbolKind::Data && symbol.name == name);
        let mut found: Vec<(u64, u64)> = data.map(|symbol| (symbol.vaddr, symbol.size)).collect();
        if found.is_empty() {
            let functions = self.functions().iter().filter(|function| function.name == name);
            found.extend(functions.map(|function| (function.vaddr, function.size)));
        }
        found.sort_unstable();
        found.dedup_by_key(|(vaddr, _)| *vaddr);
        match found[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            [..] => Err(found.len()),
        }
    }
}

impl DataSymbols {
    /// Reads those of a file; none if it has no symbol tables.
    pub fn of(image: &Image) -> DataSymbols {
        let symbols = table::data(&image.source, &image.headers).take(MOST);
        DataSymbols::new(symbols.filter(|symbol| symbol.kind == SymbolKind::Data).map(|symbol| DataSymbol {
            name: super::demangle::full(&symbol.name).unwrap_or(symbol.name),
            vaddr: symbol.vaddr,
            size: symbol.size,
        }))
    }

    fn new(symbols: impl Iterator<Item = DataSymbol>) -> DataSymbols {
        let mut all: Vec<DataSymbol> = symbols.filter(|symbol| symbol.size > 0).collect();
        all.sort_unstable();
        DataSymbols(all)
    }

    /// Their addresses, sizes and names, by address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &str)> {
        self.0.iter().map(|symbol| (symbol.vaddr, symbol.size, symbol.name.as_str()))
    }

    /// The variable that contains an address, and the distance from its start.
    pub fn at(&self, vaddr: u64) -> Option<(&str, u64)> {
        let end = self.0.partition_point(|symbol| symbol.vaddr <= vaddr);
        // The last of those that begin at the nearest address before it is the longest.
        let symbol = self.0.get(end.checked_sub(1)?)?;
        let distance = vaddr - symbol.vaddr;
        (distance < symbol.size).then_some((symbol.name.as_str(), distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_variable_around_it() {
        let symbol = |vaddr, size, name: &str| DataSymbol { vaddr, size, name: name.to_owned() };
        let symbols =
            [symbol(200, 8, "b"), symbol(100, 40, "a"), symbol(100, 4, "alias"), symbol(300, 0, "mark")];
        let symbols = DataSymbols::new(symbols.into_iter());
        assert_eq!(symbols.iter().next(), Some((100, 4, "alias")));
        assert_eq!(symbols.iter().last(), Some((200, 8, "b")));
        assert_eq!(symbols.at(100), Some(("a", 0)));
        assert_eq!(symbols.at(139), Some(("a", 39)));
        assert_eq!(symbols.at(207), Some(("b", 7)));
        for outside in [0, 99, 140, 208, 300, u64::MAX] {
            assert_eq!(symbols.at(outside), None, "{outside}");
        }
        assert_eq!(DataSymbols::default().at(7), None);
    }
}
