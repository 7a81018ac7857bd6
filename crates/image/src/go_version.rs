//! The version of Go that built a program: on it depends where functions have their arguments.

use super::Image;

/// The begin of the section `.go.buildinfo` (package debug/buildinfo of Go).
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// The bytes of the header of that section.
const HEADER: usize = 32;
/// The longest text of a version.
const LENGTH: u64 = 64;

/// Answers [`Image::go_version`].
pub(crate) fn go_version(image: &Image) -> Option<(u32, u32)> {
    let section = image.headers.section(".go.buildinfo")?;
    let bytes = image.data(section.vaddr, section.size.min(HEADER as u64 + LENGTH))?;
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let text = match bytes.get(15)? & 2 {
        // Before Go 1.18: the address of a string, which is an address and a length.
        0 => {
            let word = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
            let string = image.data(word(&bytes, 16)?, 16)?;
            image.data(word(&string, 0)?, word(&string, 8)?.min(LENGTH))?
        }
        _ => {
            let length = usize::from(*bytes.get(HEADER)?);
            bytes.get(HEADER + 1..)?.get(..length.min(LENGTH as usize - 1))?.to_vec()
        }
    };
    parse(&String::from_utf8_lossy(&text))
}

/// `go1.19.8` as 1 and 19.
fn parse(text: &str) -> Option<(u32, u32)> {
    let rest = text.split([' ', '-']).find_map(|word| word.strip_prefix("go"))?;
    let mut numbers = rest.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_version_has_two_numbers() {
        assert_eq!(parse("go1.19.8"), Some((1, 19)));
        assert_eq!(parse("go1.22rc1"), Some((1, 22)));
        assert_eq!(parse("devel go1.23-0a1b2c"), Some((1, 23)));
        assert_eq!(parse("unknown"), None);
    }
}
