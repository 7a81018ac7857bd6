//! Files that become objects all at the end, or none.
//!
//! ```text
//! begin    nothing is asked of the store
//! write    a part when there are 8 MiB: POST ?uploads, then PUT ?partNumber=1 ...
//! ended    what is left waits in memory if it is little in all, else it is the last part
//! commit   PUT of files without parts, POST ?uploadId= of those with parts: now there are objects
//! dropped  DELETE ?uploadId= of what was begun
//! ```

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::answers::{element, escaped, has_element};
use super::bucket::{Ask, Bucket};

/// The bytes of a part; those of the last one are fewer. Stores take 5 MiB to 5 GiB.
const PART: usize = 8 << 20;

/// After how many parts a part has twice as many bytes, three times at most. A file of 10,000
/// parts, the most that stores take, has 609 GiB.
const STEP: usize = 2_000;

/// The most parts of a file.
const PARTS: usize = 10_000;

/// The most bytes of ended files that wait in memory.
const KEPT: usize = 32 << 20;

/// The files of one conversion. Dropping it without commit gives up what was begun.
#[derive(Clone, Debug)]
pub struct Uploads(Arc<Mutex<State>>);

/// A file, which is written to.
#[derive(Debug)]
pub struct Upload {
    state: Arc<Mutex<State>>,
    number: usize,
}

struct State {
    bucket: Bucket,
    files: Vec<File>,
    /// The bytes of ended files that wait.
    kept: usize,
    /// Tells the user of what remains in the store.
    tell: fn(&str),
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct File {
    path: String,
    /// What the store calls it, once a part of it is there.
    id: Option<String>,
    /// What the store calls its parts.
    parts: Vec<String>,
    /// What is not there yet.
    rest: Vec<u8>,
    /// Nothing more is written to it.
    is_ended: bool,
    /// What is left of it is sent, or waits.
    is_settled: bool,
    is_object: bool,
}

impl Uploads {
    /// Into a bucket. `tell` tells the user of what remains there if it cannot be given up.
    pub fn new(bucket: Bucket, tell: fn(&str)) -> Uploads {
        Uploads(Arc::new(Mutex::new(State { bucket, files: Vec::new(), kept: 0, tell })))
    }

    /// Begins a file, by its path below the prefix. Files that have ended are settled first.
    ///
    /// # Errors
    /// The store does not take one of them.
    pub fn begin(&self, path: &str) -> io::Result<Upload> {
        let mut state = lock(&self.0);
        state.settle()?;
        state.files.push(File { path: path.to_owned(), ..File::default() });
        Ok(Upload { state: Arc::clone(&self.0), number: state.files.len() - 1 })
    }

    /// Ends all files, and makes objects of them.
    ///
    /// # Errors
    /// The store does not take one; the text says how many are objects already.
    pub fn commit(&self) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.files.iter_mut().for_each(|file| file.is_ended = true);
        state.settle()?;
        let count = state.files.len();
        for done in 0..count {
            if let Err(error) = state.make_object(done) {
                let text = format!("{error}; {done} of {count} files are in the store");
                return Err(io::Error::other(text));
            }
        }
        Ok(())
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.state).write(self.number, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(file) = lock(&self.state).files.get_mut(self.number) {
            file.is_ended = true;
        }
    }
}

impl State {
    fn write(&mut self, number: usize, bytes: &[u8]) -> io::Result<()> {
        self.files[number].rest.extend_from_slice(bytes);
        loop {
            let size = part_size(self.files[number].parts.len());
            if self.files[number].rest.len() < size {
                return Ok(());
            }
            let behind = self.files[number].rest.split_off(size);
            let part = std::mem::replace(&mut self.files[number].rest, behind);
            self.send_part(number, &part)?;
        }
    }

    /// Sends what is left of files that have ended, unless it is little.
    fn settle(&mut self) -> io::Result<()> {
        for number in 0..self.files.len() {
            let file = &mut self.files[number];
            if !file.is_ended || file.is_settled {
                continue;
            }
            file.is_settled = true;
            if file.id.is_none() && self.kept + file.rest.len() <= KEPT {
                self.kept += file.rest.len();
            } else if !file.rest.is_empty() {
                let last = std::mem::take(&mut file.rest);
                self.send_part(number, &last)?;
            }
        }
        Ok(())
    }

    fn send_part(&mut self, number: usize, part: &[u8]) -> io::Result<()> {
        let State { bucket, files, .. } = self;
        let file = &mut files[number];
        let failed = named(&file.path);
        if file.parts.len() >= PARTS {
            return Err(failed(io::Error::other(format!(
                "a file of more than {PARTS} parts, which no store takes; --from and --until select less"
            ))));
        }
        let begin = || {
            let query = [("uploads", "")];
            let answer = bucket.ask(&Ask { method: "POST", path: &file.path, query: &query, body: b"" })?;
            element(&answer.body, "UploadId").ok_or_else(|| no_store("names no upload"))
        };
        let id = match &file.id {
            Some(id) => id.clone(),
            None => begin().map_err(&failed)?,
        };
        file.id = Some(id.clone());
        let count = (file.parts.len() + 1).to_string();
        let query = [("partNumber", &*count), ("uploadId", &*id)];
        let answer = bucket.ask(&Ask { method: "PUT", path: &file.path, query: &query, body: part });
        let answer = answer.map_err(&failed)?;
        let tag = answer.field("etag").ok_or_else(|| failed(no_store("names no part")))?;
        file.parts.push(tag.to_owned());
        Ok(())
    }

    fn make_object(&mut self, number: usize) -> io::Result<()> {
        let State { bucket, files, .. } = self;
        let file = &mut files[number];
        let made = match &file.id {
            None => bucket.ask(&Ask { method: "PUT", path: &file.path, query: &[], body: &file.rest }),
            Some(id) => {
                let body = list(&file.parts);
                let query = [("uploadId", &**id)];
                let ask = Ask { method: "POST", path: &file.path, query: &query, body: body.as_bytes() };
                bucket.ask_slowly(&ask, |body| has_element(body, "CompleteMultipartUploadResult"))
            }
        };
        made.map_err(named(&file.path))?;
        file.is_object = true;
        file.rest = Vec::new();
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let begun = self.files.iter().filter(|file| !file.is_object);
        for (path, id) in begun.filter_map(|file| Some((&file.path, file.id.as_ref()?))) {
            let ask = Ask { method: "DELETE", path, query: &[("uploadId", id)], body: b"" };
            if let Err(error) = self.bucket.ask_once(&ask) {
                let bucket = &self.bucket;
                (self.tell)(&format!("warning: {bucket}: parts of {path} remain in the store: {error}"));
                // The next ones would wait as long.
                return;
            }
        }
    }
}

/// The bytes of the part after so many.
fn part_size(parts: usize) -> usize {
    PART << (parts / STEP).min(3)
}

/// The parts of which an object is made.
fn list(tags: &[String]) -> String {
    let part = |(at, tag): (usize, &String)| {
        format!("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", at + 1, escaped(tag))
    };
    let parts: String = tags.iter().enumerate().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

/// Names the file in an error.
fn named(path: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::other(format!("{path}: {error}"))
}

fn no_store(what: &str) -> io::Error {
    io::Error::other(format!("what answers {what}, so it is no object store of this protocol"))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::testing::Collector;
    use crate::s3::Settings;
    use crate::s3::sign::Credentials;

    const UPLOAD: &str = "200 OK\r\n\r\n<UploadId>u&amp;1</UploadId>";
    const TAG: &str = "200 OK\r\nETag: \"t\"";
    const MADE: &str = "200 OK\r\n\r\n<CompleteMultipartUploadResult xmlns=\"\"/>";

    /// Uploads to a store that answers so.
    fn uploads(store: &Collector) -> Uploads {
        let settings = Settings {
            url: store.url().parse().expect("an address"),
            region: "r".to_owned(),
            credentials: Credentials {
                access_key: "a".to_owned(),
                secret_key: "s".to_owned(),
                session_token: None,
            },
        };
        let address = "s3://traces/all".parse().expect("an address");
        let bucket = Bucket::new(address, settings).waiting(|time| assert!(time <= Duration::from_secs(10)));
        Uploads::new(bucket, |text| assert!(text.contains("remain"), "{text}"))
    }

    /// The requests: their first lines, and how long their bodies are.
    fn requests(store: &Collector) -> Vec<(String, usize)> {
        let cut = |text: &String| {
            let (head, body) = text.split_once(" HTTP/1.1 ").expect("a request");
            (head.to_owned(), body.len())
        };
        store.requests().iter().map(cut).collect()
    }

    fn write(uploads: &Uploads, path: &str, bytes: usize) -> io::Result<()> {
        let mut upload = uploads.begin(path)?;
        // In pieces that no part is a multiple of.
        vec![b'x'; bytes].chunks(1_000_000).try_for_each(|piece| upload.write_all(piece))
    }

    #[test]
    fn small_files_are_sent_at_the_end_as_they_are() {
        let store = Collector::answering(&["200 OK"; 2]);
        let uploads = uploads(&store);
        write(&uploads, "h=1/a", 3).expect("it waits");
        write(&uploads, "h=1/b", 4).expect("it waits");
        assert_eq!(store.requests(), [""; 0]);
        uploads.commit().expect("it is taken");
        let put = |name: &str| format!("PUT /base/traces/all/h%3D1/{name}");
        assert_eq!(requests(&store), [(put("a"), 3), (put("b"), 4)]);
    }

    #[test]
    fn large_files_are_sent_in_parts_and_are_objects_at_the_end() {
        let store = Collector::answering(&[UPLOAD, TAG, "503 No", TAG, TAG, MADE]);
        let uploads = uploads(&store);
        write(&uploads, "a", 2 * PART + 1).expect("it is taken");
        assert_eq!(requests(&store).len(), 4);
        uploads.commit().expect("it is taken");
        let query = |query: &str| format!("/base/traces/all/a?{query}");
        let part = |number: u32| format!("PUT {}", query(&format!("partNumber={number}&uploadId=u%261")));
        let list = super::list(&vec!["\"t\"".to_owned(); 3]);
        assert_eq!(
            requests(&store),
            [
                (format!("POST {}", query("uploads=")), 0),
                (part(1), PART),
                (part(2), PART),
                (part(2), PART),
                (part(3), 1),
                (format!("POST {}", query("uploadId=u%261")), list.len()),
            ]
        );
        assert!(list.contains("<Part><PartNumber>3</PartNumber><ETag>\"t\"</ETag></Part>"), "{list}");
    }

    #[test]
    fn what_is_not_taken_is_given_up() {
        let refused = "403 No\r\n\r\n<Code>AccessDenied</Code>";
        let store = Collector::answering(&[UPLOAD, TAG, refused, "204 No"]);
        let begun = uploads(&store);
        let error = write(&begun, "a", 2 * PART).expect_err("it is not taken").to_string();
        assert!(error.starts_with("a: HTTP status 403 (AccessDenied): "), "{error}");
        drop(begun);
        let requests = requests(&store);
        assert_eq!(requests.last(), Some(&("DELETE /base/traces/all/a?uploadId=u%261".to_owned(), 0)));
    }

    #[test]
    fn what_a_store_begins_to_answer_is_no_success_yet() {
        let late = "200 OK\r\n\r\n<Error><Code>AccessDenied</Code></Error>";
        let store = Collector::answering(&[UPLOAD, TAG, "200 OK", "200 OK", late, "204 No"]);
        let begun = uploads(&store);
        write(&begun, "a", PART).expect("it is taken");
        let error = begun.commit().expect_err("it is not taken").to_string();
        assert!(
            error.contains("AccessDenied") && error.ends_with("0 of 1 files are in the store"),
            "{error}"
        );
        drop(begun);
        assert_eq!(store.requests().len(), 6);
    }

    #[test]
    fn attempts_are_bounded_and_said() {
        let store = Collector::answering(&["500 No"; 4]);
        let begun = uploads(&store);
        write(&begun, "a", 1).expect("it waits");
        let error = begun.commit().expect_err("it is not taken").to_string();
        assert_eq!(error, "a: HTTP status 500, 4 times; 0 of 1 files are in the store");
        assert_eq!(store.requests().len(), 4);
    }

    #[test]
    fn parts_grow_with_their_number_and_what_waits_is_bounded() {
        assert_eq!(
            [0, STEP - 1, STEP, 3 * STEP, PARTS].map(part_size),
            [PART, PART, 2 * PART, 8 * PART, 8 * PART]
        );
        let parts = 2 * (KEPT / PART);
        let store = Collector::answering(&[UPLOAD, TAG].repeat(parts));
        let begun = uploads(&store);
        // Each just less than a part.
        for number in 0..=parts {
            write(&begun, &number.to_string(), PART - 1).expect("it is taken");
        }
        let state = lock(&begun.0);
        let held: usize = state.files.iter().map(|file| file.rest.len()).sum();
        assert!(held <= KEPT + PART && state.kept <= KEPT, "{held}");
    }
}
