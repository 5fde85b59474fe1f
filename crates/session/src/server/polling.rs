//! How long a thread looks for work before it waits: only where that pays.
//!
//! Looking costs a CPU; waiting costs a driver its notification and us a system call and the way back, some 10 µs. As
//! KVM does with its halt polling (Linux, Documentation/virt/kvm/halt-polling.rst): a wait that was so short that
//! looking a little longer would have found the work makes the next look longer, and a long wait makes it shorter, down
//! to nothing. So an idle client costs nothing, and neither does one whose requests are far apart.

/// The first step up from not looking at all.
const STEP_NS: u64 = 10_000;

#[derive(Debug)]
pub(super) struct Polling {
    max_ns: u64,
    now_ns: u64,
}

impl Polling {
    /// Looks for `max_ns` at most; zero: never.
    pub(super) fn new(max_ns: u64) -> Self {
        Self { max_ns, now_ns: max_ns }
    }

    /// How long to look after the last thing that was done.
    pub(super) fn duration_ns(&self) -> u64 {
        self.now_ns
    }

    /// Work came so long after the last thing that was done, when the thread waited already.
    pub(super) fn waited(&mut self, since_active_ns: u64) {
        if since_active_ns > self.max_ns {
            self.now_ns /= 2;
            if self.now_ns < STEP_NS {
                self.now_ns = 0;
            }
        } else {
            self.now_ns = (self.now_ns * 2).max(STEP_NS).min(self.max_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_only_where_it_pays() {
        let mut polling = Polling::new(200_000);
        assert_eq!(polling.duration_ns(), 200_000);
        (0..6).for_each(|_| polling.waited(1_000_000));
        assert_eq!(polling.duration_ns(), 0, "requests a millisecond apart");
        (0..6).for_each(|_| polling.waited(30_000));
        assert_eq!(polling.duration_ns(), 200_000, "requests close together again");
        let mut never = Polling::new(0);
        (0..6).for_each(|_| never.waited(0));
        assert_eq!(never.duration_ns(), 0);
    }
}
