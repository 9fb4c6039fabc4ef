//! Child processes that do not outlive this program.
//!
//! On Linux the kernel sends a child the chosen signal when the *thread* that started it ends, so all of them are started by
//! one thread that lives as long as the program. Elsewhere only the drop of [`Process`] ends a child; the server itself is
//! also ended by the guard (see `guard`).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// A child process that is killed when this value is dropped or when the program ends, however it ends (Linux).
///
/// It gets a session of its own, as from an init system: a Ctrl-C at the terminal reaches it only through its parent, and a
/// scheduler that shares processor time between sessions (Linux autogroups) treats it as it would treat a daemon.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts the command. Its standard streams are as the caller has set them.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(command: Command) -> io::Result<Process> {
        Process::spawn_with(command, Signal::KILL)
    }

    /// Starts the command; `farewell` is sent to it when this program ends before it.
    pub(crate) fn spawn_with(command: Command, farewell: Signal) -> io::Result<Process> {
        Ok(Process { child: spawn(command, farewell)? })
    }

    /// The process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The standard streams, for a caller that asked for pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal. A process that has ended and been waited for is not an error.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // Ask first: after a wait the number may belong to somebody else.
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        match pid {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }

    /// The exit status if the process has ended.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the process to end, at most for `limit`; `None` when it still runs then.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + limit;
        let mut pause = Duration::from_micros(500);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Kills the process with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL)?;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing more can be done about a failure here; the kernel ends the child together with this program.
        let _ = self.kill();
    }
}

/// Starts a command that somebody waits for, such as `initdb`: as [`Process::spawn`], but its drop does not end it.
pub(crate) fn spawn_tied(command: Command) -> io::Result<Child> {
    spawn(command, Signal::KILL)
}

fn spawn(mut command: Command, farewell: Signal) -> io::Result<Child> {
    own_session(&mut command);
    ends_with_parent(&mut command, farewell);
    on_keeper(move || command.spawn())?
}

/// Makes the child the leader of a new session and of a new process group.
#[allow(unsafe_code)]
fn own_session(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe work is allowed. setsid is, and rustix takes no lock and allocates
    // nothing for it.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(|_| ())?));
    }
}

/// Asks the kernel to send `signal` to the child when the thread that starts it ends.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[allow(unsafe_code)]
fn ends_with_parent(command: &mut Command, signal: Signal) {
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};
    let parent = getpid();
    let hook = move || {
        set_parent_process_death_signal(Some(signal))?;
        // The parent may have ended between the fork and the line above; then nobody would send the signal any more.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(rustix::io::Errno::CHILD.raw_os_error()))
        }
    };
    // SAFETY: between fork and exec only async-signal-safe work is allowed. The hook makes two system calls (prctl, getppid)
    // through rustix, which calls the kernel directly, takes no lock and allocates nothing; `io::Error::from_raw_os_error`
    // stores a number. The hook runs after the standard library has changed the user, which would have cleared the setting.
    unsafe {
        command.pre_exec(hook);
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn ends_with_parent(_: &mut Command, _: Signal) {}

type Job = Box<dyn FnOnce() + Send>;

/// Runs `work` on the thread that lives as long as the program.
fn on_keeper<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    static KEEPER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        // When the thread cannot be started the inbox is dropped, and each send below reports it.
        let _ = std::thread::Builder::new()
            .name("embedded-keeper".into())
            .spawn(move || inbox.into_iter().for_each(|job| job()));
        Mutex::new(jobs)
    });
    let (reply, answer) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || {
        let _ = reply.send(work());
    });
    let gone = |_| io::Error::other("the thread that starts child processes is gone");
    keeper.lock().unwrap_or_else(PoisonError::into_inner).send(job).map_err(|_| gone(mpsc::RecvError))?;
    answer.recv().map_err(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_outlives_the_thread_that_asked_for_it() {
        let mut process = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            Process::spawn(command).unwrap()
        })
        .join()
        .unwrap();
        assert!(process.wait(Duration::from_millis(200)).unwrap().is_none());
        process.signal(Signal::TERM).unwrap();
        let status = process.wait(Duration::from_secs(5)).unwrap().unwrap();
        assert!(!status.success());
        // After its end a signal is no error and reaches nobody.
        process.signal(Signal::KILL).unwrap();
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = Process::spawn(Command::new("/nonexistent/program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
