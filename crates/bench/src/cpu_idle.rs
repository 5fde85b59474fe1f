//! How idle the CPUs were while something ran.

use std::{fs, io};

/// Each CPU's time since boot, as /proc/stat counts it.
#[derive(Clone, Debug)]
pub struct CpuTimes(Vec<CpuTime>);

#[derive(Clone, Copy, Debug)]
struct CpuTime {
    idle: u64,
    total: u64,
}

impl CpuTimes {
    /// Reads the counters now.
    ///
    /// # Errors
    /// When /proc is not there.
    pub fn now() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/stat")?))
    }

    /// Lines `cpuN user nice system idle iowait irq softirq steal …` (proc(5)); waiting for a disk is idling.
    fn parse(stat: &str) -> Self {
        let cpu_lines = stat.lines().filter(|line| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
        });
        let time = |line: &str| {
            let fields: Vec<u64> =
                line.split_whitespace().skip(1).take(8).filter_map(|text| text.parse().ok()).collect();
            CpuTime { idle: fields.iter().skip(3).take(2).sum(), total: fields.iter().sum() }
        };
        Self(cpu_lines.map(time).collect())
    }

    /// Each CPU's idle share since `earlier`, in percent; 0 for one whose clock has not ticked.
    pub fn idle_percent_since(&self, earlier: &Self) -> Vec<f64> {
        let share = |(now, before): (&CpuTime, &CpuTime)| match now.total.saturating_sub(before.total) {
            0 => 0.0,
            total => 100.0 * now.idle.saturating_sub(before.idle) as f64 / total as f64,
        };
        self.0.iter().zip(&earlier.0).map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_share_counts_iowait_as_idle() {
        let before = CpuTimes::parse("cpu  1 2 3 4\ncpu0 100 0 100 100 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 5\n");
        let after = CpuTimes::parse("cpu  1 2 3 4\ncpu0 150 0 100 140 10 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 9\n");
        assert_eq!(after.idle_percent_since(&before), [50.0, 0.0]);
    }

    #[test]
    fn reads_this_machine() {
        assert!(!CpuTimes::now().unwrap().0.is_empty());
    }
}
