//! Random scripts with strings, tuples, keys of several parts, and maps of every kind.
//!
//! Those of integers, with loops and conditions, are of the tests of crate `script`.

use super::script_numbers::Random;

/// Functions that give a number of strings.
const NUMBERS: &[&str] = &[
    "strlen(A)",
    "strstr(A, B)",
    "strncmp(A, B, 3)",
    "(int64)(A == B)",
    "(int64)(A != B)",
    "(int64)strcontains(A, B)",
    "(int64)globmatch(A, B)",
    "memcmp(A, B, 4)",
];

/// What a map is set to.
const SETS: &[&str] = &[
    "@count[K] = count();",
    "@sum[K] = sum(N);",
    "@least[K] = min(N);",
    "@most[K] = max(N);",
    "@avg[K] = avg(N);",
    "@stats[K] = stats(N);",
    "@hist[K] = hist(N);",
    "@fine[K] = hist(N, 2);",
    "@line[K] = lhist(N, 0, 50, 5);",
    "@plain[K] = N;",
    "@plain[K] += N;",
    "@plain[K] |= N;",
    "@text[N] = A;",
    "@pair[A] = (N, A);",
    "@all = count();",
    "@total = sum(N);",
    "@spread = hist(N);",
    "delete(@plain, (K));",
    "delete(@count, (K));",
];

/// What is done besides.
const OTHERS: &[&str] = &[
    "printf(\"%d %s\", N, A);",
    "print((N, A, N));",
    "print(A);",
    "print(buf(arg0, 5));",
    "if (has_key(@plain, (K))) { print(@plain[K]); }",
    "print(@text[N]);",
    "print(@pair[A]);",
    "if (A == B) { print(N); } else { print(A); }",
    "for ($i : 0..3) { @plain[$i, A] += $i; }",
    "print(@count[K] + 0);",
    "print(str(arg1, 4));",
    "$p = (int32 *)arg2; print(*$p); print($p[1]);",
    "@plain[K]++;",
    "print(len(@plain));",
    "print((A, (N, B)) == (B, (N, A)));",
    "print(strerror(N)); print(syscall_name(N));",
    "if (find(@plain, (K), $f)) { print($f); }",
];

/// What is done besides that compiled code does.
const PLAIN: &[&str] = &[
    "printf(\"%d %s\", N, A);",
    "print(N);",
    "print(A);",
    "if (N < N) { print(N); } else { @all = count(); }",
    "$n = N + N * N - (N & N) ^ N;",
    "if (has_key(@plain, (K))) { print(@plain[K]); }",
    "@plain[K]++;",
    "print(@count[K] + 0);",
];

/// A probe that sets all maps that are read.
const TYPES: &str = "uprobe:x:g { @plain[(int64)1, \"\"] = (int64)1; @count[(int64)1, \"\"] = count(); \
                     @text[(int64)1] = \"\"; @pair[\"\"] = ((int64)1, \"\"); }\n";

/// A script of which the first probe is hit.
pub(crate) fn script(seed: u64) -> String {
    let mut random = Random::new(seed ^ 0x7e47);
    // Scripts without functions of strings are all in compiled code, more often than not.
    let plain = random.below(2) == 0;
    let mut out = String::from(
        "config = { max_strlen = 24; max_map_keys = 8 }\nuprobe:x:f\n{\n    $s = str(arg0); $n = (int64)arg3;\n",
    );
    for number in 0..if plain { 1 + random.below(3) } else { 3 + random.below(9) } {
        let list = match (plain, random.below(2)) {
            (_, 0) => SETS,
            (true, _) => PLAIN,
            (false, _) => OTHERS,
        };
        let pattern = list[random.below(list.len() as u64) as usize].replace("$f", &format!("$f{number}"));
        let line = filled(&mut random, plain, &pattern.replace("$p", &format!("$p{number}")));
        out.push_str(&match random.below(5) {
            0 => format!("    if ({}) {{ {line} }}\n", number_of(&mut random, plain)),
            1 => format!("    unroll (2) {{ {line} }}\n"),
            _ => format!("    {line}\n"),
        });
        if random.below(6) == 0 {
            out.push_str(&filled(&mut random, plain, "    $s = A;\n"));
        }
        if random.below(6) == 0 {
            out.push_str(&filled(&mut random, plain, "    $n = N;\n"));
        }
    }
    // What no action sets has its type from a probe that is not hit.
    out + "    print($s); print($n);\n}\n" + TYPES
}

/// A pattern with values in the places of `N`, numbers, `A` and `B`, strings, and `K`, the key of a
/// number and a string. These letters stand for themselves only beside others.
fn filled(random: &mut Random, plain: bool, pattern: &str) -> String {
    let letters: Vec<char> = pattern.chars().collect();
    let is_word = |place: Option<usize>| {
        let letter = place.and_then(|place| letters.get(place));
        letter.is_some_and(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '%' | '@' | '$'))
    };
    let mut out = String::new();
    for (place, letter) in letters.iter().enumerate() {
        let alone = !is_word(place.checked_sub(1)) && !is_word(Some(place + 1));
        match letter {
            'N' if alone => out.push_str(&number_of(random, plain)),
            'A' | 'B' if alone => out.push_str(&text_of(random, plain)),
            'K' if alone => {
                out.push_str(&format!("(int64)({}), {}", number_of(random, plain), text_of(random, plain)))
            }
            _ => out.push(*letter),
        }
    }
    out
}

fn number_of(random: &mut Random, plain: bool) -> String {
    match random.below(if plain { 5 } else { 7 }) {
        0 => format!("(int64){}", random.below(60)),
        1 => "$n".into(),
        2 => "(int64)(arg3 & 3)".into(),
        3 => "(int64)pid".into(),
        4 => format!("((int64)arg{} % 7)", random.below(4)),
        _ => {
            let pattern = NUMBERS[random.below(NUMBERS.len() as u64) as usize];
            let (one, other) = (text_of(random, plain), text_of(random, plain));
            let text = pattern.replace("(A", "(\u{1}").replace(" B", " \u{2}");
            format!("(int64)({})", text.replace('\u{1}', &one).replace('\u{2}', &other))
        }
    }
}

fn text_of(random: &mut Random, plain: bool) -> String {
    match if plain { 5 * random.below(2) + 3 * random.below(2) } else { random.below(9) } {
        0 => "\"ab\"".into(),
        1 => "\"a*\"".into(),
        2 => "\"a literal that is longer than a word\"".into(),
        3 => "$s".into(),
        4 => "str(arg1)".into(),
        5 => "str(arg2, 6)".into(),
        6 => "comm".into(),
        _ => "str(arg0)".into(),
    }
}
