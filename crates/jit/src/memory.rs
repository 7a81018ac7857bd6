//! Loads and stores of the program's memory. If one faults, the run leaves compiled code before the
//! instruction, and the interpreter handles it.

use crate::compiler::Compiler;
use crate::emit::{Label, Stream};
use crate::operands::{Alu, Condition, RAX, Reg, Rm, Shift};
use crate::registers::Operand;
use crate::shape::Location;
use layout::LOW_END;
use layout::hidden;

impl Compiler<'_> {
    /// Notes that the next instruction, one memory access, may fault and then continues at
    /// `repair`.
    ///
    /// A fault changes rax, which never holds an element.
    pub(crate) fn guard(&mut self, repair: Label) {
        let access = self.emitter.here_label();
        self.guarded.push((access, repair));
    }

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
        let number = match self.operand(below) {
            Operand::Number(address) if address < LOW_END => Some(address as u32),
            _ => None,
        };
        // An element in a register stays there while another register is taken.
        let address = if number.is_none() { self.in_register(below) } else { RAX };
        let memory = number.map_or(Rm::At(address, 0), Rm::Absolute);
        let table = self.environment.hidden;
        if table == 0 {
            return (memory, self.leave_here());
        }
        let page = page.unwrap_or_else(|| self.take());
        let leave = self.leave_here();
        let (look, further, back) = (self.emitter.label(), self.emitter.label(), self.emitter.label());
        let clean = |index: Reg| Rm::Indexed(RAX, index, 0, (table + hidden::CLEAN_LEAF as u32) as i32);
        let operand = number.map_or(Operand::Register(address), |number| Operand::Number(number.into()));
        self.frame.change(RAX);
        self.set(page, operand);
        self.set(RAX, operand);
        self.emitter.shift(Shift::Right, RAX, hidden::LEAF_BITS as u8 - 2);
        self.emitter.alu32_number(Alu::And, RAX, (hidden::INDEX << 2) as i32);
        self.emitter.load32(RAX, Rm::At(RAX, table as i32));
        self.emitter.shift(Shift::Right, page, hidden::PAGE_BITS as u8);
        self.emitter.alu32_number(Alu::And, page, hidden::INDEX as i32);
        self.emitter.compare_byte(clean(page), 0);
        self.emitter.jump_if(Condition::NotEqual, look);
        self.emitter.bind(back);
        let aside = self.emitter.aside(Stream::Cold);
        self.emitter.bind(look);
        if number.is_none() {
            self.emitter.load_sized(1, page, clean(page));
            self.emitter.alu32_number(Alu::Cmp, page, hidden::BELOW_STACK.into());
            self.emitter.jump_if(Condition::NotEqual, further);
            self.site_rsp(RAX);
            self.emitter.alu(Alu::Cmp, address, RAX);
            self.emitter.jump_if(Condition::AboveOrEqual, back);
            self.emitter.jump(leave);
            self.emitter.bind(further);
            self.emitter.alu32_number(Alu::Cmp, page, hidden::BEFORE_OURS.into());
            self.emitter.jump_if(Condition::NotEqual, leave);
            self.emitter.address(RAX, Rm::At(address, size.saturating_sub(1) as i32));
            self.emitter.alu(Alu::Xor, RAX, address);
            self.emitter.shift(Shift::Right, RAX, hidden::PAGE_BITS as u8);
            self.emitter.jump_if(Condition::Equal, back);
        }
        self.emitter.jump(leave);
        self.emitter.back(aside);
        (memory, leave)
    }

    /// `push mem`: pops an address and pushes the bytes there.
    pub(crate) fn push_memory(&mut self, size: usize) {
        // The value needs a register of its own before the comparison, or the address's register if
        // nothing else is in it: a faulting load changes nothing.
        if !matches!(self.operand(0), Operand::Number(address) if address < LOW_END) {
            self.in_register(0);
        }
        let to = match self.location(0) {
            Location::Register(number) if self.shape.holders(number) == 1 => Reg(number),
            _ => self.take(),
        };
        let page = (self.location(0) != Location::Register(to.0)).then_some(to);
        let (memory, leave) = self.memory_at(0, size, page);
        self.guard(leave);
        self.emitter.load_sized(size, to, memory);
        self.pop();
        self.push(Location::Register(to.0));
    }

    /// `pop mem`: pops a value, then an address, and stores the value there.
    pub(crate) fn pop_memory(&mut self, size: usize) {
        let (memory, leave) = self.memory_at(1, size, None);
        let value = self.value_register(0);
        self.guard(leave);
        self.emitter.store_sized(size, memory, value);
        self.pop();
        self.pop();
    }

    /// `vfyr`: pops an address and pushes 0 if a byte there is readable, else 1.
    pub(crate) fn verify(&mut self) {
        let to = self.take();
        let (memory, _) = self.memory_at(0, 1, Some(to));
        let (cannot, done) = (self.emitter.label(), self.emitter.label());
        self.emitter.number(to, 0);
        self.guard(cannot);
        self.with_rax().load_sized(1, RAX, memory);
        self.emitter.bind(done);
        let aside = self.emitter.aside(Stream::Cold);
        self.emitter.bind(cannot);
        self.emitter.number(to, 1);
        self.emitter.jump(done);
        self.emitter.back(aside);
        self.pop();
        self.push(Location::Register(to.0));
    }
}
