//! PostgreSQL protocol 3.0 and 3.2: frames, messages, startup, errors; borrowed views, no I/O
