//! Encodes an instruction with a ModRM byte, the form that most instructions have.
//!
//! An opcode, a register and an operand come in; prefixes, REX, opcode, ModRM, SIB and displacement
//! go to the [`Emitter`].

use crate::emit::Emitter;
use crate::operands::Rm;

impl Emitter {
    /// An instruction with a ModRM byte: prefixes, REX, opcode, operands. `number` is a register or
    /// an opcode extension; `byte`: the register has 8 bits.
    pub(crate) fn modrm(&mut self, wide: bool, byte: bool, opcode: &[u8], number: u8, rm: Rm) {
        let (index, base) = match rm {
            Rm::Reg(register) | Rm::At(register, _) | Rm::Thread(register, _) => (0, register.0),
            Rm::Indexed(base, index, ..) => (index.0, base.0),
            Rm::Scaled(index, ..) => (index.0, 0),
            Rm::Absolute(_) => (0, 0),
        };
        if let Rm::Thread(..) = rm {
            self.byte(0x64);
        }
        let rex = u8::from(wide) << 3 | number >> 3 << 2 | index >> 3 << 1 | base >> 3;
        // The 8-bit registers 4 to 7 are spl to dil only with a REX prefix.
        let low_byte = byte && (number >= 4 || matches!(rm, Rm::Reg(register) if register.0 >= 4));
        if rex != 0 || low_byte {
            self.byte(0x40 | rex);
        }
        self.bytes(opcode);
        let number = (number & 7) << 3;
        match rm {
            Rm::Reg(register) => self.byte(0xc0 | number | register.0 & 7),
            Rm::At(base, displacement) | Rm::Thread(base, displacement) => {
                let short = i8::try_from(displacement);
                let mode = match short {
                    Ok(0) if base.0 & 7 != 5 => 0,
                    Ok(_) => 0x40,
                    Err(_) => 0x80,
                };
                self.byte(mode | number | base.0 & 7);
                if base.0 & 7 == 4 {
                    self.byte(0x24);
                }
                match (mode, short) {
                    (0, _) => {}
                    (_, Ok(short)) => self.byte(short as u8),
                    (_, Err(_)) => self.bytes(&displacement.to_le_bytes()),
                }
            }
            Rm::Indexed(base, index, scale, displacement) => {
                self.bytes(&[0x84 | number, scale << 6 | (index.0 & 7) << 3 | base.0 & 7]);
                self.bytes(&displacement.to_le_bytes());
            }
            Rm::Scaled(index, scale, displacement) => {
                self.bytes(&[0x04 | number, scale << 6 | (index.0 & 7) << 3 | 5]);
                self.bytes(&displacement.to_le_bytes());
            }
            Rm::Absolute(address) => {
                self.bytes(&[0x04 | number, 0x25]);
                self.bytes(&address.to_le_bytes());
            }
        }
    }
}
