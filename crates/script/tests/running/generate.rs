//! Random scripts of integers: expressions, conditions, loops, variables and maps.

use std::fmt::Write;

/// A generator of numbers (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 33) % limit
    }

    fn pick<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len() as u64) as usize]
    }

    /// A number; those at the edges of types are frequent.
    pub(crate) fn number(&mut self) -> u64 {
        let edge = 1u64
            .checked_shl(self.pick(&["3", "7", "8", "15", "16", "31", "32", "62", "63"]).parse().unwrap());
        match self.below(6) {
            0 => self.below(4),
            1 => edge.unwrap_or(0),
            2 => edge.unwrap_or(0) - 1,
            3 => edge.unwrap_or(0).wrapping_neg(),
            4 => self.below(1000),
            _ => self.next(),
        }
    }
}

/// A script that grows.
pub(crate) struct Generator {
    random: Random,
    /// Variables that are known here, and the type of each.
    variables: Vec<(String, &'static str)>,
    count: usize,
    indent: usize,
    loops: usize,
    /// Statements that may still be made.
    left: usize,
    out: String,
}

const TYPES: &[&str] = &["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"];

/// A script of one probe.
#[allow(dead_code, reason = "tests of other crates choose the size")]
pub(crate) fn script(seed: u64) -> String {
    script_of(seed, 4, 24)
}

/// A script of one probe that begins with so many variables, and has about so many statements.
pub(crate) fn script_of(seed: u64, variables: usize, statements: usize) -> String {
    let mut generator = Generator {
        random: Random::new(seed),
        variables: Vec::new(),
        count: 0,
        indent: 1,
        loops: 0,
        left: statements,
        out: String::new(),
    };
    let predicate = match generator.random.below(4) {
        0 => format!(" /({}) || 1/", generator.condition(2)),
        _ => String::new(),
    };
    generator.out = format!("uprobe:x:f{predicate}\n{{\n");
    for _ in 0..variables {
        generator.declare();
    }
    while generator.left > 0 {
        generator.statement(3);
    }
    for (name, _) in generator.variables.clone() {
        generator.line(&format!("print(${name});"));
    }
    generator.out + "}\n"
}

impl Generator {
    fn line(&mut self, text: &str) {
        writeln!(self.out, "{}{text}", "    ".repeat(self.indent)).expect("a string takes it");
    }

    fn declare(&mut self) {
        let (name, ty) = (format!("v{}", self.count), self.random.pick(&["int64", "uint64", "int64"]));
        self.count += 1;
        let value = self.expression(3);
        self.line(&format!("${name} = ({ty})({value});"));
        self.variables.push((name, ty));
    }

    fn variable(&mut self) -> Option<(String, &'static str)> {
        if self.variables.is_empty() {
            return None;
        }
        let index = self.random.below(self.variables.len() as u64) as usize;
        Some(self.variables[index].clone())
    }

    fn block(&mut self, depth: usize) {
        let known = self.variables.len();
        self.indent += 1;
        for _ in 0..1 + self.random.below(3) {
            self.statement(depth);
        }
        self.indent -= 1;
        self.variables.truncate(known);
    }

    fn statement(&mut self, depth: usize) {
        self.left = self.left.saturating_sub(1);
        let choice = if depth == 0 { self.random.below(8) } else { self.random.below(14) };
        match choice {
            0 => self.declare(),
            1 | 2 => {
                if let Some((name, ty)) = self.variable() {
                    let value = self.expression(4);
                    self.line(&format!("${name} = ({ty})({value});"));
                }
            }
            3 => {
                if let Some((name, ty)) = self.variable() {
                    let sign = self.random.pick(&["+", "-", "*", "&", "|", "^", "/", "%"]);
                    let value = self.expression(3);
                    self.line(&format!("${name} {sign}= ({ty})({value});"));
                }
            }
            4 => {
                let value = self.expression(4);
                self.line(&format!("print({value});"));
            }
            5 => {
                let (key, value) = (self.expression(2), self.expression(3));
                let line = match self.random.below(5) {
                    0 => format!("@m[(int64)({key})] = (int64)({value});"),
                    1 => format!("@m[(int64)({key})] += (int64)({value});"),
                    2 => format!("@m[(int64)({key})] *= (int64)({value});"),
                    3 => format!("@c[(int64)({key})] = count();"),
                    _ => format!("@s = sum((int64)({value}));"),
                };
                self.line(&line);
            }
            6 => {
                if let Some((name, _)) = self.variable() {
                    let step = self.random.pick(&["++", "--"]);
                    let line = if self.random.below(2) == 0 {
                        format!("${name}{step};")
                    } else {
                        format!("{step}@m[(int64)${name}];")
                    };
                    self.line(&line);
                }
            }
            7 => {
                if self.loops > 0 && self.random.below(2) == 0 {
                    let (test, word) = (self.condition(2), self.random.pick(&["break", "continue"]));
                    self.line(&format!("if ({test}) {{ {word}; }}"));
                } else if self.random.below(6) == 0 {
                    let test = self.condition(2);
                    self.line(&format!("if ({test}) {{ return; }}"));
                }
            }
            8 | 9 => {
                let test = self.condition(3);
                self.line(&format!("if ({test}) {{"));
                self.block(depth - 1);
                if self.random.below(2) == 0 {
                    let test = self.condition(2);
                    self.line(&format!("}} else if ({test}) {{"));
                    self.block(depth - 1);
                }
                if self.random.below(2) == 0 {
                    self.line("} else {");
                    self.block(depth - 1);
                }
                self.line("}");
            }
            10 => {
                let (name, times) = (format!("w{}", self.count), 1 + self.random.below(4));
                self.count += 1;
                self.line(&format!("${name} = (int64)0;"));
                let test = self.condition(1);
                self.line(&format!("while (${name} < {times} && ({test})) {{"));
                self.line(&format!("    ${name}++;"));
                self.loops += 1;
                self.block(depth - 1);
                self.loops -= 1;
                self.line("}");
            }
            11 => {
                let (name, from) = (format!("r{}", self.count), self.random.below(5));
                self.count += 1;
                self.line(&format!("for (${name} : {from}..{}) {{", self.random.clone().below(8)));
                let known = self.variables.len();
                self.variables.push((name, "int64"));
                self.loops += 1;
                self.block(depth - 1);
                self.loops -= 1;
                self.variables.truncate(known);
                self.line("}");
            }
            12 => {
                let times = 1 + self.random.below(4);
                self.line(&format!("unroll ({times}) {{"));
                self.block(depth - 1);
                self.line("}");
            }
            _ => {
                self.line("{");
                self.block(depth - 1);
                self.line("}");
            }
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.expression(0);
        }
        match self.random.below(6) {
            0 => format!("({}) && ({})", self.condition(depth - 1), self.condition(depth - 1)),
            1 => format!("({}) || ({})", self.condition(depth - 1), self.condition(depth - 1)),
            2 => format!("!({})", self.condition(depth - 1)),
            3 => self.expression(depth),
            _ => {
                let sign = self.random.pick(&["<", "<=", ">", ">=", "==", "!="]);
                format!("({}) {sign} ({})", self.expression(depth), self.expression(depth - 1))
            }
        }
    }

    fn leaf(&mut self) -> String {
        match self.random.below(9) {
            0 | 1 => self.random.number().to_string(),
            2 => format!("arg{}", self.random.below(4)),
            3 => self.random.pick(&["pid", "tid", "retv"]).replace("retv", "uid").to_string(),
            4 => format!("@m[(int64)({})]", self.random.below(4)),
            5 => self.random.below(10).to_string(),
            _ => match self.variable() {
                Some((name, _)) => format!("${name}"),
                None => "arg0".into(),
            },
        }
    }

    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.leaf();
        }
        match self.random.below(13) {
            0 => self.leaf(),
            1..=5 => {
                let sign = self.random.pick(&["+", "-", "*", "&", "|", "^", "/", "%"]);
                let (left, right) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("({left}) {sign} ({right})")
            }
            6 => {
                let (left, right) = (self.expression(depth - 1), self.expression(depth - 1));
                let sign = self.random.pick(&["<<", ">>"]);
                match self.random.below(3) {
                    0 => format!("({left}) {sign} {}", self.random.below(64)),
                    1 => format!("({left}) {sign} (({right}) & 63)"),
                    _ => format!("({left}) {sign} (int64)({right})"),
                }
            }
            7 => format!("{}({})", self.random.pick(&["-", "~", "!"]), self.expression(depth - 1)),
            8 | 9 => format!("({})({})", self.random.pick(TYPES), self.expression(depth - 1)),
            10 => {
                let ty = self.random.pick(&["int64", "uint64"]);
                let test = self.condition(depth - 1);
                let (yes, no) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("({test}) ? ({ty})({yes}) : ({ty})({no})")
            }
            11 => match self.variable() {
                Some((name, _)) => match self.random.below(4) {
                    0 => format!("${name}++"),
                    1 => format!("--${name}"),
                    2 => format!("@m[(int64)${name}]++"),
                    _ => format!("--@m[(int64)${name}]"),
                },
                None => self.leaf(),
            },
            _ => self.condition(depth),
        }
    }
}
