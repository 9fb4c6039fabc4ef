//! The few facts of a certificate that rustls does not tell: until when it is valid and which common name it has.
//! Needed for what libpq accepts and webpki does not: a self-signed server certificate that is itself the trusted
//! root, and certificates that carry the host name only as common name.
//!
//! No verification of signatures happens here. Source: RFC 5280, section 4.1; ITU-T X.690 for DER.

use std::time::{SystemTime, UNIX_EPOCH};

const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const OID_COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const OID_SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// What is needed of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Seconds since 1970, first and last.
    validity: (i64, i64),
    /// The last common name of the subject, if it is text.
    pub(crate) common_name: Option<String>,
    /// Whether there is a subjectAltName extension; then the common name does not count.
    pub(crate) has_alt_names: bool,
}

impl Facts {
    /// Reads a certificate; `None` if it is malformed.
    pub(crate) fn of_der(der: &[u8]) -> Option<Facts> {
        let certificate = Der(der).expect(SEQUENCE)?;
        let mut tbs = Der(Der(certificate).expect(SEQUENCE)?);
        if tbs.peek() == Some(VERSION) {
            tbs.next()?;
        }
        tbs.expect(INTEGER)?;
        tbs.expect(SEQUENCE)?;
        tbs.expect(SEQUENCE)?;
        let mut validity = Der(tbs.expect(SEQUENCE)?);
        let validity = (time(validity.next()?)?, time(validity.next()?)?);
        let common_name = common_name(tbs.expect(SEQUENCE)?);
        tbs.expect(SEQUENCE)?;
        let mut has_alt_names = false;
        while let Some((tag, body)) = tbs.next() {
            if tag == EXTENSIONS {
                has_alt_names = names_extension(Der(body).expect(SEQUENCE)?);
            }
        }
        Some(Facts { validity, common_name, has_alt_names })
    }

    /// Whether the certificate is valid at this time.
    pub(crate) fn is_valid_at(&self, seconds: i64) -> bool {
        (self.validity.0..=self.validity.1).contains(&seconds)
    }

    /// Whether the certificate is valid now.
    pub(crate) fn is_valid_now(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        now.and_then(|now| i64::try_from(now.as_secs()).ok()).is_some_and(|now| self.is_valid_at(now))
    }

    /// Whether the common name covers this host: equal without regard to case, or a wildcard for one leading label.
    pub(crate) fn names_host(&self, host: &str) -> bool {
        let Some(name) = self.common_name.as_deref() else {
            return false;
        };
        match name.strip_prefix("*.") {
            Some(parent) => host.split_once('.').is_some_and(|(first, rest)| {
                !first.is_empty() && parent.contains('.') && rest.eq_ignore_ascii_case(parent)
            }),
            None => !name.is_empty() && name.eq_ignore_ascii_case(host),
        }
    }
}

fn common_name(subject: &[u8]) -> Option<String> {
    let mut found = None;
    let mut sets = Der(subject);
    while let Some(set) = sets.expect(SET) {
        let mut pairs = Der(set);
        while let Some(pair) = pairs.expect(SEQUENCE) {
            let mut pair = Der(pair);
            if pair.expect(OID) == Some(OID_COMMON_NAME) {
                found = pair.next().and_then(|(_, text)| std::str::from_utf8(text).ok()).map(str::to_owned);
            }
        }
    }
    // A zero byte in a name has been used to deceive comparisons.
    found.filter(|name| !name.contains('\0'))
}

fn names_extension(extensions: &[u8]) -> bool {
    let mut list = Der(extensions);
    while let Some(extension) = list.expect(SEQUENCE) {
        if Der(extension).expect(OID) == Some(OID_SUBJECT_ALT_NAME) {
            return true;
        }
    }
    false
}

/// Seconds since 1970 of a UTCTime or GeneralizedTime, in the forms that RFC 5280 allows.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match tag {
        UTC_TIME => {
            let year: i64 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let field = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day, hour, minute, second) = (field(0)?, field(2)?, field(4)?, field(6)?, field(8)?);
    if rest.len() != 10 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 in the proleptic Gregorian calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
            - 719_469;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// A run of DER elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (bytes, rest) =
                rest.split_at_checked(usize::from(first & 0x7f)).filter(|(b, _)| (1..=4).contains(&b.len()))?;
            (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        if self.peek()? != wanted {
            return None;
        }
        self.next().map(|(_, content)| content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time((UTC_TIME, b"700101000000Z")), Some(0));
        assert_eq!(time((UTC_TIME, b"240229120000Z")), Some(1_709_208_000));
        assert_eq!(time((GENERALIZED_TIME, b"20240301000000Z")), Some(1_709_251_200));
        for bad in [&b"240229120000"[..], b"2402291200Z", b"241301000000Z", b"", b"24022912000xZ"] {
            assert_eq!(time((UTC_TIME, bad)), None);
        }
    }

    #[test]
    fn facts_of_a_certificate() {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "db.example.com");
        params.not_before = rcgen::date_time_ymd(2024, 1, 1);
        params.not_after = rcgen::date_time_ymd(2024, 12, 31);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let facts = Facts::of_der(certificate.der()).unwrap();
        assert!(facts.names_host("DB.example.com") && !facts.names_host("x.example.com"));
        assert!(!facts.has_alt_names && !facts.is_valid_now() && facts.is_valid_at(1_709_208_000));
        for len in 0..certificate.der().len() {
            assert_eq!(Facts::of_der(&certificate.der()[..len]), None);
        }
        let with_names = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let facts = Facts::of_der(with_names.cert.der()).unwrap();
        assert!(facts.has_alt_names && facts.is_valid_now());
    }

    #[test]
    fn wildcards_cover_one_label() {
        let facts = |name: &str| Facts { validity: (0, 0), common_name: Some(name.to_owned()), has_alt_names: false };
        assert!(facts("*.example.com").names_host("a.example.com"));
        for host in ["example.com", "a.b.example.com", ".example.com"] {
            assert!(!facts("*.example.com").names_host(host), "{host}");
        }
        assert!(!facts("*.com").names_host("example.com"));
    }
}
