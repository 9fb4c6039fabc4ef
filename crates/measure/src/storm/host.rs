//! What the kernel tells of processes on this machine: CPU time, page faults, huge pages, full listen queues. Linux only;
//! elsewhere, and for processes of others, there is nothing to read and nothing is reported.

use std::collections::HashSet;
use std::fs;

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
    let fields = stat(pid)?;
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(Usage { cpu_ns: cpu_ns(pid)?, minor_faults: number(7)?, reaped_cpu_ns: (number(13)? + number(14)?) * tick })
}

/// The time that the running threads of a process have used (first field of schedstat).
pub(super) fn cpu_ns(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
        sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

/// The time that this process has used, ended threads included.
pub(super) fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The fields of `/proc/PID/stat` behind the program's name, which may hold blanks: state, parent, ... (proc(5)).
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// The parent of a process, if both run programs of this name.
pub(super) fn parent_of_the_same_name(pid: u32, name: &str) -> Option<u32> {
    let parent = stat(pid)?.get(1)?.parse().ok()?;
    let is = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name);
    (is(pid) && is(parent)).then_some(parent)
}

/// The running children of a process.
pub(super) fn children(pid: u32) -> HashSet<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    // A kernel may leave this file out; then all processes are asked for their parent.
    if let Some(lists) = tasks.ok().and_then(|tasks| tasks.flatten().map(of_task).collect::<Option<Vec<String>>>()) {
        return lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|n| n.parse().ok()).collect();
    }
    let Ok(all) = fs::read_dir("/proc") else { return HashSet::new() };
    let parent = pid.to_string();
    all.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|child| stat(*child).is_some_and(|fields| fields.get(1) == Some(&parent)))
        .collect()
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
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?.split_whitespace().next()?;
    Some(kib.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn own_work_is_counted() {
        let pid = std::process::id();
        let before = usage(pid).expect("myself");
        let own = own_cpu_ns();
        let mut pages = vec![0u8; 4 << 20];
        pages.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&pages);
        let after = usage(pid).expect("myself");
        assert!(after.cpu_ns > before.cpu_ns && own_cpu_ns() > own);
        assert!(after.minor_faults > before.minor_faults, "{before:?} {after:?}");
        assert_eq!(usage(u32::MAX), None);
    }

    #[test]
    fn children_are_found() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("a child");
        assert!(children(std::process::id()).contains(&child.id()));
        child.kill().expect("mine");
        child.wait().expect("gone");
        assert!(!children(std::process::id()).contains(&child.id()));
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
