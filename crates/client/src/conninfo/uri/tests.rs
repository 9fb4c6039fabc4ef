//! What a URI means, case by case, and which ones are refused where. The cases cover those that PostgreSQL tests its
//! own library with; what is expected here was checked against libpq.

use super::super::Params;

/// Renders as `keyword='value' ...` in a fixed order.
fn shown(uri: &str) -> Result<String, (usize, String)> {
    match Params::parse(uri) {
        Ok(params) => {
            let parts: Vec<String> = params.iter().map(|(k, v)| format!("{}='{v}'", k.name())).collect();
            Ok(parts.join(" "))
        }
        Err(error) => Err((error.position().unwrap_or(0), error.to_string())),
    }
}

#[test]
fn accepted() {
    let cases: &[(&str, &str)] = &[
        (
            "postgresql://uri-user:secret@host:12345/db",
            "user='uri-user' password='secret' dbname='db' host='host' port='12345'",
        ),
        ("postgresql://uri-user@host:12345/db", "user='uri-user' dbname='db' host='host' port='12345'"),
        ("postgresql://uri-user@host/db", "user='uri-user' dbname='db' host='host'"),
        ("postgresql://host:12345/db", "dbname='db' host='host' port='12345'"),
        ("postgresql://host/db", "dbname='db' host='host'"),
        ("postgresql://uri-user@host:12345/", "user='uri-user' host='host' port='12345'"),
        ("postgresql://uri-user@host/", "user='uri-user' host='host'"),
        ("postgresql://uri-user@", "user='uri-user'"),
        ("postgresql://host:12345/", "host='host' port='12345'"),
        ("postgresql://host:12345", "host='host' port='12345'"),
        ("postgresql://host/", "host='host'"),
        ("postgresql://host", "host='host'"),
        ("postgresql://", ""),
        ("postgresql://?hostaddr=127.0.0.1", "hostaddr='127.0.0.1'"),
        ("postgresql://example.com?hostaddr=63.1.2.4", "host='example.com' hostaddr='63.1.2.4'"),
        ("postgresql://%68ost/", "host='host'"),
        ("postgresql://host/db?user=uri-user", "user='uri-user' dbname='db' host='host'"),
        ("postgresql://host/db?user=uri-user&port=12345", "user='uri-user' dbname='db' host='host' port='12345'"),
        ("postgresql://host/db?u%73er=other&port=12345", "user='other' dbname='db' host='host' port='12345'"),
        ("postgresql://host:12345?user=uri-user", "user='uri-user' host='host' port='12345'"),
        ("postgresql://host?user=uri-user", "user='uri-user' host='host'"),
        ("postgresql://host?", "host='host'"),
        ("postgresql://[::1]:12345/db", "dbname='db' host='::1' port='12345'"),
        ("postgresql://[::1]/db", "dbname='db' host='::1'"),
        ("postgresql://[2001:db8::1234]/", "host='2001:db8::1234'"),
        ("postgresql://[200z:db8::1234]/", "host='200z:db8::1234'"),
        ("postgresql://[::1]", "host='::1'"),
        ("postgres://", ""),
        ("postgres:///", ""),
        ("postgres:///db", "dbname='db'"),
        ("postgres://uri-user@/db", "user='uri-user' dbname='db'"),
        ("postgres://?host=/path/to/socket/dir", "host='/path/to/socket/dir'"),
        ("postgres://@host", "host='host'"),
        ("postgres://host:/", "host='host'"),
        ("postgres://:12345/", "port='12345'"),
        ("postgres://otheruser@?host=/no/such/directory", "user='otheruser' host='/no/such/directory'"),
        ("postgres://otheruser@:12345/db?host=/path", "user='otheruser' dbname='db' host='/path' port='12345'"),
        ("postgres://%2Fvar%2Flib%2Fpostgresql/dbname", "dbname='dbname' host='/var/lib/postgresql'"),
        ("postgres://host?sslmode=verify-full", "host='host' sslmode='verify-full'"),
        ("postgres://h?ssl=true", "host='h' sslmode='require'"),
        ("postgres://h1:1,h2:2,[::3]:3/db", "dbname='db' host='h1,h2,::3' port='1,2,3'"),
        ("postgres://h1,h2:2", "host='h1,h2' port=',2'"),
        ("postgres://u:p%40ss%3A@h", "user='u' password='p@ss:' host='h'"),
        ("postgres://u:@h", "user='u' host='h'"),
        ("postgres:// h /db", "dbname='db' host='h'"),
        ("postgres://h/a%20b", "dbname='a b' host='h'"),
        ("postgres://h?options=-c%20a%3Db&application_name=x", "host='h' options='-c a=b' application_name='x'"),
    ];
    for (uri, expected) in cases {
        assert_eq!(shown(uri).as_deref(), Ok(*expected), "{uri}");
    }
}

#[test]
fn refused_with_a_position() {
    let cases: &[(&str, usize, &str)] = &[
        ("postgresql://host/db?u%7aer=someotheruser&port=12345", 22, "\"uzer\""),
        ("postgresql://host?uzer=", 19, "did you mean \"user\"?"),
        ("postgre://", 1, "postgresql://"),
        ("postgres://[::1", 12, "\"]\""),
        ("postgres://[]", 12, "empty"),
        ("postgres://[::1]z", 17, "unexpected character"),
        ("postgresql://host?zzz", 19, "\"zzz\""),
        ("postgresql://host?value1&value2", 19, "\"value1\""),
        ("postgresql://host?key=key=value", 19, "second \"=\""),
        ("postgres://host?dbname=%XXfoo", 24, "percent"),
        ("postgresql://a%00b", 15, "%00"),
        ("postgresql://%zz", 14, "percent"),
        ("postgresql://%1", 14, "percent"),
        ("postgresql://%", 14, "percent"),
        ("postgresql://a b/", 15, "blank"),
        ("postgresql://%ff/", 14, "UTF-8"),
    ];
    for (uri, position, words) in cases {
        let (at, message) = shown(uri).unwrap_err();
        assert_eq!(at, *position, "{uri}: {message}");
        assert!(message.contains(words), "{uri}: {message}");
    }
}

#[test]
fn the_password_is_never_echoed() {
    for uri in [
        "postgres://me:hunter2@h?zzz",
        "postgres://me:hunter%2@h",
        "postgres://me:hunter2@[h",
        "postgres://h?password=hunter2&hunter2",
    ] {
        let (_, message) = shown(uri).unwrap_err();
        assert!(!message.contains("hunter"), "{message}");
    }
}
