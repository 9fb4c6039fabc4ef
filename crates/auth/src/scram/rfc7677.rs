//! The published exchange of RFC 7677, 3, run through both roles. Here and not in `tests/`, because its
//! nonces are not base64 and its user is named.

use super::{ChannelBinding, ClientExchange, Credential, KeyParameters, Mechanism, ServerExchange, Verifier};
use crate::AuthError;

const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER_FIRST: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
    s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

/// The salt of the exchange.
const SALT: [u8; 16] = [0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81];

fn client() -> ClientExchange {
    ClientExchange::with_texts(
        Credential::Password("pencil".into()),
        ChannelBinding::None,
        "rOprNGfwEbeRWgbNEkqO".to_owned(),
        "user",
    )
}

fn server(password: &str) -> ServerExchange {
    let verifier = Verifier::from_password(&password.into(), &SALT, 4096).expect("in range");
    let nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned();
    ServerExchange::with_text_nonce(verifier, false, None, nonce)
}

#[test]
fn client_role() {
    let mut client = client();
    assert_eq!(client.first_message(), CLIENT_FIRST);
    assert_eq!(client.respond(SERVER_FIRST).as_deref(), Ok(CLIENT_FINAL));
    assert!(!client.is_done());
    assert_eq!(client.on_server_final(SERVER_FINAL), Ok(()));
    assert!(client.is_done());
}

#[test]
fn server_role() {
    let mut server = server("pencil");
    let first = server.on_client_first(Mechanism::ScramSha256, CLIENT_FIRST);
    assert_eq!(first.as_deref(), Ok(SERVER_FIRST));
    let accepted = server.on_client_final(CLIENT_FINAL).expect("right proof");
    assert_eq!(accepted.server_final, SERVER_FINAL);
    let parameters = KeyParameters::new(SALT, 4096).expect("in range");
    assert_eq!(accepted.parameters, parameters);
}

#[test]
fn server_role_refuses_the_proof_of_another_password() {
    let mut server = server("pencils");
    assert!(server.on_client_first(Mechanism::ScramSha256, CLIENT_FIRST).is_ok());
    let refused = server.on_client_final(CLIENT_FINAL);
    assert_eq!(refused.err(), Some(AuthError::WrongPassword));
}

#[test]
fn client_role_refuses_another_signature() {
    for (last, error) in [
        (&b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="[..], AuthError::ServerNotAuthentic),
        (b"v=6rri", AuthError::ServerNotAuthentic),
        (b"v=", AuthError::ServerNotAuthentic),
        (b"e=invalid-proof", AuthError::WrongPassword),
        (b"e=unknown-user\xff\x1b[2J", AuthError::Refused("unknown-user??[2J".to_owned())),
        (b"", AuthError::Protocol("server-final has no signature")),
    ] {
        let mut client = client();
        assert!(client.respond(SERVER_FIRST).is_ok());
        assert_eq!(client.on_server_final(last), Err(error));
        assert!(!client.is_done());
        // An exchange that failed stays failed, even when the right signature follows.
        assert!(client.on_server_final(SERVER_FINAL).is_err());
    }
}
