//! Sends requests to a collector: again, a bounded number of times, if that may help.

use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

use serde_json::Value as Json;

use crate::http::{Url, post};

/// How long one attempt may take.
const LIMIT: Duration = Duration::from_secs(3);

/// How often a request is sent, at most.
const ATTEMPTS: u32 = 4;

/// The time before the second attempt; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest time between two attempts, whatever the collector asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Metrics.
    Metrics,
    /// Spans.
    Traces,
}

/// Sends to a collector.
#[derive(Clone, Debug)]
pub struct Client {
    url: Url,
}

/// Why a request was not taken.
#[derive(Debug)]
enum Trouble {
    /// It may be taken later, perhaps after this time.
    Passing(String, Option<Duration>),
    /// It would not be taken another time.
    Lasting(String),
}

impl Client {
    /// For a collector at this address.
    pub fn new(url: Url) -> Client {
        Client { url }
    }

    /// Sends a request. Waits by `wait` between attempts, which says whether to go on.
    ///
    /// # Errors
    /// It was not taken, or only a part of it.
    pub fn send(
        &self,
        signal: Signal,
        request: &[u8],
        wait: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<(), String> {
        let path = match signal {
            Signal::Metrics => "/v1/metrics",
            Signal::Traces => "/v1/traces",
        };
        let mut pause = FIRST_WAIT;
        for attempt in 1.. {
            match self.attempt(path, request) {
                Ok(()) => return Ok(()),
                Err(Trouble::Lasting(reason)) => return Err(reason),
                Err(Trouble::Passing(reason, asked)) => {
                    let time = asked.unwrap_or(pause).min(LONGEST_WAIT);
                    if attempt >= ATTEMPTS || !wait(time) {
                        return Err(reason);
                    }
                    pause *= 2;
                }
            }
        }
        Ok(())
    }

    fn attempt(&self, path: &str, request: &[u8]) -> Result<(), Trouble> {
        let sent = post(&self.url, path, "application/json", request, LIMIT);
        let answer = sent.map_err(|error| passing(&error))?;
        let status = answer.status;
        match status {
            200..=299 => taken_partly(&answer.body).map_or(Ok(()), |reason| Err(Trouble::Lasting(reason))),
            429 | 502..=504 => Err(Trouble::Passing(format!("HTTP status {status}"), answer.retry_after())),
            _ => Err(Trouble::Lasting(format!("HTTP status {status}"))),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(formatter)
    }
}

fn passing(error: &io::Error) -> Trouble {
    match error.kind() {
        ErrorKind::InvalidData => Trouble::Lasting(error.to_string()),
        ErrorKind::TimedOut => Trouble::Passing("it does not answer".to_owned(), None),
        _ => Trouble::Passing(error.to_string(), None),
    }
}

/// Why a part of the request was not taken, if the answer says so.
fn taken_partly(body: &[u8]) -> Option<String> {
    let answer: Json = serde_json::from_slice(body).ok()?;
    let part = answer.get("partialSuccess")?;
    // A number of 64 bits is a string, or a number all the same.
    let number = |value: &Json| value.as_str().and_then(|text| text.parse().ok()).or(value.as_u64());
    let rejected = ["rejectedDataPoints", "rejectedSpans"].iter().find_map(|name| number(part.get(name)?));
    let count = rejected.filter(|count| *count > 0)?;
    let message = part.get("errorMessage").and_then(Json::as_str).unwrap_or_default();
    Some(format!("{count} of a request were rejected: {}", printable::text(message)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::Collector;

    fn send(collector: &Collector, waits: &mut Vec<Duration>) -> Result<(), String> {
        let client = Client::new(collector.url().parse().expect("an address"));
        client.send(Signal::Metrics, b"{}", &mut |time| {
            waits.push(time);
            true
        })
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_lasts_is_not() {
        let mut waits = Vec::new();
        let collector = Collector::answering(&["503 No", "429 No\r\nRetry-After: 3", "200 OK"]);
        assert_eq!(send(&collector, &mut waits), Ok(()));
        assert_eq!(waits, [FIRST_WAIT, Duration::from_secs(3)]);
        assert_eq!(collector.requests(), vec!["POST /base/v1/metrics HTTP/1.1 {}"; 3]);
        let collector = Collector::answering(&["400 No", "200 OK"]);
        assert_eq!(send(&collector, &mut waits), Err("HTTP status 400".to_owned()));
        let collector = Collector::answering(&["503 No"; 9]);
        assert_eq!(send(&collector, &mut waits), Err("HTTP status 503".to_owned()));
        assert_eq!(collector.requests().len(), ATTEMPTS as usize);
        let collector = Collector::answering(&["503 No\r\nRetry-After: 100000000"; 9]);
        waits.clear();
        assert!(send(&collector, &mut waits).is_err());
        assert!(waits.iter().all(|time| *time <= LONGEST_WAIT), "{waits:?}");
    }

    #[test]
    fn nobody_listening_may_pass() {
        let collector = Collector::answering(&[]);
        let client = Client::new(collector.url().parse().expect("an address"));
        drop(collector);
        let mut count = 0;
        let sent = client.send(Signal::Traces, b"", &mut |_| {
            count += 1;
            count < 2
        });
        assert!(sent.is_err() && count == 2, "{sent:?} {count}");
    }

    #[test]
    fn a_part_that_is_rejected_is_told() {
        let said = |body: &str| taken_partly(body.as_bytes());
        assert_eq!(said("{}"), None);
        assert_eq!(said("no JSON"), None);
        assert_eq!(said(r#"{"partialSuccess":{"rejectedDataPoints":"0"}}"#), None);
        let part = r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"a\u001bb"}}"#;
        assert_eq!(said(part).as_deref(), Some("2 of a request were rejected: a\\x1bb"));
    }
}
