//! What the reader must know of the types of what is printed.

use std::rc::Rc;

use crate::check::{Layout, Records};
use crate::compiled::{Compiled, Member, RecordLayout};
use crate::type_key::is_key;
use crate::types::{Tag, Type};

/// The most records of programs whose values are printed.
const MOST: usize = 4096;

/// Describes the records of a script, and those of programs that printed values consist of.
pub(super) fn describe(records: &Records, compiled: &mut Compiled) {
    for (name, layout) in records.all() {
        compiled.records.insert(name.clone(), described(layout));
    }
    let maps = compiled.maps.iter().flat_map(|map| map.key.iter().chain([&map.value]));
    let values = maps.chain(compiled.events.iter().flat_map(|event| &event.arguments));
    let mut open: Vec<Type> = values.cloned().collect();
    open.extend(compiled.records.values().flat_map(|each| each.members.iter().map(|it| it.ty.clone())));
    while let Some(ty) = open.pop() {
        match ty {
            Type::Array(inner, _) => open.push(Type::clone(&inner)),
            Type::Tuple(members) => open.extend(members.iter().cloned()),
            Type::Named(Tag::Enum, name) if is_key(&name) => {
                let constants = records.programs().constants(&name);
                compiled.enums.entry(name).or_insert(constants);
            }
            Type::Named(Tag::Struct | Tag::Union, name)
                if is_key(&name) && !compiled.records.contains_key(&name) =>
            {
                let Some(layout) = records.get(&name).filter(|_| compiled.records.len() < MOST) else {
                    continue;
                };
                let described = described(&layout);
                open.extend(described.members.iter().map(|member| member.ty.clone()));
                compiled.records.insert(name, described);
            }
            _ => {}
        }
    }
}

fn described(layout: &Rc<Layout>) -> RecordLayout {
    let members = layout.fields.iter().map(|(name, placed)| Member {
        name: name.clone(),
        ty: placed.ty.clone(),
        offset: placed.offset,
        bits: placed.bits,
    });
    let mut members: Vec<Member> = members.collect();
    members.sort_by_key(|member| (member.offset, member.bits.map(|bits| bits.first)));
    RecordLayout { size: layout.size, members }
}
