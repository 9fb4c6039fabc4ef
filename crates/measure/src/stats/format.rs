//! Numbers as people read them. Programs get the plain numbers from JSON or CSV instead.

/// A duration given in microseconds with three significant digits in the unit that fits: `0.84 us`, `127 us`,
/// `2.31 ms`, `1.20 s`. A dash if it is not a number.
#[must_use]
pub fn micros(us: f64) -> String {
    if !us.is_finite() {
        return "-".to_owned();
    }
    // The limits sit where rounding to three digits would show "1000".
    if us.abs() < 999.5 {
        format!("{} us", three_digits(us))
    } else if us.abs() < 999_500.0 {
        format!("{} ms", three_digits(us / 1e3))
    } else {
        format!("{} s", three_digits(us / 1e6))
    }
}

/// Seconds with one decimal: `12.0 s`.
#[must_use]
pub fn seconds(s: f64) -> String {
    format!("{s:.1} s")
}

/// A ratio: `18.8x`, `0.93x`.
#[must_use]
pub fn ratio(value: f64) -> String {
    if value.is_finite() { format!("{}x", three_digits(value)) } else { "-".to_owned() }
}

/// A share between 0 and 1 as a percentage without decimals: `93 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A count or a rate, rounded, with commas between thousands: `29,464`; below 100 with one decimal: `19.7`.
#[must_use]
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value.abs() < 99.95 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value <= -0.5 {
        out.push('-');
    }
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A size with three significant digits in the unit that fits: `512 B`, `26.8 KiB`, `1.50 GiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let (mut scaled, mut unit) = (value, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled.abs() < 1023.5 {
            break;
        }
        (scaled, unit) = (scaled / 1024.0, larger);
    }
    if unit == "B" { format!("{scaled:.0} B") } else { format!("{} {unit}", three_digits(scaled)) }
}

/// Three significant digits without an exponent; integers of more digits stay whole.
fn three_digits(v: f64) -> String {
    let a = v.abs();
    if a >= 99.95 {
        format!("{v:.0}")
    } else if a >= 9.995 {
        format!("{v:.1}")
    } else {
        format!("{v:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_in_the_unit_that_fits() {
        for (us, text) in [
            (0.0, "0.00 us"),
            (0.84, "0.84 us"),
            (9.996, "10.0 us"),
            (99.96, "100 us"),
            (127.4, "127 us"),
            (999.6, "1.00 ms"),
            (2310.0, "2.31 ms"),
            (58_895.0, "58.9 ms"),
            (999_600.0, "1.00 s"),
            (1_200_000.0, "1.20 s"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(micros(us), text);
        }
    }

    #[test]
    fn counts_have_commas() {
        for (v, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (19.7, "19.7"),
            (999.0, "999"),
            (999.6, "1,000"),
            (29_464.2, "29,464"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(count(v), text);
        }
    }

    #[test]
    fn ratios_and_shares() {
        assert_eq!(ratio(18.77), "18.8x");
        assert_eq!(ratio(0.934), "0.93x");
        assert_eq!(ratio(f64::NAN), "-");
        assert_eq!(percent(0.931), "93 %");
        assert_eq!(seconds(12.0), "12.0 s");
    }

    #[test]
    fn sizes_in_the_unit_that_fits() {
        for (v, text) in [
            (0.0, "0 B"),
            (512.0, "512 B"),
            (1023.6, "1.00 KiB"),
            (27_484.0, "26.8 KiB"),
            (1_610_612_736.0, "1.50 GiB"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(bytes(v), text);
        }
    }
}
