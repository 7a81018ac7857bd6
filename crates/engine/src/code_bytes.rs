//! The code of an address space, as place checks read it.

use process::Memory;

use crate::sites::Sites;
use crate::window::Window;

/// A process's code as the program has it, without changes made for probes.
#[derive(Debug)]
pub(crate) struct Text<'a> {
    pub(crate) memory: Window<'a>,
    /// The sites whose bytes are currently changed.
    sites: Option<&'a Sites>,
}

impl<'a> Text<'a> {
    pub(crate) fn new(memory: &'a Memory, sites: Option<&'a Sites>) -> Text<'a> {
        Text { memory: Window::new(memory), sites }
    }

    pub(crate) fn peek(&self, address: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.memory.peek(address, into)?;
        if let Some(sites) = self.sites {
            sites.hide(address, into);
        }
        Ok(())
    }
}
