//! DEALLOCATE of a statement that has another name on the server.

use super::super::client::Client;
use super::super::server::Server;
use super::{Edit, cut, whole};
use pgusher_session::ledger::Mark;
use pgusher_session::statements::{Change, Placed};
use pgusher_wire::frontend::{self, Target};
use pgusher_wire::scan::Head;

/// A statement of ours that DEALLOCATE is turned to when the client means one of its shared ones.
pub(super) const NOBODY: &[u8] = b"pgusher_nobody";

/// Makes sure that there is a statement for [`NOBODY`] to be deallocated. Neither message can fail. `change` is what was changed
/// for the client, to be taken back if they are discarded.
pub(super) fn forget_nobody(server: &mut Server, patch: &mut Vec<u8>, change: Change) {
    frontend::write_close(patch, Target::Statement, NOBODY);
    frontend::write_parse(patch, NOBODY, b"", &[]);
    for change in [change, Change::Nothing] {
        server.ledger.marked(Mark::Own);
        server.shelf.note(change, Placed::Nothing);
    }
}

/// Execute of DEALLOCATE ALL or DISCARD ALL: the client's names are forgotten, and are there again if it fails. A message behind it
/// tells which.
pub(in crate::core) fn forget_all(
    client: &mut Client,
    server: &mut Server,
    head: &Head<'_>,
    patch: &mut Vec<u8>,
) -> Edit {
    let Some(own) = client.own.as_deref_mut() else { return Edit::Keep };
    patch.push(head.tag);
    patch.extend_from_slice(&u32::try_from(head.body_len + 4).unwrap_or(u32::MAX).to_be_bytes());
    patch.extend_from_slice(head.body);
    frontend::write_close(patch, Target::Statement, NOBODY);
    server.ledger.marked(Mark::Own);
    server.shelf.note(own.forget_names(), Placed::Nothing);
    server.discards_booked += 1;
    Edit::Replace(whole(head))
}

/// The name in a text that is nothing but DEALLOCATE [PREPARE] name, up to a zero byte; as the server would read it.
pub(super) fn deallocated(text: &[u8]) -> Option<Vec<u8>> {
    let text = cut(text)?.0.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text).trim_ascii_end();
    let mut rest = keyword(text, b"deallocate")?;
    if let Some(behind) = keyword(rest, b"prepare") {
        rest = behind;
    }
    if let Some(quoted) = rest.strip_prefix(b"\"") {
        let inner = quoted.strip_suffix(b"\"")?;
        let mut name = Vec::with_capacity(inner.len());
        let mut bytes = inner.iter();
        while let Some(b) = bytes.next() {
            if *b == b'"' && bytes.next() != Some(&b'"') {
                return None;
            }
            name.push(*b);
        }
        return Some(name);
    }
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$') || *b >= 0x80;
    (!rest.is_empty() && !rest.eq_ignore_ascii_case(b"all") && rest.iter().all(plain))
        .then(|| rest.to_ascii_lowercase())
}

/// What is behind a keyword and white space.
fn keyword<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (first, rest) = text.split_at_checked(word.len())?;
    let behind = rest.trim_ascii_start();
    (first.eq_ignore_ascii_case(word) && (behind.len() < rest.len() || behind.first() == Some(&b'"'))).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_deallocated() {
        let name = |sql: &str| {
            deallocated(&[sql.as_bytes(), b"\0"].concat()).map(|n| String::from_utf8_lossy(&n).into_owned())
        };
        assert_eq!(name("DEALLOCATE _pg3_0").as_deref(), Some("_pg3_0"));
        assert_eq!(name(" deallocate prepare  Abc ;").as_deref(), Some("abc"));
        assert_eq!(name("deallocate\"A\"\"b\"").as_deref(), Some("A\"b"));
        assert_eq!(name("deallocate all"), None);
        assert_eq!(name("deallocate a; select 1"), None);
        assert_eq!(name("deallocated"), None);
        assert_eq!(name("deallocate \"a\" b\""), None);
        assert_eq!(name(""), None);
    }
}
