//! Plans which instructions of a module show which of its source lines are reached.
//!
//! In: the module's line tables and basic blocks. Out: the sites, and for each source file which of
//! them stand for its lines, functions and branches.
//!
//! ```text
//!   block   1139  cmp  %eax,%ebx      line 4   the site: whoever comes here executes all of it
//!           113b  mov  %eax,%ecx      line 5     the same site
//!           113e  jg   1150           line 5     a branch, if branches are asked for
//!   block   1140  ...                 line 6   the next site
//! ```
//!
//! One site stands for all lines that begin in its block, since control enters a block at its
//! first instruction only and then executes all of it. Where that is not proven, in code with jumps
//! whose targets are unknown, each line has a site of its own.

use std::collections::{BTreeMap, BTreeSet};

use image::{Block, Image, LineRow, LineTable};

use super::branches::{Branch, Graph};

/// What is measured in one module.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The addresses of the sites in the file's own numbering, ascending.
    pub(super) sites: Vec<u64>,
    /// The source files, by path.
    pub(super) files: BTreeMap<String, SourceFile>,
}

/// What is measured of one source file. Each site is given by its address.
#[derive(Debug, Default)]
pub(super) struct SourceFile {
    /// For each line that has code, the sites that show that it is reached.
    pub(super) lines: BTreeMap<u64, BTreeSet<u64>>,
    /// The functions, by where they begin.
    pub(super) functions: BTreeMap<u64, Function>,
    /// The conditional jumps, by their addresses.
    pub(super) branches: BTreeMap<u64, Branch>,
    /// Conditional jumps in code that may be entered anywhere: nothing is proven of them.
    pub(super) unproven: u64,
}

/// A function that has code.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// Its symbol.
    pub(super) name: String,
    /// The line of its first instruction.
    pub(super) line: u64,
    /// The site that shows that it is called.
    pub(super) site: u64,
}

/// What is asked for.
pub(super) struct Wanted<'a> {
    /// Whether a source file, by its path, is to be measured.
    pub(super) is_source: &'a dyn Fn(&str) -> bool,
    /// Whether branches are to be measured.
    pub(super) branches: bool,
}

/// Plans a module.
pub(super) fn plan(image: &Image, table: &LineTable, wanted: &Wanted<'_>) -> Plan {
    let code = Code { image, blocks: image.control_flow().blocks() };
    let is_source: Vec<bool> = table.files.iter().map(|path| (wanted.is_source)(path)).collect();
    let rows = || table.rows.iter().filter(|row| is_source.get(row.file) == Some(&true));
    let mut files: BTreeMap<usize, SourceFile> = BTreeMap::new();
    let mut sites = BTreeSet::new();
    for row in rows().filter(|row| row.is_statement) {
        if let Some(site) = code.site_of(row.start) {
            sites.insert(site);
            files.entry(row.file).or_default().lines.entry(row.line).or_default().insert(site);
        }
    }
    for (file, start, function) in functions(image, table, &code) {
        if let Some(file) = files.get_mut(&file) {
            sites.insert(function.site);
            file.functions.insert(start, function);
        }
    }
    if wanted.branches {
        let graph = Graph::new(image, &code.blocks);
        for row in rows() {
            let Some(file) = files.get_mut(&row.file) else { continue };
            for block in code.ending_in(row) {
                match graph.branch(block, row.line) {
                    Some(branch) if block.is_closed => {
                        sites.extend(branch.sites());
                        file.branches.insert(block.last, branch);
                    }
                    Some(_) => file.unproven += 1,
                    None => {}
                }
            }
        }
    }
    let named = |(number, file): (usize, SourceFile)| Some((table.files.get(number)?.clone(), file));
    Plan { sites: sites.into_iter().collect(), files: files.into_iter().filter_map(named).collect() }
}

/// The functions with the index of their source files and their addresses. Of several names for one
/// address the first counts.
fn functions(image: &Image, table: &LineTable, code: &Code<'_>) -> Vec<(usize, u64, Function)> {
    let mut found: BTreeMap<u64, (usize, Function)> = BTreeMap::new();
    for function in image.functions() {
        if function.kind == image::FunctionKind::Label || found.contains_key(&function.vaddr) {
            continue;
        }
        let first = table.rows.partition_point(|row| row.start < function.vaddr);
        let Some(row) = table.rows.get(first).filter(|row| row.start == function.vaddr) else { continue };
        let Some(site) = code.site_of(function.vaddr) else { continue };
        let named = Function { name: function.name.clone(), line: row.line, site };
        found.insert(function.vaddr, (row.file, named));
    }
    found.into_iter().map(|(start, (file, function))| (file, start, function)).collect()
}

/// The code of a module.
struct Code<'a> {
    image: &'a Image,
    /// By address.
    blocks: Vec<Block>,
}

impl Code<'_> {
    /// The site that shows that control reaches an address; `None` if no instruction begins there.
    fn site_of(&self, address: u64) -> Option<u64> {
        let behind = self.blocks.partition_point(|block| block.start <= address);
        let block = behind.checked_sub(1).map(|place| &self.blocks[place]);
        match block.filter(|block| address < block.end) {
            Some(block) if block.is_closed => Some(block.start),
            // A line table tells of instructions; this excludes tables that lie.
            _ => self.image.check_boundary(address).is_ok().then_some(address),
        }
    }

    /// The blocks whose last instruction is in a row.
    fn ending_in(&self, row: &LineRow) -> impl Iterator<Item = &Block> {
        let from = self.blocks.partition_point(|block| block.last < row.start);
        let end = row.end;
        self.blocks[from..].iter().take_while(move |block| block.last < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Compiles a text with debug information; `None` without a compiler.
    fn compiled(text: &str, level: &str) -> Option<(tempfile::TempDir, Image)> {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let (source, program) = (folder.path().join("p.c"), folder.path().join("p"));
        std::fs::write(&source, text).expect("the source is written");
        let mut compiler = Command::new("gcc");
        compiler.args(["-g", level, "-o"]).arg(&program).arg(&source);
        if !compiler.status().is_ok_and(|status| status.success()) {
            testing::skipped("coverage: plan", "gcc");
            return None;
        }
        let image = Image::open(&program).expect("a program");
        Some((folder, image))
    }

    fn plan_of(image: &Image, branches: bool) -> Plan {
        let table = image::DebugTypes::read(image).and_then(|types| types.line_table()).expect("lines");
        plan(image, &table, &Wanted { is_source: &|path| path.ends_with("/p.c"), branches })
    }

    const TEXT: &str = "\
int add(int a, int b)
{
    int sum = a;
    sum += b;
    return sum;
}
int main(int count, char **words)
{
    if (count > 1)
        return add(1, 2);
    return 0;
}
";

    #[test]
    fn lines_of_one_block_have_one_site_and_code_of_other_files_has_none() {
        let Some((_folder, image)) = compiled(TEXT, "-O0") else { return };
        let plan = plan_of(&image, false);
        let (_, file) = plan.files.iter().next().expect("the source");
        assert_eq!(plan.files.len(), 1);
        let lines: Vec<u64> = file.lines.keys().copied().collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 8, 9, 10, 11, 12]);
        let names: Vec<(&str, u64)> =
            file.functions.values().map(|function| (function.name.as_str(), function.line)).collect();
        assert_eq!(names, [("add", 2), ("main", 8)]);
        // All of `add` is one block.
        let add: BTreeSet<u64> = (2..=6).flat_map(|line| file.lines[&line].clone()).collect();
        assert_eq!(add.len(), 1);
        assert!(file.lines[&10].is_disjoint(&file.lines[&11]));
        assert!(plan.sites.len() <= 6 && plan.sites.is_sorted(), "{:x?}", plan.sites);
        assert!(plan.sites.iter().all(|site| image.check_boundary(*site).is_ok()));
        assert!(file.branches.is_empty());
    }

    #[test]
    fn a_branch_is_of_its_line_and_its_blocks_are_sites() {
        let Some((_folder, image)) = compiled(TEXT, "-O0") else { return };
        let plan = plan_of(&image, true);
        let (_, file) = plan.files.iter().next().expect("the source");
        let branches: Vec<&Branch> = file.branches.values().collect();
        assert_eq!(branches.iter().map(|branch| branch.line).collect::<Vec<_>>(), [9]);
        assert!(branches[0].sites().all(|site| plan.sites.binary_search(&site).is_ok()));
    }
}
