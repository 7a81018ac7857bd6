//! Executes every instruction on many stacks, and compares what it does with the document.
//!
//! In: the instructions of [`vm::TABLE`] and the document's rows of them. Checked: the elements
//! that an instruction pops and pushes, and the exceptions that it raises.

use vm::{Group, Op, Operand, Row};

use super::{described, written};

/// A machine of the kernel, with one page of memory and one segment.
struct Kernel;

impl vm::Machine for Kernel {
    fn register(&mut self, _: vm::Register) -> u64 {
        0
    }
    fn set_register(&mut self, _: vm::Register, _: u64) {}
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), vm::Fault> {
        into.fill(b'x');
        let outside = (address..=address + (into.len() as u64 - 1)).find(|at| at / 0x1000 != 1);
        outside.map_or(Ok(()), |address| Err(vm::Fault { address }))
    }
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), vm::Fault> {
        self.read(address, &mut [0; 8][..from.len()])
    }
    fn verify(&mut self, address: u64, _: bool) -> bool {
        address / 0x1000 == 1
    }
    fn pid(&mut self) -> u64 {
        1
    }
    fn processor(&mut self) -> u64 {
        0
    }
    fn task(&mut self) -> Option<u64> {
        Some(0x1000)
    }
    fn field(&mut self, index: u16) -> Option<u64> {
        Some(index.into())
    }
    fn thread(&mut self) -> Option<u64> {
        Some(1)
    }
    fn time(&mut self, _: vm::Clock) -> Option<u64> {
        Some(1)
    }
    fn random(&mut self) -> Option<u32> {
        Some(1)
    }
    fn ids(&mut self) -> Option<(u32, u32)> {
        Some((1, 1))
    }
    fn parent(&mut self) -> Option<u32> {
        Some(1)
    }
    fn signal(&mut self, _: u64, _: bool) -> bool {
        true
    }
    fn override_function(&mut self, _: u64) -> bool {
        true
    }
    fn name(&mut self) -> Option<[u8; 16]> {
        Some([0; 16])
    }
    fn stack(&mut self, frames: &mut [u64]) -> Option<usize> {
        Some(frames.len().min(1))
    }
    fn linear_address(&mut self, selector: u16, offset: u64) -> Option<u64> {
        (selector == 1).then_some(offset)
    }
    fn read_port(&mut self, _: u16, _: usize) -> Option<u32> {
        Some(0)
    }
    fn write_port(&mut self, _: u16, _: usize, _: u32) -> bool {
        true
    }
    fn call_kernel_modules(&mut self) -> bool {
        true
    }
}

/// Slots of the stack, which is circular.
const STACK: usize = 1024;

/// One constant, `a`.
const CONSTANTS: [u8; 21] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, b'a'];

/// A program that allocates a heap block, pushes three values and executes an instruction. Jumps
/// and calls go to the instruction itself.
fn trial(row: &Row, given: Option<u64>, values: [u64; 3]) -> Vec<u8> {
    let mut code = vec![Op::Push as u8];
    code.extend_from_slice(&16u64.to_le_bytes());
    code.extend_from_slice(&[Op::Malloc as u8, Op::Ros as u8, 1]);
    for value in values {
        code.push(Op::Push as u8);
        code.extend_from_slice(&value.to_le_bytes());
    }
    let size = row.operand.size(8);
    let operand: u64 = match row.operand {
        Operand::Label | Operand::Proc => (1 + size as u64).wrapping_neg(),
        Operand::Register => vm::Register::Rax as u64,
        Operand::U16 => 10,
        _ => 1,
    };
    let operand = given.unwrap_or(operand);
    code.push(row.op as u8);
    code.extend_from_slice(&operand.to_le_bytes()[..size]);
    code.push(Op::Exit as u8);
    code
}

/// Executes every instruction on many stacks: it must pop and push as many elements as the table
/// says, and raise exactly the exceptions that the document says.
#[test]
fn every_instruction_does_to_the_stack_and_raises_what_is_described() {
    let values = [0, 1, 2, 4, 64, 65, 0x1000, 0x8000, u64::MAX];
    let variables: [std::sync::atomic::AtomicU64; 8] = Default::default();
    let mut infos = [maps::MapInfo { key: 8, value: 8, entries: 4, ..maps::MapInfo::default() }];
    let size = maps::plan(&mut infos, 1, 1 << 20).expect("it is small");
    let words: Vec<std::sync::atomic::AtomicU64> = (0..size).map(|_| 0.into()).collect();
    let mut state = Box::<vm::State>::default();
    for (row, cells) in described() {
        let mut raised = std::collections::BTreeSet::new();
        // The first one is right, the second one is not.
        let operands = match (row.group, row.operand) {
            (Group::Frame, Operand::U16) => [Some(10), Some(0xfff0)],
            // More bytes than the log has.
            (Group::Logging, Operand::U16) => [Some(10), Some(30)],
            (Group::Map, _) => [Some(0), Some(1)],
            _ => [None; 2],
        };
        for number in 0..2 * values.len().pow(3) {
            let value = |place: u32| values[number / 2 / values.len().pow(place) % values.len()];
            let code = trial(row, operands[number % 2], [value(2), value(1), value(0)]);
            let program = vm::Program {
                code: &code,
                jmpmax: 3,
                logmax: 24,
                mask: 0xffff,
                locals: &variables[..4],
                globals: &variables[4..],
                heap: 32,
                constants: vm::Constants(&CONSTANTS),
                maps: vm::Maps { infos: &infos, words: &words },
                ..vm::Program::default()
            };
            let outcome = vm::run(&program, 0, &mut state, &mut Kernel);
            match (outcome.end, row.pops, row.pushes) {
                (vm::End::Exception(exception), ..) => {
                    raised.insert(exception.name());
                }
                // `restore tsp` changes the depth by more than its pops and pushes.
                (_, Some(pops), Some(pushes)) if row.op != Op::RestoreTsp => {
                    let depth = (3 + usize::from(pushes)).wrapping_sub(pops.into()) % STACK;
                    assert_eq!(state.depth(), depth, "{}", written(row));
                }
                _ => {}
            }
        }
        assert!(cells[4] == "-" || row.effects.contains(vm::Effects::RAISES), "{}", written(row));
        let raised: Vec<&str> = raised.into_iter().collect();
        match cells[4] {
            "-" => assert_eq!(raised, [""; 0], "{}", written(row)),
            "any" => assert!(raised.len() > 3, "{}: {raised:?}", written(row)),
            names => assert_eq!(raised.join(", "), names, "{}", written(row)),
        }
    }
}
