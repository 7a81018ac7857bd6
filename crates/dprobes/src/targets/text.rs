//! Text, in files and on standard error.

use std::fs::File;
use std::io;

use trace::Record;
use trace::sink::{Sink, Texts, View};

use crate::spool::Spool;

/// A file, which a thread of its own writes.
#[derive(Debug)]
pub(super) struct TextFile {
    spool: Spool,
    texts: Texts,
}

impl TextFile {
    pub(super) fn new(file: File) -> TextFile {
        TextFile { spool: Spool::new(file), texts: Texts::default() }
    }

    /// One that several programs may have, of which none must wait for ever.
    pub(super) fn shared(file: File) -> TextFile {
        TextFile { spool: Spool::impatient(file), texts: Texts::default() }
    }
}

impl Sink for TextFile {
    fn show(&mut self, program: u32, view: &View) {
        self.texts.show(program, view);
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.texts.forget(program);
        // Not waited for: there may be other programs, and the end waits for all.
        self.spool.idle()
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        let TextFile { spool, texts } = self;
        spool.put(|text| texts.of(program).append(record, text))
    }

    fn is_ready(&mut self) -> bool {
        self.spool.is_ready()
    }

    fn idle(&mut self) -> io::Result<()> {
        self.spool.idle()
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.texts.refresh(tell);
    }

    fn finish(&mut self) -> io::Result<()> {
        self.spool.flush()
    }

    fn lost(&self) -> u64 {
        self.spool.lost()
    }
}

/// Standard error, where each record is written at once.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    texts: Texts,
    lost: u64,
}

impl Sink for Terminal {
    fn show(&mut self, program: u32, view: &View) {
        self.texts.show(program, view);
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        self.texts.of(program).write(record, &mut io::stderr()).inspect_err(|_| self.lost += 1)
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.texts.refresh(tell);
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
