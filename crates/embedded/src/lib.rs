//! A private PostgreSQL server for demo, tests and benchmarks
