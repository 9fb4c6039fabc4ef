//! What is owed after what was sent and received, message by message.

use super::*;

fn run(sent: &[u8], received: &[(u8, u8)]) -> Ledger {
    let mut ledger = Ledger::new();
    for tag in sent {
        ledger.sent(*tag);
    }
    receive(&mut ledger, received);
    ledger
}

fn receive(ledger: &mut Ledger, received: &[(u8, u8)]) {
    for (tag, status) in received {
        let status = TxStatus::from_byte(*status).unwrap_or(TxStatus::Idle);
        ledger.received(*tag, status).unwrap_or_else(|e| panic!("unexpected {:?} with {ledger:?}", e.tag as char));
    }
}

fn tags(replies: &str) -> Vec<(u8, u8)> {
    replies.bytes().map(|b| (b, b'I')).collect()
}

#[test]
fn simple_query() {
    let mut ledger = run(b"Q", &tags("TDDC"));
    assert!(!ledger.is_clean() && ledger.is_busy());
    receive(&mut ledger, &tags("Z"));
    assert!(ledger.is_clean());
}

#[test]
fn a_transaction_is_not_clean() {
    let ledger = run(b"Q", &[(b'C', 0), (b'Z', b'T')]);
    assert!(!ledger.is_clean() && ledger.is_quiet());
}

#[test]
fn extended_batches_in_a_row() {
    let ledger = run(b"PBDESPBDES", &tags("12TDCZ12TDCZ"));
    assert!(ledger.is_clean());
}

#[test]
fn half_a_batch_is_not_clean_even_when_all_is_answered() {
    let mut ledger = run(b"PBEH", &tags("12C"));
    assert!(ledger.is_empty() && !ledger.is_clean());
    ledger.sent(b'S');
    receive(&mut ledger, &tags("Z"));
    assert!(ledger.is_clean());
}

#[test]
fn an_error_discards_up_to_sync_and_a_query_is_no_sync() {
    let mut ledger = run(b"PBEQPBES", &tags("1E"));
    assert_eq!(ledger.len(), 1);
    receive(&mut ledger, &tags("Z"));
    assert!(ledger.is_clean());
}

#[test]
fn an_error_before_the_sync_is_sent() {
    let mut ledger = run(b"PBE", &tags("E"));
    ledger.sent(b'Q');
    ledger.sent(b'P');
    assert!(!ledger.is_clean() && ledger.is_empty());
    ledger.sent(b'S');
    receive(&mut ledger, &tags("Z"));
    assert!(ledger.is_clean());
}

#[test]
fn an_error_in_a_query_skips_nothing() {
    let ledger = run(b"QQ", &tags("EZTDCZ"));
    assert!(ledger.is_clean());
}

#[test]
fn copy_in_by_query() {
    let mut ledger = run(b"Q", &tags("G"));
    for tag in b"ddSc" {
        ledger.sent(*tag);
    }
    receive(&mut ledger, &tags("CZ"));
    assert!(ledger.is_clean());
}

#[test]
fn copy_in_sent_blindly() {
    let ledger = run(b"Qddc", &tags("GCZ"));
    assert!(ledger.is_clean());
}

#[test]
fn two_copies_in_one_query() {
    let mut ledger = run(b"Q", &tags("G"));
    ledger.sent(b'c');
    receive(&mut ledger, &tags("CG"));
    ledger.sent(b'c');
    receive(&mut ledger, &tags("CZ"));
    assert!(ledger.is_clean());
}

#[test]
fn copy_in_by_the_extended_protocol_as_libpq_does() {
    let mut ledger = run(b"PBDES", &tags("12nG"));
    for tag in b"ddcS" {
        ledger.sent(*tag);
    }
    receive(&mut ledger, &tags("CZ"));
    assert!(ledger.is_clean());
}

#[test]
fn copy_that_fails_leaves_no_trace_of_late_data() {
    let mut ledger = run(b"Q", &tags("G"));
    ledger.sent(b'd');
    receive(&mut ledger, &tags("EZ"));
    for tag in b"ddc" {
        ledger.sent(*tag);
    }
    assert!(ledger.is_clean());
}

#[test]
fn copy_in_the_extended_protocol_that_fails_in_doubt_is_never_clean() {
    let mut ledger = run(b"PBES", &tags("12GE"));
    receive(&mut ledger, &tags("Z"));
    assert!(!ledger.is_clean());
}

#[test]
fn late_copy_messages_behind_a_query_do_not_stay() {
    let mut ledger = run(b"Qc", &tags("EZ"));
    assert!(ledger.is_clean());
    ledger.sent(b'c');
    assert!(ledger.is_clean());
}

#[test]
fn two_copies_in_one_query_sent_blindly() {
    let ledger = run(b"QdcdcS", &tags("GCGCZZ"));
    assert!(ledger.is_clean());
}

#[test]
fn a_sync_behind_a_message_that_copy_does_not_take_is_answered() {
    // COPY fails before the server reads what comes next.
    let ledger = run(b"QPBES", &tags("GEZ12CZ"));
    assert!(ledger.is_clean());
    let mut ledger = run(b"Q", &tags("G"));
    for tag in b"QcS" {
        ledger.sent(*tag);
    }
    receive(&mut ledger, &tags("EZGCZZ"));
    assert!(ledger.is_clean());
}

#[test]
fn a_query_behind_a_copy_closes_the_batch() {
    let ledger = run(b"PBEScQ", &tags("12GCTDCZ"));
    assert!(ledger.is_clean());
}

#[test]
fn in_doubt_every_reply_is_taken() {
    let mut ledger = run(b"Q", &tags("G"));
    for tag in b"SdcQ" {
        ledger.sent(*tag);
    }
    // The Sync was read after COPY had failed.
    receive(&mut ledger, &tags("EZZTDCZ"));
    assert!(!ledger.is_clean());
}

#[test]
fn replies_out_of_the_blue() {
    for tag in b"ZDTC123nsIGHcdtV?" {
        assert!(Ledger::new().received(*tag, TxStatus::Idle).is_err(), "{}", *tag as char);
    }
    for tag in b"NSAE" {
        assert!(Ledger::new().received(*tag, TxStatus::Idle).is_ok());
    }
}

#[test]
fn an_error_out_of_the_blue_is_never_clean() {
    let mut ledger = run(b"Q", &tags("CZE"));
    assert!(!ledger.is_quiet() && ledger.is_empty());
    for tag in b"PBES" {
        ledger.sent(*tag);
    }
    receive(&mut ledger, &tags("Z"));
    assert!(!ledger.is_clean());
}

#[test]
fn own_messages_are_swallowed_up_to_their_end() {
    let mut ledger = Ledger::new();
    ledger.own(false);
    ledger.sent(b'Q');
    let idle = TxStatus::Idle;
    for tag in b"TDCSNE" {
        assert_eq!(ledger.received(*tag, idle), Ok(Verdict::Swallow), "{}", *tag as char);
    }
    assert_eq!(ledger.received(b'A', idle), Ok(Verdict::Pass));
    assert_eq!(ledger.received(b'Z', idle), Ok(Verdict::Swallow));
    assert!(ledger.take_own_failed() && !ledger.take_own_failed());
    assert_eq!(ledger.received(b'C', idle), Ok(Verdict::Pass));
    assert_eq!(ledger.received(b'Z', idle), Ok(Verdict::Pass));
    assert!(ledger.is_clean());
    ledger.own(true);
    assert_eq!(ledger.received(b'C', idle), Ok(Verdict::Swallow));
    assert_eq!(ledger.received(b'S', idle), Ok(Verdict::Pass));
    assert_eq!(ledger.received(b'Z', idle), Ok(Verdict::Pass));
    assert!(ledger.is_clean());
}

#[test]
fn own_messages_that_may_fail() {
    let mut ledger = Ledger::new();
    ledger.own_attempt();
    assert!(ledger.is_attempt());
    for tag in b"3EZ" {
        assert_eq!(ledger.received(*tag, TxStatus::Failed), Ok(Verdict::Swallow), "{}", *tag as char);
    }
    assert!(
        !ledger.take_own_failed() && !ledger.is_attempt() && ledger.is_quiet() && ledger.status() == TxStatus::Failed
    );
}

#[test]
fn a_described_statement() {
    let idle = TxStatus::Idle;
    for (last, verdict) in [(b'T', true), (b'n', true), (b'E', true), (b'C', false), (b'1', false), (b's', false)] {
        let mut ledger = Ledger::new();
        ledger.marked(Mark::Given(Given::Parse));
        ledger.marked(Mark::Described);
        ledger.sent(b'S');
        assert!(ledger.is_described());
        assert_eq!(std::mem::take(ledger.events()), [Event::Give(Given::Parse)]);
        if last != b'E' {
            assert_eq!(ledger.received(b't', idle), Ok(Verdict::Pass));
        }
        assert_eq!(ledger.received(last, idle).is_ok(), verdict, "{}", last as char);
        if verdict {
            let event = if last == b'E' { Event::Failed } else { Event::Done };
            assert_eq!(std::mem::take(ledger.events()), [event]);
            assert_eq!(ledger.received(b'Z', idle), Ok(Verdict::Pass));
            assert!(ledger.is_clean());
        }
    }
}

#[test]
fn units_keep_their_numbers() {
    let mut ledger = run(b"QPBES", &[]);
    assert_eq!((ledger.front_unit(), ledger.unit()), (0, 2));
    receive(&mut ledger, &tags("CZ"));
    assert_eq!(ledger.front_unit(), 1);
    // A Query that is discarded is none.
    let mut ledger = run(b"PBEQPBES", &[]);
    assert_eq!((ledger.front_unit(), ledger.unit()), (0, 2));
    receive(&mut ledger, &tags("E"));
    assert_eq!(ledger.front_unit(), 1);
    receive(&mut ledger, &tags("Z"));
    assert_eq!((ledger.front_unit(), ledger.unit()), (2, 2));
    // A Sync that COPY swallows is none either: the batch goes on.
    let mut ledger = run(b"PBES", &tags("12G"));
    assert_eq!((ledger.front_unit(), ledger.unit(), ledger.take_renumbered()), (0, 0, false));
    ledger.sent(b'c');
    ledger.sent(b'S');
    receive(&mut ledger, &tags("CZ"));
    assert_eq!(ledger.front_unit(), 1);
}

#[test]
fn portal_suspended_and_function_call() {
    assert!(run(b"PBESFS", &tags("12DsZVZZ")).is_clean());
}
