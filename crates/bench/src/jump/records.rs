//! Reads logged records back, to check that they are complete and correct.

use std::io::{self, BufRead};

/// The contents of a file of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The number of records.
    pub records: u64,
    /// The number of records whose first word neither follows the one before nor is 0.
    pub breaks: u64,
    /// The number of records with the subject's string of 16 bytes.
    pub sixteen: u64,
}

/// The string, behind the token and length of a logged string.
const STRING: &[u8] = b"\x01\x10\x00sixteen letters.";

/// The bytes in a line of data, `DProbes(7,5)  0x00000000 : 01020304 ...  : ....`; `None` for other
/// lines.
fn data(line: &[u8]) -> Option<impl Iterator<Item = u8>> {
    let at = line.windows(3).position(|window| window == b" : ")?;
    let rest = &line[at + 3..];
    let end = rest.windows(2).position(|window| window == b": ").unwrap_or(rest.len());
    let digit = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
    let digits: Vec<u8> = rest[..end].iter().filter_map(digit).collect();
    Some((0..digits.len() / 2).map(move |place| digits[2 * place] << 4 | digits[2 * place + 1]))
}

/// Reads a file of records.
///
/// # Errors
/// If it cannot be read.
pub fn read(mut file: impl BufRead) -> io::Result<Records> {
    let mut found = Records::default();
    let mut line = Vec::new();
    let mut record: Vec<u8> = Vec::new();
    let mut last: Option<u64> = None;
    let mut finish = |record: &mut Vec<u8>, found: &mut Records| {
        if let Some(word) = record.first_chunk::<8>().map(|word| u64::from_le_bytes(*word)) {
            found.breaks += u64::from(word != 0 && last.is_none_or(|last| word != last + 1));
            last = Some(word);
        }
        found.sixteen += u64::from(record.starts_with(STRING));
        record.clear();
    };
    loop {
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            finish(&mut record, &mut found);
            return Ok(found);
        }
        if line.windows(6).any(|window| window == b") cpu=") {
            finish(&mut record, &mut found);
            found.records += 1;
        } else if let Some(bytes) = data(&line) {
            record.extend(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Records, read};

    #[test]
    fn words_in_order() {
        let line = |word: u64| {
            let bytes: Vec<String> = word.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            format!(
                "DProbes(7,5) cpu=0 pid=1 tsc=0:1\nDProbes(7,5)  0x00000000 : {} {}  : ........\n",
                bytes[..4].concat(),
                bytes[4..].concat()
            )
        };
        let text: String = [0, 1, 2, 0, 1, 258, 259].into_iter().map(line).collect();
        assert_eq!(read(text.as_bytes()).unwrap(), Records { records: 7, breaks: 1, sixteen: 0 });
    }

    #[test]
    fn a_string_over_two_lines() {
        let text = "DProbes(7,5) cpu=0 pid=1 tsc=0:1\n\
            DProbes(7,5)  0x00000000 : 01100073 69787465 656e206c 65747465 : ...sixteen lette\n\
            DProbes(7,5)  0x00000010 : 72732e                              : rs.\n";
        assert_eq!(read(text.as_bytes()).unwrap(), Records { records: 1, breaks: 1, sixteen: 1 });
    }
}
