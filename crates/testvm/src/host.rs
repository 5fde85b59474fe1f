//! How busy the host was while a step ran, and how fast its CPUs were.

use blockyard_bench::cpu_idle::{CpuTimes, IdleTime};
use std::fs;
use std::time::{Duration, Instant};

/// How often to look at the frequencies: reading them wakes the CPUs up.
const FREQUENCY_INTERVAL: Duration = Duration::from_millis(500);

/// What is measured from the begin of a step on.
#[derive(Debug)]
pub(crate) struct HostLoad {
    begin: Option<CpuTimes>,
    /// Of each CPU: the sum of what was read, and how often.
    frequencies: Vec<(f64, u32)>,
    last_look: Instant,
}

impl HostLoad {
    /// The step begins.
    pub(crate) fn begin() -> Self {
        let mut load = Self { begin: CpuTimes::now().ok(), frequencies: Vec::new(), last_look: Instant::now() };
        load.add_frequencies();
        load
    }

    /// The step goes on.
    pub(crate) fn look(&mut self) {
        if self.last_look.elapsed() >= FREQUENCY_INTERVAL {
            self.last_look = Instant::now();
            self.add_frequencies();
        }
    }

    /// It has ended: each CPU's idle share in percent, and its frequency in MHz, as far as the host tells.
    pub(crate) fn end(mut self) -> (Vec<Option<f64>>, Vec<f64>) {
        self.add_frequencies();
        let mut idle = IdleTime::default();
        if let (Some(begin), Ok(end)) = (&self.begin, CpuTimes::now()) {
            idle.add(begin, &end);
        }
        (idle.percent(), self.frequencies.iter().map(|(sum, count)| sum / f64::from(*count)).collect())
    }

    fn add_frequencies(&mut self) {
        for (cpu, megahertz) in frequencies().into_iter().enumerate() {
            match self.frequencies.get_mut(cpu) {
                Some((sum, count)) => (*sum, *count) = (*sum + megahertz, *count + 1),
                None => self.frequencies.push((megahertz, 1)),
            }
        }
    }
}

/// Of each CPU in MHz, now: what the kernel's driver last set, or what the processor counted.
fn frequencies() -> Vec<f64> {
    let set = |cpu: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
        fs::read_to_string(path).ok()?.trim().parse().ok().map(|kilohertz: f64| kilohertz / 1e3)
    };
    let all: Vec<f64> = (0..).map_while(set).collect();
    if all.is_empty() { counted(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) } else { all }
}

/// Lines `cpu MHz : 2445.402` of /proc/cpuinfo.
fn counted(cpuinfo: &str) -> Vec<f64> {
    let lines = cpuinfo.lines().filter_map(|line| line.strip_prefix("cpu MHz")?.split_once(':'));
    lines.filter_map(|(_, value)| value.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_read_of_each_cpu() {
        let cpuinfo = "processor\t: 0\ncpu MHz\t\t: 2445.402\nprocessor\t: 1\ncpu MHz\t\t: 1500.0\n";
        assert_eq!(counted(cpuinfo), [2445.402, 1500.0]);
        let (idle, _) = HostLoad::begin().end();
        assert!(!idle.is_empty());
    }
}
