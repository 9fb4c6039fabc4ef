//! A model of the server's main loop: which replies come to which messages, and nothing else.
//!
//! It follows PostgresMain and SocketBackend (src/backend/tcop/postgres.c) and CopyGetData
//! (src/backend/commands/copyfromparse.c). What a message will lead to is part of the message.

use pgusher_wire::TxStatus;
use std::collections::VecDeque;

/// What a COPY FROM STDIN comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copy {
    /// It fails of itself after so many messages: bad data, a timeout, a cancel request.
    pub(crate) fails_after: Option<u8>,
}

/// One statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statement {
    Rows(u8),
    Command,
    Fails,
    Begin,
    Commit,
    CopyIn(Copy),
    CopyOut(u8),
}

/// A message from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Statements; an empty query if there are none.
    Query(Vec<Statement>),
    /// Large objects' fast path.
    FunctionCall {
        ok: bool,
    },
    Parse {
        ok: bool,
    },
    Bind {
        ok: bool,
    },
    Describe {
        ok: bool,
        statement: bool,
        rows: bool,
    },
    /// `None`: an empty query. `suspends`: the row limit is reached.
    Execute {
        statement: Option<Statement>,
        suspends: bool,
    },
    Close,
    Flush,
    /// A commit may fail there: deferred constraints.
    Sync {
        commit_fails: bool,
    },
    CopyData,
    CopyDone,
    CopyFail,
}

impl Message {
    pub(crate) fn tag(&self) -> u8 {
        match self {
            Self::Query(_) => b'Q',
            Self::FunctionCall { .. } => b'F',
            Self::Parse { .. } => b'P',
            Self::Bind { .. } => b'B',
            Self::Describe { .. } => b'D',
            Self::Execute { .. } => b'E',
            Self::Close => b'C',
            Self::Flush => b'H',
            Self::Sync { .. } => b'S',
            Self::CopyData => b'd',
            Self::CopyDone => b'c',
            Self::CopyFail => b'f',
        }
    }
}

#[derive(Debug)]
struct CopyState {
    copy: Copy,
    read: u8,
    /// Number of the message behind which the server began to read COPY data.
    begun_at: usize,
    /// What the Query has still to run; `None` for an Execute.
    rest: Option<Vec<Statement>>,
}

/// A reply that is on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    pub(crate) tag: u8,
    pub(crate) status: TxStatus,
    /// For the error that ended a COPY: number of the message behind which the COPY had begun.
    pub(crate) copy_failed: Option<usize>,
}

/// The server, its unread input and the replies that the client has not got yet.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) outbox: VecDeque<Reply>,
    /// The connection has been ended by the server.
    pub(crate) dead: bool,
    consumed: usize,
    status: TxStatus,
    ignore_till_sync: bool,
    batch_open: bool,
    copy: Option<CopyState>,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            dead: false,
            consumed: 0,
            status: TxStatus::Idle,
            ignore_till_sync: false,
            batch_open: false,
            copy: None,
        }
    }

    pub(crate) fn in_copy(&self) -> bool {
        self.copy.is_some()
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.status != TxStatus::Idle
    }

    /// Why another client must not get this connection now.
    pub(crate) fn unclean(&self) -> Option<&'static str> {
        // Late copy messages and Flush have no effect once they are read.
        let harmless =
            |m: &Message| matches!(m, Message::Flush | Message::CopyData | Message::CopyDone | Message::CopyFail);
        match () {
            () if !self.inbox.iter().all(harmless) => Some("has not read everything"),
            () if self.outbox.iter().any(|r| !b"NSA".contains(&r.tag)) => Some("replies are on their way"),
            () if self.in_copy() => Some("is in COPY"),
            () if self.in_transaction() => Some("is in a transaction"),
            () if self.ignore_till_sync => Some("skips to Sync"),
            () if self.batch_open => Some("is within a batch"),
            () => None,
        }
    }

    /// Sends a message that belongs to no request.
    pub(crate) fn speak(&mut self, tag: u8) {
        if !self.dead {
            self.reply(tag);
        }
    }

    fn reply(&mut self, tag: u8) {
        self.outbox.push_back(Reply { tag, status: self.status, copy_failed: None });
    }

    fn replies(&mut self, tags: &[u8]) {
        tags.iter().for_each(|tag| self.reply(*tag));
    }

    /// The error exit of the main loop. `extended` is its `doing_extended_query_message`.
    fn error(&mut self, extended: bool) {
        self.reply(b'E');
        if self.status == TxStatus::Transaction {
            self.status = TxStatus::Failed;
        }
        if extended {
            self.ignore_till_sync = true;
        } else {
            self.ready();
        }
    }

    fn ready(&mut self) {
        self.batch_open = false;
        self.reply(b'Z');
    }

    /// Reads and carries out one message.
    pub(crate) fn step(&mut self) {
        if self.dead {
            self.inbox.clear();
            return;
        }
        if self.copy.as_ref().is_some_and(|c| c.copy.fails_after == Some(c.read)) {
            self.copy_fails();
            return;
        }
        let Some(message) = self.inbox.pop_front() else {
            return;
        };
        self.consumed += 1;
        if self.copy.is_some() {
            self.copy_reads(&message);
            return;
        }
        if matches!(message, Message::Sync { .. }) {
            self.ignore_till_sync = false;
        }
        if self.ignore_till_sync {
            return;
        }
        match message {
            Message::Query(statements) if statements.is_empty() => {
                self.reply(b'I');
                self.ready();
            }
            Message::Query(statements) => self.query(statements),
            Message::FunctionCall { ok } => {
                if ok && self.status != TxStatus::Failed {
                    self.reply(b'V');
                    self.ready();
                } else {
                    self.error(false);
                }
            }
            Message::Parse { ok } => self.completes(ok && self.status != TxStatus::Failed, b"1"),
            Message::Bind { ok } => self.completes(ok && self.status != TxStatus::Failed, b"2"),
            Message::Describe { ok, statement, rows } => {
                self.completes(
                    ok,
                    match (statement, rows) {
                        (true, true) => b"tT",
                        (true, false) => b"tn",
                        (false, true) => b"T",
                        (false, false) => b"n",
                    },
                );
            }
            Message::Execute { statement, suspends } => self.execute(statement, suspends),
            Message::Close => self.completes(true, b"3"),
            Message::Sync { commit_fails } => {
                if commit_fails && self.batch_open && self.status == TxStatus::Idle {
                    self.error(false);
                } else {
                    self.ready();
                }
            }
            Message::Flush | Message::CopyData | Message::CopyDone | Message::CopyFail => {}
        }
    }

    fn completes(&mut self, ok: bool, tags: &[u8]) {
        self.batch_open = true;
        if ok { self.replies(tags) } else { self.error(true) }
    }

    /// Runs one statement that is no COPY FROM STDIN. `false` if it failed.
    fn run(&mut self, statement: Statement, describe: bool) -> bool {
        if self.status == TxStatus::Failed && statement != Statement::Commit {
            return false;
        }
        match statement {
            Statement::Rows(n) => {
                if describe {
                    self.reply(b'T');
                }
                (0..n).for_each(|_| self.reply(b'D'));
            }
            Statement::Command | Statement::CopyIn(_) => {}
            Statement::Fails => return false,
            Statement::Begin => self.status = TxStatus::Transaction,
            Statement::Commit => self.status = TxStatus::Idle,
            Statement::CopyOut(n) => {
                self.reply(b'H');
                (0..n).for_each(|_| self.reply(b'd'));
                self.reply(b'c');
            }
        }
        true
    }

    fn query(&mut self, statements: Vec<Statement>) {
        let mut rest = statements.into_iter();
        while let Some(statement) = rest.next() {
            if !self.run(statement, true) {
                return self.error(false);
            }
            if let Statement::CopyIn(copy) = statement {
                return self.copy_begins(copy, Some(rest.collect()));
            }
            self.reply(b'C');
        }
        self.ready();
    }

    fn execute(&mut self, statement: Option<Statement>, suspends: bool) {
        self.batch_open = true;
        let Some(statement) = statement else {
            return self.reply(b'I');
        };
        if !self.run(statement, false) {
            return self.error(true);
        }
        match statement {
            Statement::CopyIn(copy) => self.copy_begins(copy, None),
            Statement::Rows(_) if suspends => self.reply(b's'),
            _ => self.reply(b'C'),
        }
    }

    fn copy_begins(&mut self, copy: Copy, rest: Option<Vec<Statement>>) {
        self.reply(b'G');
        self.copy = Some(CopyState { copy, read: 0, begun_at: self.consumed, rest });
    }

    fn copy_reads(&mut self, message: &Message) {
        if let Some(state) = &mut self.copy {
            state.read += 1;
        }
        match message {
            Message::CopyData | Message::Flush | Message::Sync { .. } => {}
            Message::CopyFail => self.copy_fails(),
            Message::CopyDone => match self.copy.take() {
                Some(CopyState { rest: Some(rest), .. }) => {
                    self.reply(b'C');
                    self.query(rest);
                }
                _ => self.reply(b'C'),
            },
            // The message is half read when the error is raised: "protocol synchronization was lost".
            _ => {
                self.copy = None;
                self.reply(b'E');
                self.dead = true;
            }
        }
    }

    fn copy_fails(&mut self) {
        if let Some(state) = self.copy.take() {
            let at = self.outbox.len();
            self.error(state.rest.is_none());
            if let Some(error) = self.outbox.get_mut(at) {
                error.copy_failed = Some(state.begun_at);
            }
        }
    }
}
