//! Loading plugins: shared objects that register exits at the hooks (docs/hooks.md).

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};

use hooks::plugin::{Api, End, Init, VERSION};
use libloading::Library;

use super::{CALLK, CREATE_EVENT, DESTROY_EVENT, LOG_EVENT};
use crate::Failure;
use crate::arguments::Plugin;

/// A loaded plugin. It stays in memory: a thread of its own may be running in it.
struct Loaded {
    path: PathBuf,
    argument: String,
    library: &'static Library,
}

/// The plugins of this process, in the order of loading. Dropping ends them in reverse order.
#[derive(Default)]
pub(crate) struct Plugins(Vec<Loaded>);

impl Plugins {
    /// Loads the plugins of a command line.
    ///
    /// # Errors
    /// A file cannot be loaded, is no plugin, or refuses to be loaded; the plugins before it are
    /// ended again.
    pub(crate) fn load(wanted: &[Plugin]) -> Result<Plugins, Failure> {
        let mut plugins = Plugins::default();
        wanted.iter().try_for_each(|plugin| plugins.add(plugin))?;
        Ok(plugins)
    }

    /// Loads one more plugin, unless it is loaded already with the same argument.
    pub(crate) fn add(&mut self, plugin: &Plugin) -> Result<(), Failure> {
        let failed = |what: &str| Failure::new(format!("plugin {}: {what}", printable::path(&plugin.file)));
        // The loader would look for a name without a slash among the system's libraries.
        let path = std::path::absolute(&plugin.file).map_err(|error| failed(&error.to_string()))?;
        if let Some(loaded) = self.0.iter().find(|loaded| loaded.path == path) {
            return match loaded.argument == plugin.argument {
                true => Ok(()),
                false => {
                    Err(failed(&format!("it is loaded already, with the argument `{}`", loaded.argument)))
                }
            };
        }
        let library = open(&path).map_err(|error| failed(&error))?;
        // `GKH_identify` of the seed: makes the hooks known by name, for builds whose sites do not
        // register them.
        CREATE_EVENT.identify();
        LOG_EVENT.identify();
        DESTROY_EVENT.identify();
        CALLK.identify();
        let argument =
            CString::new(plugin.argument.as_str()).map_err(|_| failed("its argument has a NUL"))?;
        let api: &'static Api = Box::leak(Box::new(api(CString::into_raw(argument))));
        // SAFETY: a plugin of this version has a function of this type; the structure is never
        // freed.
        let answer = unsafe {
            match library.get::<Init>(b"dprobes_plugin_init\0") {
                Ok(init) => init(api),
                Err(_) => return Err(failed("it has no dprobes_plugin_init")),
            }
        };
        if answer != 0 {
            return Err(failed(&format!("it refuses to be loaded: {answer}")));
        }
        self.0.push(Loaded { path, argument: plugin.argument.clone(), library });
        Ok(())
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        while let Some(Loaded { library, .. }) = self.0.pop() {
            // SAFETY: if a plugin has this function, it has this type.
            if let Ok(end) = unsafe { library.get::<End>(b"dprobes_plugin_end\0") } {
                // SAFETY: as above; the plugin was initialised, and is ended once.
                unsafe { end() };
            }
        }
    }
}

/// Loads a shared object and checks that it is a plugin of this version.
fn open(path: &Path) -> Result<&'static Library, String> {
    if cfg!(target_feature = "crt-static") {
        return Err("this is the static build of dprobes, which loads no plugins; the one of the packages, \
                    or of `cargo install`, does"
            .to_owned());
    }
    // SAFETY: the user who names a plugin wants its code to be executed, including its
    // initialisers.
    let library = unsafe { Library::new(path) }.map_err(|error| {
        let text = error.to_string();
        // The loader's own message names the file again.
        text.strip_prefix(&format!("{}: ", path.display())).map_or(text.clone(), str::to_owned)
    })?;
    // SAFETY: the symbol's type is that of the header's macro.
    let version = match unsafe { library.get::<*const u32>(b"dprobes_plugin_version\0") } {
        // SAFETY: it is a constant of the object, which stays loaded.
        Ok(version) => unsafe { **version },
        Err(_) => return Err("it is no plugin: it has no dprobes_plugin_version".to_owned()),
    };
    if version != VERSION {
        return Err(format!("it is for version {version} of the interface, and this is version {VERSION}"));
    }
    Ok(Box::leak(Box::new(library)))
}

fn api(argument: *const c_char) -> Api {
    Api {
        version: VERSION,
        size: size_of::<Api>() as u32,
        create_event: CREATE_EVENT.head(),
        log_event: LOG_EVENT.head(),
        destroy_event: DESTROY_EVENT.head(),
        callk: CALLK.head(),
        argument,
        exit_register: hooks::hook_exit_register,
        exit_deregister: hooks::hook_exit_deregister,
        exit_arm: hooks::hook_exit_arm,
        exit_disarm: hooks::hook_exit_disarm,
        find: hooks::hook_find,
        tell,
    }
}

/// Prints a plugin's line for the user.
unsafe extern "C" fn tell(text: *const c_char) {
    if !text.is_null() {
        // SAFETY: the plugin passes a NUL-terminated string.
        crate::messages::tell(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}
