//! `pgusher demo` as a program, in short: what it leaves and what it takes away again.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use support::{Program, err, interrupt, json, refused, start, succeeded};

const DEMO: Program = Program(&["demo"]);

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = DEMO.command(arguments);
    command.current_dir(folder);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("it runs")
}

#[test]
fn a_table_a_page_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["-T", "0.2", "-c", "4", "--json", "numbers.json"]);
    let (text, progress) = (succeeded(&output), err(&output));
    assert!(progress.contains("1/6 starting a private PostgreSQL") && progress.contains("6/6"), "{progress}");
    assert!(!text.contains('\u{1b}'), "colours without a terminal");
    let page = text.lines().last().and_then(|l| l.strip_prefix("report: ")).expect("the path comes last");
    assert!(page.ends_with(".html"), "{page}");
    let html = fs::read_to_string(page).expect("the page");
    for part in ["At a glance", "queue+fork", "prepared, managed", "a connection per transaction", "</html>"] {
        assert!(html.contains(part), "{part}");
    }
    let mut left: Vec<String> = fs::read_dir(folder.path())
        .expect("the folder")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left.len(), 2, "{left:?}");
    let json = json(&fs::read_to_string(folder.path().join("numbers.json")).expect("there"));
    for side in 0..2 {
        assert_eq!(json["connections"][side]["samples"].as_array().map(Vec::len), Some(40));
    }
    assert_eq!(json["protocols"].as_array().map(Vec::len), Some(6));
    for series in json["protocols"].as_array().into_iter().flatten() {
        assert_eq!(series["runs_us"].as_array().map(Vec::len), Some(20), "{series}");
    }
    assert_eq!(json["reconnect"]["cells"].as_array().map(Vec::len), Some(4));
}

#[test]
fn files_are_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("mine.html"), "mine").expect("written");
    refused(&run(folder.path(), &["-o", "mine.html"]), "--force");
    assert_eq!(fs::read_to_string(folder.path().join("mine.html")).expect("there"), "mine");
    // Said before the minute of measuring, not after it.
    let output = run(folder.path(), &["-o", "no such folder/x.html"]);
    refused(&output, "cannot write no such folder/x.html");
    assert!(!err(&output).contains("1/6"), "{}", err(&output));
}

#[test]
fn interrupted_it_takes_everything_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command(folder.path(), &["-T", "30"]);
    // A folder like /tmp for its temporary files that nobody else uses, short enough for a socket.
    let private = tempfile::Builder::new().prefix("pgd").tempdir_in("/tmp").expect("a folder");
    fs::set_permissions(private.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).expect("allowed");
    command.env("TMPDIR", private.path());
    let mut process = start(command);
    let stderr = process.child().stderr.take().expect("a pipe");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    // Until the long part, where server and manager run.
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("5/6"))), "it never got there");
    std::thread::sleep(Duration::from_millis(700));
    let text = interrupt(process);
    assert!(text.contains("first connection after a restart") && text.contains("It was interrupted"), "{text}");
    // At the end of the program, not some time after it: nothing here depends on how busy the machine is.
    let left: Vec<_> = fs::read_dir(private.path()).expect("the folder").map(|e| e.expect("an entry").path()).collect();
    assert!(left.is_empty(), "{left:?}");
}
