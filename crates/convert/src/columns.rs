//! Table columns for the fields of templates.

use trace::template::{Field, FieldType, Template};

use crate::facts::TraceFacts;
use crate::map::Map;
use crate::template_set::TemplateSet;

/// Most columns. Values without a column go to a column of JSON.
const MAX_COLUMNS: usize = 500;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Unsigned numbers.
    Unsigned,
    /// Unsigned numbers shown in hexadecimal.
    Hexadecimal,
    /// Signed numbers.
    Signed,
    /// Floating point numbers.
    Float,
    /// Texts.
    Text,
    /// Bytes.
    Bytes,
    /// Lists and structures, as JSON.
    Json,
}

impl Scalar {
    /// The column type of a field of this kind.
    pub fn of(kind: &FieldType) -> Scalar {
        match kind {
            FieldType::Unsigned(_) => Scalar::Unsigned,
            FieldType::Signed(_) => Scalar::Signed,
            FieldType::Hexadecimal(_) => Scalar::Hexadecimal,
            FieldType::Float(_) => Scalar::Float,
            FieldType::Characters(_) | FieldType::Text | FieldType::Names(_) => Scalar::Text,
            FieldType::Bytes(_) => Scalar::Bytes,
            FieldType::List(_) | FieldType::Struct(_) => Scalar::Json,
        }
    }
}

/// A column for a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, unique in the table.
    pub name: String,
    /// What it holds.
    pub holds: Scalar,
}

/// The columns for the fields of all templates that the probes of a trace have.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The columns.
    pub columns: Vec<Column>,
    /// The column of each field of a template, by program and codes.
    of: Map<(u32, u32, u32), Vec<usize>>,
}

impl Columns {
    /// Plans the columns. Fields with the same name and type share a column; for a different type,
    /// the codes of the template are appended to the name, as often as needed to make it unique.
    /// `taken` are the names of other columns.
    pub fn new(known: &TraceFacts, sheet: &TemplateSet, taken: &[&str]) -> Columns {
        let mut columns = Columns::default();
        let mut numbers: Map<String, usize> = Map::default();
        for &(program, major, minor) in known.codes() {
            let Some(template) = sheet.get(program, major, minor) else { continue };
            if columns.columns.len() + template.fields().len() > MAX_COLUMNS {
                break;
            }
            let mut own = Vec::new();
            for Field { name, kind, .. } in template.fields() {
                let holds = Scalar::of(kind);
                let mut name = name.clone();
                let number = loop {
                    match numbers.get(&name) {
                        // No two fields of one template have the same name, so the column is
                        // another template's.
                        Some(&number) if columns.columns[number].holds == holds && !own.contains(&number) => {
                            break number;
                        }
                        None if !taken.contains(&name.as_str()) => {
                            let number = columns.columns.len();
                            numbers.insert(name.clone(), number);
                            columns.columns.push(Column { name, holds });
                            break number;
                        }
                        _ => name = format!("{name}_{major}_{minor}"),
                    }
                };
                own.push(number);
            }
            columns.of.insert((program, major, minor), own);
        }
        columns
    }

    /// The column of each field of a template for a program; `None` if the template has no columns.
    pub fn of(&self, program: u32, template: &Template) -> Option<&[usize]> {
        self.of.get(&(program, template.major, template.minor)).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::store::{self, Info, Probe, Program};

    #[test]
    fn fields_of_one_name_share_a_column_where_they_hold_the_same() {
        let mut info = Info::default();
        info.programs.push(Program { major: 1, ..Program::default() });
        for (minor, format) in [(1, "size=%4u pid=%4u"), (2, "size=%8u at 0x%8x"), (3, "size=%s list %ru")] {
            info.probes.push(Probe { number: minor, minor, ..Probe::default() });
            info.templates.push(store::Template {
                major: 1,
                minor,
                description: "d".to_owned(),
                format: Some(format.to_owned()),
                program: None,
            });
        }
        let sheet = TemplateSet::new(None, &info);
        let columns = Columns::new(&TraceFacts::new(&info), &sheet, &["pid"]);
        let named: Vec<(&str, Scalar)> =
            columns.columns.iter().map(|column| (column.name.as_str(), column.holds)).collect();
        assert_eq!(
            named,
            [
                ("size", Scalar::Unsigned),
                ("pid_1_1", Scalar::Unsigned),
                ("at", Scalar::Hexadecimal),
                ("size_1_3", Scalar::Text),
                ("list", Scalar::Json),
            ]
        );
        let of = |minor| {
            columns.of(0, sheet.get(0, 1, minor).expect("it is there")).expect("it has columns").to_vec()
        };
        assert_eq!((of(1), of(2), of(3)), (vec![0, 1], vec![0, 2], vec![3, 4]));
    }
}
