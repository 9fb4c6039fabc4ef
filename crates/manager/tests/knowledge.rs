//! What definitions do behind plain statements (triggers and the like) stays with the client that ran the statement, and costs
//! nothing where no definition does anything.

mod support;

use pgusher_embedded::Server;
use pgusher_manager::Manager;
use pgusher_wire::frontend::{self, SYNC_BYTES};
use std::time::{Duration, Instant};
use support::*;

/// A table whose rows a setting remembers once the trigger is there.
const FUNCTION: &str = "create function remember() returns trigger language plpgsql as
    $$begin perform set_config('app.last', new.id::text, false); return new; end$$";
const TRIGGER: &str = "create trigger remember before insert on t for each row execute function remember()";
const LAST: &str = "select current_setting('app.last', true)";

/// Each transaction gets another one of so many physical connections.
fn scattered(connections: usize) -> Manager {
    let manager = manager_with(server(), "scatter = true", &overrides(2, connections));
    let mut clients: Vec<Client> = (0..connections).map(|_| Client::new(&manager, "postgres")).collect();
    clients.iter_mut().for_each(|client| drop(client.query("select 1")));
    manager
}

/// Opens all physical connections of a pool.
fn fill(manager: &Manager, database: &str, connections: usize) {
    let mut clients: Vec<Client> = (0..connections).map(|_| Client::new(manager, database)).collect();
    clients.iter_mut().for_each(|client| client.start("begin"));
    clients.iter_mut().for_each(|client| drop(client.reply()));
    clients.iter_mut().for_each(|client| drop(client.query("commit")));
}

fn run(client: &mut Client, sql: &str) {
    let reply = client.query(sql);
    assert!(reply.errors.is_empty(), "{sql}: {reply:?}");
}

/// Whether each client has its own value, several times in a row.
fn kept_apart(one: &mut Client, value: &str, other: &mut Client) -> bool {
    (0..6).all(|_| one.query(LAST).value() == value && other.query(LAST).value().is_empty())
}

#[test]
fn a_trigger_sets_something() {
    let db = database("a_trigger");
    server().psql(db, &format!("create table t (id int); {FUNCTION}; {TRIGGER}")).unwrap();
    let manager = scattered(3);
    fill(&manager, db, 3);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    run(&mut a, "insert into t values (7)");
    assert!(kept_apart(&mut a, "7", &mut b));
    // By the extended protocol, prepared before.
    let mut out = Vec::new();
    frontend::write_parse(&mut out, b"p", b"insert into t values (8)", &[]);
    out.extend_from_slice(&SYNC_BYTES);
    a.send(&out);
    assert_eq!(a.reply().tags, "1Z");
    let mut out = Vec::new();
    frontend::write_bind(&mut out, b"", b"p", &[]);
    frontend::write_execute(&mut out, b"", 0);
    out.extend_from_slice(&SYNC_BYTES);
    a.send(&out);
    assert_eq!(a.reply().tags, "2CZ");
    assert!(kept_apart(&mut a, "8", &mut b));
    // Undone with its transaction.
    run(&mut a, "begin; insert into t values (9); rollback");
    assert!(kept_apart(&mut a, "8", &mut b));
    drop(a);
    assert!((0..6).all(|_| b.query(LAST).value().is_empty()));
}

#[test]
fn a_trigger_made_by_another_client_counts_at_once() {
    let db = database("by_client");
    let manager = scattered(3);
    fill(&manager, db, 3);
    let mut maker = Client::new(&manager, db);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    run(&mut maker, "create table t (id int)");
    run(&mut maker, FUNCTION);
    for n in 1..4 {
        run(&mut a, "insert into t values (0)");
        assert!(kept_apart(&mut a, "", &mut b));
        run(&mut maker, "begin");
        run(&mut maker, TRIGGER);
        run(&mut maker, "commit");
        run(&mut a, &format!("insert into t values ({n})"));
        assert!(kept_apart(&mut a, &n.to_string(), &mut b), "{n}");
        run(&mut maker, "drop trigger remember on t");
        run(&mut a, "select set_config('app.last', '', false)");
    }
    // One that makes it within a function.
    run(&mut maker, &format!("do $do$begin {TRIGGER}; end$do$"));
    run(&mut a, "insert into t values (5)");
    assert!(kept_apart(&mut a, "5", &mut b));
}

#[test]
fn a_trigger_made_past_the_manager_counts_soon() {
    let db = database("past");
    server().psql(db, &format!("create table t (id int); {FUNCTION}")).unwrap();
    let manager = scattered(2);
    fill(&manager, db, 2);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    run(&mut a, "insert into t values (0)");
    server().psql(db, TRIGGER).unwrap();
    let begun = Instant::now();
    let mut n = 0;
    eventually(Duration::from_secs(15), "the trigger is known", || {
        n += 1;
        run(&mut a, &format!("insert into t values ({n})"));
        kept_apart(&mut a, &n.to_string(), &mut b)
    });
    println!("known after {:?}", begun.elapsed());
    // From then on always.
    for n in 100..110 {
        run(&mut a, &format!("insert into t values ({n})"));
        assert!(kept_apart(&mut a, &n.to_string(), &mut b));
    }
}

#[test]
fn after_a_pause_nothing_old_is_believed() {
    let db = database("pause");
    server().psql(db, &format!("create table t (id int); {FUNCTION}")).unwrap();
    let manager = scattered(2);
    fill(&manager, db, 2);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    run(&mut a, "insert into t values (0)");
    server().psql(db, TRIGGER).unwrap();
    std::thread::sleep(Duration::from_secs(16));
    run(&mut a, "insert into t values (1)");
    assert!(kept_apart(&mut a, "1", &mut b));
}

#[test]
fn an_innocent_database_costs_no_question_about_sessions() {
    let server = Server::builder().setting("log_statement", "all").start().unwrap();
    let count = |mark: &str| std::fs::read_to_string(server.log_path()).unwrap().matches(mark).count();
    let manager = manager_with(&server, "", &overrides(1, 2));
    server
        .psql(
            "postgres",
            "create table t (id serial primary key, at timestamptz default now());
             create function touch() returns trigger language plpgsql as $$begin new.at = now(); return new; end$$;
             create trigger touch before update on t for each row execute function touch();
             create view v as select id from t",
        )
        .unwrap();
    let (mut a, mut b) = (Client::new(&manager, "postgres"), Client::new(&manager, "postgres"));
    for _ in 0..50 {
        for client in [&mut a, &mut b] {
            run(client, "insert into t default values");
            run(client, "update t set id = id where id = 1");
            run(client, "select * from v where id = 1");
        }
    }
    assert_eq!(count("what the session holds"), 0);
    let questions = count("SET LOCAL jit");
    assert!((1..=2).contains(&questions), "{questions}");
    // A table that calls no function of anybody's own changes nothing about that.
    run(&mut a, "create table u (id int check (id > 0), at timestamptz default now())");
    for _ in 0..20 {
        run(&mut a, "insert into u values (1)");
        run(&mut b, "insert into t default values");
    }
    assert_eq!(count("what the session holds"), 0);
    assert_eq!(count("SET LOCAL jit"), questions);
    // After another change, one question says that there is still nothing.
    run(&mut a, "create index on u (abs(id))");
    for _ in 0..20 {
        run(&mut a, "insert into u values (1)");
        run(&mut b, "insert into t default values");
    }
    std::thread::sleep(Duration::from_millis(2500));
    for _ in 0..20 {
        run(&mut a, "insert into u values (1)");
        run(&mut b, "insert into t default values");
    }
    // The definition itself was in doubt.
    assert!(count("what the session holds") <= 1, "{}", count("what the session holds"));
    let questions = count("SET LOCAL jit");
    assert!((2..=5).contains(&questions), "{questions}");
}

#[test]
fn defaults_changed_past_the_manager_count_soon() {
    let db = database("defaults_past");
    server().psql("postgres", "create role changing superuser login").unwrap();
    let manager = scattered(2);
    let login = || Client::login(&manager, &[("user", "changing"), ("database", db)]).unwrap();
    let mut old = login();
    let before = old.query("show work_mem").value().to_owned();
    server().psql("postgres", &format!("alter role changing in database {db} set work_mem = '7MB'")).unwrap();
    eventually(Duration::from_secs(15), "new clients have the new default", || {
        run(&mut old, "select 1");
        login().query("show work_mem").value() != before
    });
    assert!((0..4).all(|_| login().query("show work_mem").value() == "7MB"));
}

#[test]
fn clients_that_define_something_all_the_time_leave_room_for_others() {
    const CLIENTS: usize = 5;
    for workers in [1, 2] {
        let db = if workers == 1 { database("defining_one") } else { database("defining_two") };
        let manager = manager_with(server(), "", &overrides(workers, 2));
        fill(&manager, db, 2);
        let end = Instant::now() + Duration::from_secs(4);
        let done: Vec<usize> = std::thread::scope(|scope| {
            let manager = &manager;
            let client = |n: usize| {
                let mut client = Client::new(manager, db);
                let mut count = 0;
                while Instant::now() < end {
                    if n == 0 {
                        run(&mut client, "select 1");
                    } else {
                        // One of its own: CREATE VIEW counts as a change whatever it selects.
                        run(&mut client, "begin");
                        run(&mut client, &format!("create view v{n} as select 1 as one"));
                        run(&mut client, &format!("drop view v{n}"));
                        run(&mut client, "commit");
                    }
                    count += 1;
                }
                count
            };
            let threads: Vec<_> = (0..=CLIENTS).map(|n| scope.spawn(move || client(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        println!("{workers} workers: {done:?}");
        let most = done[1..].iter().max().unwrap();
        assert!(done[0] >= 4 && done[1..].iter().all(|count| count * 20 > *most), "{done:?}");
    }
}

#[test]
fn a_plain_table_of_a_doubtful_type_is_in_doubt() {
    let db = database("doubtful_type");
    let manager = scattered(3);
    fill(&manager, db, 3);
    let (mut maker, mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db), Client::new(&manager, db));
    run(
        &mut maker,
        "create function checks(int) returns bool language plpgsql as
         $$begin perform set_config('app.last', $1::text, false); return true; end$$",
    );
    run(&mut maker, "create domain d as int check (checks(value))");
    run(&mut maker, "create table t (id d)");
    run(&mut a, "insert into t values (7)");
    assert!(kept_apart(&mut a, "7", &mut b));
    // The other way round, in one transaction.
    run(&mut maker, "begin");
    run(&mut maker, "create domain e as int check (checks(value))");
    run(&mut maker, "create table u (id e)");
    run(&mut maker, "commit");
    run(&mut a, "insert into u values (8)");
    assert!(kept_apart(&mut a, "8", &mut b));
}
