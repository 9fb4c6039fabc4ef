//! The one place that knows how a message's length is put in front of its body.

/// Appends a message whose body is written by `body`. The length field is filled in afterwards.
///
/// A body over the protocol's limit cannot be sent; the length then saturates, and the reader on the other side refuses
/// the message.
#[inline]
pub(crate) fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    untagged(out, body);
}

/// As [`message`], for the messages of the startup phase, which have no type byte.
#[inline]
pub(crate) fn untagged(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&len.to_be_bytes());
    }
}

/// Appends a string and its zero byte. A zero byte inside would end the string early on the other side, so the string
/// is cut there.
#[inline]
pub(crate) fn cstr(out: &mut Vec<u8>, s: &[u8]) {
    let end = memchr::memchr(0, s).unwrap_or(s.len());
    out.extend_from_slice(s.get(..end).unwrap_or_default());
    out.push(0);
}
