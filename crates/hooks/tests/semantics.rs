//! What an exit can do, and its effect on the hooked function.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use hooks::{Conditions, Departure, Error, Verdict, declare_hook, hook, hook_ret};

const ALONE: Conditions = Conditions { quiesced: true, signals_blocked: false };

declare_hook! {
    /// A line was read.
    LINE<'a>(number: u64, text: &'a String, fresh: bool, change: i8)
}

#[test]
fn arguments_arrive_as_they_are_and_are_not_evaluated_while_dormant() {
    static SEEN: Mutex<Vec<(u64, String, bool, i8)>> = Mutex::new(Vec::new());
    let evaluated = AtomicU32::new(0);
    let line = |text: &String| {
        hook!(
            LINE,
            {
                evaluated.fetch_add(1, Ordering::Relaxed);
                u64::MAX
            },
            text,
            true,
            -3,
        );
    };
    line(&"dormant".to_owned());
    assert_eq!(evaluated.load(Ordering::Relaxed), 0);
    let exit = LINE.exit(|invocation, (number, text, fresh, change)| {
        assert_eq!(invocation.hook().name(), "LINE");
        SEEN.lock().expect("not poisoned").push((number, text.clone(), fresh, change));
        Verdict::Continue
    });
    let exit = exit.register().expect("the hook is free");
    line(&"not armed".to_owned());
    exit.arm().expect("text can be written");
    line(&"armed".to_owned());
    exit.disarm().expect("it is registered");
    line(&"dormant again".to_owned());
    assert_eq!(*SEEN.lock().expect("not poisoned"), [(u64::MAX, "armed".to_owned(), true, -3)]);
    assert_eq!(evaluated.load(Ordering::Relaxed), 1);
    assert_eq!(LINE.head().parameters(), "number: u64, text: &'a String, fresh: bool, change: i8");
    assert_eq!(LINE.head().count(), 4);
}

declare_hook! {
    /// A buffer is about to be allocated: its size may be changed.
    ALLOCATION<'a>(size: &'a Cell<usize>, least: usize)
}

#[test]
fn what_is_passed_by_reference_can_be_changed_and_what_is_passed_by_value_cannot() {
    let allocate = |wanted: usize, least: usize| {
        let size = Cell::new(wanted);
        hook!(ALLOCATION, &size, least);
        (size.get(), least)
    };
    assert_eq!(allocate(10, 4), (10, 4));
    let double = ALLOCATION.exit(|invocation, (size, mut least)| {
        // An exit knows how many parameters the hook has: new ones come last.
        assert_eq!(invocation.hook().count(), 2);
        size.set(size.get().max(least) * 2);
        least += 100;
        assert!(least > 100, "its own copy");
        Verdict::Continue
    });
    let double = double.register().expect("the hook is free");
    double.arm().expect("text can be written");
    assert_eq!((allocate(10, 4), allocate(1, 4)), ((20, 4), (8, 4)));
}

declare_hook! {
    /// A file is opened.
    OPEN(flags: u32)
}

fn open(flags: u32) -> i32 {
    hook_ret!(OPEN, flags);
    7
}

fn close(closed: &AtomicBool) {
    hook_ret!(OPEN, 0);
    closed.store(true, Ordering::Relaxed);
}

#[test]
fn an_exit_makes_the_function_return_and_ends_the_chain() {
    let later = AtomicU32::new(0);
    let later: &'static AtomicU32 = Box::leak(Box::new(later));
    let refuse = OPEN.exit(|_, (flags,)| match flags {
        0 => Verdict::Return(-13),
        1 => Verdict::Terminate,
        _ => Verdict::Continue,
    });
    let refuse = refuse.register().expect("free");
    let count = OPEN.exit(move |_, _| {
        later.fetch_add(1, Ordering::Relaxed);
        Verdict::Continue
    });
    let count = count.register().expect("free");
    hooks::arm_all(&[&refuse, &count]).expect("text can be written");
    assert_eq!([open(0), open(1), open(2)], [-13, 7, 7]);
    assert_eq!(later.load(Ordering::Relaxed), 1, "only the last hit came to the second exit");
    let closed = AtomicBool::new(false);
    close(&closed);
    assert!(!closed.load(Ordering::Relaxed), "a function that returns nothing returns too");
    hook!(OPEN, 0);
    drop(refuse);
    close(&closed);
    assert!(closed.load(Ordering::Relaxed));
}

declare_hook! {
    /// Something happens once.
    ONCE()
}

#[test]
fn a_quiesced_exit_that_disarms_itself_is_called_once() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    for _ in 0..200 {
        CALLS.store(0, Ordering::Relaxed);
        let exit = ONCE.exit(|invocation, ()| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            invocation.disarm();
            Verdict::Continue
        });
        let exit = exit.conditions(ALONE).register().expect("free");
        exit.arm().expect("text can be written");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| hook!(ONCE)));
            }
        });
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        assert!(!exit.is_armed());
        assert!(!ONCE.is_active(), "the site is dormant again");
        // It can be armed again.
        exit.arm().expect("text can be written");
        hook!(ONCE);
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    }
}

declare_hook! {
    /// Threads meet here.
    MEETING()
}

#[test]
fn a_quiesced_exit_has_the_hook_for_itself() {
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    static MET: AtomicU32 = AtomicU32::new(0);
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let visit = || {
        if INSIDE.fetch_add(1, Ordering::SeqCst) != 0 {
            MET.fetch_add(1, Ordering::SeqCst);
        }
        std::hint::spin_loop();
        CALLS.fetch_add(1, Ordering::SeqCst);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        Verdict::Continue
    };
    let plain = MEETING.exit(move |_, ()| visit()).register().expect("free");
    let alone = MEETING.exit(move |_, ()| visit()).conditions(ALONE).register().expect("free");
    hooks::arm_all(&[&plain, &alone]).expect("text can be written");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| hook!(MEETING)));
        }
    });
    assert_eq!(MET.load(Ordering::SeqCst), 0, "no two threads were inside at once");
    assert_eq!(CALLS.load(Ordering::SeqCst), 2 * 4 * 500, "and no hit was lost");
}

declare_hook! {
    /// A hook that is hit from inside of its exit.
    NESTED()
}

#[test]
fn a_nested_hit_waits_for_nobody() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let exit = NESTED.exit(|_, ()| {
        CALLS.fetch_add(1, Ordering::Relaxed);
        hook!(NESTED);
        Verdict::Continue
    });
    let exit = exit.name("nested").conditions(ALONE).register().expect("free");
    exit.arm().expect("text can be written");
    hook!(NESTED);
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    let info = hooks::hooks().into_iter().find(|hook| hook.name == "NESTED").expect("known");
    assert_eq!(info.exits[0].missed, 1, "it was passed over, and that was counted");
}

declare_hook! {
    /// Signals are looked at here.
    SIGNALS()
}

#[test]
fn signals_are_blocked_while_an_exit_wants_it() {
    fn is_blocked() -> bool {
        // SAFETY: the set is valid for the calls.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut set);
            libc::sigismember(&set, libc::SIGUSR1) == 1
        }
    }
    static BLOCKED: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    let note = |_: &hooks::Invocation<'_>, ()| {
        BLOCKED.lock().expect("not poisoned").push(is_blocked());
        Verdict::Continue
    };
    let conditions = Conditions { quiesced: false, signals_blocked: true };
    let blocked = SIGNALS.exit(note).conditions(conditions).register().expect("free");
    let open = SIGNALS.exit(note).register().expect("free");
    hooks::arm_all(&[&blocked, &open]).expect("text can be written");
    hook!(SIGNALS);
    assert_eq!(*BLOCKED.lock().expect("not poisoned"), [true, false]);
    assert!(!is_blocked());
}

declare_hook! {
    /// An exit is taken away here.
    LEAVING()
}

#[test]
fn deregistering_waits_for_who_is_inside() {
    let (entered, inside) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    static DONE: AtomicBool = AtomicBool::new(false);
    let exit = LEAVING.exit(move |_, ()| {
        let _ = entered.send(());
        let _ = wait.lock().expect("not poisoned").recv();
        DONE.store(true, Ordering::SeqCst);
        Verdict::Continue
    });
    let exit = exit.register().expect("free");
    exit.arm().expect("text can be written");
    std::thread::scope(|scope| {
        scope.spawn(|| hook!(LEAVING));
        inside.recv().expect("the exit was entered");
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let _ = go_on.send(());
        });
        assert!(!DONE.load(Ordering::SeqCst));
        assert_eq!(exit.deregister(), Departure::Complete);
        assert!(DONE.load(Ordering::SeqCst), "it has returned only when the exit had");
    });
}

declare_hook! {
    /// An exit takes itself away here.
    ITSELF()
}

#[test]
fn an_exit_can_take_itself_away() {
    static OWN: Mutex<Option<hooks::Exit>> = Mutex::new(None);
    static ANSWER: Mutex<Option<Departure>> = Mutex::new(None);
    let exit = ITSELF.exit(|_, ()| {
        let own = OWN.lock().expect("not poisoned").take();
        *ANSWER.lock().expect("not poisoned") = own.map(hooks::Exit::deregister);
        Verdict::Continue
    });
    let exit = exit.register().expect("free");
    exit.arm().expect("text can be written");
    *OWN.lock().expect("not poisoned") = Some(exit);
    hook!(ITSELF);
    hook!(ITSELF);
    assert_eq!(*ANSWER.lock().expect("not poisoned"), Some(Departure::Pending));
    let info = hooks::hooks().into_iter().find(|hook| hook.name == "ITSELF").expect("known");
    assert!(info.exits.is_empty() && !info.active);
}

declare_hook! {
    /// An exit panics here.
    PANIC()
}

#[test]
fn a_panic_stays_in_the_exit_and_disarms_it() {
    static LATER: AtomicU32 = AtomicU32::new(0);
    let bad = PANIC.exit(|_, ()| panic!("as it should")).register().expect("free");
    let good = PANIC.exit(|_, ()| {
        LATER.fetch_add(1, Ordering::Relaxed);
        Verdict::Continue
    });
    let good = good.register().expect("free");
    hooks::arm_all(&[&bad, &good]).expect("text can be written");
    hook!(PANIC);
    hook!(PANIC);
    assert_eq!((bad.panics(), bad.is_armed(), good.is_armed()), (1, false, true));
    assert_eq!(LATER.load(Ordering::Relaxed), 2);
}

declare_hook! {
    /// A hook that is deleted.
    DELETED()
}

#[test]
fn a_deleted_hook_takes_no_exit_until_it_is_identified() {
    DELETED.identify();
    assert!(hooks::find("DELETED").is_some());
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let count = |_: &hooks::Invocation<'_>, ()| {
        CALLS.fetch_add(1, Ordering::Relaxed);
        Verdict::Continue
    };
    let exit = DELETED.exit(count).register().expect("free");
    exit.arm().expect("text can be written");
    hook!(DELETED);
    DELETED.delete().expect("known");
    hook!(DELETED);
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    assert!(hooks::find("DELETED").is_none());
    assert_eq!(exit.arm(), Err(Error::NotRegistered));
    assert_eq!(DELETED.delete(), Err(Error::UnknownHook));
    assert_eq!(DELETED.exit(count).register().err(), Some(Error::UnknownHook));
    DELETED.identify();
    let exit = DELETED.exit(count).register().expect("free");
    exit.arm().expect("text can be written");
    hook!(DELETED);
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
}
