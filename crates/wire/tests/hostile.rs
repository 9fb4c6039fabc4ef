//! Bytes that nobody honest sends. Every parser answers; none panics, and none reads a length that it was told without
//! looking whether the bytes are there.

use pgusher_wire::backend::{self, Authentication};
use pgusher_wire::startup::{self, Startup};
use pgusher_wire::{ErrorFields, Frame, FrameError, MAX_MESSAGE_LEN, ParseError, frontend};
use proptest::collection::vec;
use proptest::prelude::*;

/// Uses every part of a message, so that a lazy view is read to its end.
fn read_client(frame: Frame<'_>) -> bool {
    let Ok(message) = frontend::Message::parse(frame) else {
        return false;
    };
    match message {
        frontend::Message::Parse { types, .. } => assert_eq!(types.oids().count(), types.len()),
        frontend::Message::Bind(bind) => {
            let bytes: usize = bind.parameters().flatten().map(<[u8]>::len).sum();
            assert!(bytes <= frame.body.len());
            assert_eq!(bind.parameter_formats.formats().count(), bind.parameter_formats.len());
            assert_eq!(bind.result_formats.formats().count(), bind.result_formats.len());
        }
        frontend::Message::Password { body } => {
            let _ = frontend::parse_password(body);
            let _ = frontend::parse_sasl_initial(body);
        }
        _ => {}
    }
    let _ = format!("{message:?}");
    true
}

fn read_fields(fields: ErrorFields<'_>, body: &[u8]) {
    assert!(fields.iter().map(|(_, v)| v.len()).sum::<usize>() <= body.len());
    let _ = (fields.sqlstate(), fields.severity(), fields.message(), fields.text(b'H'), fields.validate());
}

fn read_server(frame: Frame<'_>) -> bool {
    let Ok(message) = backend::Message::parse(frame) else {
        return false;
    };
    match message {
        backend::Message::DataRow(row) => {
            assert!(row.columns().count() <= row.len());
            assert!(row.columns().flatten().map(<[u8]>::len).sum::<usize>() <= frame.body.len());
        }
        backend::Message::Error(fields) | backend::Message::Notice(fields) => read_fields(fields, frame.body),
        backend::Message::Authentication(Authentication::Sasl(names)) => {
            assert!(names.iter().map(<[u8]>::len).sum::<usize>() <= frame.body.len());
        }
        _ => {}
    }
    let _ = format!("{message:?}");
    true
}

/// Bytes that look like counts, lengths and strings more often than chance would have it.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => vec(any::<u8>(), 0..8),
        2 => (0u16..4).prop_map(|n| n.to_be_bytes().to_vec()),
        2 => (0u32..6).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => prop::sample::select(&[-1i32, -2, i32::MIN, i32::MAX][..]).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => prop::sample::select(&[-1i16, i16::MIN, i16::MAX][..]).prop_map(|n| n.to_be_bytes().to_vec()),
        3 => "[a-zA-Z]{0,5}\0".prop_map(String::into_bytes),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_body_of_any_type(body in body()) {
        for tag in 0..=255u8 {
            let frame = Frame { tag, body: &body };
            read_client(frame);
            read_server(frame);
        }
        read_fields(ErrorFields::new(&body), &body);
        let _ = frontend::parse_password(&body);
        let _ = frontend::parse_sasl_initial(&body);
    }

    #[test]
    fn any_bytes_as_a_frame(bytes in body()) {
        match Frame::parse(&bytes) {
            Ok(Some((frame, used))) => prop_assert!(used <= bytes.len() && frame.body.len() + 5 == used),
            Ok(None) => prop_assert!(bytes.len() < 5 || usize::try_from(length(&bytes)).is_ok_and(|n| n + 1 > bytes.len())),
            Err(e) => prop_assert_eq!(e, FrameError { tag: bytes[0], len: length(&bytes) }),
        }
    }

    #[test]
    fn any_bytes_as_a_startup_packet(
        code in prop_oneof![
            any::<u32>(),
            prop::sample::select(&[196_608u32, 196_610, 131_072, 80_877_102, 80_877_103, 80_877_104][..]),
        ],
        body in body(),
        wrong in prop_oneof![3 => Just(0i64), 1 => -9i64..9],
    ) {
        let mut bytes = Vec::new();
        let len = i64::try_from(body.len()).expect("small") + 8 + wrong;
        bytes.extend(u32::try_from(len.max(0)).expect("small").to_be_bytes());
        bytes.extend(code.to_be_bytes());
        bytes.extend(&body);
        for end in 0..=bytes.len() {
            match Startup::parse(&bytes[..end]) {
                Ok(Some((message, used))) => {
                    prop_assert!(used <= end);
                    if let Startup::Session { parameters, .. } = message {
                        prop_assert!(parameters.iter().count() <= end);
                        let _ = parameters.get("user");
                    }
                }
                Ok(None) => prop_assert!(i64::try_from(end).expect("small") < len.max(8)),
                Err(_) => {}
            }
        }
    }

    #[test]
    fn raw_bytes_as_a_startup_packet(bytes in vec(any::<u8>(), 0..80)) {
        let _ = Startup::parse(&bytes);
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]])
}

#[test]
fn lengths_that_no_message_has() {
    for len in [0, 1, 2, 3, MAX_MESSAGE_LEN + 1, 1 << 30, i32::MAX as u32, 1 << 31, u32::MAX] {
        let mut bytes = vec![b'Q'];
        bytes.extend(len.to_be_bytes());
        bytes.extend([0; 64]);
        assert_eq!(Frame::parse(&bytes), Err(FrameError { tag: b'Q', len }));
    }
    let mut bytes = vec![b'Q'];
    bytes.extend(MAX_MESSAGE_LEN.to_be_bytes());
    assert_eq!(Frame::parse(&bytes), Ok(None), "the largest legal one is waited for");
    bytes[1..].copy_from_slice(&4u32.to_be_bytes());
    assert_eq!(Frame::parse(&bytes), Ok(Some((Frame { tag: b'Q', body: &[] }, 5))));
}

#[test]
fn lengths_that_no_startup_packet_has() {
    for len in [0, 1, 3, 4, 7, startup::MAX_STARTUP_LEN + 1, 1 << 31, u32::MAX, u32::from_be_bytes(*b"GET ")] {
        assert!(Startup::packet_len(&len.to_be_bytes()).is_err(), "{len}");
    }
    assert_eq!(Startup::packet_len(&[0, 0, 0]), Ok(None));
    assert_eq!(Startup::packet_len(&startup::MAX_STARTUP_LEN.to_be_bytes()), Ok(Some(10_000)));
}

fn bind(body: &[u8]) -> Result<frontend::Message<'_>, ParseError> {
    frontend::Message::parse(Frame { tag: frontend::BIND, body })
}

#[test]
fn counts_and_lengths_below_zero() {
    let invalid = |field| ParseError::Invalid { tag: 'B', field };
    assert_eq!(bind(b"\0\0\xff\xff"), Err(invalid("count of parameter formats")));
    assert_eq!(bind(b"\0\0\0\0\x80\0"), Err(invalid("count of parameters")));
    assert_eq!(bind(b"\0\0\0\0\0\x01\xff\xff\xff\xfe"), Err(invalid("length of a parameter")));
    assert_eq!(bind(b"\0\0\0\0\0\x01\x7f\xff\xff\xff"), Err(ParseError::Truncated { tag: 'B' }));
    assert_eq!(bind(b"\0\0\0\0\0\0\xff\xff"), Err(invalid("count of result formats")));
    assert!(frontend::Message::parse(Frame { tag: frontend::PARSE, body: b"\0\0\xff\xff" }).is_err());
    assert!(frontend::Message::parse(Frame { tag: frontend::PARSE, body: b"\0\0\x7f\xff" }).is_err());
    assert!(backend::Message::parse(Frame { tag: backend::DATA_ROW, body: b"\xff\xff" }).is_err());
    assert_eq!(frontend::parse_sasl_initial(b"M\0\xff\xff\xff\xff"), Ok((&b"M"[..], None)));
    assert!(frontend::parse_sasl_initial(b"M\0\xff\xff\xff\xfe").is_err());
    assert!(frontend::parse_sasl_initial(b"M\0\x7f\xff\xff\xffabc").is_err());
    assert!(frontend::parse_sasl_initial(b"M\0\xff\xff\xff\xffa").is_err());
}

/// A row that promises more columns than it has shows those that are there.
#[test]
fn a_row_that_promises_too_much() {
    let body = b"\x7f\xff\0\0\0\x01a\0\0\0\x09b";
    let Ok(backend::Message::DataRow(row)) = backend::Message::parse(Frame { tag: backend::DATA_ROW, body }) else {
        panic!("a row")
    };
    assert_eq!(row.columns().collect::<Vec<_>>(), [Some(&b"a"[..])]);
}

#[test]
fn messages_that_should_be_empty() {
    for tag in [frontend::SYNC, frontend::FLUSH, frontend::TERMINATE, frontend::COPY_DONE] {
        assert!(!read_client(Frame { tag, body: b"x" }), "{}", char::from(tag));
        assert!(read_client(Frame { tag, body: b"" }));
    }
    for tag in [backend::PARSE_COMPLETE, backend::NO_DATA, backend::COPY_DONE, backend::EMPTY_QUERY] {
        assert!(!read_server(Frame { tag, body: b"x" }), "{}", char::from(tag));
        assert!(read_server(Frame { tag, body: b"" }));
    }
    assert!(!read_server(Frame { tag: backend::READY_FOR_QUERY, body: b"" }));
    assert!(!read_server(Frame { tag: backend::READY_FOR_QUERY, body: b"?" }));
    assert!(!read_server(Frame { tag: backend::READY_FOR_QUERY, body: b"II" }));
}
