use super::*;

/// A handler of ten bytes: a prologue of two instructions, at 0 and 4, and the rest.
#[derive(Debug)]
struct Ten;

impl Code for Ten {
    fn length(&self) -> usize {
        10
    }

    fn entry(&self) -> u32 {
        0
    }

    fn append_at(&self, _: u64, to: &mut Vec<u8>) {
        to.extend([0x90; 10]);
    }

    fn repair(&self, _: u32) -> Option<u32> {
        None
    }

    fn site_fields(&self) -> Option<Vec<SiteField>> {
        Some(Vec::new())
    }

    fn undo(&self, offset: u32) -> Option<u32> {
        [(0, 0), (4, 136)].into_iter().find(|(at, _)| *at == offset).map(|(_, below)| below)
    }
}

const SITE: u64 = 0x10_0000;
const START: u64 = 0x20_0000;

/// The trampoline of `mov (%rdi), %rax`, with three handlers, the second of which makes a
/// record that waits.
fn trampoline(commit: Option<Commit>) -> (Trampoline, Vec<u8>) {
    let displaced = patch::displace(&[0x48, 0x8b, 0x07], SITE).expect("it can be displaced");
    let handler = |probe: usize| (Use::Probe { program: 0, probe }, Rc::new(Ten) as Rc<dyn Code>);
    let handlers: Vec<_> = (0..3).map(handler).collect();
    let layout = Layout { displaced: &displaced, handlers: &handlers, commit: commit.as_ref(), tail: &[] };
    let size = layout.size();
    let (trampoline, bytes) = layout.at(START).expect("in reach");
    assert!(bytes.len() as u64 <= size);
    (trampoline, bytes)
}

#[test]
fn what_is_missed_goes_around_what_commits() {
    let commit = Commit { code: vec![0xcc; 4], handler: 1 };
    let (trampoline, bytes) = trampoline(Some(commit));
    let [displaced, missed] = trampoline.displaced().collect::<Vec<_>>()[..] else { panic!("two") };
    let at = |address: u64, length: u64| &bytes[(address - START) as usize..][..length as usize];
    assert_eq!((at(displaced, 3), at(missed, 3)), (&[0x48, 0x8b, 0x07][..], &[0x48, 0x8b, 0x07][..]));
    // The second copy jumps behind the committing code.
    let jump = at(missed + 3, 5);
    let distance = i32::from_le_bytes(jump[1..].try_into().expect("four bytes"));
    assert_eq!((jump[0], (missed + 8).wrapping_add_signed(distance.into())), (0xe9, displaced + 3 + 4));
    // A thread that has run the record's handler commits the record, whatever happens later.
    assert_eq!([0, 1, 2].map(|handler| trampoline.without(handler)), [missed, missed, displaced]);
    assert!(trampoline.is_awaited_at(displaced) && !trampoline.is_awaited_at(missed));
    assert_eq!(trampoline.uses_from(1).count(), 2);
    let place = |address: u64| trampoline.part(address);
    let behind = Some(Part::Displaced(SlotPosition::After { rip: SITE + 3, rcx: None }));
    assert_eq!(
        (place(missed), place(displaced)),
        (Some(Part::Displaced(SlotPosition::Before)), place(displaced))
    );
    assert_eq!([displaced + 3, displaced + 5, missed + 3].map(place), [behind; 3]);
    let commits = [displaced, displaced + 3, displaced + 6, displaced + 7, missed];
    assert_eq!(commits.map(|at| trampoline.commits_at(at)), [false, true, true, false, false]);
    assert_eq!(place(START + 4), Some(Part::Prologue { below: 136, handler: 0 }));
}

#[test]
fn where_nothing_waits_there_is_one_copy() {
    let (trampoline, _) = trampoline(None);
    assert_eq!(trampoline.displaced().count(), 1);
    assert_eq!(Some(trampoline.without(0)), trampoline.displaced().next());
    assert!(trampoline.displaced().all(|displaced| !trampoline.is_awaited_at(displaced)));
}
