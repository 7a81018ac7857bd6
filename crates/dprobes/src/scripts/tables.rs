//! How large the maps of a script are, and where they are.

use engine::TablesPlan;
use maps::MapInfo;
use script::Compiled;
use vm::Op;

use super::places::{Places, constants};
use crate::Failure;

/// Words for the maps of a script, in all copies.
const BUDGET: usize = (56 << 20) / 8;

/// The most threads whose names handlers can ask for.
const MAX_THREADS: u32 = 16384;

/// Places the maps of a script that runs in processes.
///
/// # Errors
/// They are too large.
pub(super) fn in_processes(compiled: &Compiled, places: &Places) -> Result<TablesPlan, Failure> {
    let mut infos: Vec<MapInfo> = compiled.maps.iter().map(|map| map.info).collect();
    let asks = vm::instructions(&compiled.code, vm::Word::W8)
        .filter_map(|it| it.instruction())
        .any(|it| matches!(it.op, Op::CommF | Op::PushIds));
    let threads = asks.then_some(infos.len());
    if asks {
        let (key, value, entries) = (8, engine::THREAD_BYTES, MAX_THREADS);
        infos.push(MapInfo { key, value, entries, ..MapInfo::default() });
    }
    let words = plan(compiled, &mut infos, engine::processors())?;
    Ok(TablesPlan { infos, words, constants: constants(compiled, places), threads })
}

/// Makes the maps of a script that runs in the kernel.
///
/// # Errors
/// They are too large, or the kernel gives no memory.
pub(super) fn in_kernel(
    compiled: &Compiled,
    places: &Places,
) -> Result<std::sync::Arc<kernel::Tables>, Failure> {
    let mut infos: Vec<MapInfo> = compiled.maps.iter().map(|map| map.info).collect();
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("memory for the maps of the script: {error}"));
    let processors = bpf::possible_processors().map_err(|error| failed(&error))?;
    let words = plan(compiled, &mut infos, processors)?;
    kernel::Tables::create(infos, words, constants(compiled, places)).map_err(|error| failed(&error))
}

/// Places maps. Returns how many words they need.
fn plan(compiled: &Compiled, infos: &mut [MapInfo], processors: usize) -> Result<usize, Failure> {
    let words = maps::plan(infos, processors, BUDGET).unwrap_or(usize::MAX);
    match words <= BUDGET {
        true => Ok(words),
        false => Err(too_large(compiled, infos, words)),
    }
}

/// Says which map is the largest. Maps lie one behind the other, if they could be placed at all.
fn too_large(compiled: &Compiled, infos: &[maps::MapInfo], words: usize) -> Failure {
    let places = infos.iter().map(|info| info.place as usize);
    let ends = places.clone().skip(1).chain([words]);
    let sizes = places.zip(ends).map(|(place, end)| end.saturating_sub(place));
    let largest = compiled.maps.iter().zip(sizes).max_by_key(|(_, size)| *size);
    let largest = match largest {
        Some((map, size)) if words < usize::MAX => {
            format!(
                ": they need {} MiB, and @{} needs {} of them",
                mebibytes(words),
                map.name,
                mebibytes(size)
            )
        }
        _ => String::new(),
    };
    Failure::new(format!(
        "the maps of the script are larger than {} MiB{largest}; `max_map_keys` and `max_strlen` in `config` make them smaller",
        mebibytes(BUDGET)
    ))
}

/// Words as MiB, rounded up.
fn mebibytes(words: usize) -> usize {
    words.div_ceil((1 << 20) / 8)
}
