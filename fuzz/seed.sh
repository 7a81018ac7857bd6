#!/usr/bin/env bash
# Fills the corpora from the programs of the tests, and the dictionaries of the language and of PPDFs from their
# references.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p corpus/compile corpus/disassemble corpus/interpret corpus/ppdf corpus/store
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
: >corpus/left-out

# Runs the command that makes a seed. Where it fails, the seed is left out, and a file says why.
seed() {
    local name=$1 status reason
    shift
    "$@" 2>"$scratch/said" && return
    status=$?
    reason=$(grep -m 1 'error:' "$scratch/said" || head -n 1 "$scratch/said")
    echo "$name: ${reason:-$1 ended with status $status}" >>corpus/left-out
    rm -f "corpus/$name"
}
# Runs a command that must not fail, and lets it speak only if it does.
must() {
    "$@" 2>"$scratch/said" || { echo "$* has failed:" >&2; cat "$scratch/said" >&2; exit 1; }
}

for program in ../crates/rpn/tests/{good,bad}/*.rpn ../tests/seeds/*.rpn ../examples/*.rpn; do
    name=$(basename "$program" .rpn)
    # The first byte is the machine: i386 for the seeds' programs, else x86-64.
    case $program in */seeds/*) machine='\0' ;; *) machine='\1' ;; esac
    { printf "$machine"; cat "$program"; } >"corpus/compile/$name"
done
# Every word in code spans of the reference, as an AFL dictionary.
grep -o '`[^`]*`' ../docs/language.md | tr -d '`' | tr ' ,:' '\n' | grep -E '^[A-Za-z_0-9#]{2,}$' | sort -u |
    sed 's/.*/"&"/' >corpus/words.dict

# Scripts: those of the cases, and those of the page; its words.
mkdir -p corpus/script
awk '/^NAME/ { number++; inside = 0 } /^SCRIPT/ { inside = 1; next } /^[A-Z]/ { inside = 0 }
    inside { sub(/^    /, ""); print > ("corpus/script/" name number) }' name=case- ../crates/script/tests/cases/*.case
awk '/^```bpftrace/ { inside = 1; number++; next } /^```/ { inside = 0 } inside { print > ("corpus/script/page-" number) }' \
    ../docs/scripts.md
grep -o '`[^`]*`' ../docs/scripts.md | tr -d '`' | tr ' ,:()' '\n' | grep -E '^[$@A-Za-z_0-9#]{2,}$' | sort -u |
    sed 's/.*/"&"/' >corpus/script.dict

# Descriptions of static probes: those of the tests of the crate; the words of the language.
mkdir -p corpus/provider
awk -v RS='"' '/provider [a-z]+ \{/ { number++; gsub(/\\n\\?/, "\n"); print > ("corpus/provider/text-" number) }' ../crates/provider/tests/texts.rs
printf '"%s"\n' provider probe typedef struct union enum translator '#define ' '#pragma ' unsigned long short char void \
    double 'const ' '/*' '*/' '};' '__' >corpus/provider.dict

# PPDFs: of every program and machine for which one can be built here. Some name modules that are nowhere, or registers
# that the machine has not.
cargo build --quiet --manifest-path ../Cargo.toml -p dprobes
for program in ../crates/rpn/tests/good/*.rpn ../tests/seeds/*.rpn ../examples/*.rpn; do
    for machine in x86-64 i386 s390 s390x ppc ppc64; do
        name=ppdf/$(basename "$program" .rpn)-$machine
        seed "$name" ../target/debug/dprobes build-ppdf --arch $machine "$program" -o "corpus/$name"
    done
done
[ -n "$(ls corpus/ppdf)" ] || { echo 'no PPDF could be built' >&2; exit 1; }
# The tags of sections and fields.
grep -oE '`[A-Za-z]{4}`' ../docs/ppdf.md | tr -d '`' | sort -u | sed 's/.*/"&"/' >corpus/tags.dict

# Small stores: with the records of two probes, of few and of many places, cut off, and without any.
must ../target/debug/dprobes run -o corpus/store/malloc.dpt ../examples/malloc.rpn -- true
must ../target/debug/dprobes run -o corpus/store/points.dpt --at 'libc:str[c]*:entry' --do 'push arg, 0; log 1' -- true
# That there is no such function is an error, but the store is there.
rm -f corpus/store/empty.dpt
../target/debug/dprobes run -o corpus/store/empty.dpt --at 'libc:nothing:entry' -- true 2>"$scratch/said" || true
[ -s corpus/store/empty.dpt ] || { echo 'no empty store could be made:' >&2; cat "$scratch/said" >&2; exit 1; }
cp ../crates/trace/tests/data/version-1.dpt corpus/store/version-1.dpt
head -c 700 corpus/store/malloc.dpt >corpus/store/cut.dpt
# Templates: those of the examples and of their page, with records made up for them.
mkdir -p corpus/template
data='\1\5\0hello\0\14\0\0\0\0\0\0\0\3\0\2\0\0\0\377\4\0\1\2\3\4more'
for file in ../examples/templates/*.fmt; do
    { printf '\0'; cat "$file"; printf "\0$data"; } >"corpus/template/$(basename "$file" .fmt)"
done
awk '/^```template/ { inside = 1; number++; next } /^```/ { inside = 0 } inside { print > ("corpus/template/page-" number) }' \
    ../docs/templates.md
for file in corpus/template/page-*; do
    { printf '\1'; cat "$file"; printf "\0$data"; } >"$file.seed" && mv "$file.seed" "$file"
done
printf '"%s"\n' major= minor= 'desc=\"' 'fmt=\"' '%r(' '%p(' '%4x' '%ps' '%rps' '%wu' '%8f' '%4m(A=0,B=1-2:3)' '%?field1=1(' '%?field1!&0x2(' '%%' '%(' '%)' '/*' '*/' >corpus/controls.dict

# Stores that are converted: those, and calls with their ends and templates.
mkdir -p corpus/convert
cp ../crates/trace/tests/data/version-1.dpt corpus/convert/version-1.dpt
must ../target/debug/dprobes run -o corpus/convert/templates.dpt --templates ../examples/templates ../examples/malloc.rpn -- true
must ../target/debug/dprobes run -o corpus/convert/calls.dpt \
    --at 'libc:str[c]*:entry' --at 'libc:str[c]*:return' --do 'push arg, 0; log 1' -- true

# Small ELF files: of both machines, with every table that is read, and with tables of targets.
mkdir -p corpus/elf
elf=$scratch/elf
mkdir "$elf"
cat >"$elf/plain.c" <<'END'
static int twice(int value) { return 2 * value; }
int pick(int which, int value)
{
    switch (which) {
    case 0: return twice(value);
    case 1: return value * value;
    case 2: return value / 3;
    case 3: return value - which;
    case 4: return value ^ 7;
    case 5: return ~value;
    default: return value + 9;
    }
}
static int (*resolve(void))(int, int) { return pick; }
int chosen(int, int) __attribute__((ifunc("resolve")));
void _start(void) { pick(1, 2); for (;;) ; }
END
cat >"$elf/rseq.S" <<'END'
        .section __rseq_cs, "aw"
        .balign 32
        .long 0, 0
        .quad 1f, 2f - 1f, 3f
        .text
1:      inc %eax
2:      ret
        .long 0x53053053
3:      jmp 1b
        .section .note.GNU-stack, "", @progbits
END
printf 'V_1 { global: *; };\nV_2 { global: pick; } V_1;\n' >"$elf/versions.map"
build() { gcc -O1 -nostdlib -Wl,-z,noseparate-code -Wl,--build-id "${@:2}" "$elf"/plain.c -o "corpus/elf/$1"; }
build library.so -shared -fPIC -Wl,--hash-style=both "-Wl,--version-script=$elf/versions.map" "$elf/rseq.S"
build program -static -no-pie "$elf/rseq.S"
build position-independent -pie -fPIE "$elf/rseq.S"
# Not every gcc makes code of i386.
seed elf/i386 build i386 -m32 -static -no-pie
objcopy --only-keep-debug corpus/elf/library.so "$elf/small" && xz "$elf/small"
strip -o "$elf/stripped" corpus/elf/library.so
objcopy --add-section ".gnu_debugdata=$elf/small.xz" "$elf/stripped" corpus/elf/packed.so
cp "$elf/stripped" corpus/elf/stripped.so

if [ -s corpus/left-out ]; then
    grep -v '^ppdf/' corpus/left-out >&2 || true
    echo "$(wc -l <corpus/left-out) seeds are left out; fuzz/corpus/left-out says which, and why" >&2
fi
