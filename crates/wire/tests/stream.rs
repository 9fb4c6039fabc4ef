//! A stream of messages is the same stream however it is cut into pieces.

use pgusher_wire::frame::Frames;
use pgusher_wire::scan::Scanner;
use pgusher_wire::{Frame, FrameError, HEADER_LEN, MAX_MESSAGE_LEN};
use proptest::collection::vec;
use proptest::prelude::*;

/// Types of both directions, and some that exist in neither.
const TAGS: &[u8] = b"QPBDECHSFdcfXpRKZTI123nstNAGWVv\0\xff?";

#[derive(Debug, Clone)]
struct Sent {
    tag: u8,
    body: Vec<u8>,
}

impl Sent {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.tag);
        out.extend_from_slice(&u32::try_from(self.body.len() + 4).expect("small").to_be_bytes());
        out.extend_from_slice(&self.body);
    }
}

/// What a relay saw of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    tag: u8,
    body_len: usize,
    body: Vec<u8>,
    at: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Relayed {
    seen: Vec<Seen>,
    forwarded: Vec<u8>,
    kept: Vec<u8>,
    at_boundary: bool,
    error: Option<FrameError>,
}

/// A relay: passes on what the scanner allows, and presents the rest again with the next piece in front of it.
fn relay<'a>(pieces: impl Iterator<Item = &'a [u8]>, need: impl Fn(u8) -> usize) -> Relayed {
    let mut scanner = Scanner::new();
    let mut out = Relayed { seen: Vec::new(), forwarded: Vec::new(), kept: Vec::new(), at_boundary: true, error: None };
    for piece in pieces {
        let mut buf = std::mem::take(&mut out.kept);
        buf.extend_from_slice(piece);
        let mut pos = 0;
        loop {
            match scanner.next(&buf, &mut pos, &need) {
                Ok(Some(head)) => {
                    assert!(head.body.len() <= head.body_len);
                    assert!(head.body.len() >= need(head.tag).min(head.body_len), "less than was asked for");
                    assert_eq!(buf[head.start], head.tag);
                    assert_eq!(&buf[head.start + HEADER_LEN..pos], head.body);
                    assert_eq!(head.is_complete(), scanner.at_boundary());
                    out.seen.push(Seen {
                        tag: head.tag,
                        body_len: head.body_len,
                        body: head.body[..need(head.tag).min(head.body_len)].to_vec(),
                        at: out.forwarded.len() + head.start,
                    });
                }
                Ok(None) => break,
                Err(e) => {
                    out.error = Some(e);
                    break;
                }
            }
        }
        out.forwarded.extend_from_slice(&buf[..pos]);
        out.kept = buf.split_off(pos);
        out.at_boundary = scanner.at_boundary();
        if out.error.is_some() {
            break;
        }
        if let Some(&tag) = out.kept.first() {
            assert!(out.at_boundary, "the middle of a body is kept");
            // Before the header is there the type byte alone decides nothing.
            let most = if out.kept.len() < HEADER_LEN { HEADER_LEN - 1 } else { HEADER_LEN + need(tag).max(1) - 1 };
            assert!(out.kept.len() <= most, "{} bytes kept, at most {most} expected", out.kept.len());
        }
    }
    out
}

fn pieces<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|c| c.index(stream.len() + 1)).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    // Equal cuts make empty pieces, which a caller may present as well.
    at.windows(2).map(|w| &stream[w[0]..w[1]]).collect()
}

fn message() -> impl Strategy<Value = Sent> {
    let size = prop_oneof![3 => Just(0usize), 6 => 1usize..12, 4 => 12usize..300, 1 => 4_000usize..70_000];
    (prop::sample::select(TAGS), size, any::<u8>()).prop_map(|(tag, size, seed)| Sent {
        tag,
        body: (0..size).map(|i| seed.wrapping_add((i % 251) as u8)).collect(),
    })
}

fn need() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0usize), 1usize..8, 8usize..600, Just(usize::MAX / 2)]
}

fn encode(messages: &[Sent]) -> Vec<u8> {
    let mut stream = Vec::new();
    for message in messages {
        message.write(&mut stream);
    }
    stream
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_split_shows_the_same_messages(
        messages in vec(message(), 0..20),
        cuts in vec(any::<prop::sample::Index>(), 0..60),
        needs in vec(need(), 4),
    ) {
        let stream = encode(&messages);
        let need = |tag: u8| needs[usize::from(tag) % needs.len()];
        let relayed = relay(pieces(&stream, &cuts).into_iter(), need);
        prop_assert_eq!(&relayed.forwarded, &stream);
        prop_assert!(relayed.kept.is_empty() && relayed.at_boundary && relayed.error.is_none());
        let mut at = 0;
        let expected: Vec<Seen> = messages
            .iter()
            .map(|m| {
                let seen = Seen {
                    tag: m.tag,
                    body_len: m.body.len(),
                    body: m.body[..need(m.tag).min(m.body.len())].to_vec(),
                    at,
                };
                at += HEADER_LEN + m.body.len();
                seen
            })
            .collect();
        prop_assert_eq!(&relayed.seen, &expected);
        let whole = relay(std::iter::once(stream.as_slice()), need);
        prop_assert_eq!(whole, relayed);
    }

    #[test]
    fn byte_by_byte(messages in vec(message().prop_map(|mut m| { m.body.truncate(700); m }), 0..8), n in need()) {
        let stream = encode(&messages);
        let relayed = relay(stream.chunks(1), |_| n);
        prop_assert_eq!(&relayed, &relay(std::iter::once(stream.as_slice()), |_| n));
        prop_assert_eq!(&relayed.forwarded, &stream);
        prop_assert_eq!(relayed.seen.len(), messages.len());
    }

    /// A stream that ends in the middle of a message: what is passed on and what is kept are together what came.
    #[test]
    fn a_stream_that_breaks_off(
        messages in vec(message(), 1..6),
        end in any::<prop::sample::Index>(),
        cuts in vec(any::<prop::sample::Index>(), 0..10),
        n in need(),
    ) {
        let mut stream = encode(&messages);
        stream.truncate(end.index(stream.len()));
        let relayed = relay(pieces(&stream, &cuts).into_iter(), |_| n);
        let mut all = relayed.forwarded.clone();
        all.extend_from_slice(&relayed.kept);
        prop_assert_eq!(all, stream);
        prop_assert!(relayed.error.is_none());
    }

    /// A length that no message has stops the stream, and what stood before it has been passed on.
    #[test]
    fn a_hostile_length_stops_the_stream(
        messages in vec(message(), 0..6),
        tag in any::<u8>(),
        len in prop_oneof![0u32..4, Just(u32::MAX), Just(1 << 31), Just(MAX_MESSAGE_LEN + 1), MAX_MESSAGE_LEN + 1..],
        behind in vec(any::<u8>(), 0..30),
        cuts in vec(any::<prop::sample::Index>(), 0..20),
        n in need(),
    ) {
        let good = encode(&messages);
        let mut stream = good.clone();
        stream.push(tag);
        stream.extend_from_slice(&len.to_be_bytes());
        stream.extend_from_slice(&behind);
        let relayed = relay(pieces(&stream, &cuts).into_iter(), |_| n);
        prop_assert_eq!(relayed.error, Some(FrameError { tag, len }));
        prop_assert_eq!(relayed.forwarded, good);
        prop_assert_eq!(relayed.seen.len(), messages.len());
    }

    /// Whatever arrives, the scanner loses no byte and makes none up.
    #[test]
    fn arbitrary_bytes(
        stream in vec(prop_oneof![4 => 0u8..6, 1 => any::<u8>()], 0..300),
        cuts in vec(any::<prop::sample::Index>(), 0..20),
        n in need(),
    ) {
        let relayed = relay(pieces(&stream, &cuts).into_iter(), |_| n);
        let mut all = relayed.forwarded.clone();
        all.extend_from_slice(&relayed.kept);
        prop_assert!(stream.starts_with(&all));
        prop_assert!(relayed.error.is_some() || all.len() == stream.len());
    }

    #[test]
    fn whole_messages_in_a_buffer(messages in vec(message(), 0..10), end in any::<prop::sample::Index>()) {
        let mut stream = encode(&messages);
        stream.truncate(end.index(stream.len() + 1));
        let mut frames = Frames::new(&stream);
        let mut used = 0;
        for (frame, sent) in frames.by_ref().zip(&messages) {
            prop_assert_eq!(frame, Ok(Frame { tag: sent.tag, body: &sent.body }));
            used += HEADER_LEN + sent.body.len();
        }
        prop_assert_eq!(frames.used(), used);
        prop_assert_eq!(Frame::parse(&stream[used..]), Ok(None));
    }
}

/// The largest message is taken, and passes without being held.
#[test]
fn the_largest_message_passes() {
    let mut scanner = Scanner::new();
    let mut first = vec![b'd'];
    first.extend_from_slice(&MAX_MESSAGE_LEN.to_be_bytes());
    let mut pos = 0;
    let head = scanner.next(&first, &mut pos, |_| 0).expect("legal").expect("seen");
    assert_eq!(head.body_len, 0x3fff_fffa);
    assert!(!head.is_complete());
    let piece = vec![0xffu8; 1 << 20];
    let mut left = 0x3fff_fffa_usize;
    while left > 0 {
        assert!(!scanner.at_boundary());
        let piece = &piece[..left.min(piece.len())];
        let mut pos = 0;
        assert_eq!(scanner.next(piece, &mut pos, |_| 0), Ok(None));
        assert_eq!(pos, piece.len());
        left -= piece.len();
    }
    assert!(scanner.at_boundary());
}
