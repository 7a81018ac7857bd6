//! What a store says: elements of XML, and what to do about a refusal.

/// The text of the first element of a name.
pub(crate) fn element(body: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(plain(inner))
}

/// Whether there is such an element, perhaps with attributes.
pub(crate) fn has_element(body: &[u8], name: &str) -> bool {
    let text = String::from_utf8_lossy(body);
    text.split('<').any(|tag| tag.strip_prefix(name).is_some_and(|rest| rest.starts_with(['>', ' ', '/'])))
}

/// A text of XML without its escapes.
fn plain(text: &str) -> String {
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'")];
    let text = escapes.iter().fold(text.to_owned(), |text, (escape, meant)| text.replace(escape, meant));
    text.replace("&amp;", "&")
}

/// A text as an element of XML has it.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Why a request was refused: the status, what the store says, and what to do.
pub(crate) fn refusal(status: u16, body: &[u8], bucket: &str) -> String {
    let code = element(body, "Code").unwrap_or_default();
    let message = element(body, "Message").unwrap_or_default();
    let said = match (&*code, &*message) {
        ("", _) => String::new(),
        (code, "") => format!(" ({})", printable::text(code)),
        (code, message) => format!(" ({}: {})", printable::text(code), printable::text(message)),
    };
    match remedy(status, &code, bucket) {
        Some(remedy) => format!("HTTP status {status}{said}: {remedy}"),
        None => format!("HTTP status {status}{said}"),
    }
}

fn remedy(status: u16, code: &str, bucket: &str) -> Option<String> {
    let remedy = match (code, status) {
        ("NoSuchBucket", _) => {
            return Some(format!("there is no bucket `{bucket}`: make it, or name another"));
        }
        ("NoSuchUpload", _) => "the store has the parts no longer: convert again",
        ("AccessDenied", _) => {
            "the key may not do this: it needs s3:PutObject and s3:AbortMultipartUpload there"
        }
        ("InvalidAccessKeyId" | "SignatureDoesNotMatch", _) => {
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are no key of this store"
        }
        ("ExpiredToken" | "InvalidToken", _) => "AWS_SESSION_TOKEN is not, or no longer, valid",
        ("RequestTimeTooSkewed", _) => "the clock of this machine is wrong",
        ("AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect", _) | (_, 301 | 307) => {
            "the bucket is in another region: AWS_REGION and AWS_ENDPOINT_URL name it"
        }
        _ => return None,
    };
    Some(remedy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_in_what_a_store_says() {
        let said = b"<?xml version=\"1.0\"?><R xmlns=\"http://s3\"><UploadId>a&amp;lt;&lt;b</UploadId></R>";
        assert_eq!(element(said, "UploadId").as_deref(), Some("a&lt;<b"));
        assert_eq!(element(said, "Upload"), None);
        assert!(has_element(said, "R") && has_element(said, "UploadId") && !has_element(said, "Upload"));
        assert_eq!(element(b"<UploadId>cut", "UploadId"), None);
        assert_eq!(plain(&escaped("<a> & \"b\" &lt;")), "<a> & \"b\" &lt;");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let body = b"<Error><Code>NoSuchBucket</Code><Message>no \x1b[31m</Message></Error>";
        assert_eq!(
            refusal(404, body, "traces"),
            "HTTP status 404 (NoSuchBucket: no \\x1b[31m): there is no bucket `traces`: make it, or name another"
        );
        assert_eq!(refusal(418, b"tea", "traces"), "HTTP status 418");
        assert!(refusal(301, b"", "traces").contains("another region"));
    }
}
