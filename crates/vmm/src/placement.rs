//! Which CPUs run which thread.

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fmt;
use std::io;
use std::str::FromStr;

/// A set of CPUs, written as the kernel writes them: `0`, `0,2`, `1-3,5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

/// The text is not a list of CPUs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list of CPUs such as 0, 0,2 or 1-3")]
pub struct BadCpuList(String);

impl CpuList {
    /// The CPUs, ascending.
    pub fn cpus(&self) -> &[usize] {
        &self.0
    }

    /// The CPUs that this thread may use.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn usable() -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()))
    }

    /// The first `count` CPUs of the list, at least one.
    pub fn first(&self, count: usize) -> Self {
        Self(self.0[..count.clamp(1, self.0.len())].to_vec())
    }

    /// The CPUs behind the first `count`, at least the last one.
    pub fn without_first(&self, count: usize) -> Self {
        Self(self.0[count.min(self.0.len() - 1)..].to_vec())
    }

    /// The `index`th CPU of the list alone, starting over when the list is used up.
    pub fn nth(&self, index: usize) -> Self {
        Self(vec![self.0[index % self.0.len()]])
    }

    /// Keeps a thread (`None`: the calling one; a process's first thread has its process's id) on these CPUs.
    ///
    /// # Errors
    /// When none of the CPUs is there, or the thread is gone.
    pub fn pin(&self, thread: Option<u32>) -> io::Result<()> {
        let mut set = CpuSet::new();
        for &cpu in &self.0 {
            set.set(cpu);
        }
        let pid = thread.and_then(|id| Pid::from_raw(id as i32));
        sched_setaffinity(pid, &set).map_err(|error| {
            let why = match error {
                Errno::INVAL => "none of them is here, or this process may use none of them".to_owned(),
                error => error.to_string(),
            };
            io::Error::new(io::Error::from(error).kind(), format!("cannot run on CPUs {self}: {why}"))
        })
    }
}

impl FromStr for CpuList {
    type Err = BadCpuList;

    fn from_str(text: &str) -> Result<Self, BadCpuList> {
        let bad = || BadCpuList(text.to_owned());
        let number = |part: &str| part.parse::<usize>().ok().filter(|&cpu| cpu < CpuSet::MAX_CPU).ok_or_else(bad);
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(bad());
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cpu) in self.0.iter().enumerate() {
            write!(formatter, "{}{cpu}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Where a VM's threads run; `None` leaves them to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// vCPU n's thread runs on the nth CPU of the list, over and over, and so does the guest's process where the
    /// hypervisor has one.
    pub vcpus: Option<CpuList>,
    /// I/O thread n runs on the nth CPU of the list, over and over.
    pub io: Option<CpuList>,
}

impl Placement {
    /// Whether an I/O thread runs on one CPU alone, and a vCPU may run there.
    ///
    /// # Errors
    /// When the kernel does not say where threads may run.
    pub(crate) fn shares_a_cpu(&self, io_thread: usize) -> io::Result<bool> {
        let usable = CpuList::usable()?;
        let own = self.io.as_ref().map_or_else(|| usable.clone(), |cpus| cpus.nth(io_thread));
        let vcpus = self.vcpus.as_ref().unwrap_or(&usable);
        Ok(matches!(own.cpus(), [own] if vcpus.cpus().contains(own)))
    }
}

/// A thread and a process that talk in turns, kept on one CPU: so each wakes the other without an interrupt between
/// CPUs, which on a busy machine costs more than everything else in the exchange. Dropping it lets both go where they
/// could before.
#[derive(Debug)]
pub struct SideBySide {
    before: CpuSet,
    process: Option<Pid>,
}

impl SideBySide {
    /// Keeps the calling thread and `process` on the CPU the thread runs on now; `None` where the kernel refuses.
    pub fn keep(process: u32) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let process = Pid::from_raw(process as i32);
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        let side_by_side = Self { before, process };
        // On failure, the drop undoes the half that worked.
        sched_setaffinity(None, &here).ok()?;
        sched_setaffinity(process, &here).ok()?;
        Some(side_by_side)
    }
}

impl Drop for SideBySide {
    fn drop(&mut self) {
        // The process may have ended; the thread may run anywhere it could before.
        let _ = sched_setaffinity(self.process, &self.before);
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_as_the_kernel_writes_them() {
        assert_eq!("0".parse::<CpuList>().unwrap().cpus(), [0]);
        assert_eq!("3,1-2,2".parse::<CpuList>().unwrap().cpus(), [1, 2, 3]);
        assert_eq!("1-3".parse::<CpuList>().unwrap().to_string(), "1,2,3");
    }

    #[test]
    fn refuses_what_is_no_list() {
        for text in ["", ",", "a", "1-", "-1", "3-1", "1,,2", "99999999", "0-99999999999999999999"] {
            assert_eq!(text.parse::<CpuList>(), Err(BadCpuList(text.to_owned())));
        }
    }

    #[test]
    fn spreads_threads_over_the_list() {
        let list: CpuList = "4,6".parse().unwrap();
        assert_eq!([0, 1, 2].map(|index| list.nth(index).cpus()[0]), [4, 6, 4]);
    }

    #[test]
    fn threads_share_a_cpu_where_they_are_placed_so() {
        let placement = |vcpus: &str, io: &str| {
            let list = |text: &str| Some(text.parse().unwrap());
            Placement { vcpus: list(vcpus), io: list(io) }
        };
        let shares = |placement: &Placement, thread| placement.shares_a_cpu(thread).unwrap();
        assert_eq!([0, 1].map(|thread| shares(&placement("0-1", "1-2"), thread)), [true, false]);
        assert!(!shares(&placement("0", "1"), 0));
        let alone = CpuList::usable().unwrap().cpus().len() == 1;
        assert_eq!(shares(&Placement::default(), 0), alone);
    }

    #[test]
    fn pins_the_calling_thread_and_refuses_missing_cpus() {
        std::thread::spawn(|| {
            let list: CpuList = "0".parse().unwrap();
            list.pin(None).unwrap();
            assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), 1);
            let missing = "1023".parse::<CpuList>().unwrap().pin(None).unwrap_err().to_string();
            assert!(missing.starts_with("cannot run on CPUs 1023: none of them is here"), "{missing}");
        })
        .join()
        .unwrap();
    }
}
