use source::SourceId;

use super::*;
use crate::lex::{Lexer, Token};

fn read(text: &str, grammar: Grammar) -> Result<Expression, String> {
    let mut lexer = Lexer::new(SourceId(0), text.into());
    let mut tokens: Vec<Token> = std::iter::from_fn(|| lexer.next()).collect();
    tokens.push(Token {
        kind: Kind::End,
        text: "".into(),
        place: SourceLocation::default(),
        starts_line: true,
        spaced: true,
        frozen: false,
    });
    let mut messages = Messages::default();
    parse(&mut Cursor::new(&tokens), grammar, "a number", &mut messages).map_err(|error| error.message)
}

fn number(text: &str) -> Result<i128, String> {
    let value = read(text, Grammar::Constant)?.value();
    value.and_then(|value| value.plain()).map_err(|error| error.message)
}

#[test]
fn precedence_is_that_of_c() {
    assert_eq!(number("1 + 2 * 3"), Ok(7));
    assert_eq!(number("(1 + 2) * 3"), Ok(9));
    assert_eq!(number("10 - 4 - 3"), Ok(3));
    assert_eq!(number("1 | 6 ^ 3 & 1 << 1"), Ok(5));
    assert_eq!(number("-1 + ~0"), Ok(-2));
    assert_eq!(number("~0x0f & 0xff"), Ok(0xf0));
    assert_eq!(number("7 % 4 >> 1"), Ok(1));
}

#[test]
fn conditions_compare_and_do_not_compute_what_is_not_needed() {
    let condition = |text| read(text, Grammar::Condition)?.condition().map_err(|error| error.message);
    assert_eq!(condition("1 < 2 && !(3 != 3)"), Ok(true));
    assert_eq!(condition("1 || 1 / 0"), Ok(true));
    assert_eq!(condition("0 && 1 / 0"), Ok(false));
    assert_eq!(condition("0 ? 1 / 0 : 2 >= 2"), Ok(true));
    assert_eq!(condition("unknown_name"), Ok(false));
    assert_eq!(condition("1 / 0"), Err("division by zero".into()));
}

#[test]
fn a_symbol_takes_numbers_added_and_nothing_else() {
    let value = read("main + 0x10 - 4", Grammar::Constant).unwrap().value().unwrap();
    assert_eq!((value.symbol.unwrap().text.as_str(), value.number), ("main", 12));
    let value = read("4 + \"a b\"", Grammar::Constant).unwrap().value().unwrap();
    assert_eq!((value.symbol.unwrap().text.as_str(), value.number), ("a b", 4));
    assert!(read("main * 2", Grammar::Constant).unwrap().value().is_err());
    assert!(read("a + b", Grammar::Constant).unwrap().value().is_err());
    assert!(read("4 - main", Grammar::Constant).unwrap().value().is_err());
}

#[test]
fn what_cannot_be_computed_is_said() {
    assert_eq!(number("1 << 64"), Err("a shift by 64".into()));
    assert_eq!(number("0xffffffffffffffff"), Ok(u64::MAX.into()));
    assert_eq!(number("0x10000000000000000"), Err("the number `0x10000000000000000` is too large".into()));
    assert_eq!(number("12ab"), Err("`12ab` is not a number".into()));
    assert_eq!(number("0x"), Err("`0x` is not a number".into()));
    let huge = ["0xffffffffffffffff"; 4].join("*");
    assert_eq!(number(&huge), Err("this expression overflows".into()));
}

#[test]
fn depth_and_length_are_bounded() {
    assert!(number(&format!("{}1{}", "(".repeat(60), ")".repeat(60))).is_ok());
    assert!(number(&format!("{}1", "(".repeat(100_000))).is_err());
    assert!(number(&"-".repeat(100_000)).is_err());
    assert!(number(&format!("1{}", "+1".repeat(100_000))).is_err());
}

#[test]
fn what_is_printed_reads_back() {
    for text in ["1 + 2 * (3 - -4)", "~(1 << 5) | 0x1f", "main + 0x10 - 4", "\"a\\\\\\\"b\" + 1"] {
        let printed = read(text, Grammar::Constant).unwrap().to_string();
        assert_eq!(read(&printed, Grammar::Constant).unwrap().to_string(), printed);
        let of =
            |text: &str| read(text, Grammar::Constant).unwrap().value().map(|value| value.number).unwrap();
        assert_eq!(of(text), of(&printed));
    }
}
