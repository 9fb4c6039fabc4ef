//! The three formats on lines as servers write them, and on lines that nobody should have to write.

use std::fs;
use std::io::Write;

use proptest::prelude::*;

use super::file::FileSource;
use super::*;

const STEPS: [Part; 3] = [Part::Parse, Part::Bind, Part::Execute];

fn stderr(prefix: &str, text: &str) -> Parsed {
    LogFormat::Stderr.read(text, &Prefix::parse(prefix))
}

fn none() -> Prefix {
    Prefix::parse("")
}

/// An entry of a duration in the stderr format with the prefix `%m [%p] %a `.
fn line(pid: u32, application: &str, message: &str) -> String {
    format!("2026-11-21 22:12:03.123 UTC [{pid}] {application} LOG:  {message}\n")
}

const PREFIX: &str = "%m [%p] %a ";

#[test]
fn prefixes_of_many_shapes() {
    for (prefix, start, pid, application) in [
        ("%m [%p] ", "2026-11-21 22:12:03.123 UTC [42] ", Some(42), None),
        (
            "%t [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
            "2026-11-21 22:12:03 +03 [42]: [7-1] user=u,db=d,app=an app,client=::1 ",
            Some(42),
            Some("an app"),
        ),
        ("%n %c %q%u@%d/%a ", "1795299123.123 6560f1a3.2a u@d/x ", Some(42), Some("x")),
        ("%m:%r:%u@%d:[%p]: ", "2026-11-21 22:12:03.123 CET:10.0.0.1(5432):u@d:[42]: ", Some(42), None),
        ("%-10p|%-8a|%e ", "42        |x       |00000 ", Some(42), Some("x")),
        ("%10p %8a ", "        42        x ", Some(42), Some("x")),
        ("<%p%%> %b %v %x %i ", "<42%> client backend 3/12 0 idle in transaction ", Some(42), None),
        ("%a%p ", "app4242 ", Some(4242), Some("app")),
        ("", "", None, None),
        ("%q%p ", "", None, None),
    ] {
        let parsed = stderr(prefix, &format!("{start}LOG:  duration: 1.5 ms\n"));
        assert_eq!(parsed.records.len(), 1, "{prefix}");
        let record = &parsed.records[0];
        assert_eq!((record.pid, record.application.as_deref()), (pid, application), "{prefix}");
        assert_eq!(Said::of(&record.message), Said::Duration { ms: 1.5, of: None }, "{prefix}");
    }
    assert!(Prefix::parse("%m [%p]").names_the_process() && Prefix::parse("%c").names_the_process());
    assert!(!Prefix::parse("%m %u %%p").names_the_process());
    assert!(Prefix::parse("%-5a").names_the_application());
}

#[test]
fn a_line_with_another_prefix_is_not_understood() {
    let parsed = stderr("%m [%p] ", "42 2026-11-21 22:12:03 UTC LOG:  duration: 1 ms\nsh: no such command\n");
    assert_eq!((parsed.records.len(), parsed.strange), (0, 2));
}

#[test]
fn a_message_of_several_lines_in_each_format() {
    let sql = "select 1,\n  'a;\t\"b\", c'";
    let text = line(7, "x", &format!("duration: 0.250 ms  statement: {}", sql.replace('\n', "\n\t")))
        + "2026-11-21 22:12:03.123 UTC [7] x DETAIL:  parameters: $1 = '\n\tnot the statement'\n"
        + "2026-11-21 22:12:03.124 UTC [7] x ERROR:  division by zero\n"
        + "2026-11-21 22:12:03.124 UTC [7] x STATEMENT:  select 1/0\n";
    let csv_message = format!("duration: 0.250 ms  statement: {sql}").replace('"', "\"\"");
    let csv = format!(
        "2026-11-21 22:12:03.123 UTC,\"u\",\"d\",7,\"[local]\",69208a03.7,3,\"SELECT\",2026-11-21 22:12:03 UTC,3/5,0,LOG,00000,\"{csv_message}\",,,,,,,,,\"x\",\"client backend\",,0\n\
         2026-11-21 22:12:03.124 UTC,\"u\",\"d\",7,\"[local]\",69208a03.7,4,\"SELECT\",2026-11-21 22:12:03 UTC,3/5,0,ERROR,22012,\"division by zero\",,,,,,\"select 1/0\",,,\"x\",\"client backend\",,0\n"
    );
    let json = format!(
        "{}\n{}\n",
        serde_json::json!({"timestamp": "2026-11-21 22:12:03.123 UTC", "pid": 7, "session_id": "69208a03.7",
            "error_severity": "LOG", "application_name": "x",
            "message": format!("duration: 0.250 ms  statement: {sql}")}),
        serde_json::json!({"timestamp": "2026-11-21 22:12:03.124 UTC", "pid": 7, "session_id": "69208a03.7",
            "error_severity": "ERROR", "application_name": "x", "message": "division by zero"}),
    );
    for (format, text) in [(LogFormat::Stderr, &text), (LogFormat::Csvlog, &csv), (LogFormat::Jsonlog, &json)] {
        assert_eq!(LogFormat::of_content(text), format);
        let parsed = format.read(text, &Prefix::parse(PREFIX));
        assert_eq!((parsed.records.len(), parsed.strange, parsed.unfinished), (2, 0, 0), "{format:?}: {parsed:?}");
        let record = &parsed.records[0];
        let said = Said::Duration { ms: 0.25, of: Some((Part::Statement, sql.to_owned())) };
        assert_eq!(Said::of(&record.message), said, "{format:?}");
        assert_eq!((record.pid, record.known_application()), (Some(7), Some("x")), "{format:?}");
        assert!(parsed.records[1].is_error());
        let apart = parsed.records[1].time_ms.unwrap() - record.time_ms.unwrap();
        assert!((apart - 1.0).abs() < 1e-3, "{apart}");
        // Whatever is missing at its end, nothing is made up.
        for cut in 1..text.len() {
            let Some(part) = text.get(..cut) else { continue };
            let parsed = format.read(part, &Prefix::parse(PREFIX));
            let whole = [format!("duration: 0.250 ms  statement: {sql}"), "division by zero".to_owned()];
            for (record, message) in parsed.records.iter().zip(&whole) {
                let same = record.message == *message;
                // Only the stderr format does not say where a message ends.
                assert!(
                    same || format == LogFormat::Stderr && message.starts_with(&record.message),
                    "{cut}: {parsed:?}"
                );
            }
            assert!(parsed.unfinished > 0 || part.ends_with('\n'), "{format:?} {cut}");
        }
    }
}

#[test]
fn commas_alone_do_not_make_a_csvlog() {
    let columns = (0..30).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let text = format!("2026-11-21 22:12:03.123 UTC,42,u,d,LOG:  duration: 1 ms  statement: select {columns}\n");
    assert_eq!(LogFormat::of_content(&text), LogFormat::Stderr);
    assert_eq!(stderr("%m,%p,%u,%d,", &text).records[0].pid, Some(42));
}

#[test]
fn a_csvlog_that_was_begun_in_the_middle_of_a_record() {
    let record = "2026-11-21 22:12:03.123 UTC,\"u\",\"d\",7,\"[local]\",a.7,3,\"\",,,0,LOG,00000,\"hello\",,,,,,,,,\"x\",\"\",,0\n";
    let parsed =
        LogFormat::Csvlog.read(&format!("rest of a \"\"statement\"\n with, lines\",,\n{record}{record}"), &none());
    assert_eq!((parsed.records.len(), parsed.strange), (2, 2), "{parsed:?}");
}

#[test]
fn messages() {
    let duration = |ms, part, sql: &str| Said::Duration { ms, of: Some((part, sql.to_owned())) };
    for (message, said) in [
        ("duration: 0.418 ms  parse <unnamed>: select 1", duration(0.418, Part::Parse, "select 1")),
        ("duration: 1 ms  bind pgusher_1/portal: select ': '", duration(1.0, Part::Bind, "select ': '")),
        ("duration: 1 ms  execute fetch from c: select 1", duration(1.0, Part::Execute, "select 1")),
        ("duration: 1 ms  statement: begin; commit", duration(1.0, Part::Statement, "begin; commit")),
        ("duration: 2.000 ms", Said::Duration { ms: 2.0, of: None }),
        // auto_explain measures a part of Execute once more.
        ("duration: 2.000 ms  plan:\nQuery Text: select 1", Said::Other),
        ("duration: many ms", Said::Other),
        ("duration: inf ms", Said::Other),
        ("connection received: host=[local]", Said::Received),
        ("connection authenticated: identity=\"u\" method=md5 (x:1)", Said::Authenticated),
        (
            "connection authorized: user=u database=d application_name=an app SSL enabled (protocol=TLSv1.3, cipher=x, bits=256)",
            Said::Authorized(Some("an app".to_owned())),
        ),
        ("connection authorized: user=u database=d", Said::Authorized(None)),
        (
            "connection ready: setup total=2.345 ms, fork=0.400 ms, authentication=0.200 ms",
            Said::Ready { total: 2.345, fork: 0.4, authentication: 0.2 },
        ),
        ("connection ready: setup total=2.345 ms", Said::Other),
        ("disconnection: session time: 0:00:00.005 user=u", Said::Disconnection),
        ("checkpoint starting: time", Said::Other),
    ] {
        assert_eq!(Said::of(message), said, "{message}");
    }
}

#[test]
fn sessions_of_others_and_process_numbers_that_come_again() {
    let text = line(7, "[unknown]", "connection received: host=[local]")
        + &line(7, "other", "duration: 9 ms  statement: select 1")
        + &line(8, "other", "duration: 9 ms  statement: select 1")
        + &line(7, "[unknown]", "connection received: host=[local]")
        + &line(7, "[unknown]", "connection authorized: user=u database=d application_name=ours")
        + &line(8, "other", "duration: 9 ms  statement: select 1")
        + &line(7, "ours", "duration: 1 ms  statement: select 1")
        + &line(7, "[unknown]", "connection received: host=[local]")
        + &line(7, "ours", "duration: 2 ms  statement: select 1");
    let records = stderr(PREFIX, &text).records;
    let found = sessions(&records, "ours");
    assert_eq!(found.keys().collect::<Vec<_>>(), [&7]);
    let lengths: Vec<usize> = found[&7].iter().map(Vec::len).collect();
    assert_eq!(lengths, [3, 2]);
    assert_eq!(found[&7][1][1].said, Said::Duration { ms: 2.0, of: Some((Part::Statement, "select 1".to_owned())) });

    // With the server's identifiers no line that says where a session begins is needed.
    let identified = |session: &str, ms: u32| {
        format!("{session} other LOG:  duration: {ms} ms\n").replace("other", if ms > 5 { "other" } else { "ours" })
    };
    let text = identified("a.7", 9) + &identified("b.7", 1) + &identified("c.7", 9) + &identified("d.7", 2);
    let found = sessions(&stderr("%c %a ", &text).records, "ours");
    assert_eq!(found[&7].len(), 2);
    // Neither are lines without names lost, where the prefix has none.
    let text = "[7] LOG:  duration: 1 ms\n[7] LOG:  duration: 2 ms\n";
    assert_eq!(sessions(&stderr("[%p] ", text).records, "ours")[&7][0].len(), 2);
}

fn entries(text: &str) -> Vec<Entry> {
    sessions(&stderr("[%p] ", text).records, "ours").remove(&7).unwrap().remove(0).unwrap()
}

fn three(ms: u32, name: &str, sql: &str) -> String {
    ["parse", "bind", "execute"].map(|part| format!("[7] LOG:  duration: {ms} ms  {part} {name}: {sql}\n")).concat()
}

#[test]
fn runs_and_entries_are_walked_side_by_side() {
    let run = |sql, failed| Expected { parts: &STEPS, sql, failed };
    let text = "[7] LOG:  connection ready: setup total=2 ms, fork=0.5 ms, authentication=0.25 ms\n".to_owned()
        + &three(1, "<unnamed>", "select 1")
        + "[7] LOG:  duration: 1 ms  parse <unnamed>: select 1/0\n[7] ERROR:  division by zero\n"
        + &three(2, "<unnamed>", "select 2");
    let entries = entries(&text);
    let times = run_times(&entries, &[run("select 1", false), run("select 1/0", true), run("select  2", false)]);
    let totals: Vec<Option<f64>> = times.iter().map(|times| times.map(|times| times.total_us())).collect();
    assert_eq!(totals, [Some(3000.0), None, Some(6000.0)]);
    assert_eq!(times[2].unwrap().bind_us, Some(2000.0));
    let connect = connect_times(&entries);
    assert_eq!(
        (connect.setup_us, connect.fork_us, connect.authentication_us),
        (Some(2000.0), Some(500.0), Some(250.0))
    );

    // An entry of another statement: nothing is guessed from there on.
    let times = run_times(&entries, &[run("select 1", false), run("select 2", false), run("select 2", false)]);
    assert_eq!(times.iter().filter(|times| times.is_some()).count(), 1);
    // A log that was cut.
    let cut = entries.get(..3).unwrap();
    assert_eq!(run_times(cut, &[run("select 1", false)]), [None]);
}

#[test]
fn durations_without_text_are_taken_in_order() {
    let text = "[7] LOG:  duration: 1 ms\n[7] LOG:  duration: 2 ms\n[7] LOG:  duration: 4 ms\n";
    let run = Expected { parts: &STEPS, sql: "select 1", failed: false };
    let times = run_times(&entries(text), &[run]);
    assert_eq!(times[0].map(|t| (t.parse_us, t.bind_us, t.execute_us)), Some((Some(1e3), Some(2e3), Some(4e3))));
}

#[test]
fn rotation_is_followed_in_its_three_forms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.log");
    fs::write(&path, "old\n").unwrap();
    fs::write(folder.path().join("before.log"), "another log\n").unwrap();
    let mut source = FileSource::open(&path).unwrap();
    let mut more = || String::from_utf8(source.more().unwrap()).unwrap();
    let append = |path: &std::path::Path, text: &str| {
        fs::OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    };
    assert_eq!(more(), "");
    append(&path, "a\n");
    assert_eq!(more(), "a\n");
    // Renamed, with lines on both sides.
    append(&path, "b\n");
    fs::rename(&path, folder.path().join("server.log.1")).unwrap();
    append(&folder.path().join("server.log.1"), "c\n");
    append(&path, "d\n");
    assert_eq!(more(), "b\nc\nd\n");
    // A new name in the same folder; what has another suffix is none of it.
    append(&path, "e\n");
    append(&folder.path().join("server-2.log"), "f\n");
    append(&folder.path().join("server-2.csv"), "no\n");
    assert_eq!(more(), "e\nf\n");
    // Cut to nothing.
    append(&path, "g\n");
    assert_eq!(more(), "g\n");
    fs::write(&path, "h\n").unwrap();
    assert_eq!(more(), "h\n");
    assert_eq!(more(), "");
    assert!(FileSource::open(folder.path()).is_err());
}

proptest! {
    #[test]
    fn no_format_panics(text in "[\\[\\]\",{}:%\t\n0-9 -]{0,80}|\\PC{0,60}", prefix in "[%a-z\\[\\] 0-9-]{0,12}") {
        let prefix = Prefix::parse(&prefix);
        for format in [LogFormat::Stderr, LogFormat::Csvlog, LogFormat::Jsonlog] {
            let parsed = format.read(&text, &prefix);
            for record in &parsed.records {
                let _ = Said::of(&record.message);
            }
            let _ = sessions(&parsed.records, "x");
        }
        let _ = (LogFormat::of_content(&text), Said::of(&text));
    }

    #[test]
    fn damaged_logs_do_not_panic(at in 0usize..400, with in "\\PC{0,3}", keep in 0usize..400) {
        let text = line(7, "x", "duration: 1 ms  bind a: select\n\t1") + &line(7, "x", "connection ready: setup total=1 ms, fork=2 ms");
        let csv = "2026-11-21 22:12:03.123 UTC,\"u\",\"d\",7,,a.7,3,\"\",,,0,LOG,00000,\"duration: 1 ms  parse a: x\",,,,,,,,,\"x\",\"\",,0\n";
        for text in [text.as_str(), csv, "{\"pid\":7,\"message\":\"duration: 1 ms\"}\n"] {
            let cut = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let damaged = format!("{}{with}{}", &text[..cut(at)], &text[cut(keep)..]);
            for format in [LogFormat::Stderr, LogFormat::Csvlog, LogFormat::Jsonlog] {
                let _ = sessions(&format.read(&damaged, &Prefix::parse(PREFIX)).records, "x");
            }
        }
    }

    /// Whatever a name holds, the process behind it is found.
    #[test]
    fn names_with_anything_in_them(name in "[a-z\\[\\]:, %]{0,20}") {
        let text = format!("2026-11-21 22:12:03.123 UTC [42] {name} LOG:  x\n");
        let parsed = stderr("%m [%p] %a ", &text);
        prop_assert_eq!(parsed.records.len(), 1);
        prop_assert_eq!(parsed.records[0].pid, Some(42));
    }
}
