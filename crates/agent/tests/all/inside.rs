//! Checks the agent's own code, as built for other processes: its instructions and its size.

use dprobes_agent::image::{Entry, Settings, image};
use iced_x86::{Code, CpuidFeature, Decoder, DecoderOptions, Register as IcedRegister};

#[test]
fn the_image_is_small_and_has_its_entries() {
    let image = image();
    println!("the agent has {} bytes", image.size());
    assert!(image.size() < 112 << 10);
    for entry in Entry::ALL {
        let place = image.entry(entry, 0x1000);
        assert!((0x1000..0x1000 + image.size() as u64).contains(&place));
    }
    let faults: Vec<_> = image.faults(0).collect();
    assert!(faults.is_sorted_by(|one, other| one.0 < other.0));
    assert!(faults.iter().all(|&(from, to)| from != to && to < image.size() as u64));
}

#[test]
fn the_code_uses_nothing_that_is_not_saved() {
    let image = image();
    let bytes = image.at(0x1000, Settings { identity: 0x2000, reader: 0x2040, stacks: 0x2080 });
    let mut decoder = Decoder::with_ip(64, &bytes[..image.code_size()], 0x1000, DecoderOptions::NONE);
    let mut decoded = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let at = instruction.ip();
        assert!(!instruction.is_invalid(), "{at:#x}");
        decoded += 1;
        // No system calls: the process may be forbidden any.
        let calls = matches!(instruction.code(), Code::Syscall | Code::Sysenter | Code::Int_imm8);
        assert!(!calls, "{:?} at {at:#x}", instruction.code());
        // No vectors beyond SSE2, no floating point except storing its state, nothing relative to
        // fs or gs.
        let allowed = instruction.cpuid_features().iter().all(|feature| {
            matches!(
                feature,
                CpuidFeature::INTEL8086
                    | CpuidFeature::INTEL186
                    | CpuidFeature::INTEL286
                    | CpuidFeature::INTEL386
                    | CpuidFeature::INTEL486
                    | CpuidFeature::X64
                    | CpuidFeature::CMOV
                    | CpuidFeature::CPUID
                    | CpuidFeature::SSE
                    | CpuidFeature::SSE2
                    | CpuidFeature::MULTIBYTENOP
                    | CpuidFeature::PAUSE
                    | CpuidFeature::TSC
                    | CpuidFeature::FXSR
                    | CpuidFeature::FSGSBASE
            )
        });
        // The compiler emits it where bsf, as which older processors execute it, gives the same
        // result.
        let allowed = allowed || matches!(instruction.code(), Code::Tzcnt_r32_rm32 | Code::Tzcnt_r64_rm64);
        assert!(allowed, "{:?} at {at:#x}: {:?}", instruction.code(), instruction.cpuid_features());
        assert!(matches!(instruction.segment_prefix(), IcedRegister::None | IcedRegister::CS), "{at:#x}");
    }
    println!("{decoded} instructions in {} bytes", image.code_size());
    assert!(decoded > 3000);
}
