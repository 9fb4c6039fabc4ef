//! Physical connections, who waits for them, and their limits; no I/O
