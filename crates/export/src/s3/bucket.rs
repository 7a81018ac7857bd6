//! Signed requests to a bucket: again, a bounded number of times, if that may help.

use std::fmt;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

use super::address::Address;
use super::answers::{element, refusal};
use super::settings::Settings;
use super::sign::{ToSign, authorization, encoded, query, sha256};
use crate::http::{Answer, Request, send};

/// How often a request is sent, at most.
const ATTEMPTS: u32 = 4;

/// The time before the second attempt; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest time between two attempts, whatever the store asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How long one attempt may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How long one attempt may take in which the store puts the parts of an object together.
const LONG_LIMIT: Duration = Duration::from_secs(300);

/// How long it may take to give up what was begun, and whether there is a bucket.
const SHORT_LIMIT: Duration = Duration::from_secs(5);

/// A bucket of an object store, and a place in it.
pub struct Bucket {
    address: Address,
    settings: Settings,
    wait: fn(Duration),
}

impl fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bucket").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Something that is asked of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    /// The object, by its path below the prefix.
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

/// Why a request was not answered as it should be.
enum Trouble {
    /// It may be another time, perhaps after this time.
    Passing(String, Option<Duration>),
    /// It would not be another time.
    Lasting(String),
}

impl Bucket {
    /// The place of an address.
    pub fn new(address: Address, settings: Settings) -> Bucket {
        Bucket { address, settings, wait: std::thread::sleep }
    }

    /// The same, with another way to wait between attempts.
    #[cfg(test)]
    pub(crate) fn waiting(self, wait: fn(Duration)) -> Bucket {
        Bucket { wait, ..self }
    }

    /// Whether the store is there, and has the bucket. Who may only write is not told, and finds
    /// out later.
    ///
    /// # Errors
    /// It is not; the text says what to do.
    pub fn check(&self) -> io::Result<()> {
        let target = format!("{}/{}", self.settings.url.base, self.address.bucket);
        let ask = Ask { method: "HEAD", path: "", query: &[], body: b"" };
        self.again(|| {
            let answer = self.sent(&ask, &target, SHORT_LIMIT)?;
            match answer.status {
                404 => {
                    Err(Trouble::Lasting(refusal(404, b"<Code>NoSuchBucket</Code>", &self.address.bucket)))
                }
                301 | 307 => Err(Trouble::Lasting(refusal(answer.status, b"", &self.address.bucket))),
                429 | 500..=504 => Err(self.trouble(&answer)),
                _ => Ok(()),
            }
        })
    }

    /// Asks for something, again if that may help.
    pub(crate) fn ask(&self, ask: &Ask<'_>) -> io::Result<Answer> {
        self.again(|| self.attempt(ask, LIMIT))
    }

    /// Asks for something that may take the store long, and is done when `is_done` says so of the
    /// body: a store begins its answer before it knows how it ends.
    pub(crate) fn ask_slowly(&self, ask: &Ask<'_>, is_done: fn(&[u8]) -> bool) -> io::Result<Answer> {
        self.again(|| {
            let answer = self.attempt(ask, LONG_LIMIT)?;
            match is_done(&answer.body) {
                true => Ok(answer),
                false => Err(self.trouble(&answer)),
            }
        })
    }

    /// Asks once, for a short time: by who ends.
    pub(crate) fn ask_once(&self, ask: &Ask<'_>) -> io::Result<()> {
        match self.attempt(ask, SHORT_LIMIT) {
            Ok(_) => Ok(()),
            Err(Trouble::Passing(reason, _) | Trouble::Lasting(reason)) => Err(io::Error::other(reason)),
        }
    }

    fn again<T>(&self, attempt: impl Fn() -> Result<T, Trouble>) -> io::Result<T> {
        let mut pause = FIRST_WAIT;
        for count in 1.. {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Trouble::Lasting(reason)) => return Err(io::Error::other(reason)),
                Err(Trouble::Passing(reason, _)) if count >= ATTEMPTS => {
                    return Err(io::Error::other(format!("{reason}, {ATTEMPTS} times")));
                }
                Err(Trouble::Passing(_, asked)) => (self.wait)(asked.unwrap_or(pause).min(LONGEST_WAIT)),
            }
            pause *= 2;
        }
        Err(ErrorKind::TimedOut.into())
    }

    fn attempt(&self, ask: &Ask<'_>, limit: Duration) -> Result<Answer, Trouble> {
        let key = encoded(&self.address.key(ask.path), b"/");
        let target = format!("{}/{}/{key}", self.settings.url.base, self.address.bucket);
        let answer = self.sent(ask, &target, limit)?;
        match answer.status {
            200..=299 => Ok(answer),
            _ => Err(self.trouble(&answer)),
        }
    }

    /// Signs a request and sends it to a path.
    fn sent(&self, ask: &Ask<'_>, path: &str, limit: Duration) -> Result<Answer, Trouble> {
        let Settings { url, region, credentials } = &self.settings;
        let (time, digest, query) = (now(), sha256(ask.body), query(ask.query));
        let mut fields = vec![("x-amz-content-sha256", &*digest), ("x-amz-date", &*time)];
        fields.extend(credentials.session_token.iter().map(|token| ("x-amz-security-token", &**token)));
        let signed: Vec<(&str, &str)> =
            [("host", &*url.authority)].into_iter().chain(fields.clone()).collect();
        let signature = authorization(
            credentials,
            &ToSign {
                time: &time,
                region,
                service: "s3",
                method: ask.method,
                path,
                query: &query,
                fields: &signed,
                digest: &digest,
            },
        );
        fields.push(("Authorization", &signature));
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let request = Request { method: ask.method, target: &target, fields: &fields, body: ask.body };
        send(url, &request, limit).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => Trouble::Lasting(format!("{url}: {error}")),
            ErrorKind::TimedOut => Trouble::Passing(format!("{url}: it does not answer"), None),
            _ => Trouble::Passing(format!("{url}: {error}"), None),
        })
    }

    /// What an answer that is no success means.
    fn trouble(&self, answer: &Answer) -> Trouble {
        let reason = refusal(answer.status, &answer.body, &self.address.bucket);
        let code = element(&answer.body, "Code").unwrap_or_default();
        let is_passing = matches!(answer.status, 429 | 500..=504)
            || matches!(&*code, "RequestTimeout" | "InternalError" | "SlowDown" | "ServiceUnavailable")
            // A success that is cut off.
            || (answer.status == 200 && code.is_empty());
        match is_passing {
            true => Trouble::Passing(reason, answer.retry_after()),
            false => Trouble::Lasting(reason),
        }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(formatter)
    }
}

/// The time, as signatures have it: `20130524T000000Z`.
fn now() -> String {
    let text = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    text.replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_has_the_form_of_signatures() {
        let now = now();
        let is_right = |(at, byte): (usize, u8)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        };
        assert!(now.len() == 16 && now.bytes().enumerate().all(is_right), "{now}");
    }
}
