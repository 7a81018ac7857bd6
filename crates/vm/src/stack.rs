//! The RPN stack: a circular buffer of 1024 words, all zero when a hit starts.
//!
//! It grows downwards: the first push goes to slot 1023, and the push after the one to slot 0 goes
//! to slot 1023 again. A pop only moves the top, so popped words can reappear. To start a hit with
//! zeros without clearing 8 KiB, the deepest slot written is remembered, and only what the last hit
//! wrote is cleared.

use crate::Word;
use crate::partial_run::Element;

/// Words of the RPN stack.
pub const STACK_WORDS: usize = 1024;

/// The RPN stack during a run.
pub(crate) struct Stack<'s> {
    words: &'s mut [u64; STACK_WORDS],
    /// The slot of the top.
    top: usize,
    /// Words from slot 1023 down to the deepest slot that this run has written.
    used: usize,
}

impl<'s> Stack<'s> {
    /// An empty stack in `words`. Clears the last `used` words; the others must be zero already.
    #[inline]
    pub(crate) fn new(words: &'s mut [u64; STACK_WORDS], used: usize) -> Stack<'s> {
        if used != 0 {
            words[STACK_WORDS - used.min(STACK_WORDS)..].fill(0);
        }
        Stack { words, top: 0, used: 0 }
    }

    /// Loads the elements and the top of a run that is resumed into an empty stack.
    #[inline(always)]
    pub(crate) fn fill(&mut self, word: Word, top: usize, elements: &[Element]) {
        for element in elements {
            self.set((element.slot % STACK_WORDS as u64) as usize, word.truncate(element.value));
        }
        self.move_top(top);
    }

    /// The words, slot by slot.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64; STACK_WORDS] {
        self.words
    }

    /// The slot of the top.
    #[inline(always)]
    pub(crate) fn slot(&self) -> usize {
        self.top
    }

    /// Words from slot 1023 down to the deepest slot that this run has written.
    #[inline(always)]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// The top.
    #[inline(always)]
    pub(crate) fn top(&self) -> u64 {
        self.get(self.top)
    }

    /// Replaces the top; `value` must be a word.
    #[inline(always)]
    pub(crate) fn set_top(&mut self, value: u64) {
        self.set(self.top, value);
    }

    /// The element in a slot (modulo 1024).
    #[inline(always)]
    pub(crate) fn get(&self, slot: usize) -> u64 {
        self.words[slot % STACK_WORDS]
    }

    /// Sets the element in a slot (modulo 1024); `value` must be a word.
    #[inline(always)]
    pub(crate) fn set(&mut self, slot: usize, value: u64) {
        self.words[slot % STACK_WORDS] = value;
        self.used = self.used.max(STACK_WORDS - slot % STACK_WORDS);
    }

    /// Makes a slot (modulo 1024) the top.
    #[inline(always)]
    pub(crate) fn move_top(&mut self, slot: usize) {
        self.top = slot % STACK_WORDS;
    }

    /// Pushes a word.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: u64) {
        self.top = self.top.wrapping_sub(1) % STACK_WORDS;
        self.set_top(value);
    }

    /// Pops a word.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> u64 {
        let value = self.top();
        self.top = (self.top + 1) % STACK_WORDS;
        value
    }

    /// Pops and drops `count` words.
    #[inline(always)]
    pub(crate) fn discard(&mut self, count: u64) {
        self.top = (self.top + (count % STACK_WORDS as u64) as usize) % STACK_WORDS;
    }

    /// Pushes `value` `count` + 1 times. After 1024 pushes only the top still changes.
    #[inline]
    pub(crate) fn push_copies(&mut self, value: u64, count: u64) {
        if count < STACK_WORDS as u64 {
            for _ in 0..=count {
                self.push(value);
            }
        } else {
            self.words.fill(value);
            self.used = STACK_WORDS;
            let down = (count % STACK_WORDS as u64) as usize + 1;
            self.top = (self.top + STACK_WORDS - down) % STACK_WORDS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_stack_holds_no_word_of_the_last_run() {
        let mut words = [0; STACK_WORDS];
        for pushes in [0, 1, 5, STACK_WORDS - 1, STACK_WORDS, STACK_WORDS + 7] {
            let mut stack = Stack::new(&mut words, 0);
            for value in 0..pushes {
                stack.push(value as u64 + 1);
            }
            let used = stack.used();
            assert_eq!(used, pushes.min(STACK_WORDS));
            assert_eq!(*Stack::new(&mut words, used).words(), [0; STACK_WORDS]);
        }
        // A word set in an empty stack is in slot 0, the deepest slot.
        let mut stack = Stack::new(&mut words, 0);
        stack.set_top(9);
        let used = stack.used();
        assert_eq!(*Stack::new(&mut words, used).words(), [0; STACK_WORDS]);
    }

    #[test]
    fn copies_are_pushes_repeated() {
        for count in [0, 1, 255, 1022, 1023, 1024, 1025, 2047, 5000] {
            let (mut words, mut expected) = ([7; STACK_WORDS], [7; STACK_WORDS]);
            let mut stack = Stack { words: &mut words, top: 3, used: 0 };
            let mut pushed = Stack { words: &mut expected, top: 3, used: 0 };
            stack.push_copies(8, count);
            (0..=count).for_each(|_| pushed.push(8));
            assert_eq!(stack.top, pushed.top, "{count}");
            assert_eq!(stack.used, pushed.used, "{count}");
            assert_eq!(words, expected, "{count}");
        }
        let mut words = [0; STACK_WORDS];
        let mut stack = Stack::new(&mut words, 0);
        stack.push_copies(8, u64::MAX);
        assert_eq!((stack.top, stack.used), (0, STACK_WORDS), "2^64 pushes go round whole");
    }
}
