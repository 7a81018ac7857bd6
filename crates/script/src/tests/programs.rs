//! What programs tell of their types.

use std::path::Path;
use std::rc::Rc;

use source::MemoryFiles;
use vm::Register;

use crate::{
    AttachPoint, AttachTarget, Checked, Convention, FunctionValue, Functions, Item, Parameters, ProgramField,
    ProgramRecord, ProgramTypes, RegisterPart, Signature, Surroundings, Tag, Type, ValuePlace, check_text_in,
    compile, key, listing,
};

/// Two programs: in `a`, `struct thing` has an `id` at 0, in `b` at 8.
#[derive(Debug)]
struct Two;

fn program(point: &AttachPoint) -> Option<usize> {
    let AttachTarget::Function { binary, .. } = &point.place else { return None };
    match binary.path.as_str() {
        "a" => Some(0),
        "b" => Some(1),
        _ => None,
    }
}

fn in_register(name: &str, ty: Type, register: Register, bytes: u8) -> FunctionValue {
    let place = ValuePlace::Registers(vec![RegisterPart { register, offset: 0, bytes }]);
    FunctionValue { name: name.into(), ty, text: "?".into(), place }
}

impl ProgramTypes for Two {
    fn functions(&self, point: &AttachPoint) -> Result<Vec<Functions>, String> {
        let number = program(point).ok_or("there is no such program")?;
        let thing = Type::Named(Tag::Struct, key("thing", number)).pointer();
        let double = FunctionValue {
            name: "ratio".into(),
            ty: Type::Foreign("__int128".into(), 16),
            text: "__int128".into(),
            place: ValuePlace::Nowhere("nobody knows where it is".into()),
        };
        let pair = FunctionValue {
            name: "pair".into(),
            ty: Type::Named(Tag::Struct, key("pair", 3)),
            text: "struct pair".into(),
            place: ValuePlace::Registers(vec![
                RegisterPart { register: Register::Rdx, offset: 0, bytes: 8 },
                RegisterPart { register: Register::Rcx, offset: 8, bytes: 4 },
            ]),
        };
        let arguments = vec![
            in_register("thing", thing, Register::Rdi, 8),
            in_register("count", Type::signed(4), Register::Rsi, 4),
            double,
            pair,
        ];
        let result = Some(in_register("", Type::signed(2), Register::Rax, 2));
        let signature = Rc::new(Signature { key: key("args", number), arguments, result });
        Ok(vec![Functions { names: Vec::new(), signature: Ok(signature) }])
    }

    fn named(&self, point: &AttachPoint, tag: Tag, name: &str) -> Result<Option<Type>, String> {
        Ok(match (program(point), tag, name) {
            (Some(number), Tag::Struct, "thing") | (Some(number), Tag::Alias, "thing_t") => {
                Some(Type::Named(Tag::Struct, key("thing", number)))
            }
            (Some(_), Tag::Enum, "color") => Some(Type::Named(Tag::Enum, key("color", 0))),
            _ => None,
        })
    }

    fn constant(&self, point: &AttachPoint, name: &str) -> Result<Option<(Type, i64)>, String> {
        let color = Type::Named(Tag::Enum, key("color", 0));
        Ok(program(point).filter(|_| name == "GREEN").map(|_| (color, 5)))
    }

    fn record(&self, of: &str) -> Result<ProgramRecord, String> {
        let field = |name: &str, ty, offset| ProgramField { name: name.into(), ty, offset, bits: None };
        let (fields, size) = match of {
            _ if of == &*key("thing", 0) => (vec![field("id", Type::signed(4), 0)], 4),
            _ if of == &*key("thing", 1) => (vec![field("id", Type::signed(4), 8)], 16),
            _ if of == &*key("pair", 3) => {
                (vec![field("a", Type::I64, 0), field("b", Type::signed(4), 8)], 16)
            }
            _ if of.starts_with("args") => {
                let functions = self.functions(&point("uprobe:a:f"))?;
                let signature = functions[0].signature.clone()?;
                let arguments = signature.arguments.iter().zip([0, 8, 16, 24]);
                (arguments.map(|(it, at)| field(&it.name, it.ty.clone(), at)).collect(), 40)
            }
            _ => return Err("it is only declared there".into()),
        };
        Ok(ProgramRecord { fields, size, align: 1 })
    }

    fn constants(&self, _: &str) -> Vec<(String, i64)> {
        vec![("GREEN".into(), 5)]
    }

    fn symbol(&self, point: &AttachPoint, name: &str) -> Result<Option<(u64, u64)>, String> {
        let number = program(point).ok_or("there is no such program")? as u64;
        Ok(match name {
            "limit" => Some((0x4010, 2)),
            "table" => Some((0x4020, 400)),
            "moves" => Some((0x4000 + number, 8)),
            _ => None,
        })
    }

    fn convention(&self, point: &AttachPoint) -> Convention {
        if program(point) == Some(1) { Convention::Go } else { Convention::SystemV }
    }
}

fn point(text: &str) -> AttachPoint {
    let script = crate::parse("x", &format!("{text} {{ }}")).expect("it is one");
    let points = script.items.into_iter().find_map(|item| match item {
        Item::Probe(probe) => Some(probe.points),
        _ => None,
    });
    points.expect("a probe").remove(0)
}

fn checked(text: &str) -> Checked {
    let files = MemoryFiles::default();
    let around = Surroundings { files: &files, directories: &[], programs: Rc::new(Two) };
    check_text_in(&around, Path::new("x"), text)
}

fn code(text: &str) -> String {
    let checked = checked(text);
    assert!(!checked.has_errors(), "{}", checked.render(false));
    let compiled = compile(&checked, &Parameters::default());
    listing(&compiled.unwrap_or_else(|messages| panic!("{text}: {messages:?}")))
}

fn refused(text: &str) -> String {
    let checked = checked(text);
    if checked.has_errors() {
        return checked.render(false);
    }
    let messages = compile(&checked, &Parameters::default()).expect_err("it is refused");
    messages.iter().map(|message| message.render(&checked.sources, false)).collect()
}

#[test]
fn a_probe_of_two_programs_has_the_types_of_each() {
    let text = "uprobe:a:f, uprobe:b:f { print(((struct thing *)arg0)->id); print(sizeof(thing_t)); }";
    let found = checked(text);
    assert!(!found.has_errors(), "{}", found.render(false));
    assert_eq!(found.script.items.len(), 2);
    let alone = checked("uprobe:a:f, uprobe:b:f { @ = count(); }");
    assert_eq!(alone.script.items.len(), 1);
    let why = refused("uprobe:a:f { @x = (struct thing *)arg0; } uprobe:b:f { @x = (struct thing *)arg0; }");
    assert!(why.contains("does not fit map `@x`"), "{why}");
    let why = refused("uprobe:a:f { @x[(struct thing *)arg0] = 1; @x[pid] = 1; }");
    assert!(why.contains("an address and a number: cast one everywhere"), "{why}");
}

#[test]
fn arguments_are_read_where_they_are_and_cut_to_their_size() {
    let found = code("uprobe:a:f { @ = args.count; }");
    assert!(found.contains("rsi") && found.contains("pbl 32"), "{found}");
    let found = code("uprobe:a:f { print(args.pair); print(args.pair.b); }");
    assert!(found.contains("rdx") && found.contains("rcx") && found.contains("pzl 32"), "{found}");
    let found = code("uretprobe:a:f { @ = retval; }");
    assert!(found.contains("rax") && found.contains("pbl 16"), "{found}");
    // Go passes the first argument in another register.
    assert!(code("uprobe:a:f { @ = arg0; }").contains("rdi"));
    assert!(code("uprobe:b:f { @ = arg0; }").contains("rax"));
    assert!(code("uprobe:b:f { @ = arg8; }").contains("r11"));
    assert!(refused("uprobe:b:f { @ = arg9; }").contains("nine words"));
}

#[test]
fn constants_and_names_of_types_are_those_of_the_program() {
    let found =
        code("uprobe:a:f { @ = args.count == GREEN; @size = sizeof(thing_t); @b = (enum color)arg1; }");
    assert!(found.contains("push 5"), "{found}");
    // What the script defines is stronger.
    let found = code("struct thing { char x[40]; }; uprobe:a:f { @ = sizeof(struct thing); }");
    assert!(found.contains("push 40"), "{found}");
    // A probe without a program of its own can use any.
    let found = code("uprobe:a:f { @x = 1; } end { print(sizeof(struct thing)); }");
    assert!(found.contains("push 4"), "{found}");
}

#[test]
fn symbols_are_as_far_from_the_instruction_as_in_the_file() {
    let found = code("uprobe:a:f { @ = uaddr(\"limit\"); @size = sizeof(*uaddr(\"limit\")); }");
    assert!(found.contains("rip") && found.contains("16400") && found.contains("push 2"), "{found}");
    assert!(code("uprobe:a:f { @ = sizeof(*uaddr(\"table\")); }").contains("push 8"));
    // One action for two programs, in which it is at the same place.
    assert!(code("uprobe:a:f, uprobe:b:f { @ = uaddr(\"limit\"); }").contains("rip"));
    assert!(refused("uprobe:a:f, uprobe:b:f { @ = uaddr(\"moves\"); }").contains("different files"));
    assert!(refused("uprobe:a:f { @ = uaddr(\"nothing\"); }").contains("no such symbol"));
    assert!(refused("uprobe:c:f { @ = uaddr(\"limit\"); }").contains("there is no such program"));
}

#[test]
fn what_is_not_known_is_told_with_its_reason() {
    for (text, expected) in [
        ("uprobe:a:f { print(args.nobody); }", "the function has no parameter `nobody`"),
        ("uprobe:a:f { print(args.ratio); }", "nobody knows where it is"),
        ("uprobe:a:f { print(args); }", "nobody knows where it is"),
        ("uprobe:c:f { print(args.x); }", "there is no such program"),
        ("uprobe:a:f+4 { print(args.count); }", "not at the entry"),
        ("uprobe:a:f { print(args.thing->name); }", "struct `thing` has no field `name`"),
        ("uprobe:a:f { print((nobody_t *)arg0); }", "no type is called `nobody_t`"),
        ("uprobe:a:f { print((enum nobody)arg0); }", "enum `nobody` is not defined"),
        ("uprobe:a:f { print(NOBODY); }", "nothing is called `NOBODY`"),
        ("uprobe:a:f { print(((struct nobody *)arg0)->x); }", "the fields of struct `nobody` are not known"),
    ] {
        let why = refused(text);
        assert!(why.contains(expected), "{text}: {why}");
    }
}
