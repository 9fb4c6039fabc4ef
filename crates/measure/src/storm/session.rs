//! One client of a storm: its socket, its login, and when what happened. It is told that its socket is ready and says
//! what came of that; it knows neither threads nor other clients.

use std::io::{self, Read, Write};
use std::time::Duration;

use pgusher_client::{Connector, Destination, LoginMachine, Phase};
use socket2::Socket;

use crate::failure::{Failure, Step};

/// How a session reaches the server.
pub(super) struct Door<'a> {
    pub(super) connector: &'a Connector,
    pub(super) destination: &'a Destination,
    /// Sent once after the login.
    pub(super) statement: Option<&'a str>,
}

/// Moments of a session, from the start of its round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// When it was to begin; its own begin unless a rate is given.
    pub(super) intended: Duration,
    /// Before the first connect().
    pub(super) begun: Duration,
    /// The kernel at the other end has taken the connection.
    pub(super) connected: Option<Duration>,
    /// ReadyForQuery after the login.
    pub(super) ready: Option<Duration>,
    /// ReadyForQuery after the statement.
    pub(super) answered: Option<Duration>,
}

/// What a session is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Something is waited for.
    Waiting,
    /// Everything is done; the connection is held.
    Done,
}

pub(super) struct Session {
    pub(super) socket: Socket,
    pub(super) times: Times,
    machine: LoginMachine,
    /// Not sent yet.
    out: Vec<u8>,
}

impl Session {
    /// For a socket whose connect() was called. `connected`: it is already through.
    pub(super) fn new(door: &Door<'_>, socket: Socket, times: Times) -> Result<Self, Failure> {
        let mut out = Vec::with_capacity(128);
        let machine = LoginMachine::begin(door.connector, door.destination, &mut out)
            .map_err(|error| of_client(Step::Connect, &error))?;
        Ok(Self { socket, times, machine, out })
    }

    /// The socket may have become readable, writable or broken. `now` is read after each system call that tells
    /// something.
    pub(super) fn advance(
        &mut self,
        door: &Door<'_>,
        buffer: &mut [u8],
        now: &dyn Fn() -> Duration,
    ) -> Result<State, Failure> {
        if self.times.connected.is_none() && !self.finish_connect(door, now)? {
            return Ok(State::Waiting);
        }
        let sent = self.send(door);
        // What the server said before it closed is the better explanation of a failed send.
        let received = self.receive(door, buffer, now);
        match (sent, received) {
            (_, Err(failure)) | (Err(failure), Ok(_)) => Err(failure),
            (Ok(()), Ok(state)) => Ok(state),
        }
    }

    fn finish_connect(&mut self, door: &Door<'_>, now: &dyn Fn() -> Duration) -> Result<bool, Failure> {
        if let Some(error) = self.socket.take_error().map_err(|e| of_io(door, Phase::Connect, &e))? {
            return Err(of_io(door, Phase::Connect, &error));
        }
        match self.socket.peer_addr() {
            Ok(_) => {
                self.times.connected = Some(now());
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(of_io(door, Phase::Connect, &error)),
        }
    }

    fn send(&mut self, door: &Door<'_>) -> Result<(), Failure> {
        while !self.out.is_empty() {
            match (&self.socket).write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(of_io(door, self.machine.phase(), &error)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, door: &Door<'_>, buffer: &mut [u8], now: &dyn Fn() -> Duration) -> Result<State, Failure> {
        loop {
            let n = match (&self.socket).read(buffer) {
                Ok(0) => return Err(closed(door, self.machine.phase())),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(State::Waiting),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(of_io(door, self.machine.phase(), &error)),
            };
            let arrived = now();
            let bytes = buffer.get(..n).unwrap_or(&[]);
            let taken = self.machine.receive(door.connector, door.destination, bytes, &mut self.out);
            taken.map_err(|error| of_client(self.step(), &error))?;
            if self.machine.is_ready() && self.went_on(door, arrived)? == State::Done {
                return Ok(State::Done);
            }
            self.send(door)?;
        }
    }

    /// ReadyForQuery has come.
    fn went_on(&mut self, door: &Door<'_>, arrived: Duration) -> Result<State, Failure> {
        match (self.times.ready, door.statement) {
            (None, statement) => {
                self.times.ready = Some(arrived);
                let Some(sql) = statement else { return Ok(self.done()) };
                let begun = self.machine.query(sql, &mut self.out);
                begun.map_err(|error| of_client(Step::Transaction, &error))?;
                Ok(State::Waiting)
            }
            (Some(_), _) => {
                if let Some(error) = self.machine.statement_error() {
                    let (cause, message) = (error.sqlstate.clone(), error.to_string());
                    return Err(Failure { step: Step::Transaction, cause, message });
                }
                self.times.answered = Some(arrived);
                Ok(self.done())
            }
        }
    }

    fn done(&mut self) -> State {
        self.machine.shrink();
        self.out = Vec::new();
        State::Done
    }

    fn step(&self) -> Step {
        if self.times.ready.is_some() { Step::Transaction } else { Step::Connect }
    }

    /// Nothing came in the time allowed.
    pub(super) fn timed_out(&self, door: &Door<'_>, after: Duration) -> Failure {
        let phase = if self.times.connected.is_none() { Phase::Connect } else { self.machine.phase() };
        let shown = door.destination.shown();
        Failure {
            step: self.step(),
            cause: format!("timeout at {phase}"),
            message: format!("connection to {shown} failed: not done within {} s", after.as_secs_f64()),
        }
    }

    /// Says goodbye. An error if the server has ended the connection meanwhile; then its reason is told.
    pub(super) fn say_goodbye(&mut self, door: &Door<'_>, buffer: &mut [u8]) -> Result<(), Failure> {
        let lost = |mut failure: Failure| {
            failure.step = Step::Disconnect;
            failure
        };
        match (&self.socket).read(buffer) {
            Ok(0) => return Err(lost(closed(door, Phase::Disconnect))),
            Ok(n) => {
                let bytes = buffer.get(..n).unwrap_or(&[]);
                let taken = self.machine.receive(door.connector, door.destination, bytes, &mut self.out);
                taken.map_err(|error| lost(of_client(Step::Disconnect, &error)))?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(lost(of_io(door, Phase::Disconnect, &error))),
        }
        let written = self.machine.terminate(&mut self.out);
        written.map_err(|error| lost(of_client(Step::Disconnect, &error)))?;
        self.send(door).map_err(lost)
    }
}

/// Whether the server has closed its end as well.
pub(super) fn has_ended(socket: &Socket, buffer: &mut [u8]) -> bool {
    loop {
        match (&*socket).read(buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            }
        }
    }
}

/// The cause, with the phase: where a connection fails says more than that it failed.
fn of_client(step: Step, error: &pgusher_client::Error) -> Failure {
    let mut failure = Failure::of(step, error);
    if let (Step::Connect, Some(phase)) = (step, error.phase()) {
        failure.cause = format!("{} at {phase}", failure.cause);
    }
    failure
}

/// A failed system call.
pub(super) fn of_io(door: &Door<'_>, phase: Phase, error: &io::Error) -> Failure {
    let cause = match error.raw_os_error() {
        Some(errno) => format!("errno {errno} at {phase}"),
        None => format!("io at {phase}"),
    };
    let shown = door.destination.shown();
    Failure { step: step_of(phase), cause, message: format!("connection to {shown} failed: {error}") }
}

fn closed(door: &Door<'_>, phase: Phase) -> Failure {
    let shown = door.destination.shown();
    Failure {
        step: step_of(phase),
        cause: format!("closed at {phase}"),
        message: format!("the server at {shown} closed the connection"),
    }
}

fn step_of(phase: Phase) -> Step {
    match phase {
        Phase::Statement => Step::Transaction,
        Phase::Disconnect => Step::Disconnect,
        _ => Step::Connect,
    }
}
