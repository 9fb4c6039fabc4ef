//! What a storm costs this machine, as the kernel tells: CPU time, page faults, huge pages, full listen queues. Linux only;
//! elsewhere, and for processes of others, there is nothing to read and nothing is reported.

use std::fs;

use crate::proc::{self, Stat};

/// CPU time and page faults of a process that runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usage {
    /// Nanoseconds on a processor, all threads.
    pub(super) cpu_ns: u64,
    /// Page faults that needed no disk.
    pub(super) minor_faults: u64,
    /// Nanoseconds of CPU time of its children that have ended.
    pub(super) reaped_cpu_ns: u64,
}

/// The usage of a process; `None` if it has ended or may not be looked at.
pub(super) fn usage(pid: u32) -> Option<Usage> {
    let Stat { minor_faults, reaped_cpu_ns, .. } = Stat::of(pid)?;
    Some(Usage { cpu_ns: proc::threads_cpu_ns(pid)?, minor_faults, reaped_cpu_ns })
}

/// The time that this process has used, ended threads included.
pub(super) fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The parent of a process, if both run programs of this name.
pub(super) fn parent_of_the_same_name(pid: u32, name: &str) -> Option<u32> {
    let parent = Stat::of(pid)?.parent;
    let is = |pid: u32| proc::program(pid).is_some_and(|program| program == name);
    (is(pid) && is(parent)).then_some(parent)
}

/// Whether a process has shared memory in huge pages; `None` if it cannot be looked at.
pub(super) fn has_huge_pages(pid: u32) -> Option<bool> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    Some(huge_pages_in(&text))
}

/// A shared mapping whose pages are larger than the smallest ones.
fn huge_pages_in(smaps: &str) -> bool {
    smaps
        .lines()
        .filter_map(|line| line.strip_prefix("KernelPageSize:"))
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .any(|kib| kib > 64)
}

/// How often a listen queue of this machine was full, and how often a connection was dropped for that, since it started.
pub(super) fn listen_queues() -> Option<(u64, u64)> {
    listen_queues_in(&fs::read_to_string("/proc/net/netstat").ok()?)
}

fn listen_queues_in(netstat: &str) -> Option<(u64, u64)> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let find = |wanted: &str| {
        let at = names.split_whitespace().position(|name| name == wanted)?;
        values.split_whitespace().nth(at)?.parse::<u64>().ok()
    };
    Some((find("ListenOverflows")?, find("ListenDrops")?))
}

/// Bytes of memory that could be had now.
#[must_use]
pub fn memory_available() -> Option<u64> {
    Some(proc::memory("MemAvailable")? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_counted() {
        let pid = std::process::id();
        let (before, own) = (usage(pid).expect("myself"), own_cpu_ns());
        std::hint::black_box(vec![1u8; 4 << 20]);
        let after = usage(pid).expect("myself");
        // Threads of other tests may have ended meanwhile, and take their time with them.
        assert!(after.cpu_ns > 0 && own_cpu_ns() > own);
        assert!(after.minor_faults > before.minor_faults, "{before:?} {after:?}");
        assert_eq!(usage(u32::MAX), None);
    }

    #[test]
    fn a_parent_counts_only_under_the_same_name() {
        assert_eq!(parent_of_the_same_name(std::process::id(), "postgres"), None);
        assert_eq!(parent_of_the_same_name(u32::MAX, "postgres"), None);
    }

    #[test]
    fn huge_pages_and_listen_queues() {
        assert!(huge_pages_in("x\nKernelPageSize:        4 kB\nKernelPageSize:     2048 kB\n"));
        assert!(!huge_pages_in("KernelPageSize:        4 kB\n"));
        let text = "TcpExt: A ListenOverflows ListenDrops B\nTcpExt: 1 22 333 4\nIpExt: X\nIpExt: 9\n";
        assert_eq!(listen_queues_in(text), Some((22, 333)));
        assert_eq!(listen_queues_in("TcpExt: A\nTcpExt: 1\n"), None);
        assert!(memory_available().is_some_and(|bytes| bytes > 0));
    }
}
