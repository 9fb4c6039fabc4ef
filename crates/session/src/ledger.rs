//! The ledger of one physical connection: which replies the server still owes.
//!
//! Every message that is sent is booked, every reply strikes an entry out. A physical connection may change hands only
//! while its ledger is [clean](Ledger::is_clean). The rules are those of the server's main loop (src/backend/tcop/postgres.c)
//! and of COPY (src/backend/commands/copyfromparse.c):
//!
//! * Query, FunctionCall and Sync end in one ReadyForQuery each.
//! * Parse, Bind, Describe, Execute and Close have one completing reply each.
//! * After an error in one of those, the server discards everything up to the next Sync, a Query included.
//! * While the server reads COPY data it ignores Sync and Flush; outside of that it ignores CopyData, CopyDone and CopyFail.
//!
//! Some messages are not the client's: a Parse put in front of its Bind, a Close that makes room. And some of the client's are
//! never sent: a Parse of a statement that the server has already. Both are booked as [marks](Ledger::marked), in their place
//! among the others, so that replies are swallowed and given where they belong. What became of each mark, in the order in
//! which they were booked, is told by [`Ledger::events`].
//!
//! What ends in one ReadyForQuery is a unit. Units are numbered, so that what is known of a statement when it is sent finds the
//! replies to it.
//!
//! The ledger knows nothing of clients or sockets, and never looks into a body.

use pgusher_wire::{TxStatus, backend, frontend};
use std::collections::VecDeque;

/// What is owed for one message, or for a run of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// So many messages of the extended protocol, one completing reply each.
    Extended(u32),
    /// A Query or FunctionCall: any number of replies, then ReadyForQuery.
    Query,
    /// A Sync: ReadyForQuery.
    Sync,
    /// So many CopyDone or CopyFail that were sent before the server said that it reads COPY data. They owe nothing.
    CopyEnd(u32),
    /// A Parse, Describe or Close with a mark.
    Marked(Mark),
    /// Messages of our own up to and with a ReadyForQuery. `ends`: what they report of settings, and their ReadyForQuery, are for
    /// the client, who has not been given the one before. `needed`: what
    /// follows relies on them.
    Own { ends: bool, needed: bool },
}

/// What is special about a Parse, Describe or Close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The client's Parse or Close, sent to the server; its end is to be told.
    Passed,
    /// The client's Describe of a statement, sent to the server; its end is to be told.
    Described,
    /// Our own, sent to the server: the client does not see the reply. It does see the error. It may also be a Bind, or an
    /// Execute of a command that gives no rows.
    Own,
    /// The client's, not sent to the server: we give the reply.
    Given(Given),
}

/// A reply that the server is not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// ParseComplete.
    Parse,
    /// CloseComplete.
    Close,
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The server has done it.
    Done,
    /// Its reply goes to the client now, in front of the server's message.
    Give(Given),
    /// It failed.
    Failed,
    /// It was discarded because of an error in front of it.
    Undone,
}

/// Whose a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The client's.
    Pass,
    /// The client's, and there are [events](Ledger::events) to be looked at first.
    PassWithEvents,
    /// Nobody's but ours; there are events.
    Swallow,
}

/// A reply that nothing was booked for. The stream cannot be trusted any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unexpected {
    /// Type byte of the reply.
    pub tag: u8,
}

/// The replies that one server owes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    owed: VecDeque<Entry>,
    status: TxStatus,
    /// Messages of the extended protocol were sent and no Sync after them.
    batch_open: bool,
    /// The server discards everything up to a Sync that has not been sent yet.
    discarding: bool,
    /// The server reads COPY data.
    copy_in: bool,
    /// Syncs that the server ignores if it reads them within COPY, and answers if COPY ended with an error before.
    uncertain_syncs: u32,
    /// One of those was sent and COPY failed: which of the two happened can't be known. Or an error came that nothing was
    /// booked for.
    doubt: bool,
    /// What became of marks since the caller last looked.
    events: Vec<Event>,
    /// Units that were booked.
    units: u32,
    /// A unit went away in the middle: the numbers behind it are no longer those under which they were booked.
    renumbered: bool,
    /// A message of our own has failed.
    own_failed: bool,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            owed: VecDeque::new(),
            status: TxStatus::Idle,
            batch_open: false,
            discarding: false,
            copy_in: false,
            uncertain_syncs: 0,
            doubt: false,
            events: Vec::new(),
            units: 0,
            renumbered: false,
            own_failed: false,
        }
    }
}

impl Ledger {
    /// The ledger of a connection that has just said ReadyForQuery for the first time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing is owed, no transaction is open, no batch has been begun, no COPY is under way: the connection may change
    /// hands.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.is_quiet() && self.status == TxStatus::Idle
    }

    /// As [`is_clean`](Self::is_clean), but a transaction may be open: a statement of our own may be sent.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.owed.is_empty() && !self.batch_open && !self.discarding && !self.copy_in && !self.doubt
    }

    /// Is a statement under way that a cancel request could be meant for?
    #[inline]
    pub fn is_busy(&self) -> bool {
        !self.owed.is_empty()
    }

    /// The status of the last ReadyForQuery.
    #[inline]
    pub fn status(&self) -> TxStatus {
        self.status
    }

    /// Does the server owe a ReadyForQuery? It sends what it has gathered then.
    pub fn owes_ready(&self) -> bool {
        self.owed.iter().any(is_unit)
    }

    /// Does the server read COPY data whose end has not been sent? It answers nothing before that, unless it is an error.
    #[inline]
    pub fn reads_copy(&self) -> bool {
        self.copy_in
    }

    /// Entries that are open. Each needs a few bytes; a relay stops reading from a client whose ledger is long.
    #[inline]
    pub fn len(&self) -> usize {
        self.owed.len()
    }

    /// The number of the unit that what is sent now belongs to.
    #[inline]
    pub fn unit(&self) -> u32 {
        self.units
    }

    /// The number of the unit that the server's next reply belongs to. It goes through all that is owed.
    pub fn front_unit(&self) -> u32 {
        self.units.wrapping_sub(self.owed.iter().filter(|e| is_unit(e)).count() as u32)
    }

    /// Have units changed their numbers since this was asked last?
    #[inline]
    pub fn take_renumbered(&mut self) -> bool {
        std::mem::take(&mut self.renumbered)
    }

    /// Has a message of our own, booked by [`own`](Self::own), failed since this was asked last?
    #[inline]
    pub fn take_own_failed(&mut self) -> bool {
        std::mem::take(&mut self.own_failed)
    }

    /// Does the server work on messages of our own, booked by [`own`](Self::own)?
    #[inline]
    pub fn is_own(&self) -> bool {
        matches!(self.owed.front(), Some(Entry::Own { .. }))
    }

    /// Books messages of our own that end in a ReadyForQuery. The client sees none of the replies, unless they are the `ends` of
    /// its own unit, whose ReadyForQuery was kept from it: then it is given theirs, and what they report of settings. Only to be
    /// called while the connection is [quiet](Self::is_quiet), or [clean but for such](Self::is_clean_but_for_own).
    pub fn own(&mut self, ends: bool) {
        self.owed.push_back(Entry::Own { ends, needed: true });
        self.units = self.units.wrapping_add(1);
    }

    /// As [`own`](Self::own), for messages that may fail: nobody is told of it.
    pub fn own_attempt(&mut self) {
        self.owed.push_back(Entry::Own { ends: false, needed: false });
        self.units = self.units.wrapping_add(1);
    }

    /// Does the server work on messages of our own that may fail, booked by [`own_attempt`](Self::own_attempt)?
    #[inline]
    pub fn is_attempt(&self) -> bool {
        matches!(self.owed.front(), Some(Entry::Own { needed: false, .. }))
    }

    /// As [`is_clean`](Self::is_clean), but messages of our own may be under way: others of them may be sent.
    pub fn is_clean_but_for_own(&self) -> bool {
        self.status == TxStatus::Idle
            && !(self.batch_open || self.discarding || self.copy_in || self.doubt)
            && self.owed.iter().all(|entry| matches!(entry, Entry::Own { .. }))
    }

    /// Does the server's next reply belong to a Describe with a mark? To be asked when the reply is there.
    #[inline]
    pub fn is_described(&mut self) -> bool {
        matches!(self.front(), Some(Entry::Marked(Mark::Described)))
    }

    /// The server discards what it is sent, up to a Sync that has not been sent yet.
    #[inline]
    pub fn is_discarding(&self) -> bool {
        self.discarding
    }

    /// Books a Parse, Describe or Close with a mark. Not to be called while the server [discards](Self::is_discarding).
    pub fn marked(&mut self, mark: Mark) {
        self.copy_is_over();
        self.batch_open = true;
        self.owed.push_back(Entry::Marked(mark));
    }

    /// What became of marks, oldest first; the list is the caller's to empty.
    #[inline]
    pub fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }

    /// Nothing is owed but replies that we give: they need not wait for the server. They are in [`events`](Self::events) then.
    #[inline]
    pub fn give_the_rest(&mut self) {
        if matches!(self.owed.front(), Some(Entry::Marked(Mark::Given(_))))
            && self.owed.iter().all(|e| matches!(e, Entry::Marked(Mark::Given(_))))
        {
            self.give();
        }
    }

    /// Is nothing owed?
    pub fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// Books a message of type `tag` that is sent to the server.
    #[inline]
    pub fn sent(&mut self, tag: u8) {
        match tag {
            frontend::QUERY | frontend::FUNCTION_CALL => {
                self.copy_is_over();
                if !self.discarding {
                    self.owed.push_back(Entry::Query);
                    self.units = self.units.wrapping_add(1);
                    self.batch_open = false;
                }
            }
            frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE => {
                self.copy_is_over();
                if !self.discarding {
                    self.batch_open = true;
                    match self.owed.back_mut() {
                        Some(Entry::Extended(n)) if *n < u32::MAX => *n += 1,
                        _ => self.owed.push_back(Entry::Extended(1)),
                    }
                }
            }
            frontend::SYNC => {
                if self.copy_in {
                    self.uncertain_syncs += 1;
                } else {
                    self.owed.push_back(Entry::Sync);
                    self.units = self.units.wrapping_add(1);
                    self.batch_open = false;
                    self.discarding = false;
                }
            }
            frontend::COPY_DONE | frontend::COPY_FAIL => {
                if self.copy_in {
                    self.copy_in = false;
                } else {
                    match self.owed.back_mut() {
                        None => {}
                        Some(Entry::CopyEnd(n)) => *n = n.saturating_add(1),
                        Some(_) => self.owed.push_back(Entry::CopyEnd(1)),
                    }
                }
            }
            // Flush and CopyData owe nothing. Types that the server does not know end its connection.
            _ => {}
        }
    }

    /// A message that has no place in COPY is sent. Either COPY has failed already, and the server's word is on its way, or
    /// the server ends the connection. A Sync from here on is answered.
    #[inline]
    fn copy_is_over(&mut self) {
        self.copy_in = false;
    }

    /// Strikes out what a reply of type `tag` settles. `status` is the status byte of a ReadyForQuery and is ignored
    /// otherwise.
    ///
    /// # Errors
    /// Nothing was booked that this reply could belong to: close the connection. In doubt, when the ledger does not know how
    /// many ReadyForQuery are owed, any reply is taken: the connection stays with its client then.
    #[inline]
    pub fn received(&mut self, tag: u8, status: TxStatus) -> Result<Verdict, Unexpected> {
        match self.settle(tag, status) {
            Err(unexpected) if !self.doubt => Err(unexpected),
            Ok(Verdict::Pass) | Err(_) if self.events.is_empty() => Ok(Verdict::Pass),
            Ok(Verdict::Swallow) => Ok(Verdict::Swallow),
            _ => Ok(Verdict::PassWithEvents),
        }
    }

    #[inline]
    fn settle(&mut self, tag: u8, status: TxStatus) -> Result<Verdict, Unexpected> {
        if let Some(Entry::Own { ends, needed }) = self.owed.front() {
            return Ok(self.settle_own(tag, status, *ends, *needed));
        }
        match tag {
            backend::DATA_ROW | backend::COPY_DATA => {
                if self.front().is_none() {
                    return Err(Unexpected { tag });
                }
            }
            backend::READY_FOR_QUERY => self.ready(status)?,
            backend::COMMAND_COMPLETE | backend::ROW_DESCRIPTION | backend::EMPTY_QUERY => {
                if tag == backend::COMMAND_COMPLETE {
                    self.uncertain_syncs = 0;
                }
                match self.front() {
                    Some(Entry::Extended(_)) => self.complete_one(),
                    Some(Entry::Marked(Mark::Own)) if tag == backend::COMMAND_COMPLETE => {
                        return Ok(self.own_mark_done());
                    }
                    Some(Entry::Query) => {}
                    Some(Entry::Marked(Mark::Described)) if tag == backend::ROW_DESCRIPTION => self.described(),
                    _ => return Err(Unexpected { tag }),
                }
            }
            backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE => match self.front() {
                Some(Entry::Extended(_)) => self.complete_one(),
                Some(Entry::Marked(mark)) if mark != Mark::Described => {
                    self.owed.pop_front();
                    self.skip_copy_ends();
                    self.events.push(Event::Done);
                    if mark == Mark::Own {
                        return Ok(Verdict::Swallow);
                    }
                }
                _ => return Err(Unexpected { tag }),
            },
            backend::BIND_COMPLETE | backend::NO_DATA | backend::PORTAL_SUSPENDED => match self.front() {
                Some(Entry::Extended(_)) => self.complete_one(),
                Some(Entry::Marked(Mark::Own)) if tag == backend::BIND_COMPLETE => return Ok(self.own_mark_done()),
                Some(Entry::Marked(Mark::Described)) if tag == backend::NO_DATA => self.described(),
                _ => return Err(Unexpected { tag }),
            },
            backend::ERROR_RESPONSE => self.failed(),
            backend::COPY_IN => self.copy_began()?,
            backend::COPY_BOTH => {
                // Replication: both sides send until one of them ends the connection.
                self.doubt = true;
            }
            backend::NOTICE_RESPONSE | backend::PARAMETER_STATUS | backend::NOTIFICATION_RESPONSE => {}
            backend::PARAMETER_DESCRIPTION
            | backend::COPY_OUT
            | backend::COPY_DONE
            | backend::FUNCTION_CALL_RESPONSE => {
                if self.front().is_none() {
                    return Err(Unexpected { tag });
                }
            }
            _ => return Err(Unexpected { tag }),
        }
        Ok(Verdict::Pass)
    }

    fn described(&mut self) {
        self.owed.pop_front();
        self.skip_copy_ends();
        self.events.push(Event::Done);
    }

    fn settle_own(&mut self, tag: u8, status: TxStatus, ends: bool, needed: bool) -> Verdict {
        match tag {
            backend::READY_FOR_QUERY => {
                self.owed.pop_front();
                self.skip_copy_ends();
                self.status = status;
                if ends {
                    return Verdict::Pass;
                }
            }
            backend::ERROR_RESPONSE => self.own_failed |= needed,
            backend::NOTIFICATION_RESPONSE => return Verdict::Pass,
            backend::PARAMETER_STATUS if ends => return Verdict::Pass,
            _ => {}
        }
        Verdict::Swallow
    }

    /// The entry that the reply at hand belongs to. What we give in front of it is given now.
    #[inline]
    fn front(&mut self) -> Option<Entry> {
        loop {
            match self.owed.front() {
                Some(Entry::CopyEnd(_)) => self.skip_copy_ends(),
                Some(Entry::Marked(Mark::Given(_))) => self.give(),
                front => return front.copied(),
            }
        }
    }

    /// A CopyEnd owes nothing; left at the front it would keep the connection from being clean.
    #[inline]
    fn skip_copy_ends(&mut self) {
        while matches!(self.owed.front(), Some(Entry::CopyEnd(_))) {
            self.owed.pop_front();
        }
    }

    /// A Bind or Execute of our own is done.
    fn own_mark_done(&mut self) -> Verdict {
        self.owed.pop_front();
        self.skip_copy_ends();
        self.events.push(Event::Done);
        Verdict::Swallow
    }

    fn give(&mut self) {
        while let Some(Entry::Marked(Mark::Given(given))) = self.owed.front() {
            self.events.push(Event::Give(*given));
            self.owed.pop_front();
        }
    }

    #[inline]
    fn complete_one(&mut self) {
        if let Some(Entry::Extended(n)) = self.owed.front_mut() {
            *n -= 1;
            if *n == 0 {
                self.owed.pop_front();
            }
        }
        self.skip_copy_ends();
    }

    #[inline]
    fn ready(&mut self, status: TxStatus) -> Result<(), Unexpected> {
        match self.front() {
            Some(Entry::Query | Entry::Sync) => {
                self.owed.pop_front();
                self.skip_copy_ends();
            }
            _ if self.doubt => self.discarding = false,
            _ => return Err(Unexpected { tag: backend::READY_FOR_QUERY }),
        }
        self.copy_in = false;
        self.status = status;
        Ok(())
    }

    fn failed(&mut self) {
        if self.uncertain_syncs > 0 {
            self.doubt = true;
        }
        self.copy_in = false;
        self.skip_copy_ends();
        if self.status == TxStatus::Failed {
            // In a failed transaction the server would have refused the Parse itself, and not only the Bind behind it.
            while let Some(Entry::Marked(Mark::Given(Given::Parse))) = self.owed.front() {
                self.owed.pop_front();
                self.events.push(Event::Failed);
            }
        }
        match self.front() {
            Some(Entry::Marked(_)) => {
                self.owed.pop_front();
                self.events.push(Event::Failed);
            }
            Some(Entry::Extended(_)) => {}
            None => {
                // Either the server ends the connection, or it skips to a Sync for a reason that is not known.
                self.doubt = true;
                return;
            }
            Some(_) => return,
        }
        while let Some(entry) = self.owed.front() {
            match entry {
                Entry::Sync => return,
                Entry::Marked(_) => self.events.push(Event::Undone),
                Entry::Extended(_) | Entry::Query | Entry::CopyEnd(_) | Entry::Own { .. } => {}
            }
            self.owed.pop_front();
        }
        self.discarding = true;
        self.batch_open = true;
    }

    /// The server reads COPY data from here on: the Syncs that were sent up to the end of the data are ignored.
    fn copy_began(&mut self) -> Result<(), Unexpected> {
        let (in_batch, alone) = match self.front() {
            Some(Entry::Extended(n)) => (true, n == 1),
            Some(Entry::Query) => (false, true),
            _ => return Err(Unexpected { tag: backend::COPY_IN }),
        };
        // COPY lasts up to the first of its ends, or up to a message that has no place in it; see `copy_is_over`.
        self.copy_in = alone;
        while self.copy_in {
            match self.owed.get_mut(1) {
                Some(Entry::Sync) => {
                    self.owed.remove(1);
                    self.uncertain_syncs += 1;
                    self.units = self.units.wrapping_sub(1);
                    self.renumbered |= self.owed.iter().skip(1).any(is_unit);
                }
                Some(Entry::CopyEnd(n)) => {
                    *n -= 1;
                    if *n == 0 {
                        self.owed.remove(1);
                    }
                    self.copy_in = false;
                }
                Some(Entry::Query | Entry::Extended(_) | Entry::Marked(_) | Entry::Own { .. }) => self.copy_in = false,
                None => break,
            }
        }
        if in_batch && !self.owed.iter().any(|e| matches!(e, Entry::Sync | Entry::Query)) {
            self.batch_open = true;
        }
        Ok(())
    }
}

/// Does it end in a ReadyForQuery?
fn is_unit(entry: &Entry) -> bool {
    matches!(entry, Entry::Query | Entry::Sync | Entry::Own { .. })
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
