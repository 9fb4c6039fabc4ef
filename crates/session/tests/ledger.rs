//! The ledger beside a model of the server: any pipeline, any lag between sending, serving and receiving.
//!
//! Safety: a connection that the ledger calls clean is one that another client may have. Liveness: a connection whose
//! client is done comes back.

mod server;

use pgusher_session::Ledger;
use proptest::collection::vec;
use proptest::prelude::*;
use server::{Copy, Message, Server, Statement};

#[derive(Debug, Default)]
struct Coverage {
    clean: usize,
    copies_failed: usize,
}

/// A client, its server, and the ledger between them.
struct Run {
    ledger: Ledger,
    server: Server,
    sent: Vec<u8>,
    log: String,
    /// A Sync was sent within a COPY that failed: nobody can know whether it is answered.
    ambiguous: bool,
    coverage: Coverage,
}

impl Run {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(),
            server: Server::new(),
            sent: Vec::new(),
            log: String::new(),
            ambiguous: false,
            coverage: Coverage::default(),
        }
    }

    fn send(&mut self, message: Message) -> Result<(), TestCaseError> {
        self.log.push_str(&format!("> {message:?}\n"));
        self.ledger.sent(message.tag());
        self.sent.push(message.tag());
        self.server.inbox.push_back(message);
        self.check()
    }

    fn serve(&mut self) -> Result<(), TestCaseError> {
        self.server.step();
        self.check()
    }

    fn deliver(&mut self) -> Result<(), TestCaseError> {
        let Some(reply) = self.server.outbox.pop_front() else {
            return Ok(());
        };
        self.log.push_str(&format!("< {} {:?}\n", char::from(reply.tag), reply.status));
        if let Some(begun_at) = reply.copy_failed {
            self.coverage.copies_failed += 1;
            let behind = self.sent.iter().skip(begun_at).take_while(|tag| b"dHS".contains(tag));
            self.ambiguous |= behind.into_iter().any(|tag| *tag == b'S');
        }
        if let Err(e) = self.ledger.received(reply.tag, reply.status) {
            return self.fail(&format!("{e:?} is legal"));
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        if self.server.dead || !self.ledger.is_clean() {
            return Ok(());
        }
        self.coverage.clean += 1;
        match self.server.unclean() {
            Some(why) => self.fail(&format!("clean, but the server {why}")),
            None => Ok(()),
        }
    }

    fn fail(&self, what: &str) -> Result<(), TestCaseError> {
        Err(TestCaseError::fail(format!("{what}\n{}{:?}\n{:?}", self.log, self.ledger, self.server)))
    }

    /// The server catches up, and the client reads all.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        loop {
            let before = (self.server.inbox.len(), self.server.outbox.len());
            self.serve()?;
            while !self.server.outbox.is_empty() {
                self.deliver()?;
            }
            if before == (0, 0) {
                return Ok(());
            }
        }
    }

    /// Goes on as the numbers say: serve one, serve all, deliver one, deliver all, speak unasked.
    fn act(&mut self, action: u8) -> Result<(), TestCaseError> {
        match action {
            0..=3 => self.serve(),
            4..=8 => self.deliver(),
            9 => {
                while !self.server.inbox.is_empty() {
                    self.serve()?;
                }
                Ok(())
            }
            10 => {
                while !self.server.outbox.is_empty() {
                    self.deliver()?;
                }
                Ok(())
            }
            11 => self.drain(),
            _ => {
                self.server.speak(b"NSA"[usize::from(action % 3)]);
                Ok(())
            }
        }
    }

    /// A client that ends properly: out of COPY, Sync, out of the transaction. The connection must come back.
    fn end(&mut self) -> Result<(), TestCaseError> {
        self.drain()?;
        while self.server.in_copy() {
            self.send(Message::CopyDone)?;
            self.drain()?;
        }
        self.send(Message::Sync { commit_fails: false })?;
        self.drain()?;
        if self.server.in_transaction() {
            self.send(Message::Query(vec![Statement::Commit]))?;
            self.drain()?;
        }
        if self.server.dead {
            return Ok(());
        }
        if let Some(why) = self.server.unclean() {
            return self.fail(&format!("the model is wrong: the server {why}"));
        }
        if !self.ambiguous && !self.ledger.is_clean() {
            return self.fail("never clean again");
        }
        Ok(())
    }
}

fn copy() -> impl Strategy<Value = Copy> {
    prop_oneof![2 => Just(None), 1 => (0u8..5).prop_map(Some)].prop_map(|fails_after| Copy { fails_after })
}

fn plain() -> impl Strategy<Value = Statement> {
    prop_oneof![
        4 => (0u8..3).prop_map(Statement::Rows),
        2 => Just(Statement::Command),
        1 => Just(Statement::Fails),
        1 => Just(Statement::Begin),
        1 => Just(Statement::Commit),
        1 => (0u8..3).prop_map(Statement::CopyOut),
    ]
}

fn sync() -> impl Strategy<Value = Message> {
    prop::bool::weighted(0.1).prop_map(|commit_fails| Message::Sync { commit_fails })
}

fn step_of_a_batch() -> impl Strategy<Value = Message> {
    let ok = || prop::bool::weighted(0.9);
    prop_oneof![
        1 => ok().prop_map(|ok| Message::Parse { ok }),
        1 => ok().prop_map(|ok| Message::Bind { ok }),
        1 => (ok(), any::<bool>(), any::<bool>())
            .prop_map(|(ok, statement, rows)| Message::Describe { ok, statement, rows }),
        2 => (prop::option::weighted(0.9, plain()), any::<bool>())
            .prop_map(|(statement, suspends)| Message::Execute { statement, suspends }),
        1 => Just(Message::Close),
        1 => Just(Message::Flush),
    ]
}

fn copy_message() -> impl Strategy<Value = Message> {
    prop_oneof![4 => Just(Message::CopyData), 2 => Just(Message::CopyDone), 1 => Just(Message::CopyFail)]
}

fn anything() -> impl Strategy<Value = Message> {
    prop_oneof![
        4 => step_of_a_batch(),
        2 => sync(),
        2 => copy_message(),
        1 => any::<bool>().prop_map(|ok| Message::FunctionCall { ok }),
        2 => vec(plain(), 0..3).prop_map(Message::Query),
        1 => copy().prop_map(|c| Message::Query(vec![Statement::CopyIn(c)])),
        1 => copy().prop_map(|c| Message::Execute { statement: Some(Statement::CopyIn(c)), suspends: false }),
    ]
}

/// What a client sends within COPY: data, and now and then what the server ignores there.
fn copy_data(syncs: bool) -> impl Strategy<Value = Vec<Message>> {
    let ignored = if syncs { sync().boxed() } else { Just(Message::Flush).boxed() };
    (vec(prop_oneof![5 => Just(Message::CopyData), 1 => Just(Message::Flush), 1 => ignored], 0..4), any::<bool>())
        .prop_map(|(mut data, done)| {
            data.push(if done { Message::CopyDone } else { Message::CopyFail });
            data
        })
}

/// A run of messages that a client would send together.
fn piece(syncs: bool) -> impl Strategy<Value = Vec<Message>> {
    let batch = || (vec(step_of_a_batch(), 0..6), sync());
    let flatten = |parts: Vec<Vec<Message>>| parts.concat();
    prop_oneof![
        3 => vec(plain(), 0..3).prop_map(|s| vec![Message::Query(s)]),
        3 => batch().prop_map(|(mut batch, sync)| { batch.push(sync); batch }),
        1 => vec(step_of_a_batch(), 1..4),
        // COPY by Query, one or two of them, perhaps with statements around them.
        2 => (vec(plain(), 0..2), copy(), vec(plain(), 0..2), copy_data(syncs)).prop_map(move |(mut s, c, after, data)| {
            s.push(Statement::CopyIn(c));
            s.extend(after);
            flatten(vec![vec![Message::Query(s)], data])
        }),
        1 => (copy(), copy(), copy_data(syncs), copy_data(syncs)).prop_map(move |(a, b, x, y)| {
            flatten(vec![vec![Message::Query(vec![Statement::CopyIn(a), Statement::CopyIn(b)])], x, y])
        }),
        // COPY by Execute, with or without the Sync that libpq sends before it knows of the COPY.
        2 => (copy(), copy_data(syncs), any::<bool>(), sync()).prop_map(move |(c, data, early, sync)| {
            let mut head = vec![
                Message::Parse { ok: true },
                Message::Bind { ok: true },
                Message::Execute { statement: Some(Statement::CopyIn(c)), suspends: false },
            ];
            if early && syncs {
                head.push(sync.clone());
            }
            flatten(vec![head, data, vec![sync]])
        }),
        1 => vec(copy_message(), 1..3),
        1 => vec(anything(), 1..4),
    ]
}

fn script(syncs: bool) -> impl Strategy<Value = Vec<Message>> {
    vec(piece(syncs), 0..8).prop_map(|pieces| pieces.concat())
}

fn play(script: Vec<Message>, actions: &[Vec<u8>]) -> Result<Run, TestCaseError> {
    let mut run = Run::new();
    let mut actions = actions.iter().cycle();
    for message in script {
        run.send(message)?;
        for action in actions.next().into_iter().flatten() {
            run.act(*action)?;
        }
    }
    run.end()?;
    Ok(run)
}

fn actions() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(0u8..15, 0..6), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clean_means_clean(script in script(true), actions in actions()) {
        play(script, &actions)?;
    }

    #[test]
    fn clean_means_clean_in_a_mess(script in vec(anything(), 0..25), actions in actions()) {
        play(script, &actions)?;
    }

    /// Without Syncs inside of COPY.
    #[test]
    fn comes_back(script in script(false), actions in actions()) {
        play(script, &actions)?;
    }

    /// The client waits for each reply before it goes on: a session as most drivers hold it.
    #[test]
    fn in_step(script in script(true)) {
        play(script, &[vec![11]])?;
    }

    /// The server answers nothing before all has been sent.
    #[test]
    fn sent_blindly(script in script(true)) {
        play(script, &[vec![]])?;
    }
}

/// The tests above would prove nothing if no run ever got far.
#[test]
fn the_runs_reach_what_they_are_meant_to() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut alive, mut clean, mut failed, mut ambiguous) = (0, 0, 0, 0);
    for _ in 0..500 {
        let (script, actions) = (script(true), actions()).new_tree(&mut runner).expect("a value").current();
        let run = play(script, &actions).expect("holds");
        alive += usize::from(!run.server.dead);
        clean += run.coverage.clean;
        failed += run.coverage.copies_failed;
        ambiguous += usize::from(run.ambiguous);
    }
    assert!(alive > 150 && clean > 1_000 && failed > 100, "{alive} {clean} {failed}");
    assert!(ambiguous < alive / 2, "{ambiguous} of {alive}");
}
