//! When a copy reports how far it has come.

/// Sectors of the input between two reports when the percentage is 0, as the first prototypes had it.
const SECTORS_PER_REPORT: u64 = 10;

/// Says after which parts of a copy to report.
///
/// - 0 %: every 10 sectors of the input, but no more than one report for each completed part: a part of 1 MiB crosses
///   204 such steps of 512-byte sectors at once, and 204 frames about the same moment would tell nobody more.
/// - 1 to 99 %: whenever another such part of the whole is complete, the last one with the copy itself.
/// - 100 %: never; the message that all is complete says it.
#[derive(Debug)]
pub struct ProgressSteps {
    total: u64,
    percent: u32,
    sectors_bytes: u64,
    next: u64,
}

impl ProgressSteps {
    /// Steps for a copy of `total` bytes whose input has sectors of `sector_bytes`; `None` when `percent` is over 100.
    pub fn new(total: u64, percent: u32, sector_bytes: u32) -> Option<Self> {
        if percent > 100 {
            return None;
        }
        let mut steps = Self { total, percent, sectors_bytes: SECTORS_PER_REPORT * u64::from(sector_bytes), next: 0 };
        steps.next = steps.after(0);
        Some(steps)
    }

    /// Whether to report, now that `copied` bytes are complete.
    pub fn crossed(&mut self, copied: u64) -> bool {
        if copied < self.next {
            return false;
        }
        self.next = self.after(copied);
        true
    }

    /// The first step after `copied` bytes; `u64::MAX` when there is none.
    fn after(&self, copied: u64) -> u64 {
        if self.percent == 100 || copied >= self.total {
            return u64::MAX;
        }
        if self.percent == 0 {
            return copied.saturating_sub(copied % self.sectors_bytes.max(1)).saturating_add(self.sectors_bytes.max(1));
        }
        // Rounded up: `percent` % of the whole are complete, not nearly.
        let (total, percent) = (u128::from(self.total), u128::from(self.percent));
        let at = |step: u128| (total * percent * step).div_ceil(100) as u64;
        let mut step = u128::from(copied) * 100 / (total * percent) + 1;
        if at(step) <= copied {
            step += 1;
        }
        if step * percent > 100 { u64::MAX } else { at(step) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn reports(total: u64, percent: u32, sector: u32, part: u64) -> Vec<u64> {
        let mut steps = ProgressSteps::new(total, percent, sector).unwrap();
        let parts = (1..=total.div_ceil(part)).map(|count| (count * part).min(total));
        parts.filter(|&copied| steps.crossed(copied)).collect()
    }

    #[test]
    fn zero_percent_reports_every_ten_sectors() {
        assert_eq!(reports(512 * 35, 0, 512, 512), [5120, 10240, 15360]);
        assert_eq!(reports(65536 * 20, 0, 65536, 65536), [655360, 1310720]);
        assert_eq!(reports(4 << 20, 0, 512, 1 << 20).len(), 4, "one report a request at most");
    }

    #[test]
    fn a_percentage_reports_at_each_such_part() {
        assert_eq!(reports(1000, 10, 512, 1), (1..=10).map(|step| step * 100).collect::<Vec<_>>());
        assert_eq!(reports(1000, 30, 512, 1), [300, 600, 900]);
        assert_eq!(reports(1 << 20, 1, 512, 1).len(), 100);
        assert_eq!(reports(7, 50, 512, 1), [4, 7], "never early");
        assert_eq!(reports(1000, 99, 512, 500), [1000]);
    }

    #[test]
    fn a_hundred_percent_never_reports() {
        assert!(reports(1000, 100, 512, 1).is_empty());
        assert!(ProgressSteps::new(1, 101, 512).is_none());
    }

    #[test]
    fn fuzz_steps_are_neither_late_nor_double() {
        blockyard_fuzz::check!(50_000).with_type::<(u64, u8, Vec<u64>)>().for_each(|(total, percent, copied)| {
            let percent = u32::from(percent % 100);
            let mut steps = ProgressSteps::new(*total, percent, 512).unwrap();
            let step_of = |bytes: u64| match percent {
                0 => bytes / 5120,
                _ => (u128::from(bytes) * 100 / (u128::from(*total) * u128::from(percent)).max(1)) as u64,
            };
            let mut copied: Vec<u64> = copied.iter().map(|bytes| bytes % total.saturating_add(1).max(1)).collect();
            copied.sort_unstable();
            let mut last = 0;
            for bytes in copied {
                let crossed = step_of(bytes) > step_of(last);
                assert_eq!(steps.crossed(bytes), crossed && *total > 0, "{last} to {bytes} of {total}");
                last = bytes;
            }
        });
    }
}
