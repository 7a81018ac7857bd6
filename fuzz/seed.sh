#!/usr/bin/env bash
# Fills the corpora from the programs of the tests, and the dictionary of the language from its reference.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p corpus/compile corpus/disassemble corpus/interpret
for program in ../crates/rpn/tests/{good,bad}/*.rpn ../tests/seeds/*.rpn ../examples/*.rpn; do
    name=$(basename "$program" .rpn)
    # The first byte is the machine: i386 for the seeds' programs, else x86-64.
    case $program in */seeds/*) machine='\0' ;; *) machine='\1' ;; esac
    { printf "$machine"; cat "$program"; } >"corpus/compile/$name"
done
# Every word in code spans of the reference, as an AFL dictionary.
grep -o '`[^`]*`' ../docs/language.md | tr -d '`' | tr ' ,:' '\n' | grep -E '^[A-Za-z_0-9#]{2,}$' | sort -u |
    sed 's/.*/"&"/' >corpus/words.dict
