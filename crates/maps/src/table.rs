//! The hash table of one copy: entries in buckets, each key in one of its two buckets.
//!
//! An insertion takes a lane of the emptier bucket with one compare-and-swap of the control word
//! it has just read, which fails if anybody changed the bucket since. Then it looks at the other
//! bucket again: two threads that insert one key into different buckets see each other, and the
//! one in the second bucket gives way. So a key is there once.
//!
//! An update that is under way while its own key is erased may be added to the next key in that
//! lane: to exclude it would cost each update another atomic operation. Other keys' updates are
//! exact.

use core::hint::spin_loop;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use crate::control::{self, CHANGE, LANES, READY, TAKEN};
use crate::key::Key;
use crate::recency::Recency;

/// How often something is tried that others are in the way of.
pub(crate) const TRIES: usize = 256;

/// How often a busy lane is looked at before it is taken from its owner: some 0.2 ms.
pub(crate) const BUSY_LOOKS: usize = 4096;

/// Free lanes of a first bucket that make the second one no better.
const FREE: u32 = 4;

/// The buckets of one copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    pub(crate) words: &'a [AtomicU64],
    pub(crate) buckets: u32,
    pub(crate) bucket_words: usize,
    pub(crate) key_words: usize,
    pub(crate) entry_words: usize,
    /// The lanes of a bucket that are used.
    pub(crate) lanes: usize,
    /// Of a map that evicts.
    pub(crate) recency: Option<Recency<'a>>,
}

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    control: &'a AtomicU64,
    seen: u64,
    lane: usize,
    /// Its place in the table.
    pub(crate) index: u64,
    /// Length and key.
    pub(crate) key: &'a [AtomicU64],
    /// The value.
    pub(crate) value: &'a [AtomicU64],
    /// When it was used, if the map evicts.
    used: Option<&'a AtomicU64>,
}

/// What is known of a key after a look at a bucket.
enum Look<'a> {
    Found(Entry<'a>),
    /// Somebody is changing the key, or may be.
    Busy,
    /// It was not there when the control word was this.
    Absent(u64),
}

/// What came of an attempt to insert a key.
enum Attempt<'a> {
    Done(Entry<'a>),
    Again,
    Full,
}

impl<'a> Table<'a> {
    #[inline]
    fn bucket(&self, bucket: u32) -> Option<(&'a AtomicU64, &'a [AtomicU64])> {
        let start = (bucket as usize).checked_mul(self.bucket_words)?;
        self.words.get(start..start.checked_add(self.bucket_words)?)?.split_first()
    }

    #[inline]
    fn entry(&self, bucket: u32, lane: usize, seen: u64) -> Option<Entry<'a>> {
        let (control, entries) = self.bucket(bucket)?;
        let start = lane * self.entry_words;
        let words = entries.get(start..start + self.entry_words)?;
        let (key, rest) = words.split_at_checked(1 + self.key_words)?;
        let (value, used) = match self.recency {
            None => (rest, None),
            Some(_) => rest.split_last().map(|(used, value)| (value, Some(used)))?,
        };
        let index = u64::from(bucket) * LANES as u64 + lane as u64;
        Some(Entry { control, seen, lane, index, key, value, used })
    }

    fn look(&self, bucket: u32, key: &Key<'_>) -> Look<'a> {
        let Some((control, _)) = self.bucket(bucket) else { return Look::Absent(0) };
        let seen = control.load(Acquire);
        for lane in control::equal(seen, READY | key.tag()) {
            let Some(entry) = self.entry(bucket, lane, seen) else { continue };
            if key.is_in(entry.key) {
                return if entry.is_unchanged() { Look::Found(entry) } else { Look::Busy };
            }
        }
        if control::equal(seen, key.tag()).is_empty() { Look::Absent(seen) } else { Look::Busy }
    }

    /// The entry with a key.
    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<Entry<'a>> {
        let found = self.hit(key).or_else(|| self.search(key))?;
        self.touch(&found);
        Some(found)
    }

    /// Notes that an entry is used.
    #[inline]
    fn touch(&self, entry: &Entry<'_>) {
        if let (Some(recency), Some(used)) = (self.recency, entry.used) {
            recency.touch(used);
        }
    }

    /// The entry with a key, if it is the first lane of the first bucket that may have it: most
    /// are, and this is all that their updates cost.
    #[inline]
    fn hit(&self, key: &Key<'_>) -> Option<Entry<'a>> {
        let bucket = key.first(self.buckets);
        let (control, _) = self.bucket(bucket)?;
        let seen = control.load(Acquire);
        let lane = control::equal(seen, READY | key.tag()).next()?;
        let entry = self.entry(bucket, lane, seen)?;
        (key.is_in(entry.key) && entry.is_unchanged()).then_some(entry)
    }

    /// The entry with a key, wherever it is. Waits for those that may be changing it.
    #[inline(never)]
    fn search(&self, key: &Key<'_>) -> Option<Entry<'a>> {
        for _ in 0..BUSY_LOOKS {
            let mut busy = false;
            for bucket in [key.first(self.buckets), key.second(self.buckets)] {
                match self.look(bucket, key) {
                    Look::Found(entry) => return Some(entry),
                    Look::Busy => busy = true,
                    Look::Absent(_) => {}
                }
            }
            if !busy {
                return None;
            }
            spin_loop();
        }
        None
    }

    /// Reads the value of a key, perhaps several times. `None`: there is no such key. False: it
    /// was changed each time it was read. What is read says whether a second look found the same:
    /// while a thread is stopped in between, the version may come round to what it was.
    #[inline]
    pub(crate) fn read(&self, key: &Key<'_>, mut read: impl FnMut(&[AtomicU64]) -> bool) -> Option<bool> {
        for _ in 0..TRIES {
            let entry = self.find(key)?;
            if read(entry.value) && entry.is_unchanged() {
                return Some(true);
            }
        }
        Some(false)
    }

    /// The entry with a key, and whether it is new. A new one has the value that `fill` gives it
    /// before anybody can see it. `None`: there is no room.
    #[inline]
    pub(crate) fn find_or_insert(
        &self,
        key: &Key<'_>,
        fill: impl Fn(&[AtomicU64]),
    ) -> Option<(Entry<'a>, bool)> {
        let (entry, new) = match self.hit(key) {
            Some(entry) => (entry, false),
            None => self.insert_or_find(key, &fill)?,
        };
        if !new {
            self.touch(&entry);
        }
        Some((entry, new))
    }

    #[inline(never)]
    fn insert_or_find(&self, key: &Key<'_>, fill: &dyn Fn(&[AtomicU64])) -> Option<(Entry<'a>, bool)> {
        let (first, second) = (key.first(self.buckets), key.second(self.buckets));
        // Twice: by then, each lane that was in the way has been taken from its owner. More often
        // than that only memory is in the way that somebody writes nonsense to.
        for tried in 1..=2 * BUSY_LOOKS {
            if tried % BUSY_LOOKS == 0 {
                [first, second].into_iter().for_each(|bucket| self.take_busy(bucket, key));
            }
            let looks = (self.look(first, key), self.look(second, key));
            match looks {
                (Look::Found(entry), _) | (_, Look::Found(entry)) => return Some((entry, false)),
                (Look::Absent(one), Look::Absent(two)) => {
                    match self.insert(key, (first, one), (second, two), fill) {
                        Attempt::Done(entry) => return Some((entry, true)),
                        Attempt::Again => {}
                        Attempt::Full => return None,
                    }
                }
                _ => {}
            }
            spin_loop();
        }
        None
    }

    fn insert(
        &self,
        key: &Key<'_>,
        first: (u32, u64),
        second: (u32, u64),
        fill: &dyn Fn(&[AtomicU64]),
    ) -> Attempt<'a> {
        let lanes = |control| control::equal(control, 0).filter(|lane| *lane < self.lanes);
        let free = |control| lanes(control).count() as u32;
        // The first bucket is looked at first: it is taken while it is not half full.
        let is_first = free(first.1) >= FREE.min(free(second.1));
        let ((bucket, seen), other) = if is_first { (first, second) } else { (second, first) };
        let Some(lane) = lanes(seen).next() else { return self.evict([first, second]) };
        let Some(mut entry) = self.entry(bucket, lane, seen) else { return Attempt::Full };
        if !entry.change(control::at(lane, key.tag())) {
            return Attempt::Again;
        }
        if bucket != other.0 && !self.is_alone(key, other, is_first) {
            entry.end(0);
            return Attempt::Again;
        }
        key.write(entry.key);
        fill(entry.value);
        if let (Some(recency), Some(used)) = (self.recency, entry.used) {
            recency.begin(used);
        }
        if entry.publish() { Attempt::Done(entry) } else { Attempt::Again }
    }

    /// Makes room in two buckets, if the map evicts: removes the entry that was not used for the
    /// longest time.
    #[cold]
    fn evict(&self, buckets: [(u32, u64); 2]) -> Attempt<'a> {
        let Some(recency) = self.recency else { return Attempt::Full };
        let entries = buckets.into_iter().flat_map(|(bucket, seen)| {
            control::ready(seen).filter_map(move |lane| self.entry(bucket, lane, seen))
        });
        let age = |entry: &Entry<'_>| entry.used.map_or(0, |used| recency.age(used));
        let Some(oldest) = entries.max_by_key(age) else { return Attempt::Full };
        if oldest.erase() {
            recency.evicted.fetch_add(1, Relaxed);
        }
        Attempt::Again
    }

    /// Takes the busy lanes that may have a key from their owners.
    #[inline(never)]
    fn take_busy(&self, bucket: u32, key: &Key<'_>) {
        let Some((control, _)) = self.bucket(bucket) else { return };
        for _ in 0..TRIES {
            let seen = control.load(Acquire);
            let Some(lane) = control::equal(seen, key.tag()).next() else { return };
            let new = seen.wrapping_add(control::at(lane, TAKEN - key.tag())).wrapping_add(CHANGE);
            let _ = control.compare_exchange(seen, new, SeqCst, Relaxed);
        }
    }

    /// Whether no other thread has put the key into its other bucket meanwhile.
    fn is_alone(&self, key: &Key<'_>, other: (u32, u64), is_first: bool) -> bool {
        let Some((control, _)) = self.bucket(other.0) else { return true };
        if control.load(SeqCst) == other.1 {
            return true;
        }
        for _ in 0..TRIES {
            match self.look(other.0, key) {
                Look::Found(_) => return false,
                Look::Absent(_) => return true,
                Look::Busy if !is_first => return false,
                Look::Busy => spin_loop(),
            }
        }
        false
    }

    /// Removes a key. Whether there was one.
    pub(crate) fn erase(&self, key: &Key<'_>) -> bool {
        for _ in 0..TRIES {
            let Some(entry) = self.find(key) else { return false };
            if entry.erase() {
                return true;
            }
        }
        false
    }

    /// Removes all entries that nobody is writing.
    pub(crate) fn clear(&self) {
        for (control, _) in (0..self.buckets).map_while(|bucket| self.bucket(bucket)) {
            for _ in 0..TRIES {
                let seen = control.load(Relaxed);
                let cleared = control::without_ready(seen);
                if control::ready(seen).is_empty()
                    || control.compare_exchange(seen, cleared, SeqCst, Relaxed).is_ok()
                {
                    break;
                }
            }
        }
    }

    /// The entry at a place of the table.
    pub(crate) fn at(&self, index: u64) -> Option<Entry<'a>> {
        let bucket = u32::try_from(index / LANES as u64).ok()?;
        let lane = (index % LANES as u64) as usize;
        if bucket >= self.buckets {
            return None;
        }
        let seen = self.bucket(bucket)?.0.load(Acquire);
        control::is_ready(control::byte(seen, lane)).then(|| self.entry(bucket, lane, seen))?
    }

    /// The places of all entries at or after a place.
    pub(crate) fn indices(&self, from: u64) -> impl Iterator<Item = u64> + use<'a> {
        let table = *self;
        let lanes = LANES as u64;
        let first = u32::try_from(from / lanes).unwrap_or(u32::MAX);
        (first..self.buckets)
            .map_while(move |bucket| Some((bucket, table.bucket(bucket)?.0.load(Acquire))))
            .flat_map(move |(bucket, seen)| {
                control::ready(seen).map(move |lane| u64::from(bucket) * lanes + lane as u64)
            })
            .filter(move |&index| index >= from)
    }

    /// The number of entries.
    pub(crate) fn count(&self) -> u64 {
        let buckets = (0..self.buckets).map_while(|bucket| self.bucket(bucket));
        buckets.map(|(control, _)| u64::from(control::ready(control.load(Relaxed)).count())).sum()
    }
}

impl Entry<'_> {
    /// Whether what was read of the entry since it was found belongs together.
    #[inline]
    pub(crate) fn is_unchanged(&self) -> bool {
        fence(Acquire);
        self.control.load(Relaxed) == self.seen
    }

    /// Whether the lane is still that of a key with this tag.
    pub(crate) fn has_key(&self) -> bool {
        control::byte(self.control.load(Relaxed), self.lane) == control::byte(self.seen, self.lane)
    }

    /// Adds to the control word if it is as it was seen.
    #[inline]
    fn change(&mut self, by: u64) -> bool {
        let new = self.seen.wrapping_add(by).wrapping_add(CHANGE);
        let changed = self.control.compare_exchange(self.seen, new, SeqCst, Relaxed).is_ok();
        if changed {
            self.seen = new;
            // Others see what is written now no earlier than that the lane is busy.
            fence(Release);
        }
        changed
    }

    /// Ends the lane's being busy, for its owner: gives it another byte. False: somebody has taken
    /// it meanwhile; then it is empty. (Or others changed the bucket all the time: then it is busy
    /// still, for others to take.)
    fn end(&mut self, byte: u8) -> bool {
        let mut control = self.control.load(Relaxed);
        for _ in 0..BUSY_LOOKS {
            let now = control::byte(control, self.lane);
            let wanted = if now == TAKEN { 0 } else { byte };
            let without = control.wrapping_sub(control::at(self.lane, now));
            let new = without.wrapping_add(control::at(self.lane, wanted)).wrapping_add(CHANGE);
            match self.control.compare_exchange_weak(control, new, SeqCst, Relaxed) {
                Ok(_) => {
                    self.seen = new;
                    return now != TAKEN;
                }
                Err(changed) => control = changed,
            }
        }
        false
    }

    /// Makes the lane busy: readers see it as changed, writers wait. For the owner, see
    /// [`publish`](Self::publish).
    #[inline]
    pub(crate) fn lock(&mut self) -> bool {
        self.change(0u64.wrapping_sub(control::at(self.lane, READY)))
    }

    /// Makes a busy lane ready. False: it was taken from its owner, and has no entry any more.
    pub(crate) fn publish(&mut self) -> bool {
        let byte = control::byte(self.seen, self.lane) | READY;
        self.end(byte)
    }

    fn erase(mut self) -> bool {
        let byte = control::byte(self.seen, self.lane);
        self.change(0u64.wrapping_sub(control::at(self.lane, byte)))
    }
}

#[cfg(test)]
mod tests;
