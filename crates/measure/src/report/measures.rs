//! Quantities that can be compared between runs, with the samples that they were made of.

use serde::Serialize;

use super::exhibit::Unit;

/// In which direction a quantity is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Times, sizes.
    Lower,
    /// Throughput.
    Higher,
}

/// One quantity of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// What it is, with everything that tells it from others of the same experiment: `direct, 512 clients, time to
    /// connect`. Two runs are compared where these names are equal.
    pub name: String,
    /// The unit of the samples.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// The samples, or one value per round, in the order in which they were taken. Values that belong to another
    /// population, such as a first connection, are a quantity of their own.
    pub samples: Vec<f64>,
}

impl Measure {
    /// Times in microseconds, of which less is better.
    #[must_use]
    pub fn times(name: impl Into<String>, samples: Vec<f64>) -> Self {
        Self { name: name.into(), unit: Unit::Micros, better: Better::Lower, samples }
    }

    /// Rates or counts of which more is better.
    #[must_use]
    pub fn rates(name: impl Into<String>, samples: Vec<f64>) -> Self {
        Self { name: name.into(), unit: Unit::Count, better: Better::Higher, samples }
    }
}

/// The samples of all quantities, one per line.
pub(super) fn csv(measures: &[Measure]) -> String {
    let mut out = "measure,unit,number,value\n".to_owned();
    for measure in measures {
        let name = field(&measure.name);
        let unit = match measure.unit {
            Unit::Micros => "us",
            Unit::Count => "",
            Unit::Ratio => "ratio",
            Unit::Share => "share",
            Unit::Bytes => "bytes",
        };
        for (number, value) in (1..).zip(&measure.samples) {
            out.push_str(&format!("{name},{unit},{number},{value:.3}\n"));
        }
    }
    out
}

/// `text` as one field of comma-separated values (RFC 4180): in quotes where it needs them.
#[must_use]
pub fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_needed() {
        let measures = [
            Measure::times("direct, \"x\"", vec![1.0, 2.5]),
            Measure { name: "size".to_owned(), unit: Unit::Bytes, better: Better::Lower, samples: vec![3.0] },
            Measure::rates("none", Vec::new()),
        ];
        assert_eq!(
            csv(&measures),
            "measure,unit,number,value\n\"direct, \"\"x\"\"\",us,1,1.000\n\"direct, \"\"x\"\"\",us,2,2.500\n\
             size,bytes,1,3.000\n"
        );
    }
}
