//! The followed threads, by id.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use crate::tracked::{Activity, Tracked};

/// All followed threads.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    all: HashMap<i32, Tracked>,
}

impl Deref for Threads {
    type Target = HashMap<i32, Tracked>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Threads {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.all
    }
}

impl Threads {
    pub(crate) fn set_activity(&mut self, tid: i32, activity: Activity) {
        if let Some(tracked) = self.get_mut(&tid) {
            tracked.activity = activity;
        }
    }
}
