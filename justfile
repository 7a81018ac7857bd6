# The commands that people need: `just` lists them. https://just.systems

[private]
default:
    @just --list

# Build the command as it is used
build:
    cargo build --release

# Packages (.deb, .rpm) and the archive with the static program, in target/dist
release:
    packaging/build

# Try what is released, as root
check-release: build
    packaging/check "$PWD/target/release/dprobes"

# Style: what every commit has to pass
check:
    .ci/style

# All tests; those whose tools are missing are skipped
test:
    cargo test --workspace

# The tests of one crate, or those whose names have a word in them: just test-one dprobes-vm decode
test-one package *words:
    cargo test -p {{ package }} -- {{ words }}

# One case of the language by a part of its name, on the interpreter and on compiled code
case name:
    cargo test -p dprobes-vm -p dprobes-jit -p dprobes-agent --test cases -- '{{ name }}'

# One transcript of the command by a part of its name
transcript name:
    cargo test -p dprobes --test cases -- '{{ name }}'

# Write the transcripts anew, for the difference to be read
update-transcripts:
    UPDATE_CASES=1 cargo test -p dprobes --test cases

# The circles of files and the long files
house:
    cargo test -p dprobes-house -- --nocapture

# The documentation of all crates, without a warning
doc:
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps

# The documentation as a book, target/book/docs/index.html; needs mdbook
book:
    packaging/book

# A benchmark of docs/benchmarks.md: just bench jump --only count
bench name *options:
    cargo run --release -p dprobes-bench --bin {{ name }} -- {{ options }}

# An animated picture of a session, docs/recording.svg
recording:
    cargo run --release -p dprobes-bench --bin recording

# The cases of scripts that Debian's bpftrace can run, with it
compare-bpftrace:
    cargo test -p dprobes --test scripts -- '(bpftrace)'

# Random scripts, compiled and interpreted; 100,000 of each sort take about half an hour
random-scripts count='100000':
    SCRIPTS={{ count }} cargo test --release -p dprobes-jit --test all -- scripts --nocapture

# A fuzz target for some seconds: just fuzz compile 60
fuzz target seconds='600':
    RUSTC_BOOTSTRAP=1 cargo fuzz run -s none {{ target }} -- -max_total_time={{ seconds }} -timeout=20

# Licences, versions and sources of the dependencies
deny:
    cargo deny check

# All that continuous integration does; as root, on Debian
ci:
    .ci/run
