//! Tests that are found at run time: one for each entry of a case file.
//!
//! A test program without a harness (`harness = false`) makes one [`Trials`] and runs it. It takes
//! the arguments of any test program, and its output ends like theirs:
//!
//! ```text
//! test arithmetic: add wraps ... ok
//! test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 171 filtered out; finished in 0.00s
//! ```

use std::process::ExitCode;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

/// The tests of one program.
#[derive(Default)]
pub struct Trials {
    trials: Vec<Trial>,
    one_at_a_time: bool,
}

impl std::fmt::Debug for Trials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.trials.iter().map(Trial::name);
        formatter.debug_list().entries(names).finish()
    }
}

impl Trials {
    /// No tests yet.
    pub fn new() -> Trials {
        Trials::default()
    }

    /// Adds a test that fails by a panic.
    pub fn add(&mut self, name: impl Into<String>, test: impl FnOnce() + Send + 'static) {
        self.check(name, || {
            test();
            Ok(())
        });
    }

    /// Adds a test that fails by returning an error, or by a panic.
    pub fn check(
        &mut self,
        name: impl Into<String>,
        test: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) {
        self.trials.push(Trial::test(name, || test().map_err(Failed::from)));
    }

    /// Adds a test that does not run here: it is reported as ignored.
    pub fn ignore(&mut self, name: impl Into<String>) {
        self.trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
    }

    /// Runs the tests one after another, since they share process-wide state.
    pub fn one_at_a_time(&mut self) {
        self.one_at_a_time = true;
    }

    /// Whether the arguments choose a test of this name, for work that is done once for all tests.
    pub fn chooses(name: &str) -> bool {
        !Arguments::from_args().is_filtered_out(&Trial::test(name, || Ok(())))
    }

    /// Runs the tests that the arguments choose.
    pub fn run(self) -> ExitCode {
        self.run_and(|| ())
    }

    /// Runs the tests that the arguments choose. If these were all and they passed, runs `behind`,
    /// a final check that fails by a panic.
    pub fn run_and(self, behind: impl FnOnce()) -> ExitCode {
        let mut arguments = Arguments::from_args();
        if self.one_at_a_time {
            arguments.test_threads = Some(1);
        }
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        let Conclusion { num_filtered_out, num_failed, num_passed, .. } = conclusion;
        if num_filtered_out == 0 && num_failed == 0 && num_passed > 0 {
            behind();
        }
        conclusion.exit_code()
    }
}
