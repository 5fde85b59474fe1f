//! How idle the CPUs were while something ran.

use std::{fs, io};

/// Each CPU's time since boot, as /proc/stat counts it.
#[derive(Clone, Debug)]
pub struct CpuTimes(Vec<CpuTime>);

#[derive(Clone, Copy, Debug, Default)]
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
}

/// What several stretches of time add up to: a CPU whose clock ticked once in a short one counts as little as that.
#[derive(Clone, Debug, Default)]
pub struct IdleTime(Vec<CpuTime>);

impl IdleTime {
    /// Adds the time from `earlier` to `later`.
    pub fn add(&mut self, earlier: &CpuTimes, later: &CpuTimes) {
        self.0.resize(self.0.len().max(later.0.len()), CpuTime::default());
        for (sum, (now, before)) in self.0.iter_mut().zip(later.0.iter().zip(&earlier.0)) {
            sum.idle += now.idle.saturating_sub(before.idle);
            sum.total += now.total.saturating_sub(before.total);
        }
    }

    /// Each CPU's idle share, in percent; `None` for one whose clock has not ticked.
    pub fn percent(&self) -> Vec<Option<f64>> {
        let share = |time: &CpuTime| (time.total > 0).then(|| 100.0 * time.idle as f64 / time.total as f64);
        self.0.iter().map(share).collect()
    }
}

/// Each CPU's share, for people: `-` where it is not known.
pub fn percent_text(percent: &[Option<f64>]) -> String {
    let each = percent.iter().map(|percent| percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0}")));
    each.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_share_counts_iowait_as_idle() {
        let before = CpuTimes::parse("cpu  1 2 3 4\ncpu0 100 0 100 100 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 5\n");
        let after = CpuTimes::parse("cpu  1 2 3 4\ncpu0 150 0 100 140 10 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 9\n");
        let mut idle = IdleTime::default();
        idle.add(&before, &after);
        assert_eq!(idle.percent(), [Some(50.0), None]);
        assert_eq!(percent_text(&idle.percent()), "50 -");
    }

    #[test]
    fn reads_this_machine() {
        assert!(!CpuTimes::now().unwrap().0.is_empty());
    }
}
