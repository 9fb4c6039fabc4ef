//! Peers that break the rules, in both directions: an error, never a panic, never an endless
//! derivation.

use std::time::{Duration, Instant};

use pgusher_auth::{
    AuthError, CertificateHash, ChannelBinding, ClientExchange, Credential, Mechanism, OfferedMechanisms,
    RAW_NONCE_LEN, ServerExchange, Step, StoredSecret, UserList, Verifier,
};
use proptest::prelude::*;

/// base64 of eighteen zero bytes: our side's nonce in these tests.
const OURS: &str = "AAAAAAAAAAAAAAAAAAAAAAAA";

fn client() -> ClientExchange {
    ClientExchange::new(Credential::Password("secret".into()), ChannelBinding::None, &[0; RAW_NONCE_LEN])
}

fn server(offered: bool) -> ServerExchange {
    let verifier = Verifier::from_password(&"secret".into(), b"salt", 2).expect("in range");
    let offered = offered.then(|| CertificateHash::from_bytes([9; 32]));
    ServerExchange::new(verifier, offered, &[0; RAW_NONCE_LEN])
}

/// Arbitrary bytes, and texts near the grammar.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[a-z]?=?[nprsivcyme,=A-Za-z0-9+/]{0,60}".prop_map(String::into_bytes),
        "(n|y|p=tls-server-end-point),,n=[a-z]{0,3},r=[ -~]{0,10}".prop_map(String::into_bytes),
        "c=(biws|eSws),r=[A-Za-z0-9]{0,48},p=[A-Za-z0-9+/=]{0,48}".prop_map(String::into_bytes),
        "r=A{20,30}x{0,3},s=[A-Za-z0-9+/=]{0,12},i=[0-9]{0,3}(,[a-z]=[ -~]{0,9})?".prop_map(String::into_bytes),
        "SCRAM-SHA-256\\$[0-9]{0,12}:[A-Za-z0-9=]{0,9}\\$[A-Za-z0-9=]{0,50}:[A-Za-z0-9=]{0,50}"
            .prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_hostile_server(first in messages(), last in messages()) {
        let mut client = client();
        if client.respond(&first).is_ok() {
            prop_assert!(client.on_server_final(&last).is_err(), "without the verifier");
        }
        prop_assert!(!client.is_done());
    }

    #[test]
    fn a_hostile_client(
        plus in any::<bool>(), offered in any::<bool>(), first in messages(), last in messages(),
    ) {
        let mut server = server(offered);
        let mechanism = match plus {
            true => Mechanism::ScramSha256Plus,
            false => Mechanism::ScramSha256,
        };
        let answered = server.on_client_first(mechanism, &first).is_ok();
        let accepted = server.on_client_final(&last);
        prop_assert!(accepted.is_err(), "without the password");
        if !answered {
            let out_of_turn = matches!(accepted, Err(AuthError::OutOfTurn { .. }));
            prop_assert!(out_of_turn);
        }
    }

    #[test]
    fn hostile_texts(text in messages()) {
        let _ = Verifier::parse(&text);
        let _ = StoredSecret::parse(&text);
        let _ = UserList::parse(&text);
        let _ = OfferedMechanisms::parse(&text);
        let _ = Mechanism::from_name(&text);
        let _ = CertificateHash::of_der(&text);
    }

    /// Whatever one byte is changed in the messages of a good login, it does not succeed.
    #[test]
    fn every_byte_counts(message in 0usize..4, at in any::<prop::sample::Index>(), flip in 1u8..) {
        let change = |number: usize, text: Vec<u8>| {
            let mut text = text;
            if number == message {
                let at = at.index(text.len());
                text[at] ^= flip;
            }
            text
        };
        let (mut client, mut server) = (client(), server(false));
        let done = (|| -> Result<(), AuthError> {
            let first = change(0, client.first_message());
            let first = server.on_client_first(Mechanism::ScramSha256, &first)?;
            let first = change(1, first);
            // A changed iteration count may be large: the derivation is not what is tested here.
            if message == 1 && !first.ends_with(b",i=2") {
                return Err(AuthError::WrongPassword);
            }
            let last = change(2, client.respond(&first)?);
            let accepted = server.on_client_final(&last)?;
            client.on_server_final(&change(3, accepted.server_final))
        })();
        prop_assert!(done.is_err());
        prop_assert!(!client.is_done());
    }
}

#[test]
fn server_first_out_of_bounds() {
    let big = "A".repeat(1 << 20);
    for bad in [
        String::new(),
        "r=,s=c2FsdA==,i=1".to_owned(),
        format!("r={OURS},s=c2FsdA==,i=1"),
        format!("r=x{OURS}y,s=c2FsdA==,i=1"),
        format!("r={}y,s=c2FsdA==,i=1", &OURS[1..]),
        format!("r={OURS}\u{7f},s=c2FsdA==,i=1"),
        format!("r={OURS} y,s=c2FsdA==,i=1"),
        format!("r={OURS}y,s=,i=1"),
        format!("r={OURS}y,s=!!!!,i=1"),
        format!("r={OURS}y,i=1,s=c2FsdA=="),
        format!("r={OURS}y,s=c2FsdA=="),
        format!("r={OURS}y,s=c2FsdA==,i="),
        format!("r={OURS}y,s=c2FsdA==,i=0"),
        format!("r={OURS}y,s=c2FsdA==,i=-1"),
        format!("r={OURS}y,s=c2FsdA==,i=1e3"),
        format!("r={OURS}y,s=c2FsdA==,i=10000001"),
        format!("r={OURS}y,s=c2FsdA==,i=4294967297"),
        format!("r={OURS}y,s=c2FsdA==,i=99999999999999999999999"),
        format!("r={OURS}y,s=c2FsdA==,i=1,"),
        format!("r={OURS}y,s=c2FsdA==,i=1,garbage"),
        format!("r={OURS}{big},s=c2FsdA==,i=1"),
        format!("r={OURS}y,s={big},i=1"),
        format!("r={OURS}y,s={},i=1", "A".repeat(2000)),
        format!("r={OURS}y,s=c2FsdA==,i=1,x={big}"),
        big.clone(),
    ] {
        let started = Instant::now();
        let error = client().respond(bad.as_bytes()).expect_err("out of bounds");
        assert!(matches!(error, AuthError::Protocol(_)), "{error}");
        assert_eq!(error.sqlstate(), "08P01");
        assert!(started.elapsed() < Duration::from_secs(1), "no derivation");
    }
    let extension = format!("m=x,r={OURS}y,s=c2FsdA==,i=1");
    let error = client().respond(extension.as_bytes()).expect_err("m=");
    assert_eq!(error.sqlstate(), "0A000");
}

#[test]
fn server_first_within_bounds() {
    for good in [
        format!("r={OURS}y,s=c2FsdA==,i=1"),
        format!("r={OURS}y,s=c2FsdA==,i=10000000"),
        format!("r={OURS}y,s=c2FsdA==,i=4096,x=an extension,y=\u{e4}nother"),
    ] {
        let step = client().on_server_first(good.as_bytes());
        assert!(matches!(step, Ok(Step::Derive(_))), "{good}");
    }
}

#[test]
fn client_first_out_of_bounds() {
    let big = "A".repeat(1 << 20);
    for (sqlstate, bad) in [
        ("08P01", ""),
        ("08P01", "n"),
        ("08P01", "n,"),
        ("08P01", "n,,"),
        ("08P01", "x,,n=,r=abc"),
        ("08P01", "n,x,n=,r=abc"),
        ("08P01", "n,,n="),
        ("08P01", "n,,n=,r="),
        ("08P01", "n,,n=,r=a b"),
        ("08P01", "n,,n=,r=\u{e4}"),
        ("08P01", "n,,r=abc"),
        ("08P01", "n,,n=,r=abc,"),
        ("08P01", "p=tls-server-end-point,,n=,r=abc"),
        ("0A000", "n,a=postgres,n=,r=abc"),
        ("0A000", "n,,m=x,n=,r=abc"),
        ("08P01", &format!("n,,n=,r={big}")),
        ("08P01", &big),
    ] {
        let error = server(false).on_client_first(Mechanism::ScramSha256, bad.as_bytes()).expect_err("out of bounds");
        assert_eq!(error.sqlstate(), sqlstate, "{}", &bad[..bad.len().min(40)]);
    }
    for (sqlstate, offered, bad) in [
        ("08P01", false, "p=tls-server-end-point,,n=,r=abc"),
        ("08P01", true, "n,,n=,r=abc"),
        ("08P01", true, "y,,n=,r=abc"),
        ("0A000", true, "p=tls-unique,,n=,r=abc"),
    ] {
        let error =
            server(offered).on_client_first(Mechanism::ScramSha256Plus, bad.as_bytes()).expect_err("wrong binding");
        assert_eq!(error.sqlstate(), sqlstate, "{bad}");
    }
}

#[test]
fn client_final_out_of_bounds() {
    let nonce = format!("abc{OURS}");
    let proof = format!("{}=", "A".repeat(43));
    let big = "A".repeat(1 << 20);
    for (sqlstate, bad) in [
        ("28P01", format!("c=biws,r={nonce},p={proof}")),
        ("28P01", format!("c=biws,r={nonce},x=y,p={proof}")),
        ("0A000", format!("c=biws,r={nonce},m=y,p={proof}")),
        ("08P01", format!("c=eSws,r={nonce},p={proof}")),
        ("08P01", format!("c=biws,r={nonce}A,p={proof}")),
        ("08P01", format!("c=biws,r=,p={proof}")),
        ("08P01", format!("r={nonce},c=biws,p={proof}")),
        ("08P01", format!("c=biws,r={nonce}")),
        ("08P01", format!("c=biws,r={nonce},p=")),
        ("08P01", format!("c=biws,r={nonce},p=AAAA")),
        ("08P01", format!("c=biws,r={nonce},p={proof},x=y")),
        ("08P01", format!("c=biws,r={nonce},p={big}")),
        ("08P01", format!("p={proof}")),
        ("08P01", String::new()),
    ] {
        let mut server = server(false);
        server.on_client_first(Mechanism::ScramSha256, b"n,,n=,r=abc").expect("well formed");
        let error = server.on_client_final(bad.as_bytes()).expect_err("no proof");
        assert_eq!(error.sqlstate(), sqlstate, "{}", &bad[..bad.len().min(90)]);
        // Only one try.
        let again = server.on_client_final(bad.as_bytes());
        assert!(matches!(again, Err(AuthError::OutOfTurn { .. })));
    }
}

#[test]
fn steps_out_of_turn() {
    let mut early = server(false);
    assert!(early.on_client_final(b"c=biws,r=abc,p=AAAA").is_err());
    assert!(client().on_server_final(b"v=AAAA").is_err());
    let mut twice = server(false);
    let first = b"n,,n=,r=abc";
    assert!(twice.on_client_first(Mechanism::ScramSha256, first).is_ok());
    assert!(twice.on_client_first(Mechanism::ScramSha256, first).is_err());
    let mut client = client();
    let first = format!("r={OURS}y,s=c2FsdA==,i=1");
    assert!(client.respond(first.as_bytes()).is_ok());
    assert!(client.respond(first.as_bytes()).is_err());
}

#[test]
fn verifiers_out_of_bounds() {
    let keys = format!("{0}=:{0}=", "A".repeat(43));
    let good = format!("SCRAM-SHA-256$4096:c2FsdA==${keys}");
    assert!(Verifier::parse(good.as_bytes()).is_ok());
    for bad in [
        format!("SCRAM-SHA-256$0:c2FsdA==${keys}"),
        format!("SCRAM-SHA-256$2147483648:c2FsdA==${keys}"),
        format!("SCRAM-SHA-256$-1:c2FsdA==${keys}"),
        format!("SCRAM-SHA-256$4096:${keys}"),
        format!("SCRAM-SHA-256$4096:c2FsdA==${keys}="),
        format!("SCRAM-SHA-256$4096:c2FsdA==${keys}:"),
        format!("SCRAM-SHA-256$4096:c2FsdA==$${keys}"),
        format!("scram-sha-256$4096:c2FsdA==${keys}"),
        format!(" {good}"),
        format!("{good}\n"),
        "A".repeat(1 << 20),
    ] {
        assert!(Verifier::parse(bad.as_bytes()).is_err(), "{:.60}", bad);
    }
    // A verifier may hold more iterations than we are ready to do for a password in clear.
    let slow = format!("SCRAM-SHA-256$2147483647:c2FsdA==${keys}");
    let stored = StoredSecret::parse(slow.as_bytes());
    let error = stored.verify_plain(b"a", &"x".into()).expect_err("too slow");
    assert_eq!(error.sqlstate(), "0A000");
}
