//! A session script as it is written. See tests/sessions/README.md for the format.

use std::path::Path;

/// What happens, in order.
#[derive(Debug, Clone)]
pub struct Script {
    /// Folder and file, without the suffix.
    pub name: String,
    /// SQL that makes the database ready.
    pub setup: Vec<String>,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub struct Step {
    /// The line as it is written, for people.
    pub line: String,
    pub action: Action,
}

#[derive(Debug, Clone)]
pub enum Action {
    /// A client logs in, with these startup parameters.
    Connect {
        client: char,
        parameters: Vec<(String, String)>,
    },
    /// Sends bytes, with those that were kept before.
    Send {
        client: char,
        bytes: Vec<u8>,
        ready: usize,
        copy_ends: usize,
        then: Then,
    },
    /// Waits for what is owed to a client.
    Wait {
        client: char,
    },
    /// Waits until this many further notifications have come.
    Notifications {
        client: char,
        count: usize,
    },
    /// Waits for a short time, in which nothing should come.
    Quiet {
        client: char,
    },
    /// Closes the socket, with a Terminate or without one.
    Disconnect {
        client: char,
        politely: bool,
    },
    /// SQL on a connection of its own, past the manager.
    Outside(String),
    Sleep(u64),
    /// A cancel request with the key of a client.
    Cancel {
        client: char,
    },
}

/// What follows a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It is kept, and leaves with the next one.
    Keep,
    /// It leaves, and nobody waits for the reply.
    Go,
    /// It leaves, and the replies that it causes are awaited.
    Wait,
    /// As `Wait`, but nobody knows how many replies there will be.
    Look,
}

impl Script {
    pub fn read(path: &Path, root: &Path) -> Self {
        let name = path.strip_prefix(root).unwrap().with_extension("").display().to_string();
        let text = std::fs::read_to_string(path).unwrap();
        Self::parse(&name, &text).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut script = Self { name: name.to_owned(), setup: Vec::new(), steps: Vec::new() };
        // A line that is indented belongs to the one before it.
        let mut lines: Vec<(usize, String)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match lines.last_mut() {
                Some((_, last)) if line.starts_with([' ', '\t']) => {
                    if !last.ends_with([':', ' ']) {
                        last.push('\n');
                    }
                    last.push_str(line.trim());
                }
                _ => lines.push((number + 1, line.trim_end().to_owned())),
            }
        }
        for (number, line) in lines {
            let step = script.line(&line).map_err(|e| format!("line {number}: {e}: {line}"))?;
            script.steps.extend(step.map(|action| Step { line, action }));
        }
        Ok(script)
    }

    fn line(&mut self, line: &str) -> Result<Option<Action>, String> {
        if let Some(sql) = line.strip_prefix("setup:") {
            self.setup.push(sql.trim().to_owned());
            return Ok(None);
        }
        if let Some(sql) = line.strip_prefix("outside:") {
            return Ok(Some(Action::Outside(sql.trim().to_owned())));
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "client" => {
                let (client, parameters) = rest.split_once(' ').unwrap_or((rest, ""));
                Ok(Some(Action::Connect { client: letter(client)?, parameters: parameters_of(parameters)? }))
            }
            "sleep" => Ok(Some(Action::Sleep(rest.parse().map_err(|_| "no number")?))),
            "cancel" => Ok(Some(Action::Cancel { client: letter(rest)? })),
            _ => self.client_line(line).map(Some),
        }
    }

    fn client_line(&self, line: &str) -> Result<Action, String> {
        let client = line.chars().next().filter(char::is_ascii_uppercase).ok_or("a step begins with a client")?;
        let rest = &line[1..];
        let (verb, rest) = match rest.strip_prefix([':', '!']) {
            Some(behind) => {
                let mark = behind.len() - behind.trim_start_matches(['+', '&']).len();
                (&rest[..=mark], behind[mark..].trim())
            }
            None => {
                let rest = rest.strip_prefix(' ').ok_or("a blank follows the client")?;
                let (verb, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                (verb, rest.trim())
            }
        };
        let mark = verb.chars().last().filter(|c| matches!(c, '+' | '&'));
        let then = |usual: Then| match mark {
            Some('+') => Then::Keep,
            Some(_) => Then::Go,
            None => usual,
        };
        let send = |bytes: Vec<u8>, ready: usize, usual: Then| {
            Ok(Action::Send { client, bytes, ready, copy_ends: 0, then: then(usual) })
        };
        match verb.trim_end_matches(['+', '&']) {
            ":" => send(message(b'Q', &cstr(rest.as_bytes())), 1, Then::Wait),
            "!" => {
                let (sql, values) = values_of(rest)?;
                send(whole(sql, &values), 1, Then::Wait)
            }
            "bytes:" => send(message(b'Q', &cstr(&with_bytes(rest)?)), 1, Then::Wait),
            "parse" => {
                let (head, sql) = split_colon(rest)?;
                let mut words = head.split_whitespace();
                let mut body = cstr(name(words.next()).as_bytes());
                body.extend(cstr(sql.as_bytes()));
                let types = words.next().map_or(Ok(Vec::new()), |t| t.split(',').map(type_oid).collect())?;
                body.extend((types.len() as u16).to_be_bytes());
                types.iter().for_each(|t| body.extend(t.to_be_bytes()));
                send(message(b'P', &body), 0, Then::Keep)
            }
            "bind" => {
                let (head, values) = values_of(rest)?;
                let mut words = head.split_whitespace();
                let (portal, statement) = (name(words.next()), name(words.next()));
                let (mut formats, mut results) = (Vec::new(), Vec::new());
                for word in words {
                    let (key, list) = word.split_once('=').ok_or("p= or r=")?;
                    let list = list.split(',').map(|f| f.parse::<u16>().map_err(|_| "format".to_owned()));
                    let list = list.collect::<Result<Vec<_>, _>>()?;
                    *(if key == "p" { &mut formats } else { &mut results }) = list;
                }
                send(bind(portal, statement, &formats, &values, &results), 0, Then::Keep)
            }
            word @ ("describe" | "close") => {
                let (kind, named) = rest.split_once(' ').unwrap_or((rest, "-"));
                let mut body = vec![*kind.to_uppercase().as_bytes().first().ok_or("s or p")?];
                body.extend(cstr(name(Some(named)).as_bytes()));
                send(message(if word == "close" { b'C' } else { b'D' }, &body), 0, Then::Keep)
            }
            "execute" => {
                let mut words = rest.split_whitespace();
                let mut body = cstr(name(words.next()).as_bytes());
                body.extend(words.next().map_or(Ok(0), str::parse::<i32>).map_err(|_| "rows")?.to_be_bytes());
                send(message(b'E', &body), 0, Then::Keep)
            }
            "sync" => send(message(b'S', b""), 1, Then::Wait),
            "flush" => send(message(b'H', b""), 0, Then::Look),
            "call" => {
                let (head, values) = values_of(rest)?;
                let mut words = head.split_whitespace();
                let function = words.next().unwrap_or_default().parse::<u32>().map_err(|_| "function")?;
                let binary = words.next() == Some("binary");
                send(call(function, binary, &values), 1, Then::Wait)
            }
            "data" => {
                let (text, end) = rest.strip_suffix("\\c").map_or((rest, "\n"), |text| (text, ""));
                let mut bytes = unescape(text)?;
                bytes.extend(end.as_bytes());
                send(message(b'd', &bytes), 0, Then::Keep)
            }
            word @ ("done" | "fail") => {
                let bytes = if word == "done" { message(b'c', b"") } else { message(b'f', &cstr(rest.as_bytes())) };
                Ok(Action::Send { client, bytes, ready: 0, copy_ends: 1, then: then(Then::Wait) })
            }
            "wait" => Ok(Action::Wait { client }),
            "notifications" => {
                Ok(Action::Notifications { client, count: rest.parse().map_err(|_| "how many notifications")? })
            }
            "quiet" => Ok(Action::Quiet { client }),
            "disconnect" => Ok(Action::Disconnect { client, politely: true }),
            "vanish" => Ok(Action::Disconnect { client, politely: false }),
            "connect" => {
                let first = self.steps.iter().find_map(|s| match &s.action {
                    Action::Connect { client: c, parameters } if *c == client => Some(parameters.clone()),
                    _ => None,
                });
                Ok(Action::Connect { client, parameters: first.unwrap_or_default() })
            }
            _ => Err("unknown step".into()),
        }
    }

    /// The role of the first client.
    pub fn user(&self) -> &str {
        let first = self.steps.iter().find_map(|s| match &s.action {
            Action::Connect { parameters, .. } => Some(parameters),
            _ => None,
        });
        let user = first.and_then(|parameters| parameters.iter().find(|(n, _)| n == "user"));
        user.map_or("postgres", |(_, v)| v)
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        let mut letters: Vec<char> = self.steps.iter().filter_map(|s| s.action.client()).collect();
        letters.sort_unstable();
        letters.dedup();
        letters.len()
    }
}

impl Action {
    pub fn client(&self) -> Option<char> {
        match self {
            Self::Connect { client, .. }
            | Self::Send { client, .. }
            | Self::Wait { client }
            | Self::Notifications { client, .. }
            | Self::Quiet { client }
            | Self::Disconnect { client, .. }
            | Self::Cancel { client } => Some(*client),
            Self::Outside(_) | Self::Sleep(_) => None,
        }
    }
}

type Value = Option<Vec<u8>>;

fn letter(word: &str) -> Result<char, String> {
    match (word.len(), word.chars().next().filter(char::is_ascii_uppercase)) {
        (1, Some(letter)) => Ok(letter),
        _ => Err("a client is a capital letter".into()),
    }
}

fn name(word: Option<&str>) -> &str {
    match word {
        None | Some("-") => "",
        Some(name) => name,
    }
}

/// `name=value` separated by blanks; a whole one may be in double quotes.
fn parameters_of(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut out = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a quote is open")?,
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        let (name, value) = word.split_once('=').ok_or("name=value")?;
        out.push((name.to_owned(), value.to_owned()));
        rest = behind.trim();
    }
    Ok(out)
}

fn split_colon(text: &str) -> Result<(&str, &str), String> {
    match text.strip_prefix(": ") {
        Some(sql) => Ok(("", sql)),
        None => text.split_once(" : ").or(text.strip_suffix(" :").map(|t| (t, ""))).ok_or_else(|| "no colon".into()),
    }
}

/// Text, then values behind `<-`.
fn values_of(text: &str) -> Result<(&str, Vec<Value>), String> {
    let Some((head, list)) = text.rsplit_once(" <- ").or(text.strip_prefix("<- ").map(|list| ("", list))) else {
        return Ok((text, Vec::new()));
    };
    let values = list.split(" | ").map(|word| match word.trim() {
        "\\N" => Ok(None),
        "''" => Ok(Some(Vec::new())),
        word => match word.strip_prefix("\\x") {
            Some(digits) => hex(digits).map(Some),
            None => unescape(word).map(Some),
        },
    });
    Ok((head.trim(), values.collect::<Result<_, String>>()?))
}

fn hex(digits: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = digits.chars().filter(|c| !c.is_whitespace()).collect();
    let pair =
        |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).map_err(|_| "no hex".to_owned());
    digits.chunks(2).map(pair).collect()
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b't') => out.push(b'\t'),
            Some(b'n') => out.push(b'\n'),
            Some(b'\\') => out.push(b'\\'),
            // COPY's own.
            Some(other) => out.extend([b'\\', other]),
            None => return Err("a backslash at the end".into()),
        }
    }
    Ok(out)
}

/// Bytes in hexadecimal digits within braces.
fn with_bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (digits, behind) = behind.split_once('}').ok_or("a brace is open")?;
        out.extend(before.as_bytes());
        out.extend(hex(digits)?);
        rest = behind;
    }
    out.extend(rest.as_bytes());
    Ok(out)
}

fn type_oid(word: &str) -> Result<u32, String> {
    Ok(match word {
        "bool" => 16,
        "bytea" => 17,
        "int8" => 20,
        "int2" => 21,
        "int4" => 23,
        "text" => 25,
        "oid" => 26,
        "json" => 114,
        "float8" => 701,
        "unknown" => 705,
        "varchar" => 1043,
        "date" => 1082,
        "timestamptz" => 1184,
        "numeric" => 1700,
        "regclass" => 2205,
        number => number.parse().map_err(|_| "unknown type")?,
    })
}

fn cstr(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out.push(0);
    out
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend(body);
    out
}

fn values_into(body: &mut Vec<u8>, values: &[Value]) {
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        match value {
            None => body.extend((-1i32).to_be_bytes()),
            Some(value) => {
                body.extend((value.len() as u32).to_be_bytes());
                body.extend(value);
            }
        }
    }
}

fn formats_into(body: &mut Vec<u8>, formats: &[u16]) {
    body.extend((formats.len() as u16).to_be_bytes());
    formats.iter().for_each(|f| body.extend(f.to_be_bytes()));
}

fn bind(portal: &str, statement: &str, formats: &[u16], values: &[Value], results: &[u16]) -> Vec<u8> {
    let mut body = cstr(portal.as_bytes());
    body.extend(cstr(statement.as_bytes()));
    formats_into(&mut body, formats);
    values_into(&mut body, values);
    formats_into(&mut body, results);
    message(b'B', &body)
}

fn call(function: u32, binary: bool, values: &[Value]) -> Vec<u8> {
    let mut body = function.to_be_bytes().to_vec();
    formats_into(&mut body, &[u16::from(binary)]);
    values_into(&mut body, values);
    body.extend(u16::from(binary).to_be_bytes());
    message(b'F', &body)
}

/// Parse, Bind, Describe, Execute and Sync of the unnamed statement.
fn whole(sql: &str, values: &[Value]) -> Vec<u8> {
    let mut body = cstr(b"");
    body.extend(cstr(sql.as_bytes()));
    body.extend([0, 0]);
    let mut out = message(b'P', &body);
    out.extend(bind("", "", &[], values, &[]));
    out.extend(message(b'D', b"P\0"));
    out.extend(message(b'E', &[0, 0, 0, 0, 0]));
    out.extend(message(b'S', b""));
    out
}
