//! The `pgusher` command line.
fn main() {}
