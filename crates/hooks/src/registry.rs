//! The registry of all known hooks and their exits, which serializes changes.
//!
//! No lock is held while an exit runs, so an exit may register, arm, disarm and deregister any
//! exit.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::entry::{Arming, Departure, Entry};
use crate::head::HookHeader;
use crate::known::{Member, RegisteredHook};
use crate::list::HookInfo;
use crate::site::{self, Site};
use crate::state::VERSION;
use crate::{Error, pause, record, text, thread};

#[derive(Debug, Default)]
struct Registry {
    hooks: Vec<RegisteredHook>,
    /// The addresses of the site tables that were read.
    tables: HashSet<usize>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// Whether an exit has disarmed itself since the last [`settle`].
static UNSETTLED: AtomicBool = AtomicBool::new(false);

/// Runs `change` with the registry locked. This program's sites are known by then.
fn with<R>(change: impl FnOnce(&mut Registry) -> R) -> R {
    // A panic with the lock held means out of memory; each change is complete or not begun.
    let mut guard = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    let registry = guard.get_or_insert_default();
    registry.read_table(site::linked());
    let result = change(registry);
    unlock(guard);
    settle();
    result
}

/// Unlocks the registry, then drops what no thread can use any more: dropping a closure may run any
/// code.
fn unlock(mut guard: MutexGuard<'_, Option<Registry>>) {
    let (mut chains, mut entries) = (Vec::new(), Vec::new());
    if let Some(registry) = guard.as_mut() {
        if UNSETTLED.swap(false, Ordering::SeqCst) {
            registry.disarm_ended();
        }
        registry.hooks.iter_mut().for_each(|known| known.collect(&mut chains, &mut entries));
    }
    drop(guard);
    drop((chains, entries));
}

/// Notes that an exit has disarmed itself.
pub(crate) fn has_to_settle() {
    UNSETTLED.store(true, Ordering::SeqCst);
}

/// Removes exits that have disarmed themselves from their chains, so that sites may become dormant.
/// If another thread holds the registry, that thread does it.
#[inline]
pub(crate) fn settle() {
    while UNSETTLED.load(Ordering::SeqCst) {
        match REGISTRY.try_lock() {
            Ok(guard) => unlock(guard),
            Err(TryLockError::Poisoned(poisoned)) => unlock(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return,
        }
    }
}

impl Registry {
    /// Makes the hooks of a table of sites known.
    fn read_table(&mut self, sites: &'static [Site]) {
        if sites.is_empty() || !self.tables.insert(sites.as_ptr().addr()) {
            return;
        }
        for site in sites.iter().filter(|site| !text::rehearsal::is_own(site.head)) {
            // SAFETY: sites refer to hooks in static memory.
            let head = unsafe { &*site.head };
            self.identify(head).add_site(*site);
        }
    }

    /// The index of a hook that is or was known.
    fn index(&self, head: *const HookHeader) -> Option<usize> {
        self.hooks.iter().position(|known| std::ptr::eq(known.head, head))
    }

    fn identify(&mut self, head: &'static HookHeader) -> &mut RegisteredHook {
        let place = self.index(head).unwrap_or_else(|| {
            self.hooks.push(RegisteredHook::new(head));
            self.hooks.len() - 1
        });
        let known = &mut self.hooks[place];
        known.eligible = true;
        known
    }

    /// The indexes of a registered exit: hook, and exit in the hook.
    fn find(&self, entry: &Entry) -> Option<(usize, usize)> {
        let hook = self.index(entry.head)?;
        let member = self.hooks[hook].exits.iter().position(|member| std::ptr::eq(&*member.entry, entry))?;
        Some((hook, member))
    }

    fn find_all(&self, entries: &[&Entry]) -> Result<Vec<(usize, usize)>, Error> {
        entries.iter().map(|entry| self.find(entry).ok_or(Error::NotRegistered)).collect()
    }

    fn arm(&mut self, entries: &[&Entry]) -> Result<(), Error> {
        let found = self.find_all(entries)?;
        if !text::rehearsal::passes() {
            return Err(Error::Text);
        }
        let hooks = hooks_of(&found);
        // Make the sites active before any exit can be called: exits all become visible by one
        // store.
        for (place, &hook) in hooks.iter().enumerate() {
            if self.hooks[hook].activate().is_err() {
                hooks[..place].iter().for_each(|&hook| self.hooks[hook].deactivate_if_unused());
                return Err(Error::Text);
            }
        }
        for (hook, exit) in found {
            let member: &mut Member = &mut self.hooks[hook].exits[exit];
            // If it has just disarmed itself, begin a new arming.
            if member.arming.as_ref().is_none_or(|arming| arming.has_ended()) {
                member.arming = Some(Arc::new(Arming::default()));
            }
            record::show_armed(&member.entry, true);
        }
        self.publish(&hooks);
        Ok(())
    }

    fn disarm(&mut self, entries: &[&Entry]) -> Result<(), Error> {
        let found = self.find_all(entries)?;
        self.take_out(&found);
        Ok(())
    }

    /// Disarms exits at once. Their records change after the chains without them are in effect: an
    /// exit that finds its record changed before that has done so itself; one that finds it changed
    /// later leaves the other exits of its list to the hits that began before.
    fn take_out(&mut self, found: &[(usize, usize)]) {
        let taken = |&(hook, exit): &(usize, usize)| self.hooks[hook].exits[exit].arming.take();
        let armings: Vec<Option<Arc<Arming>>> = found.iter().map(taken).collect();
        self.publish(&hooks_of(found));
        for (&(hook, exit), arming) in found.iter().zip(armings) {
            arming.iter().for_each(|arming| arming.take_out());
            record::show_armed(&self.hooks[hook].exits[exit].entry, false);
        }
    }

    /// Disarms all exits of hooks, at once.
    fn take_out_all(&mut self, which: impl Fn(&RegisteredHook) -> bool) {
        let hooks = self.hooks.iter().enumerate().filter(|(_, known)| which(known));
        let exits =
            |(hook, known): (usize, &RegisteredHook)| (0..known.exits.len()).map(move |exit| (hook, exit));
        let found: Vec<(usize, usize)> = hooks.flat_map(exits).collect();
        self.take_out(&found);
    }

    /// Disarms the exits that have ended their own arming.
    fn disarm_ended(&mut self) {
        let mut hooks = Vec::new();
        for (hook, known) in self.hooks.iter_mut().enumerate() {
            for member in &mut known.exits {
                if member.arming.take_if(|arming| arming.has_ended()).is_some() {
                    record::show_armed(&member.entry, false);
                    hooks.push(hook);
                }
            }
        }
        hooks.dedup();
        self.publish(&hooks);
    }

    /// Puts the current set of armed exits into effect, for these hooks at once.
    fn publish(&mut self, hooks: &[usize]) {
        if hooks.is_empty() {
            return;
        }
        let version = VERSION.load(Ordering::SeqCst) + 1;
        let old: Vec<_> = hooks.iter().map(|&hook| self.hooks[hook].prepare(version)).collect();
        VERSION.store(version, Ordering::SeqCst);
        for (&hook, old) in hooks.iter().zip(old) {
            self.hooks[hook].retire(old);
            self.hooks[hook].deactivate_if_unused();
        }
    }

    /// Deregisters an exit. Returns the ticket that is over when no thread is inside it.
    fn deregister(&mut self, entry: &Entry) -> Result<u64, Error> {
        let (hook, place) = self.find(entry).ok_or(Error::NotRegistered)?;
        if self.hooks[hook].exits[place].arming.is_some() {
            self.take_out(&[(hook, place)]);
        }
        let known = &mut self.hooks[hook];
        let member = known.exits.remove(place);
        record::show_gone(&member.entry);
        member.entry.gone.store(true, Ordering::SeqCst);
        known.number_records();
        // A chain with it may have been replaced just before.
        let ticket = known.retire(None);
        // This list may hold the last reference to its closure.
        known.keep(member.entry);
        Ok(ticket)
    }
}

/// The hooks of exits, each once.
fn hooks_of(found: &[(usize, usize)]) -> Vec<usize> {
    let mut hooks: Vec<usize> = found.iter().map(|&(hook, _)| hook).collect();
    hooks.sort_unstable();
    hooks.dedup();
    hooks
}

/// Makes a hook known.
pub(crate) fn identify(head: &'static HookHeader) {
    with(|registry| {
        registry.identify(head);
    });
}

/// Makes the hooks of a table of sites known.
pub(crate) fn identify_table(sites: &'static [Site]) {
    with(|registry| registry.read_table(sites));
}

/// Forgets the hooks of a table of sites whose library will be unloaded.
pub(crate) fn delete_table(sites: &'static [Site]) {
    let is_there = |known: &RegisteredHook| sites.iter().any(|site| std::ptr::eq(site.head, known.head));
    with(|registry| registry.take_out_all(is_there));
    for site in sites {
        // SAFETY: sites refer to hooks that exist until this returns.
        let _ = delete(unsafe { &*site.head });
    }
    with(|registry| {
        registry.tables.remove(&sites.as_ptr().addr());
        for known in &mut registry.hooks {
            known.forget_sites(sites);
        }
        registry.hooks.retain(|known| !sites.iter().any(|site| std::ptr::eq(site.head, known.head)));
    });
}

/// Registers an exit; makes an unknown hook known.
pub(crate) fn register(head: &'static HookHeader, entry: Entry) -> Result<Arc<Entry>, Error> {
    with(|registry| {
        let known = match registry.index(head) {
            Some(place) => &mut registry.hooks[place],
            None => registry.identify(head),
        };
        let place = known.place_for(&entry)?;
        let entry = Arc::new(entry);
        known.exits.insert(place, Member { entry: Arc::clone(&entry), arming: None });
        known.number_records();
        Ok(entry)
    })
}

pub(crate) fn arm(entries: &[&Entry]) -> Result<(), Error> {
    with(|registry| registry.arm(entries))
}

pub(crate) fn disarm(entries: &[&Entry]) -> Result<(), Error> {
    with(|registry| registry.disarm(entries))
}

/// Whether an exit is armed.
pub(crate) fn is_armed(entry: &Entry) -> bool {
    with(|registry| {
        let found = registry.find(entry);
        found.is_some_and(|(hook, exit)| registry.hooks[hook].exits[exit].is_armed())
    })
}

/// Deregisters an exit, and waits until no thread is inside it, unless this thread is inside an
/// exit.
pub(crate) fn deregister(entry: &Entry) -> Result<Departure, Error> {
    let ticket = with(|registry| registry.deregister(entry))?;
    Ok(wait(entry.head, ticket))
}

/// Waits until no thread is left that was inside a hook when a ticket was issued.
fn wait(head: *const HookHeader, ticket: u64) -> Departure {
    let is_over =
        || with(|registry| registry.index(head).is_none_or(|hook| registry.hooks[hook].is_over(ticket)));
    if thread::is_inside() {
        return if is_over() { Departure::Complete } else { Departure::Pending };
    }
    pause::until(is_over);
    Departure::Complete
}

/// Deregisters all exits of a hook and makes it unknown.
pub(crate) fn delete(head: &'static HookHeader) -> Result<(), Error> {
    let ticket = with(|registry| {
        let hook =
            registry.index(head).filter(|&hook| registry.hooks[hook].eligible).ok_or(Error::UnknownHook)?;
        registry.take_out_all(|known| std::ptr::eq(known.head, head));
        while let Some(member) = registry.hooks[hook].exits.first() {
            let entry = Arc::clone(&member.entry);
            registry.deregister(&entry)?;
        }
        registry.hooks[hook].eligible = false;
        Ok(registry.hooks[hook].retire(None))
    })?;
    wait(head, ticket);
    Ok(())
}

/// Deletes all hooks.
///
/// # Errors
/// [`Error::InUse`] if exits are registered and `force` is false.
pub(crate) fn terminate(force: bool) -> Result<(), Error> {
    let heads = with(|registry| {
        if !force && registry.hooks.iter().any(|known| !known.exits.is_empty()) {
            return Err(Error::InUse);
        }
        registry.take_out_all(|known| known.eligible);
        Ok(registry.hooks.iter().filter(|known| known.eligible).map(|known| known.head).collect::<Vec<_>>())
    })?;
    for head in heads {
        // Another thread may have deleted it meanwhile.
        let _ = delete(head);
    }
    Ok(())
}

/// Makes all hooks with sites known again.
pub(crate) fn initialise() {
    with(|registry| {
        for known in registry.hooks.iter_mut().filter(|known| known.has_sites()) {
            known.eligible = true;
        }
    });
}

/// The known hooks with their exits.
pub(crate) fn list() -> Vec<HookInfo> {
    with(|registry| registry.hooks.iter().filter(|known| known.eligible).map(RegisteredHook::info).collect())
}

/// The first known hook with this name.
pub(crate) fn find(name: &str) -> Option<&'static HookHeader> {
    with(|registry| {
        let mut known = registry.hooks.iter().filter(|known| known.eligible);
        known.find(|known| known.head.name() == name).map(|known| known.head)
    })
}
