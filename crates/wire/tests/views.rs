//! What a writer writes, the views read back.

use pgusher_wire::backend::{self, Authentication};
use pgusher_wire::frontend::{self, Target};
use pgusher_wire::startup::{self, Startup, Version};
use pgusher_wire::{ErrorFields, Frame, Report, Severity, TxStatus};
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes of a string on the wire: anything but the byte that ends it.
fn string() -> impl Strategy<Value = Vec<u8>> {
    vec(1u8..=255, 0..40)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(1u8..=255, 1..40)
}

fn blob() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![Just(Target::Statement), Just(Target::Portal)]
}

fn status() -> impl Strategy<Value = TxStatus> {
    prop_oneof![Just(TxStatus::Idle), Just(TxStatus::Transaction), Just(TxStatus::Failed)]
}

/// The one message that `write` writes, behind `before` that was in the buffer already.
fn written(before: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = before.to_vec();
    write(&mut out);
    assert_eq!(&out[..before.len()], before, "a writer only appends");
    out.split_off(before.len())
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    let (frame, used) = Frame::parse(bytes).expect("legal length").expect("whole");
    assert_eq!(used, bytes.len(), "one message and nothing else");
    frame
}

fn from_client(bytes: &[u8]) -> frontend::Message<'_> {
    frontend::Message::parse(frame(bytes)).expect("legal")
}

fn from_server(bytes: &[u8]) -> backend::Message<'_> {
    backend::Message::parse(frame(bytes)).expect("legal")
}

proptest! {
    #[test]
    fn query_and_copy(sql in string(), data in blob(), reason in string(), before in blob()) {
        let bytes = written(&before, |out| frontend::write_query(out, &sql));
        prop_assert_eq!(from_client(&bytes), frontend::Message::Query { sql: &sql });
        let bytes = written(&before, |out| frontend::write_copy_data(out, &data));
        prop_assert_eq!(from_client(&bytes), frontend::Message::CopyData { data: &data });
        prop_assert_eq!(from_server(&bytes), backend::Message::CopyData { data: &data });
        let bytes = written(&before, |out| frontend::write_copy_fail(out, &reason));
        prop_assert_eq!(from_client(&bytes), frontend::Message::CopyFail { message: &reason });
    }

    #[test]
    fn parse(name in string(), sql in string(), types in vec(any::<u32>(), 0..20)) {
        let bytes = written(b"", |out| frontend::write_parse(out, &name, &sql, &types));
        let frontend::Message::Parse { name: n, sql: s, types: t } = from_client(&bytes) else {
            return Err(TestCaseError::fail("not a Parse"));
        };
        prop_assert_eq!((n, s), (name.as_slice(), sql.as_slice()));
        prop_assert_eq!(t.len(), types.len());
        prop_assert_eq!(t.is_empty(), types.is_empty());
        prop_assert_eq!(t.oids().collect::<Vec<_>>(), types);
    }

    #[test]
    fn bind(portal in string(), statement in string(), values in vec(proptest::option::of(blob()), 0..12)) {
        let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        let bytes = written(b"", |out| frontend::write_bind(out, &portal, &statement, &values));
        let frontend::Message::Bind(bind) = from_client(&bytes) else {
            return Err(TestCaseError::fail("not a Bind"));
        };
        prop_assert_eq!((bind.portal, bind.statement), (portal.as_slice(), statement.as_slice()));
        prop_assert!(bind.parameter_formats.is_empty() && bind.result_formats.is_empty());
        prop_assert_eq!(bind.parameters().collect::<Vec<_>>(), values);
    }

    /// Bind with formats, which no writer here makes, but every driver does.
    #[test]
    fn bind_with_formats(
        formats in vec(0u16..2, 0..5),
        values in vec(proptest::option::of(blob()), 0..5),
        results in vec(0u16..2, 0..5),
    ) {
        let mut body = b"p\0s\0".to_vec();
        let count = |n: usize| u16::try_from(n).expect("small").to_be_bytes();
        body.extend(count(formats.len()));
        formats.iter().for_each(|f| body.extend(f.to_be_bytes()));
        body.extend(count(values.len()));
        for value in &values {
            let len = value.as_ref().map_or(-1, |v| i32::try_from(v.len()).expect("small"));
            body.extend(len.to_be_bytes());
            body.extend(value.iter().flatten());
        }
        body.extend(count(results.len()));
        results.iter().for_each(|f| body.extend(f.to_be_bytes()));
        let frame = Frame { tag: frontend::BIND, body: &body };
        let Ok(frontend::Message::Bind(bind)) = frontend::Message::parse(frame) else {
            return Err(TestCaseError::fail("not a Bind"));
        };
        prop_assert_eq!(bind.parameter_formats.formats().collect::<Vec<_>>(), formats);
        prop_assert_eq!(bind.result_formats.formats().collect::<Vec<_>>(), results);
        prop_assert_eq!(bind.parameters().map(|p| p.map(<[u8]>::to_vec)).collect::<Vec<_>>(), values);
        // Cut off anywhere, or with a byte too much, it is none.
        for end in 0..body.len() {
            let cut = frontend::Message::parse(Frame { tag: frontend::BIND, body: &body[..end] });
            prop_assert!(cut.is_err(), "cut at {}", end);
        }
        body.push(0);
        let long = frontend::Message::parse(Frame { tag: frontend::BIND, body: &body });
        prop_assert!(long.is_err());
    }

    #[test]
    fn describe_close_execute(target in target(), name in string(), max_rows in any::<i32>()) {
        let bytes = written(b"", |out| frontend::write_describe(out, target, &name));
        prop_assert_eq!(from_client(&bytes), frontend::Message::Describe { target, name: &name });
        let bytes = written(b"", |out| frontend::write_close(out, target, &name));
        prop_assert_eq!(from_client(&bytes), frontend::Message::Close { target, name: &name });
        let bytes = written(b"", |out| frontend::write_execute(out, &name, max_rows));
        prop_assert_eq!(from_client(&bytes), frontend::Message::Execute { portal: &name, max_rows });
    }

    #[test]
    fn passwords(password in string(), mechanism in "[A-Z0-9-]{0,20}", response in blob()) {
        let body = |bytes: &[u8]| match from_client(bytes) {
            frontend::Message::Password { body } => body.to_vec(),
            other => panic!("{other:?}"),
        };
        let bytes = written(b"", |out| frontend::write_password(out, &password));
        let plain = body(&bytes);
        prop_assert_eq!(frontend::parse_password(&plain), Ok(password.as_slice()));
        let bytes = written(b"", |out| frontend::write_sasl_initial(out, &mechanism, &response));
        let initial = body(&bytes);
        prop_assert_eq!(
            frontend::parse_sasl_initial(&initial),
            Ok((mechanism.as_bytes(), Some(response.as_slice())))
        );
        let bytes = written(b"", |out| frontend::write_sasl_response(out, &response));
        prop_assert_eq!(body(&bytes), response);
    }

    #[test]
    fn authentication(salt in any::<[u8; 4]>(), names in vec("[A-Z0-9-]{1,20}", 0..4), data in blob()) {
        let read = |bytes: &[u8], expected: Authentication<'_>| {
            prop_assert_eq!(from_server(bytes), backend::Message::Authentication(expected));
            Ok(())
        };
        read(&written(b"", backend::write_authentication_ok), Authentication::Ok)?;
        read(&written(b"", backend::write_authentication_cleartext), Authentication::CleartextPassword)?;
        let bytes = written(b"", |out| backend::write_authentication_md5(out, salt));
        read(&bytes, Authentication::Md5Password { salt })?;
        let bytes = written(b"", |out| backend::write_authentication_sasl_continue(out, &data));
        read(&bytes, Authentication::SaslContinue(&data))?;
        let bytes = written(b"", |out| backend::write_authentication_sasl_final(out, &data));
        read(&bytes, Authentication::SaslFinal(&data))?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bytes = written(b"", |out| backend::write_authentication_sasl(out, &names));
        let backend::Message::Authentication(Authentication::Sasl(list)) = from_server(&bytes) else {
            return Err(TestCaseError::fail("not SASL"));
        };
        prop_assert!(names.iter().all(|n| list.contains(n)) && !list.contains("none"));
        prop_assert_eq!(list.iter().collect::<Vec<_>>(), names.iter().map(|n| n.as_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn parameters_keys_and_ends(
        name in string(),
        value in string(),
        pid in any::<u32>(),
        key in vec(any::<u8>(), startup::CANCEL_KEY_LEN_3_0..=startup::MAX_CANCEL_KEY_LEN),
        status in status(),
        unknown in vec(name(), 0..4),
    ) {
        let bytes = written(b"", |out| backend::write_parameter_status(out, &name, &value));
        prop_assert_eq!(from_server(&bytes), backend::Message::ParameterStatus { name: &name, value: &value });
        let bytes = written(b"", |out| backend::write_backend_key_data(out, pid, &key));
        prop_assert_eq!(from_server(&bytes), backend::Message::BackendKeyData { pid, key: &key });
        let bytes = written(b"", |out| backend::write_ready_for_query(out, status));
        prop_assert_eq!(from_server(&bytes), backend::Message::ReadyForQuery(status));
        prop_assert_eq!(TxStatus::from_byte(status.as_byte()), Some(status));
        let bytes = written(b"", |out| backend::write_command_complete(out, &name));
        prop_assert_eq!(from_server(&bytes), backend::Message::CommandComplete { tag: &name });
        let names: Vec<&[u8]> = unknown.iter().map(Vec::as_slice).collect();
        let bytes = written(b"", |out| backend::write_negotiate_protocol_version(out, Version::V3_2, &names));
        let backend::Message::NegotiateProtocolVersion { newest_minor, unknown: list } = from_server(&bytes) else {
            return Err(TestCaseError::fail("not a NegotiateProtocolVersion"));
        };
        prop_assert_eq!(newest_minor & 0xffff, 2);
        let mut expected = u32::try_from(names.len()).expect("small").to_be_bytes().to_vec();
        names.iter().for_each(|n| expected.extend(n.iter().chain(&[0])));
        prop_assert_eq!(list, expected);
    }

    #[test]
    fn rows(values in vec(proptest::option::of(blob()), 0..12)) {
        let mut body = u16::try_from(values.len()).expect("small").to_be_bytes().to_vec();
        for value in &values {
            let len = value.as_ref().map_or(-1, |v| i32::try_from(v.len()).expect("small"));
            body.extend(len.to_be_bytes());
            body.extend(value.iter().flatten());
        }
        let parsed = backend::Message::parse(Frame { tag: backend::DATA_ROW, body: &body });
        let Ok(backend::Message::DataRow(row)) = parsed else { return Err(TestCaseError::fail("not a row")) };
        prop_assert_eq!((row.len(), row.is_empty()), (values.len(), values.is_empty()));
        prop_assert_eq!(row.columns().map(|c| c.map(<[u8]>::to_vec)).collect::<Vec<_>>(), values);
    }

    #[test]
    fn startup_packet(minor in 0u16..10, pairs in vec((name(), string()), 0..8), behind in blob()) {
        let version = Version { major: 3, minor };
        let given: Vec<(&[u8], &[u8])> = pairs.iter().map(|(n, v)| (n.as_slice(), v.as_slice())).collect();
        let mut bytes = written(b"", |out| startup::write_startup(out, version, given.iter().copied()));
        let len = bytes.len();
        for end in 0..len {
            prop_assert_eq!(Startup::parse(&bytes[..end]), Ok(None), "cut at {}", end);
        }
        bytes.extend_from_slice(&behind);
        let Ok(Some((Startup::Session { version: v, parameters }, used))) = Startup::parse(&bytes) else {
            return Err(TestCaseError::fail("not a StartupMessage"));
        };
        prop_assert_eq!((v, used), (version, len));
        prop_assert_eq!(parameters.iter().collect::<Vec<_>>(), given);
        for (name, _) in &pairs {
            let Ok(name) = std::str::from_utf8(name) else { continue };
            let last = pairs.iter().rev().find(|(n, _)| n == name.as_bytes()).map(|(_, v)| v.as_slice());
            prop_assert_eq!(parameters.get(name), last);
        }
    }

    #[test]
    fn cancel(pid in any::<u32>(), key in vec(any::<u8>(), 0..300)) {
        let bytes = written(b"", |out| startup::write_cancel(out, pid, &key));
        let parsed = Startup::parse(&bytes);
        if (startup::CANCEL_KEY_LEN_3_0..=startup::MAX_CANCEL_KEY_LEN).contains(&key.len()) {
            prop_assert_eq!(parsed, Ok(Some((Startup::Cancel { pid, key: &key }, bytes.len()))));
        } else {
            prop_assert!(parsed.is_err());
        }
    }

    #[test]
    fn reports(
        severity in prop::sample::select(
            &[Severity::Error, Severity::Fatal, Severity::Panic, Severity::Warning, Severity::Notice][..]
        ),
        message in "[^\0]{0,60}",
        detail in proptest::option::of("[^\0]{0,60}"),
        hint in proptest::option::of("[^\0]{0,60}"),
    ) {
        let mut report = Report::error("08P01", message.clone());
        report.severity = severity;
        report.detail.clone_from(&detail);
        report.hint.clone_from(&hint);
        let bytes = report.to_bytes();
        let (expected_tag, fields) = match from_server(&bytes) {
            backend::Message::Error(fields) => (b'E', fields),
            backend::Message::Notice(fields) => (b'N', fields),
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(bytes[0], expected_tag);
        prop_assert_eq!(fields.validate(), Ok(()));
        prop_assert_eq!(fields.severity(), Some(severity));
        prop_assert_eq!(fields.sqlstate(), Some("08P01"));
        prop_assert_eq!(fields.message(), message);
        prop_assert_eq!(fields.text(b'D'), detail);
        prop_assert_eq!(fields.text(b'H'), hint);
    }

    /// A zero byte within a string must not let the rest of it be read as other fields.
    #[test]
    fn a_zero_byte_ends_a_string(head in string(), tail in blob()) {
        let mut text = head.clone();
        text.push(0);
        text.extend_from_slice(&tail);
        let bytes = written(b"", |out| frontend::write_query(out, &text));
        prop_assert_eq!(from_client(&bytes), frontend::Message::Query { sql: &head });
        let bytes = written(b"", |out| backend::write_parameter_status(out, &text, &text));
        prop_assert_eq!(from_server(&bytes), backend::Message::ParameterStatus { name: &head, value: &head });
        let lossy = String::from_utf8_lossy(&text).into_owned();
        let bytes = Report::error("XX000", lossy.clone()).to_bytes();
        let fields = ErrorFields::new(frame(&bytes).body);
        prop_assert_eq!(fields.validate(), Ok(()));
        let message = fields.message();
        prop_assert_eq!(Some(message.as_str()), lossy.split('\0').next());
    }
}

#[test]
fn messages_without_a_body() {
    assert_eq!(from_client(&frontend::SYNC_BYTES), frontend::Message::Sync);
    assert_eq!(from_client(&frontend::FLUSH_BYTES), frontend::Message::Flush);
    assert_eq!(from_client(&frontend::TERMINATE_BYTES), frontend::Message::Terminate);
    assert_eq!(from_client(&frontend::COPY_DONE_BYTES), frontend::Message::CopyDone);
    assert_eq!(Startup::parse(&startup::SSL_REQUEST_BYTES), Ok(Some((Startup::SslRequest, 8))));
    let bytes = written(b"", startup::write_gssenc_request);
    assert_eq!(Startup::parse(&bytes), Ok(Some((Startup::GssEncRequest, 8))));
}

/// A list longer than its count can say is cut, so that the message stays one that the server understands.
#[test]
fn more_parameters_than_a_count_holds() {
    let types = vec![23u32; 40_000];
    let bytes = written(b"", |out| frontend::write_parse(out, b"", b"", &types));
    let frontend::Message::Parse { types, .. } = from_client(&bytes) else { panic!("a Parse") };
    assert_eq!(types.len(), 32_767);
    let values = vec![None; 40_000];
    let bytes = written(b"", |out| frontend::write_bind(out, b"", b"", &values));
    let frontend::Message::Bind(bind) = from_client(&bytes) else { panic!("a Bind") };
    assert_eq!(bind.parameters().count(), 32_767);
}
