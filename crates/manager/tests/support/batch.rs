//! Messages of the extended protocol, put together one behind the other and sent at once.
#![allow(unreachable_pub, reason = "as its neighbour")]

use super::{Client, Reply};
use pgusher_wire::frontend::{self, SYNC_BYTES, Target};

/// Messages of the extended protocol, chained.
#[derive(Default)]
pub struct Batch(pub Vec<u8>);

impl Batch {
    pub fn parse(mut self, name: &str, sql: &str) -> Self {
        frontend::write_parse(&mut self.0, name.as_bytes(), sql.as_bytes(), &[]);
        self
    }
    pub fn bind(self, name: &str) -> Self {
        self.bind_with(name, &[])
    }
    pub fn bind_with(mut self, name: &str, parameters: &[&str]) -> Self {
        let parameters: Vec<_> = parameters.iter().map(|p| Some(p.as_bytes())).collect();
        frontend::write_bind(&mut self.0, b"", name.as_bytes(), &parameters);
        self
    }
    pub fn describe(mut self, name: &str) -> Self {
        frontend::write_describe(&mut self.0, Target::Statement, name.as_bytes());
        self
    }
    pub fn execute(mut self) -> Self {
        frontend::write_execute(&mut self.0, b"", 0);
        self
    }
    pub fn close(mut self, name: &str) -> Self {
        frontend::write_close(&mut self.0, Target::Statement, name.as_bytes());
        self
    }
    pub fn flush(mut self) -> Self {
        self.0.extend_from_slice(&[frontend::FLUSH, 0, 0, 0, 4]);
        self
    }
    pub fn sync(mut self) -> Self {
        self.0.extend_from_slice(&SYNC_BYTES);
        self
    }
    pub fn query(mut self, sql: &str) -> Self {
        frontend::write_query(&mut self.0, sql.as_bytes());
        self
    }
    pub fn run(self, client: &mut Client) -> Reply {
        client.send(&self.0);
        client.reply()
    }
}

pub fn begin() -> Batch {
    Batch::default()
}
