//! The texts of a row group, each stored once.

use std::collections::HashMap;

/// Texts and their numbers.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    numbers: HashMap<Vec<u8>, u32>,
    texts: Vec<String>,
    bytes: usize,
}

impl Texts {
    /// The number of a text; adds the text if it is new.
    pub(crate) fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.texts.len() as u32;
        // Parquet texts must be valid UTF-8.
        self.texts.push(String::from_utf8_lossy(text).into_owned());
        self.numbers.insert(text.to_vec(), number);
        self.bytes += 2 * text.len() + 128;
        number
    }

    /// The text with a number.
    pub(crate) fn get(&self, number: u32) -> &[u8] {
        self.texts.get(number as usize).map_or(&[], |text| text.as_bytes())
    }

    /// Approximate memory used.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.texts.clear();
        self.bytes = 0;
    }
}
