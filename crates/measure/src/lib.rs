//! Experiments, statistics and reports
