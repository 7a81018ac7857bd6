//! Arguments that say whose hits count, of all processes.

use std::path::PathBuf;

use clap::Args;
use kernel::{Cgroup, Filter, ThreadName};
use nix::unistd::User;

use crate::Failure;

/// Which threads are probed by the kernel engine.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Only {
    /// Probe only threads of this user, a name or a number (with the kernel engine)
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Probe only threads of this name, at most 15 bytes (with the kernel engine)
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    /// Probe only threads in this control group, a directory of cgroup2, and in those below it
    /// (with the kernel engine)
    #[arg(long, value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
    cgroup: Option<PathBuf>,
}

impl Only {
    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            (self.user.is_some(), "--user"),
            (self.comm.is_some(), "--comm"),
            (self.cgroup.is_some(), "--cgroup"),
        ];
        options.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }

    /// What the kernel compares.
    ///
    /// # Errors
    /// There is no such user, name or control group.
    pub(crate) fn filter(&self) -> Result<Filter, Failure> {
        let user = self.user.as_deref().map(user).transpose()?;
        let name = self.comm.as_deref().map(|name| {
            ThreadName::new(name).ok_or_else(|| {
                let name = printable::text(name);
                Failure::new(format!(
                    "--comm `{name}`: the name of a thread has 1 to 15 bytes; longer ones are cut off after 15"
                ))
            })
        });
        let cgroup = self.cgroup.as_deref().map(|directory| {
            Cgroup::of(directory)
                .map_err(|error| Failure::new(format!("--cgroup {}: {error}", printable::path(directory))))
        });
        Ok(Filter { user, name: name.transpose()?, cgroup: cgroup.transpose()? })
    }
}

/// The number of a user.
fn user(text: &str) -> Result<u32, Failure> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let shown = printable::text(text);
    match User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(Failure::new(format!("--user {shown}: there is no such user"))),
        Err(error) => Err(Failure::new(format!("--user {shown}: {error}"))),
    }
}
