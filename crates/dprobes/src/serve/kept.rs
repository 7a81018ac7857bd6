//! Answers that are kept: several pages may show the same, and a page asks again and again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most answers that are kept.
const MAX_KEPT: usize = 8;
/// Most bytes of them.
const MAX_BYTES: usize = 32 << 20;
/// What takes so long to read is not read again for each change of the file.
const LONG: Duration = Duration::from_millis(200);
/// How much longer than reading took its answer is given, though the file has changed.
const REST: u32 = 9;

/// An answer, and the state of the file that it is of.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) state: String,
    pub(super) body: Arc<[u8]>,
    made: Instant,
    took: Duration,
}

impl Answer {
    /// An answer that was begun to be made at a time.
    pub(super) fn begun(begun: Instant, state: String, body: &[u8]) -> Answer {
        Answer { state, body: body.into(), made: Instant::now(), took: begun.elapsed() }
    }

    /// Whether it will do for this state of the file.
    fn is_fresh(&self, state: &str) -> bool {
        self.state == state || (self.took >= LONG && self.made.elapsed() < self.took * REST)
    }
}

/// The latest answers, by question.
#[derive(Debug, Default)]
pub(super) struct Kept(VecDeque<(String, Answer)>);

impl Kept {
    /// The answer to a question, if it will do for this state of the file.
    pub(super) fn find(&mut self, question: &str, state: &str) -> Option<Answer> {
        let place = self.0.iter().position(|(other, answer)| other == question && answer.is_fresh(state))?;
        let found = self.0.remove(place)?;
        let answer = found.1.clone();
        self.0.push_back(found);
        Some(answer)
    }

    /// Keeps an answer, and drops those that were not asked for the longest.
    pub(super) fn put(&mut self, question: String, answer: Answer) {
        self.0.retain(|(other, _)| *other != question);
        self.0.push_back((question, answer));
        let bytes = |kept: &VecDeque<(String, Answer)>| -> usize {
            kept.iter().map(|(_, answer)| answer.body.len()).sum()
        };
        while self.0.len() > MAX_KEPT || bytes(&self.0) > MAX_BYTES {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(state: &str, bytes: usize, took: Duration) -> Answer {
        let answer = Answer::begun(Instant::now(), state.to_owned(), &vec![0; bytes]);
        Answer { took, ..answer }
    }

    #[test]
    fn an_answer_is_given_while_the_file_is_the_same() {
        let mut kept = Kept::default();
        kept.put("a".to_owned(), answer("1", 5, Duration::ZERO));
        assert_eq!(kept.find("a", "1").map(|answer| answer.body.len()), Some(5));
        assert!(kept.find("a", "2").is_none() && kept.find("b", "1").is_none());
    }

    #[test]
    fn what_takes_long_is_not_read_again_for_each_change() {
        let mut kept = Kept::default();
        kept.put("a".to_owned(), answer("1", 5, Duration::from_secs(3600)));
        assert_eq!(kept.find("a", "2").map(|answer| answer.state), Some("1".to_owned()));
        let old = Instant::now().checked_sub(Duration::from_secs(10)).expect("the machine runs as long");
        kept.put("a".to_owned(), Answer { made: old, ..answer("1", 5, Duration::from_secs(1)) });
        assert!(kept.find("a", "2").is_none());
    }

    #[test]
    fn the_latest_are_kept_within_bounds() {
        let mut kept = Kept::default();
        for question in 0..=MAX_KEPT {
            kept.put(question.to_string(), answer("1", 5, Duration::ZERO));
            assert!(kept.find("0", "1").is_some(), "it is asked for each time");
        }
        assert!(kept.0.len() == MAX_KEPT && kept.find("1", "1").is_none());
        kept.put("large".to_owned(), answer("1", MAX_BYTES, Duration::ZERO));
        assert!(kept.0.len() == 1 && kept.find("large", "1").is_some());
        kept.put("larger".to_owned(), answer("1", MAX_BYTES + 1, Duration::ZERO));
        assert!(kept.0.is_empty());
    }
}
