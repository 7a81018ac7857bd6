//! The operators, as one table each.

/// An operator before a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `-`
    Minus,
    /// `!`
    Not,
    /// `~`
    Complement,
    /// `*`
    Dereference,
    /// `&`
    Address,
}

impl Unary {
    pub(crate) const ALL: &[(Unary, &str)] = &[
        (Unary::Minus, "-"),
        (Unary::Not, "!"),
        (Unary::Complement, "~"),
        (Unary::Dereference, "*"),
        (Unary::Address, "&"),
    ];

    /// The sign.
    pub fn sign(self) -> &'static str {
        Unary::ALL.iter().find(|(each, _)| *each == self).map_or("", |(_, sign)| sign)
    }
}

/// An operator between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `||`
    Or,
    /// `&&`
    And,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `&`
    BitAnd,
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
    /// `<<`
    Left,
    /// `>>`
    Right,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl Binary {
    /// Each operator with its sign and how strongly it binds.
    pub(crate) const ALL: &[(Binary, &str, u8)] = &[
        (Binary::Or, "||", 1),
        (Binary::And, "&&", 2),
        (Binary::BitOr, "|", 3),
        (Binary::BitXor, "^", 4),
        (Binary::BitAnd, "&", 5),
        (Binary::Equal, "==", 6),
        (Binary::Unequal, "!=", 6),
        (Binary::Less, "<", 7),
        (Binary::LessEqual, "<=", 7),
        (Binary::Greater, ">", 7),
        (Binary::GreaterEqual, ">=", 7),
        (Binary::Left, "<<", 8),
        (Binary::Right, ">>", 8),
        (Binary::Add, "+", 9),
        (Binary::Subtract, "-", 9),
        (Binary::Multiply, "*", 10),
        (Binary::Divide, "/", 10),
        (Binary::Modulo, "%", 10),
    ];

    fn row(self) -> (&'static str, u8) {
        Binary::ALL.iter().find(|(each, ..)| *each == self).map_or(("", 0), |(_, sign, rank)| (sign, *rank))
    }

    /// The sign.
    pub fn sign(self) -> &'static str {
        self.row().0
    }

    /// How strongly it binds.
    pub(crate) fn rank(self) -> u8 {
        self.row().1
    }

    /// Whether `=` may follow its sign.
    pub(crate) fn assigns(self) -> bool {
        !matches!(self.rank(), 1 | 2 | 6 | 7)
    }

    /// Whether its result is true or false.
    pub(crate) fn is_test(self) -> bool {
        matches!(self.rank(), 1 | 2 | 6 | 7)
    }
}
