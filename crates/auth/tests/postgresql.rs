//! Values made by others: verifiers and hashes by PostgreSQL 15, certificates by OpenSSL 3.

use pgusher_auth::{AuthError, CertificateHash, Password, StoredSecret, Verifier};

// Made with: create role a password 'pencil'; create role u password
// U&'gr\00FC\00DFe \2168 a\00A0b'; create role e password U&'\+01F600'; and, after
// set password_encryption = 'md5', create role m password 'pencil';
// read with: select rolname, rolpassword from pg_authid;
const SECRETS: [(&str, &str, &str); 4] = [
    (
        "a",
        "pencil",
        "SCRAM-SHA-256$4096:ZhWrNcmHQdGGKxlHiMoNXA==$4UZ/CJ8tzKchh6YAhmKYP+f9vKu006iEfkzYdxBs0sY=\
         :HHvfiAhRZ83dNCODw4Rn/uznQKON4S4tNKVlCpgNMEg=",
    ),
    (
        // Changed by SASLprep: a Roman numeral and a no-break space.
        "u",
        "gr\u{fc}\u{df}e \u{2168} a\u{a0}b",
        "SCRAM-SHA-256$4096:wJIF29oLG3vf8bJtkfnCqg==$UuSGWmue6HBMawD6RTaE5nJTDwMfHr4Bzv/ZQrCvLPg=\
         :bJEBuoXO7jt8BxfCEp/qnHGfTk09BkwoD5/vYpN61tU=",
    ),
    (
        // Prohibited by SASLprep, so used raw.
        "e",
        "\u{1f600}",
        "SCRAM-SHA-256$4096:9yhZFEqTl0T3mSN/GV5XEw==$GJpanVc5utXk29SS+hA7GJslsMm/0OikmBbaYtGRZMc=\
         :Qi5a7ot9c9C9x53PFJN/swxJzaos5T9qL2L4dM9SXeM=",
    ),
    ("m", "pencil", "md58bbf3f45673bf67d02e4214911f3417f"),
];

#[test]
fn postgresqls_secrets_verify() {
    for (user, password, text) in SECRETS {
        let stored = StoredSecret::parse(text.as_bytes());
        assert!(!matches!(stored, StoredSecret::Plain(_)), "{user}");
        let password = Password::from(password);
        assert_eq!(stored.verify_plain(user.as_bytes(), &password), Ok(()), "{user}");
        let wrong = stored.verify_plain(user.as_bytes(), &"pencil ".into());
        assert_eq!(wrong, Err(AuthError::WrongPassword), "{user}");
    }
}

#[test]
fn verifiers_are_made_as_postgresql_makes_them() {
    for (user, password, text) in SECRETS {
        let StoredSecret::Scram(theirs) = StoredSecret::parse(text.as_bytes()) else {
            continue;
        };
        let parameters = theirs.parameters();
        let ours = Verifier::from_password(&password.into(), parameters.salt(), parameters.iterations());
        assert_eq!(ours.expect("in range").to_text().as_str(), text, "{user}");
    }
}

/// Made with `openssl req -x509 -nodes -subj /CN=localhost -outform DER` and `-newkey rsa:2048 -md5`,
/// `-sigopt rsa_padding_mode:pss` and so on; the hashes begin as `openssl dgst -sha256 -r FILE` prints.
#[test]
fn certificates_are_hashed_as_rfc_5929_says() {
    for (name, certificate, len, begins) in [
        ("RSA, MD5", &include_bytes!("certificates/rsa_md5.der")[..], 32, "fdf3eaba9a0c79d6"),
        ("RSA, SHA-1", include_bytes!("certificates/rsa_sha1.der"), 32, "718fe88cfa56f488"),
        ("RSA, SHA-512", include_bytes!("certificates/rsa_sha512.der"), 64, "194c68c626bab5af"),
        ("PSS, default", include_bytes!("certificates/rsa_pss_default.der"), 32, "f5e62048d08d207f"),
        ("PSS, SHA-384", include_bytes!("certificates/rsa_pss_sha384.der"), 48, "7dd1cee8f7508bd9"),
        ("ECDSA, SHA-256", include_bytes!("certificates/ecdsa_sha256.der"), 32, "639ed45e60b42b85"),
        ("ECDSA, SHA-384", include_bytes!("certificates/ecdsa_sha384.der"), 48, "2df84ecd86937aa6"),
    ] {
        let hash = CertificateHash::of_der(certificate).expect(name);
        let hex: String = hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash.as_bytes().len(), len, "{name}");
        assert!(hex.starts_with(begins), "{name}: {hex}");

        // A certificate cut short is none, wherever it is cut.
        for end in 0..certificate.len() {
            assert!(CertificateHash::of_der(&certificate[..end]).is_err(), "{name}, {end}");
        }
    }
}

#[test]
fn ed25519_has_no_binding() {
    // libpq fails here too: "could not find digest for NID UNDEF".
    let error = CertificateHash::of_der(include_bytes!("certificates/ed25519.der"));
    assert!(matches!(error, Err(AuthError::Unsupported(_))));
}
