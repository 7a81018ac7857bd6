//! Where objects go: `s3://BUCKET[/PREFIX]`.

use std::fmt;
use std::str::FromStr;

/// A bucket, and what the names of the objects begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The bucket.
    pub(crate) bucket: String,
    /// Without slashes at its ends.
    prefix: String,
}

impl Address {
    /// Whether a text is meant as an address of an object store.
    pub fn is_meant(text: &[u8]) -> bool {
        text.starts_with(b"s3:")
    }

    /// The name of an object below the prefix.
    pub(crate) fn key(&self, path: &str) -> String {
        match &*self.prefix {
            "" => path.to_owned(),
            prefix => format!("{prefix}/{path}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let rest = text.strip_prefix("s3://").ok_or("expected `s3://BUCKET/PREFIX`")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_part) {
            return Err(format!(
                "`{}` is no name of a bucket, which has 3 to 63 lower-case letters, digits, `-` and `.`",
                printable::text(bucket)
            ));
        }
        let prefix = prefix.trim_end_matches('/');
        let is_step = |part: &str| matches!(part, "" | "." | "..") && !prefix.is_empty();
        if prefix.split('/').any(is_step) || prefix.chars().any(char::is_control) {
            return Err(format!(
                "the prefix `{}` has an empty part, `.`, `..` or a control character, which not every \
                 tool finds again",
                printable::text(prefix)
            ));
        }
        Ok(Address { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(formatter, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_bucket_and_perhaps_a_prefix() {
        let key = |text: &str| text.parse::<Address>().map(|address| address.key("host=a/b"));
        assert_eq!(key("s3://traces"), Ok("host=a/b".into()));
        assert_eq!(key("s3://traces/"), Ok("host=a/b".into()));
        assert_eq!(key("s3://my.traces-1/a b/c/"), Ok("a b/c/host=a/b".into()));
        for bad in ["", "s3:/traces", "s3://", "s3://ab", "s3://Traces", "s3://a_b", "s3:///x", "s3://a:1/x"]
        {
            assert!(key(bad).is_err(), "{bad:?}");
        }
        for bad in ["s3://traces//x", "s3://traces/a/../b", "s3://traces/.", "s3://traces/a\nb"] {
            assert!(key(bad).is_err_and(|why| why.contains("the prefix")), "{bad:?}");
        }
        let shown = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        assert_eq!(shown("s3://traces/a/"), Ok("s3://traces/a".into()));
    }
}
