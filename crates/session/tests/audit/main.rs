//! Every finding is provoked on a real server, under settings that could mislead the question.

mod cost;
mod held;
mod postgres;
mod settings;
mod surroundings;

use pgusher_session::audit::{Aspects, Findings};
use postgres::{Question, Session, server};

const ALL: Question<'_> = Question {
    aspects: Aspects::ALL.union(Aspects::FUNCTIONS),
    known: &[],
    placeholders: &[],
    leftovers: &[],
    functions: &[],
};

/// A session of the superuser in a database of its own.
fn session(database: &str) -> Session {
    let mut admin = Session::new(server(), "postgres", "postgres");
    admin.run(&format!("create database {database}"));
    Session::new(server(), database, "postgres")
}

/// A fresh session holds nothing. What came with the startup packet is the connection's, not the session's.
#[test]
fn nothing_is_found_in_a_fresh_session() {
    for user in ["postgres", "login_only"] {
        let mut session = Session::new(server(), "postgres", user);
        let found = session.ask(&ALL);
        assert_eq!(found, Findings { settings: Some(Vec::new()), ..Findings::default() });
        assert!(found.held().is_empty());
        assert_eq!(session.ask(&Question::default()), Findings::default());
    }
}

/// The question itself leaves nothing behind.
#[test]
fn the_session_is_as_it_was() {
    let mut session = Session::new(server(), "postgres", "postgres");
    session.run("set default_transaction_isolation = serializable; set app.x = 1");
    let state = "select name, setting, source from pg_settings union all select name, statement, '' from pg_prepared_statements \
                 union all select current_setting('app.x'), current_setting('app.y', true), pg_my_temp_schema()::text \
                 order by 1";
    let before = session.text(state);
    session.ask(&Question { placeholders: &["app.x", "app.y"], functions: &["x"], ..ALL });
    let after = session.text(state);
    let changed: Vec<_> = before.lines().zip(after.lines()).filter(|(before, after)| before != after).collect();
    assert!(changed.is_empty() && before.len() == after.len(), "{changed:?}");
    assert_eq!(session.text("show transaction_isolation"), "serializable");
}
