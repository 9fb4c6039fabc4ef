//! Both SCRAM roles against each other: every password, salt, iteration count and kind of binding.

use pgusher_auth::{
    Accepted, AuthError, BindingPolicy, CertificateHash, ChannelBinding, ClientExchange, Credential, DerivationCache,
    MockSecret, OfferedMechanisms, Password, RAW_NONCE_LEN, ServerExchange, Step, Transport, Verifier,
};
use proptest::prelude::*;

const CLIENT_NONCE: [u8; RAW_NONCE_LEN] = [1; RAW_NONCE_LEN];
const SERVER_NONCE: [u8; RAW_NONCE_LEN] = [2; RAW_NONCE_LEN];

/// Runs one login to its end and gives both sides' results.
fn login(client: &mut ClientExchange, server: &mut ServerExchange) -> Result<Accepted, AuthError> {
    let server_first = server.on_client_first(client.mechanism(), &client.first_message())?;
    let client_final = client.respond(&server_first)?;
    let accepted = server.on_client_final(&client_final)?;
    client.on_server_final(&accepted.server_final)?;
    assert!(client.is_done());
    assert_eq!(client.is_channel_bound(), accepted.channel_bound);
    Ok(accepted)
}

fn with_password(password: &Password, binding: ChannelBinding) -> ClientExchange {
    ClientExchange::new(Credential::Password(password.clone()), binding, &CLIENT_NONCE)
}

fn hash() -> CertificateHash {
    CertificateHash::from_bytes([9; 32])
}

fn verifier(password: &str) -> Verifier {
    Verifier::from_password(&password.into(), b"0123456789abcdef", 64).expect("in range")
}

fn passwords() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[ -~]{1,20}".prop_map(String::into_bytes),
        "\\PC{1,20}".prop_map(String::into_bytes),
        any::<String>().prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..300),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_right_password_logs_in_and_its_keys_do_again(
        password in passwords(),
        salt in prop::collection::vec(any::<u8>(), 1..=1024),
        iterations in 1u32..200,
        bound in any::<bool>(),
    ) {
        let password = Password::new(password);
        let verifier = Verifier::from_password(&password, &salt, iterations).expect("in range");
        let (binding, offered) = match bound {
            true => (ChannelBinding::EndPoint(hash()), Some(hash())),
            false => (ChannelBinding::None, None),
        };
        let mut server = ServerExchange::new(verifier.clone(), offered.clone(), &SERVER_NONCE);
        let mut client = with_password(&password, binding.clone());
        let accepted = login(&mut client, &mut server).expect("right password");
        prop_assert!(verifier.accepts(&accepted.keys));
        prop_assert_eq!(accepted.channel_bound, bound);

        // What the manager does: it becomes the client of a server with the same verifier.
        let credential = Credential::Keys {
            keys: accepted.keys,
            made_with: Some(accepted.parameters),
        };
        let mut client = ClientExchange::new(credential, binding, &[3; RAW_NONCE_LEN]);
        let mut server = ServerExchange::new(verifier, offered, &[4; RAW_NONCE_LEN]);
        login(&mut client, &mut server).expect("right keys");
    }

    #[test]
    fn another_password_does_not(
        right in "[a-z]{1,8}",
        wrong in passwords(),
        iterations in 1u32..50,
    ) {
        prop_assume!(right.as_bytes() != wrong);
        // Only ASCII is sure to be something else after SASLprep.
        prop_assume!(wrong.is_ascii());
        let verifier = Verifier::from_password(&right.as_str().into(), b"salt", iterations)
            .expect("in range");
        let mut server = ServerExchange::new(verifier, None, &SERVER_NONCE);
        let mut client = with_password(&Password::new(wrong), ChannelBinding::None);
        prop_assert_eq!(login(&mut client, &mut server).err(), Some(AuthError::WrongPassword));
    }

    #[test]
    fn verifiers_survive_their_text_form(
        password in passwords(),
        salt in prop::collection::vec(any::<u8>(), 1..=1024),
        iterations in 1u32..20,
    ) {
        let verifier = Verifier::from_password(&Password::new(password), &salt, iterations)
            .expect("in range");
        let read = Verifier::parse(verifier.to_text().as_bytes()).expect("own text");
        prop_assert_eq!(read, verifier);
    }
}

#[test]
fn passwords_that_saslprep_makes_equal_are_one() {
    let mut server = ServerExchange::new(verifier("IX a b"), None, &SERVER_NONCE);
    let typed = Password::from("\u{2168}\u{ad} \u{aa}\u{a0}b");
    assert!(login(&mut with_password(&typed, ChannelBinding::None), &mut server).is_ok());
}

#[test]
fn an_unknown_user_looks_known_until_the_end() {
    let secret = MockSecret::new([7; 32]);
    let salts: Vec<Vec<u8>> = [&b"alice"[..], b"alice", b"bob"]
        .iter()
        .map(|user| {
            let mut server = ServerExchange::mock(&secret, user, 64, None, &SERVER_NONCE).expect("in range");
            let mut client = with_password(&"any".into(), ChannelBinding::None);
            let first =
                server.on_client_first(client.mechanism(), &client.first_message()).expect("as for a known user");
            let last = client.respond(&first).expect("as from a known user");
            let refused = server.on_client_final(&last).err();
            assert_eq!(refused, Some(AuthError::WrongPassword));
            first
        })
        .collect();
    assert_eq!(salts[0], salts[1], "one name, one salt");
    assert_ne!(salts[0], salts[2], "two names, two salts");

    let mut known = ServerExchange::new(verifier("x"), None, &SERVER_NONCE);
    let client = with_password(&"any".into(), ChannelBinding::None);
    let first = known.on_client_first(client.mechanism(), &client.first_message()).expect("well formed");
    assert_eq!(first.len(), salts[0].len(), "same shape as a known user's");
}

#[test]
fn invented_salts_depend_on_the_process_secret() {
    let secret = MockSecret::new([7; 32]);
    let other = MockSecret::new([8; 32]);
    let salt = |secret: &MockSecret| secret.parameters(b"alice", 64).expect("in range");
    assert_ne!(salt(&secret), salt(&other), "the secret matters");
    assert!(secret.parameters(b"alice", 0).is_err());
}

#[test]
fn keys_made_with_another_salt_are_not_tried() {
    let mut server = ServerExchange::new(verifier("a"), None, &SERVER_NONCE);
    let mut client = with_password(&"a".into(), ChannelBinding::None);
    let accepted = login(&mut client, &mut server).expect("right password");

    let changed = Verifier::from_password(&"a".into(), b"another salt", 64).expect("in range");
    for (made_with, error) in [(Some(accepted.parameters), AuthError::KeysDoNotFit), (None, AuthError::WrongPassword)] {
        let keys = accepted.keys.clone();
        let credential = Credential::Keys { keys, made_with };
        let mut client = ClientExchange::new(credential, ChannelBinding::None, &CLIENT_NONCE);
        let mut server = ServerExchange::new(changed.clone(), None, &SERVER_NONCE);
        assert_eq!(login(&mut client, &mut server).err(), Some(error));
    }
}

#[test]
fn a_derivation_can_be_cached_and_travel() {
    let mut cache = DerivationCache::new(4, [5; 32]);
    let verifier = verifier("secret");
    for round in 0..3 {
        let mut server = ServerExchange::new(verifier.clone(), None, &[round; RAW_NONCE_LEN]);
        let mut client = with_password(&"secret".into(), ChannelBinding::None);
        let first = server.on_client_first(client.mechanism(), &client.first_message()).expect("well formed");
        let Ok(Step::Derive(derivation)) = client.on_server_first(&first) else {
            panic!("a password needs a derivation");
        };
        let keys = match cache.get(&derivation) {
            Some(keys) => keys,
            None => {
                let (derivation, keys) = std::thread::spawn(move || {
                    let keys = derivation.run();
                    (derivation, keys)
                })
                .join()
                .expect("no panic");
                cache.insert(&derivation, keys.clone());
                keys
            }
        };
        let last = client.on_keys(&keys).expect("in turn");
        assert!(server.on_client_final(&last).is_ok());
    }
    assert_eq!((cache.stats().hits, cache.stats().misses), (2, 1));
}

#[test]
fn somebody_in_the_middle_is_noticed() {
    // Another certificate.
    let mut server = ServerExchange::new(verifier("a"), Some(hash()), &SERVER_NONCE);
    let seen = CertificateHash::from_bytes([8; 32]);
    let mut client = with_password(&"a".into(), ChannelBinding::EndPoint(seen));
    let error = login(&mut client, &mut server).expect_err("another certificate");
    assert_eq!(error.sqlstate(), "28000");
    assert!(matches!(error, AuthError::ChannelBinding(_)));

    // The offer of PLUS was removed on its way to the client.
    let mut server = ServerExchange::new(verifier("a"), Some(hash()), &SERVER_NONCE);
    let mut client = with_password(&"a".into(), ChannelBinding::NotOffered);
    let error = login(&mut client, &mut server).expect_err("downgrade");
    assert!(matches!(error, AuthError::ChannelBinding(_)));

    // Nobody in the middle: the same flag is right when nothing was offered, and a client without
    // binding may come although it was.
    let mut server = ServerExchange::new(verifier("a"), None, &SERVER_NONCE);
    let mut client = with_password(&"a".into(), ChannelBinding::NotOffered);
    assert!(login(&mut client, &mut server).is_ok());
    let mut server = ServerExchange::new(verifier("a"), Some(hash()), &SERVER_NONCE);
    let mut client = with_password(&"a".into(), ChannelBinding::None);
    assert!(login(&mut client, &mut server).is_ok());
}

#[test]
fn binding_is_chosen_as_libpq_chooses_it() {
    use BindingPolicy::{Disable, Prefer, Require};
    let plain = OfferedMechanisms::parse(b"SCRAM-SHA-256\0\0");
    let both = OfferedMechanisms::parse(b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    let neither = OfferedMechanisms::parse(b"OAUTHBEARER\0\0");
    assert_eq!(both.body(), b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    assert_eq!(plain.body(), b"SCRAM-SHA-256\0\0");
    let tls = || Transport::Tls(Ok(hash()));
    let undefined = || Transport::Tls(Err(AuthError::Unsupported("Ed25519")));
    let end_point = || ChannelBinding::EndPoint(hash());

    for (offered, transport, policy, expected) in [
        (plain, Transport::Plain, Prefer, Some(ChannelBinding::None)),
        (plain, Transport::Plain, Disable, Some(ChannelBinding::None)),
        (plain, Transport::Plain, Require, None),
        (plain, tls(), Prefer, Some(ChannelBinding::NotOffered)),
        (plain, tls(), Disable, Some(ChannelBinding::None)),
        (plain, tls(), Require, None),
        (both, tls(), Prefer, Some(end_point())),
        (both, tls(), Require, Some(end_point())),
        (both, tls(), Disable, Some(ChannelBinding::None)),
        (both, Transport::Plain, Prefer, None),
        (both, undefined(), Prefer, None),
        (both, undefined(), Disable, Some(ChannelBinding::None)),
        (plain, undefined(), Prefer, Some(ChannelBinding::NotOffered)),
        (neither, tls(), Prefer, None),
        (neither, Transport::Plain, Disable, None),
    ] {
        let chosen = ChannelBinding::choose(offered, transport.clone(), policy);
        assert_eq!(chosen.ok(), expected, "{offered:?} {transport:?} {policy:?}");
    }
}

#[test]
fn nothing_secret_is_printed() {
    let password = Password::from("hunter2");
    let verifier = verifier("hunter2");
    let text = verifier.to_text();
    let key_text = text.rsplit(':').next().expect("a key");
    let mut server = ServerExchange::new(verifier.clone(), None, &SERVER_NONCE);
    let mut client = with_password(&password, ChannelBinding::None);
    let mut printed = format!("{client:?}{server:?}{verifier:?}");
    let first = server.on_client_first(client.mechanism(), &client.first_message()).expect("well formed");
    let step = client.on_server_first(&first).expect("well formed");
    printed += &format!("{step:?}{client:?}");
    let Step::Derive(derivation) = step else {
        panic!("a password needs a derivation");
    };
    let last = client.on_keys(&derivation.run()).expect("in turn");
    printed += &format!("{derivation:?}{client:?}{server:?}");
    let accepted = server.on_client_final(&last).expect("right password");
    printed += &format!("{accepted:?}{:?}{:?}", accepted.keys, accepted.parameters);

    assert!(!printed.contains("hunter2") && !printed.contains(key_text));
    // Neither as an array of numbers.
    for bytes in
        [&accepted.keys.client_key()[..], &accepted.keys.server_key()[..], &accepted.server_final, &last, b"hunter2"]
    {
        let list = format!("{bytes:?}");
        assert!(!printed.contains(list.trim_matches(['[', ']'])), "{printed}");
    }
}
