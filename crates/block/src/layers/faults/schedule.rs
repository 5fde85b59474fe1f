//! Which request which fault befalls.

use super::{EIO, ENOSPC, Fault, Faults, Latency, OperationKind, When, random};
use crate::{Operation, Request, RequestError};
use std::sync::atomic::{AtomicU64, Ordering};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    Fail(RequestError),
    Lose,
    Tear { reported: bool, chance: u64 },
}

impl Fate {
    /// What the request ends with if the disk has no error of its own.
    pub(super) fn result(self) -> Result<(), RequestError> {
        match self {
            Self::Fail(error) => Err(error),
            Self::Tear { reported: true, .. } => Err(EIO),
            Self::Pass | Self::Lose | Self::Tear { reported: false, .. } => Ok(()),
        }
    }
}

/// The faults, and how often each had its occasion. The queues of a disk share it, without a lock.
pub(super) struct Schedule {
    rules: Vec<Rule>,
}

struct Rule {
    fault: Fault,
    /// Differs from rule to rule: chances are independent.
    seed: u64,
    /// Requests that this fault is for; for a full disk, bytes written.
    count: AtomicU64,
}

impl Schedule {
    pub(super) fn new(faults: &Faults) -> Self {
        let rules = faults.faults.iter().zip(0..).map(|(fault, index)| Rule {
            fault: fault.clone(),
            seed: random::mix(random::mix(faults.seed).wrapping_add(index)),
            count: AtomicU64::new(0),
        });
        Self { rules: rules.collect() }
    }

    /// What becomes of a request, and how many nanoseconds later. Every rule counts every request it is for.
    pub(super) fn judge(&self, request: &Request<'_>) -> (Fate, u64) {
        let (mut fate, mut latency_ns) = (Fate::Pass, 0u64);
        for rule in &self.rules {
            if let Fault::Latency { operation, latency } = &rule.fault {
                if is_for(*operation, request) {
                    latency_ns = latency_ns.saturating_add(rule.draw_ns(latency));
                }
                continue;
            }
            let judged = rule.judge(request);
            if fate == Fate::Pass {
                fate = judged;
            }
        }
        (fate, latency_ns)
    }
}

impl Rule {
    fn judge(&self, request: &Request<'_>) -> Fate {
        match &self.fault {
            Fault::Error { operation, when } => match self.occurs(*operation, when, request) {
                Some(_) => Fate::Fail(EIO),
                None => Fate::Pass,
            },
            Fault::TornWrite { reported, when } => match self.occurs(Some(OperationKind::Write), when, request) {
                Some(chance) => Fate::Tear { reported: *reported, chance },
                None => Fate::Pass,
            },
            Fault::LostWrite { when } => match self.occurs(Some(OperationKind::Write), when, request) {
                Some(_) => Fate::Lose,
                None => Fate::Pass,
            },
            Fault::Full { after_bytes } => self.judge_full(*after_bytes, request),
            Fault::Latency { .. } => Fate::Pass,
        }
    }

    fn judge_full(&self, after_bytes: u64, request: &Request<'_>) -> Fate {
        let writes = match request.operation {
            Operation::Write { .. } => true,
            Operation::WriteZeroes { may_unmap, .. } => !may_unmap,
            Operation::Read | Operation::Flush | Operation::Discard { .. } => false,
        };
        if !writes {
            return Fate::Pass;
        }
        let take = |written: u64| written.checked_add(request.length_bytes()).filter(|&sum| sum <= after_bytes);
        match self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Fate::Pass,
            Err(_) => Fate::Fail(ENOSPC),
        }
    }

    /// A number by chance for the request's occasion; `None` when it is not for this request.
    fn occurs(&self, operation: Option<OperationKind>, when: &When, request: &Request<'_>) -> Option<u64> {
        if !is_for(operation, request) {
            return None;
        }
        let (nth, chance) = self.next();
        let occurs = match when {
            When::Chance { per_billion } => random::below(chance, 1_000_000_000) < u64::from(*per_billion),
            When::Nth(number) => nth == number.get(),
            When::Range(range) => touches(request, range.start, range.end),
        };
        occurs.then(|| random::mix(chance))
    }

    /// Which request this is, counted from 1, and what chance has for it.
    fn next(&self) -> (u64, u64) {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        (before + 1, random::mix(self.seed ^ random::mix(before)))
    }

    fn draw_ns(&self, latency: &Latency) -> u64 {
        let (_, chance) = self.next();
        let [shortest, longest] =
            [latency.shortest, latency.longest].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        shortest.saturating_add(random::below(chance, longest.saturating_sub(shortest).saturating_add(1)))
    }
}

fn is_for(operation: Option<OperationKind>, request: &Request<'_>) -> bool {
    operation.is_none_or(|kind| kind == request.operation.into())
}

/// A flush touches nothing.
fn touches(request: &Request<'_>, start: u64, end: u64) -> bool {
    let length = request.length_bytes();
    request.offset_bytes < end && request.offset_bytes.saturating_add(length) > start && length > 0
}
