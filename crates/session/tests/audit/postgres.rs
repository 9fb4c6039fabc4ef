//! A session on a real server over a plain socket: simple Query, and the bodies of the rows.

use pgusher_embedded::Server;
use pgusher_session::audit::{Answer, Aspects, Findings, Inquiry};
use pgusher_session::settings::Settings;
use pgusher_wire::backend::{self, Message};
use pgusher_wire::startup::{Version, write_startup};
use pgusher_wire::{Frame, frontend};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::Duration;

/// One server for all tests.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Server::builder().start().unwrap();
        let mut admin = Session::new(&server, "postgres", "postgres");
        admin.run(
            "create role login_only login; create role other; grant other to login_only; create role boss superuser",
        );
        server
    })
}

/// A connection that is logged in.
pub(crate) struct Session {
    stream: TcpStream,
    buffer: Vec<u8>,
    login: String,
}

impl Session {
    pub(crate) fn new(server: &Server, database: &str, user: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut packet = Vec::new();
        let parameters = [("user", user), ("database", database), ("work_mem", "7MB")];
        write_startup(
            &mut packet,
            Version::V3_0,
            parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        let mut session = Self { stream, buffer: Vec::new(), login: user.into() };
        session.stream.write_all(&packet).unwrap();
        session.reply().unwrap();
        session
    }

    /// The bodies of the rows; or the SQLSTATE and message of the error.
    pub(crate) fn try_query(&mut self, sql: &str) -> Result<Vec<Vec<u8>>, String> {
        let mut out = Vec::new();
        frontend::write_query(&mut out, sql.as_bytes());
        self.stream.write_all(&out).unwrap();
        self.reply()
    }

    pub(crate) fn run(&mut self, sql: &str) -> Vec<Vec<u8>> {
        self.try_query(sql).unwrap_or_else(|error| panic!("{error}: {sql}"))
    }

    /// All values of a result, columns by `|`, rows by line breaks.
    pub(crate) fn text(&mut self, sql: &str) -> String {
        let rows = self.run(sql);
        let row = |body: &Vec<u8>| match Message::parse(Frame { tag: backend::DATA_ROW, body }) {
            Ok(Message::DataRow(row)) => {
                let column = |c: Option<&[u8]>| c.map_or("NULL".into(), |c| String::from_utf8_lossy(c).into_owned());
                row.columns().map(column).collect::<Vec<_>>().join("|")
            }
            other => panic!("{other:?}"),
        };
        rows.iter().map(row).collect::<Vec<_>>().join("\n")
    }

    fn reply(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let mut rows = Vec::new();
        let mut result = Ok(());
        loop {
            while let Some((frame, length)) = Frame::parse(&self.buffer).unwrap() {
                match Message::parse(frame).unwrap() {
                    Message::DataRow(_) => rows.push(frame.body.to_vec()),
                    Message::Error(fields) => {
                        let field = |kind| String::from_utf8_lossy(fields.get(kind).unwrap_or_default()).into_owned();
                        result = Err(format!("{} {}", field(b'C'), field(b'M')));
                    }
                    Message::ReadyForQuery(_) => {
                        self.buffer.drain(..length);
                        assert!(self.buffer.is_empty());
                        return result.map(|()| rows);
                    }
                    _ => {}
                }
                self.buffer.drain(..length);
            }
            let mut chunk = vec![0; 65536];
            let n = self.stream.read(&mut chunk).unwrap();
            assert!(n > 0, "the server closed the connection: {result:?}");
            self.buffer.extend_from_slice(&chunk[..n]);
        }
    }

    /// What the session holds, as the manager would ask.
    pub(crate) fn try_ask(&mut self, question: &Question<'_>) -> Result<Findings, String> {
        let known = pairs(question.known);
        let boxed = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect::<Vec<Box<str>>>();
        let (placeholders, leftovers) = (boxed(question.placeholders), boxed(question.leftovers));
        let functions = boxed(question.functions);
        let known = Settings::from_pairs(known).unwrap();
        let login = self.login.clone();
        let inquiry = Inquiry {
            aspects: question.aspects,
            known: &known,
            login: &login,
            placeholders: &placeholders,
            leftovers: &leftovers,
            functions: &functions,
        };
        let mut answer = Answer::default();
        for row in self.try_query(&inquiry.sql())? {
            answer.row(&row).map_err(|error| error.to_string())?;
        }
        Ok(answer.finish(&inquiry))
    }

    pub(crate) fn ask(&mut self, question: &Question<'_>) -> Findings {
        self.try_ask(question).unwrap()
    }

    /// The settings only, of a session that is believed to have none.
    pub(crate) fn settings(&mut self) -> Vec<(String, String)> {
        self.ask(&Question { aspects: Aspects::SETTINGS, ..Question::default() }).settings.unwrap()
    }
}

/// What an [`Inquiry`] says, easy to write.
#[derive(Default, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) aspects: Aspects,
    pub(crate) known: &'a [(&'a str, &'a str)],
    pub(crate) placeholders: &'a [&'a str],
    pub(crate) leftovers: &'a [&'a str],
    pub(crate) functions: &'a [&'a str],
}

pub(crate) fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}
