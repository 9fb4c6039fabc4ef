//! One logical session: its settings and the ledger of replies still owed; no I/O
