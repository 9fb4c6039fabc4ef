//! What connection strings mean together with an environment, and which combinations are refused.

use super::*;

fn resolve(text: &str) -> Result<Config> {
    Config::resolve(Params::parse(text).unwrap(), &Environment::empty().with_user("os"))
}

fn hosts(text: &str) -> Vec<String> {
    resolve(text).unwrap().hosts.iter().map(Host::to_string).collect()
}

fn refusal(text: &str) -> String {
    resolve(text).unwrap_err().to_string()
}

#[test]
fn host_lists() {
    assert_eq!(hosts("host=a,b port=1,2"), ["a:1", "b:2"]);
    assert_eq!(hosts("host=a,b port=7"), ["a:7", "b:7"]);
    assert_eq!(hosts("host=a,b port=,2"), ["a:5432", "b:2"]);
    assert_eq!(hosts("host=/run/pg,@abs,::1 port=1"), ["/run/pg/.s.PGSQL.1", "@abs/.s.PGSQL.1", "[::1]:1"]);
    assert_eq!(hosts("hostaddr=127.0.0.1"), ["127.0.0.1:5432"]);
    assert_eq!(hosts("host=name hostaddr=127.0.0.1"), ["name:5432"]);
    assert!(refusal("host=a,b port=1,2,3").contains("could not match 3 port numbers to 2 hosts"));
    assert!(refusal("host=a,b hostaddr=1.1.1.1").contains("could not match 2 host names to 1 hostaddr values"));
    assert!(refusal("host=a port=0").contains("invalid port number \"0\""));
    assert!(refusal("host=a port=65536").contains("65536"));
    assert!(refusal("hostaddr=name").contains("numeric"));
}

#[test]
fn names_default_to_the_user() {
    let config = resolve("host=a").unwrap();
    assert_eq!((config.user.as_str(), config.dbname.as_str()), ("os", "os"));
    assert_eq!(resolve("host=a user=me").unwrap().dbname, "me");
    let nobody = Config::resolve(Params::new(), &Environment::empty());
    assert!(nobody.unwrap_err().to_string().contains("no user name"));
}

#[test]
fn sslmode_rules() {
    assert_eq!(resolve("host=a").unwrap().tls.mode, SslMode::Prefer);
    assert_eq!(resolve("host=a sslrootcert=system").unwrap().tls.mode, SslMode::VerifyFull);
    assert!(refusal("host=a sslrootcert=system sslmode=require").contains("weak sslmode"));
    assert!(refusal("host=a sslnegotiation=direct").contains("weak sslmode"));
    assert!(resolve("host=a sslnegotiation=direct sslmode=require").is_ok());
    assert!(refusal("host=a sslmode=yes").contains("verify-ca"));
    assert!(refusal("host=a ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2").contains("range"));
}

#[test]
fn what_is_not_there_is_refused_only_if_required() {
    assert!(refusal("host=a gssencmode=require").contains("GSS"));
    for fine in ["gssencmode=prefer", "krbsrvname=x", "oauth_issuer=x", "sslcompression=1", "gssdelegation=1"] {
        assert!(resolve(&format!("host=a {fine}")).is_ok(), "{fine}");
    }
}

#[test]
fn startup_parameters() {
    let environment =
        Environment::empty().with_user("os").with_variable("PGTZ", "UTC").with_variable("PGAPPNAME", "env");
    let params = Params::parse("fallback_application_name=f client_encoding=auto options='-c a=b'").unwrap();
    let mut config = Config::resolve(params, &environment).unwrap();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let expected = [
        pair("options", "-c a=b"),
        pair("application_name", "env"),
        pair("client_encoding", "UTF8"),
        pair("timezone", "UTC"),
    ];
    assert_eq!(config.parameters, expected);
    config.set_parameter("application_name", "mine");
    assert_eq!(config.parameters.iter().filter(|(name, _)| name == "application_name").count(), 1);
}

#[test]
fn numbers_and_versions() {
    let config =
        resolve("host=a connect_timeout=3 tcp_user_timeout=500 keepalives=0 max_protocol_version=latest").unwrap();
    assert_eq!(config.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(config.tcp.user_timeout, Some(Duration::from_millis(500)));
    assert!(!config.tcp.keepalives);
    assert_eq!(config.protocol, (Version::V3_0, Version::V3_2));
    for unlimited in ["0", "-1"] {
        assert_eq!(resolve(&format!("host=a connect_timeout={unlimited}")).unwrap().connect_timeout, None);
    }
    assert!(refusal("host=a connect_timeout=soon").contains("\"soon\""));
    assert!(refusal("host=a min_protocol_version=3.2 max_protocol_version=3.0").contains("greater"));
    assert!(refusal("host=a max_protocol_version=3.1").contains("3.2"));
}

#[test]
fn debug_hides_the_password() {
    assert!(!format!("{:?}", resolve("host=a password=hunter2").unwrap()).contains("hunter2"));
}

mod nothing_panics {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn on_any_text(text in any::<String>()) {
            if let Ok(params) = Params::parse(&text) {
                let _ = Config::resolve(params, &Environment::empty().with_user("u"));
            }
        }

        #[test]
        fn on_text_that_looks_right(text in "(postgres(ql)?://)?([a-z%0-9@:/?,&='\\\\ \\[\\]]|host=|port=|sslmode=|user=){0,30}") {
            if let Ok(params) = Params::parse(&text) {
                let _ = Config::resolve(params, &Environment::empty().with_user("u"));
            }
        }

        #[test]
        fn and_a_quoted_value_comes_back(value in "[^\0]{0,40}") {
            let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
            let params = Params::parse(&format!("host='{quoted}'")).unwrap();
            prop_assert_eq!(params.get(Keyword::Host), Some(value.as_str()));
        }
    }
}
