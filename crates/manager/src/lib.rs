//! The connection manager: worker threads that move bytes, and a control side that does the rest
