//! What the tests of the program share: starting one of its subcommands apart from the surroundings, what it wrote and how
//! it ended, interrupting it, and a private server to point it at. What a subcommand does is in the file of its test.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pgusher_embedded::{Process, Server, Signal};
use serde_json::Value;

/// A subcommand of the program, in words.
pub struct Program(pub &'static [&'static str]);

impl Program {
    /// With nothing of the surroundings that could change what it does, and with nothing to read.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgusher"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PG")) {
            command.env_remove(name);
        }
        command.args(self.0).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }
}

/// Its standard output.
pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Its standard error.
pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Its standard output, after it has ended with 0.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    ended(output, 0)
}

/// Its standard output, after it has ended with this code.
#[track_caller]
pub fn ended(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", out(output), err(output));
    out(output)
}

/// It has ended with 1, and its standard error says these words.
#[track_caller]
pub fn refused(output: &Output, words: &str) {
    let message = err(output);
    assert_eq!(output.status.code(), Some(1), "not refused with \"{words}\": {message}");
    assert!(message.contains(words), "\"{words}\" is not in: {message}");
}

/// A document of JSON.
#[track_caller]
pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Starts it with both of its outputs in pipes.
pub fn start(mut command: Command) -> Process {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Process::spawn(command).expect("it starts")
}

/// Interrupts it as a Ctrl-C does; what it had still to say on its standard output, after it has ended with 130.
#[track_caller]
pub fn interrupt(mut process: Process) -> String {
    process.signal(Signal::INT).expect("sent");
    let (text, code) = rest(process);
    assert_eq!(code, Some(130), "{text}");
    text
}

/// What comes yet on its standard output until it ends, and its exit code.
#[track_caller]
pub fn rest(mut process: Process) -> (String, Option<i32>) {
    let stdout = process.child().stdout.take().expect("a pipe that nobody has taken");
    let text = std::io::read_to_string(stdout).expect("text");
    let status = process.wait(Duration::from_secs(30)).expect("waited").expect("it ends with its output");
    (text, status.code())
}

/// A private server with these settings, and the URI of its database `postgres` for its superuser.
pub fn server(settings: &[(&str, &str)]) -> (Server, String) {
    let builder = settings.iter().fold(Server::builder(), |builder, (name, value)| builder.setting(*name, *value));
    let server = builder.start().expect("a server");
    let uri = server.uri("postgres", server.superuser());
    (server, uri)
}

/// How many schemas of its own the program has left behind.
pub fn own_schemas(server: &Server) -> String {
    server.psql("postgres", "select count(*) from pg_namespace where nspname like 'pgusher%'").expect("psql")
}
