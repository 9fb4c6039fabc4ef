//! The one reader of `/proc` (proc(5)): what the kernel of this machine tells of a process by its number, and of its memory.
//! Linux only; elsewhere, and for a process that is gone or may not be looked at, there is no answer.
//!
//! A number from another machine or another container may belong to anything here. Whether it is the process that was
//! meant, and what follows from the figures, is for the callers.

use std::collections::HashSet;
use std::fs;

/// Of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Whether it waits for something (state `S`).
    pub(crate) sleeps: bool,
    /// The process that started it, or has inherited it.
    pub(crate) parent: u32,
    /// Page faults that needed no disk, since it started.
    pub(crate) minor_faults: u64,
    /// Time on a processor of its children that have ended and been waited for, nanoseconds; the kernel counts it in ticks.
    pub(crate) reaped_cpu_ns: u64,
}

impl Stat {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Field 2, the program's name in parentheses, can hold anything; so counting begins behind the last one.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // As proc(5) counts them, from 1.
        let field = |number: usize| fields.get(number.checked_sub(3)?).copied();
        let number = |at: usize| field(at)?.parse::<u64>().ok();
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Some(Self {
            sleeps: field(3)? == "S",
            parent: field(4)?.parse().ok()?,
            minor_faults: number(10)?,
            reaped_cpu_ns: number(16)?.saturating_add(number(17)?).saturating_mul(tick_ns),
        })
    }
}

/// Of a `schedstat`. The kernel counts these times exactly, not in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// On a processor, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Ready to run but not running, nanoseconds.
    pub(crate) wait_ns: u64,
}

impl Schedule {
    /// Of the first thread of a process, which is all of a PostgreSQL backend.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        Some(Self { cpu_ns: numbers.next()?.ok()?, wait_ns: numbers.next()?.ok()? })
    }
}

/// Time on a processor of all threads of a process that run now, nanoseconds.
pub(crate) fn threads_cpu_ns(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // It may have ended since.
        let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
        sum += Schedule::parse(&text)?.cpu_ns;
    }
    Some(sum)
}

/// The name of the program that it runs, at most 15 bytes of it.
pub(crate) fn program(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Its command line, or the title that it has given itself instead.
pub(crate) fn title(pid: u32) -> Option<String> {
    let title = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&title).trim_end_matches('\0').to_owned())
}

/// Its memory that is in RAM, KiB.
pub(crate) fn resident_kib(pid: u32) -> Option<u64> {
    value(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS")
}

/// Its children that run.
pub(crate) fn children(pid: u32) -> HashSet<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    // A kernel may leave this file out; then all processes are asked for their parent.
    if let Some(lists) = tasks.ok().and_then(|tasks| tasks.flatten().map(of_task).collect::<Option<Vec<String>>>()) {
        return lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|n| n.parse().ok()).collect();
    }
    let Ok(all) = fs::read_dir("/proc") else { return HashSet::new() };
    all.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|child| Stat::of(*child).is_some_and(|stat| stat.parent == pid))
        .collect()
}

/// A line of `/proc/meminfo` by its name, for example `MemTotal`: KiB, or a number of pages.
pub(crate) fn memory(name: &str) -> Option<u64> {
    value(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

/// The number behind a name and a colon.
fn value(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn the_fields_of_stat_whatever_the_name() {
        let text = "42 (post) gres S) R 7 42 42 0 -1 4194304 731 1 3 0 12 5 2 1 20 0 1 0";
        let stat = Stat::parse(text).expect("all fields");
        assert_eq!((stat.sleeps, stat.parent, stat.minor_faults), (false, 7, 731));
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!(stat.reaped_cpu_ns * ticks, 3_000_000_000, "three ticks");
        assert!(Stat::parse(&text.replace(") R", ") S")).is_some_and(|stat| stat.sleeps));
        for broken in
            ["", "42 (x", "42 (x) S 1", "42 (x) S 1 2 3 4 5 6 many 8 9 10 11 12 13 14 15", "42 (x) S -1 2 3 4"]
        {
            assert_eq!(Stat::parse(broken), None, "{broken}");
        }
        let most = format!("1 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 {0} {0}", u64::MAX);
        assert!(Stat::parse(&most).is_some());
    }

    #[test]
    fn schedules_and_named_values() {
        assert_eq!(Schedule::parse("1420000 9000 12\n"), Some(Schedule { cpu_ns: 1_420_000, wait_ns: 9000 }));
        assert_eq!(Schedule::parse("1420000"), None);
        assert_eq!(Schedule::parse(""), None);
        assert_eq!(value("Name:\tpostgres\nVmRSS:\t   17444 kB\n", "VmRSS"), Some(17_444));
        assert_eq!(value("Name:\tkthreadd\n", "VmRSS"), None);
        assert_eq!(value("HugePages_Total:       0\n", "HugePages_Total"), Some(0));
        assert_eq!(value("HugePages_TotalX: 1\nHugePages_Total: 64\n", "HugePages_Total"), Some(64));
        assert_eq!(value("nothing", "HugePages_Total"), None);
    }

    #[test]
    fn of_this_process() {
        let pid = std::process::id();
        let look = || (Stat::of(pid).expect("myself").minor_faults, threads_cpu_ns(pid).expect("myself"));
        let (before, end) = (look(), Instant::now() + Duration::from_secs(20));
        // The kernel brings the sum of a thread that runs up to date with its next tick.
        while look().0 <= before.0 || look().1 <= before.1 {
            std::hint::black_box(vec![1u8; 4 << 20]);
            assert!(Instant::now() < end, "{before:?} {:?}", look());
        }
        assert!(Schedule::of(pid).is_some_and(|schedule| schedule.cpu_ns > 0));
        assert!(resident_kib(pid).is_some_and(|kib| kib >= 4096));
        assert!(program(pid).is_some_and(|name| !name.is_empty() && !name.ends_with('\n')));
        assert!(title(pid).is_some_and(|title| title.contains("pgusher") && !title.ends_with('\0')));
        assert!(memory("MemTotal") > memory("MemAvailable"));
    }

    #[test]
    fn of_none() {
        assert_eq!(Stat::of(u32::MAX), None);
        assert_eq!(Schedule::of(u32::MAX), None);
        assert_eq!(threads_cpu_ns(u32::MAX), None);
        assert_eq!((program(u32::MAX), title(u32::MAX), resident_kib(u32::MAX)), (None, None, None));
        assert!(children(u32::MAX).is_empty());
    }

    #[test]
    fn children_are_found() {
        let pid = std::process::id();
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("a child");
        assert!(children(pid).contains(&child.id()));
        assert_eq!(Stat::of(child.id()).map(|stat| stat.parent), Some(pid));
        child.kill().expect("mine");
        child.wait().expect("gone");
        assert!(!children(pid).contains(&child.id()));
    }
}
