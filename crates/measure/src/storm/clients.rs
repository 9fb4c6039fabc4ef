//! The numbers of clients as a person writes them: `512,1024`, `256..16384` (doubling), `100..10000x10`.

use std::str::FromStr;

/// Numbers of clients, ascending, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientList(Vec<u32>);

/// More than any machine holds on one address; above this it is a slip of the finger.
const MOST: u32 = 1_000_000;

impl ClientList {
    /// The numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// The largest one.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.0.last().copied().unwrap_or(0)
    }
}

impl FromStr for ClientList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for item in text.split(',') {
            match item.trim().split_once("..") {
                None => all.push(number(item)?),
                Some((from, to)) => all.extend(range(from, to)?),
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(Self(all))
    }
}

/// From `from`, multiplied again and again, up to `to`, which is always among them.
fn range(from: &str, to: &str) -> Result<Vec<u32>, String> {
    let (to, factor) = match to.split_once('x') {
        None => (to, 2),
        Some((to, factor)) => (to, number(factor)?),
    };
    let (from, to) = (number(from)?, number(to)?);
    if factor < 2 {
        return Err(format!("x{factor}: the factor must be at least 2"));
    }
    if from > to {
        return Err(format!("{from}..{to}: the first number must not be greater than the second"));
    }
    let mut all = Vec::new();
    let mut at = from;
    while at < to {
        all.push(at);
        at = at.saturating_mul(factor);
    }
    all.push(to);
    Ok(all)
}

fn number(text: &str) -> Result<u32, String> {
    match text.trim().parse::<u32>() {
        Ok(n) if (1..=MOST).contains(&n) => Ok(n),
        _ => Err(format!(
            "\"{}\" is not a number of clients (1 to {MOST}; lists as 512,1024; ranges as 256..16384, doubling, or 100..10000x10)",
            text.trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        for (text, numbers) in [
            ("512", vec![512]),
            ("1024, 512,512", vec![512, 1024]),
            ("256..2048", vec![256, 512, 1024, 2048]),
            ("100..1000x10", vec![100, 1000]),
            ("100..3000x10", vec![100, 1000, 3000]),
            ("7..7", vec![7]),
            ("64,256..512,3", vec![3, 64, 256, 512]),
        ] {
            let list: ClientList = text.parse().expect(text);
            assert_eq!(list.as_slice(), numbers, "{text}");
            assert_eq!(list.largest(), *numbers.last().expect("some"));
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "0", "-5", "12,", "9..3", "1..8x1", "1..8x", "..", "many", "1000001", "1..2..3"] {
            let error = text.parse::<ClientList>().expect_err(text);
            assert!(!error.is_empty());
        }
    }
}
