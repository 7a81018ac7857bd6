//! Loads and stores of the program's memory. If one faults, the run leaves compiled code before the
//! instruction, and the interpreter handles it.

use crate::emit::{Label, Stream};
use crate::operands::{Alu, Condition, RAX, Reg, Rm, Shift};
use crate::output::Operand;
use crate::run::Run;
use crate::shape::Location;
use layout::LOW_END;
use layout::hidden;

impl Run<'_> {
    /// The memory at the address in an element, for an access of `size` bytes; and the label to go
    /// to if it is not the program's memory or the access faults. Take no other register between
    /// this call and the access. `page`: a register taken already that holds nothing yet.
    ///
    /// ```text
    ///             mov    %address, %rax ; shr $25, %rax ; and $0x1fffc, %eax
    ///             mov    table(%rax), %eax              the leaf
    ///             mov    %address, %page ; shr $12, %page ; and $0x7fff, %page
    ///             cmpb   $0, clean(%rax,%page)          the page's mark
    ///             jne    look
    ///     back:   ...
    ///     look:   movzbl clean(%rax,%page), %page
    ///             cmp    $BELOW_STACK, %page ; jne 1f
    ///             lea    N(%rsp), %rax                  the site's: what is above is there
    ///             cmp    %rax, %address ; jae back ; jmp leave
    ///     1:      cmp    $BEFORE_OURS, %page ; jne leave
    ///             lea    size-1(%address), %rax ; xor %address, %rax ; shr $12, %rax
    ///             je     back                           it ends in the same page
    ///             jmp    leave
    /// ```
    pub(crate) fn memory_at(&mut self, below: usize, size: usize, page: Option<Reg>) -> (Rm, Label) {
        let number = match self.path.operand(below) {
            Operand::Number(address) if address < LOW_END => Some(address as u32),
            _ => None,
        };
        // An element in a register stays there while another register is taken.
        let address = if number.is_none() { self.path.in_register(below) } else { RAX };
        let memory = number.map_or(Rm::At(address, 0), Rm::Absolute);
        let table = self.path.out.environment.hidden;
        if table == 0 {
            return (memory, self.side_exit());
        }
        let page = page.unwrap_or_else(|| self.path.take());
        let leave = self.side_exit();
        let (look, further, back) =
            (self.path.out.emitter.label(), self.path.out.emitter.label(), self.path.out.emitter.label());
        let clean = |index: Reg| Rm::Indexed(RAX, index, 0, (table + hidden::CLEAN_LEAF as u32) as i32);
        let operand = number.map_or(Operand::Register(address), |number| Operand::Number(number.into()));
        self.path.out.frame.change(RAX);
        self.path.out.set(page, operand);
        self.path.out.set(RAX, operand);
        self.path.out.emitter.shift(Shift::Right, RAX, hidden::LEAF_BITS as u8 - 2);
        self.path.out.emitter.alu32_number(Alu::And, RAX, (hidden::INDEX << 2) as i32);
        self.path.out.emitter.load32(RAX, Rm::At(RAX, table as i32));
        self.path.out.emitter.shift(Shift::Right, page, hidden::PAGE_BITS as u8);
        self.path.out.emitter.alu32_number(Alu::And, page, hidden::INDEX as i32);
        self.path.out.emitter.compare_byte(clean(page), 0);
        self.path.out.emitter.jump_if(Condition::NotEqual, look);
        self.path.out.emitter.bind(back);
        let aside = self.path.out.emitter.aside(Stream::Cold);
        self.path.out.emitter.bind(look);
        if number.is_none() {
            let out = &mut self.path.out;
            out.emitter.load_sized(1, page, clean(page));
            out.emitter.alu32_number(Alu::Cmp, page, hidden::BELOW_STACK.into());
            out.emitter.jump_if(Condition::NotEqual, further);
            out.site_rsp(RAX);
            out.emitter.alu(Alu::Cmp, address, RAX);
            out.emitter.jump_if(Condition::AboveOrEqual, back);
            out.emitter.jump(leave);
            out.emitter.bind(further);
            out.emitter.alu32_number(Alu::Cmp, page, hidden::BEFORE_OURS.into());
            out.emitter.jump_if(Condition::NotEqual, leave);
            out.emitter.address(RAX, Rm::At(address, size.saturating_sub(1) as i32));
            out.emitter.alu(Alu::Xor, RAX, address);
            out.emitter.shift(Shift::Right, RAX, hidden::PAGE_BITS as u8);
            out.emitter.jump_if(Condition::Equal, back);
        }
        self.path.out.emitter.jump(leave);
        self.path.out.emitter.end_detour(aside);
        (memory, leave)
    }

    /// `push mem`: pops an address and pushes the bytes there.
    pub(crate) fn push_memory(&mut self, size: usize) {
        // The value needs a register of its own before the comparison, or the address's register if
        // nothing else is in it: a faulting load changes nothing.
        if !matches!(self.path.operand(0), Operand::Number(address) if address < LOW_END) {
            self.path.in_register(0);
        }
        let to = match self.path.location(0) {
            Location::Register(number) if self.path.shape.holders(number) == 1 => Reg(number),
            _ => self.path.take(),
        };
        let page = (self.path.location(0) != Location::Register(to.0)).then_some(to);
        let (memory, leave) = self.memory_at(0, size, page);
        self.path.out.guard(leave);
        self.path.out.emitter.load_sized(size, to, memory);
        self.path.pop();
        self.path.push(Location::Register(to.0));
    }

    /// `pop mem`: pops a value, then an address, and stores the value there.
    pub(crate) fn pop_memory(&mut self, size: usize) {
        let (memory, leave) = self.memory_at(1, size, None);
        let value = self.path.value_register(0);
        self.path.out.guard(leave);
        self.path.out.emitter.store_sized(size, memory, value);
        self.path.pop();
        self.path.pop();
    }

    /// `vfyr`: pops an address and pushes 0 if a byte there is readable, else 1.
    pub(crate) fn verify(&mut self) {
        let to = self.path.take();
        let (memory, _) = self.memory_at(0, 1, Some(to));
        let out = &mut self.path.out;
        let (cannot, done) = (out.emitter.label(), out.emitter.label());
        out.emitter.number(to, 0);
        out.guard(cannot);
        out.with_rax().load_sized(1, RAX, memory);
        out.emitter.bind(done);
        let aside = out.emitter.aside(Stream::Cold);
        out.emitter.bind(cannot);
        out.emitter.number(to, 1);
        out.emitter.jump(done);
        out.emitter.end_detour(aside);
        self.path.pop();
        self.path.push(Location::Register(to.0));
    }
}
