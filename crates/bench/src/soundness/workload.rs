//! Workloads: run while a module is probed, use much of it, and write the same output every time.

use super::random::Random;
use crate::build;
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How much work to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Enough to use most of the module.
    Full,
    /// A second or two.
    Quick,
}

/// The modules to probe.
pub const MODULES: [&str; 5] = ["libc", "sqlite", "libpython", "python", "redis"];

/// What communicates with the program while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Nothing.
    None,
    /// Clients of a redis-server on a socket.
    Redis {
        /// The socket.
        socket: PathBuf,
        /// Requests of each kind.
        requests: u64,
    },
}

/// One module and its workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The module's short name, one of [`MODULES`].
    pub name: &'static str,
    /// The file to probe.
    pub module: PathBuf,
    /// The command.
    pub command: Vec<OsString>,
    /// Its standard input.
    pub input: Option<PathBuf>,
    /// Additional arguments for comparing counts with a simulation.
    pub simulated: Vec<OsString>,
    /// Its standard input then.
    pub simulated_input: Option<PathBuf>,
    /// What drives it.
    pub driver: Driver,
    /// Whether each instruction runs equally often every time, apart from effects of addresses.
    /// (Not so in Python and redis, which depend on hashes of addresses and on the time.)
    pub deterministic: bool,
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{what} is not installed"))
}

fn program(name: &str) -> io::Result<PathBuf> {
    testing::find_program(name).ok_or_else(|| missing(name))?.canonicalize()
}

/// The library with this name that a program is linked with.
fn library(program: &Path, name: &str) -> io::Result<PathBuf> {
    let said = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = text.lines().find(|line| line.trim_start().starts_with(name));
    let path = line.and_then(|line| line.split("=> ").nth(1)?.split(' ').next());
    path.ok_or_else(|| io::Error::other(format!("{} is not linked with {name}", program.display())))
        .and_then(|path| Path::new(path).canonicalize())
}

impl Workload {
    /// Makes the workload of a module, with files in a directory.
    ///
    /// # Errors
    /// With kind `NotFound` if this machine lacks something; otherwise if it cannot be made.
    pub fn new(name: &str, scale: Scale, directory: &Path) -> io::Result<Workload> {
        match name {
            "libc" => libc(directory),
            "sqlite" => sqlite(scale, directory),
            "libpython" => libpython(scale, directory),
            "python" => {
                // The distribution's, whose tests are a package; another may come first in PATH.
                let python = Path::new("/usr/bin/python3");
                let python = if python.exists() { python.canonicalize()? } else { program("python3")? };
                self::python("python", &python, scale, directory)
            }
            "redis" => redis(scale),
            _ => Err(io::Error::other(format!(
                "unknown module `{name}`; the modules are {}",
                MODULES.join(", ")
            ))),
        }
    }
}

fn libc(directory: &Path) -> io::Result<Workload> {
    let source = build::repository().join("tests/targets/libcwork.c");
    let work = directory.join("libcwork");
    build::c_program(&[source], &["-O1", "-fno-builtin"], &["-lm"], &work)?;
    Ok(Workload {
        name: "libc",
        module: library(&work, "libc.so.6")?,
        command: vec![work.into(), "1".into()],
        input: None,
        // Valgrind computes with 64 bits where the processor has 80.
        simulated: vec!["plain".into()],
        simulated_input: None,
        driver: Driver::None,
        deterministic: true,
    })
}

fn sqlite(scale: Scale, directory: &Path) -> io::Result<Workload> {
    let sqlite = program("sqlite3")?;
    let statements = if scale == Scale::Full { 10_000 } else { 500 };
    let input = directory.join("statements.sql");
    std::fs::write(&input, sql(statements, true))?;
    let integers = directory.join("integers.sql");
    std::fs::write(&integers, sql(statements, false))?;
    Ok(Workload {
        name: "sqlite",
        module: library(&sqlite, "libsqlite3.so.0")?,
        command: vec![sqlite.into(), "-batch".into(), "-init".into(), "/dev/null".into(), ":memory:".into()],
        input: Some(input),
        simulated: Vec::new(),
        // sqlite converts numbers with long double.
        simulated_input: Some(integers),
        driver: Driver::None,
        deterministic: true,
    })
}

/// This many statements, the same every time; `reals`: with non-integer numbers.
fn sql(statements: usize, reals: bool) -> String {
    let mut random = Random::new(1);
    let mut text = String::from(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, kind INTEGER, data BLOB);\n\
         CREATE TABLE sale (id INTEGER PRIMARY KEY, item INTEGER REFERENCES item(id), day TEXT, count INTEGER);\n\
         CREATE INDEX by_kind ON item (kind, price);\nCREATE INDEX by_item ON sale (item);\n\
         CREATE TRIGGER sold AFTER INSERT ON sale BEGIN UPDATE item SET kind = kind + 1 WHERE id = new.item; END;\n\
         CREATE VIEW total AS SELECT item, sum(count) AS count FROM sale GROUP BY item;\n",
    );
    for statement in 6..statements {
        let mut below = |limit: u64| random.number() % limit;
        let (a, b, c) = (below(1000), below(100), below(50));
        let mut kind = below(30);
        if !reals && matches!(kind, 13 | 16 | 22 | 23 | 24 | 28 | 29) {
            kind = 15;
        }
        let result = match kind {
            0..=7 => writeln!(
                text,
                "INSERT INTO item (name, price, kind, data) VALUES ('thing {a} of {b}', {a}.{b} / 7, {b} % 9, x'{a:04x}{b:02x}');"
            ),
            8..=12 => writeln!(
                text,
                "INSERT INTO sale (item, day, count) VALUES ({a}, date('2001-01-01', '+{b} days'), {c});"
            ),
            13 => {
                writeln!(text, "UPDATE item SET price = price * 1.0{b}, name = upper(name) WHERE id = {a};")
            }
            14 => writeln!(text, "DELETE FROM item WHERE id = {a} AND kind = {};", b % 5),
            15 => writeln!(text, "SELECT * FROM item WHERE id BETWEEN {a} AND {};", a + 5),
            16 => writeln!(
                text,
                "SELECT count(*), round(avg(price), 6), min(name), max(kind) FROM item WHERE kind = {};",
                b % 9
            ),
            17 => writeln!(
                text,
                "SELECT i.name, t.count FROM item i JOIN total t ON t.item = i.id WHERE i.id < {a} ORDER BY 2 DESC, 1 LIMIT 3;"
            ),
            18 => writeln!(
                text,
                "SELECT name FROM item WHERE name LIKE '%{b}%' OR name GLOB '*{c}' ORDER BY name LIMIT 4;"
            ),
            19 => writeln!(
                text,
                "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {c}) SELECT sum(x * x), group_concat(x) FROM n;"
            ),
            20 => writeln!(
                text,
                "SELECT id, rank() OVER (PARTITION BY kind ORDER BY price, id), lag(id) OVER (ORDER BY id) FROM item WHERE id > {a} LIMIT 5;"
            ),
            21 => writeln!(
                text,
                "SELECT json_extract('{{\"a\": [{a}, {b}, {{\"c\": {c}}}]}}', '$.a[2].c'), json_array({a}, 'x', null), json_object('k', {b});"
            ),
            22 => writeln!(
                text,
                "SELECT strftime('%Y-%j %H:%M', {a}00000, 'unixepoch'), julianday('2001-02-03') + {b};"
            ),
            23 => writeln!(
                text,
                "SELECT substr(hex(quote('it''s {a}')), {c}, 12), printf('%08.3f|%-9s|%x', {a}.{b}, 'p{c}', {a}), instr('abc{a}', '{b}');"
            ),
            24 => writeln!(
                text,
                "SELECT CASE WHEN {a} % 3 = 0 THEN 'x' ELSE coalesce(null, {b}) END, abs(-{c}), typeof({a}.0), trim('  {b} ');"
            ),
            25 => writeln!(
                text,
                "SAVEPOINT s{statement}; UPDATE sale SET count = count + 1 WHERE item = {a}; ROLLBACK TO s{statement}; RELEASE s{statement};"
            ),
            26 => writeln!(
                text,
                "SELECT DISTINCT kind FROM item WHERE id IN (SELECT item FROM sale WHERE count > {c}) EXCEPT SELECT {b} ORDER BY 1;"
            ),
            27 => writeln!(text, "EXPLAIN QUERY PLAN SELECT * FROM item WHERE kind = {b} AND price > {c};"),
            28 => writeln!(text, "REPLACE INTO item (id, name, price) VALUES ({a}, 'again', {b}e-{c});"),
            _ => writeln!(
                text,
                "SELECT total(price), count(DISTINCT name) FROM item WHERE id % {} = 0;",
                c + 1
            ),
        };
        debug_assert!(result.is_ok(), "a string can be written to");
    }
    if !reals {
        text = text.replace("price REAL", "price INTEGER");
        for digit in 0..10 {
            text = text.replace(&format!(".{digit}"), &digit.to_string());
        }
    }
    text +=
        "PRAGMA integrity_check;\nSELECT count(*), sum(length(name)), hex(group_concat(kind)) FROM item;\n";
    text
}

/// What a short run of Python does instead of the tests.
const SNIPPET: &str = "
import json, re, collections, random
random.seed(5)
rows = [{'id': i, 'name': 'row %d' % i, 'tags': ['a' * (i % 7), None, i / 3]} for i in range(200)]
text = json.dumps(rows, indent=1, sort_keys=True)
print(len(text), json.loads(text) == rows, json.dumps('\\u20ac\\n\"'))
found = re.findall(r'\"name\": \"(row \\d+)\"', text)
print(len(found), re.sub(r'(\\w+) (\\d+)', r'\\2-\\1', ' '.join(found[:5])), re.split('[,;]', 'a,b;c'))
numbers = [random.randrange(10**9) for _ in range(3000)]
print(sorted(numbers)[:3], sum(numbers), collections.Counter(n % 7 for n in numbers).most_common(3))
d = {str(n): n for n in numbers}
for n in numbers[::2]: d.pop(str(n), None)
print(len(d), 2**200 % 10**9 + 7, '%.10f|%5s|%x' % (1 / 7, 'ab', 255), f'{3.5:>8.2f}')
class E(Exception): pass
try:
    raise E(1)
except E as e:
    print(repr(e), (lambda *a, **k: (a, k))(1, b=2))
print(sum(1 for line in text.splitlines() if line.strip().startswith('\"')), bytes(range(9)).hex(), set('aab') == {'a', 'b'})
";

/// Where distributions and self-built versions put Python's library; of two of the same version the
/// first counts.
const LIBRARIES: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

/// The minor version of Python 3 of a library with this name. (Debug and free-threaded builds have
/// an additional letter and are not matched.)
fn minor_version(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("libpython3.")?.strip_suffix(".so.1.0")?.parse().ok()
}

/// The library with the newest version.
fn newest(libraries: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let known = libraries.filter_map(|path| Some((minor_version(&path)?, path)));
    let newest = known.reduce(|best, next| if next.0 > best.0 { next } else { best });
    newest.map(|(_, path)| path)
}

/// Python with its code in a library, as in an embedding program.
fn libpython(scale: Scale, directory: &Path) -> io::Result<Workload> {
    let files = LIBRARIES.into_iter().filter_map(|directory| std::fs::read_dir(directory).ok());
    let library = newest(files.flatten().flatten().map(|file| file.path()))
        .ok_or_else(|| missing("libpython3 (Debian: libpython3.11)"))?;
    let program = directory.join("python-embedded");
    let source = build::repository().join("crates/bench/subject/python.c");
    // The directory may be unknown to the dynamic linker.
    let path = format!("-Wl,-rpath,{}", library.parent().unwrap_or(Path::new("/")).display());
    build::c_program(&[source, library], &["-O1"], &[&path], &program)?;
    python("libpython", &program, scale, directory)
}

fn python(name: &'static str, python: &Path, scale: Scale, directory: &Path) -> io::Result<Workload> {
    // If the program is only a wrapper of a library, the library is the module.
    let module = match library(python, "libpython3") {
        Ok(library) => library,
        Err(_) => python.to_owned(),
    };
    let mut command: Vec<OsString> = vec![python.into()];
    if scale == Scale::Full {
        let probe = Command::new(python).args(["-c", "import test.test_json, test.test_re"]).output()?;
        if !probe.status.success() {
            return Err(missing("Python's test package (Debian: libpython3.11-testsuite)"));
        }
        command.extend(
            ["-m", "test", "-v", "test_json", "test_re", "test_list", "test_dict"].map(OsString::from),
        );
    } else {
        let script = directory.join("snippet.py");
        std::fs::write(&script, SNIPPET)?;
        command.push(script.into());
    }
    Ok(Workload {
        name,
        module,
        command,
        input: None,
        simulated: Vec::new(),
        simulated_input: None,
        driver: Driver::None,
        deterministic: false,
    })
}

fn redis(scale: Scale) -> io::Result<Workload> {
    let server = program("redis-server")?;
    for client in ["redis-benchmark", "redis-cli"] {
        program(client)?;
    }
    // Socket paths are limited in length, so it cannot be below target/.
    let socket = std::env::temp_dir().join(format!("dprobes-soundness-{}", std::process::id()));
    let mut command: Vec<OsString> =
        vec![testing::find_program("redis-server").unwrap_or(server.clone()).into()];
    let options =
        ["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning", "--unixsocket"];
    command.extend(options.map(OsString::from));
    command.push(socket.clone().into());
    let requests = if scale == Scale::Full { 5000 } else { 200 };
    Ok(Workload {
        name: "redis",
        module: server,
        command,
        input: None,
        simulated: Vec::new(),
        simulated_input: None,
        driver: Driver::Redis { socket, requests },
        deterministic: false,
    })
}

#[cfg(test)]
mod tests {
    use super::{newest, sql};

    #[test]
    fn the_newest_python_is_taken_by_its_number() {
        let newest = |names: &[&str]| newest(names.iter().map(Into::into));
        let (ten, nine) = ("/usr/lib/libpython3.10.so.1.0", "/usr/lib/libpython3.9.so.1.0");
        assert_eq!(newest(&[nine, ten]), Some(ten.into()));
        assert_eq!(newest(&[ten, "/usr/local/lib/libpython3.10.so.1.0", nine]), Some(ten.into()));
        for other in
            ["libpython3.so", "libpython3.11d.so.1.0", "libpython3.11.so", "libpython3.11.a", "libc.so.6"]
        {
            assert_eq!(newest(&[other]), None, "{other}");
        }
    }

    #[test]
    fn statements_are_as_many_and_the_same() {
        let text = sql(1000, true);
        assert!(text.lines().count() >= 1000);
        assert_eq!(text, sql(1000, true));
        assert!(text.lines().all(|line| line.ends_with(';')));
    }
}
