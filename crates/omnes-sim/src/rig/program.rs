//! Execution of a script by one rank of the rig.

use crate::rig::ledger::Operation;
use crate::rig::script::{Outcome, Receipt, Script, Step};
use std::collections::BTreeMap;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Program {
    steps: Vec<Step>,
    next: usize,
    /// Operations in progress; with the buffer of each that has one.
    pending: BTreeMap<Operation, Option<usize>>,
    pub(crate) outcome: Outcome,
}

impl Program {
    pub(crate) fn new(script: Script) -> Self {
        let outcome = Outcome { buffers: script.buffers, ..Outcome::default() };
        let mut program = Self { steps: script.steps, outcome, ..Self::default() };
        program.note_end();
        program
    }

    /// The next step, even if it must wait.
    pub(crate) fn next_step(&self) -> Option<&Step> {
        self.steps.get(self.next)
    }

    /// The next step, unless an operation that it waits for is in progress.
    pub(crate) fn take_step(&mut self) -> Option<Step> {
        let step = self.steps.get(self.next)?.clone();
        let is_held = match step {
            Step::Wait => !self.pending.is_empty(),
            Step::WaitFor { buffer } => self.pending.values().any(|held| *held == Some(buffer)),
            _ => false,
        };
        if is_held {
            return None;
        }
        self.next += 1;
        self.note_end();
        Some(step)
    }

    fn note_end(&mut self) {
        self.outcome.is_complete = self.next == self.steps.len() && self.pending.is_empty();
    }

    pub(crate) fn begin(&mut self, operation: Operation, buffer: Option<usize>) {
        self.pending.insert(operation, buffer);
        self.note_end();
    }

    /// An operation has ended, a receive with its content; false if it does not belong to the
    /// script.
    pub(crate) fn on_done(
        &mut self,
        operation: Operation,
        received: Option<(Receipt, &[u8])>,
    ) -> bool {
        let Some(buffer) = self.pending.remove(&operation) else { return false };
        if let (Some(buffer), Some((receipt, content))) = (buffer, received) {
            self.outcome.buffers[buffer] = content.to_vec();
            self.outcome.receipts.push(Receipt { buffer, ..receipt });
        }
        self.note_end();
        true
    }

    /// An operation has ended with an error.
    pub(crate) fn on_failed(&mut self, operation: Operation) {
        if self.pending.remove(&operation).is_some() {
            self.outcome.failures += 1;
        }
        self.note_end();
    }
}
