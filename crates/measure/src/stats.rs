//! Statistics of timed samples: what a reader may conclude from them, and how sure they may be.
//!
//! Everything here works on microseconds as `f64`, in the order in which the samples were taken. The order
//! matters: the first sample of a series (the first connection, the first run of a statement) pays for caches
//! that later ones find filled, so it is a different population and is never averaged into the rest.
//! [`Summary`] keeps first, second and the steady rest apart.
//!
//! Two ways lead to a [`Distribution`]: from raw samples, exact and with a bootstrap interval of the median; or
//! from a [`Histogram`], which takes millions of observations in bounded memory, merges across threads, and
//! gives percentiles to three significant digits. [`Growth`] says how a time grows with a number. Not here: measuring (that is each experiment's job) and
//! drawing (`report`).

mod bootstrap;
mod distribution;
mod fit;
mod format;
mod histogram;
mod ratio;
mod share;

pub use bootstrap::{Interval, RESAMPLES, median_interval};
pub use distribution::{Distribution, Summary, mad, outliers, quantile};
pub use fit::{Better, Estimate, Growth, LinearQuadratic, Observation, PowerLaw, Residual, Unfit};
pub use format::{bytes, count, micros, percent, ratio as ratio_text, seconds};
pub use histogram::{Bucket, Histogram};
pub use ratio::{Ratio, paired_ratio, ratio_of_medians};
pub use share::share_removed;
