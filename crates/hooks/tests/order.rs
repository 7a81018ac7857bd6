//! Which exits are called, in which order, and which are refused: the chain against a model.

use std::sync::Mutex;

use hooks::{Error, Exit, Priority, Verdict, declare_hook, hook};
use proptest::prelude::*;

declare_hook! {
    /// One hit of the model.
    MODEL(hit: u32)
}

/// The numbers of the exits that were called.
static CALLED: Mutex<Vec<(u32, u32)>> = Mutex::new(Vec::new());

/// The tests share one hook.
static TURN: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy, Debug)]
enum Step {
    Register(Priority),
    Arm(usize),
    Disarm(usize),
    Deregister(usize),
    ArmAll,
    DisarmAll,
    Hit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop_oneof![
        1 => Just(Priority::First),
        1 => Just(Priority::Last),
        1 => Just(Priority::Only),
        4 => Just(Priority::Unspecified),
        4 => Just(Priority::Lifo),
    ];
    let step = prop_oneof![
        4 => priority.prop_map(Step::Register),
        4 => (0_usize..8).prop_map(Step::Arm),
        2 => (0_usize..8).prop_map(Step::Disarm),
        2 => (0_usize..8).prop_map(Step::Deregister),
        1 => Just(Step::ArmAll),
        1 => Just(Step::DisarmAll),
        4 => Just(Step::Hit),
    ];
    prop::collection::vec(step, 1..60)
}

/// An exit of the model. Exits are ordered by a key: first; then the lifo ones, latest first; then
/// the unspecified ones in order of arrival; then last.
#[derive(Clone, Copy, Debug)]
struct Modelled {
    number: u32,
    priority: Priority,
    armed: bool,
    /// Whether it ends the chain.
    ends: bool,
}

impl Modelled {
    fn key(&self) -> (u32, i64) {
        match self.priority {
            Priority::First | Priority::Only => (0, 0),
            Priority::Lifo => (1, -i64::from(self.number)),
            Priority::Unspecified => (2, i64::from(self.number)),
            Priority::Last => (3, 0),
        }
    }
}

fn refusal(model: &[Modelled], new: Priority) -> Option<Error> {
    let count = |priority| model.iter().filter(|exit| exit.priority == priority).count();
    if count(Priority::Only) > 0 || (new == Priority::Only && !model.is_empty()) {
        Some(Error::Exclusive)
    } else if new == Priority::First && count(new) > 0 {
        Some(Error::FirstTaken)
    } else if new == Priority::Last && count(new) > 0 {
        Some(Error::LastTaken)
    } else {
        None
    }
}

fn exit_of(number: u32, priority: Priority, ends: bool) -> Result<Exit, Error> {
    let exit = MODEL.exit(move |_, (hit,)| {
        CALLED.lock().expect("no exit panics").push((hit, number));
        if ends { Verdict::Terminate } else { Verdict::Continue }
    });
    exit.name(number.to_string()).priority(priority).register()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_chain_is_as_the_model_says(steps in steps()) {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Tested sites do not make their hook known.
        MODEL.identify();
        let mut model: Vec<Modelled> = Vec::new();
        let mut exits: Vec<Exit> = Vec::new();
        for (number, step) in (0_u32..).zip(steps) {
            let chosen = |place: usize| (!model.is_empty()).then(|| place % model.len());
            match step {
                Step::Register(priority) => {
                    let ends = number % 5 == 4;
                    match (exit_of(number, priority, ends), refusal(&model, priority)) {
                        (Ok(exit), None) => {
                            exits.push(exit);
                            model.push(Modelled { number, priority, armed: false, ends });
                        }
                        (Err(error), Some(expected)) => prop_assert_eq!(error, expected),
                        (got, expected) => prop_assert!(false, "{:?}, not {:?}", got, expected),
                    }
                }
                Step::Arm(place) => if let Some(place) = chosen(place) {
                    exits[place].arm().expect("text can be written here");
                    model[place].armed = true;
                },
                Step::Disarm(place) => if let Some(place) = chosen(place) {
                    exits[place].disarm().expect("it is registered");
                    model[place].armed = false;
                },
                Step::Deregister(place) => if let Some(place) = chosen(place) {
                    exits.remove(place).deregister();
                    model.remove(place);
                },
                Step::ArmAll if !exits.is_empty() => {
                    hooks::arm_all(&exits.iter().collect::<Vec<_>>()).expect("text can be written here");
                    model.iter_mut().for_each(|exit| exit.armed = true);
                }
                Step::DisarmAll if !exits.is_empty() => {
                    hooks::disarm_all(&exits.iter().collect::<Vec<_>>()).expect("they are registered");
                    model.iter_mut().for_each(|exit| exit.armed = false);
                }
                Step::ArmAll | Step::DisarmAll => {}
                Step::Hit => {
                    hook!(MODEL, number);
                    let mut expected: Vec<Modelled> = model.clone();
                    expected.sort_by_key(Modelled::key);
                    expected.retain(|exit| exit.armed);
                    let end = expected.iter().position(|exit| exit.ends).map_or(expected.len(), |end| end + 1);
                    let expected: Vec<(u32, u32)> =
                        expected[..end].iter().map(|exit| (number, exit.number)).collect();
                    prop_assert_eq!(std::mem::take(&mut *CALLED.lock().expect("no exit panics")), expected);
                }
            }
            // The list reports exits in call order.
            let mut ordered = model.clone();
            ordered.sort_by_key(Modelled::key);
            let told = hooks::hooks().into_iter().find(|hook| hook.name == "MODEL").expect("it is known");
            prop_assert_eq!(
                told.exits.iter().map(|exit| (exit.name.clone(), exit.armed)).collect::<Vec<_>>(),
                ordered.iter().map(|exit| (exit.number.to_string(), exit.armed)).collect::<Vec<_>>()
            );
            prop_assert_eq!(told.active, model.iter().any(|exit| exit.armed));
        }
    }
}

declare_hook! {
    /// A hook for one exit.
    exclusive ALONE()
}

#[test]
fn an_exclusive_hook_takes_one_exit() {
    let one = ALONE.exit(|_, ()| Verdict::Continue).register().expect("the first");
    let refused = ALONE.exit(|_, ()| Verdict::Continue).register().expect_err("the second");
    assert_eq!((refused, refused.code()), (Error::Exclusive, -1));
    drop(one);
    ALONE.exit(|_, ()| Verdict::Continue).register().expect("it is free again");
}

#[test]
fn the_errors_have_the_numbers_of_the_original() {
    assert_eq!([Error::Exclusive, Error::FirstTaken, Error::LastTaken].map(Error::code), [-1, -2, -4]);
}
