//! Tactics: how to fit the five bytes of a jump over a shorter instruction without changing its
//! neighbours.
//!
//! A [`Planner`] takes sites, code and free memory, and returns a [`Plan`]: bytes to write, pages
//! to map and sites to trap. `jmp rel32` has five bytes, most instructions have fewer. The tactics
//! (Chamith, Svensson, Dalessandro, Newton, "Instruction Punning", PLDI 2017; Duck, Gao,
//! Roychoudhury, "Binary Rewriting without Control Flow Recovery", PLDI 2020):
//!
//! ```text
//!   plain       the instruction has five bytes or more
//!               48 8b 44 24 08 | ..            e9 rr rr rr rr | ..
//!
//!   punned      the last bytes of the jump are the bytes that follow, as they are: they say roughly where the jump leads, the
//!               bytes of the instruction say where exactly; there is put a landing pad, five bytes: a jump to the trampoline
//!               48 89 e5 | 41 57 ..            e9 rr rr | 41 57           to site + 5 + 0x5741rrrr
//!
//!   padded      prefixes that say nothing on a jump move it, so that other bytes follow
//!               48 89 e5 | 41 57 41 ..         2e e9 rr | 41 57 41        to site + 6 + 0x415741rr
//!
//!   successor   the next instruction moves away as a whole: it becomes a jump to its own copy, and the first jump is punned on the
//!   evicted     bytes of the second
//!               55 | 48 89 e5 | 41 57          e9 | e9 rr rr | 41 57
//!
//!   neighbour   an instruction of six bytes or more within 127 bytes moves away; the bytes that its jump leaves over take a second
//!   evicted     jump, to which two bytes lead
//!               50 90 | .. | 48 81 ec 00 01 00 00      eb xx | .. | e9 rr rr rr rr | e9 rr
//!
//!   over        what follows is padding between functions, which nobody executes: it is overwritten
//!   padding     c3 | 0f 1f 40 00                   e9 rr rr rr rr
//!
//!   in          padding within 127 bytes takes a whole jump, to which two bytes lead
//!   padding     41 57 | .. | 66 0f 1f 44 00 00     eb xx | .. | e9 rr rr rr rr 00
//!
//!   grouped     several instructions move together, under one jump; only where it is proven that control comes to none of them but
//!               the first, and that all others cannot fault
//!               53 | 48 89 fb | 31 c0          e9 | rr rr rr | rr c0
//! ```
//!
//! # The order
//!
//! `settle_within` in `arrange` has it:
//!
//! 1. over padding;
//! 2. plain, punned, padded, each in its place;
//! 3. the same for several sites together, whose jumps share bytes (rearranging);
//! 4. grouped;
//! 5. successors evicted, one or two;
//! 6. a neighbour evicted, or in padding;
//! 7. more successors evicted, three to eight;
//! 8. combinations: some of the successors, and a neighbour with a successor.
//!
//! If half of the mappings for landing pads are used, 1 to 5 are tried first with the pages that
//! are mapped already, then all with new ones.
//!
//! # Invariants
//!
//! - The bytes of an instruction change only if it is a site, or a neighbour that is itself moved
//!   (at its address is a jump to its copy, so code that jumps to it executes it). Padding changes
//!   only if control is proven not to reach it.
//! - Where instructions overlap (code jumps past a `lock` prefix), none is moved: neither the one
//!   whose middle is entered, nor the one that begins there and shares its bytes.
//! - A byte that a jump is punned on is *relied* on. A later plan changes it only if it also gives
//!   new jumps to the instructions that rely on it. This includes the byte of a breakpoint.
//! - A plan is applied as a whole: its writes are consistent only together.
//!
//! # Landing pads
//!
//! Punned jumps determine where pads are, anywhere within 2 GiB. Each new page of pads may be a
//! mapping of its own, and a process has a limited number of them. So pads share pages where they
//! can, and pages are mapped together across small gaps, and across larger ones if there are many
//! mappings (`join_mappings`). Mappings are counted; if the limit is reached, sites are trapped for
//! that reason.
//!
//! # Owners and roles
//!
//! | type | what it does |
//! |---|---|
//! | [`Planner`] | makes plans for one process, one after another |
//! | `Placed` | its state between plans: the moved instructions, the bytes and pads that their jumps use. It keeps these consistent (`placed`), knows what an instruction is moved for (`remove`) and what a plan has changed (`conclude`) |
//! | `Search` | a role for one plan: borrows `Placed`, [`Code`] and [`Space`], and tries the tactics (`jump`, `arrange`, `evict`, `group`, `padding`) |
//! | `Pads` | pages of landing pads, and where a new pad fits (`find_pad`) |

mod arrange;
mod code;
mod conclude;
mod evict;
mod find_pad;
mod group;
mod image;
mod join_mappings;
mod jump;
mod moved;
mod padding;
mod pads;
mod pattern;
mod placed;
mod placement;
mod plan;
mod planner;
mod random;
mod remove;
mod search;

pub use plan::{Code, Flow, Jump, Limits, PAD_LENGTH, Plan, Purpose, Reason, Site, Space, Tactic, Write};
pub use planner::Planner;
pub use remove::Removal;
