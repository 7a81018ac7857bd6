//! Reads a site's bytes again after the program's text may have changed.

use std::io;

use super::{Armed, Way};
use crate::change::LONGEST;
use crate::site_use::INT3;
use crate::sites::Sites;
use crate::window::Window;

impl Armed {
    /// After the module may have been mapped anew: writes the `int3` again if it is missing.
    /// Returns whether the site is still valid. A missing jump is not written again: the site is to
    /// be planned anew.
    pub(crate) fn refresh(&self, memory: &Window<'_>, sites: &Sites) -> io::Result<bool> {
        let original = self.site.displaced.original();
        let mut bytes = [0; LONGEST];
        let bytes = &mut bytes[..original.len()];
        memory.peek(self.site.address, bytes)?;
        match &self.way {
            Way::Trap if bytes == original => {
                self.site.trap().write_byte(memory.memory())?;
                memory.forget();
                Ok(true)
            }
            Way::Trap => Ok(bytes[0] == INT3 && bytes[1..] == original[1..]),
            Way::Jump(_) => {
                sites.hide(self.site.address, bytes);
                Ok(bytes == original && self.is_in(memory))
            }
        }
    }
}
