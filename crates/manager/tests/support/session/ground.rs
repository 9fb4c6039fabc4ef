//! A database for scripts. It looks the same in front of each run: what was made in it is removed, base.sql and the script's own
//! setup are carried out, on a direct connection.

use super::script::Script;
use super::side::{Event, Side};
use std::time::{Duration, Instant};

/// One database, and a direct connection to it.
pub struct Ground {
    database: String,
    side: Side,
    base: String,
}

impl Ground {
    /// Makes the database. `address` is the server's.
    pub fn new(address: &str, database: &str, base: &str) -> Self {
        let login = |database: &str| {
            let mut side = Side::new(address);
            side.connect(&[("user", "postgres"), ("database", database)]);
            side.read_until(Duration::from_secs(20), Side::is_answered);
            side
        };
        let mut first = Self { database: "postgres".into(), side: login("postgres"), base: String::new() };
        first.outside(&format!("create database {database}"));
        Self { database: database.to_owned(), side: login(database), base: base.to_owned() }
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    /// Makes the database as it has to be in front of a script.
    pub fn prepare(&mut self, script: &Script) {
        self.wait_until_alone();
        for gid in self.values("select gid from pg_prepared_xacts where database = current_database()") {
            self.outside(&format!("rollback prepared '{gid}'"));
        }
        self.outside(CLEAN);
        let base = self.base.clone();
        self.outside(&base);
        for sql in &script.setup {
            self.outside(sql);
        }
    }

    /// SQL past the manager. A mistake in it is one of the script.
    pub fn outside(&mut self, sql: &str) {
        self.values(sql);
    }

    /// The first column of what a statement returns.
    fn values(&mut self, sql: &str) -> Vec<String> {
        self.side.events.clear();
        self.side.owed += 1;
        let mut bytes = Vec::new();
        pgusher_wire::frontend::write_query(&mut bytes, sql.as_bytes());
        self.side.send(&bytes);
        let answered = self.side.read_until(Duration::from_secs(20), Side::is_answered);
        assert!(answered && !self.side.is_closed(), "no reply to {sql}");
        let mut out = Vec::new();
        for event in &self.side.events {
            match event {
                Event::Message { tag: b'E', body } => panic!("{}: {sql}", String::from_utf8_lossy(body)),
                Event::Message { tag: b'D', body } => {
                    out.push(String::from_utf8_lossy(body.get(6..).unwrap_or_default()).into_owned());
                }
                _ => {}
            }
        }
        out
    }

    /// The backends of the run before have ended, and their locks and temporary tables are gone.
    fn wait_until_alone(&mut self) {
        let end = Instant::now() + Duration::from_secs(10);
        let others = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
        while !self.values(others).is_empty() {
            if Instant::now() > end {
                self.outside(&others.replace("select pid", "select pg_terminate_backend(pid)"));
            }
            assert!(Instant::now() < end + Duration::from_secs(10), "backends of {} do not end", self.database);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The schema `evil` is the neighbours'.
const CLEAN: &str = "
set client_min_messages = error;
do $$
declare r record;
begin
  for r in select evtname from pg_event_trigger loop
    execute format('drop event trigger %I', r.evtname);
  end loop;
  for r in select nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', 'evil') loop
    execute format('drop schema %I cascade', r.nspname);
  end loop;
  for r in select setrole from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase where datname = current_database()
  loop
    if r.setrole = 0 then
      execute format('alter database %I reset all', current_database());
    else
      execute format('alter role %I in database %I reset all', r.setrole::regrole::text, current_database());
    end if;
  end loop;
  perform lo_unlink(oid) from pg_largeobject_metadata;
end $$;
create schema public;
grant all on schema public to public;
";
