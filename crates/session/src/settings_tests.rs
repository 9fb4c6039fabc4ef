//! Settings as they are kept, and as they are put on a server.

use super::*;

fn set(pairs: &[(&str, &str)]) -> Settings {
    Settings::from_pairs(pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect()).expect("small")
}

#[test]
fn startup_and_options() {
    let p: [(&[u8], &[u8]); 5] = [
        (b"user", b"u"),
        (b"options", b"-c work_mem=1MB --search-path=a,\\ b -cgeqo=off"),
        (b"DateStyle", b"ISO"),
        (b"work_mem", b"2MB"),
        (b"_pq_.x", b"1"),
    ];
    let s = Settings::from_startup(p.iter().copied()).expect("valid");
    assert_eq!(
        s.iter().collect::<Vec<_>>(),
        [("datestyle", "ISO"), ("geqo", "off"), ("search_path", "a, b"), ("work_mem", "2MB")]
    );
    let s = set(&[("Standard_Conforming_Strings", "of"), ("client_encoding", "SJIS")]);
    assert_eq!(s.reading(), (Some(false), Some(false)));
    assert_eq!(set(&[("standard_conforming_strings", "TRUE")]).reading(), (Some(true), None));
    let p: [(&[u8], &[u8]); 1] = [(b"options", b"-B 10")];
    assert_eq!(Settings::from_startup(p.iter().copied()), Err(SettingsError::Switch("-B".into())));
}

#[test]
fn replay_changes_only_what_differs() {
    let a = set(&[("a", "1"), ("b", "x"), ("app.c", "q")]);
    let b = set(&[("A", "1"), ("b", "it's\\"), ("d", "")]);
    assert_eq!(b.replay(&a), "RESET \"app\".\"c\";SET \"b\" TO E'it''s\\\\';SET \"d\" TO '';");
    for (from, to, query) in [
        (&[][..], &[("search_path", "a")][..], true),
        (&[("search_path", "a")], &[("search_path", "a"), ("b", "1")], false),
        (&[("search_path", "a")], &[], false),
        (&[], &[("a", "\u{e9}")], true),
        (&[("role", "\u{e9}")], &[("role", "\u{e9}"), ("b", "1")], true),
        (&[("role", "\u{e9}")], &[("role", "\u{e9}")], false),
    ] {
        let (from, to) = (set(from), set(to));
        assert_eq!(to.replays_by_query(&from), query, "{to:?}");
        assert_eq!(to.replay(&from).contains("SELECT"), query, "{to:?}");
    }
    assert_eq!(set(&[("a", "\u{e9}")]).replay(&set(&[])), "SELECT pg_catalog.set_config('a',E'\\U000000e9',false);");
    let role = set(&[("role", "r"), ("work_mem", "1MB")]);
    assert_eq!(
        role.replay(&set(&[("session_authorization", "s"), ("role", "q"), ("work_mem", "2MB")])),
        "RESET SESSION AUTHORIZATION;RESET ROLE;SET \"work_mem\" TO '1MB';SET \"role\" TO 'r';"
    );
    assert!(!role.replays_surely(&set(&[])) && !set(&[]).replays_surely(&role));
    let own = set(&[("app.c", "q"), ("TimeZone", "UTC")]);
    assert!(own.replays_surely(&set(&[])) && set(&[]).replays_surely(&own) && !a.replays_surely(&set(&[])));
    assert!(!set(&[("plpgsql.variable_conflict", "error")]).replays_surely(&set(&[])));
    for (value, sure) in [("0", true), ("500", false), ("2000", true), ("5s", true), ("900ms", false), ("x", false)] {
        assert_eq!(set(&[("statement_timeout", value)]).replays_surely(&set(&[])), sure, "{value}");
    }
    let iso = set(&[("DateStyle", "ISO")]);
    assert_eq!(iso.replay(&set(&[("datestyle", "German, DMY")])), "RESET \"datestyle\";SET \"datestyle\" TO 'ISO';");
    assert!(is_half("DateStyle", "ymd") && is_half("datestyle", "ISO") && is_half("datestyle", "default"));
    assert!(!is_half("datestyle", "iso, european") && !is_half("timezone", "UTC"));
    let short = set(&[("statement_timeout", "1"), ("role", "r"), ("timezone", "UTC")]);
    assert_eq!(
        short.replay(&set(&[])),
        "SET \"timezone\" TO 'UTC';SET \"role\" TO 'r';SET \"statement_timeout\" TO '1';"
    );
    let path = set(&[("search_path", "a,b")]);
    assert_eq!(path.replay(&set(&[])), "SELECT pg_catalog.set_config('search_path','a,b',false);");
    assert_eq!(a.replay(&a), "");
    assert_eq!(set(&[]).replay(&a), "RESET \"a\";RESET \"app\".\"c\";RESET \"b\";");
}

#[test]
fn interned_sets_are_one_and_forgotten_ones_are_dropped() {
    let interner = Interner::default();
    let a = interner.intern(set(&[("a", "1")]));
    let b = interner.intern(set(&[("a", "1")]));
    assert!(a.same(&b) && !a.same(&interner.intern(set(&[("a", "2")]))));
    for i in 0..10_000 {
        drop(interner.intern(set(&[("n", &i.to_string())])));
    }
    assert!(interner.sets.lock().expect("lock").known.len() < 200);
    assert!(a.same(&interner.intern(set(&[("a", "1")]))));
}

#[test]
fn limits_in_time() {
    for (text, milliseconds) in [
        ("0", 0),
        ("1500", 1_500),
        (" 2 s ", 2_000),
        ("1.5s", 1_500),
        ("10min", 600_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1600us", 2),
        ("400us", 0),
        ("0x10", 16),
        ("010 s", 8_000),
        ("0.5min", 30_000),
        ("1e3", 1_000),
        ("-1", 0),
        ("nan", 0),
        ("s", 0),
        ("5 years", 0),
        ("", 0),
    ] {
        assert_eq!(duration(text), Duration::from_millis(milliseconds), "{text}");
    }
    assert_eq!(set(&[("Idle_Session_Timeout", "1s")]).idle_limit(), Some(Duration::from_secs(1)));
    assert_eq!(set(&[("a", "1s")]).idle_limit(), None);
}
