//! How large the maps of a script are, and where they are.

use engine::TablesPlan;
use maps::MapInfo;
use script::Compiled;
use vm::Op;

use super::places::Places;
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
        .any(|it| matches!(it.op, Op::CommF | Op::PushIds | Op::PushParent));
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
    if let Some(map) = compiled.maps.iter().find(|map| map.info.is_evicting()) {
        return Err(Failure::new(format!(
            "@{} is declared to drop what was not used for long, which handlers in the kernel cannot do; declare it \
             as `hash({})`, or probe a process: -p PID, or a command behind `--`",
            map.name, map.info.entries
        )));
    }
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

/// The constants as handlers read them: literals, then names of attach points, then of functions,
/// and behind these the addresses of instructions, if handlers ask for them
/// ([`Compiled::addresses`]). Names are cut: a handler has no more room for one than for a string.
fn constants(compiled: &Compiled, places: &Places) -> Vec<u8> {
    let cut = |name: &'_ str| name.len().min(compiled.settings.max_strlen);
    let names = places.names.iter().map(|(name, _)| &name.as_bytes()[..cut(name)]);
    let functions = places.names.iter().map(|(_, function)| &function.as_bytes()[..cut(function)]);
    let first = (places.names.len() as u64).to_le_bytes();
    let literals = compiled.constants.iter().enumerate().map(|(number, literal)| match compiled.addresses {
        Some(own) if own == number => &first[..],
        _ => literal.as_slice(),
    });
    let address = |minor: usize| places.addresses.get(&minor).copied().unwrap_or(0).to_le_bytes();
    let asked = if compiled.addresses.is_some() { places.names.len() } else { 0 };
    let addresses: Vec<[u8; 8]> = (0..asked).map(address).collect();
    let behind = addresses.iter().map(|address| &address[..]);
    let classes: [Vec<&[u8]>; 3] = [literals.collect(), names.collect(), functions.chain(behind).collect()];
    let count: usize = classes.iter().map(Vec::len).sum();
    let mut head: Vec<u8> = classes.iter().flat_map(|class| (class.len() as u32).to_le_bytes()).collect();
    let mut bytes: Vec<u8> = Vec::new();
    for text in classes.iter().flatten() {
        let start = (12 + 8 * count + bytes.len()) as u32;
        head.extend(start.to_le_bytes());
        head.extend((text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text);
    }
    head.extend(bytes);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_found_by_class_and_number() {
        let compiled = Compiled { constants: vec![b"one".to_vec(), Vec::new()], ..Compiled::default() };
        let names = vec![("uprobe:a:f".to_owned(), "f".to_owned()), ("end".to_owned(), String::new())];
        let places = Places { names, ..Places::default() };
        let bytes = constants(&compiled, &places);
        let constants = vm::Constants(&bytes);
        let texts =
            [(0, &b"one"[..]), (1, b""), (1 << 32, b"uprobe:a:f"), (1 << 32 | 1, b"end"), (2 << 32, b"f")];
        for (number, text) in texts {
            assert_eq!(constants.get(number), Some(text), "{number:#x}");
        }
        assert_eq!(constants.get(2), None);
        let asking = Compiled { addresses: Some(1), ..compiled.clone() };
        let addresses = std::collections::BTreeMap::from([(0, 0x1139)]);
        let bytes = super::constants(
            &asking,
            &Places { addresses, ..Places { names: places.names.clone(), ..Places::default() } },
        );
        let constants = vm::Constants(&bytes);
        assert_eq!(constants.get(1), Some(&2u64.to_le_bytes()[..]));
        assert_eq!(constants.get(2 << 32 | 2), Some(&0x1139u64.to_le_bytes()[..]));
        let settings = script::Settings { max_strlen: 8, ..compiled.settings.clone() };
        let bytes = super::constants(&Compiled { settings, ..compiled }, &places);
        assert_eq!(vm::Constants(&bytes).get(1 << 32), Some(&b"uprobe:a"[..]));
    }
}
