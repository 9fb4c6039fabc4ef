//! Connects as libpq does and times each phase
