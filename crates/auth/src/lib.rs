//! Prove a client's identity and prove ours to a server: SCRAM-SHA-256, md5, plain; no I/O
