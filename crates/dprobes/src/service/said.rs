//! What the threads of programs say that the kernel runs, and what follows from it.
//!
//! In: [`Said`], by the number of a program. Out: records and notes to the session's observer;
//! answers to clients that have waited for it.

use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use engine::Observer;

use super::in_kernel::{Event, KernelProgram, KernelPrograms, Stage, Starting, Then, Waiting};
use super::protocol::{Mode, Reply, Request};
use super::session::Session;
use crate::kernel_engine::Said;
use crate::{heap, output};

/// How long the session waits for programs to end when it ends itself.
const ENDING: Duration = Duration::from_secs(30);
/// Most lines that are kept for the client that inserts.
const MAX_LINES: usize = 16;
/// What is said to who has not chosen the kernel engine.
const CHEAPER: &str =
    "with -p PID, or --engine tracer for your own processes, probes are jumps, and a hit costs a hundredth\n";

impl Session<'_> {
    /// Does what the thread of a program says.
    pub(super) fn said(&mut self, number: usize, said: Said) {
        let KernelPrograms { programs, observer, .. } = &mut self.kernel;
        let Some(program) = programs.iter_mut().find(|program| program.number == number) else { return };
        match said {
            Said::Note(note) => {
                // Who inserts hears the warnings.
                drop(self.sinks.0.borrow_mut().heard());
                observer.note(&note);
                let warnings = self.sinks.0.borrow_mut().heard();
                if let Stage::Starting(starting) = &mut program.stage {
                    if warnings.is_empty() && starting.lines.len() < MAX_LINES {
                        starting.lines.push(output::text(&note));
                    }
                    let room = MAX_LINES.saturating_sub(starting.warnings.len());
                    starting.warnings.extend(warnings.into_iter().take(room));
                }
            }
            Said::Records(records) => {
                for record in &records {
                    if observer.record(number, record).is_ok() {
                        continue;
                    }
                    let time = record.time;
                    let (from, to) = program.untaken_times.unwrap_or((time, time));
                    program.untaken_times = Some((from.min(time), to.max(time)));
                    program.untaken.get_mut(record.probe as usize).into_iter().for_each(|it| it.0 += 1);
                }
                program.thread.iter().for_each(|thread| thread.took(records.len()));
            }
            Said::WriteOut(done) => {
                observer.idle();
                // Fails if the thread waits no more.
                let _ = done.send(());
            }
            Said::Placed(site) => observer.placed(&site.placed(number)),
            Said::Lost(lost) => observer.lost(&lost),
            Said::Dropped { probe, count } => observer.dropped(number, probe, count),
            Said::Counts(report, who) => {
                program.report = *report;
                self.proceed(number, Some(who));
            }
            Said::Refused(failure) => {
                if let Stage::Starting(starting) = &mut program.stage {
                    starting.refused = Some(failure);
                }
            }
            Said::Attached => self.attached(number),
            Said::Ended => self.ended(number),
        }
    }

    /// A program is attached: answers the client.
    fn attached(&mut self, number: usize) {
        let programs = &mut self.kernel.programs;
        let Some(program) = programs.iter_mut().find(|program| program.number == number) else { return };
        // Unless it was asked to end meanwhile.
        if program.thread.is_none() {
            return;
        }
        let Stage::Starting(starting) = std::mem::replace(&mut program.stage, Stage::Inserted) else {
            return;
        };
        let Starting { answer, warnings, old, mode, lines, or_tracer, .. } = *starting;
        let object = program.program.main();
        let count = crate::messages::count(object.probes.len() as u64, "probe");
        let mut text = format!("{count} inserted in `{}`, by the kernel engine\n", object.module);
        lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        if or_tracer.is_some() {
            text.push_str(CHEAPER);
        }
        let reply = Reply { warnings, ..Reply::done(text) };
        let points: HashSet<String> = object.probes.iter().map(|probe| probe.point.clone()).collect();
        let old: HashSet<usize> = old.into_iter().collect();
        match mode {
            Mode::Replace => self.end_programs(old, answer, Then::Reply(reply)),
            Mode::New | Mode::Merge => {
                let old = self.kernel.programs.iter().filter(|program| old.contains(&program.number));
                old.filter_map(|program| program.thread.as_ref()).for_each(|it| it.take_out(points.clone()));
                let _ = answer.send(reply);
            }
        }
    }

    /// A program has ended: its outputs end, too.
    fn ended(&mut self, number: usize) {
        let KernelPrograms { programs, observer, .. } = &mut self.kernel;
        let Some(program) = programs.iter_mut().find(|program| program.number == number) else { return };
        program.tell_untaken(observer);
        let mut tracer = None;
        match std::mem::replace(&mut program.stage, Stage::Ended) {
            Stage::Starting(starting) => {
                let Starting { answer, opened, warnings, refused, or_tracer, .. } = *starting;
                self.end_sink(number);
                self.sinks.0.borrow().remove_unused_files(opened);
                let other = match self.over {
                    true => "the session is ending",
                    false => "a thread of the session has failed; its log says why",
                };
                match (refused, or_tracer) {
                    (Some(refused), Some(insert)) if !self.over => tracer = Some((insert, refused, answer)),
                    (refused, _) => {
                        let reply = refused.as_ref().map_or_else(|| Reply::failed(other), Reply::refused);
                        let _ = answer.send(Reply { warnings, ..reply });
                    }
                }
            }
            // By a mistake of ours, which its thread has told in the session's log.
            Stage::Inserted => {
                self.sinks.0.borrow_mut().tell("warning: a thread of the kernel engine has failed")
            }
            Stage::Ending | Stage::Ended => {}
        }
        // At the end of the session, its last counts are still wanted.
        if !self.over {
            self.end_sink(number);
            self.kernel.programs.retain(|program| program.number != number);
        }
        self.proceed(number, None);
        heap::give_back();
        if let Some((insert, refused, answer)) = tracer {
            self.insert_unless_refused(&insert, Some(&refused), answer);
        }
    }

    /// Notes that a program has said the counts that a client has asked for last or, with `None`,
    /// that it has ended. Answers the clients that have waited only for this.
    fn proceed(&mut self, number: usize, counts_for: Option<u64>) {
        let has_come = |waiting: &&mut Waiting| match (counts_for, waiting.who) {
            (None, _) => true,
            (Some(counts), Some(who)) => counts >= who,
            (Some(_), None) => false,
        };
        for waiting in self.kernel.waiting.iter_mut().filter(has_come) {
            waiting.on.remove(&number);
        }
        self.answer_waiting();
    }

    /// Answers the clients that wait for no program any more.
    fn answer_waiting(&mut self) {
        let is_done = |waiting: &mut Waiting| waiting.on.is_empty();
        let done: Vec<Waiting> = self.kernel.waiting.extract_if(.., is_done).collect();
        for Waiting { answer, then, .. } in done {
            let reply = match then {
                Then::Reply(reply) => reply,
                Then::Answer(request) => self.answer(request),
            };
            let _ = answer.send(reply);
        }
    }

    /// Answers a request about programs when those of a module, or all, have said their counts.
    pub(super) fn answer_with_counts(&mut self, request: Request, name: Option<&str>, answer: Sender<Reply>) {
        let on = self.kernel.numbers(|program| name.is_none_or(|name| program.program.main().module == name));
        self.kernel.asked += 1;
        let who = self.kernel.asked;
        let asked = self.kernel.programs.iter().filter(|program| on.contains(&program.number));
        for thread in asked.filter_map(|program| program.thread.as_ref()) {
            if let Request::GetVars(wanted) = &request
                && wanted.reset
                && wanted.wants_locals()
            {
                thread.reset(wanted.indices());
            }
            thread.count(who);
        }
        self.wait(Waiting { answer, on, who: Some(who), then: Then::Answer(request) });
    }

    /// Removes programs that the kernel runs, and answers when they have ended.
    pub(super) fn remove_from_kernel(&mut self, numbers: HashSet<usize>, answer: Sender<Reply>) {
        self.end_programs(numbers, answer, Then::Reply(Reply::done("")));
    }

    fn end_programs(&mut self, numbers: HashSet<usize>, answer: Sender<Reply>, then: Then) {
        // They may have ended meanwhile.
        let on: HashSet<usize> = numbers.into_iter().filter(|number| self.kernel.has(*number)).collect();
        self.kernel.end(&on);
        self.wait(Waiting { answer, on, who: None, then });
    }

    fn wait(&mut self, waiting: Waiting) {
        self.kernel.waiting.push(waiting);
        self.answer_waiting();
    }

    /// Ends all programs that the kernel runs, and waits for that: no process is traced any more.
    pub(super) fn end_kernel(&mut self) {
        let all = self.kernel.programs.iter().map(|program| program.number).collect();
        self.kernel.end(&all);
        let end = Instant::now() + ENDING;
        let has_ended = |program: &KernelProgram| matches!(program.stage, Stage::Ended);
        while !self.kernel.programs.iter().all(has_ended) {
            match self.requests.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Event::Said(number, said)) => self.said(number, said),
                Ok(Event::Call(_, answer)) => drop(answer.send(Reply::failed("the session is ending"))),
                Err(_) => return,
            }
        }
    }
}
