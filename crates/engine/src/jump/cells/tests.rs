use super::*;

const COUNT: usize = 4;

fn domain(cells: &mut Cells, name: &str) -> Domain {
    cells.domain(&Rc::new(Trust::named(name))).expect("room")
}

#[test]
fn a_domain_has_words_of_its_own_and_gives_them_to_nobody() {
    let mut cells = Cells::new().expect("memory");
    let words = cells.words(2).expect("room");
    let [one, other] = ["one", "other"].map(|name| domain(&mut cells, name));
    assert_eq!((domain(&mut cells, "one"), domain(&mut cells, "other")), (one, other));
    assert!(cells.memory(Domain::OWN).is_none(), "no process has the tracer's own");
    for (domain, value) in [(Domain::OWN, 1), (one, 20), (other, 300)] {
        words.with(domain, 1, |word| word.store(value, Ordering::Relaxed)).expect("it is there");
    }
    assert_eq!((words.sum(0), words.sum(1)), (0, 321));
    // A domain that is given up leaves its memory to nobody, and its counts stay.
    cells.end_domain(one);
    let third = domain(&mut cells, "one");
    assert!(![Domain::OWN, one, other].contains(&third));
    let mut values = Vec::new();
    words.each(1, |domain, word| values.push((domain, word.load(Ordering::Relaxed))));
    assert_eq!((values, words.sum(1)), (vec![(Domain::OWN, 21), (other, 300), (third, 0)], 321));
    assert_eq!(cells.domains().iter().map(|(domain, _)| *domain).collect::<Vec<_>>(), [other, third]);
    words.set(7);
    assert_eq!(words.sum(0), 21);
}

#[test]
fn there_are_only_so_many_domains_at_a_time() {
    let mut cells = Cells::new().expect("memory");
    let all: Vec<Domain> = (0..MAX_DOMAINS).map(|number| domain(&mut cells, &number.to_string())).collect();
    let another = Rc::new(Trust::named("another"));
    assert_eq!(cells.domain(&another), None);
    cells.end_domain(all[5]);
    assert!(cells.domain(&another).is_some_and(|domain| !all.contains(&domain)));
}

#[test]
fn a_counter_is_the_sum_of_its_words() {
    let mut cells = Cells::new().expect("memory");
    let (one, other) = (domain(&mut cells, "one"), domain(&mut cells, "other"));
    let first = cells.counter(None).expect("room");
    let second = cells.counter(None).expect("room");
    let at = first.at(0x1000_0000);
    for processor in 0..cells.processors {
        let offset = (at.address - 0x1000_0000) as usize + (processor << at.shift);
        for (domain, count) in [(one, 2), (other, 300)] {
            let memory = cells.memory(domain).expect("it is there");
            memory.words(offset, 1)[0].fetch_add(count, Ordering::Relaxed);
        }
    }
    first.count();
    let processors = cells.processors as u64;
    assert_eq!(first.value(), 302 * processors + 1);
    assert_eq!((first.value_of(one), first.value_of(other)), (2 * processors, 300 * processors));
    assert_eq!(second.value(), 0);
    first.reset();
    assert_eq!(first.value(), 0);
}

#[test]
fn what_is_given_back_is_taken_again_and_is_nothing_counted() {
    let mut cells = Cells::new().expect("memory");
    let one = domain(&mut cells, "one");
    let most = (1 << shift(cells.processors)) / WORD;
    // More than there is room for unless cells are reused.
    for _ in 0..2 * most / 1000 + 1 {
        let locals = cells.words(5).expect("room");
        let variable = cells.counter(Some(locals.offset())).expect("room");
        let counters: Vec<Counter> = (0..1000).map(|_| cells.counter(None).expect("room")).collect();
        let words: Vec<Words> = (0..10).map(|_| cells.words(COUNT).expect("room")).collect();
        for counter in counters.iter().chain([&variable]) {
            assert_eq!(counter.value(), 0);
            counter.count();
            counter.set(9);
        }
        let memory = cells.memory(one).expect("it is there");
        for word in words.iter().chain([&locals]).flat_map(|words| words.of(&memory)) {
            assert!([0, 9].contains(&word.swap(3, Ordering::Relaxed)));
        }
        cells.give_back_shared(variable);
        cells.give_back_words(locals);
        words.into_iter().for_each(|words| cells.give_back_words(words));
        counters.into_iter().for_each(|counter| cells.give_back(counter));
    }
    let used = cells.used() as usize - GLOBALS;
    assert!(used <= cells.processors * 16 * 1024 + (128 << 10), "{used} bytes are taken");
    assert!(cells.words(COUNT).is_some_and(|words| (0..COUNT).all(|which| words.sum(which) == 0)));
}

#[test]
fn words_do_not_overlap_and_come_to_an_end() {
    let mut cells = Cells::new().expect("memory");
    let globals = cells.globals(70_000);
    assert_eq!(globals.count(), 65_536);
    let locals = cells.words(65_535).expect("room");
    assert!(locals.offset() >= GLOBALS && locals.count() == 65_535);
    let counter = cells.counter(Some(locals.offset())).expect("room");
    counter.count();
    assert_eq!(locals.sum(0), 1, "a variable is its counter's own word");
    while cells.words(65_535).is_some() {}
    assert!(cells.words(1 << 40).is_none());
    assert!(cells.words(1).is_some_and(|words| words.count() == 1));
}

#[test]
fn a_few_counters_take_little_and_many_have_room() {
    let mut cells = Cells::new().expect("memory");
    let few: Vec<Counter> = (0..16).map(|_| cells.counter(None).expect("room")).collect();
    assert!(cells.used() as usize <= GLOBALS + FIRST_WORDS + (cells.processors << FIRST_SHIFT) + 4096);
    let most = (1 << shift(cells.processors)) / WORD;
    let spill = cells.words(1).expect("room").offset();
    let many = (0..most * 3 / 4).map(|_| cells.counter(Some(spill)).expect("room"));
    let many: Vec<Counter> = few.into_iter().chain(many).collect();
    // No two counters share a word.
    let mut places: Vec<usize> = many
        .iter()
        .flat_map(|it| (0..it.processors).map(|processor| it.offset + (processor << it.shift)))
        .collect();
    let count = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), count);
    assert!(places.iter().all(|place| (GLOBALS + FIRST_WORDS..cells.used).contains(place)));
    assert!(cells.used() <= Cells::extent().0);
}
