//! The spelling `postgresql://[user[:password]@][host[:port][,...]][/dbname][?keyword=value[&...]]`.
//!
//! Source: PostgreSQL documentation, "Connection URIs"; `conninfo_uri_parse_options` in fe-connect.c. Differences
//! from RFC 3986 are libpq's own: several hosts, any part may be empty, and an `@` before the first `/` always ends
//! the user part.

use super::error::ConninfoError;
use super::{Keyword, Params};

/// Length of the scheme if this is a connection URI.
pub(super) fn prefix_len(text: &str) -> Option<usize> {
    ["postgresql://", "postgres://"].iter().find(|prefix| text.starts_with(**prefix)).map(|prefix| prefix.len())
}

/// Reads a connection URI whose scheme is `prefix` bytes long.
pub(super) fn parse(text: &str, prefix: usize) -> Result<Params, ConninfoError> {
    if let Some(offset) = text.find('\0') {
        return Err(ConninfoError::at(offset, "a connection string cannot hold a zero byte"));
    }
    let mut params = Params::new();
    let mut at = prefix;
    if let Some(len) = user_part_len(tail(text, at)) {
        user_part(part(text, at, len), at, &mut params)?;
        at += len + 1;
    }
    at = host_part(text, at, &mut params)?;
    if tail(text, at).starts_with('/') {
        at += 1;
        let len = find_any(tail(text, at), "?");
        let dbname = decode(part(text, at, len), at)?;
        if !dbname.is_empty() {
            params.set(Keyword::Dbname, dbname);
        }
        at += len;
    }
    if tail(text, at).starts_with('?') {
        query_part(text, at + 1, &mut params)?;
    }
    Ok(params)
}

fn tail(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or("")
}

fn part(text: &str, at: usize, len: usize) -> &str {
    text.get(at..at.saturating_add(len)).unwrap_or("")
}

/// Bytes before the first of these (ASCII) characters, or all.
fn find_any(text: &str, stops: &str) -> usize {
    text.find(|c| stops.contains(c)).unwrap_or(text.len())
}

/// Length of `user[:password]` if the URI has that part.
fn user_part_len(rest: &str) -> Option<usize> {
    let len = find_any(rest, "@/");
    tail(rest, len).starts_with('@').then_some(len)
}

fn user_part(text: &str, at: usize, params: &mut Params) -> Result<(), ConninfoError> {
    let len = find_any(text, ":");
    let user = decode(part(text, 0, len), at)?;
    if !user.is_empty() {
        params.set(Keyword::User, user);
    }
    if let Some(password) = text.get(len + 1..).filter(|password| !password.is_empty()) {
        params.set(Keyword::Password, decode(password, at + len + 1)?);
    }
    Ok(())
}

/// Reads the list of hosts from `at` and returns where it ends.
fn host_part(text: &str, mut at: usize, params: &mut Params) -> Result<usize, ConninfoError> {
    let start = at;
    let mut hosts = String::new();
    let mut ports = String::new();
    loop {
        if tail(text, at).starts_with('[') {
            let inner = tail(text, at + 1);
            let Some(len) = inner.find(']') else {
                return Err(ConninfoError::at(at, "missing \"]\" behind an IPv6 address in the URI"));
            };
            if len == 0 {
                return Err(ConninfoError::at(at, "an IPv6 address in the URI is empty"));
            }
            hosts.push_str(part(inner, 0, len));
            at += len + 2;
            if let Some(c) = tail(text, at).chars().next() {
                if !":/?,".contains(c) {
                    return Err(ConninfoError::at(at, "unexpected character behind \"]\" in the URI")
                        .hint("expected \":\", \"/\", \"?\" or \",\""));
                }
            }
        } else {
            let len = find_any(tail(text, at), ":/?,");
            hosts.push_str(part(text, at, len));
            at += len;
        }
        if tail(text, at).starts_with(':') {
            at += 1;
            let len = find_any(tail(text, at), "/?,");
            ports.push_str(part(text, at, len));
            at += len;
        }
        if !tail(text, at).starts_with(',') {
            break;
        }
        at += 1;
        hosts.push(',');
        ports.push(',');
    }
    if !hosts.is_empty() {
        params.set(Keyword::Host, decode(&hosts, start)?);
    }
    if !ports.is_empty() {
        params.set(Keyword::Port, decode(&ports, start)?);
    }
    Ok(at)
}

fn query_part(text: &str, mut at: usize, params: &mut Params) -> Result<(), ConninfoError> {
    while !tail(text, at).is_empty() {
        let len = find_any(tail(text, at), "&");
        let pair = part(text, at, len);
        let Some((name, value)) = pair.split_once('=') else {
            let shown = params.shown(pair);
            return Err(ConninfoError::at(at, format!("missing \"=\" in the URI query parameter{shown}")));
        };
        if value.contains('=') {
            let shown = params.shown(name);
            return Err(ConninfoError::at(at, format!("second \"=\" in the URI query parameter{shown}"))
                .hint("write %3D for a \"=\" within a value"));
        }
        let name_text = decode(name, at)?;
        let value = decode(value, at + name.len() + 1)?;
        // As JDBC writes it.
        if name_text == "ssl" && value == "true" {
            params.set(Keyword::Sslmode, "require");
        } else {
            params.set_named(&name_text, value, at, "URI query parameter")?;
        }
        at += len + 1;
    }
    Ok(())
}

/// Undoes percent encoding. Blanks around are dropped, blanks within must be encoded (as in libpq 18).
fn decode(text: &str, offset: usize) -> Result<String, ConninfoError> {
    let lead = text.len() - text.trim_start_matches(' ').len();
    let text = text.trim_matches(' ');
    let offset = offset + lead;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes().enumerate();
    while let Some((i, byte)) = rest.next() {
        match byte {
            b' ' => {
                return Err(ConninfoError::at(offset + i, "blank in the URI").hint("write %20 for a blank"));
            }
            b'%' => {
                let digits = (rest.next().and_then(|(_, d)| hex(d)), rest.next().and_then(|(_, d)| hex(d)));
                let (Some(high), Some(low)) = digits else {
                    return Err(ConninfoError::at(offset + i, "invalid percent encoding in the URI")
                        .hint("write %25 for a percent sign"));
                };
                if high == 0 && low == 0 {
                    return Err(ConninfoError::at(offset + i, "%00 is not allowed in the URI"));
                }
                bytes.push(high * 16 + low);
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| ConninfoError::at(offset, "percent encoding in the URI gives no UTF-8 text"))
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests;
