//! CPU time that processes have used, from Linux's own accounting, in nanoseconds.
//!
//! The scheduler counts each thread's time exactly (`/proc/PID/task/TID/schedstat`, first field). Of a process that has ended,
//! its parent's account of reaped children remains (`cutime` and `cstime` in `/proc/PID/stat`, in clock ticks).

use std::fs;

/// The time that the running threads of one process have used; `None` when it has ended. A thread that ends takes its share
/// along, so this is right for programs whose threads live as long as they do.
pub(crate) fn process(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else {
            continue;
        };
        sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

/// The time of the postmaster, of its running children, and of those that it has reaped.
pub(crate) fn server(postmaster: u32) -> Option<u64> {
    let mut sum = process(postmaster)? + reaped(&stat(postmaster)?)?;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let parent = stat(pid).and_then(|fields| fields.get(1)?.parse().ok());
        if parent == Some(postmaster) {
            // It may end between the two looks; then it is missed here and found among the reaped the next time.
            sum += process(pid).unwrap_or(0);
        }
    }
    Some(sum)
}

/// The share of the processors' time (0 to 1) that a hypervisor gave to others since `before`, a value of [`machine_ticks`].
pub(crate) fn stolen(before: (u64, u64)) -> f64 {
    let after = machine_ticks();
    let all = after.0.saturating_sub(before.0);
    let stolen = after.1.saturating_sub(before.1);
    if all == 0 { 0.0 } else { stolen as f64 / all as f64 }
}

/// All ticks of all processors, and the stolen ones among them: the first line of `/proc/stat`, whose eighth figure is `steal`.
pub(crate) fn machine_ticks() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // Figures nine and ten (guest) are contained in the first two.
    (ticks.iter().take(8).sum(), ticks.get(7).copied().unwrap_or(0))
}

/// The fields of `/proc/PID/stat` behind the program's name, which may hold blanks: state, parent, ... (proc(5)).
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// `cutime` and `cstime`, fields 16 and 17 of the whole line.
fn reaped(fields: &[String]) -> Option<u64> {
    let ticks: u64 = fields.get(13)?.parse::<u64>().ok()? + fields.get(14)?.parse::<u64>().ok()?;
    Some(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn own_work_is_counted() {
        let pid = std::process::id();
        let before = process(pid).unwrap();
        let end = Instant::now() + Duration::from_millis(60);
        while Instant::now() < end {
            std::hint::black_box(1 + 1);
        }
        let used = process(pid).unwrap() - before;
        assert!(used > 10_000_000, "{used}");
        assert!(process(u32::MAX).is_none());
    }

    #[test]
    fn the_parent_is_the_second_field() {
        let fields = stat(std::process::id()).unwrap();
        let parent = std::os::unix::process::parent_id().to_string();
        assert_eq!(fields.get(1), Some(&parent));
    }
}
