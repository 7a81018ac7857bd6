//! Signature Version 4 of AWS, which all object stores of this protocol know:
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.
//!
//! ```text
//! request   METHOD LF path LF query LF name:value LF ... LF LF names LF SHA-256 of the body
//! signed    AWS4-HMAC-SHA256 LF time LF date/region/service/aws4_request LF SHA-256 of `request`
//! key       HMAC(HMAC(HMAC(HMAC("AWS4" secret, date), region), service), "aws4_request")
//! ```

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// A key to a store.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    /// Of a key that is valid for a time.
    pub(crate) session_token: Option<String>,
}

/// The key is nobody else's.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// What a signature is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToSign<'a> {
    /// When, as `20130524T000000Z`.
    pub(crate) time: &'a str,
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    pub(crate) method: &'a str,
    /// The path and the query as they are sent: [`encoded`], and the query by [`query`].
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    /// Fields of the head: lower-case names, in order.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// The digest of the body, in hexadecimal.
    pub(crate) digest: &'a str,
}

/// The value of the field `Authorization`.
pub(crate) fn authorization(credentials: &Credentials, to_sign: &ToSign<'_>) -> String {
    let ToSign { time, region, service, method, path, query, fields, digest } = to_sign;
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = fields.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}");
    let date = time.split('T').next().unwrap_or(time);
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let signed = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(request.as_bytes()));
    let first = format!("AWS4{}", credentials.secret_key).into_bytes();
    let parts = [date, region, service, "aws4_request", &signed];
    let signature = hexadecimal(&parts.iter().fold(first, |key, part| hmac(&key, part.as_bytes())));
    let access_key = &credentials.access_key;
    format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}")
}

/// The digest of a body, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text with `%` and two digits for all but letters, digits, `-._~`, and what else is kept.
pub(crate) fn encoded(text: &str, kept: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte);
    let encode = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// A query, as it is sent and signed: in order.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{}={}", encoded(name, b""), encoded(value, b""));
    let mut pairs: Vec<String> = pairs.iter().map(pair).collect();
    pairs.sort();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of the published examples.
    fn credentials(secret: &str, access: &str) -> Credentials {
        Credentials { access_key: access.to_owned(), secret_key: secret.to_owned(), session_token: None }
    }

    fn signature(credentials: &Credentials, to_sign: &ToSign<'_>) -> String {
        let all = authorization(credentials, to_sign);
        all.rsplit_once("Signature=").expect("it ends with it").1.to_owned()
    }

    /// "Examples: Signature Calculations" in the reference of Amazon S3.
    #[test]
    fn the_published_examples_of_s3_have_their_signatures() {
        let key = credentials("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AKIAIOSFODNN7EXAMPLE");
        let (nothing, host) = (sha256(b""), ("host", "examplebucket.s3.amazonaws.com"));
        let time = "20130524T000000Z";
        let of_body = ("x-amz-content-sha256", &*nothing);
        let get = ToSign {
            time,
            region: "us-east-1",
            service: "s3",
            method: "GET",
            path: "/",
            query: "",
            fields: &[host, of_body, ("x-amz-date", time)],
            digest: &nothing,
        };
        let ranged = [host, ("range", "bytes=0-9"), of_body, ("x-amz-date", time)];
        let one = ToSign { path: "/test.txt", fields: &ranged, ..get };
        assert_eq!(
            authorization(&key, &one),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let digest = sha256(b"Welcome to Amazon S3.");
        let fields = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            host,
            ("x-amz-content-sha256", &digest),
            ("x-amz-date", time),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let path = encoded("/test$file.text", b"/");
        let put = ToSign { method: "PUT", path: &path, fields: &fields, digest: &digest, ..get };
        assert_eq!(signature(&key, &put), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
        let lifecycle = ToSign { query: &query(&[("lifecycle", "")]), ..get };
        assert_eq!(
            signature(&key, &lifecycle),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        let list = ToSign { query: &query(&[("prefix", "J"), ("max-keys", "2")]), ..get };
        assert_eq!(
            signature(&key, &list),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    /// `get-vanilla` and `get-vanilla-query-order-key-case` of AWS's test suite for signatures.
    #[test]
    fn the_published_test_suite_has_its_signatures() {
        let key = credentials("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "AKIDEXAMPLE");
        let time = "20150830T123600Z";
        let vanilla = ToSign {
            time,
            region: "us-east-1",
            service: "service",
            method: "GET",
            path: "/",
            query: "",
            fields: &[("host", "example.amazonaws.com"), ("x-amz-date", time)],
            digest: &sha256(b""),
        };
        assert_eq!(
            signature(&key, &vanilla),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
        let ordered = ToSign { query: &query(&[("Param2", "value2"), ("Param1", "value1")]), ..vanilla };
        assert_eq!(
            signature(&key, &ordered),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
        );
    }

    #[test]
    fn names_are_encoded_as_they_are_signed() {
        assert_eq!(encoded("/a b/host=d%2F1/\u{e9}~", b"/"), "/a%20b/host%3Dd%252F1/%C3%A9~");
        assert_eq!(query(&[("uploadId", "a/b+"), ("partNumber", "10")]), "partNumber=10&uploadId=a%2Fb%2B");
    }
}
