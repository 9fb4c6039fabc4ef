//! How a time grows with a number of things: a power law, and a line with a square, each with intervals and residuals,
//! and the choice between them.
//!
//! - `T = a N^b`: least squares on the logarithms of the single observations, so that every size counts the same. One
//!   exponent hides a curve that begins as a line and ends as a parabola; its residuals show it.
//! - `T = alpha N + beta N^2`: least squares of T/N over N. alpha is what one more thing costs by itself, beta what each
//!   thing that is there already adds to it; where both are equal, at N* = alpha / beta, the line turns into a parabola.
//!
//! Both have two parameters. They are compared on one scale, the residuals of log T, by AICc (C. M. Hurvich and
//! C.-L. Tsai, "Regression and time series model selection in small samples", 1989).

use serde::{Deserialize, Serialize};

use super::Interval;
use super::ratio::student_975;

/// One observation: so many things, and the time that they took in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Observation {
    /// How many.
    pub n: f64,
    /// How long.
    pub us: f64,
}

/// A number with its 95 % interval by Student's t.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Its interval; absent without a degree of freedom to make it of.
    #[serde(rename = "ci95", default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// How far a model is off at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Residual {
    /// The size.
    pub n: f64,
    /// measured / model - 1, of the geometric mean of the observations of this size.
    pub relative: f64,
}

/// `T = a N^b`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PowerLaw {
    /// a, microseconds.
    pub a_us: f64,
    /// b.
    pub exponent: Estimate,
    /// Per size.
    pub residuals: Vec<Residual>,
    /// Akaike's criterion, corrected for few observations; lower is better. Absent where the correction needs more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aicc: Option<f64>,
}

/// `T = alpha N + beta N^2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinearQuadratic {
    /// alpha, microseconds: what one more costs where nothing is there yet.
    pub alpha_us: Estimate,
    /// beta, microseconds: what each that is there adds to that.
    pub beta_us: Estimate,
    /// alpha / beta; absent unless both are positive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossover: Option<f64>,
    /// Per size; empty if the model is not positive everywhere.
    pub residuals: Vec<Residual>,
    /// Akaike's criterion, corrected for few observations; lower is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aicc: Option<f64>,
}

/// Which model describes the observations better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The power law.
    PowerLaw,
    /// The line with a square.
    LinearQuadratic,
    /// Neither by more than 2 in AICc.
    Neither,
}

/// Both models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Growth {
    /// What they were made of.
    pub observations: Vec<Observation>,
    /// `T = a N^b`.
    pub power_law: PowerLaw,
    /// `T = alpha N + beta N^2`.
    pub linear_quadratic: LinearQuadratic,
    /// AICc of the power law minus AICc of the other; above 0 the power law is worse. Absent if the other is not positive
    /// everywhere, or if either fits exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aicc_difference: Option<f64>,
    /// What that means.
    pub better: Better,
    /// The exponent between each size and the next one.
    pub local_exponents: Vec<f64>,
}

/// Residuals of log T whose squares add up to no more than this are those of the arithmetic: the fit is exact.
const EXACT: f64 = 1e-20;

/// Why there is no fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Growth needs two sizes.
    #[error("growth cannot be told from fewer than two sizes")]
    Sizes,
    /// Logarithms need positive numbers.
    #[error("a number or a time is not positive")]
    NotPositive,
}

impl Growth {
    /// Fits both models.
    ///
    /// # Errors
    /// [`Unfit`], which says what is missing.
    pub fn of(observations: &[Observation]) -> Result<Self, Unfit> {
        if observations.iter().any(|o| !(o.n.is_finite() && o.us.is_finite() && o.n > 0.0 && o.us > 0.0)) {
            return Err(Unfit::NotPositive);
        }
        let sizes = sizes(observations);
        if sizes.len() < 2 {
            return Err(Unfit::Sizes);
        }
        let (power_law, power_rss) = power_law(observations, &sizes);
        let (linear_quadratic, other_rss) = linear_quadratic(observations, &sizes);
        let n = observations.len() as f64;
        // The corrections are the same, since both have as many parameters.
        let difference = |other: f64| (power_rss > EXACT && other > EXACT).then(|| n * (power_rss / other).ln());
        let aicc_difference = other_rss.and_then(difference);
        let better = match aicc_difference {
            Some(d) if d > 2.0 => Better::LinearQuadratic,
            Some(d) if d < -2.0 => Better::PowerLaw,
            Some(_) => Better::Neither,
            None if other_rss.is_none() => Better::PowerLaw,
            None => Better::Neither,
        };
        let local_exponents = sizes
            .iter()
            .zip(sizes.iter().skip(1))
            .map(|((n, log_us), (next, next_log))| (next_log - log_us) / (next / n).ln())
            .collect();
        Ok(Self {
            observations: observations.to_vec(),
            power_law,
            linear_quadratic,
            aicc_difference,
            better,
            local_exponents,
        })
    }

    /// How many different sizes were observed.
    #[must_use]
    pub fn sizes(&self) -> usize {
        self.local_exponents.len() + 1
    }
}

impl PowerLaw {
    /// What the model says of `n` things, microseconds.
    #[must_use]
    pub fn at(&self, n: f64) -> f64 {
        self.a_us * n.powf(self.exponent.value)
    }
}

impl LinearQuadratic {
    /// What the model says of `n` things, microseconds.
    #[must_use]
    pub fn at(&self, n: f64) -> f64 {
        n * (self.alpha_us.value + self.beta_us.value * n)
    }
}

/// Each size with the mean of log T, in ascending order.
fn sizes(observations: &[Observation]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> = observations.iter().map(|o| (o.n, o.us.ln())).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    sorted
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|same| {
            let mean = same.iter().map(|(_, log)| log).sum::<f64>() / same.len() as f64;
            Some((same.first()?.0, mean))
        })
        .collect()
}

fn power_law(observations: &[Observation], sizes: &[(f64, f64)]) -> (PowerLaw, f64) {
    let points: Vec<(f64, f64)> = observations.iter().map(|o| (o.n.ln(), o.us.ln())).collect();
    let line = Line::through(&points);
    let mut law = PowerLaw {
        a_us: line.intercept.value.exp(),
        exponent: line.slope,
        residuals: Vec::new(),
        aicc: aicc(line.rss, points.len()),
    };
    law.residuals = residuals(sizes, |n| law.at(n));
    (law, line.rss)
}

/// And the sum of squared residuals of log T, if the model is positive at every observation.
fn linear_quadratic(observations: &[Observation], sizes: &[(f64, f64)]) -> (LinearQuadratic, Option<f64>) {
    let points: Vec<(f64, f64)> = observations.iter().map(|o| (o.n, o.us / o.n)).collect();
    let line = Line::through(&points);
    let (alpha, beta) = (line.intercept.value, line.slope.value);
    let mut model = LinearQuadratic {
        alpha_us: line.intercept,
        beta_us: line.slope,
        crossover: (alpha > 0.0 && beta > 0.0).then(|| alpha / beta),
        residuals: Vec::new(),
        aicc: None,
    };
    if sizes.iter().any(|(n, _)| model.at(*n) <= 0.0) {
        return (model, None);
    }
    let rss = observations.iter().map(|o| (o.us / model.at(o.n)).ln().powi(2)).sum();
    model.residuals = residuals(sizes, |n| model.at(n));
    model.aicc = aicc(rss, observations.len());
    (model, Some(rss))
}

fn residuals(sizes: &[(f64, f64)], model: impl Fn(f64) -> f64) -> Vec<Residual> {
    sizes.iter().map(|(n, log_us)| Residual { n: *n, relative: log_us.exp() / model(*n) - 1.0 }).collect()
}

/// With three parameters: two of the model and the spread.
fn aicc(rss: f64, observations: usize) -> Option<f64> {
    let (n, k) = (observations as f64, 3.0);
    let value = n * (rss / n).ln() + 2.0 * k + 2.0 * k * (k + 1.0) / (n - k - 1.0);
    (n > k + 1.0 && rss > EXACT).then_some(value)
}

/// An ordinary least squares line.
struct Line {
    intercept: Estimate,
    slope: Estimate,
    rss: f64,
}

impl Line {
    /// At least two different abscissas.
    fn through(points: &[(f64, f64)]) -> Self {
        let n = points.len() as f64;
        let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
        let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
        let sxx: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
        let sxy: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
        let slope = sxy / sxx;
        let intercept = mean_y - slope * mean_x;
        let rss: f64 = points.iter().map(|p| (p.1 - intercept - slope * p.0).powi(2)).sum();
        let freedom = points.len().saturating_sub(2);
        let estimate = |value: f64, variance_factor: f64| {
            let interval = (freedom > 0).then(|| {
                let half = student_975(freedom) * (rss / freedom as f64 * variance_factor).sqrt();
                Interval { low: value - half, high: value + half }
            });
            Estimate { value, interval }
        };
        Self { intercept: estimate(intercept, 1.0 / n + mean_x * mean_x / sxx), slope: estimate(slope, 1.0 / sxx), rss }
    }
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
