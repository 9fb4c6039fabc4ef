//! SHA-256 and HMAC-SHA-256 over the few shapes that SCRAM needs, with wiped results. Not a general
//! hashing layer.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Bytes of a SHA-256 digest and so of every SCRAM-SHA-256 key.
pub(crate) const KEY_LEN: usize = 32;

/// A digest or key that is wiped when dropped.
pub(crate) type Key = Zeroizing<[u8; KEY_LEN]>;

/// SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> Key {
    Zeroizing::new(Sha256::digest(bytes).into())
}

/// HMAC-SHA-256 of the concatenation of `parts`.
pub(crate) fn hmac(key: &[u8; KEY_LEN], parts: &[&[u8]]) -> Key {
    // HMAC pads a short key with zeros to the block size of 64 (RFC 2104, 2). Doing so here gives a
    // constructor that cannot fail.
    let mut block = Zeroizing::new([0u8; 64]);
    block[..KEY_LEN].copy_from_slice(key);
    let mut mac = <Hmac<Sha256> as hmac::digest::KeyInit>::new((&*block).into());
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// `a XOR b`.
pub(crate) fn xor(a: &[u8; KEY_LEN], b: &[u8; KEY_LEN]) -> Key {
    let mut out = Zeroizing::new(*a);
    for (x, y) in out.iter_mut().zip(b) {
        *x ^= y;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::hmac;

    #[test]
    fn padded_key_is_the_same_hmac() {
        use ::hmac::{Hmac, Mac};
        let key = [7u8; 32];
        let mut reference = Hmac::<sha2::Sha256>::new_from_slice(&key).expect("any length");
        reference.update(b"Hi There");
        assert_eq!(hmac(&key, &[b"Hi ", b"There"]).as_slice(), reference.finalize().into_bytes().as_slice());
    }
}
