//! What the program's exit status says. One meaning per number, the same for every subcommand.

use std::process::ExitCode;

/// How a subcommand that could start has ended. An `Err` from a subcommand means [`Exit::Usage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything that was asked for was done.
    Ok,
    /// Wrong options or configuration, or not even a first connection was possible.
    Usage,
    /// It ran, but some connections or statements failed.
    SomeFailed,
    /// It ran, and a threshold of `--fail-if` or `--fail-on` was violated.
    Threshold,
    /// Ended by SIGINT, after printing what there was.
    Interrupted,
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Usage => 1,
            Exit::SomeFailed => 2,
            Exit::Threshold => 3,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
