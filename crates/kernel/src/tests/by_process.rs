//! Hits by process.

use vm::{Op, Program, Word};

use super::live;
use crate::layout::Layout;
use crate::{Globals, Maps, MapsOptions, Target, compile};

#[test]
fn hits_are_counted_by_process_as_long_as_there_is_room() {
    if !live::can_run("bpf: kernel: by process") {
        return;
    }
    let _alone = live::alone();
    let code = [Op::IncLvImm as u8, 0, 0, Op::Exit as u8];
    for without_context in [false, true] {
        let program = Program { word: Word::W8, code: &code, ..Program::default() };
        let handler = crate::Handler { locals: 1, ..live::handler(&program, 0) };
        let globals = Globals::create(0).expect("a map");
        let options = MapsOptions { by_process: 1, ..live::SMALL };
        let maps = Maps::with(Layout::of(&handler), 2, 1, &globals, &options, live::no_tables());
        let maps = maps.expect("maps");
        let target = Target { by_process: true, without_context, ..live::target(maps.size(), true) };
        let loaded = live::load(&maps, &compile(&handler, &target).expect("it is accepted"));
        live::hits_of(0, &loaded, 4, 250);
        live::hits_of(1, &loaded, 2, 30);
        let found = maps.by_process().expect("it can be read");
        assert_eq!(found.len(), 1, "{found:?}");
        let process = std::process::id();
        assert_eq!((found[0].probe, found[0].pid, found[0].hits), (0, process, 1000), "{found:?}");
        assert!(!found[0].name.is_empty() && !found[0].name.contains(&0), "{found:?}");
        let counts = maps.counts();
        assert_eq!((counts[0].hits, counts[0].unassigned), (1000, 0), "{counts:?}");
        assert_eq!((counts[1].hits, counts[1].unassigned), (60, 60), "{counts:?}");
    }
}
